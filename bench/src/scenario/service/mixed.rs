//! Small requests beside large transfers.

use std::cell::Cell;
use std::path::PathBuf;

use anyhow::{Result, ensure};
use futures_util::future::try_join;

use super::super::trees::refuse_other;
use super::super::{LOAD, Sample, measure, opened, take_turns};
use super::{ANYBODY, ask_health, check_health, put_latencies};
use crate::bench::Bench;
use crate::fixture::{LargeFile, Noise, Repeated};
use crate::load::{Connection, Latencies, Manner, Request, STEP_BYTES, at_rate_while};
use crate::results::{Metric, ScenarioResults};
use crate::target::{Dialect, Placement, Target};

const CPU: Metric = Metric::low("CPU", "CPU-s/GiB").main();
const RATE: Metric = Metric::high("rate, both ways together", "GiB/s");

pub(super) async fn run(bench: &Bench, out: &mut ScenarioResults) -> Result<()> {
    let targets = opened(bench, out, ANYBODY, Placement::ServerCpu).await?;
    let small = SmallFile::create(bench)?;
    let large = bench.large()?;
    out.notes.push(format!(
        "{PER_SECOND} requests per second over one connection until both transfers are done, the health and a file of 4 KiB in turn; each counts from when it was due. The load does all three on one CPU."
    ));
    take_turns(
        bench,
        out,
        targets,
        async |target| {
            check_health(target).await?;
            let mut work = Work::prepare(bench, target, &small, large).await?;
            work.is_check = true;
            work.run(bench).await?;
            work.check_upload(bench).await?;
            bench.remove(target, &work.upload).await
        },
        async |target| {
            let work = Work::prepare(bench, target, &small, large).await?;
            let (reading, latencies) = measure(target, work.run(bench)).await?;
            bench.remove(target, &work.upload).await?;
            let moved = 2 * large.bytes;
            let mut sample = Sample::default();
            sample
                .put(CPU, reading.cpu_per_gib(moved))
                .put(RATE, reading.gib_per_s(moved))
                .put(LOAD, reading.load_share())
                .bound_by_load(reading.is_load_bound());
            put_latencies(&mut sample, latencies, Some(f64::from(PER_SECOND)));
            Ok(sample)
        },
    )
    .await
}

/// The file of the small requests.
struct SmallFile {
    path: PathBuf,
    content: Vec<u8>,
}

impl SmallFile {
    fn create(bench: &Bench) -> Result<Self> {
        let path = bench.dir().join("mixed-4k.bin");
        let mut content = vec![0; SMALL_BYTES];
        Noise::new(13).fill(&mut content);
        std::fs::write(&path, &content)?;
        Ok(Self { path, content })
    }
}

/// What one target does at once.
struct Work<'a> {
    target: &'a Target,
    small: &'a SmallFile,
    large: &'a LargeFile,
    small_there: PathBuf,
    large_there: PathBuf,
    /// What is uploaded, under a name that was never used.
    content: Repeated,
    upload: PathBuf,
    /// Every byte is looked at.
    is_check: bool,
}

impl<'a> Work<'a> {
    async fn prepare(
        bench: &Bench,
        target: &'a Target,
        small: &'a SmallFile,
        large: &'a LargeFile,
    ) -> Result<Self> {
        bench.settle()?;
        Ok(Self {
            target,
            small,
            large,
            small_there: bench.provide(target, &small.path).await?,
            large_there: bench.provide(target, &large.path).await?,
            content: Repeated::new(STEP_BYTES),
            upload: bench.fresh_path(target, "mixed").await?,
            is_check: false,
        })
    }

    async fn run(&self, bench: &Bench) -> Result<Latencies> {
        let is_done = Cell::new(false);
        let transfers = async {
            try_join(self.download(bench), self.upload(bench)).await?;
            is_done.set(true);
            Ok(())
        };
        let mut connection = [self.target.connect(Manner::Ready)?];
        let small = self.target.file(&self.small_there, bench.dir());
        let requests = at_rate_while(
            &mut connection,
            |_| !is_done.get(),
            PER_SECOND,
            async |connection, index| match index % 2 {
                0 => ask_health(connection).await,
                _ => self.ask_small(connection, &small).await,
            },
        );
        let ((), latencies) = try_join(transfers, requests).await?;
        Ok(latencies)
    }

    async fn ask_small(&self, connection: &mut Connection, target: &str) -> Result<()> {
        let answer = connection.ask(Request::get(target)).await?;
        ensure!(
            answer.head.status == 200 && self.is_right(&answer.body),
            "the file of 4 KiB is wrong"
        );
        Ok(())
    }

    /// The bare loop sends any bytes.
    fn is_right(&self, body: &[u8]) -> bool {
        match self.target.dialect {
            Dialect::Bare => body.len() == self.small.content.len(),
            _ => body == self.small.content,
        }
    }

    async fn download(&self, bench: &Bench) -> Result<()> {
        let target = self.target.file(&self.large_there, bench.dir());
        if self.is_check && self.target.dialect != Dialect::Bare {
            let found = self.fetch(&target).await?;
            ensure!(
                found == (self.large.bytes, self.large.crc),
                "a byte of the download is wrong"
            );
            return Ok(());
        }
        let mut connection = self.target.connect(Manner::Ring)?;
        connection.send(Request::get(&target)).await?;
        let bytes = connection.discard().await?;
        ensure!(
            bytes == self.large.bytes,
            "{bytes} bytes came instead of {}",
            self.large.bytes
        );
        Ok(())
    }

    /// Size and checksum of what is downloaded.
    async fn fetch(&self, target: &str) -> Result<(u64, u32)> {
        let mut connection = self.target.connect(Manner::Ring)?;
        connection.send(Request::get(target)).await?;
        let mut crc = crc32fast::Hasher::new();
        let hash = |bytes: &[u8]| {
            crc.update(bytes);
            Ok(())
        };
        let bytes = connection.body(hash).await?;
        Ok((bytes, crc.finalize()))
    }

    async fn upload(&self, bench: &Bench) -> Result<()> {
        let mut connection = self.target.connect(Manner::Ring)?;
        let target = self.target.file(&self.upload, bench.dir());
        let request = Request::of("PUT", &target, b"");
        connection.send_head(request, self.large.bytes).await?;
        connection
            .send_repeated(&self.content.buffer, self.large.bytes)
            .await?;
        let status = connection.answer().await?.head.status;
        refuse_other(status, &[204, 201], &format!("PUT {target}"))
    }

    /// Compares what was uploaded with what was sent.
    async fn check_upload(&self, bench: &Bench) -> Result<()> {
        let (bytes, crc) = match bench.shares_files(self.target).await? {
            true => LargeFile::measure(&self.upload)?,
            false => {
                let target = self.target.file(&self.upload, bench.dir());
                self.fetch(&target).await?
            }
        };
        ensure!(
            bytes == self.large.bytes && crc == self.content.crc(bytes),
            "what was uploaded is wrong"
        );
        Ok(())
    }
}

const SMALL_BYTES: usize = 4096;
const PER_SECOND: u32 = 500;
