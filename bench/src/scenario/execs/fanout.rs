//! One program writes lines as fast as it can to many followers, some of which may never read.

use std::path::PathBuf;
use std::rc::Rc;

use anyhow::{Context, Result, ensure};
use futures_util::TryStreamExt;
use futures_util::stream::FuturesUnordered;

use super::super::measure::Reading;
use super::super::turns::Entrant;
use super::super::{GROWTH, LOAD, Sample, measure, opened, take_turns};
use super::program::{ack, fresh_id, start};
use crate::bench::{Bench, Needs};
use crate::fixture;
use crate::load::{Follower, Form, Manner, Request, Script};
use crate::memory::resident;
use crate::results::{Metric, ScenarioResults};
use crate::target::{Placement, Spec, Target};

const CPU: Metric = Metric::low("CPU per line and follower", "us").main();
const WALL: Metric = Metric::low("from the first line to the last exit read", "s");
const MISSED: Metric = Metric::low("output that fell into gaps", "%");
const PEAK: Metric = Metric::low("peak RSS", "MiB");
const DELAY: Metric = Metric::low("time beside the stalled / time without them", "x");
const WALL_BESIDE: Metric = Metric::low("the reading followers, beside the stalled", "s");
const WALL_ALONE: Metric = Metric::low("the reading followers, without the stalled", "s");
const PEAK_ALONE: Metric = Metric::low("peak RSS, without the stalled", "MiB");

/// A daemon that is opened anew for every run, so that its memory grows from the same size.
struct Contender<'a>(&'a Spec);

impl Entrant for Contender<'_> {
    fn name(&self) -> &str {
        &self.0.name
    }
}

/// What the program writes.
struct Lines {
    script: Rc<Script>,
    /// On disk, with more behind it, perhaps.
    path: PathBuf,
}

impl Lines {
    fn count(&self) -> u64 {
        self.script.total() / LINE_BYTES as u64
    }
}

/// `count` followers, all of whom read.
pub(super) async fn run(bench: &Bench, out: &mut ScenarioResults, count: usize) -> Result<()> {
    let count = allowed(bench, out, count);
    let contenders = contenders(bench, out).await?;
    let (few, lines) = lines(bench, out)?;
    take_turns(
        bench,
        out,
        contenders,
        async |one| fan_out(bench, one, &few, count, 0).await.map(drop),
        async |one| {
            let fan = fan_out(bench, one, &lines, count, 0).await?;
            let wanted = lines.script.total() as f64 * count as f64;
            let mut sample = Sample::default();
            sample.put(CPU, fan.cpu_us());
            sample.put(WALL, fan.reading.wall_s);
            sample.put(MISSED, 100.0 * (1.0 - fan.delivered as f64 / wanted));
            sample.put(GROWTH, fan.reading.grown_mib);
            sample.put(PEAK, fan.peak_mib);
            sample.put(LOAD, fan.reading.load_share());
            sample.bound_by_load(fan.reading.is_load_bound());
            Ok(sample)
        },
    )
    .await
}

/// 500 followers, a fifth of whom never read, against those who do without the others.
pub(super) async fn stalled(bench: &Bench, out: &mut ScenarioResults) -> Result<()> {
    let count = allowed(bench, out, ALL);
    let stalled = count / 5;
    let reading = count - stalled;
    let contenders = contenders(bench, out).await?;
    let (few, lines) = lines(bench, out)?;
    out.notes.push(format!(
        "{reading} read and {stalled} do not; beside that {reading} alone. CPU is divided by the lines of those who read."
    ));
    take_turns(
        bench,
        out,
        contenders,
        async |one| {
            let fan = fan_out(bench, one, &few, reading, stalled).await?;
            ensure!(fan.delivered > 0, "nothing was told");
            Ok(())
        },
        async |one| {
            let alone = fan_out(bench, one, &lines, reading, 0).await?;
            let beside = fan_out(bench, one, &lines, reading, stalled).await?;
            let wanted = lines.script.total() as f64 * reading as f64;
            let mut sample = Sample::default();
            sample.put(CPU, beside.cpu_us());
            sample.put(DELAY, beside.reading.wall_s / alone.reading.wall_s);
            sample.put(WALL_BESIDE, beside.reading.wall_s);
            sample.put(WALL_ALONE, alone.reading.wall_s);
            sample.put(MISSED, 100.0 * (1.0 - beside.delivered as f64 / wanted));
            sample.put(PEAK, beside.peak_mib);
            sample.put(PEAK_ALONE, alone.peak_mib);
            sample.put(LOAD, beside.reading.load_share());
            sample.bound_by_load(beside.reading.is_load_bound());
            Ok(sample)
        },
    )
    .await
}

