//! Execs as such servers run them: tokio::process, 16 KiB reads, SSE encoded anew for every follower.

use std::collections::{HashMap, VecDeque};
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::Json;
use axum::response::sse::{Event, KeepAlive, Sse};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures_util::Stream;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

use super::record::{Chunk, News, Record};
use super::{Failure, Shared};

const READ_BYTES: usize = 16 << 10;
/// How long output is read after the child has exited.
const LINGER: Duration = Duration::from_secs(5);

/// All execs by their ids.
#[derive(Default)]
pub(super) struct Execs(Mutex<HashMap<String, Arc<Exec>>>);

struct Exec {
    record: Record,
    stdin: tokio::sync::Mutex<Option<ChildStdin>>,
}

impl Execs {
    pub(super) fn count(&self) -> usize {
        self.all().len()
    }

    pub(super) fn are_running(&self) -> bool {
        let all = self.all();
        all.values().any(|exec| exec.record.ending().0.is_none())
    }

    fn find(&self, id: &str) -> Result<Arc<Exec>, StatusCode> {
        self.all().get(id).cloned().ok_or(StatusCode::NOT_FOUND)
    }

    fn all(&self) -> MutexGuard<'_, HashMap<String, Arc<Exec>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Deserialize)]
pub(super) struct StartRequest {
    exec_id: String,
    command: Vec<String>,
    #[serde(default)]
    env: HashMap<String, String>,
    #[serde(default)]
    stdin: bool,
}

#[derive(Serialize)]
pub(super) struct Outcome {
    exec_id: String,
    phase: &'static str,
    exit_code: Option<i32>,
    signal: Option<i32>,
    stdout: String,
    stderr: String,
    truncated: bool,
}

impl Outcome {
    fn of(exec: &Exec, exec_id: String, phase_at_end: &'static str) -> Self {
        let Some((ending, [stdout, stderr])) = exec.record.result() else {
            return Self::running(exec_id);
        };
        Self {
            exec_id,
            phase: phase_at_end,
            exit_code: ending.exit_code,
            signal: ending.signal,
            stdout,
            stderr,
            truncated: ending.truncated,
        }
    }

