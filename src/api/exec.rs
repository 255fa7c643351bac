//! Operations on execs: their requests and answers as JSON, and their output as server-sent events.

mod answer;
mod document;
mod events;
mod input;
mod limits;
mod members;
mod procs;
mod request;
mod result;
mod signal;
mod stream;
mod terminal;

use std::rc::Rc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use self::answer::{Brief, KillAnswer};
use self::request::{StartRequest, object};
use super::body;
use super::row::{Access, Answer, Call, Form, Method, Row, Run};
use crate::app::App;
use crate::error::{Kind, Result};
use crate::exec::Surroundings;
use crate::ring::pool;
use crate::wire::http::query::Query;

/// The rows of this room.
pub static ROWS: &[Row] = &[
    Row {
        name: "exec.start",
        method: Method::Post,
        path: "/v1/exec/start",
        access: Access::Bearer,
        form: Form::Json,
        about: "starts a command under the caller's id; a repeated id starts nothing",
        errors: &[
            Kind::Malformed,
            Kind::UnknownUser,
            Kind::UnknownGroup,
            Kind::UnknownShell,
            Kind::Unsupported,
            Kind::SpawnFailed,
        ],
        run: |app, call| -> Run { Box::pin(start(app, call)) },
    },
    Row {
        name: "exec.poll",
        method: Method::Get,
        path: "/v1/exec/{id}",
        access: Access::Bearer,
        form: Form::Json,
        about: "tells how far an exec is, and its result once it has ended; may wait for it",
        errors: &[Kind::Malformed, Kind::UnknownExec],
        run: |app, call| -> Run { Box::pin(result::poll(app, call)) },
    },
    Row {
        name: "exec.stream",
        method: Method::Get,
        path: "/v1/exec/{id}/stream",
        access: Access::Bearer,
        form: Form::Json,
        about: "follows the output of an exec from an offset, then tells its end",
        errors: &[Kind::Malformed, Kind::UnknownExec],
        run: |app, call| -> Run { Box::pin(std::future::ready(stream::stream(&app, &call))) },
    },
    Row {
        name: "exec.stdin",
        method: Method::Post,
        path: "/v1/exec/{id}/stdin",
        access: Access::Bearer,
        form: Form::Json,
        about: "writes to the standard input of an exec, or closes it",
        errors: &[
            Kind::Malformed,
            Kind::UnknownExec,
            Kind::StdinNotRequested,
            Kind::StdinWriteTooLarge,
            Kind::StdinClosed,
            Kind::StdinWriteTimeout,
            Kind::StdinWriteFailed,
        ],
        run: |app, call| -> Run { Box::pin(input::stdin(app, call)) },
    },
    Row {
        name: "exec.stdin.put",
        method: Method::Put,
        path: "/v1/exec/{id}/stdin",
        access: Access::Bearer,
        form: Form::Json,
        about: "writes the body to the standard input of an exec as it arrives, from an offset on",
        errors: &[
            Kind::Malformed,
            Kind::UnknownExec,
            Kind::StdinNotRequested,
            Kind::StdinOffset,
            Kind::StdinClosed,
            Kind::StdinWriteTimeout,
            Kind::StdinWriteFailed,
        ],
        run: |app, call| -> Run { Box::pin(input::put(app, call)) },
    },
    Row {
        name: "exec.stdin.offset",
        method: Method::Get,
        path: "/v1/exec/{id}/stdin",
        access: Access::Bearer,
        form: Form::Json,
        about: "tells how many bytes the standard input of an exec has taken",
        errors: &[Kind::UnknownExec, Kind::StdinNotRequested],
        run: |app, call| -> Run { Box::pin(std::future::ready(input::tell(&app, &call))) },
    },
    Row {
        name: "exec.resize",
        method: Method::Post,
        path: "/v1/exec/{id}/resize",
        access: Access::Bearer,
        form: Form::Json,
        about: "gives the terminal of an exec another size",
        errors: &[
            Kind::Malformed,
            Kind::UnknownExec,
            Kind::NoTerminal,
            Kind::TerminalClosed,
        ],
        run: |app, call| -> Run { Box::pin(terminal::resize(app, call)) },
    },
    Row {
        name: "exec.ack",
        method: Method::Post,
        path: "/v1/exec/{id}/ack",
        access: Access::Bearer,
        form: Form::Json,
        about: "hands the result of an exec out for the last time and frees it",
        errors: &[Kind::UnknownExec, Kind::StillRunning, Kind::AlreadyAcked],
        run: |app, call| -> Run { Box::pin(result::ack(app, call)) },
    },
    Row {
        name: "exec.kill",
        method: Method::Post,
        path: "/v1/exec/{id}/kill",
        access: Access::Bearer,
        form: Form::Json,
        about: "ends every process of an exec and answers when none is left",
        errors: &[Kind::UnknownExec],
        run: |app, call| -> Run { Box::pin(kill(app, call)) },
    },
    Row {
        name: "exec.signal",
        method: Method::Post,
        path: "/v1/exec/{id}/signal",
        access: Access::Bearer,
        form: Form::Json,
        about: "sends one signal to the group of an exec, or to its command alone",
        errors: &[Kind::Malformed, Kind::UnknownExec],
        run: |app, call| -> Run { Box::pin(signal::signal(app, call)) },
    },
    Row {
        name: "procs.list",
        method: Method::Get,
        path: "/v1/procs",
        access: Access::Bearer,
        form: Form::Json,
        about: "lists every exec with the live processes of its group, or of all that it started",
        errors: &[Kind::Malformed],
        run: |app, call| -> Run { Box::pin(procs::procs(app, call)) },
    },
];

