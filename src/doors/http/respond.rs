//! Responses: the only place that knows status numbers.

use std::cell::RefCell;
use std::time::{SystemTime, UNIX_EPOCH};

use http::StatusCode;
use serde::Serialize;

use crate::api::coding::ACCEPTED;
use crate::api::system::VERSION;
use crate::api::uploads::PARTIAL_UPLOAD;
use crate::api::{Form, Part};
use crate::error::{Error, Kind};
use crate::wire::http::date;
use crate::wire::http::head::Refusal;
use crate::wire::http::reply::{Delimiter, Reply};

/// What the connection knows about a response besides its content.
#[derive(Clone, Copy)]
pub(super) struct Manner {
    /// HTTP/1.1 or HTTP/1.0.
    pub(super) is_11: bool,
    /// True when another request may follow.
    pub(super) keep: bool,
    /// True for HEAD.
    pub(super) head_only: bool,
}

/// A response whose body is all here.
pub(super) struct Whole {
    pub(super) status: StatusCode,
    pub(super) media: Option<&'static str>,
    pub(super) fields: Vec<(&'static str, String)>,
    pub(super) body: Vec<u8>,
}

impl Whole {
    pub(super) fn empty(status: StatusCode) -> Self {
        Self {
            status,
            media: None,
            fields: Vec::new(),
            body: Vec::new(),
        }
    }

