//! Answers about uploads, as they are written.

use std::ops::Range;

use schemars::JsonSchema;
use serde::Serialize;

use super::{MOST_GAPS, fields};
use crate::api::files::told;
use crate::api::row::Answer;
use crate::error::{Kind, Result};
use crate::fs::resumable::{Finished, Status};

/// Header fields on their way.
type Told = Vec<(&'static str, String)>;

/// The answer of `GET /v1/uploads`.
#[derive(Serialize, JsonSchema)]
#[schemars(
    rename = "UploadsResponse",
    description = "The uploads that are not complete"
)]
pub(super) struct List {
    uploads: Vec<Entry>,
}

/// One upload.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Upload")]
struct Entry {
    id: String,
    /// The file that will be written.
    path: String,
    complete: bool,
    /// Bytes from the start on that are there without a gap.
    offset: u64,
    /// Bytes that are there.
    received: u64,
    /// Bytes that it will have; null when the client has not said.
    length: Option<u64>,
    /// Whether its parts come in any order.
    parallel: bool,
    /// Requests that bring bytes now.
    requests: usize,
    age_seconds: f64,
    idle_seconds: f64,
}

/// The answer of `GET /v1/uploads/{id}`.
#[derive(Serialize, JsonSchema)]
#[schemars(
    rename = "UploadStatus",
    description = "An upload that is not complete, and what is missing of it"
)]
pub(super) struct One {
    #[serde(flatten)]
    entry: Entry,
    missing: Vec<Gap>,
    /// True when more is missing than is told.
    missing_truncated: bool,
}

/// The answer of `GET /v1/uploads/{id}` for one that was published.
#[derive(Serialize, JsonSchema)]
#[schemars(
    rename = "PublishedUpload",
    description = "An upload that has become a file"
)]
pub(super) struct Done<'a> {
    id: &'a str,
    complete: bool,
    offset: u64,
    length: u64,
}

/// Bytes that have not arrived, both ends included.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "MissingRange")]
struct Gap {
    first: u64,
    last: u64,
}

impl From<Status> for Entry {
    fn from(status: Status) -> Self {
        Self {
            id: status.id,
            path: status.path,
            complete: false,
            offset: status.offset,
            received: status.received,
            length: status.length,
            parallel: status.parallel,
            requests: status.requests,
            age_seconds: seconds(status.age),
            idle_seconds: seconds(status.idle),
        }
    }
}

/// The uploads that are not complete.
pub(super) fn list(all: Vec<Status>) -> Result<Answer> {
    let uploads = all.into_iter().map(Entry::from).collect();
    written(&List { uploads }, Vec::new())
}

/// One upload that is not complete, and what is missing of it.
pub(super) fn one(status: Status, missing: Vec<Range<u64>>, mut fields: Told) -> Result<Answer> {
    fields.extend(fields::state(&status));
    let gap = |range: &Range<u64>| Gap {
        first: range.start,
        last: range.end - 1,
    };
    let one = One {
        entry: status.into(),
        missing: missing.iter().take(MOST_GAPS).map(gap).collect(),
        missing_truncated: missing.len() > MOST_GAPS,
    };
    written(&one, fields)
}

/// One that was published.
pub(super) fn finished(finished: &Finished, head_only: bool, mut fields: Told) -> Result<Answer> {
    let length = finished.length.to_string();
    fields.extend([
        fields::complete(true),
        (fields::OFFSET, length.clone()),
        (fields::LENGTH, length),
    ]);
    if head_only {
        return Ok(Answer::DoneWith(fields));
    }
    let done = Done {
        id: &finished.id,
        complete: true,
        offset: finished.length,
        length: finished.length,
    };
    written(&done, fields)
}

/// The field that tells what is missing, as a client would ask for it; none when nothing is.
pub(super) fn missing(ranges: &[Range<u64>]) -> Option<(&'static str, String)> {
    let shown = ranges
        .iter()
        .map(|range| format!("{}-{}", range.start, range.end - 1));
    let shown: Vec<String> = shown.collect();
    (!shown.is_empty()).then(|| (MISSING, format!("bytes={}", shown.join(","))))
}

/// The answer to the request that completes an upload: that of a PUT of the file.
pub(super) fn published(finished: &Finished) -> Answer {
    let mut all = told(&finished.version).to_vec();
    all.push(fields::complete(true));
    all.push((fields::OFFSET, finished.length.to_string()));
    Answer::DoneWith(all)
}

/// The field that tells what is missing.
pub(super) const MISSING: &str = "upload-missing";

fn written(document: &impl Serialize, fields: Vec<(&'static str, String)>) -> Result<Answer> {
    let document = serde_json::to_vec(document);
    document
        .map(|document| Answer::JsonWith(document, fields))
        .map_err(|error| Kind::Internal.told("internal error").because(error))
}

/// Seconds with three digits behind the point.
fn seconds(span: std::time::Duration) -> f64 {
    (span.as_secs_f64() * 1000.0).round() / 1000.0
}