async fn start(app: Rc<App>, mut call: Call) -> Result<Answer> {
    let launch = parse(&app, &mut call, "start", StartRequest::into_launch).await?;
    let exec_id = launch.id.clone();
    let around = Surroundings {
        launch: app.boot.environment(),
        image: Rc::clone(&app.image_environment),
    };
    app.execs.start(launch, &around).await?;
    json(&Brief {
        exec_id: &exec_id,
        phase: "running",
    })
}

async fn kill(app: Rc<App>, call: Call) -> Result<Answer> {
    let killed = app.execs.kill(&call.id).await?;
    json(&KillAnswer {
        exec_id: &call.id,
        killed,
    })
}

/// Reads a JSON request and makes of it what is wanted; whatever is wrong with it is told in one sentence.
async fn parse<T, R>(
    app: &App,
    call: &mut Call,
    what: &'static str,
    make: fn(T) -> Result<R>,
) -> Result<R>
where
    T: DeserializeOwned + 'static,
    R: Send + 'static,
{
    let invalid = move || Kind::Malformed.told(format!("body is not a valid {what} request"));
    if !body::is_json(call.fields.first("content-type")) {
        return Err(invalid());
    }
    let most = app.config.limits.max_body_bytes.min(MOST_JSON);
    let bytes = body::read(&mut *call.body, most).await?;
    let read = move |bytes: Vec<u8>| object(&bytes).ok_or_else(invalid).and_then(make);
    if bytes.len() <= SMALL_JSON {
        return read(bytes);
    }
    // A document of millions of values takes seconds, and so does letting go of it.
    pool::run(move || read(bytes)).await?
}

/// The value of `key`, a number of bytes; `None` when it is absent.
fn offset(query: &Query, key: &str) -> Result<Option<u64>> {
    let bad = || Kind::Malformed.told(format!("{key} must be a non-negative integer"));
    let text = query.one(key).map_err(|_| bad())?;
    text.map(|text| text.parse().map_err(|_| bad())).transpose()
}

/// Bytes of a document that are read on this thread.
const SMALL_JSON: usize = 64 * 1024;

/// Bytes of a JSON request: more than the kernel takes as arguments and environment (execve(2)), however escaped.
const MOST_JSON: u64 = 32 * 1024 * 1024;

fn json(answer: &impl Serialize) -> Result<Answer> {
    written(answer).map(Answer::Json)
}

fn written(part: &impl Serialize) -> Result<Vec<u8>> {
    serde_json::to_vec(part).map_err(|error| Kind::Internal.told("internal error").because(error))
}
