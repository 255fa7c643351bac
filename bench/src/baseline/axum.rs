//! The usual shape of such a service: axum on a current-thread tokio, tokio::fs, the tar crate on blocking threads.
//!
//! What it does not set is the library's default: Nagle's algorithm, the number of blocking threads, copy buffers.

use std::collections::HashMap;
use std::io::{BufReader, BufWriter, Seek};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Query, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{get, post};
use futures_util::TryStreamExt;
use serde::{Deserialize, Serialize};
use tokio::fs::File;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use tokio_util::io::{ReaderStream, StreamReader};

const SPOOL_BUFFER_BYTES: usize = 64 << 10;

/// How the server is started.
pub(crate) struct Config {
    /// 0 lets the system choose.
    pub(crate) port: u16,
    /// Size of one read of a download, in bytes. tokio-util's default is 4096.
    pub(crate) chunk: usize,
    pub(crate) token: String,
}

struct App {
    chunk: usize,
    credential: String,
    execs: Mutex<HashMap<String, Outcome>>,
}

type Shared = State<Arc<App>>;

/// Serves until the process is ended. Prints `listening tcp://ADDRESS` once it can be reached.
pub(crate) fn serve(config: Config) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", config.port)).await?;
        println!("listening tcp://{}", listener.local_addr()?);
        axum::serve(listener, router(config)).await?;
        Ok(())
    })
}

fn router(config: Config) -> Router {
    let app = Arc::new(App {
        chunk: config.chunk,
        credential: format!("Bearer {}", config.token),
        execs: Mutex::new(HashMap::new()),
    });
    Router::new()
        .route("/v1/fs/file", get(read_file).put(write_file))
        .route("/v1/fs/tar", get(pack_tree).put(unpack_tree))
        .route("/v1/exec/start", post(start_exec))
        .route("/v1/exec/{id}", get(poll_exec))
        .route("/v1/exec/{id}/ack", post(ack_exec))
        .route_layer(middleware::from_fn_with_state(Arc::clone(&app), authorize))
        .route("/v1/health", get(health))
        .with_state(app)
}

async fn authorize(State(app): Shared, request: Request, next: Next) -> Response {
    match request.headers().get(header::AUTHORIZATION) {
        Some(value) if value.as_bytes() == app.credential.as_bytes() => next.run(request).await,
        _ => StatusCode::UNAUTHORIZED.into_response(),
    }
}

/// Any failure is a 500 with its text; the harness only needs to see that it is one.
struct Failure(String);

impl<E: std::fmt::Display> From<E> for Failure {
    fn from(error: E) -> Self {
        Self(error.to_string())
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        (StatusCode::INTERNAL_SERVER_ERROR, self.0).into_response()
    }
}

#[derive(Deserialize)]
struct PathQuery {
    path: PathBuf,
}

#[derive(Serialize)]
struct Health {
    version: &'static str,
    bootstrapped: bool,
    busy: bool,
    execs: usize,
}

async fn health(State(app): Shared) -> Json<Health> {
    let execs = app.execs.lock().unwrap_or_else(PoisonError::into_inner);
    let busy = execs.values().any(|outcome| outcome.phase == "running");
    Json(Health {
        version: env!("CARGO_PKG_VERSION"),
        bootstrapped: true,
        busy,
        execs: execs.len(),
    })
}

async fn read_file(
    State(app): Shared,
    Query(query): Query<PathQuery>,
) -> Result<Response, Failure> {
    stream(
        File::open(query.path).await?,
        app.chunk,
        "application/octet-stream",
    )
    .await
}

async fn stream(file: File, chunk: usize, kind: &'static str) -> Result<Response, Failure> {
    let length = file.metadata().await?.len();
    let body = Body::from_stream(ReaderStream::with_capacity(file, chunk));
    Ok((
        [
            (header::CONTENT_TYPE, kind.to_owned()),
            (header::CONTENT_LENGTH, length.to_string()),
        ],
        body,
    )
        .into_response())
}

