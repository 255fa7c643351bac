//! What a fresh daemon holds, and how far each kind of transfer makes it grow.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::Pid;

use super::super::trees::{Guest, put_archive, refuse_other};
use super::super::{Sample, measure, take_turns};
use super::ask_health;
use crate::bench::{Bench, Needs};
use crate::fixture::{LargeFile, Repeated};
use crate::load::{Manner, Request, STEP_BYTES};
use crate::memory::{Watch, resident};
use crate::results::{Metric, ScenarioResults};
use crate::scenario::measure::Reading;
use crate::target::Target;

const IDLE: Metric = mib("idle RSS").main();
const IDLE_ANONYMOUS: Metric = mib("idle, anonymous");
const AFTERWARDS: Metric = mib("RSS afterwards, at rest");
const RESIDENT: Metric = mib("resident set");
/// The resident set above its size before the work, and the same without pages that files back.
const GET: [Metric; 2] = [mib("growth, GET file"), mib("anonymous growth, GET file")];
const PUT: [Metric; 2] = [mib("growth, PUT file"), mib("anonymous growth, PUT file")];
const PACK: [Metric; 2] = [mib("growth, GET tar"), mib("anonymous growth, GET tar")];
const EXTRACT: [Metric; 2] = [mib("growth, PUT tar"), mib("anonymous growth, PUT tar")];

const fn mib(name: &'static str) -> Metric {
    Metric::low(name, "MiB")
}

pub(super) async fn run(bench: &Bench, out: &mut ScenarioResults) -> Result<()> {
    let plan = Plan::new(bench)?;
    let guests = Guest::all(bench, out, Needs::GUEST.spawned().shared_files()).await?;
    out.notes.push(format!(
        "Each round starts a daemon anew: idle, then one file of {} MiB down and up, then a tree of {} files down and up. Growth is the highest resident set above that just before, mapped files included; the anonymous part is looked at every 2 ms.",
        bench.sizes.large_mib, bench.sizes.files
    ));
    take_turns(
        bench,
        out,
        guests,
        async |guest| plan.check(guest).await,
        async |guest| plan.sample(guest).await,
    )
    .await
}

/// What is moved.
struct Plan<'a> {
    bench: &'a Bench,
    large: &'a LargeFile,
    content: Repeated,
    archive: Vec<u8>,
}

impl<'a> Plan<'a> {
    fn new(bench: &'a Bench) -> Result<Self> {
        Ok(Self {
            bench,
            large: bench.large()?,
            content: Repeated::new(STEP_BYTES),
            archive: std::fs::read(&bench.small_tree()?.archive)?,
        })
    }

    async fn check(&self, guest: &Guest) -> Result<()> {
        let tree = self.bench.small_tree()?;
        guest.check_packed(&tree.root, &tree.summary).await?;
        let target = &guest.target;
        let found = self.get(target).await?;
        ensure!(
            found == (self.large.bytes, self.large.crc),
            "a byte of the file is wrong"
        );
        let path = self.bench.fresh_path(target, "memory").await?;
        self.put(target, &path).await?;
        let (bytes, crc) = LargeFile::measure(&path)?;
        ensure!(
            bytes == self.large.bytes && crc == self.content.crc(bytes),
            "a byte of the upload is wrong"
        );
        self.bench.remove(target, &path).await?;
        let root = self.bench.fresh_path(target, "extracted").await?;
        self.extract(target, &root).await?;
        guest
            .check_extracted(self.bench, &root, &tree.summary)
            .await
    }