/// So many followers, if the run allows them.
fn allowed(bench: &Bench, out: &mut ScenarioResults, count: usize) -> usize {
    let most = usize::from(bench.sizes.followers);
    if count > most {
        out.notes
            .push(format!("Only {most} followers: this run allows no more."));
    }
    count.min(most)
}

async fn contenders<'a>(bench: &'a Bench, out: &mut ScenarioResults) -> Result<Vec<Contender<'a>>> {
    let fit = opened(bench, out, Needs::GUEST, Placement::ServerCpu).await?;
    let is_fit = |spec: &&Spec| fit.iter().any(|target| target.name == spec.name);
    Ok(bench.specs.iter().filter(is_fit).map(Contender).collect())
}

/// The lines of the check, which are few, and those of the measurement.
fn lines(bench: &Bench, out: &mut ScenarioResults) -> Result<(Lines, Lines)> {
    let count = bench.sizes.fanout_mib * (1 << 20) / LINE_BYTES;
    out.notes.push(format!(
        "All followers are attached before the first of {count} lines of {LINE_BYTES} bytes, one write each. Every byte of every follower is compared; what falls into a gap is not counted as a line."
    ));
    out.notes
        .push("A server that is started here is a fresh one for every run.".to_owned());
    let content = fixture::lines(count, LINE_BYTES);
    let path = bench.dir().join("lines.txt");
    std::fs::write(&path, &content)?;
    let few = Lines {
        script: Rc::new(Script::of(content[..FEW.min(count) * LINE_BYTES].to_vec())),
        path: path.clone(),
    };
    let all = Lines {
        script: Rc::new(Script::of(content)),
        path,
    };
    Ok((few, all))
}

struct Fan {
    reading: Reading,
    peak_mib: Option<f64>,
    /// Bytes that all followers together were told.
    delivered: u64,
}

impl Fan {
    fn cpu_us(&self) -> Option<f64> {
        let lines = self.delivered as f64 / LINE_BYTES as f64;
        Some(self.reading.cpu_s? * 1e6 / lines)
    }
}

async fn fan_out(
    bench: &Bench,
    contender: &Contender<'_>,
    lines: &Lines,
    reading: usize,
    stalled: usize,
) -> Result<Fan> {
    let target = bench.open_target(contender.0, Placement::ServerCpu, &[]);
    let target = target.await?;
    let path = bench.provide(&target, &lines.path).await?;
    let path = path.to_str().context("a path is text")?;
    let id = fresh_id(bench);
    let mut connection = target.connect(Manner::Ready)?;
    let command = ["sh", "-c", WRITER, path, &lines.count().to_string()];
    start(&mut connection, &id, &command, true).await?;
    let mut followers = attach(&target, &id, &lines.script, reading).await?;
    let silent = attach(&target, &id, &lines.script, stalled).await?;
    let route = format!("/v1/exec/{id}/stdin");
    let signal = Request::of("POST", &route, br#"{"data_b64":"Cg=="}"#);
    let (reading, ()) = measure(&target, async {
        connection.send(signal).await?;
        let all: FuturesUnordered<_> = followers.iter_mut().map(Follower::finished).collect();
        all.try_collect().await
    })
    .await?;
    let peak = target.pid().map(resident).transpose()?;
    let answer = connection.answer().await?;
    ensure!(
        answer.head.status == 200,
        "stdin answered {}",
        answer.head.status
    );
    drop(silent);
    let delivered = followers.iter().map(|one| one.account.delivered).sum();
    ack(&mut connection, &id).await?;
    Ok(Fan {
        reading,
        peak_mib: peak.map(|resident| resident.peak),
        delivered,
    })
}

/// Followers whose responses have begun.
async fn attach(
    target: &Target,
    id: &str,
    script: &Rc<Script>,
    count: usize,
) -> Result<Vec<Follower>> {
    let mut followers = Vec::with_capacity(count);
    for _ in 0..count {
        let mut follower = Follower::new(target.connect(Manner::Ready)?);
        let script = Rc::clone(script);
        follower.follow(id, Form::Events, script).await?;
        followers.push(follower);
    }
    for follower in &mut followers {
        follower.attached().await?;
    }
    Ok(followers)
}

const LINE_BYTES: usize = 2048;
/// Waits for a line of standard input, then writes so many lines of a file, each with one call.
const WRITER: &str = r#"read go; exec dd if="$0" count="$1" bs=2048 2>/dev/null"#;
const FEW: usize = 32;
/// Followers of the scenario with stalled ones.
const ALL: usize = 500;
