//! How far a run is: a bar with an estimate on a terminal, plain lines elsewhere.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Counts scenarios; the rounds of the present one are shown beside it.
pub(crate) struct Progress {
    /// Nothing where standard error is no terminal.
    bar: Option<ProgressBar>,
    started: Instant,
    scenarios: usize,
    done: usize,
    present: String,
}

impl Progress {
    pub(crate) fn new(scenarios: usize) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::with_draw_target(Some(SCALE), ProgressDrawTarget::stderr());
            let style = ProgressStyle::with_template("{bar:30} {percent:>3} % {msg}");
            if let Ok(style) = style {
                bar.set_style(style);
            }
            bar
        });
        Self {
            bar,
            started: Instant::now(),
            scenarios,
            done: 0,
            present: String::new(),
        }
    }

    pub(crate) fn begin(&mut self, scenario: &str) {
        scenario.clone_into(&mut self.present);
        match &self.bar {
            Some(_) => self.show(0.0, "checking"),
            None => eprintln!("{scenario} ({} of {})", self.done + 1, self.scenarios),
        }
    }

    /// A round is over, and with it that share of the scenario.
    pub(crate) fn round(&self, round: &str, share: f64) {
        match &self.bar {
            Some(_) => self.show(share, round),
            None => eprintln!("  {round}{}", self.estimate(share)),
        }
    }

    pub(crate) fn end(&mut self) {
        self.done += 1;
    }

    /// A line that stays on the screen.
    pub(crate) fn say(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| eprintln!("{line}")),
            None => eprintln!("{line}"),
        }
    }

    pub(crate) fn close(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    fn show(&self, share: f64, what: &str) {
        let Some(bar) = &self.bar else { return };
        let part = self.part(share);
        #[expect(
            clippy::cast_possible_truncation,
            reason = "a share of SCALE, of which nobody sees a fraction"
        )]
        bar.set_position((part * SCALE as f64) as u64);
        bar.set_message(format!("{}: {what}{}", self.present, self.estimate(share)));
    }

    /// How much of the whole is done.
    fn part(&self, share: f64) -> f64 {
        (self.done as f64 + share) / self.scenarios.max(1) as f64
    }

    /// When it will be over, once that can be guessed.
    fn estimate(&self, share: f64) -> String {
        let part = self.part(share);
        if part < EARLIEST_GUESS {
            return String::new();
        }
        let passed = self.started.elapsed().as_secs_f64();
        let left = Duration::from_secs_f64(passed / part * (1.0 - part).max(0.0)).as_secs();
        format!(", about {}:{:02} to go", left / 60, left % 60)
    }
}

const SCALE: u64 = 1000;
/// Before this share of the whole a guess says nothing.
const EARLIEST_GUESS: f64 = 0.02;
