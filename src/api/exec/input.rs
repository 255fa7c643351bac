//! Writes to the standard input of an exec.

use std::rc::Rc;

use super::answer::{StdinAnswer, StdinState};
use super::request::StdinRequest;
use super::{json, offset, parse, written};
use crate::api::row::{Answer, Call};
use crate::app::App;
use crate::error::{Kind, Result};
use crate::exec::Exec;
use crate::wire::base64;

pub(super) async fn stdin(app: Rc<App>, mut call: Call) -> Result<Answer> {
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

/// Writes the body to the standard input as it arrives.
pub(super) async fn put(app: Rc<App>, mut call: Call) -> Result<Answer> {
    let offset = offset(&call.query, "offset")?;
    let eof = call.query.flag("eof", false)?;
    let exec = app.execs.stdin(&call.id)?;
    let written = app.execs.flow(&exec, &mut *call.body, offset, eof).await;
    // Whatever went wrong, this is where to go on.
    let (next, _) = exec.stdin_progress();
    written.map_err(|error| error.with_number(OFFSET, next))?;
    state(&call.id, &exec)
}

/// Tells how many bytes the standard input has taken.
pub(super) fn tell(app: &App, call: &Call) -> Result<Answer> {
    let exec = app.execs.stdin(&call.id)?;
    state(&call.id, &exec)
}

fn state(exec_id: &str, exec: &Exec) -> Result<Answer> {
    let (offset, eof) = exec.stdin_progress();
    let document = written(&StdinState {
        exec_id,
        offset,
        eof,
    })?;
    let fields = vec![(OFFSET, offset.to_string())];
    Ok(Answer::JsonWith(document, fields))
}

/// The header field with the offset of the next byte.
pub(super) const OFFSET: &str = "stdin-offset";
