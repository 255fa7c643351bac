//! `tar-put-20k`: an archive of small files, extracted into a directory that never existed before.
//!
//! The directories stay until the end of the run: a name made again soon after its removal is slow on ext4.

use std::path::Path;
use std::process::{Command, Stdio};
use std::rc::Rc;

use anyhow::{Result, ensure};

use super::transfer::{CPU_PER_FILE, GROWTH, Reading, run_program, upload};
use super::{Entrant, Sample, alternate, warm_up};
use crate::client::Manner;
use crate::fixture::{MIB, tree_summary, warm_free_pages};
use crate::lab::Lab;
use crate::report::{Better, Metric, ScenarioReport};
use crate::target::{Kind, Server};

pub(crate) const NAME: &str = "tar-put-20k";

pub(crate) const WALL: Metric = Metric {
    name: "wall",
    unit: "ms",
    better: Better::Low,
};
/// ringd with `spool=off`.
pub(crate) const STREAMED: &str = "ringd spool=off";
const BSDTAR: &str = "/usr/bin/bsdtar";
const GNU_TAR: &str = "/usr/bin/tar";

/// A server that takes the archive over the socket, or a program that reads it from a local file.
enum Extractor {
    Server(Rc<Server>),
    /// ringd, which extracts while it receives.
    Streamed(Rc<Server>),
    Program {
        name: &'static str,
        path: &'static str,
    },
}

impl Entrant for Extractor {
    fn name(&self) -> &'static str {
        match self {
            Self::Server(server) => server.kind.name(),
            Self::Streamed(_) => STREAMED,
            Self::Program { name, .. } => name,
        }
    }
}

pub(super) fn run(lab: &Lab) -> Result<ScenarioReport> {
    let files = lab.tree()?.files as f64;
    let (servers, mut notes) = lab.start_all(&[Kind::Ringd, Kind::Axum])?;
    let mut extractors = Vec::new();
    for server in servers {
        let server = Rc::new(server);
        extractors.push(Extractor::Server(Rc::clone(&server)));
        if server.kind == Kind::Ringd {
            extractors.push(Extractor::Streamed(server));
        }
    }
    for (name, path) in [("bsdtar", BSDTAR), ("gnu-tar", GNU_TAR)] {
        if Path::new(path).is_file() {
            extractors.push(Extractor::Program { name, path });
        } else {
            notes.push(format!("{name} is not installed here: left out"));
        }
    }
    let archive = std::fs::read(&lab.tree()?.archive)?;
    warm_up(&extractors, |extractor| {
        extract(lab, extractor, &archive).map(drop)
    })?;
    let series = alternate(&extractors, lab.options.rounds, |extractor| {
        let reading = extract(lab, extractor, &archive)?;
        let mut sample = Sample::from([
            (CPU_PER_FILE, reading.cpu_s * 1e6 / files),
            (WALL, reading.wall_s * 1e3),
        ]);
        if !matches!(extractor, Extractor::Program { .. }) {
            sample.push((GROWTH, reading.grown_mib));
        }
        Ok(sample)
    })?;
    notes.push("The programs read the archive from a local file; the servers receive it over the loopback from an ordinary client.".to_owned());
    Ok(ScenarioReport {
        name: NAME,
        notes,
        series,
    })
}

/// Extracts once into a fresh directory and compares the result with the tree.
fn extract(lab: &Lab, extractor: &Extractor, archive: &[u8]) -> Result<Reading> {
    let root = lab.fresh_path("extracted");
    lab.settle()?;
    warm_free_pages(lab.dir(), 4 * archive.len() as u64 + 64 * MIB)?;
    let reading = match extractor {
        Extractor::Server(server) => put_tar(server, &root, "", archive, Manner::Sleep)?,
        Extractor::Streamed(server) => {
            put_tar(server, &root, "&spool=off", archive, Manner::Sleep)?
        }
        Extractor::Program { path, .. } => extract_with(lab, path, &root)?,
    };
    let summary = tree_summary(&root)?;
    let expected = &lab.tree()?.summary;
    ensure!(
        summary == *expected,
        "the tree holds {summary:?} instead of {expected:?}"
    );
    Ok(reading)
}

pub(super) fn put_tar(
    server: &Server,
    root: &Path,
    option: &str,
    archive: &[u8],
    manner: Manner,
) -> Result<Reading> {
    upload(
        server,
        &format!("/v1/fs/tar?path={}{option}", root.display()),
        archive,
        archive.len() as u64,
        manner,
    )
}

fn extract_with(lab: &Lab, program: &str, root: &Path) -> Result<Reading> {
    std::fs::create_dir(root)?;
    let mut command = Command::new(program);
    command
        .arg("-xf")
        .arg(&lab.tree()?.archive)
        .arg("-C")
        .arg(root);
    run_program(lab, command, Stdio::inherit())
}
