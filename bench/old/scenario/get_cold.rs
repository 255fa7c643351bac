//! `get-cold`: the file is on the disk only, and a second connection watches how long the server is ever away.

use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};

use super::get::check_file;
use super::transfer::{CPU_SPIN, GROWTH, RATE_SPIN, measure};
use super::{Sample, alternate, warm_up};
use crate::client::{Client, Manner};
use crate::cpu;
use crate::lab::Lab;
use crate::memory::disk_read_bytes;
use crate::report::{Better, Metric, ScenarioReport};
use crate::target::{Kind, Server};

pub(crate) const NAME: &str = "get-cold";

const STALL_P99: Metric = Metric {
    name: "p99 of a health request meanwhile",
    unit: "ms",
    better: Better::Low,
};
pub(crate) const STALL_MAX: Metric = Metric {
    name: "longest health request meanwhile",
    unit: "ms",
    better: Better::Low,
};
/// A round in which the host took time from us says nothing about the server's own pauses.
pub(crate) const STOLEN: Metric = Metric {
    name: "taken by the host meanwhile",
    unit: "ms",
    better: Better::Low,
};
const STALLS: Metric = Metric {
    name: "health requests over 2 ms",
    unit: "per 1000",
    better: Better::Low,
};
const STALL: Duration = Duration::from_millis(2);

pub(super) fn run(lab: &Lab) -> Result<ScenarioReport> {
    let large = lab.large()?;
    let (servers, mut notes) =
        lab.start_all(&[Kind::Ringd, Kind::Axum, Kind::Axum64, Kind::Nginx])?;
    warm_up(&servers, |server| {
        large.chill()?;
        check_file(lab, server)
    })?;
    let series = alternate(&servers, lab.options.rounds, |server| {
        large.chill()?;
        let read_before = disk_read_bytes(server.pid());
        let sample = sample(lab, server)?;
        let read = disk_read_bytes(server.pid())
            .zip(read_before)
            .map(|(after, before)| after - before);
        ensure!(
            read.is_none_or(|read| read >= large.bytes / 2),
            "the file was not cold: {read:?} bytes came from the disk"
        );
        Ok(sample)
    })?;
    notes.push("One spinning client drives both connections from one thread, so it adds no pauses of its own.".to_owned());
    notes.push("CPU contains the answers to the health requests, thousands per second.".to_owned());
    Ok(ScenarioReport {
        name: NAME,
        notes,
        series,
    })
}

fn sample(lab: &Lab, server: &Server) -> Result<Sample> {
    let large = lab.large()?;
    let target = server.file_target(&large.path, lab.dir());
    let mut bulk = server.client(Manner::Spin)?;
    let mut probe = server.client(Manner::Spin)?;
    let stolen_before = cpu::stolen_ms();
    let (reading, mut waits) = measure(server, || both(&mut bulk, &target, &mut probe))?;
    let stolen = cpu::stolen_ms() - stolen_before;
    waits.sort();
    ensure!(
        !waits.is_empty(),
        "no health request was answered meanwhile"
    );
    let at = |share: usize| waits[(waits.len() - 1) * share / 1000].as_secs_f64() * 1e3;
    let stalls = waits.iter().filter(|wait| **wait > STALL).count();
    Ok(Sample::from([
        (CPU_SPIN, reading.cpu_per_gib(large.bytes)),
        (RATE_SPIN, reading.gib_per_s(large.bytes)),
        (STALL_P99, at(990)),
        (STALL_MAX, at(1000)),
        (STOLEN, stolen),
        (STALLS, stalls as f64 * 1e3 / waits.len() as f64),
        (GROWTH, reading.grown_mib),
    ]))
}

/// Downloads over `bulk` and asks for the health over `probe`, again and again. Returns the probe's waits.
fn both(bulk: &mut Client, target: &str, probe: &mut Client) -> Result<Vec<Duration>> {
    bulk.send_head("GET", target, 0)?;
    let reply = bulk.reply()?;
    if reply.status != 200 {
        bail!("GET answered {}", reply.status);
    }
    let mut body = bulk.discard(reply);
    let mut waits = Vec::new();
    probe.send_head("GET", "/v1/health", 0)?;
    let mut asked = Instant::now();
    while !body.is_done() {
        body.step(bulk)?;
        if let Some(reply) = probe.try_reply()? {
            waits.push(asked.elapsed());
            ensure!(reply.status == 200, "health answered {}", reply.status);
            asked = Instant::now();
            probe.send_head("GET", "/v1/health", 0)?;
        }
    }
    // The last one counts as well, answered or not.
    while probe.try_reply()?.is_none() && asked.elapsed() < Duration::from_secs(10) {}
    waits.push(asked.elapsed());
    Ok(waits)
}
