//! A program is started and polled until its exit is known.

use std::time::Instant;

use anyhow::{Result, bail, ensure};

use super::super::{LOAD, Sample, measure, take_turns};
use super::program::{self, Starter, ack, bare_times, fresh_id, starters};
use crate::bench::Bench;
use crate::load::{Connection, Latencies, Manner, Request};
use crate::results::{Metric, ScenarioResults};
use crate::target::Dialect;

const CPU: Metric = Metric::low("CPU", "us/exec").main();
const P50: Metric = Metric::low("start to exit known, p50", "us");
const P99: Metric = Metric::low("start to exit known, p99", "us");
const P50_SPIN: Metric = Metric::low("start to exit known, spinning client, p50", "us");
const POLLS: Metric = Metric::low("polls", "polls/exec");
const TIMES: Metric = Metric::low("start to exit known", "us");
const TIMES_SPIN: Metric = Metric::low("start to exit known, spinning client", "us");

pub(super) async fn run(bench: &Bench, out: &mut ScenarioResults) -> Result<()> {
    out.notes.push(
        "CPU leaves out the programs; it contains the answers to all polls, which follow each other without a pause."
            .to_owned(),
    );
    out.notes
        .push("bare is posix_spawn and wait in one process, without any request.".to_owned());
    let starters = starters(bench, out).await?;
    take_turns(
        bench,
        out,
        starters,
        async |starter| check(bench, starter).await,
        async |starter| sample(bench, starter).await,
    )
    .await
}

async fn check(bench: &Bench, starter: &Starter) -> Result<()> {
    program::check(bench, &starter.target).await?;
    if starter.target.dialect == Dialect::Bare {
        return Ok(());
    }
    let mut connection = starter.target.connect(Manner::Ring)?;
    let id = fresh_id(bench);
    let script = "printf out; printf err >&2; exit 7";
    program::start(&mut connection, &id, &["sh", "-c", script], false).await?;
    let (result, _) = result(&mut connection, &id).await?;
    ensure!(
        result["exit_code"] == 7 && result["stdout"] == "out" && result["stderr"] == "err",
        "a wrong result: {result}"
    );
    ack(&mut connection, &id).await
}

async fn sample(bench: &Bench, starter: &Starter) -> Result<Sample> {
    let count = count(bench);
    let mut sample = Sample::default();
    if starter.target.dialect == Dialect::Bare {
        let (reading, times) = measure(&starter.target, bare_times(starter, count)).await?;
        sample.put(CPU, reading.cpu_us_each(count));
        sample.put(P50, times.percentile_us(50.0));
        sample.put(P99, times.percentile_us(99.0));
        sample.latencies(TIMES, times, None);
        return Ok(sample);
    }
    let mut connection = starter.target.connect(Manner::Ring)?;
    let polled = polled(bench, &mut connection, &starter.program);
    let (reading, ordinary) = measure(&starter.target, polled).await?;
    let mut spinning = starter.target.connect(Manner::Spin)?;
    let spin = self::polled(bench, &mut spinning, &starter.program).await?;
    for id in ordinary.ids.iter().chain(&spin.ids) {
        ack(&mut connection, id).await?;
    }
    sample.put(CPU, reading.cpu_us_each(count));
    sample.put(P50, ordinary.times.percentile_us(50.0));
    sample.put(P99, ordinary.times.percentile_us(99.0));
    sample.put(P50_SPIN, spin.times.percentile_us(50.0));
    sample.put(POLLS, ordinary.polls as f64 / count as f64);
    sample.put(LOAD, reading.load_share());
    sample.bound_by_load(reading.is_load_bound());
    sample.latencies(TIMES, ordinary.times, None);
    sample.latencies(TIMES_SPIN, spin.times, None);
    Ok(sample)
}

struct Polled {
    times: Latencies,
    ids: Vec<String>,
    polls: usize,
}

async fn polled(bench: &Bench, connection: &mut Connection, program: &str) -> Result<Polled> {
    let mut all = Polled {
        times: Latencies::new(),
        ids: Vec::new(),
        polls: 0,
    };
    for _ in 0..count(bench) {
        let id = fresh_id(bench);
        let start = Instant::now();
        program::start(connection, &id, &[program], false).await?;
        let (result, polls) = result(connection, &id).await?;
        all.times.record_since(start);
        ensure!(
            result["exit_code"] == 0,
            "the program did not exit with 0: {result}"
        );
        all.polls += polls;
        all.ids.push(id);
    }
    Ok(all)
}

/// Polls until there is a result. Tells how often that was.
async fn result(connection: &mut Connection, id: &str) -> Result<(serde_json::Value, usize)> {
    let route = format!("/v1/exec/{id}");
    for polls in 1..=MOST_POLLS {
        let answer = connection.demand(Request::get(&route), 200).await?;
        let answer: serde_json::Value = serde_json::from_slice(&answer.body)?;
        match answer["phase"].as_str() {
            Some("running") => {}
            Some("exited") => return Ok((answer, polls)),
            phase => bail!("unexpected phase {phase:?}"),
        }
    }
    bail!("{id} was still running after {MOST_POLLS} polls")
}

/// Programs of one round and kind of client.
pub(super) fn count(bench: &Bench) -> usize {
    bench.sizes.execs.min(MOST_EXECS)
}

/// These run one after the other.
const MOST_EXECS: usize = 300;
const MOST_POLLS: usize = 1_000_000;
