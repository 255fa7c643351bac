//! How programs are started on a target, and the one that only exits.

use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::super::opened;
use super::super::turns::Entrant;
use crate::bench::{Bench, Needs};
use crate::fixture;
use crate::load::{Connection, Follower, Form, Latencies, Manner, Request, Script};
use crate::results::ScenarioResults;
use crate::target::{Dialect, Placement, Target};

/// A target, and the program that only exits as the target sees it.
pub(super) struct Starter {
    pub(super) target: Target,
    pub(super) program: String,
}

impl Entrant for Starter {
    fn name(&self) -> &str {
        self.target.name()
    }
}

/// The targets that start programs, and the bare loop; each with all that it starts on one CPU.
pub(super) async fn starters(bench: &Bench, out: &mut ScenarioResults) -> Result<Vec<Starter>> {
    let needs = Needs::dialects(&[Dialect::Guest, Dialect::Bare]);
    let mut starters = Vec::new();
    for target in opened(bench, out, needs, Placement::ServerCpu).await? {
        let program = exit_program(bench, &target).await?;
        if program.ends_with("true") {
            out.notes.push(format!(
                "{} starts {program}: the tiny program does not run there.",
                target.name
            ));
        }
        starters.push(Starter { target, program });
    }
    Ok(starters)
}

/// The tiny program as the target sees it; it is uploaded where the target does not see our files.
async fn exit_program(bench: &Bench, target: &Target) -> Result<String> {
    let local = fixture::exit_program(bench.dir())?;
    if bench.shares_files(target).await? {
        return Ok(local.display().to_string());
    }
    let there = bench.fresh_path(target, "exit0").await?;
    let runs = async {
        upload(target, &local, &there).await?;
        try_out(bench, target, &there).await
    };
    match runs.await {
        Ok(()) => Ok(there.display().to_string()),
        // It has another processor, perhaps.
        Err(_) => Ok("true".to_owned()),
    }
}

async fn upload(target: &Target, local: &Path, there: &Path) -> Result<()> {
    let content = std::fs::read(local)?;
    let route = format!("/v1/fs/file?path={}&mode=0755", there.display());
    let mut connection = target.connect(Manner::Ready)?;
    let request = Request::of("PUT", &route, &content);
    connection.demand(request, 204).await.map(drop)
}

async fn try_out(bench: &Bench, target: &Target, program: &Path) -> Result<()> {
    let id = fresh_id(bench);
    let nothing = Rc::new(Script::zeros(0));
    let mut follower = Follower::new(target.connect(Manner::Ready)?);
    let command = [program.to_str().context("a path is text")?];
    start(&mut follower.connection, &id, &command, false).await?;
    follower.follow(&id, Form::Events, nothing).await?;
    follower.finished().await?;
    ack(&mut follower.connection, &id).await
}

/// An id that no exec had, not even one of an earlier run on the same target.
pub(super) fn fresh_id(bench: &Bench) -> String {
    format!("ringbench-{}-{}", std::process::id(), bench.serial())
}

/// Starts a program and waits for the answer.
pub(super) async fn start(
    connection: &mut Connection,
    id: &str,
    command: &[impl AsRef<str>],
    stdin: bool,
) -> Result<()> {
    let command: Vec<&str> = command.iter().map(AsRef::as_ref).collect();
    let body = serde_json::json!({ "exec_id": id, "command": command, "stdin": stdin });
    let body = body.to_string();
    let request = Request::of("POST", "/v1/exec/start", body.as_bytes());
    connection.demand(request, 200).await.map(drop)
}

/// Takes the result, so that the target need not keep it.
pub(super) async fn ack(connection: &mut Connection, id: &str) -> Result<()> {
    let route = format!("/v1/exec/{id}/ack");
    let request = Request::of("POST", &route, b"");
    connection.demand(request, 200).await.map(drop)
}

/// Starts a program that writes, and compares what a follower is told.
pub(super) async fn check(bench: &Bench, target: &Target) -> Result<()> {
    if target.dialect == Dialect::Bare {
        return Ok(());
    }
    let id = fresh_id(bench);
    let mut follower = Follower::new(target.connect(Manner::Ready)?);
    start(&mut follower.connection, &id, &["echo", "well done"], false).await?;
    let script = Rc::new(Script::of(b"well done\n".to_vec()));
    follower.follow(&id, Form::Events, script).await?;
    follower.finished().await?;
    ensure!(follower.account.gaps == 0, "output is missing");
    ack(&mut follower.connection, &id).await
}

/// How long the bare loop took for each of `count` programs.
pub(super) async fn bare_times(starter: &Starter, count: usize) -> Result<Latencies> {
    let mut connection = starter.target.connect(Manner::Ring)?;
    let route = format!("/v1/spawn?path={}&count={count}", starter.program);
    let request = Request::of("POST", &route, b"");
    let answer = connection.demand(request, 200).await?;
    let nanoseconds: Vec<u64> = serde_json::from_slice(&answer.body)?;
    let mut times = Latencies::new();
    for ns in nanoseconds {
        times.record(Duration::from_nanos(ns));
    }
    Ok(times)
}
