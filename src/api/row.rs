//! The shape of an operation: a row of the table, what it is called with, what it answers.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

use crate::app::App;
use crate::error::{Kind, Result};
use crate::ring::{Inflow, Outflow, Step};
use crate::wire::http::head::Fields;
use crate::wire::http::query::Query;

/// Who may call an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Anybody.
    Open,
    /// Whoever presents the installed token.
    Bearer,
    /// The same, or anybody where the operator has opened it (`--metrics-open`).
    Scraper,
    /// The platform, which has no token to present.
    Platform,
}

impl Access {
    /// True where a token is presented as a rule.
    pub fn asks_for_a_token(self) -> bool {
        matches!(self, Self::Bearer | Self::Scraper)
    }
}

/// How the errors of an operation are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `{"error":slug,"detail":sentence}`.
    Json,
    /// The sentence as text/plain.
    Text,
}

/// The method of an operation; HEAD is GET without the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// GET and HEAD.
    Get,
    /// PUT.
    Put,
    /// POST.
    Post,
    /// PATCH.
    Patch,
    /// DELETE.
    Delete,
}

/// One operation: all that routing, access and the published documents know of it.
pub struct Row {
    /// A dotted name, such as `exec.kill`.
    pub name: &'static str,
    /// The method of the HTTP door.
    pub method: Method,
    /// The path of the HTTP door; the segment `{id}` takes any value.
    pub path: &'static str,
    /// Who may call it.
    pub access: Access,
    /// How its errors are written.
    pub form: Form,
    /// One line for a reader.
    pub about: &'static str,
    /// The kinds of error that it promises, beyond those of the door.
    pub errors: &'static [Kind],
    /// What it does.
    pub run: fn(Rc<App>, Call) -> Run,
}

/// An operation under way.
pub type Run = Pin<Box<dyn Future<Output = Result<Answer>>>>;

/// One call of an operation, whatever door it came through.
pub struct Call {
    /// The value of `{id}` in the path, decoded; empty where the row has none.
    pub id: String,
    /// The query of the request target.
    pub query: Query,
    /// The header fields.
    pub fields: Fields,
    /// True when only the head of the answer is wanted (HEAD).
    pub head_only: bool,
    /// The body, unread.
    pub body: Box<dyn Inflow>,
}

/// What an operation answers.
pub enum Answer {
    /// Success without a body (204).
    Done,
    /// The same with header fields, names in lower case.
    DoneWith(Vec<(&'static str, String)>),
    /// Something was made (201), without a body; header fields, names in lower case.
    Created(Vec<(&'static str, String)>),
    /// What the client holds is current (304); header fields, names in lower case.
    Unchanged(Vec<(&'static str, String)>),
    /// Success with an empty body (200).
    Empty,
    /// A JSON document (200).
    Json(Vec<u8>),
    /// The same with further header fields, names in lower case.
    JsonWith(Vec<u8>, Vec<(&'static str, String)>),
    /// Bytes (200, or 206 with a range).
    Bytes(Source),
}

/// A body that is produced while it is sent.
pub struct Source {
    /// The media type.
    pub media: &'static str,
    /// The exact length; `None` is sent chunked.
    pub length: Option<u64>,
    /// Set when the bytes are a part of a larger whole.
    pub part: Option<Part>,
    /// Further header fields, names in lower case.
    pub fields: Vec<(&'static str, String)>,
    /// What makes the bytes.
    pub produce: Box<dyn Produce>,
}

/// Which part of a whole a [`Source`] is (RFC 9110, section 14.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Offset of the first byte.
    pub first: u64,
    /// Offset of the last byte.
    pub last: u64,
    /// Length of the whole.
    pub total: u64,
}

/// Something that writes a body.
pub trait Produce {
    /// Writes the whole body to `sink`.
    ///
    /// # Errors
    /// After the head is out an error can only end the connection, which is how the client learns of it.
    fn produce<'a>(self: Box<Self>, sink: &'a mut dyn Outflow) -> Step<'a, ()>
    where
        Self: 'a;
}
