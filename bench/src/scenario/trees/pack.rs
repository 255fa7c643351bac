//! Trees that are downloaded as archives.

use std::time::Instant;

use anyhow::Result;

use super::super::turns::Entrant;
use super::super::{GROWTH, LOAD, Sample, take_turns};
use super::guest::Guest;
use super::program::{GNU_TAR, Program};
use super::{CPU_PER_ENTRY, CPU_PER_FILE, WALL};
use crate::bench::{Bench, Needs};
use crate::fixture::Tree;
use crate::load::Manner;
use crate::memory::disk_read_bytes;
use crate::results::{Metric, ScenarioResults};
use crate::target::Spent;

const CPU_COPY: Metric = Metric::low("CPU, ordinary client", "us/file");
const WALL_COPY: Metric = Metric::low("wall, ordinary client", "ms");
const FIRST_BYTE: Metric = Metric::low("first byte", "ms");
/// How long the first byte came after a plain walk of the same tree would have been over.
const FIRST_BYTE_LATE: Metric = Metric::low("first byte after the time of a plain walk", "ms");
const DISK: Metric = Metric::low("read from the disk", "MiB");

/// A daemon, or a program that does the same.
enum Packer {
    Guest(Guest),
    Program(Program),
}

impl Entrant for Packer {
    fn name(&self) -> &str {
        match self {
            Self::Guest(guest) => guest.name(),
            Self::Program(program) => program.name,
        }
    }
}

impl Packer {
    async fn check(&self, bench: &Bench, tree: &Tree) -> Result<()> {
        match self {
            Self::Guest(guest) => {
                let root = guest.root(bench, tree).await?;
                guest.check_packed(root, &tree.summary).await
            }
            Self::Program(program) => program.pack(bench, tree).map(drop),
        }
    }
}

pub(super) async fn small(bench: &Bench, out: &mut ScenarioResults) -> Result<()> {
    let tree = bench.small_tree()?;
    let packers = with_program(bench, out, Needs::GUEST).await?;
    out.notes.push(NOTE_PIPE.to_owned());
    out.notes.push(
        "A plain walk lists and stats the tree; no packer knows the archive's length earlier."
            .to_owned(),
    );
    bench.settle()?;
    take_turns(
        bench,
        out,
        packers,
        async |packer| packer.check(bench, tree).await,
        async |packer| match packer {
            Packer::Guest(guest) => warm(bench, guest, tree, 1).await,
            Packer::Program(program) => Ok(spent(tree, &program.pack(bench, tree)?)),
        },
    )
    .await
}

pub(super) async fn deep(bench: &Bench, out: &mut ScenarioResults) -> Result<()> {
    let tree = bench.deep_tree()?;
    let guests = Guest::all(bench, out, Needs::GUEST).await?;
    out.notes.push(format!(
        "In each directory there are four files of 64 KiB; each figure is that of {DEEP_TIMES} downloads."
    ));
    bench.settle()?;
    take_turns(
        bench,
        out,
        guests,
        async |guest| {
            let root = guest.root(bench, tree).await?;
            guest.check_packed(root, &tree.summary).await
        },
        async |guest| warm(bench, guest, tree, DEEP_TIMES).await,
    )
    .await
}

pub(super) async fn cold(bench: &Bench, out: &mut ScenarioResults) -> Result<()> {
    let tree = bench.small_tree()?;
    let packers = with_program(bench, out, Needs::GUEST.shared_files()).await?;
    out.notes.push(NOTE_PIPE.to_owned());
    out.notes.push(
        "The pages of every file are dropped, names and inodes stay. Where nothing is read from the disk, as on tmpfs, nothing was cold."
            .to_owned(),
    );
    take_turns(
        bench,
        out,
        packers,
        async |packer| packer.check(bench, tree).await,
        async |packer| {
            bench.settle()?;
            tree.chill()?;
            match packer {
                Packer::Guest(guest) => from_disk(bench, guest, tree).await,
                Packer::Program(program) => Ok(spent(tree, &program.pack(bench, tree)?)),
            }
        },
    )
    .await
}

