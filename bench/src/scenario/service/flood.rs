//! Many connections at once.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use futures_util::future::try_join_all;
use rustix::process::{Pid, Resource, getrlimit};

use super::super::{GROWTH, LOAD, Sample, measure, opened, take_turns};
use super::{ask_health, check_health, put_latencies};
use crate::bench::{Bench, Needs};
use crate::load::{Latencies, Manner};
use crate::results::{Metric, ScenarioResults};
use crate::target::{Dialect, Placement, Target};

const CPU: Metric = Metric::low("CPU", "us/connection").main();
const WALL: Metric = Metric::low("wall", "ms");
const PER_CONNECTION: Metric = Metric::low("peak RSS growth per connection", "KiB");

pub(super) async fn run(bench: &Bench, out: &mut ScenarioResults) -> Result<()> {
    let connections = bench.sizes.connections;
    let needed = DESCRIPTORS_EACH * connections as u64 + DESCRIPTORS_BESIDE;
    let allowed = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    ensure!(
        needed <= allowed,
        "{connections} connections take {needed} descriptors, and only {allowed} are allowed (`ulimit -n`)"
    );
    // A web server refuses connections past a number in its configuration.
    let needs = Needs::dialects(&[Dialect::Guest, Dialect::Bare]);
    let targets = opened(bench, out, needs, Placement::ServerCpu).await?;
    out.notes.push(format!(
        "{connections} connections; a daemon must allow so many. All are open before the first asks, each is answered, and when they are closed the daemon has no more descriptors than before. Latency counts from the request. A daemon that is started here is a fresh one in each round, so that growth is growth from nothing."
    ));
    take_turns(
        bench,
        out,
        targets,
        async |target| flood(target, connections).await.map(drop),
        async |target| {
            let target = bench.reopen(target).await?;
            check_health(&target).await?;
            let open = target.pid().map(descriptors).transpose()?;
            let (reading, latencies) = measure(&target, flood(&target, connections)).await?;
            if let Some((pid, open)) = target.pid().zip(open) {
                await_closed(pid, open).await?;
            }
            let per_connection_kib = reading
                .grown_mib
                .map(|grown_mib| grown_mib * 1024.0 / connections as f64);
            let mut sample = Sample::default();
            sample
                .put(CPU, reading.cpu_us_each(connections))
                .put(WALL, reading.wall_s * 1e3)
                .put(GROWTH, reading.grown_mib)
                .put(PER_CONNECTION, per_connection_kib)
                .put(LOAD, reading.load_share())
                .bound_by_load(reading.is_load_bound());
            put_latencies(&mut sample, latencies, None);
            Ok(sample)
        },
    )
    .await
}

/// Opens the connections, asks once on each, closes them.
async fn flood(target: &Target, count: usize) -> Result<Latencies> {
    let mut connections = Vec::with_capacity(count);
    for _ in 0..count {
        connections.push(target.connect(Manner::Ready)?);
    }
    let asked = connections.iter_mut().map(async |connection| {
        let start = Instant::now();
        ask_health(connection).await?;
        Ok::<_, anyhow::Error>(start.elapsed())
    });
    let took = try_join_all(asked).await?;
    let mut latencies = Latencies::new();
    took.into_iter().for_each(|took| latencies.record(took));
    Ok(latencies)
}

/// Waits until a process has no more descriptors than `before`.
async fn await_closed(pid: Pid, before: usize) -> Result<()> {
    let start = Instant::now();
    loop {
        let open = descriptors(pid)?;
        if open <= before {
            return Ok(());
        }
        ensure!(
            start.elapsed() < PATIENCE,
            "{open} descriptors are open {PATIENCE:?} after the connections were closed; before it were {before}"
        );
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

fn descriptors(pid: Pid) -> Result<usize> {
    let path = format!("/proc/{}/fd", pid.as_raw_nonzero());
    Ok(std::fs::read_dir(path)?.count())
}

/// One for the ring and one for readiness.
const DESCRIPTORS_EACH: u64 = 2;
const DESCRIPTORS_BESIDE: u64 = 64;
const PATIENCE: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(5);
