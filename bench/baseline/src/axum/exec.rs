//! Execs as such servers run them: tokio::process, one process group each, reads of 16 KiB.

use std::collections::HashMap;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Json;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStdin, Command};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::record::Record;
use super::{Failure, Shared};

const READ_BYTES: usize = 16 << 10;
/// How long output is read after the child has exited.
const LINGER: Duration = Duration::from_secs(5);
/// How long a group may take after SIGTERM.
const GRACE: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// All execs by their ids.
#[derive(Default)]
pub(super) struct Execs(Mutex<HashMap<String, Arc<Exec>>>);

pub(super) struct Exec {
    pub(super) record: Record,
    group: Pid,
    /// Nothing when none was asked for.
    stdin: Option<tokio::sync::Mutex<Option<ChildStdin>>>,
}

impl Execs {
    pub(super) fn count(&self) -> usize {
        self.all().len()
    }

    pub(super) fn are_running(&self) -> bool {
        self.all().values().any(|exec| exec.is_running())
    }

    pub(super) fn find(&self, id: &str) -> Result<Arc<Exec>, StatusCode> {
        self.all().get(id).cloned().ok_or(StatusCode::NOT_FOUND)
    }

    /// Kills what still runs. Its group may just have gone.
    pub(super) fn end_all(&self) {
        for exec in self.all().values().filter(|exec| exec.is_running()) {
            let _ = kill_process_group(exec.group, Signal::KILL);
        }
    }

    fn all(&self) -> MutexGuard<'_, HashMap<String, Arc<Exec>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Exec {
    fn is_running(&self) -> bool {
        self.record.ending().0.is_none()
    }

