//! The daemon as a service: small requests, many connections, work side by side, memory, the start.

mod flood;
mod health;
mod memory;
mod mixed;
mod start;

use anyhow::{Context, Result, ensure};

use super::{Sample, Scenario};
use crate::bench::Needs;
use crate::load::{Connection, Latencies, Manner, Request};
use crate::results::Metric;
use crate::target::{Dialect, Target};

pub(super) const TABLE: &[Scenario] = &[
    Scenario {
        name: "health",
        title: "the smallest request is made over one connection, and over 64 at once",
        run: |bench, out| Box::pin(health::closed_loop(bench, out)),
    },
    Scenario {
        name: "health-rate",
        title: "the smallest request is due at a constant rate, whatever became of those before",
        run: |bench, out| Box::pin(health::at_rate(bench, out)),
    },
    Scenario {
        name: "flood",
        title: "many connections are opened at once, each asks once, then all are closed",
        run: |bench, out| Box::pin(flood::run(bench, out)),
    },
    Scenario {
        name: "mixed",
        title: "small requests are made at a constant rate while a large file is downloaded and another uploaded",
        run: |bench, out| Box::pin(mixed::run(bench, out)),
    },
    Scenario {
        name: "memory",
        title: "a fresh daemon rests, then moves a large file and a tree, each both ways",
        run: |bench, out| Box::pin(memory::run(bench, out)),
    },
    Scenario {
        name: "start-up",
        title: "the daemon is started and asked for its health until it answers",
        run: |bench, out| Box::pin(start::run(bench, out)),
    },
];

/// Whoever answers `/v1/health`.
const ANYBODY: Needs = Needs::dialects(&[Dialect::Guest, Dialect::Plain, Dialect::Bare]);
const HEALTH: &str = "/v1/health";
const CPU_PER_REQUEST: Metric = Metric::low("CPU", "us/request").main();
const P50: Metric = Metric::low("p50", "us");
const P99: Metric = Metric::low("p99", "us");
const MAX: Metric = Metric::low("slowest", "us");
const LATENCY: Metric = Metric::low("latency", "us");

/// Asks once; only 200 will do.
async fn ask_health(connection: &mut Connection) -> Result<()> {
    let answer = connection.ask(Request::get(HEALTH)).await?;
    ensure!(
        answer.head.status == 200,
        "{HEALTH} answered {}",
        answer.head.status
    );
    Ok(())
}

/// Looks at what the answer says.
async fn check_health(target: &Target) -> Result<()> {
    let mut connection = target.connect(Manner::Ready)?;
    let answer = connection.demand(Request::get(HEALTH), 200).await?;
    let health: serde_json::Value = serde_json::from_slice(&answer.body)
        .with_context(|| format!("{HEALTH} did not answer with JSON"))?;
    ensure!(
        target.dialect != Dialect::Guest || health["bootstrapped"] == true,
        "{HEALTH} answered {health}"
    );
    Ok(())
}

/// Puts latencies into a sample: three figures, and the whole for the histogram.
fn put_latencies(sample: &mut Sample, latencies: Latencies, rate: Option<f64>) {
    sample
        .put(P50, latencies.percentile_us(50.0))
        .put(P99, latencies.percentile_us(99.0))
        .put(MAX, latencies.percentile_us(100.0));
    sample.latencies(LATENCY, latencies, rate);
}
