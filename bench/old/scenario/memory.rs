//! `memory`: what a fresh server holds when idle, and how far each kind of work makes it grow.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::tar_put::put_tar;
use super::transfer::download;
use super::{Entrant, Sample, alternate, put, tar_get};
use crate::client::Manner;
use crate::lab::Lab;
use crate::memory::{Watch, resident};
use crate::report::{Better, Metric, ScenarioReport};
use crate::target::{self, Kind, Server};

pub(crate) const NAME: &str = "memory";

pub(crate) const IDLE: Metric = mib("idle RSS");
pub(crate) const BINARY: Metric = mib("size of the binary");
/// Resident set above its size before, per kind of work; then the same without file-backed pages.
pub(crate) const GROWTHS: [Metric; 4] = [
    mib("growth, GET file"),
    mib("growth, PUT file"),
    mib("growth, GET tar"),
    mib("growth, PUT tar"),
];
const ANONYMOUS: [Metric; 4] = [
    mib("anonymous growth, GET file"),
    mib("anonymous growth, PUT file"),
    mib("anonymous growth, GET tar"),
    mib("anonymous growth, PUT tar"),
];

const IDLE_FOR: Duration = Duration::from_millis(500);
const MAX_ROUNDS: usize = 3;

const fn mib(name: &'static str) -> Metric {
    Metric {
        name,
        unit: "MiB",
        better: Better::Low,
    }
}

/// A server that is started anew for every round.
struct Fresh(Kind);

impl Entrant for Fresh {
    fn name(&self) -> &'static str {
        self.0.name()
    }
}

pub(super) fn run(lab: &Lab) -> Result<ScenarioReport> {
    let mut notes = Vec::new();
    let mut kinds = vec![Fresh(Kind::Axum)];
    if target::available(Kind::Ringd, &lab.options.ringd) {
        kinds.insert(0, Fresh(Kind::Ringd));
    } else {
        notes.push("ringd is not installed here: left out".to_owned());
    }
    let archive = std::fs::read(&lab.tree()?.archive)?;
    let series = alternate(&kinds, lab.options.rounds.min(MAX_ROUNDS), |fresh| {
        sample(lab, fresh.0, &archive)
    })?;
    notes.push("Growth is VmHWM above the VmRSS before the request: pages of mapped files count. Anonymous growth is sampled every 2 ms.".to_owned());
    notes.push(
        "The size of the axum binary is that of `baseline`, which is the bare loops too."
            .to_owned(),
    );
    Ok(ScenarioReport {
        name: NAME,
        notes,
        series,
    })
}

fn sample(lab: &Lab, kind: Kind, archive: &[u8]) -> Result<Sample> {
    let server = lab.start(kind)?;
    ensure!(
        server
            .client(Manner::Sleep)?
            .ask("GET", "/v1/health", b"")?
            .0
            == 200,
        "health is not 200"
    );
    std::thread::sleep(IDLE_FOR);
    let mut sample = Sample::from([
        (IDLE, resident(server.pid())?.total),
        (BINARY, binary_mib(lab, kind)?),
    ]);
    let large = lab.large()?;
    let file = server.file_target(&large.path, lab.dir());
    let root = lab.fresh_path("extracted");
    watch(&server, 0, &mut sample, || {
        download(&server, &file, Manner::Sleep).map(drop)
    })?;
    watch(&server, 1, &mut sample, || {
        put::put(lab, &server, Manner::Sleep).map(drop)
    })?;
    watch(&server, 2, &mut sample, || {
        download(&server, &tar_get::target(lab)?, Manner::Sleep).map(drop)
    })?;
    watch(&server, 3, &mut sample, || {
        put_tar(&server, &root, "", archive, Manner::Sleep).map(drop)
    })?;
    Ok(sample)
}

fn watch(
    server: &Server,
    work: usize,
    sample: &mut Sample,
    run: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let watch = Watch::start(server.pid())?;
    run()?;
    let growth = watch.stop()?;
    sample.push((GROWTHS[work], growth.total));
    sample.push((ANONYMOUS[work], growth.anonymous));
    Ok(())
}

fn binary_mib(lab: &Lab, kind: Kind) -> Result<f64> {
    let path = if kind == Kind::Ringd {
        lab.options.ringd.clone()
    } else {
        target::baseline()
    };
    Ok(std::fs::metadata(path)?.len() as f64 / f64::from(1 << 20))
}
