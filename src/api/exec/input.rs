//! Writes to the standard input of an exec.

use std::rc::Rc;

use super::answer::StdinAnswer;
use super::request::StdinRequest;
use super::{json, parse};
use crate::api::row::{Answer, Call};
use crate::app::App;
use crate::error::{Kind, Result};
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
