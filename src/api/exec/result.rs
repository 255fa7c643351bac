//! How far an exec is, and its result.

use std::rc::Rc;

use super::answer::{Brief, phase_name};
use super::document::Document;
use super::json;
use crate::api::row::{Answer, Call};
use crate::app::App;
use crate::error::Result;

pub(super) async fn poll(app: Rc<App>, call: Call) -> Result<Answer> {
    let exec = app.execs.look(&call.id)?;
    match exec.report() {
        Some(report) => Ok(Document::new(&call.id, "exited", report)?.answer().await),
        None => json(&Brief {
            exec_id: &call.id,
            phase: phase_name(exec.phase()),
        }),
    }
}

pub(super) async fn ack(app: Rc<App>, call: Call) -> Result<Answer> {
    let report = app.execs.ack(&call.id)?;
    Ok(Document::new(&call.id, "acked", report)?.answer().await)
}
