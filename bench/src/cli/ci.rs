//! `ringbench ci`: the gate.

use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;

use super::compare::Percent;
use super::run::TWO_CPUS;
use crate::bench::{Bench, Sizes};
use crate::ci::{GATE, GATE_SIZES, Program, SMOKE_SIZES};
use crate::compare::{Comparison, RESAMPLES, Rules, Source};
use crate::pace::Pace;
use crate::progress::Progress;
use crate::results::Results;
use crate::run::{measured, unhappy_end};
use crate::scenario::Scenario;
use crate::stop::{INTERRUPTED, Stop};
use crate::target::Spec;
use crate::{cpu, scenario};

/// What is compared with what, for how long, and where the verdict goes.
#[derive(Args)]
pub(crate) struct Arguments {
    /// The commit to compare with; it is built in a checkout of its own, which is removed afterwards. By default where
    /// HEAD left origin/main, or HEAD~1.
    #[arg(long, value_name = "COMMIT", conflicts_with = "base_binary")]
    base: Option<String>,
    /// The ringd to compare with, when it is built already.
    #[arg(long, value_name = "PATH")]
    base_binary: Option<PathBuf>,
    /// The ringd that is judged, when it is built already; by default the working tree is built.
    #[arg(long, value_name = "PATH")]
    new_binary: Option<PathBuf>,
    /// How long to measure. Every scenario gets its share, and five rounds at least.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    minutes: u16,
    /// Measured rounds of each scenario, however long they take.
    #[arg(long, conflicts_with = "minutes", value_parser = clap::value_parser!(u16).range(5..))]
    rounds: Option<u16>,
    /// How much worse a main figure may be.
    #[arg(long, value_name = "PERCENT", default_value = "5%")]
    fail_above: Percent,
    /// Names of scenarios, with commas, instead of the usual choice.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    scenario: Vec<String>,
    /// One tiny round of every scenario, to see that all work and no byte is wrong; nothing is compared. Without a
    /// base the new ringd is measured beside itself.
    #[arg(long, conflicts_with_all = ["minutes", "rounds", "fail_above"])]
    smoke: bool,
    /// The directory for results.json, comparison.md and junit.xml.
    #[arg(long, value_name = "DIR", default_value = "target/ringbench-ci")]
    out: PathBuf,
    /// Where the work directory is made.
    #[arg(long, value_name = "PATH")]
    dir: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let chosen = arguments.chosen()?;
    let results_path = arguments.out.join("results.json");
    Results::make_room(&results_path)?;
    arguments.forget_earlier()?;
    // Said before anything is built. What is built is not pinned.
    ensure!(cpu::are_two()?, TWO_CPUS);
    let stop = Stop::on_signals()?;
    let (base, new) = match arguments.programs() {
        Ok(both) => both,
        Err(error) if stop.is_set() => {
            eprintln!("interrupted: {error:#}");
            return Ok(ExitCode::from(INTERRUPTED));
        }
        Err(error) => return Err(error),
    };
    announce(&base, &new)?;
    cpu::pin(cpu::LOAD_CPU)?;
    let dir = arguments.dir.clone().unwrap_or_else(std::env::temp_dir);
    let bench = Bench::open(
        vec![spec(BASE, &base)?, spec(NEW, &new)?],
        arguments.pace(chosen.len())?,
        arguments.sizes(),
        &dir,
        dir.clone(),
        stop,
        Progress::new(chosen.len()),
    )?;
    let results = measured(&bench, &chosen)?;
    results.write(&results_path)?;
    match unhappy_end(&bench, &results) {
        Some(status) if arguments.smoke || bench.stop.is_set() => Ok(status),
        None if arguments.smoke => {
            println!("scenarios that work: {}", chosen.len());
            Ok(ExitCode::SUCCESS)
        }
        // The comparison says which figures there are beside what failed.
        _ => arguments.compare(&results, &results_path),
    }
}

impl Arguments {
    fn chosen(&self) -> Result<Vec<&'static Scenario>> {
        match (self.scenario.is_empty(), self.smoke) {
            (false, _) => scenario::chosen(&self.scenario),
            (true, true) => scenario::chosen(&["all"]),
            (true, false) => scenario::chosen(GATE),
        }
    }

    fn sizes(&self) -> Sizes {
        match self.smoke {
            true => SMOKE_SIZES,
            false => GATE_SIZES,
        }
    }

    fn pace(&self, scenarios: usize) -> Result<Pace> {
        let minutes = Duration::from_secs(60 * u64::from(self.minutes));
        Ok(match (self.smoke, self.rounds) {
            (true, _) => Pace::Rounds(1),
            (false, Some(rounds)) => Pace::Rounds(rounds.into()),
            (false, None) => Pace::within(minutes, scenarios.try_into()?),
        })
    }

    /// The base first: it fails more often, as for a commit that is not there.
    fn programs(&self) -> Result<(Program, Program)> {
        let named = |path: &Option<PathBuf>| path.as_deref().map(Program::at).transpose();
        let new = named(&self.new_binary)?;
        let base = match named(&self.base_binary)? {
            Some(base) => Some(base),
            None if self.smoke && self.base.is_none() => None,
            None => Some(Program::of_base(self.base.as_deref())?),
        };
        let new = new.map_or_else(Program::of_working_tree, Ok)?;
        Ok((base.unwrap_or_else(|| new.clone()), new))
    }

    fn compare(&self, results: &Results, path: &Path) -> Result<ExitCode> {
        let name = path.display().to_string();
        let source = Source {
            name: &name,
            results,
        };
        let rules = Rules {
            margin: self.fail_above.0,
            confidence: CONFIDENCE,
            gate_all: false,
            resamples: RESAMPLES,
        };
        let comparison = Comparison::of_targets(source, (BASE, NEW), rules)?;
        self.write(COMPARISON, &comparison.markdown())?;
        self.write(JUNIT, &comparison.junit())?;
        std::io::stdout()
            .write_all(comparison.table().as_bytes())
            .context("cannot write to standard output")?;
        Ok(match comparison.fails() {
            true => ExitCode::FAILURE,
            false => ExitCode::SUCCESS,
        })
    }

    /// What an earlier run wrote could be taken for this one's, if this one fails.
    fn forget_earlier(&self) -> Result<()> {
        for name in ["results.json", COMPARISON, JUNIT] {
            let path = self.out.join(name);
            match std::fs::remove_file(&path) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(error).with_context(|| format!("cannot remove {}", path.display()));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn write(&self, name: &str, text: &str) -> Result<()> {
        let path = self.out.join(name);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    }
}

fn spec(name: &str, program: &Program) -> Result<Spec> {
    let path = program.path.to_str();
    let path = path.with_context(|| format!("{} is not UTF-8", program.path.display()))?;
    Ok(Spec::ringd(name, path))
}

fn announce(base: &Program, new: &Program) -> Result<()> {
    eprintln!("{BASE}: {}", base.origin);
    eprintln!("{NEW}:  {}", new.origin);
    if base.path != new.path && std::fs::read(&base.path)? == std::fs::read(&new.path)? {
        eprintln!("they are the same, byte for byte");
    }
    Ok(())
}

const COMPARISON: &str = "comparison.md";
const JUNIT: &str = "junit.xml";
const BASE: &str = "base";
const NEW: &str = "new";
/// How sure all verdicts together are, as `compare` has it by default.
const CONFIDENCE: f64 = 0.95;
