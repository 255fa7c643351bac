//! Archives that are extracted into a directory that never existed before.
//!
//! The directories stay until the end of the run: a name made again soon after its removal is slow on ext4.

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};

use super::super::turns::Entrant;
use super::super::{GROWTH, LOAD, Sample, measure, take_turns};
use super::guest::{Guest, put_archive};
use super::program::{BSDTAR, GNU_TAR, Program};
use super::{CPU_PER_ENTRY, CPU_PER_FILE, WALL};
use crate::bench::Bench;
use crate::fixture::{MIB, Tree, tree_summary, warm_free_pages};
use crate::load::Manner;
use crate::results::{Metric, ScenarioResults};
use crate::scenario::measure::Reading;
use crate::target::{Spent, Target};

/// A daemon that takes the archive over the socket, or a program that reads it from a local file.
enum Extractor {
    Guest(Guest),
    Program(Program),
}

impl Entrant for Extractor {
    fn name(&self) -> &str {
        match self {
            Self::Guest(guest) => guest.name(),
            Self::Program(program) => program.name,
        }
    }
}

/// One tree and how it is extracted.
struct Task<'a> {
    bench: &'a Bench,
    tree: &'a Tree,
    archive: Vec<u8>,
    /// Extractions of one measurement.
    times: usize,
}

pub(super) async fn small(bench: &Bench, out: &mut ScenarioResults) -> Result<()> {
    let task = Task::new(bench, bench.small_tree()?, 1)?;
    let guests = Guest::both_ways(bench, out).await?;
    let mut is_local = false;
    for guest in &guests {
        is_local |= bench.shares_files(&guest.target).await?;
    }
    let mut extractors: Vec<Extractor> = guests.into_iter().map(Extractor::Guest).collect();
    if is_local {
        let programs = Program::installed(bench, out, &[BSDTAR, GNU_TAR]);
        extractors.extend(programs.into_iter().map(Extractor::Program));
    }
    out.notes.push("The programs read the archive from a local file; the daemons receive it from an ordinary client.".to_owned());
    out.notes.push(NOTE_SPOOL.to_owned());
    take_turns(
        bench,
        out,
        extractors,
        async |extractor| match extractor {
            Extractor::Guest(guest) => task.guest(guest, &guest.target).await.map(drop),
            Extractor::Program(program) => task.program(program).map(drop),
        },
        async |extractor| match extractor {
            Extractor::Guest(guest) => {
                let reading = task.guest(guest, &guest.target).await?;
                Ok(task.sample(&reading, CPU_PER_FILE, task.tree.summary.files))
            }
            Extractor::Program(program) => {
                let spent = task.program(program)?;
                let cpu_us = spent.cpu_s * 1e6 / task.tree.summary.files as f64;
                let mut sample = Sample::default();
                sample
                    .put(CPU_PER_FILE, cpu_us)
                    .put(WALL, spent.wall_s * 1e3);
                Ok(sample)
            }
        },
    )
    .await
}

pub(super) async fn deep(bench: &Bench, out: &mut ScenarioResults) -> Result<()> {
    let task = Task::new(bench, bench.deep_tree()?, DEEP_TIMES)?;
    let guests = Guest::both_ways(bench, out).await?;
    out.notes.push(format!(
        "In each directory there are four files of 64 KiB; each figure is that of {DEEP_TIMES} extractions."
    ));
    out.notes.push(NOTE_SPOOL.to_owned());
    take_turns(
        bench,
        out,
        guests,
        async |guest| task.guest(guest, &guest.target).await.map(drop),
        async |guest| {
            let reading = task.guest(guest, &guest.target).await?;
            Ok(task.sample(&reading, CPU_PER_FILE, task.tree.summary.files))
        },
    )
    .await
}

pub(super) async fn many(bench: &Bench, out: &mut ScenarioResults) -> Result<()> {
    let task = Task::new(bench, bench.large_tree()?, 1)?;
    let guests = Guest::both_ways(bench, out).await?;
    out.notes.push(format!(
        "{} entries. A daemon that is started here is a fresh one in each round, so that growth is growth from nothing.",
        task.tree.entries()
    ));
    out.notes.push(NOTE_SPOOL.to_owned());
    take_turns(
        bench,
        out,
        guests,
        async |guest| task.guest(guest, &guest.target).await.map(drop),
        async |guest| {
            let fresh = bench.reopen(&guest.target).await?;
            let reading = task.guest(guest, &fresh).await?;
            Ok(task.sample(&reading, CPU_PER_ENTRY, task.tree.entries()))
        },
    )
    .await
}

impl<'a> Task<'a> {
    fn new(bench: &'a Bench, tree: &'a Tree, times: usize) -> Result<Self> {
        let archive = std::fs::read(&tree.archive)?;
        Ok(Self {
            bench,
            tree,
            archive,
            times,
        })
    }

    /// Uploads the archive to `target`, which is that of the guest or a fresh one, and compares the result.
    async fn guest(&self, guest: &Guest, target: &Target) -> Result<Reading> {
        let mut roots: Vec<PathBuf> = Vec::new();
        for _ in 0..self.times {
            roots.push(self.bench.fresh_path(&guest.target, "extracted").await?);
        }
        if self.bench.shares_files(&guest.target).await? {
            self.prepare()?;
        }
        let mut connection = target.connect(Manner::Ring)?;
        let (reading, ()) = measure(target, async {
            for root in &roots {
                put_archive(&mut connection, root, guest.options, &self.archive).await?;
            }
            Ok(())
        })
        .await?;
        for root in &roots {
            guest
                .check_extracted(self.bench, root, &self.tree.summary)
                .await?;
        }
        Ok(reading)
    }

    fn program(&self, program: &Program) -> Result<Spent> {
        let root = self.bench.dir().join(format!(
            "extracted-{}-{}",
            program.name,
            self.bench.serial()
        ));
        self.prepare()?;
        let spent = program.extract(self.bench, self.tree, &root)?;
        self.compare(&root)?;
        Ok(spent)
    }

    fn compare(&self, root: &Path) -> Result<()> {
        let summary = tree_summary(root)?;
        let expected = &self.tree.summary;
        ensure!(
            summary == *expected,
            "the tree holds {summary:?} instead of {expected:?}"
        );
        Ok(())
    }

    /// What is written meets neither dirty pages nor pages that the host must give first.
    fn prepare(&self) -> Result<()> {
        self.bench.settle()?;
        let bytes = self.times as u64 * 4 * self.archive.len() as u64;
        warm_free_pages(self.bench.dir(), bytes + 64 * MIB)
    }

    fn sample(&self, reading: &Reading, cpu: Metric, things: usize) -> Sample {
        let mut sample = Sample::default();
        sample
            .put(cpu, reading.cpu_us_each(things * self.times))
            .put(WALL, reading.wall_s * 1e3 / self.times as f64)
            .put(GROWTH, reading.grown_mib)
            .put(LOAD, reading.load_share())
            .bound_by_load(reading.is_load_bound());
        sample
    }
}

/// One extraction of so small a tree would be too short to measure.
const DEEP_TIMES: usize = 2;
pub(super) const NOTE_SPOOL: &str = "`NAME spool=off` is a daemon that extracts while it receives. A target is asked for it with an empty archive: it must take `spool=off` and refuse `spool=neither`.";
