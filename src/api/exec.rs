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

use schemars::SchemaGenerator;
use serde::Serialize;
use serde::de::DeserializeOwned;

use self::answer::{
    Brief, ExitEvent, KillAnswer, PollResponse, ProcsAnswer, SignalAnswer, StdinAnswer, StdinState,
};
use self::events::{GapEvent, OutputEvent};
use self::request::{StartRequest, StdinRequest, object};
use self::signal::SignalRequest;
use self::terminal::{SizeAnswer, SizeRequest};
use super::body;
use super::contract::{Contract, Event, Field, Shape, Success};
use super::queries::{PollQuery, ProcsQuery, StdinQuery, StreamQuery};
use super::row::{Access, Answer, Call, Form, Method, Row, Run};
use crate::app::App;
use crate::error::{Kind, Result};
use crate::exec::{Phase, Surroundings};
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
            (
                Kind::Malformed,
                "the body is no start request, or a value in it is out of its range",
            ),
            (Kind::UnknownUser, "the guest has no such user"),
            (Kind::UnknownGroup, "the guest has no such group"),
            (Kind::UnknownShell, "the guest has no such shell"),
            (Kind::Unsupported, "this host cannot set the limit"),
            (
                Kind::SpawnFailed,
                "the command could not be started; nothing is registered",
            ),
            (
                Kind::Busy,
                "too many execs are unread, or their output takes too much memory",
            ),
        ],
        contract: Contract {
            request: &[Shape::json::<StartRequest>()],
            successes: &[(Success::Whole, "started, or known")],
            response: &[Shape::json::<Brief<'_>>()],
            ..Contract::NONE
        },
        run: |app, call| -> Run { Box::pin(start(app, call)) },
    },
    Row {
        name: "exec.poll",
        method: Method::Get,
        path: "/v1/exec/{id}",
        access: Access::Bearer,
        form: Form::Json,
        about: "tells how far an exec is, and its result once it has ended; may wait for it",
        errors: &[
            (Kind::Malformed, "wait or an offset is none"),
            (Kind::UnknownExec, UNKNOWN),
        ],
        contract: Contract {
            query: Some(SchemaGenerator::subschema_for::<PollQuery>),
            successes: &[(Success::Whole, "in any phase")],
            response: &[Shape::json::<PollResponse>()],
            ..Contract::NONE
        },
        run: |app, call| -> Run { Box::pin(result::poll(app, call)) },
    },
    Row {
        name: "exec.stream",
        method: Method::Get,
        path: "/v1/exec/{id}/stream",
        access: Access::Bearer,
        form: Form::Json,
        about: "follows the output of an exec from an offset, then tells its end",
        errors: &[
            (
                Kind::Malformed,
                "offset is no number of 64 bits, or pad no switch",
            ),
            (Kind::UnknownExec, UNKNOWN),
        ],
        contract: Contract {
            query: Some(SchemaGenerator::subschema_for::<StreamQuery>),
            takes: &[(
                "accept",
                "application/octet-stream without text/event-stream asks for binary frames",
            )],
            successes: &[(Success::Whole, "follows")],
            response: &[
                Shape::bytes(
                    "text/event-stream",
                    "an event is a name and one line of JSON; the last one is exit",
                ),
                Shape::bytes(
                    "application/octet-stream",
                    "the same as frames with a head of 16 bytes",
                ),
            ],
            events: &[
                Event::new::<OutputEvent>("output", "bytes of one stream"),
                Event::new::<GapEvent>("gap", "bytes that are no longer held"),
                Event::new::<ExitEvent>("exit", "the end of the exec; nothing follows"),
            ],
            ..Contract::NONE
        },
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
            (
                Kind::Malformed,
                "the body is no stdin request, or no base64",
            ),
            (Kind::UnknownExec, UNKNOWN),
            (Kind::StdinNotRequested, NO_STDIN),
            (Kind::StdinWriteTooLarge, "more than one write may bring"),
            (Kind::StdinClosed, STDIN_CLOSED),
            (
                Kind::StdinWriteTimeout,
                "the command did not read in time; a part may be written",
            ),
            (Kind::StdinWriteFailed, WRITE_FAILED),
        ],
        contract: Contract {
            request: &[Shape::json::<StdinRequest>()],
            successes: &[(Success::Whole, "written")],
            response: &[Shape::json::<StdinAnswer<'_>>()],
            ..Contract::NONE
        },
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
            (Kind::Malformed, "offset or eof is none"),
            (Kind::UnknownExec, UNKNOWN),
            (Kind::StdinNotRequested, NO_STDIN),
            (Kind::StdinOffset, "bytes before offset are missing"),
            (Kind::StdinClosed, STDIN_CLOSED),
            (
                Kind::StdinWriteTimeout,
                "the command, or another write, takes too long; go on at stdin-offset",
            ),
            (Kind::StdinWriteFailed, WRITE_FAILED),
        ],
        contract: Contract {
            is_ours: true,
            query: Some(SchemaGenerator::subschema_for::<StdinQuery>),
            request: &[Shape::bytes("application/octet-stream", "what is written")],
            successes: &[(Success::Whole, "all of it is written, or was before")],
            response: &[Shape::json::<StdinState<'_>>()],
            tells: &[STDIN_OFFSET],
            ..Contract::NONE
        },
        run: |app, call| -> Run { Box::pin(input::put(app, call)) },
    },
    Row {
        name: "exec.stdin.offset",
        method: Method::Get,
        path: "/v1/exec/{id}/stdin",
        access: Access::Bearer,
        form: Form::Json,
        about: "tells how many bytes the standard input of an exec has taken",
        errors: &[
            (Kind::UnknownExec, UNKNOWN),
            (Kind::StdinNotRequested, NO_STDIN),
        ],
        contract: Contract {
            is_ours: true,
            successes: &[(Success::Whole, "in any phase")],
            response: &[Shape::json::<StdinState<'_>>()],
            tells: &[STDIN_OFFSET],
            ..Contract::NONE
        },
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
            (Kind::Malformed, "the body is no size"),
            (Kind::UnknownExec, UNKNOWN),
            (Kind::NoTerminal, "the exec was started without tty"),
            (
                Kind::TerminalClosed,
                "the exec has ended, and its terminal with it",
            ),
        ],
        contract: Contract {
            is_ours: true,
            request: &[Shape::json::<SizeRequest>()],
            successes: &[(Success::Whole, "the size is in force")],
            response: &[Shape::json::<SizeAnswer<'_>>()],
            ..Contract::NONE
        },
        run: |app, call| -> Run { Box::pin(terminal::resize(app, call)) },
    },
    Row {
        name: "exec.ack",
        method: Method::Post,
        path: "/v1/exec/{id}/ack",
        access: Access::Bearer,
        form: Form::Json,
        about: "hands the result of an exec out for the last time and frees it",
        errors: &[
            (Kind::UnknownExec, UNKNOWN),
            (Kind::StillRunning, "the exec has not ended"),
            (Kind::AlreadyAcked, "the result was handed out before"),
        ],
        contract: Contract {
            successes: &[(Success::Whole, "the result, for the last time")],
            response: &[Shape::json::<PollResponse>()],
            ..Contract::NONE
        },
        run: |app, call| -> Run { Box::pin(result::ack(app, call)) },
    },
    Row {
        name: "exec.kill",
        method: Method::Post,
        path: "/v1/exec/{id}/kill",
        access: Access::Bearer,
        form: Form::Json,
        about: "ends every process of an exec and answers when none is left",
        errors: &[(Kind::UnknownExec, UNKNOWN)],
        contract: Contract {
            successes: &[(Success::Whole, "nobody is left")],
            response: &[Shape::json::<KillAnswer<'_>>()],
            ..Contract::NONE
        },
        run: |app, call| -> Run { Box::pin(kill(app, call)) },
    },
    Row {
        name: "exec.signal",
        method: Method::Post,
        path: "/v1/exec/{id}/signal",
        access: Access::Bearer,
        form: Form::Json,
        about: "sends one signal to the group of an exec, or to its command alone",
        errors: &[
            (
                Kind::Malformed,
                "the body is no signal request, or there is no such signal",
            ),
            (Kind::UnknownExec, UNKNOWN),
        ],
        contract: Contract {
            is_ours: true,
            request: &[Shape::json::<SignalRequest>()],
            successes: &[(Success::Whole, "sent, or nobody is left")],
            response: &[Shape::json::<SignalAnswer<'_>>()],
            ..Contract::NONE
        },
        run: |app, call| -> Run { Box::pin(signal::signal(app, call)) },
    },
    Row {
        name: "procs.list",
        method: Method::Get,
        path: "/v1/procs",
        access: Access::Bearer,
        form: Form::Json,
        about: "lists every exec with the live processes of its group, or of all that it started",
        errors: &[(Kind::Malformed, "detail is no switch")],
        contract: Contract {
            query: Some(SchemaGenerator::subschema_for::<ProcsQuery>),
            successes: &[(Success::Whole, "every exec, in the order of their starts")],
            response: &[Shape::json::<ProcsAnswer<'_>>()],
            ..Contract::NONE
        },
        run: |app, call| -> Run { Box::pin(procs::procs(app, call)) },
    },
];

const UNKNOWN: &str = "no exec has this id";
const NO_STDIN: &str = "the exec was started without stdin";
const STDIN_CLOSED: &str = "standard input was closed, or nobody reads it any more";
const WRITE_FAILED: &str = "the write failed for another reason";
const STDIN_OFFSET: Field = (input::OFFSET, "how many bytes the standard input has taken");

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
        phase: Phase::Running,
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
