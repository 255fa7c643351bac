//! A program writes zeros as fast as it can: without a follower, with one of events, with one of binary frames.

use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::super::measure::Reading;
use super::super::turns::Entrant;
use super::super::{GROWTH, LOAD, Sample, measure, opened, take_turns};
use super::program::{ack, fresh_id, start};
use crate::bench::{Bench, Needs};
use crate::cpu;
use crate::fixture::{MIB, Writer};
use crate::load::{Connection, Follower, Form, Manner, Request, Script};
use crate::results::{Metric, ScenarioResults};
use crate::target::{Dialect, Placement, Target};

const CPU: Metric = Metric::low("CPU", "CPU-s/GiB").main();
const RATE: Metric = Metric::high("rate until health shows the end", "GiB/s");
const RATE_RESULT: Metric = Metric::high("rate until the result was read", "GiB/s");
const RATE_ONE_CPU: Metric = Metric::high("rate until health shows the end, one CPU", "GiB/s");
const CPU_BOTH: Metric = Metric::low("CPU, both CPUs", "CPU-s/GiB");
const CPU_TOLD: Metric = Metric::low("CPU per GiB told", "CPU-s/GiB").main();
const RATE_TOLD: Metric = Metric::high("rate of what was told", "GiB/s");
const MISSED: Metric = Metric::low("output that fell into gaps", "%");
const CPU_TOLD_LARGE: Metric = Metric::low("CPU per GiB told, writes of 64 KiB", "CPU-s/GiB");
const RATE_TOLD_LARGE: Metric = Metric::high("rate of what was told, writes of 64 KiB", "GiB/s");
const MISSED_LARGE: Metric = Metric::low("output that fell into gaps, writes of 64 KiB", "%");

/// One daemon in both placements.
struct Pair {
    /// With its programs on the servers' CPU.
    pinned: Target,
    /// With its programs on both CPUs, beside the load; nothing for one that was not started here.
    free: Option<Target>,
}

impl Entrant for Pair {
    fn name(&self) -> &str {
        self.pinned.name()
    }
}

impl Pair {
    /// The one that shows what a user sees.
    fn usual(&self) -> &Target {
        self.free.as_ref().unwrap_or(&self.pinned)
    }
}

async fn pairs(
    bench: &Bench,
    out: &mut ScenarioResults,
    dialects: &'static [Dialect],
) -> Result<Vec<Pair>> {
    out.notes.push(
        "CPU is the server's, without the program. For the main figure server and program have one CPU, and the client another; for the rates all three share both."
            .to_owned(),
    );
    let mut pairs = Vec::new();
    for pinned in opened(bench, out, Needs::dialects(dialects), Placement::ServerCpu).await? {
        let spec = bench.specs.iter().find(|spec| spec.name == pinned.name);
        let free = match spec.filter(|spec| spec.is_spawned()) {
            Some(spec) => Some(bench.open_target(spec, Placement::BothCpus, &[]).await?),
            None => None,
        };
        pairs.push(Pair { pinned, free });
    }
    Ok(pairs)
}

/// Does work with the load on both CPUs, where the target is one that is.
async fn floating<T>(pair: &Pair, work: impl Future<Output = Result<T>>) -> Result<T> {
    if pair.free.is_none() {
        return work.await;
    }
    cpu::float(2)?;
    let outcome = work.await;
    cpu::pin(cpu::LOAD_CPU)?;
    outcome
}

