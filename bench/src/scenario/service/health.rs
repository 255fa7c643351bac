//! The smallest request: one after the other, and at a constant rate.

use anyhow::Result;

use super::super::{LOAD, Sample, measure, opened, take_turns};
use super::{ANYBODY, CPU_PER_REQUEST, LATENCY, P50, ask_health, check_health, put_latencies};
use crate::bench::Bench;
use crate::load::{self, Connection, Manner, awake};
use crate::results::{Metric, ScenarioResults};
use crate::target::{Placement, Target};

const RATE: Metric = Metric::high("rate", "requests/s");
const CPU_MANY: Metric = Metric::low("CPU, 64 connections", "us/request");
const RATE_MANY: Metric = Metric::high("rate, 64 connections", "requests/s");
const LATENCY_MANY: Metric = Metric::low("latency, 64 connections", "us");

pub(super) async fn closed_loop(bench: &Bench, out: &mut ScenarioResults) -> Result<()> {
    let targets = opened(bench, out, ANYBODY, Placement::ServerCpu).await?;
    out.notes.push(NOTE_PEERS.to_owned());
    take_turns(bench, out, targets, check_health, async |target| {
        sample(bench.sizes.requests, target).await
    })
    .await
}

async fn sample(requests: usize, target: &Target) -> Result<Sample> {
    let exchange = async |connection: &mut Connection, _| ask_health(connection).await;
    let mut alone = [target.connect(Manner::Spin)?];
    let one = load::closed_loop(&mut alone, requests, exchange);
    let (one, latencies) = measure(target, one).await?;
    let mut crowd = connect(target, CROWD)?;
    let all = requests * CROWD_FACTOR;
    let many = load::closed_loop(&mut crowd, all, exchange);
    let (many, latencies_many) = measure(target, many).await?;
    let mut sample = Sample::default();
    sample
        .put(CPU_PER_REQUEST, one.cpu_us_each(requests))
        .put(RATE, requests as f64 / one.wall_s)
        .put(P50, latencies.percentile_us(50.0))
        .put(CPU_MANY, many.cpu_us_each(all))
        .put(RATE_MANY, all as f64 / many.wall_s)
        .put(LOAD, many.load_share())
        .bound_by_load(many.is_load_bound());
    sample.latencies(LATENCY, latencies, None);
    sample.latencies(LATENCY_MANY, latencies_many, None);
    Ok(sample)
}

pub(super) async fn at_rate(bench: &Bench, out: &mut ScenarioResults) -> Result<()> {
    let targets = opened(bench, out, ANYBODY, Placement::ServerCpu).await?;
    let per_second = bench.sizes.rate;
    let most = usize::try_from(per_second)? * SECONDS;
    let requests = bench.sizes.requests.min(most);
    out.notes.push(format!(
        "{per_second} requests per second over {CONNECTIONS} connections. Each counts from when it was due, also when it had to wait for a connection. The load does not sleep meanwhile."
    ));
    out.notes.push(NOTE_PEERS.to_owned());
    take_turns(bench, out, targets, check_health, async |target| {
        let mut connections = connect(target, CONNECTIONS)?;
        let work = load::at_rate(
            &mut connections,
            requests,
            per_second,
            async |connection, _| ask_health(connection).await,
        );
        let (reading, latencies) = measure(target, awake(work)).await?;
        let mut sample = Sample::default();
        sample
            .put(CPU_PER_REQUEST, reading.cpu_us_each(requests))
            .put(RATE, requests as f64 / reading.wall_s);
        put_latencies(&mut sample, latencies, Some(f64::from(per_second)));
        Ok(sample)
    })
    .await
}

fn connect(target: &Target, count: usize) -> Result<Vec<Connection>> {
    (0..count).map(|_| target.connect(Manner::Ready)).collect()
}

const NOTE_PEERS: &str =
    "A web server answers with a constant string, the bare loop with two bytes.";
const CROWD: usize = 64;
/// So many requests over many connections for one over a single one.
const CROWD_FACTOR: usize = 4;
/// Enough that no request waits for a connection unless the daemon is late.
const CONNECTIONS: usize = 16;
/// A round takes no longer than that for each target.
const SECONDS: usize = 2;
