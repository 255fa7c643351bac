//! `exec-true`: start a program that only exits, and poll until its exit is known.

use std::path::Path;
use std::time::Instant;

use anyhow::{Result, bail, ensure};

use super::transfer::measure;
use super::{Sample, alternate, warm_up};
use crate::client::{Client, Manner};
use crate::fixture::exit_program;
use crate::lab::Lab;
use crate::report::{Better, Metric, ScenarioReport};
use crate::target::{Kind, Server};

pub(crate) const NAME: &str = "exec-true";

pub(crate) const EXEC_P50: Metric = Metric {
    name: "start to exit known, p50",
    unit: "us",
    better: Better::Low,
};
const EXEC_P99: Metric = Metric {
    name: "start to exit known, p99",
    unit: "us",
    better: Better::Low,
};
pub(crate) const EXEC_P50_SPIN: Metric = Metric {
    name: "start to exit known, spin client, p50",
    unit: "us",
    better: Better::Low,
};
const EXEC_P99_SPIN: Metric = Metric {
    name: "start to exit known, spin client, p99",
    unit: "us",
    better: Better::Low,
};
pub(crate) const TRIP_P50: Metric = Metric {
    name: "health round trip, p50",
    unit: "us",
    better: Better::Low,
};
pub(crate) const TRIP_P50_SPIN: Metric = Metric {
    name: "health round trip, spin client, p50",
    unit: "us",
    better: Better::Low,
};
const CPU: Metric = Metric {
    name: "CPU of the server",
    unit: "us/exec",
    better: Better::Low,
};

/// Programs started per round and kind of client.
pub(super) const EXECS: usize = 300;
const MAX_POLLS: usize = 100_000;

pub(super) fn run(lab: &Lab) -> Result<ScenarioReport> {
    let program = exit_program(lab.dir())?;
    let (servers, mut notes) = lab.start_all(&[Kind::Ringd, Kind::Axum, Kind::Bare])?;
    warm_up(&servers, |server| sample(lab, server, &program).map(drop))?;
    let series = alternate(&servers, lab.options.rounds, |server| {
        sample(lab, server, &program)
    })?;
    notes.push("bare is posix_spawn and wait inside one process, without any request.".to_owned());
    notes.push("CPU leaves out the children and contains the answers to all polls, whose number depends on the client.".to_owned());
    if program == Path::new("/bin/true") {
        notes.push(
            "The tiny static program does not run here: /bin/true is started instead.".to_owned(),
        );
    }
    Ok(ScenarioReport {
        name: NAME,
        notes,
        series,
    })
}

fn sample(lab: &Lab, server: &Server, program: &Path) -> Result<Sample> {
    let trip = round_trips(&mut server.client(Manner::Sleep)?)?;
    let trip_spin = round_trips(&mut server.client(Manner::Spin)?)?;
    if server.kind == Kind::Bare {
        let times = bare_times(&mut server.client(Manner::Sleep)?, program)?;
        let p50 = at(&times, 50);
        return Ok(Sample::from([
            (EXEC_P50, p50),
            (EXEC_P99, at(&times, 99)),
            (EXEC_P50_SPIN, p50),
            (TRIP_P50, at(&trip, 50)),
            (TRIP_P50_SPIN, at(&trip_spin, 50)),
        ]));
    }
    let mut sleeping = server.client(Manner::Sleep)?;
    let (reading, times) = measure(server, || exec_times(lab, &mut sleeping, program))?;
    let mut spinning = server.client(Manner::Spin)?;
    let times_spin = exec_times(lab, &mut spinning, program)?;
    ack_all(&mut sleeping, times.ids.iter().chain(&times_spin.ids))?;
    Ok(Sample::from([
        (EXEC_P50, at(&times.us, 50)),
        (EXEC_P99, at(&times.us, 99)),
        (EXEC_P50_SPIN, at(&times_spin.us, 50)),
        (EXEC_P99_SPIN, at(&times_spin.us, 99)),
        (TRIP_P50, at(&trip, 50)),
        (TRIP_P50_SPIN, at(&trip_spin, 50)),
        (CPU, reading.cpu_s * 1e6 / EXECS as f64),
    ]))
}

/// Sorted latencies in microseconds, and the execs that they belong to.
struct Times {
    us: Vec<f64>,
    ids: Vec<String>,
}

fn exec_times(lab: &Lab, client: &mut Client, program: &Path) -> Result<Times> {
    let mut times = Times {
        us: Vec::new(),
        ids: Vec::new(),
    };
    for _ in 0..EXECS {
        let id = format!("bench-{}", lab.serial());
        let body = serde_json::json!({ "exec_id": id, "command": [program] }).to_string();
        let poll = format!("/v1/exec/{id}");
        let start = Instant::now();
        let (status, answer) = client.ask("POST", "/v1/exec/start", body.as_bytes())?;
        ensure!(
            status == 200,
            "start answered {status}: {}",
            String::from_utf8_lossy(&answer)
        );
        poll_until_exit(client, &poll)?;
        times.us.push(start.elapsed().as_secs_f64() * 1e6);
        times.ids.push(id);
    }
    times.us.sort_by(f64::total_cmp);
    Ok(times)
}

fn poll_until_exit(client: &mut Client, target: &str) -> Result<()> {
    for _ in 0..MAX_POLLS {
        let (status, answer) = client.ask("GET", target, b"")?;
        ensure!(status == 200, "poll answered {status}");
        let answer: serde_json::Value = serde_json::from_slice(&answer)?;
        match answer["phase"].as_str() {
            Some("running") => {}
            Some("exited") => {
                ensure!(
                    answer["exit_code"] == 0,
                    "the program did not exit with 0: {answer}"
                );
                return Ok(());
            }
            phase => bail!("unexpected phase {phase:?}"),
        }
    }
    bail!("{target} was still running after {MAX_POLLS} polls")
}

fn ack_all<'a>(client: &mut Client, ids: impl Iterator<Item = &'a String>) -> Result<()> {
    for id in ids {
        let (status, _) = client.ask("POST", &format!("/v1/exec/{id}/ack"), b"")?;
        ensure!(status == 200, "ack answered {status}");
    }
    Ok(())
}

fn round_trips(client: &mut Client) -> Result<Vec<f64>> {
    let mut times = Vec::with_capacity(EXECS);
    for _ in 0..EXECS {
        let start = Instant::now();
        let (status, _) = client.ask("GET", "/v1/health", b"")?;
        ensure!(status == 200, "health answered {status}");
        times.push(start.elapsed().as_secs_f64() * 1e6);
    }
    times.sort_by(f64::total_cmp);
    Ok(times)
}

pub(super) fn bare_times(client: &mut Client, program: &Path) -> Result<Vec<f64>> {
    let (status, answer) = client.ask(
        "POST",
        &format!("/v1/spawn?path={}&count={EXECS}", program.display()),
        b"",
    )?;
    ensure!(status == 200, "spawn answered {status}");
    let nanoseconds: Vec<u64> = serde_json::from_slice(&answer)?;
    let mut times: Vec<f64> = nanoseconds.into_iter().map(|ns| ns as f64 / 1e3).collect();
    times.sort_by(f64::total_cmp);
    Ok(times)
}

/// A percentile of sorted values.
pub(super) fn at(sorted: &[f64], percent: usize) -> f64 {
    sorted
        .get(sorted.len().saturating_sub(1) * percent / 100)
        .copied()
        .unwrap_or(f64::NAN)
}