    fn running(exec_id: String) -> Self {
        Self {
            exec_id,
            phase: "running",
            exit_code: None,
            signal: None,
            stdout: String::new(),
            stderr: String::new(),
            truncated: false,
        }
    }
}

pub(super) async fn start(
    State(app): Shared,
    Json(request): Json<StartRequest>,
) -> Result<Json<Outcome>, Failure> {
    let (program, arguments) = request.command.split_first().ok_or("command is empty")?;
    let mut child = Command::new(program)
        .args(arguments)
        .env_clear()
        .envs(&request.env)
        .stdin(if request.stdin {
            Stdio::piped()
        } else {
            Stdio::null()
        })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()?;
    let exec = Arc::new(Exec {
        record: Record::new(),
        stdin: tokio::sync::Mutex::new(child.stdin.take()),
    });
    let id = request.exec_id;
    app.execs.all().insert(id.clone(), Arc::clone(&exec));
    tokio::spawn(supervise(child, exec));
    Ok(Json(Outcome::running(id)))
}

async fn supervise(mut child: Child, exec: Arc<Exec>) {
    let readers = [
        child
            .stdout
            .take()
            .map(|pipe| tokio::spawn(read(pipe, 0, Arc::clone(&exec)))),
        child
            .stderr
            .take()
            .map(|pipe| tokio::spawn(read(pipe, 1, Arc::clone(&exec)))),
    ];
    let status = child.wait().await;
    let drain = async {
        for reader in readers.into_iter().flatten() {
            // A reader that failed has nothing more to say.
            let _ = reader.await;
        }
    };
    let is_cut = tokio::time::timeout(LINGER, drain).await.is_err();
    exec.stdin.lock().await.take();
    let (code, signal) = status.map_or((None, None), |status| (status.code(), status.signal()));
    exec.record.end(code, signal, is_cut);
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

pub(super) async fn ack(
    State(app): Shared,
    Path(id): Path<String>,
) -> Result<Json<Outcome>, StatusCode> {
    let exec = app.execs.find(&id)?;
    app.execs.all().remove(&id);
    Ok(Json(Outcome::of(&exec, id, "acked")))
}

#[derive(Deserialize)]
pub(super) struct StdinRequest {
    data_b64: Option<String>,
    signal: Option<String>,
}

pub(super) async fn write_stdin(
    State(app): Shared,
    Path(id): Path<String>,
    Json(request): Json<StdinRequest>,
) -> Result<Json<serde_json::Value>, Failure> {
    let exec = app
        .execs
        .find(&id)
        .map_err(|status| Failure(status.to_string()))?;
    let data = STANDARD.decode(request.data_b64.unwrap_or_default())?;
    let mut stdin = exec.stdin.lock().await;
    stdin
        .as_mut()
        .ok_or("stdin is closed")?
        .write_all(&data)
        .await?;
    let eof = request.signal.is_some();
    if eof {
        stdin.take();
    }
    Ok(Json(
        serde_json::json!({ "exec_id": id, "written": data.len(), "eof": eof }),
    ))
}

#[derive(Deserialize)]
pub(super) struct StreamQuery {
    #[serde(default)]
    offset: u64,
}

#[derive(Serialize)]
struct Output {
    offset: u64,
    stream: &'static str,
    output: String,
}

#[derive(Serialize)]
struct Gap {
    from: u64,
    to: u64,
}

#[derive(Serialize)]
struct Exit {
    #[serde(flatten)]
    ending: super::record::Ending,
    offset: u64,
}

pub(super) async fn stream(
    State(app): Shared,
    Path(id): Path<String>,
    Query(query): Query<StreamQuery>,
) -> Result<Sse<impl Stream<Item = Result<Event, axum::Error>>>, StatusCode> {
    let exec = app.execs.find(&id)?;
    let (held, live) = exec.record.subscribe();
    let follower = Follower {
        exec,
        held,
        live,
        cursor: query.offset,
        has_ended: false,
    };
    let events = futures_util::stream::unfold(follower, Follower::step);
    Ok(Sse::new(events).keep_alive(KeepAlive::default()))
}

struct Follower {
    exec: Arc<Exec>,
    /// What is to be told before anything live.
    held: VecDeque<Chunk>,
    live: broadcast::Receiver<News>,
    cursor: u64,
    has_ended: bool,
}

impl Follower {
    async fn step(mut self) -> Option<(Result<Event, axum::Error>, Self)> {
        let event = self.next().await?;
        Some((event, self))
    }

    async fn next(&mut self) -> Option<Result<Event, axum::Error>> {
        if self.has_ended {
            return None;
        }
        loop {
            if let Some(chunk) = self.held.pop_front() {
                if let Some(event) = self.tell(chunk) {
                    return Some(event);
                }
                continue;
            }
            // The exit may have been sent before this follower came.
            if self.live.is_empty()
                && let (Some(ending), total) = self.exec.record.ending()
            {
                if self.cursor < total {
                    return Some(self.skip_to(total));
                }
                self.has_ended = true;
                let exit = Exit {
                    ending,
                    offset: total,
                };
                return Some(Event::default().event("exit").json_data(exit));
            }
            match self.live.recv().await {
                Ok(News::Output(chunk)) => self.held.push_back(chunk),
                // What was missed shows by the offset of the next chunk.
                Ok(News::Exit) | Err(RecvError::Lagged(_) | RecvError::Closed) => {}
            }
        }
    }

    fn tell(&mut self, mut chunk: Chunk) -> Option<Result<Event, axum::Error>> {
        if chunk.end() <= self.cursor {
            return None;
        }
        if chunk.offset > self.cursor {
            let to = chunk.offset;
            self.held.push_front(chunk);
            return Some(self.skip_to(to));
        }
        chunk.cut(self.cursor - chunk.offset);
        self.cursor = chunk.end();
        let output = Output {
            offset: chunk.offset,
            stream: chunk.stream,
            output: STANDARD.encode(&chunk.bytes),
        };
        Some(Event::default().event("output").json_data(output))
    }

    fn skip_to(&mut self, to: u64) -> Result<Event, axum::Error> {
        let gap = Gap {
            from: self.cursor,
            to,
        };
        self.cursor = to;
        Event::default().event("gap").json_data(gap)
    }
}
