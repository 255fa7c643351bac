//! `exec-stream`: start a program that only exits, and follow it until its exit event has been read.

use std::path::Path;
use std::rc::Rc;
use std::time::Instant;

use anyhow::{Context, Result};

use super::Sample;
use super::contender::{SCRATCH_BYTES, ack, beside_bare, start_body, start_exec};
use super::exec::{EXECS, at, bare_times};
use super::transfer::measure;
use crate::client::{Follower, Form, Manner, Script};
use crate::fixture::exit_program;
use crate::lab::Lab;
use crate::report::{Better, Metric, ScenarioReport};
use crate::target::{Kind, Server};

pub(crate) const NAME: &str = "exec-stream";

pub(crate) const STREAM_P50: Metric = us("start to exit event, p50");
const STREAM_P99: Metric = us("start to exit event, p99");
const STREAM_P50_SPIN: Metric = us("start to exit event, spin client, p50");
const STREAM_P99_SPIN: Metric = us("start to exit event, spin client, p99");
const LATE_ACK_P50: Metric = us("start to exit event, client with late ACKs, p50");
const LATE_ACK_MAX: Metric = us("start to exit event, client with late ACKs, longest");
pub(crate) const STALLS: Metric = Metric {
    name: "over 35 ms, client with late ACKs",
    unit: "execs",
    better: Better::Low,
};
const CPU: Metric = us("CPU of the server, per exec");

/// Just under the 40 ms that Linux holds an acknowledgement back.
const STALL_US: f64 = 35_000.0;

const fn us(name: &'static str) -> Metric {
    Metric {
        name,
        unit: "us",
        better: Better::Low,
    }
}

pub(super) fn run(lab: &Lab) -> Result<ScenarioReport> {
    let program = exit_program(lab.dir())?;
    let mut notes = Vec::new();
    let series = beside_bare(lab, &mut notes, |server| sample(lab, server, &program))?;
    notes.push("One connection starts, a second one that is already open follows. bare is posix_spawn and wait inside one process.".to_owned());
    notes.push("The client with late ACKs turns TCP_QUICKACK off before every receive.".to_owned());
    Ok(ScenarioReport {
        name: NAME,
        notes,
        series,
    })
}

fn sample(lab: &Lab, server: &Server, program: &Path) -> Result<Sample> {
    if server.kind == Kind::Bare {
        let times = bare_times(&mut server.client(Manner::Sleep)?, program)?;
        return Ok(Sample::from([
            (STREAM_P50, at(&times, 50)),
            (STREAM_P99, at(&times, 99)),
            (STREAM_P50_SPIN, at(&times, 50)),
        ]));
    }
    let (reading, times) = measure(server, || {
        follow_all(lab, server, program, Manner::Sleep, false)
    })?;
    let spin = follow_all(lab, server, program, Manner::Spin, false)?;
    let late = follow_all(lab, server, program, Manner::Sleep, true)?;
    let mut client = server.client(Manner::Sleep)?;
    for id in [&times, &spin, &late].iter().flat_map(|times| &times.ids) {
        ack(&mut client, id)?;
    }
    let stalls = late.us.iter().filter(|us| **us > STALL_US).count();
    Ok(Sample::from([
        (STREAM_P50, at(&times.us, 50)),
        (STREAM_P99, at(&times.us, 99)),
        (STREAM_P50_SPIN, at(&spin.us, 50)),
        (STREAM_P99_SPIN, at(&spin.us, 99)),
        (LATE_ACK_P50, at(&late.us, 50)),
        (LATE_ACK_MAX, at(&late.us, 100)),
        (STALLS, stalls as f64),
        (CPU, reading.cpu_s * 1e6 / EXECS as f64),
    ]))
}

/// Sorted latencies in microseconds, and the execs that they belong to.
struct Times {
    us: Vec<f64>,
    ids: Vec<String>,
}

fn follow_all(
    lab: &Lab,
    server: &Server,
    program: &Path,
    manner: Manner,
    acks_are_late: bool,
) -> Result<Times> {
    let nothing = Rc::new(Script::zeros(0));
    let mut scratch = vec![0; SCRATCH_BYTES];
    let mut starter = server.connection(manner)?;
    let mut follower = Follower::new(server.connection(manner)?, Rc::clone(&nothing));
    if acks_are_late {
        starter.delay_acks();
        follower.connection.delay_acks();
    }
    let mut times = Times {
        us: Vec::new(),
        ids: Vec::new(),
    };
    let program = program.to_str().context("a path is not text")?;
    for _ in 0..EXECS {
        let id = format!("bench-{}", lab.serial());
        let body = start_body(&id, &[program], false);
        let start = Instant::now();
        start_exec(&mut starter, &mut scratch, &body)?;
        follower.follow(&id, Form::Events, Rc::clone(&nothing))?;
        while !follower.account.has_ended {
            follower.step(&mut scratch)?;
        }
        times.us.push(start.elapsed().as_secs_f64() * 1e6);
        while !follower.is_done() {
            follower.step(&mut scratch)?;
        }
        times.ids.push(id);
    }
    times.us.sort_by(f64::total_cmp);
    Ok(times)
}
