//! `ranges-16`: the large file in sixteen ranges at once, beside one stream of it.

use anyhow::{Result, ensure};

use super::transfer::{CPU_SPIN, RATE_SPIN, download, measure};
use super::{Sample, alternate, warm_up};
use crate::client::{Client, Discard, Manner};
use crate::lab::Lab;
use crate::report::{Better, Metric, ScenarioReport};
use crate::target::{Kind, Server};

pub(crate) const NAME: &str = "ranges-16";

pub(crate) const RATIO: Metric = Metric {
    name: "rate of 16 ranges over that of one stream",
    unit: "x",
    better: Better::High,
};
const RATE_RANGES: Metric = Metric {
    name: "rate, 16 ranges",
    unit: "GiB/s",
    better: Better::High,
};
const CPU_RANGES: Metric = Metric {
    name: "CPU, 16 ranges",
    unit: "CPU-s/GiB",
    better: Better::Low,
};

const RANGES: u64 = 16;

pub(super) fn run(lab: &Lab) -> Result<ScenarioReport> {
    let large = lab.large()?;
    let (servers, mut notes) = lab.start_all(&[Kind::Ringd, Kind::Nginx])?;
    notes.push("One thread of spinning clients, in both cases.".to_owned());
    warm_up(&servers, |server| check(lab, server))?;
    let series = alternate(&servers, lab.options.rounds, |server| {
        let target = server.file_target(&large.path, lab.dir());
        let (one, bytes) = download(server, &target, Manner::Spin)?;
        let (many, ()) = measure(server, || fetch_ranges(server, &target, large.bytes))?;
        let rates = (one.gib_per_s(bytes), many.gib_per_s(bytes));
        Ok(Sample::from([
            (RATE_SPIN, rates.0),
            (RATE_RANGES, rates.1),
            (RATIO, rates.1 / rates.0),
            (CPU_SPIN, one.cpu_per_gib(bytes)),
            (CPU_RANGES, many.cpu_per_gib(bytes)),
        ]))
    })?;
    Ok(ScenarioReport {
        name: NAME,
        notes,
        series,
    })
}

fn range(total: u64, index: u64) -> (u64, u64) {
    let share = total / RANGES;
    let last = if index + 1 == RANGES {
        total - 1
    } else {
        (index + 1) * share - 1
    };
    (index * share, last)
}

fn ask(client: &mut Client, target: &str, (first, last): (u64, u64)) -> Result<()> {
    client.send_head_with(
        "GET",
        target,
        0,
        &format!("range: bytes={first}-{last}\r\n"),
    )
}

fn fetch_ranges(server: &Server, target: &str, total: u64) -> Result<()> {
    let mut clients = Vec::new();
    for index in 0..RANGES {
        let mut client = server.client(Manner::Spin)?;
        ask(&mut client, target, range(total, index))?;
        clients.push(client);
    }
    let mut bodies: Vec<(Client, Discard)> = Vec::new();
    for (index, mut client) in (0..).zip(clients) {
        let (first, last) = range(total, index);
        let reply = client.reply()?;
        ensure!(
            reply.status == 206 && reply.length == last - first + 1,
            "range {index} answered {} with {} bytes",
            reply.status,
            reply.length
        );
        let body = client.discard(reply);
        bodies.push((client, body));
    }
    while bodies.iter().any(|(_, body)| !body.is_done()) {
        for (client, body) in &mut bodies {
            if !body.is_done() {
                body.step(client)?;
            }
        }
    }
    Ok(())
}

/// The ranges together are the file.
fn check(lab: &Lab, server: &Server) -> Result<()> {
    let large = lab.large()?;
    let target = server.file_target(&large.path, lab.dir());
    let mut client = server.client(Manner::Sleep)?;
    let mut crc = crc32fast::Hasher::new();
    for index in 0..RANGES {
        ask(&mut client, &target, range(large.bytes, index))?;
        let reply = client.reply()?;
        ensure!(reply.status == 206, "a range answered {}", reply.status);
        client.body(reply, |bytes| crc.update(bytes))?;
    }
    ensure!(crc.finalize() == large.crc, "a byte is wrong");
    Ok(())
}