    async fn sample(&self, guest: &Guest) -> Result<Sample> {
        let tree = self.bench.small_tree()?;
        let path = self.bench.fresh_path(&guest.target, "memory").await?;
        let root = self.bench.fresh_path(&guest.target, "extracted").await?;
        self.bench.settle()?;
        let fresh = self.bench.reopen(&guest.target).await?;
        let pid = fresh.pid().context("it has no process")?;
        ask_health(&mut fresh.connect(Manner::Ready)?).await?;
        let watch = Watch::start(pid)?;
        let mut sample = Sample::default();
        sample.put(IDLE, at_rest(pid).await?);
        sample.put(IDLE_ANONYMOUS, resident(pid)?.anonymous);
        let get = async { Ok(measure(&fresh, self.get(&fresh)).await?.0) };
        let put = async { Ok(measure(&fresh, self.put(&fresh, &path)).await?.0) };
        let pack = async {
            let packed = guest.download(&fresh, &tree.root, Manner::Ring, 1);
            Ok(packed.await?.0)
        };
        let extract = async { Ok(measure(&fresh, self.extract(&fresh, &root)).await?.0) };
        let steps = [
            step(&watch, GET, get).await?,
            step(&watch, PUT, put).await?,
            step(&watch, PACK, pack).await?,
            step(&watch, EXTRACT, extract).await?,
        ];
        sample.put(AFTERWARDS, at_rest(pid).await?);
        let course = watch.stop()?;
        for step in steps {
            let [total, anonymous] = step.metrics;
            sample.put(total, step.reading.grown_mib);
            sample.put(anonymous, course.anonymous_growth(step.from_s, step.to_s));
        }
        sample.timeline(RESIDENT, course.points(POINTS));
        self.bench.remove(&fresh, &path).await?;
        Ok(sample)
    }

    /// Downloads the file and says its size and checksum.
    async fn get(&self, target: &Target) -> Result<(u64, u32)> {
        let mut connection = target.connect(Manner::Ring)?;
        let asked = target.file(&self.large.path, self.bench.dir());
        connection.send(Request::get(&asked)).await?;
        let mut crc = crc32fast::Hasher::new();
        let hash = |bytes: &[u8]| {
            crc.update(bytes);
            Ok(())
        };
        let bytes = connection.body(hash).await?;
        Ok((bytes, crc.finalize()))
    }

    async fn put(&self, target: &Target, path: &Path) -> Result<()> {
        let mut connection = target.connect(Manner::Ring)?;
        let asked = target.file(path, self.bench.dir());
        let request = Request::of("PUT", &asked, b"");
        connection.send_head(request, self.large.bytes).await?;
        connection
            .send_repeated(&self.content.buffer, self.large.bytes)
            .await?;
        let status = connection.answer().await?.head.status;
        refuse_other(status, &[204], &format!("PUT {asked}"))
    }

    async fn extract(&self, target: &Target, root: &Path) -> Result<()> {
        let mut connection = target.connect(Manner::Ring)?;
        put_archive(&mut connection, root, "", &self.archive).await
    }
}

/// One kind of transfer: what it cost, and when it was.
struct Step {
    metrics: [Metric; 2],
    reading: Reading,
    from_s: f64,
    to_s: f64,
}

async fn step(
    watch: &Watch,
    metrics: [Metric; 2],
    work: impl Future<Output = Result<Reading>>,
) -> Result<Step> {
    let from_s = watch.now_s();
    Ok(Step {
        metrics,
        reading: work.await?,
        from_s,
        to_s: watch.now_s(),
    })
}

/// The resident set in MiB once it has not changed for a while, or after [`PATIENCE`].
async fn at_rest(pid: Pid) -> Result<f64> {
    let start = Instant::now();
    let mut before = resident(pid)?.total;
    let mut since = start;
    while since.elapsed() < REST && start.elapsed() < PATIENCE {
        tokio::time::sleep(LOOK_EVERY).await;
        let now = resident(pid)?.total;
        if now != before {
            (before, since) = (now, Instant::now());
        }
    }
    Ok(before)
}

const REST: Duration = Duration::from_millis(300);
const PATIENCE: Duration = Duration::from_secs(2);
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Of the line that is drawn.
const POINTS: usize = 400;
