//! Bodies under way, told.

use std::rc::Rc;

use schemars::JsonSchema;
use serde::Serialize;

use super::contract::{Contract, Shape, Success};
use super::row::{Access, Answer, Form, Method, Row, Run};
use crate::app::App;
use crate::error::{Kind, Result};

/// The rows of this room.
pub static ROWS: &[Row] = &[Row {
    name: "transfers",
    method: Method::Get,
    path: "/v1/transfers",
    access: Access::Bearer,
    form: Form::Json,
    about: "the uploads under way, and how far each is",
    errors: &[],
    contract: Contract {
        is_ours: true,
        successes: &[(Success::Whole, "the oldest first")],
        response: &[Shape::json::<List>()],
        ..Contract::NONE
    },
    run: |app, _| -> Run { Box::pin(async move { list(&app) }) },
}];

/// The answer of `GET /v1/transfers`, in this key order.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "TransfersResponse", description = "The uploads under way")]
struct List {
    transfers: Vec<Item>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Transfer", description = "One upload under way")]
struct Item {
    /// Counted from the start of the daemon.
    id: u64,
    /// The operation, such as `file.write`.
    operation: &'static str,
    /// Where it goes.
    path: String,
    /// Bytes that have come, as they came over the wire.
    received: u64,
    /// Bytes that it will have; null when the client did not say.
    total: Option<u64>,
    /// Seconds since it began.
    seconds: f64,
}

fn list(app: &Rc<App>) -> Result<Answer> {
    let items = app.transfers.list().into_iter().map(|(id, it)| Item {
        id,
        operation: it.operation,
        path: it.path.to_string_lossy().into_owned(),
        received: it.received.get(),
        total: it.total,
        seconds: it.since.elapsed().as_secs_f64(),
    });
    let list = List {
        transfers: items.collect(),
    };
    serde_json::to_vec(&list)
        .map(Answer::Json)
        .map_err(|error| Kind::Internal.told("internal error").because(error))
}
