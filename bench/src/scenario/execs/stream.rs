//! A program is started over one connection and followed over another until its exit event has been read.

use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::super::{LOAD, Sample, measure, take_turns};
use super::poll::count;
use super::program::{self, Starter, ack, bare_times, fresh_id, starters};
use crate::bench::Bench;
use crate::load::{Follower, Form, Latencies, Manner, Script};
use crate::results::{Metric, ScenarioResults};
use crate::target::Dialect;

const CPU: Metric = Metric::low("CPU", "us/exec").main();
const P50: Metric = Metric::low("start to exit event, p50", "us");
const P99: Metric = Metric::low("start to exit event, p99", "us");
const P50_SPIN: Metric = Metric::low("start to exit event, spinning client, p50", "us");
const STALLS: Metric = Metric::low("over 35 ms, client with late ACKs", "execs");
const TIMES: Metric = Metric::low("start to exit event", "us");
const TIMES_SPIN: Metric = Metric::low("start to exit event, spinning client", "us");
const TIMES_LATE: Metric = Metric::low("start to exit event, client with late ACKs", "us");

pub(super) async fn run(bench: &Bench, out: &mut ScenarioResults) -> Result<()> {
    out.notes.push(
        "Both connections are open before. CPU leaves out the programs. bare is posix_spawn and wait in one process."
            .to_owned(),
    );
    out.notes
        .push("The client with late ACKs turns TCP_QUICKACK off before every receive.".to_owned());
    let starters = starters(bench, out).await?;
    take_turns(
        bench,
        out,
        starters,
        async |starter| program::check(bench, &starter.target).await,
        async |starter| sample(bench, starter).await,
    )
    .await
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
    let ordinary = followed(bench, starter, Manner::Ring, Acks::Usual);
    let (reading, ordinary) = measure(&starter.target, ordinary).await?;
    let spin = followed(bench, starter, Manner::Spin, Acks::Usual).await?;
    let late = followed(bench, starter, Manner::Ring, Acks::Late).await?;
    let mut connection = starter.target.connect(Manner::Ring)?;
    for id in [&ordinary, &spin, &late].iter().flat_map(|all| &all.ids) {
        ack(&mut connection, id).await?;
    }
    sample.put(CPU, reading.cpu_us_each(count));
    sample.put(P50, ordinary.times.percentile_us(50.0));
    sample.put(P99, ordinary.times.percentile_us(99.0));
    sample.put(P50_SPIN, spin.times.percentile_us(50.0));
    sample.put(STALLS, late.stalls as f64);
    sample.put(LOAD, reading.load_share());
    sample.bound_by_load(reading.is_load_bound());
    sample.latencies(TIMES, ordinary.times, None);
    sample.latencies(TIMES_SPIN, spin.times, None);
    sample.latencies(TIMES_LATE, late.times, None);
    Ok(sample)
}

/// When a client acknowledges what it received.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Acks {
    Usual,
    Late,
}

struct Followed {
    times: Latencies,
    ids: Vec<String>,
    /// How many took longer than [`STALL`].
    stalls: usize,
}

async fn followed(
    bench: &Bench,
    starter: &Starter,
    manner: Manner,
    acks: Acks,
) -> Result<Followed> {
    let nothing = Rc::new(Script::zeros(0));
    let mut connection = starter.target.connect(manner)?;
    let mut follower = Follower::new(starter.target.connect(manner)?);
    if acks == Acks::Late {
        connection.delay_acks();
        follower.connection.delay_acks();
    }
    let mut all = Followed {
        times: Latencies::new(),
        ids: Vec::new(),
        stalls: 0,
    };
    for _ in 0..count(bench) {
        let id = fresh_id(bench);
        let start = Instant::now();
        program::start(&mut connection, &id, &[&starter.program], false).await?;
        let script = Rc::clone(&nothing);
        follower.follow(&id, Form::Events, script).await?;
        follower.exited().await?;
        let took = start.elapsed();
        all.times.record(took);
        all.stalls += usize::from(took > STALL);
        follower.finished().await?;
        all.ids.push(id);
    }
    Ok(all)
}

/// Just under the 40 ms that Linux holds an acknowledgement back.
const STALL: Duration = Duration::from_millis(35);
