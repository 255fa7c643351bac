//! `tar-get-20k`: a tree of small files, downloaded as one archive: from the page cache, and from the disk.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use super::transfer::{CPU_PER_FILE_SPIN, GROWTH, Reading, download, fetch, measure, run_program};
use super::{Entrant, Sample, alternate, warm_up};
use crate::client::Manner;
use crate::fixture::archive_summary;
use crate::lab::Lab;
use crate::report::{Better, Metric, ScenarioReport};
use crate::target::{Kind, Server};

pub(crate) const NAME: &str = "tar-get-20k";

const WALL_SPIN: Metric = ms("wall, spin client");
const CPU_COPY: Metric = Metric {
    name: "CPU, ordinary client",
    unit: "us/file",
    better: Better::Low,
};
const WALL_COPY: Metric = ms("wall, ordinary client");
pub(crate) const WALL_COLD: Metric = ms("wall, cold data, ordinary client");
const FIRST_BYTE: Metric = ms("first byte, spin client");
/// How long the first byte came after a plain walk of the same tree would have been over.
pub(crate) const FIRST_BYTE_LATE: Metric = ms("first byte after the time of a plain walk");

const GNU_TAR: &str = "/usr/bin/tar";

const fn ms(name: &'static str) -> Metric {
    Metric {
        name,
        unit: "ms",
        better: Better::Low,
    }
}

/// A server, or GNU tar.
enum Packer {
    Server(Server),
    /// Into a pipe that is read and dropped.
    Gnu,
    /// Into /dev/null, which GNU tar knows: it reads no file.
    GnuToNull,
}

impl Entrant for Packer {
    fn name(&self) -> &'static str {
        match self {
            Self::Server(server) => server.kind.name(),
            Self::Gnu => "gnu-tar",
            Self::GnuToNull => "gnu-tar to /dev/null",
        }
    }
}

pub(super) fn run(lab: &Lab) -> Result<ScenarioReport> {
    let (servers, mut notes) = lab.start_all(&[Kind::Ringd, Kind::Axum, Kind::Axum64])?;
    let mut packers: Vec<Packer> = servers.into_iter().map(Packer::Server).collect();
    if Path::new(GNU_TAR).is_file() {
        packers.extend([Packer::Gnu, Packer::GnuToNull]);
    } else {
        notes.push("GNU tar is not installed here: left out".to_owned());
    }
    lab.tree()?;
    warm_up(&packers, |packer| match packer {
        Packer::Server(server) => check(lab, server),
        _ => Ok(()),
    })?;
    let series = alternate(&packers, lab.options.rounds, |packer| match packer {
        Packer::Server(server) => sample(lab, server),
        Packer::Gnu => {
            let warm = pack(lab, Stdio::piped())?;
            chill(lab)?;
            let cold = pack(lab, Stdio::piped())?;
            let mut sample = program(lab, &warm)?;
            sample.push((WALL_COLD, cold.wall_s * 1e3));
            Ok(sample)
        }
        Packer::GnuToNull => program(lab, &pack(lab, Stdio::null())?),
    })?;
    notes.push("Cold: the pages of every file were dropped, names and inodes were not. GNU tar writes into a pipe that the harness reads.".to_owned());
    Ok(ScenarioReport {
        name: NAME,
        notes,
        series,
    })
}

fn sample(lab: &Lab, server: &Server) -> Result<Sample> {
    let files = lab.tree()?.files as f64;
    let target = target(lab)?;
    let walk_ms = walk(lab)?;
    let (spin, first_ms) = timed(server, &target)?;
    let (copy, _) = download(server, &target, Manner::Sleep)?;
    chill(lab)?;
    let (cold, _) = download(server, &target, Manner::Sleep)?;
    Ok(Sample::from([
        (CPU_PER_FILE_SPIN, spin.cpu_s * 1e6 / files),
        (WALL_SPIN, spin.wall_s * 1e3),
        (CPU_COPY, copy.cpu_s * 1e6 / files),
        (WALL_COPY, copy.wall_s * 1e3),
        (WALL_COLD, cold.wall_s * 1e3),
        (FIRST_BYTE, first_ms),
        (FIRST_BYTE_LATE, first_ms - walk_ms),
        (GROWTH, spin.grown_mib.max(copy.grown_mib)),
    ]))
}

/// A download that also says when its head was there.
fn timed(server: &Server, target: &str) -> Result<(Reading, f64)> {
    let mut client = server.client(Manner::Spin)?;
    measure(server, || {
        let start = Instant::now();
        client.send_head("GET", target, 0)?;
        let reply = client.reply()?;
        let first = start.elapsed();
        ensure!(reply.status == 200, "GET answered {}", reply.status);
        client.drop_body(reply)?;
        Ok(first.as_secs_f64() * 1e3)
    })
}

/// How long it takes to list and stat the tree, in milliseconds.
fn walk(lab: &Lab) -> Result<f64> {
    let start = Instant::now();
    let mut pending = vec![lab.tree()?.root.clone()];
    while let Some(dir) = pending.pop() {
        for entry in std::fs::read_dir(&dir)? {
            let entry = entry?;
            if entry.metadata()?.is_dir() {
                pending.push(entry.path());
            }
        }
    }
    Ok(start.elapsed().as_secs_f64() * 1e3)
}

/// Drops the pages of every file of the tree.
fn chill(lab: &Lab) -> Result<()> {
    lab.settle()?;
    let mut pending = vec![lab.tree()?.root.clone()];
    while let Some(dir) = pending.pop() {
        for entry in std::fs::read_dir(&dir)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                pending.push(entry.path());
            } else {
                let file = std::fs::File::open(entry.path())?;
                rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)
                    .context("cannot drop a file's pages")?;
            }
        }
    }
    Ok(())
}

fn program(lab: &Lab, reading: &Reading) -> Result<Sample> {
    let files = lab.tree()?.files as f64;
    Ok(Sample::from([
        (CPU_PER_FILE_SPIN, reading.cpu_s * 1e6 / files),
        (WALL_SPIN, reading.wall_s * 1e3),
    ]))
}

/// GNU tar packs the tree once.
fn pack(lab: &Lab, out: Stdio) -> Result<Reading> {
    let mut command = Command::new(GNU_TAR);
    command
        .args(["-cf", "-", "-C"])
        .arg(&lab.tree()?.root)
        .arg(".");
    run_program(lab, command, out)
}

pub(super) fn target(lab: &Lab) -> Result<String> {
    Ok(format!("/v1/fs/tar?path={}", lab.tree()?.root.display()))
}

fn check(lab: &Lab, server: &Server) -> Result<()> {
    let mut archive = Vec::new();
    fetch(server, &target(lab)?, |part| {
        archive.extend_from_slice(part)
    })?;
    let summary = archive_summary(archive.as_slice())?;
    let expected = &lab.tree()?.summary;
    ensure!(
        summary == *expected,
        "the archive holds {summary:?} instead of {expected:?}"
    );
    Ok(())
}
