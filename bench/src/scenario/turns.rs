//! How targets take turns: all are checked once, then each is measured once in every round.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::sample::{Sample, Sorted};
use crate::bench::Bench;
use crate::load::Unsupported;
use crate::results::{ScenarioResults, Skipped};
use crate::target::Target;

/// Someone who takes part in a scenario.
pub(crate) trait Entrant {
    fn name(&self) -> &str;
}

impl Entrant for Target {
    fn name(&self) -> &str {
        &self.name
    }
}

/// Checks every entrant once, unmeasured, then measures each once per round, in order.
///
/// `check` must look at every byte. An entrant whose check fails is left out: as [`Unsupported`] with a note, else the
/// scenario has failed, but the others are measured. An error later on ends the scenario, with the rounds before it
/// kept. So does Ctrl-C, without an error.
pub(crate) async fn take_turns<E: Entrant>(
    bench: &Bench,
    out: &mut ScenarioResults,
    mut entrants: Vec<E>,
    mut check: impl AsyncFnMut(&E) -> Result<()>,
    mut measure: impl AsyncFnMut(&E) -> Result<Sample>,
) -> Result<()> {
    let mut fit = Vec::new();
    let mut unfit = Vec::new();
    for entrant in entrants.drain(..) {
        if bench.stop.is_set() {
            break;
        }
        let outcome = patiently(check(&entrant)).await;
        match outcome {
            Ok(()) => fit.push(entrant),
            Err(error) if error.is::<Unsupported>() => {
                let why = error.to_string();
                skip(bench, out, entrant.name(), &why);
            }
            Err(error) => unfit.push(format!("{} failed the check: {error:#}", entrant.name())),
        }
    }
    let mut sorted = Sorted::default();
    let mut whole = 0;
    let outcome = rounds(bench, out, &fit, &mut sorted, &mut whole, &mut measure).await;
    sorted.close(out, whole);
    if let Err(error) = outcome {
        unfit.push(format!("{error:#}"));
    }
    ensure!(unfit.is_empty(), unfit.join("; "));
    Ok(())
}

async fn rounds<E: Entrant>(
    bench: &Bench,
    out: &mut ScenarioResults,
    entrants: &[E],
    sorted: &mut Sorted,
    whole: &mut usize,
    measure: &mut impl AsyncFnMut(&E) -> Result<Sample>,
) -> Result<()> {
    if entrants.is_empty() {
        return Ok(());
    }
    while bench.pace.goes_on(*whole) {
        let round = *whole + 1;
        for entrant in entrants {
            if bench.stop.is_set() {
                return Ok(());
            }
            let sample = patiently(measure(entrant)).await;
            let sample = sample.with_context(|| format!("{}, round {round}", entrant.name()))?;
            sorted.add(out, entrant.name(), sample)?;
        }
        *whole = round;
        let (shown, share) = bench.pace.shown(round);
        bench.progress.borrow().round(&shown, share);
    }
    Ok(())
}

/// Leaves an entrant out.
pub(crate) fn skip(bench: &Bench, out: &mut ScenarioResults, entrant: &str, why: &str) {
    bench
        .progress
        .borrow()
        .say(&format!("  {entrant} is left out: {why}"));
    out.skipped.push(Skipped {
        target: entrant.to_owned(),
        why: why.to_owned(),
    });
}

/// Nothing is waited for longer than this.
async fn patiently<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    match tokio::time::timeout(PATIENCE, work).await {
        Ok(outcome) => outcome,
        Err(_) => bail!("it was not done after {PATIENCE:?}"),
    }
}

const PATIENCE: Duration = Duration::from_secs(300);
