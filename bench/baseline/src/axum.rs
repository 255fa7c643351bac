//! The usual shape of such a service: axum on a current-thread tokio, tokio::fs, the tar crate on blocking threads.
//!
//! What it does not set is the library's default: Nagle's algorithm (there is a switch), the number of blocking
//! threads, copy buffers.

mod exec;
mod files;
mod follow;
mod launch;
mod record;
mod trees;
mod tunnel;

use std::num::NonZeroUsize;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{get, post};
use axum::serve::ListenerExt;
use serde::Serialize;
use tokio::signal::unix::{SignalKind, signal};

/// How the server is started.
#[derive(clap::Args)]
pub(crate) struct Config {
    /// Port on 127.0.0.1; 0 lets the system choose
    #[arg(long, value_name = "N", default_value_t = 0)]
    port: u16,
    /// What requests must carry as `authorization: Bearer T`; without it the first run hook says so
    #[arg(long, value_name = "T")]
    token: Option<String>,
    /// Size of one read of a download; the default is that of tokio-util's ReaderStream
    #[arg(long, value_name = "BYTES", default_value = "4096")]
    chunk: NonZeroUsize,
    /// Sets TCP_NODELAY on every connection; without it Nagle's algorithm is on, the library's default
    #[arg(long)]
    nodelay: bool,
}

struct App {
    chunk: usize,
    launch: launch::Once,
    execs: exec::Execs,
}

type Shared = State<Arc<App>>;

/// Serves until SIGTERM or SIGINT, and then ends what it has started.
///
/// Prints `listening tcp://ADDRESS` once it can be reached.
pub(crate) fn serve(config: Config) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let served = runtime.block_on(listen(config));
    // Blocking threads may be in the middle of an archive: nobody waits for them.
    runtime.shutdown_background();
    served
}

async fn listen(config: Config) -> anyhow::Result<()> {
    let app = Arc::new(App {
        chunk: config.chunk.get(),
        launch: launch::Once::with_token(config.token),
        execs: exec::Execs::default(),
    });
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", config.port)).await?;
    println!("listening tcp://{}", listener.local_addr()?);
    let nodelay = config.nodelay;
    let listener = listener.tap_io(move |stream| {
        if nodelay && let Err(error) = stream.set_nodelay(true) {
            eprintln!("axum: cannot set TCP_NODELAY: {error}");
        }
    });
    let served = axum::serve(listener, router(Arc::clone(&app)));
    let outcome = tokio::select! {
        outcome = served => outcome.map_err(anyhow::Error::from),
        _ = terminate.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
    };
    app.execs.end_all();
    outcome
}

fn router(app: Arc<App>) -> Router {
    Router::new()
        .route("/v1/fs/file", get(files::read).put(files::write))
        .route("/v1/fs/tar", get(trees::pack).put(trees::unpack))
        .route("/v1/exec/start", post(exec::start))
        .route("/v1/exec/{id}", get(exec::poll))
        .route("/v1/exec/{id}/stream", get(follow::stream))
        .route("/v1/exec/{id}/stdin", post(exec::write_stdin))
        .route("/v1/exec/{id}/ack", post(exec::ack))
        .route("/v1/exec/{id}/kill", post(exec::kill))
        .route("/v1/tcp", get(tunnel::open))
        .route_layer(middleware::from_fn_with_state(Arc::clone(&app), authorize))
        .route("/v1/health", get(health))
        .route("/aws/lambda-microvms/runtime/v1/run", post(launch::run))
        .with_state(app)
}

async fn authorize(State(app): Shared, request: Request, next: Next) -> Response {
    let credential = request.headers().get(header::AUTHORIZATION);
    match app.launch.admits(credential) {
        Ok(()) => next.run(request).await,
        Err(status) => status.into_response(),
    }
}

/// A refusal or a failure, told as plain text.
struct Failure {
    status: StatusCode,
    text: String,
}

impl Failure {
    fn told(status: StatusCode, text: impl Into<String>) -> Self {
        Self {
            status,
            text: text.into(),
        }
    }
}

/// What nobody looked at more closely is a 500.
impl<E: std::fmt::Display> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::told(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        (self.status, self.text).into_response()
    }
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
        bootstrapped: app.launch.has_happened(),
        busy: app.execs.are_running(),
        execs: app.execs.count(),
    })
}
