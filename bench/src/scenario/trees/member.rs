//! One large file as an archive, beside the same bytes as a file.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::super::{GROWTH, LOAD, Sample, measure, take_turns};
use super::extract::NOTE_SPOOL;
use super::guest::{Guest, archive_target, expect_done};
use crate::bench::{Bench, Needs};
use crate::fixture::{LargeFile, MIB, Member, Repeated, Summary, warm_free_pages};
use crate::load::{Connection, Manner, Request, STEP_BYTES};
use crate::results::{Metric, ScenarioResults};
use crate::scenario::measure::Reading;

const CPU: Metric = Metric::low("CPU", "CPU-s/GiB").main();
const RATE: Metric = Metric::high("rate", "GiB/s");
const CPU_COPY: Metric = Metric::low("CPU, ordinary client", "CPU-s/GiB");
const RATE_COPY: Metric = Metric::high("rate, ordinary client", "GiB/s");
const CPU_FILE: Metric = Metric::low("CPU, as a file", "CPU-s/GiB");
/// Both from the same round.
const OVER_GET: Metric = Metric::low("CPU over GET file", "x");
const OVER_PUT: Metric = Metric::low("CPU over PUT file", "x");

pub(super) async fn packed(bench: &Bench, out: &mut ScenarioResults) -> Result<()> {
    let large = bench.large()?;
    let guests = Guest::all(bench, out, Needs::GUEST).await?;
    bench.settle()?;
    take_turns(
        bench,
        out,
        guests,
        async |guest| {
            let root = root(bench, guest, large).await?;
            guest.check_packed(&root, &summary(large)?).await
        },
        async |guest| {
            let root = root(bench, guest, large).await?;
            let target = &guest.target;
            let (tar, _) = guest.download(target, &root, Manner::Spin, 1).await?;
            let (copy, _) = guest.download(target, &root, Manner::Ring, 1).await?;
            let file = file(guest, &root.join(name(large)?), large.bytes).await?;
            let mut sample = Sample::default();
            sample
                .put(CPU, tar.cpu_per_gib(large.bytes))
                .put(RATE, tar.gib_per_s(large.bytes))
                .put(CPU_COPY, copy.cpu_per_gib(large.bytes))
                .put(RATE_COPY, copy.gib_per_s(large.bytes))
                .put(CPU_FILE, file.cpu_per_gib(large.bytes))
                .put(OVER_GET, ratio(&tar, &file))
                .put(GROWTH, copy.grown_mib)
                .put(LOAD, copy.load_share())
                .bound_by_load(copy.is_load_bound());
            Ok(sample)
        },
    )
    .await
}

pub(super) async fn extracted(bench: &Bench, out: &mut ScenarioResults) -> Result<()> {
    let upload = Upload::new(bench.sizes.large_mib * MIB)?;
    let guests = Guest::both_ways(bench, out).await?;
    out.notes.push(NOTE_SPOOL.to_owned());
    take_turns(
        bench,
        out,
        guests,
        async |guest| upload.tar(bench, guest, Manner::Ring).await.map(drop),
        async |guest| {
            let bytes = upload.member.bytes;
            let file = upload.file(bench, guest).await?;
            let tar = upload.tar(bench, guest, Manner::Spin).await?;
            let copy = upload.tar(bench, guest, Manner::Ring).await?;
            let mut sample = Sample::default();
            sample
                .put(CPU, tar.cpu_per_gib(bytes))
                .put(RATE, tar.gib_per_s(bytes))
                .put(CPU_COPY, copy.cpu_per_gib(bytes))
                .put(RATE_COPY, copy.gib_per_s(bytes))
                .put(CPU_FILE, file.cpu_per_gib(bytes))
                .put(OVER_PUT, ratio(&tar, &file))
                .put(GROWTH, copy.grown_mib)
                .put(LOAD, copy.load_share())
                .bound_by_load(copy.is_load_bound());
            Ok(sample)
        },
    )
    .await
}

fn ratio(ours: &Reading, theirs: &Reading) -> Option<f64> {
    Some(ours.cpu_s? / theirs.cpu_s?)
}

