//! `memory-large`: how far a fresh server grows with 8 GiB in one file, and with a tree of 100,000 entries.

use anyhow::{Result, ensure};

use super::tar_put::put_tar;
use super::transfer::{download, upload};
use super::{Sample, alternate};
use crate::client::Manner;
use crate::fixture::{MIB, Tree};
use crate::lab::Lab;
use crate::memory::Watch;
use crate::report::{Better, Metric, ScenarioReport};
use crate::target::{Kind, Server};

pub(crate) const NAME: &str = "memory-large";

pub(crate) const GROWTHS: [Metric; 5] = [
    mib("growth, GET file of 8 GiB"),
    mib("growth, PUT file of 8 GiB"),
    mib("growth, GET tar of 99,610 entries"),
    mib("growth, PUT tar of 99,610 entries"),
    mib("growth, PUT tar of 99,610 entries, spool=off"),
];

const LARGE_BYTES: u64 = 8 << 30;
/// With their directories just under the members that an archive may have.
const FILES: usize = 99_000;
const BUFFER_BYTES: usize = 256 << 10;
/// It is about memory, which does not vary as time does.
const ROUNDS: usize = 1;

const fn mib(name: &'static str) -> Metric {
    Metric {
        name,
        unit: "MiB",
        better: Better::Low,
    }
}

pub(super) fn run(lab: &Lab) -> Result<ScenarioReport> {
    let (servers, mut notes) = lab.start_all(&[Kind::Ringd])?;
    let dir = lab.fresh_path("many");
    std::fs::create_dir(&dir)?;
    let tree = Tree::create(&dir, FILES)?;
    let series = alternate(&servers, ROUNDS, |_| sample(lab, &tree))?;
    notes.push(
        "A fresh server for each kind of work. The file that is read is one hole.".to_owned(),
    );
    Ok(ScenarioReport {
        name: NAME,
        notes,
        series,
    })
}

fn sample(lab: &Lab, tree: &Tree) -> Result<Sample> {
    let hole = lab.fresh_path("hole");
    std::fs::File::create(&hole)?.set_len(LARGE_BYTES)?;
    let written = lab.fresh_path("written");
    let archive = std::fs::read(&tree.archive)?;
    let mut sample = Sample::new();
    grow(lab, &mut sample, |server| {
        let target = server.file_target(&hole, lab.dir());
        let (_, bytes) = download(server, &target, Manner::Spin)?;
        ensure!(bytes == LARGE_BYTES, "the length is wrong");
        Ok(())
    })?;
    grow(lab, &mut sample, |server| {
        let target = format!("/v1/fs/file?path={}", written.display());
        let buffer = vec![0x5a; BUFFER_BYTES];
        upload(server, &target, &buffer, LARGE_BYTES, Manner::Sleep)?;
        std::fs::remove_file(&written)?;
        Ok(())
    })?;
    grow(lab, &mut sample, |server| {
        let target = format!("/v1/fs/tar?path={}", tree.root.display());
        let (_, bytes) = download(server, &target, Manner::Spin)?;
        ensure!(
            bytes > FILES as u64 * 4 * MIB / 1024,
            "the archive is short"
        );
        Ok(())
    })?;
    for option in ["", "&spool=off"] {
        let root = lab.fresh_path("many-out");
        grow(lab, &mut sample, |server| {
            put_tar(server, &root, option, &archive, Manner::Sleep).map(drop)
        })?;
        std::fs::remove_dir_all(&root)?;
    }
    Ok(sample)
}

fn grow(lab: &Lab, sample: &mut Sample, work: impl FnOnce(&Server) -> Result<()>) -> Result<()> {
    let server = lab.start(Kind::Ringd)?;
    let watch = Watch::start(server.pid())?;
    work(&server)?;
    let growth = watch.stop()?;
    sample.push((GROWTHS[sample.len()], growth.total));
    Ok(())
}
