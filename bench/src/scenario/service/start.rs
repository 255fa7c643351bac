//! How soon a daemon is there.

use std::time::Instant;

use anyhow::Result;

use super::super::{Sample, opened, take_turns};
use super::{ANYBODY, LATENCY, ask_health, check_health};
use crate::bench::Bench;
use crate::cpu;
use crate::load::{Latencies, Manner};
use crate::results::{Metric, ScenarioResults, median};
use crate::target::{Placement, Spec, Target};

const UNTIL_ANSWER: Metric = Metric::low("until it answers", "ms").main();
const CPU: Metric = Metric::low("CPU of the start", "ms");

pub(super) async fn run(bench: &Bench, out: &mut ScenarioResults) -> Result<()> {
    let targets = opened(bench, out, ANYBODY.spawned(), Placement::ServerCpu).await?;
    out.notes.push(format!(
        "From before the fork to the first 200; the median of {STARTS} starts. A daemon that says where it listens is connected to as soon as it has said so. Others are tried every 100 us."
    ));
    take_turns(bench, out, targets, check_health, async |target| {
        let (mut until_ms, mut cpu_ms) = (Vec::new(), Vec::new());
        let mut latencies = Latencies::new();
        let spec = bench.spec_of(target)?;
        for _ in 0..STARTS {
            let start = Instant::now();
            let fresh = answering(bench, spec).await?;
            let took = start.elapsed();
            until_ms.push(took.as_secs_f64() * 1e3);
            latencies.record(took);
            if let Some(pid) = fresh.pid() {
                cpu_ms.push(cpu::used_s(pid)? * 1e3);
            }
        }
        let mut sample = Sample::default();
        sample
            .put(UNTIL_ANSWER, median(until_ms))
            .put(CPU, median(cpu_ms));
        sample.latencies(LATENCY, latencies, None);
        Ok(sample)
    })
    .await
}

/// A fresh daemon that has answered once.
async fn answering(bench: &Bench, spec: &Spec) -> Result<Target> {
    let target = Target::start(spec, Placement::ServerCpu, &[], bench.dir())?;
    ask_health(&mut target.connect(Manner::Spin)?).await?;
    Ok(target)
}

const STARTS: usize = 10;