    /// SIGTERM, and SIGKILL for those that are left after the grace. False when nobody was there to be told.
    async fn end_group(&self) -> bool {
        // The number of a group that has ended may be somebody else's by now.
        if !self.is_running() || kill_process_group(self.group, Signal::TERM).is_err() {
            return false;
        }
        let deadline = Instant::now() + GRACE;
        while test_kill_process_group(self.group).is_ok() {
            if Instant::now() >= deadline {
                let _ = kill_process_group(self.group, Signal::KILL);
                break;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        true
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StartRequest {
    exec_id: String,
    command: Vec<String>,
    #[serde(default)]
    shell: bool,
    cwd: Option<PathBuf>,
    #[serde(default)]
    env: HashMap<String, String>,
    #[serde(default)]
    stdin: bool,
}

#[derive(Serialize)]
pub(super) struct Outcome {
    exec_id: String,
    phase: &'static str,
    #[serde(flatten)]
    result: Option<Finished>,
}

#[derive(Serialize)]
struct Finished {
    exit_code: Option<i32>,
    signal: Option<i32>,
    stdout: String,
    stderr: String,
    truncated: bool,
    writers_may_be_alive: bool,
}

impl Outcome {
    fn of(exec: &Exec, exec_id: String, phase_at_end: &'static str) -> Self {
        let Some((ending, [stdout, stderr])) = exec.record.result() else {
            return Self::running(exec_id);
        };
        let result = Finished {
            exit_code: ending.exit_code,
            signal: ending.signal,
            stdout,
            stderr,
            truncated: ending.truncated,
            writers_may_be_alive: ending.writers_may_be_alive,
        };
        Self {
            exec_id,
            phase: phase_at_end,
            result: Some(result),
        }
    }

    fn running(exec_id: String) -> Self {
        Self {
            exec_id,
            phase: "running",
            result: None,
        }
    }
}

/// An id that is known starts nothing.
pub(super) async fn start(
    State(app): Shared,
    Json(request): Json<StartRequest>,
) -> Result<Json<Outcome>, Failure> {
    let id = request.exec_id.clone();
    if app.execs.find(&id).is_ok() {
        return Ok(Json(Outcome::running(id)));
    }
    let mut command = command(&request)?;
    let mut child = command.envs(app.launch.env()).envs(&request.env).spawn()?;
    let group = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
    let stdin = child.stdin.take();
    let exec = Arc::new(Exec {
        record: Record::new(),
        group: group.ok_or("the child has no number")?,
        stdin: stdin.map(|pipe| tokio::sync::Mutex::new(Some(pipe))),
    });
    app.execs.all().insert(id.clone(), Arc::clone(&exec));
    tokio::spawn(supervise(child, exec));
    Ok(Json(Outcome::running(id)))
}

fn command(request: &StartRequest) -> Result<Command, Failure> {
    let mut command = if request.shell {
        let mut shell = Command::new("/bin/sh");
        shell.arg("-c").arg(request.command.join("\n"));
        shell
    } else {
        let words = request.command.split_first();
        let (program, arguments) = words
            .ok_or_else(|| Failure::told(StatusCode::BAD_REQUEST, "command must not be empty"))?;
        let mut command = Command::new(program);
        command.args(arguments);
        command
    };
    if let Some(dir) = &request.cwd {
        command.current_dir(dir);
    }
    command
        .env_clear()
        .stdin(if request.stdin {
            Stdio::piped()
        } else {
            Stdio::null()
        })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    Ok(command)
}

async fn supervise(mut child: Child, exec: Arc<Exec>) {
    let mut readers = JoinSet::new();
    if let Some(pipe) = child.stdout.take() {
        readers.spawn(read(pipe, 0, Arc::clone(&exec)));
    }
    if let Some(pipe) = child.stderr.take() {
        readers.spawn(read(pipe, 1, Arc::clone(&exec)));
    }
    let status = child.wait().await;
    let drain = async { while readers.join_next().await.is_some() {} };
    let is_cut = tokio::time::timeout(LINGER, drain).await.is_err();
    readers.shutdown().await;
    let (code, signal) = status.map_or((None, None), |status| (status.code(), status.signal()));
    exec.record.end(code, signal, is_cut);
    if let Some(stdin) = &exec.stdin {
        stdin.lock().await.take();
    }
}

async fn read(mut pipe: impl AsyncRead + Unpin, stream: usize, exec: Arc<Exec>) {
    let mut buffer = vec![0; READ_BYTES];
    while let Ok(count @ 1..) = pipe.read(&mut buffer).await {
        exec.record.push(stream, &buffer[..count]);
    }
}

pub(super) async fn poll(
    State(app): Shared,
    Path(id): Path<String>,
) -> Result<Json<Outcome>, StatusCode> {
    Ok(Json(Outcome::of(&*app.execs.find(&id)?, id, "exited")))
}

/// Tells the result for the last time and forgets the exec.
pub(super) async fn ack(
    State(app): Shared,
    Path(id): Path<String>,
) -> Result<Json<Outcome>, StatusCode> {
    let exec = app.execs.find(&id)?;
    if exec.is_running() {
        return Err(StatusCode::CONFLICT);
    }
    app.execs.all().remove(&id);
    Ok(Json(Outcome::of(&exec, id, "acked")))
}

#[derive(Serialize)]
pub(super) struct Killed {
    exec_id: String,
    killed: bool,
}

/// Answers when the group is gone.
pub(super) async fn kill(
    State(app): Shared,
    Path(id): Path<String>,
) -> Result<Json<Killed>, StatusCode> {
    let killed = app.execs.find(&id)?.end_group().await;
    Ok(Json(Killed {
        exec_id: id,
        killed,
    }))
}

#[derive(Deserialize)]
pub(super) struct StdinRequest {
    data_b64: Option<String>,
    signal: Option<StdinSignal>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum StdinSignal {
    Eof,
}

#[derive(Serialize)]
pub(super) struct Written {
    exec_id: String,
    written: usize,
    eof: bool,
}

pub(super) async fn write_stdin(
    State(app): Shared,
    Path(id): Path<String>,
    Json(request): Json<StdinRequest>,
) -> Result<Json<Written>, Failure> {
    let Ok(exec) = app.execs.find(&id) else {
        return Err(Failure::told(StatusCode::NOT_FOUND, "no such exec"));
    };
    let Some(stdin) = &exec.stdin else {
        let text = "stdin was not asked for at the start";
        return Err(Failure::told(StatusCode::CONFLICT, text));
    };
    let data = STANDARD
        .decode(request.data_b64.unwrap_or_default())
        .map_err(|error| Failure::told(StatusCode::BAD_REQUEST, format!("data_b64: {error}")))?;
    let mut stdin = stdin.lock().await;
    let Some(pipe) = stdin.as_mut() else {
        return Err(Failure::told(StatusCode::GONE, "stdin is closed"));
    };
    pipe.write_all(&data).await?;
    let eof = request.signal.is_some();
    if eof {
        stdin.take();
    }
    Ok(Json(Written {
        exec_id: id,
        written: data.len(),
        eof,
    }))
}