async fn write_file(Query(query): Query<PathQuery>, body: Body) -> Result<StatusCode, Failure> {
    if let Some(parent) = query.path.parent() {
        tokio::fs::create_dir_all(parent).await?;
    }
    receive(body, File::create(query.path).await?).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn receive(body: Body, mut file: File) -> std::io::Result<File> {
    let mut reader = StreamReader::new(body.into_data_stream().map_err(std::io::Error::other));
    tokio::io::copy(&mut reader, &mut file).await?;
    file.flush().await?;
    Ok(file)
}

async fn pack_tree(
    State(app): Shared,
    Query(query): Query<PathQuery>,
) -> Result<Response, Failure> {
    let spool = tokio::task::spawn_blocking(move || -> std::io::Result<std::fs::File> {
        let spool = BufWriter::with_capacity(SPOOL_BUFFER_BYTES, tempfile::tempfile()?);
        let mut builder = tar::Builder::new(spool);
        builder.follow_symlinks(false);
        builder.append_dir_all(".", query.path)?;
        let mut file = builder.into_inner()?.into_inner()?;
        file.rewind()?;
        Ok(file)
    });
    stream(
        File::from_std(spool.await??),
        app.chunk,
        "application/x-tar",
    )
    .await
}

async fn unpack_tree(Query(query): Query<PathQuery>, body: Body) -> Result<StatusCode, Failure> {
    let spool = tokio::task::spawn_blocking(tempfile::tempfile).await??;
    let spool = receive(body, File::from_std(spool)).await?.into_std().await;
    let unpacked = tokio::task::spawn_blocking(move || -> std::io::Result<()> {
        let mut spool = BufReader::with_capacity(SPOOL_BUFFER_BYTES, spool);
        spool.rewind()?;
        std::fs::create_dir_all(&query.path)?;
        tar::Archive::new(spool).unpack(&query.path)
    });
    unpacked.await??;
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Deserialize)]
struct StartRequest {
    exec_id: String,
    command: Vec<String>,
    #[serde(default)]
    env: HashMap<String, String>,
}

#[derive(Clone, Serialize)]
struct Outcome {
    exec_id: String,
    phase: &'static str,
    exit_code: Option<i32>,
    stdout: String,
    stderr: String,
}

async fn start_exec(
    State(app): Shared,
    Json(request): Json<StartRequest>,
) -> Result<Json<Outcome>, Failure> {
    let (program, arguments) = request.command.split_first().ok_or("command is empty")?;
    let child = Command::new(program)
        .args(arguments)
        .env_clear()
        .envs(&request.env)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()?;
    let id = request.exec_id;
    let running = Outcome {
        exec_id: id.clone(),
        phase: "running",
        exit_code: None,
        stdout: String::new(),
        stderr: String::new(),
    };
    app.execs
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .insert(id.clone(), running.clone());
    tokio::spawn(async move {
        let output = child.wait_with_output().await;
        let mut execs = app.execs.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(outcome) = execs.get_mut(&id) else {
            return;
        };
        outcome.phase = "exited";
        if let Ok(output) = output {
            outcome.exit_code = output.status.code();
            outcome.stdout = String::from_utf8_lossy(&output.stdout).into_owned();
            outcome.stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        }
    });
    Ok(Json(running))
}

async fn poll_exec(
    State(app): Shared,
    Path(id): Path<String>,
) -> Result<Json<Outcome>, StatusCode> {
    let execs = app.execs.lock().unwrap_or_else(PoisonError::into_inner);
    execs
        .get(&id)
        .cloned()
        .map(Json)
        .ok_or(StatusCode::NOT_FOUND)
}

async fn ack_exec(State(app): Shared, Path(id): Path<String>) -> Result<Json<Outcome>, StatusCode> {
    let mut execs = app.execs.lock().unwrap_or_else(PoisonError::into_inner);
    let mut outcome = execs.remove(&id).ok_or(StatusCode::NOT_FOUND)?;
    outcome.phase = "acked";
    Ok(Json(outcome))
}
