//! `files-64k`: files of 64 KiB, one request after the other over one connection, read and written.

use anyhow::{Result, ensure};

use super::contender::{Running, contender, contenders};
use super::transfer::{CPU_PER_FILE_SPIN, measure};
use super::{Sample, alternate, warm_up};
use crate::client::{Client, Manner};
use crate::fixture::{MIB, SMALL_BYTES, SmallFiles, warm_free_pages};
use crate::lab::Lab;
use crate::report::{Better, Metric, ScenarioReport};
use crate::target::{self, Kind, Placement, Server};

pub(crate) const NAME: &str = "files-64k";

pub(crate) const RATE: Metric = per_second("GET, ordinary client");
pub(crate) const RATE_SPIN: Metric = per_second("GET, spin client");
pub(crate) const PUT_RATE: Metric = per_second("PUT, ordinary client");
const PUT_CPU: Metric = Metric {
    name: "CPU, PUT",
    unit: "us/file",
    better: Better::Low,
};

/// One file for so many of the small-file tree: 10,000 by default.
const SHARE: usize = 2;
/// Fewer are written: what is written stays on the disk until the end of the run.
const WRITTEN_SHARE: usize = 10;

const fn per_second(name: &'static str) -> Metric {
    Metric {
        name,
        unit: "files/s",
        better: Better::High,
    }
}

pub(super) fn run(lab: &Lab) -> Result<ScenarioReport> {
    let files = SmallFiles::create(&lab.fresh_path("small"), (lab.options.files / SHARE).max(1))?;
    let mut notes = Vec::new();
    let mut all = contenders(lab, &mut notes);
    if target::available(Kind::Nginx, &lab.options.ringd) {
        all.push(contender("nginx", Kind::Nginx, &[]));
    }
    let servers = all
        .iter()
        .map(|one| {
            Ok(Running {
                name: one.name,
                server: one.start(lab, Placement::ServerCpu)?,
            })
        })
        .collect::<Result<Vec<_>>>()?;
    warm_up(&servers, |one| check(lab, &one.server, &files))?;
    let content = SmallFiles::content(0);
    let series = alternate(&servers, lab.options.rounds, |one| {
        let server = &one.server;
        let (spin, ()) = read_all(lab, server, &files, Manner::Spin)?;
        let (copy, ()) = read_all(lab, server, &files, Manner::Sleep)?;
        let mut sample = Sample::from([
            (
                CPU_PER_FILE_SPIN,
                spin.cpu_s * 1e6 / files.paths.len() as f64,
            ),
            (RATE_SPIN, files.paths.len() as f64 / spin.wall_s),
            (RATE, files.paths.len() as f64 / copy.wall_s),
        ]);
        if server.kind != Kind::Nginx {
            let count = written(lab);
            let reading = write_all(lab, server, &content)?;
            sample.push((PUT_RATE, count as f64 / reading.wall_s));
            sample.push((PUT_CPU, reading.cpu_s * 1e6 / count as f64));
        }
        Ok(sample)
    })?;
    Ok(ScenarioReport {
        name: NAME,
        notes,
        series,
    })
}

fn read_all(
    lab: &Lab,
    server: &Server,
    files: &SmallFiles,
    manner: Manner,
) -> Result<(super::transfer::Reading, ())> {
    let mut client = server.client(manner)?;
    let targets: Vec<String> = files
        .paths
        .iter()
        .map(|path| server.file_target(path, lab.dir()))
        .collect();
    measure(server, || {
        for target in &targets {
            client.send_head("GET", target, 0)?;
            let reply = client.reply()?;
            ensure!(
                reply.status == 200 && reply.length == SMALL_BYTES as u64,
                "GET answered {} with {} bytes",
                reply.status,
                reply.length
            );
            client.drop_body(reply)?;
        }
        Ok(())
    })
}

fn write_all(lab: &Lab, server: &Server, content: &[u8]) -> Result<super::transfer::Reading> {
    let count = written(lab);
    let dir = lab.fresh_path("written");
    std::fs::create_dir(&dir)?;
    lab.settle()?;
    warm_free_pages(lab.dir(), (count * SMALL_BYTES) as u64 + 16 * MIB)?;
    let mut client = server.client(Manner::Sleep)?;
    let (reading, ()) = measure(server, || {
        for index in 0..count {
            let target = format!("/v1/fs/file?path={}/w{index}", dir.display());
            put(&mut client, &target, content)?;
        }
        Ok(())
    })?;
    let last = std::fs::read(dir.join(format!("w{}", count - 1)))?;
    ensure!(last == content, "what was written is not what was sent");
    Ok(reading)
}

fn written(lab: &Lab) -> usize {
    (lab.options.files / WRITTEN_SHARE).max(1)
}

fn put(client: &mut Client, target: &str, content: &[u8]) -> Result<()> {
    client.send_head("PUT", target, content.len() as u64)?;
    client.send(content)?;
    let reply = client.reply()?;
    ensure!(reply.status == 204, "PUT answered {}", reply.status);
    Ok(())
}

fn check(lab: &Lab, server: &Server, files: &SmallFiles) -> Result<()> {
    let mut client = server.client(Manner::Sleep)?;
    for index in [0, files.paths.len() / 2, files.paths.len() - 1] {
        let target = server.file_target(&files.paths[index], lab.dir());
        let (status, body) = client.ask("GET", &target, b"")?;
        ensure!(
            status == 200 && body == SmallFiles::content(index),
            "file {index} is wrong"
        );
    }
    Ok(())
}
