//! Programs that only exit, fifty at a time, each followed to its exit event.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use futures_util::TryStreamExt;
use futures_util::stream::FuturesUnordered;
use rustix::process::Pid;

use super::super::{GROWTH, LOAD, Sample, measure, take_turns};
use super::program::{self, Starter, ack, fresh_id, starters};
use crate::bench::Bench;
use crate::load::{Follower, Form, Manner, Request, Script};
use crate::results::{Metric, ScenarioResults};
use crate::target::{Dialect, descriptors};

const CPU: Metric = Metric::low("CPU", "us/exec").main();
const RATE: Metric = Metric::high("rate", "execs/s");
const ZOMBIES: Metric = Metric::low("zombies left", "count");
const DESCRIPTORS: Metric = Metric::low("descriptors left open", "count");

pub(super) async fn run(bench: &Bench, out: &mut ScenarioResults) -> Result<()> {
    out.notes.push(format!(
        "{} programs over {WIDTH} connections, each of which starts one and follows it to its exit event. bare spawns and waits with {WIDTH} alive.",
        bench.sizes.execs
    ));
    out.notes.push(
        "Zombies and descriptors are counted when the connections are closed. CPU leaves out the programs.".to_owned(),
    );
    let starters = starters(bench, out).await?;
    take_turns(
        bench,
        out,
        starters,
        async |starter| program::check(bench, &starter.target).await,
        async |starter| sample(bench, starter).await,
    )
    .await
}

async fn sample(bench: &Bench, starter: &Starter) -> Result<Sample> {
    let count = bench.sizes.execs;
    let target = &starter.target;
    let mut sample = Sample::default();
    if target.dialect == Dialect::Bare {
        let (reading, wall_s) = measure(target, bare(starter, count)).await?;
        sample.put(CPU, reading.cpu_us_each(count));
        sample.put(RATE, count as f64 / wall_s);
        return Ok(sample);
    }
    let before = target.pid().map(descriptors).transpose()?;
    let mut followers = Vec::new();
    for _ in 0..WIDTH.min(count) {
        followers.push(Follower::new(target.connect(Manner::Ready)?));
    }
    let left = Cell::new(count);
    let (reading, ids) = measure(target, async {
        let runs: FuturesUnordered<_> = followers
            .iter_mut()
            .map(|follower| keep_starting(bench, follower, &starter.program, &left))
            .collect();
        runs.try_concat().await
    })
    .await?;
    drop(followers);
    ensure!(ids.len() == count, "an exec is missing");
    let mut connection = target.connect(Manner::Ready)?;
    for id in &ids {
        ack(&mut connection, id).await?;
    }
    drop(connection);
    sample.put(CPU, reading.cpu_us_each(count));
    sample.put(RATE, count as f64 / reading.wall_s);
    sample.put(GROWTH, reading.grown_mib);
    sample.put(LOAD, reading.load_share());
    sample.bound_by_load(reading.is_load_bound());
    if let (Some(pid), Some(before)) = (target.pid(), before) {
        let (zombies, descriptors) = leftovers(pid, before).await?;
        sample.put(ZOMBIES, zombies as f64);
        sample.put(DESCRIPTORS, descriptors as f64);
    }
    Ok(sample)
}

/// Starts programs and follows them, one at a time, while some are `left`. Tells their ids.
async fn keep_starting(
    bench: &Bench,
    follower: &mut Follower,
    program: &str,
    left: &Cell<usize>,
) -> Result<Vec<String>> {
    let nothing = Rc::new(Script::zeros(0));
    let mut ids = Vec::new();
    while let Some(rest) = left.get().checked_sub(1) {
        left.set(rest);
        let id = fresh_id(bench);
        program::start(&mut follower.connection, &id, &[program], false).await?;
        let script = Rc::clone(&nothing);
        follower.follow(&id, Form::Events, script).await?;
        follower.finished().await?;
        ids.push(id);
    }
    Ok(ids)
}

/// How many seconds the bare loop took for all.
async fn bare(starter: &Starter, count: usize) -> Result<f64> {
    let mut connection = starter.target.connect(Manner::Ring)?;
    let program = &starter.program;
    let route = format!("/v1/spawn-many?path={program}&count={count}&width={WIDTH}");
    let request = Request::of("POST", &route, b"");
    let answer = connection.demand(request, 200).await?;
    let nanoseconds: u64 = serde_json::from_slice(&answer.body)?;
    Ok(nanoseconds as f64 / 1e9)
}

/// Zombies and descriptors that are left, once there are none or [`SETTLE`] is over.
async fn leftovers(pid: Pid, descriptors_before: usize) -> Result<(usize, usize)> {
    let start = Instant::now();
    loop {
        let zombies = zombies(pid)?;
        let left = descriptors(pid)?.saturating_sub(descriptors_before);
        if zombies + left == 0 || start.elapsed() > SETTLE {
            return Ok((zombies, left));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Children of `parent` that ended and were not waited for (proc_pid_stat(5)).
fn zombies(parent: Pid) -> Result<usize> {
    let mut count = 0;
    for entry in std::fs::read_dir("/proc")? {
        // A process may be gone before its file is read.
        let Ok(stat) = std::fs::read_to_string(entry?.path().join("stat")) else {
            continue;
        };
        let mut fields = stat.rsplit(") ").next().unwrap_or_default().split(' ');
        let is_zombie = fields.next() == Some("Z");
        let is_child = fields.next() == Some(&parent.as_raw_nonzero().to_string());
        count += usize::from(is_zombie && is_child);
    }
    Ok(count)
}

const WIDTH: usize = 50;
const SETTLE: Duration = Duration::from_secs(2);
const LOOK_EVERY: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_that_nobody_waited_for_is_counted() {
        let own = rustix::process::getpid();
        let mut child = std::process::Command::new("true")
            .spawn()
            .expect("it is there");
        let pid = Pid::from_child(&child);
        let options =
            rustix::process::WaitIdOptions::EXITED | rustix::process::WaitIdOptions::NOWAIT;
        rustix::process::waitid(rustix::process::WaitId::Pid(pid), options).expect("it ends");
        // Other tests may have children, too.
        assert!(zombies(own).expect("/proc is there") > 0);
        child.wait().expect("it ended");
    }
}
