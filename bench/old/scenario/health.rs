//! `health`: the smallest request, over one connection and over 64.

use std::time::Instant;

use anyhow::{Result, ensure};

use super::transfer::measure;
use super::{Sample, alternate, warm_up};
use crate::client::{Manner, drive};
use crate::lab::Lab;
use crate::report::{Better, Metric, ScenarioReport};
use crate::target::{Kind, Server};

pub(crate) const NAME: &str = "health";

const CPU_ONE: Metric = Metric {
    name: "CPU, 1 connection",
    unit: "us/request",
    better: Better::Low,
};
const RATE_ONE: Metric = Metric {
    name: "rate, 1 connection",
    unit: "requests/s",
    better: Better::High,
};
const P50_ONE: Metric = Metric {
    name: "p50, 1 connection",
    unit: "us",
    better: Better::Low,
};
const CPU_MANY: Metric = Metric {
    name: "CPU, 64 connections",
    unit: "us/request",
    better: Better::Low,
};
const RATE_MANY: Metric = Metric {
    name: "rate, 64 connections",
    unit: "requests/s",
    better: Better::High,
};

const TARGET: &str = "/v1/health";
const ONE_REQUESTS: u64 = 5_000;
const CONNECTIONS: u64 = 64;
const MANY_REQUESTS: u64 = 100_000;

pub(super) fn run(lab: &Lab) -> Result<ScenarioReport> {
    let (servers, mut notes) = lab.start_all(&[Kind::Ringd, Kind::Axum, Kind::Nginx])?;
    warm_up(&servers, check)?;
    let series = alternate(&servers, lab.options.rounds, sample)?;
    notes.push("nginx answers with a constant string.".to_owned());
    Ok(ScenarioReport {
        name: NAME,
        notes,
        series,
    })
}

fn check(server: &Server) -> Result<()> {
    let (status, answer) = server.client(Manner::Sleep)?.ask("GET", TARGET, b"")?;
    let answer: serde_json::Value = serde_json::from_slice(&answer)?;
    ensure!(
        status == 200 && answer["bootstrapped"] == true,
        "health answered {status} {answer}"
    );
    drive(
        server.address,
        server.token(),
        TARGET,
        CONNECTIONS,
        MANY_REQUESTS / 10,
    )
}

fn sample(server: &Server) -> Result<Sample> {
    let mut client = server.client(Manner::Sleep)?;
    let (one, mut times) = measure(server, || {
        let mut times = Vec::new();
        for _ in 0..ONE_REQUESTS {
            let start = Instant::now();
            let (status, _) = client.ask("GET", TARGET, b"")?;
            ensure!(status == 200, "health answered {status}");
            times.push(start.elapsed().as_secs_f64() * 1e6);
        }
        Ok(times)
    })?;
    times.sort_by(f64::total_cmp);
    let (many, ()) = measure(server, || {
        drive(
            server.address,
            server.token(),
            TARGET,
            CONNECTIONS,
            MANY_REQUESTS,
        )
    })?;
    Ok(Sample::from([
        (CPU_ONE, one.cpu_s * 1e6 / ONE_REQUESTS as f64),
        (RATE_ONE, ONE_REQUESTS as f64 / one.wall_s),
        (P50_ONE, times[times.len() / 2]),
        (CPU_MANY, many.cpu_s * 1e6 / MANY_REQUESTS as f64),
        (RATE_MANY, MANY_REQUESTS as f64 / many.wall_s),
    ]))
}