/// Nobody follows.
pub(super) async fn unwatched(
    bench: &Bench,
    out: &mut ScenarioResults,
    writer: Writer,
) -> Result<()> {
    out.notes.push(
        "bare reads 256 KiB at a time from a pipe of 1 MiB and drops them; its rate is what the program can give."
            .to_owned(),
    );
    out.notes.push(
        "The result of a server that keeps 8 MiB of NUL is 48 MiB of JSON: making and reading it is in one of the rates."
            .to_owned(),
    );
    let pairs = pairs(bench, out, &[Dialect::Guest, Dialect::Bare]).await?;
    take_turns(
        bench,
        out,
        pairs,
        async |pair| {
            alone(bench, &pair.pinned, writer, CHECKED_BYTES)
                .await
                .map(drop)
        },
        async |pair| {
            let bytes = bytes(bench);
            let mut sample = Sample::default();
            let pinned = alone(bench, &pair.pinned, writer, bytes).await?;
            sample.put(CPU, pinned.reading.cpu_per_gib(bytes));
            let usual = match &pair.free {
                Some(free) => {
                    let free = floating(pair, alone(bench, free, writer, bytes)).await?;
                    sample.put(CPU_BOTH, free.reading.cpu_per_gib(bytes));
                    sample.put(RATE_ONE_CPU, gib(bytes) / pinned.end_s);
                    free
                }
                None => pinned,
            };
            sample.put(RATE, gib(bytes) / usual.end_s);
            sample.put(RATE_RESULT, usual.result_s.map(|s| gib(bytes) / s));
            sample.put(GROWTH, usual.reading.grown_mib);
            sample.put(LOAD, usual.reading.load_share());
            Ok(sample)
        },
    )
    .await
}

struct Alone {
    /// Up to where the end shows.
    reading: Reading,
    end_s: f64,
    /// Nothing from one that keeps no result.
    result_s: Option<f64>,
}

/// One run without a follower. The result is checked.
async fn alone(bench: &Bench, target: &Target, writer: Writer, bytes: u64) -> Result<Alone> {
    let mut connection = target.connect(Manner::Ring)?;
    if target.dialect == Dialect::Bare {
        return bare(target, writer, bytes, &mut connection).await;
    }
    let id = fresh_id(bench);
    let (reading, ()) = measure(target, async {
        start(&mut connection, &id, &writer.command(bytes), false).await?;
        wait_until_idle(&mut connection).await
    })
    .await?;
    let route = format!("/v1/exec/{id}");
    let asked = Instant::now();
    let answer = connection.demand(Request::get(&route), 200).await?;
    let result_s = reading.wall_s + asked.elapsed().as_secs_f64();
    check_result(&answer.body, bytes)?;
    ack(&mut connection, &id).await?;
    Ok(Alone {
        end_s: reading.wall_s,
        reading,
        result_s: Some(result_s),
    })
}

async fn bare(
    target: &Target,
    writer: Writer,
    bytes: u64,
    connection: &mut Connection,
) -> Result<Alone> {
    let route = format!("/v1/capture?path={}&count={bytes}", writer.name());
    let request = Request::of("POST", &route, b"");
    let (reading, answer) = measure(target, connection.demand(request, 200)).await?;
    let nanoseconds: u64 = serde_json::from_slice(&answer.body)?;
    Ok(Alone {
        reading,
        end_s: nanoseconds as f64 / 1e9,
        result_s: None,
    })
}

async fn wait_until_idle(connection: &mut Connection) -> Result<()> {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let answer = connection.demand(Request::get("/v1/health"), 200).await?;
        let health: serde_json::Value = serde_json::from_slice(&answer.body)?;
        match health["busy"].as_bool() {
            Some(false) => return Ok(()),
            Some(true) => {}
            None => bail!("/v1/health does not say whether the server is busy"),
        }
    }
}

/// The result is the head of what was written, as far as the server keeps it.
fn check_result(answer: &[u8], bytes: u64) -> Result<()> {
    let key = b"\"stdout\":\"";
    let start = memchr::memmem::find(answer, key).context("no stdout in a result")? + key.len();
    // The zeros are counted as they came: a parser takes long for a million of them.
    let (before, mut after) = answer.split_at(start);
    let many = ZERO.repeat(1 << 10);
    let mut kept = 0;
    while let Some(rest) = after.strip_prefix(&many[..]) {
        (kept, after) = (kept + (1 << 10), rest);
    }
    while let Some(rest) = after.strip_prefix(ZERO) {
        (kept, after) = (kept + 1, rest);
    }
    let answer: serde_json::Value = serde_json::from_slice(&[before, after].concat())?;
    ensure!(answer["stdout"] == "", "a byte of the result is wrong");
    ensure!(
        answer["phase"] == "exited" && answer["exit_code"] == 0,
        "the program did not exit with 0"
    );
    ensure!(
        kept <= bytes && answer["truncated"] == (kept < bytes),
        "the result has {kept} bytes of {bytes}, and truncated is {}",
        answer["truncated"]
    );
    Ok(())
}

