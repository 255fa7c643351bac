//! The usual shape of such a service: axum on a current-thread tokio, tokio::fs, the tar crate on blocking threads.
//!
//! What it does not set is the library's default: Nagle's algorithm (there is a switch), the number of blocking
//! threads, copy buffers.

mod exec;
mod record;

use std::io::{BufReader, BufWriter, Seek};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Query, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{get, post};
use axum::serve::ListenerExt;
use futures_util::TryStreamExt;
use serde::{Deserialize, Serialize};
use tokio::fs::File;
use tokio::io::AsyncWriteExt;
use tokio_util::io::{ReaderStream, StreamReader};

const SPOOL_BUFFER_BYTES: usize = 64 << 10;

/// How the server is started.
#[derive(clap::Args)]
pub(crate) struct Config {
    /// Port on 127.0.0.1; 0 lets the system choose
    #[arg(long, value_name = "N", default_value_t = 0)]
    port: u16,
    /// What requests must carry as `authorization: Bearer T`
    #[arg(long, value_name = "T", default_value = "")]
    token: String,
    /// Size of one read of a download; the default is that of tokio-util's ReaderStream
    #[arg(long, value_name = "BYTES", default_value = "4096")]
    chunk: NonZeroUsize,
    /// Sets TCP_NODELAY on every connection; without it Nagle's algorithm is on, the library's default
    #[arg(long)]
    nodelay: bool,
}

struct App {
    chunk: usize,
    credential: String,
    execs: exec::Execs,
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
        let nodelay = config.nodelay;
        let listener = listener.tap_io(move |stream| {
            if nodelay && let Err(error) = stream.set_nodelay(true) {
                eprintln!("axum: cannot set TCP_NODELAY: {error}");
            }
        });
        axum::serve(listener, router(config)).await?;
        Ok(())
    })
}

fn router(config: Config) -> Router {
    let app = Arc::new(App {
        chunk: config.chunk.get(),
        credential: format!("Bearer {}", config.token),
        execs: exec::Execs::default(),
    });
    Router::new()
        .route("/v1/fs/file", get(read_file).put(write_file))
        .route("/v1/fs/tar", get(pack_tree).put(unpack_tree))
        .route("/v1/exec/start", post(exec::start))
        .route("/v1/exec/{id}", get(exec::poll))
        .route("/v1/exec/{id}/stream", get(exec::stream))
        .route("/v1/exec/{id}/stdin", post(exec::write_stdin))
        .route("/v1/exec/{id}/ack", post(exec::ack))
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
    Json(Health {
        version: env!("CARGO_PKG_VERSION"),
        bootstrapped: true,
        busy: app.execs.are_running(),
        execs: app.execs.count(),
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
