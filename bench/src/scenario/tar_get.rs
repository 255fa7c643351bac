//! `tar-get-20k`: a tree of small files, downloaded as one archive.

use anyhow::{Result, ensure};

use super::transfer::{CPU_PER_FILE_SPIN, GROWTH, download, fetch};
use super::{Sample, alternate, warm_up};
use crate::client::Manner;
use crate::fixture::archive_summary;
use crate::lab::Lab;
use crate::report::{Better, Metric, ScenarioReport};
use crate::target::{Kind, Server};

pub(crate) const NAME: &str = "tar-get-20k";

const WALL_SPIN: Metric = Metric {
    name: "wall, spin client",
    unit: "ms",
    better: Better::Low,
};
const CPU_COPY: Metric = Metric {
    name: "CPU, ordinary client",
    unit: "us/file",
    better: Better::Low,
};
const WALL_COPY: Metric = Metric {
    name: "wall, ordinary client",
    unit: "ms",
    better: Better::Low,
};

pub(super) fn run(lab: &Lab) -> Result<ScenarioReport> {
    let tree = lab.tree()?;
    let (servers, notes) = lab.start_all(&[Kind::Ringd, Kind::Axum, Kind::Axum64])?;
    warm_up(&servers, |server| check(lab, server))?;
    let series = alternate(&servers, lab.options.rounds, |server| {
        let (spin, _) = download(server, &target(lab)?, Manner::Spin)?;
        let (copy, _) = download(server, &target(lab)?, Manner::Sleep)?;
        Ok(Sample::from([
            (CPU_PER_FILE_SPIN, spin.cpu_s * 1e6 / tree.files as f64),
            (WALL_SPIN, spin.wall_s * 1e3),
            (CPU_COPY, copy.cpu_s * 1e6 / tree.files as f64),
            (WALL_COPY, copy.wall_s * 1e3),
            (GROWTH, spin.grown_mib.max(copy.grown_mib)),
        ]))
    })?;
    Ok(ScenarioReport {
        name: NAME,
        notes,
        series,
    })
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
