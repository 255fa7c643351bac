//! One run: every chosen scenario in turn, and what all of them gave.

use std::process::ExitCode;

use anyhow::Result;

use crate::bench::Bench;
use crate::results::{FORMAT, Results, Setting};
use crate::scenario::Scenario;
use crate::stop::INTERRUPTED;
use crate::target::{Placement, Target};
use crate::{cpu, load};

/// Measures. Failures of scenarios stand in the results; an error is a target that cannot be had at all.
pub(crate) fn measured(bench: &Bench, chosen: &[&Scenario]) -> Result<Results> {
    let mut results = Results {
        format: FORMAT.to_owned(),
        complete: false,
        setting: Setting::of_this_machine(0, bench.dir()),
        targets: Vec::new(),
        scenarios: Vec::new(),
    };
    let stolen_before = cpu::stolen_ms();
    load::start(async {
        for spec in &bench.specs {
            let target = Target::open(spec, Placement::default(), &[], bench.dir()).await?;
            results.targets.push(target.info(spec).await);
        }
        for scenario in chosen {
            if bench.stop.is_set() {
                break;
            }
            results.scenarios.push(scenario.measure(bench).await);
        }
        bench.clean_up().await;
        Ok(())
    })?;
    bench.progress.borrow().close();
    results.setting.stolen_ms = cpu::stolen_ms() - stolen_before;
    results.setting.rounds = results.least_rounds();
    results.complete = !bench.stop.is_set();
    Ok(results)
}

/// How a run ended that is not to be looked at any further: broken off, or with scenarios that failed.
pub(crate) fn unhappy_end(bench: &Bench, results: &Results) -> Option<ExitCode> {
    if bench.stop.is_set() {
        eprintln!("interrupted: the results are not complete");
        return Some(ExitCode::from(INTERRUPTED));
    }
    let failed = results.failed();
    if !failed.is_empty() {
        eprintln!("failed: {}", failed.join(", "));
        return Some(ExitCode::FAILURE);
    }
    None
}
