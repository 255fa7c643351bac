//! Operations on execs: their requests and answers as JSON, and their output as server-sent events.

mod answer;
mod document;
mod events;
mod request;

use std::rc::Rc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use self::answer::{Brief, KillAnswer, ProcGroup, ProcsAnswer, StdinAnswer, phase_name};
use self::document::Document;
use self::events::Events;
use self::request::{StartRequest, StdinRequest, object};
use super::body;
use super::row::{Access, Answer, Call, Form, Method, Row, Run, Source};
use crate::app::App;
use crate::error::{Kind, Result};
use crate::exec::Surroundings;
use crate::ring::pool;
use crate::wire::{base64, sse};

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
        about: "tells how far an exec is, and its result once it has ended",
        errors: &[Kind::UnknownExec],
        run: |app, call| -> Run { Box::pin(poll(app, call)) },
    },
    Row {
        name: "exec.stream",
        method: Method::Get,
        path: "/v1/exec/{id}/stream",
        access: Access::Bearer,
        form: Form::Json,
        about: "follows the output of an exec from an offset, then tells its end",
        errors: &[Kind::Malformed, Kind::UnknownExec],
        run: |app, call| -> Run { Box::pin(std::future::ready(stream(&app, &call))) },
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
        run: |app, call| -> Run { Box::pin(stdin(app, call)) },
    },
    Row {
        name: "exec.ack",
        method: Method::Post,
        path: "/v1/exec/{id}/ack",
        access: Access::Bearer,
        form: Form::Json,
        about: "hands the result of an exec out for the last time and frees it",
        errors: &[Kind::UnknownExec, Kind::StillRunning, Kind::AlreadyAcked],
        run: |app, call| -> Run { Box::pin(ack(app, call)) },
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
        name: "procs.list",
        method: Method::Get,
        path: "/v1/procs",
        access: Access::Bearer,
        form: Form::Json,
        about: "lists every exec with the live processes of its group",
        errors: &[],
        run: |app, _| -> Run { Box::pin(procs(app)) },
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

async fn poll(app: Rc<App>, call: Call) -> Result<Answer> {
    let exec = app.execs.look(&call.id)?;
    match exec.report() {
        Some(report) => Ok(Document::new(&call.id, "exited", report)?.answer().await),
        None => json(&Brief {
            exec_id: &call.id,
            phase: phase_name(exec.phase()),
        }),
    }
}

async fn ack(app: Rc<App>, call: Call) -> Result<Answer> {
    let report = app.execs.ack(&call.id)?;
    Ok(Document::new(&call.id, "acked", report)?.answer().await)
}

async fn kill(app: Rc<App>, call: Call) -> Result<Answer> {
    let killed = app.execs.kill(&call.id).await?;
    json(&KillAnswer {
        exec_id: &call.id,
        killed,
    })
}

async fn stdin(app: Rc<App>, mut call: Call) -> Result<Answer> {
    let request: StdinRequest = parse(&app, &mut call, "stdin", Ok).await?;
    let exec = app.execs.stdin(&call.id)?;
    let eof = match request.signal.as_deref() {
        None => false,
        Some("eof") => true,
        Some(_) => return Err(Kind::Malformed.told("the only stdin signal is \"eof\"")),
    };
    let text = request.data_b64.unwrap_or_default();
    let bytes = base64::decode(&text)
        .map_err(|error| Kind::Malformed.told(format!("data_b64 is not valid base64: {error}")))?;
    drop(text);
    app.execs.write(&exec, &bytes, eof).await?;
    json(&StdinAnswer {
        exec_id: &call.id,
        written: bytes.len(),
        eof,
    })
}

fn stream(app: &App, call: &Call) -> Result<Answer> {
    let bad_offset = || Kind::Malformed.told("offset must be a non-negative integer");
    let offset = match call.query.one("offset").map_err(|_| bad_offset())? {
        Some(text) => text.parse().map_err(|_| bad_offset())?,
        None => 0,
    };
    let is_padded = call.query.all("pad").any(|value| value == "1");
    let events = Events {
        follower: app.execs.follow(&call.id, offset)?,
        keepalive: app.config.limits.sse_keepalive,
        comment: if is_padded {
            sse::padded_comment()
        } else {
            sse::COMMENT.to_vec()
        },
    };
    Ok(Answer::Bytes(Source {
        media: "text/event-stream",
        length: None,
        part: None,
        fields: vec![
            ("cache-control", "no-cache".into()),
            ("x-accel-buffering", "no".into()),
        ],
        produce: Box::new(events),
    }))
}

async fn procs(app: Rc<App>) -> Result<Answer> {
    let groups = app.execs.procs().await?;
    let procs = groups.iter().map(ProcGroup::from).collect();
    json(&ProcsAnswer { procs })
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

/// Bytes of a document that are read on this thread.
const SMALL_JSON: usize = 64 * 1024;

/// Bytes of a JSON request: more than the kernel takes as arguments and environment (execve(2)), however escaped.
const MOST_JSON: u64 = 32 * 1024 * 1024;

fn json(answer: &impl Serialize) -> Result<Answer> {
    serde_json::to_vec(answer)
        .map(Answer::Json)
        .map_err(|error| Kind::Internal.told("internal error").because(error))
}