/// The directory of the large file as the target sees it.
async fn root(bench: &Bench, guest: &Guest, large: &LargeFile) -> Result<PathBuf> {
    let root = guest.place(async || {
        if bench.shares_files(&guest.target).await? {
            let parent = large.path.parent();
            return Ok(parent.context("the file has a directory")?.to_owned());
        }
        let root = bench.fresh_path(&guest.target, "large").await?;
        let member = Member::new(name(large)?, large.bytes)?;
        let mut connection = guest.target.connect(Manner::Ready)?;
        let target = archive_target(&root, "");
        let request = Request::of("PUT", &target, b"");
        connection.send_head(request, member.length()).await?;
        connection.send_bytes(&member.head).await?;
        connection.send_file(&large.path).await?;
        connection.send_bytes(&member.tail).await?;
        expect_done(&mut connection, &target).await?;
        Ok(root)
    });
    Ok(root.await?.to_owned())
}

fn name(large: &LargeFile) -> Result<&str> {
    let name = large.path.file_name().and_then(|name| name.to_str());
    name.context("the large file has a plain name")
}

fn summary(large: &LargeFile) -> Result<Summary> {
    Ok(Summary::of_one(name(large)?, large.crc))
}

/// Downloads the same bytes as a file.
async fn file(guest: &Guest, path: &Path, expected: u64) -> Result<Reading> {
    let mut connection = guest.target.connect(Manner::Spin)?;
    let target = format!("/v1/fs/file?path={}", path.display());
    let (reading, bytes) = measure(&guest.target, async {
        connection.send(Request::get(&target)).await?;
        connection.discard().await
    })
    .await?;
    ensure!(
        bytes == expected,
        "{bytes} bytes came instead of {expected}"
    );
    Ok(reading)
}

/// The same bytes as a file and as the member of an archive.
struct Upload {
    member: Member,
    content: Repeated,
    summary: Summary,
}

impl Upload {
    fn new(bytes: u64) -> Result<Self> {
        let content = Repeated::new(STEP_BYTES);
        Ok(Self {
            member: Member::new(MEMBER, bytes)?,
            summary: Summary::of_one(MEMBER, content.crc(bytes)),
            content,
        })
    }

    /// Extracts once into a fresh directory, compares the result and removes it: many of them would fill a disk.
    async fn tar(&self, bench: &Bench, guest: &Guest, manner: Manner) -> Result<Reading> {
        let root = bench.fresh_path(&guest.target, "member").await?;
        self.prepare(bench, guest).await?;
        let mut connection = guest.target.connect(manner)?;
        let target = archive_target(&root, guest.options);
        let (reading, ()) = measure(&guest.target, async {
            let request = Request::of("PUT", &target, b"");
            connection.send_head(request, self.member.length()).await?;
            connection.send_bytes(&self.member.head).await?;
            self.send_content(&mut connection).await?;
            connection.send_bytes(&self.member.tail).await?;
            expect_done(&mut connection, &target).await
        })
        .await?;
        guest.check_extracted(bench, &root, &self.summary).await?;
        bench.remove(&guest.target, &root).await?;
        Ok(reading)
    }

    /// Uploads the same bytes as a file.
    async fn file(&self, bench: &Bench, guest: &Guest) -> Result<Reading> {
        let path = bench.fresh_path(&guest.target, "file").await?;
        self.prepare(bench, guest).await?;
        let mut connection = guest.target.connect(Manner::Spin)?;
        let target = format!("/v1/fs/file?path={}", path.display());
        let (reading, ()) = measure(&guest.target, async {
            let request = Request::of("PUT", &target, b"");
            connection.send_head(request, self.member.bytes).await?;
            self.send_content(&mut connection).await?;
            expect_done(&mut connection, &target).await
        })
        .await?;
        bench.remove(&guest.target, &path).await?;
        Ok(reading)
    }

    async fn send_content(&self, connection: &mut Connection) -> Result<()> {
        connection
            .send_repeated(&self.content.buffer, self.member.bytes)
            .await
    }

    async fn prepare(&self, bench: &Bench, guest: &Guest) -> Result<()> {
        if bench.shares_files(&guest.target).await? {
            bench.settle()?;
            warm_free_pages(bench.dir(), 2 * self.member.bytes + 64 * MIB)?;
        }
        Ok(())
    }
}

const MEMBER: &str = "member.bin";