/// One client follows.
pub(super) async fn watched(bench: &Bench, out: &mut ScenarioResults, form: Form) -> Result<()> {
    out.notes.push(
        "The follower is told all up to the exit; every byte is compared, and what it is not told is in gaps."
            .to_owned(),
    );
    out.notes.push(
        "The program writes 8 KiB at a time where nothing else is said: for the main figure, too."
            .to_owned(),
    );
    let pairs = pairs(bench, out, &[Dialect::Guest]).await?;
    take_turns(
        bench,
        out,
        pairs,
        async |pair| {
            let target = &pair.pinned;
            follow(bench, target, form, (Writer::Small, CHECKED_BYTES))
                .await
                .map(drop)
        },
        async |pair| {
            let mut sample = Sample::default();
            for (writer, cpu, rate, missed) in [
                (Writer::Small, CPU_TOLD, RATE_TOLD, MISSED),
                (Writer::Large, CPU_TOLD_LARGE, RATE_TOLD_LARGE, MISSED_LARGE),
            ] {
                let work = (writer, bytes(bench));
                let (pinned, told) = follow(bench, &pair.pinned, form, work).await?;
                sample.put(cpu, pinned.cpu_per_gib(told));
                sample.put(missed, 100.0 * (1.0 - told as f64 / bytes(bench) as f64));
                sample.bound_by_load(pinned.is_load_bound());
                let usual = follow(bench, pair.usual(), form, work);
                let (usual, told) = floating(pair, usual).await?;
                sample.put(rate, usual.gib_per_s(told));
                if writer == Writer::Small {
                    sample.put(GROWTH, usual.grown_mib);
                    sample.put(LOAD, pinned.load_share());
                }
            }
            Ok(sample)
        },
    )
    .await
}

/// One run with a follower that is attached as soon as the start is answered. Tells how many bytes it was told.
async fn follow(
    bench: &Bench,
    target: &Target,
    form: Form,
    (writer, bytes): (Writer, u64),
) -> Result<(Reading, u64)> {
    let script = Rc::new(Script::zeros(bytes));
    let mut connection = target.connect(Manner::Ring)?;
    let mut follower = Follower::new(target.connect(Manner::Ring)?);
    let id = fresh_id(bench);
    let (reading, ()) = measure(target, async {
        let command = writer.command(script.total());
        start(&mut connection, &id, &command, false).await?;
        follower.follow(&id, form, Rc::clone(&script)).await?;
        follower.exited().await
    })
    .await?;
    follower.finished().await?;
    ensure!(follower.account.delivered > 0, "nothing was told");
    ack(&mut connection, &id).await?;
    Ok((reading, follower.account.delivered))
}

fn bytes(bench: &Bench) -> u64 {
    bench.sizes.large_mib * MIB
}

fn gib(bytes: u64) -> f64 {
    bytes as f64 / (1024 * MIB) as f64
}

/// What is written in the check; the results of all later runs are compared, too.
const CHECKED_BYTES: u64 = MIB;
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// A NUL in JSON.
const ZERO: &[u8] = b"\\u0000";

#[cfg(test)]
mod tests {
    use super::*;

    fn result(stdout: &str, truncated: bool) -> String {
        format!(
            r#"{{"phase":"exited","exit_code":0,"stdout":"{stdout}","stderr":"","truncated":{truncated}}}"#
        )
    }

    #[test]
    fn a_result_is_the_head_of_what_was_written() {
        let zeros = |count: usize| "\\u0000".repeat(count);
        let check = |stdout: &str, truncated, bytes| {
            check_result(result(stdout, truncated).as_bytes(), bytes)
        };
        assert!(check(&zeros(3000), false, 3000).is_ok());
        assert!(check(&zeros(3000), true, 3001).is_ok());
        assert!(check(&zeros(3000), true, 3000).is_err());
        assert!(check(&zeros(3000), false, 3001).is_err());
        assert!(check(&(zeros(2999) + "x"), false, 3000).is_err());
    }
}