    /// A response that consists of its head.
    pub(super) fn bare(status: StatusCode, fields: Vec<(&'static str, String)>) -> Self {
        Self {
            fields,
            ..Self::empty(status)
        }
    }

    pub(super) fn json(body: Vec<u8>, fields: Vec<(&'static str, String)>) -> Self {
        Self {
            media: Some(JSON),
            fields,
            body,
            ..Self::empty(StatusCode::OK)
        }
    }

    fn text(status: StatusCode, text: &str) -> Self {
        Self {
            media: Some("text/plain; charset=utf-8"),
            body: text.as_bytes().to_vec(),
            ..Self::empty(status)
        }
    }

    /// The response to a failed operation, in the form of its row.
    pub(super) fn error(error: &Error, form: Form) -> Self {
        let kind = error.kind();
        let status = status(kind);
        let sentence = error.sentence();
        let ends = (0..=sentence.len().min(MOST_SENTENCE)).rev();
        let end = ends.into_iter().find(|end| sentence.is_char_boundary(*end));
        let sentence = &sentence[..end.unwrap_or(0)];
        let mut whole = match slug(kind) {
            Some(slug) if form == Form::Json => {
                let problem = Problem::of(error);
                let media = if problem.is_some() { PROBLEM } else { JSON };
                let body = serde_json::to_vec(&Failure {
                    error: slug,
                    detail: sentence,
                    problem,
                });
                Self {
                    status,
                    media: Some(media),
                    ..Self::json(body.unwrap_or_default(), Vec::new())
                }
            }
            _ if kind == Kind::RangeNotSatisfiable => Self {
                fields: vec![("content-range", sentence.to_owned())],
                ..Self::empty(status)
            },
            _ if sentence.is_empty() => Self::empty(status),
            _ => Self::text(status, sentence),
        };
        whole.fields.extend_from_slice(error.fields());
        match kind {
            Kind::Busy => whole.fields.push(("retry-after", "1".into())),
            Kind::UnsupportedMedia => {
                whole.fields.push(("accept-patch", PARTIAL_UPLOAD.into()));
            }
            Kind::UnsupportedCoding if !whole.tells("accept-encoding") => {
                whole.fields.push(("accept-encoding", ACCEPTED.into()));
            }
            _ => {}
        }
        whole
    }

    /// The response to a path that exists, by a method that it does not have.
    pub(super) fn wrong_method(status: StatusCode, allow: &str) -> Self {
        Self {
            fields: vec![("allow", allow.to_owned())],
            ..Self::empty(status)
        }
    }

    fn tells(&self, name: &str) -> bool {
        self.fields.iter().any(|(known, _)| *known == name)
    }

    /// Head and body in one piece.
    pub(super) fn written(&self, manner: Manner) -> Vec<u8> {
        let behind = if manner.head_only { 0 } else { self.body.len() };
        let reply = Reply::with_room(manner.is_11, self.status, behind);
        let mut reply = begin(reply, self.media, &self.fields);
        reply.delimiter(match self.status {
            StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED => Delimiter::None,
            _ => Delimiter::Length(self.body.len() as u64),
        });
        let mut bytes = end(reply, manner);
        if !manner.head_only {
            bytes.extend_from_slice(&self.body);
        }
        bytes
    }
}

#[derive(Serialize)]
struct Failure<'a> {
    error: &'a str,
    detail: &'a str,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    problem: Option<Problem>,
}

/// What the document of an error that has a problem type of its own says besides (RFC 9457).
#[derive(Serialize)]
struct Problem {
    r#type: &'static str,
    title: &'static str,
    #[serde(rename = "expected-offset", skip_serializing_if = "Option::is_none")]
    expected: Option<u64>,
    #[serde(rename = "provided-offset", skip_serializing_if = "Option::is_none")]
    provided: Option<u64>,
}

impl Problem {
    /// The problem types of draft-ietf-httpbis-resumable-upload.
    fn of(error: &Error) -> Option<Self> {
        let (r#type, title) = match error.kind() {
            Kind::UploadOffset => (
                "https://iana.org/assignments/http-problem-types#mismatching-upload-offset",
                "offset from request does not match offset of resource",
            ),
            Kind::UploadCompleted => (
                "https://iana.org/assignments/http-problem-types#completed-upload",
                "upload is already completed",
            ),
            Kind::InconsistentLength => (
                "https://iana.org/assignments/http-problem-types#inconsistent-upload-length",
                "inconsistent length values for upload",
            ),
            _ => return None,
        };
        let number = |name| {
            let mut fields = error.fields().iter();
            let (_, value) = fields.find(|(known, _)| *known == name)?;
            value.parse().ok()
        };
        Some(Self {
            r#type,
            title,
            expected: number("upload-offset"),
            provided: number("provided-offset"),
        })
    }
}

/// The status of a response whose body is produced while it is sent.
pub(super) fn streamed_status(part: Option<Part>) -> StatusCode {
    match part {
        Some(_) => StatusCode::PARTIAL_CONTENT,
        None => StatusCode::OK,
    }
}

/// The head of such a response.
pub(super) fn streamed(
    media: &'static str,
    part: Option<Part>,
    fields: &[(&'static str, String)],
    framing: Delimiter,
    manner: Manner,
) -> Vec<u8> {
    let reply = Reply::new(manner.is_11, streamed_status(part));
    let mut reply = begin(reply, Some(media), fields);
    if let Some(Part { first, last, total }) = part {
        reply.field("content-range", &format!("bytes {first}-{last}/{total}"));
    }
    reply.delimiter(framing);
    end(reply, manner)
}

/// The interim response that invites the body.
pub(super) fn invitation() -> Vec<u8> {
    let mut reply = Reply::new(true, StatusCode::CONTINUE);
    reply.field(VERSION_FIELD, VERSION);
    reply.finish()
}

/// An interim response about the upload that the request has begun (104).
pub(super) fn news(fields: &[(&'static str, String)]) -> Vec<u8> {
    let status = StatusCode::from_u16(UPLOAD_RESUMPTION_SUPPORTED);
    let mut reply = Reply::new(true, status.expect("a number of three digits"));
    reply.field(VERSION_FIELD, VERSION);
    for (name, value) in fields {
        reply.field(name, value);
    }
    reply.finish()
}

/// The response to a head that cannot be understood; `None` when the connection is just closed.
pub(super) fn refusal(refusal: Refusal) -> Option<Whole> {
    let status = match refusal {
        Refusal::Bad(_) => StatusCode::BAD_REQUEST,
        Refusal::TooLarge => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
        Refusal::TargetTooLong => StatusCode::URI_TOO_LONG,
        Refusal::Http2 => return None,
    };
    Some(Whole::empty(status))
}

/// The response to a request that took too long to arrive.
pub(super) fn timed_out() -> Whole {
    Whole::empty(StatusCode::REQUEST_TIMEOUT)
}

/// The error for a body over the limit.
pub(super) fn too_long() -> Error {
    Kind::TooLarge.told("length limit exceeded")
}

/// The status of a kind.
pub(super) fn status(kind: Kind) -> StatusCode {
    match kind {
        Kind::Malformed
        | Kind::ClientGone
        | Kind::UploadCompleted
        | Kind::InconsistentLength
        | Kind::UnknownUser
        | Kind::UnknownGroup
        | Kind::UnknownShell
        | Kind::Unsupported => StatusCode::BAD_REQUEST,
        Kind::Unauthorized => StatusCode::UNAUTHORIZED,
        Kind::NotBootstrapped | Kind::Busy => StatusCode::SERVICE_UNAVAILABLE,
        Kind::TokenTaken
        | Kind::StillRunning
        | Kind::AlreadyAcked
        | Kind::StdinNotRequested
        | Kind::StdinOffset
        | Kind::UploadOffset
        | Kind::UploadIncomplete
        | Kind::NoTerminal
        | Kind::Exists
        | Kind::NotEmpty
        | Kind::InUse => StatusCode::CONFLICT,
        Kind::Denied => StatusCode::FORBIDDEN,
        Kind::PreconditionFailed => StatusCode::PRECONDITION_FAILED,
        Kind::UnknownExec | Kind::UnknownUpload | Kind::NotFound => StatusCode::NOT_FOUND,
        Kind::StdinWriteTimeout | Kind::ClientStalled => StatusCode::REQUEST_TIMEOUT,
        Kind::StdinClosed | Kind::TerminalClosed => StatusCode::GONE,
        Kind::StdinWriteTooLarge | Kind::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        Kind::UnsupportedCoding | Kind::UnsupportedMedia => StatusCode::UNSUPPORTED_MEDIA_TYPE,
        Kind::RangeNotSatisfiable => StatusCode::RANGE_NOT_SATISFIABLE,
        Kind::SpawnFailed | Kind::StdinWriteFailed | Kind::Internal => {
            StatusCode::INTERNAL_SERVER_ERROR
        }
        Kind::DiskFull => StatusCode::INSUFFICIENT_STORAGE,
    }
}

/// The slug that clients branch on, for the kinds that have one (contract, section 2.2).
fn slug(kind: Kind) -> Option<&'static str> {
    Some(match kind {
        Kind::Malformed => "malformed_request",
        Kind::UnknownExec => "unknown_exec",
        Kind::UnknownUser => "unknown_user",
        Kind::UnknownGroup => "unknown_group",
        Kind::UnknownShell => "unknown_shell",
        Kind::Unsupported => "unsupported",
        Kind::SpawnFailed => "spawn_failed",
        Kind::StillRunning => "still_running",
        Kind::AlreadyAcked => "already_acked",
        Kind::StdinNotRequested => "stdin_not_requested",
        Kind::StdinClosed => "stdin_closed",
        Kind::StdinWriteTimeout => "stdin_write_timeout",
        Kind::StdinWriteTooLarge => "stdin_write_too_large",
        Kind::StdinWriteFailed => "stdin_write_failed",
        Kind::Busy => "busy",
        Kind::StdinOffset => "stdin_offset",
        Kind::NoTerminal => "no_terminal",
        Kind::TerminalClosed => "terminal_closed",
        Kind::NotFound => "not_found",
        Kind::Exists => "already_exists",
        Kind::NotEmpty => "not_empty",
        Kind::InUse => "in_use",
        Kind::Denied => "permission_denied",
        Kind::PreconditionFailed => "precondition_failed",
        Kind::DiskFull => "disk_full",
        Kind::UnsupportedCoding => "unsupported_coding",
        Kind::UnsupportedMedia => "unsupported_media_type",
        Kind::UnknownUpload => "unknown_upload",
        Kind::UploadOffset => "upload_offset",
        Kind::UploadIncomplete => "upload_incomplete",
        Kind::UploadCompleted => "upload_completed",
        Kind::InconsistentLength => "inconsistent_length",
        _ => return None,
    })
}

/// Adds what every final response begins with.
fn begin(
    mut reply: Reply,
    media: Option<&'static str>,
    fields: &[(&'static str, String)],
) -> Reply {
    if let Some(media) = media {
        reply.field("content-type", media);
    }
    reply.field(VERSION_FIELD, VERSION);
    for (name, value) in fields {
        reply.field(name, value);
    }
    reply
}

fn end(mut reply: Reply, manner: Manner) -> Vec<u8> {
    match (manner.is_11, manner.keep) {
        (_, false) => drop(reply.field("connection", "close")),
        (false, true) => drop(reply.field("connection", "keep-alive")),
        (true, true) => {}
    }
    NOW.with_borrow_mut(|now| reply.field("date", now.text()));
    reply.finish()
}

/// The date field's text, made once per second.
struct Now {
    second: u64,
    text: String,
}

impl Now {
    fn text(&mut self) -> &str {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let second = since.map_or(0, |since| since.as_secs());
        if second != self.second || self.text.is_empty() {
            self.second = second;
            self.text = date::imf(i64::try_from(second).unwrap_or(i64::MAX));
        }
        &self.text
    }
}

thread_local! {
    static NOW: RefCell<Now> = const { RefCell::new(Now { second: 0, text: String::new() }) };
}

/// Bytes of a sentence that the client is told: it may quote what the client has sent.
const MOST_SENTENCE: usize = 16 * 1024;
/// The field by which a client of the reference recognises a daemon (contract, D7).
const VERSION_FIELD: &str = "microvms-agentd-version";
const JSON: &str = "application/json";
/// The status of draft-ietf-httpbis-resumable-upload that the crate does not name.
const UPLOAD_RESUMPTION_SUPPORTED: u16 = 104;
const PROBLEM: &str = "application/problem+json";