pub(super) async fn many(bench: &Bench, out: &mut ScenarioResults) -> Result<()> {
    let tree = bench.large_tree()?;
    let guests = Guest::all(bench, out, Needs::GUEST).await?;
    out.notes.push(format!(
        "{} entries. A daemon that is started here is a fresh one in each round, so that growth is growth from nothing.",
        tree.entries()
    ));
    bench.settle()?;
    take_turns(
        bench,
        out,
        guests,
        async |guest| {
            let root = guest.root(bench, tree).await?;
            guest.check_packed(root, &tree.summary).await
        },
        async |guest| {
            let root = guest.root(bench, tree).await?;
            let fresh = bench.reopen(&guest.target).await?;
            let (reading, first_ms) = guest.download(&fresh, root, Manner::Ring, 1).await?;
            let mut sample = Sample::default();
            sample
                .put(CPU_PER_ENTRY, reading.cpu_us_each(tree.entries()))
                .put(WALL, reading.wall_s * 1e3)
                .put(FIRST_BYTE, first_ms)
                .put(GROWTH, reading.grown_mib)
                .put(LOAD, reading.load_share())
                .bound_by_load(reading.is_load_bound());
            Ok(sample)
        },
    )
    .await
}

/// The targets that can take part, and GNU tar when one of them sees the same files.
async fn with_program(
    bench: &Bench,
    out: &mut ScenarioResults,
    needs: Needs,
) -> Result<Vec<Packer>> {
    let guests = Guest::all(bench, out, needs).await?;
    let mut is_local = false;
    for guest in &guests {
        is_local |= bench.shares_files(&guest.target).await?;
    }
    let mut packers: Vec<Packer> = guests.into_iter().map(Packer::Guest).collect();
    if is_local {
        let programs = Program::installed(bench, out, &[GNU_TAR]);
        packers.extend(programs.into_iter().map(Packer::Program));
    }
    Ok(packers)
}

/// Downloads `times` times from the page cache, over a spinning connection and by an ordinary client.
async fn warm(bench: &Bench, guest: &Guest, tree: &Tree, times: usize) -> Result<Sample> {
    let files = tree.summary.files * times;
    let each_ms = 1e3 / times as f64;
    let root = guest.root(bench, tree).await?;
    let walk_ms = match bench.shares_files(&guest.target).await? {
        true => {
            let start = Instant::now();
            tree.walk()?;
            Some(start.elapsed().as_secs_f64() * 1e3)
        }
        false => None,
    };
    let (spin, first_ms) = guest
        .download(&guest.target, root, Manner::Spin, times)
        .await?;
    let (copy, _) = guest
        .download(&guest.target, root, Manner::Ring, times)
        .await?;
    let grown_mib = spin.grown_mib.zip(copy.grown_mib);
    let mut sample = Sample::default();
    sample
        .put(CPU_PER_FILE, spin.cpu_us_each(files))
        .put(WALL, spin.wall_s * each_ms)
        .put(FIRST_BYTE, first_ms)
        .put(FIRST_BYTE_LATE, walk_ms.map(|walk_ms| first_ms - walk_ms))
        .put(CPU_COPY, copy.cpu_us_each(files))
        .put(WALL_COPY, copy.wall_s * each_ms)
        .put(GROWTH, grown_mib.map(|(spin, copy)| spin.max(copy)))
        .put(LOAD, copy.load_share())
        .bound_by_load(copy.is_load_bound());
    Ok(sample)
}

async fn from_disk(bench: &Bench, guest: &Guest, tree: &Tree) -> Result<Sample> {
    let root = guest.root(bench, tree).await?;
    let read = || guest.target.pid().and_then(disk_read_bytes);
    let read_before = read();
    let (reading, first_ms) = guest.download(&guest.target, root, Manner::Ring, 1).await?;
    let read_mib = read()
        .zip(read_before)
        .map(|(after, before)| after.saturating_sub(before) as f64 / f64::from(1 << 20));
    let mut sample = Sample::default();
    sample
        .put(CPU_PER_FILE, reading.cpu_us_each(tree.summary.files))
        .put(WALL, reading.wall_s * 1e3)
        .put(FIRST_BYTE, first_ms)
        .put(DISK, read_mib)
        .put(LOAD, reading.load_share())
        .bound_by_load(reading.is_load_bound());
    Ok(sample)
}

fn spent(tree: &Tree, spent: &Spent) -> Sample {
    let mut sample = Sample::default();
    sample
        .put(CPU_PER_FILE, spent.cpu_s * 1e6 / tree.summary.files as f64)
        .put(WALL, spent.wall_s * 1e3);
    sample
}

/// One download of so small a tree would be too short to measure.
const DEEP_TIMES: usize = 4;
const NOTE_PIPE: &str = "GNU tar writes into a pipe that the harness reads.";
