//! Operations on uploads that are carried on by further requests (draft-ietf-httpbis-resumable-upload), and on those
//! whose parts come in any order.

mod answer;
mod append;
mod begin;
mod fields;

use std::rc::Rc;

pub(super) use begin::{begin, is_begun_by};

use super::row::{Access, Answer, Call, Form, Method, Row, Run};
use crate::app::App;
use crate::error::{Kind, Result};
use crate::fs::resumable::Found;
use crate::wire::http::head::Fields;

/// The media type of the bytes that go on with an upload.
pub const PARTIAL_UPLOAD: &str = "application/partial-upload";

/// The rows of this room.
pub static ROWS: &[Row] = &[
    Row {
        name: "uploads.create",
        method: Method::Post,
        path: "/v1/uploads",
        access: Access::Bearer,
        form: Form::Json,
        about: "begins an upload of a file that further requests carry on",
        errors: &[
            Kind::Malformed,
            Kind::UnknownUser,
            Kind::UnknownGroup,
            Kind::Denied,
            Kind::PreconditionFailed,
            Kind::InconsistentLength,
            Kind::UnsupportedCoding,
            Kind::TooLarge,
            Kind::Busy,
            Kind::DiskFull,
            Kind::Internal,
        ],
        run: |app, call| -> Run { Box::pin(begin(app, call)) },
    },
    Row {
        name: "uploads.list",
        method: Method::Get,
        path: "/v1/uploads",
        access: Access::Bearer,
        form: Form::Json,
        about: "the uploads that are not complete",
        errors: &[],
        run: |app, _| -> Run { Box::pin(async move { answer::list(app.uploads.list()) }) },
    },
    Row {
        name: "uploads.status",
        method: Method::Get,
        path: "/v1/uploads/{id}",
        access: Access::Bearer,
        form: Form::Json,
        about: "how far an upload is, and what is missing of it",
        errors: &[Kind::UnknownUpload],
        run: |app, call| -> Run { Box::pin(status(app, call)) },
    },
    Row {
        name: "uploads.append",
        method: Method::Patch,
        path: "/v1/uploads/{id}",
        access: Access::Bearer,
        form: Form::Json,
        about: "carries an upload on: appends bytes, or puts them in their place",
        errors: &[
            Kind::Malformed,
            Kind::UnknownUpload,
            Kind::UploadOffset,
            Kind::UploadIncomplete,
            Kind::UploadCompleted,
            Kind::InconsistentLength,
            Kind::PreconditionFailed,
            Kind::UnsupportedMedia,
            Kind::UnsupportedCoding,
            Kind::TooLarge,
            Kind::InUse,
            Kind::DiskFull,
            Kind::Internal,
        ],
        run: |app, call| -> Run { Box::pin(append::append(app, call)) },
    },
    Row {
        name: "uploads.finish",
        method: Method::Post,
        path: "/v1/uploads/{id}/finish",
        access: Access::Bearer,
        form: Form::Json,
        about: "makes an upload the file, if every byte has arrived",
        errors: &[
            Kind::Malformed,
            Kind::UnknownUpload,
            Kind::PreconditionFailed,
            Kind::UploadIncomplete,
            Kind::InUse,
            Kind::DiskFull,
            Kind::Internal,
        ],
        run: |app, call| -> Run { Box::pin(append::finish(app, call)) },
    },
    Row {
        name: "uploads.cancel",
        method: Method::Delete,
        path: "/v1/uploads/{id}",
        access: Access::Bearer,
        form: Form::Json,
        about: "ends an upload and frees its disk",
        errors: &[Kind::UnknownUpload, Kind::Internal],
        run: |app, call| -> Run { Box::pin(cancel(app, call)) },
    },
];

async fn cancel(app: Rc<App>, call: Call) -> Result<Answer> {
    app.uploads.cancel(&call.id).await?;
    Ok(Answer::Done)
}

/// HEAD asks as the draft says, GET for people: it leaves requests under way alone.
async fn status(app: Rc<App>, call: Call) -> Result<Answer> {
    let mut fields = fields::about(&app, fields::version(&call.fields));
    fields.push(("cache-control", "no-store".into()));
    let ongoing = match app.uploads.find(&call.id)? {
        Found::Open(ongoing) => ongoing,
        Found::Finished(finished) => return answer::finished(&finished, call.head_only, fields),
    };
    if !call.head_only {
        return answer::one(ongoing.status(), ongoing.missing(MOST_GAPS + 1), fields);
    }
    if let Err(error) = ongoing.settle().await {
        return match app.uploads.finished(&call.id) {
            Some(finished) if error.kind() == Kind::UnknownUpload => {
                answer::finished(&finished, call.head_only, fields)
            }
            _ => Err(error),
        };
    }
    fields.extend(fields::state(&ongoing.status()));
    if ongoing.is_parallel() {
        let missing = ongoing.missing(MOST_TOLD);
        fields.extend(answer::missing(&missing));
    }
    Ok(Answer::DoneWith(fields))
}

/// Refuses bytes in a content coding: parts are put together as they are sent.
fn uncoded(fields: &Fields) -> Result<()> {
    let coded = |value: &[u8]| !value.trim_ascii().eq_ignore_ascii_case(b"identity");
    if !fields.all("content-encoding").any(coded) {
        return Ok(());
    }
    let sentence = "the bytes of an upload cannot be in a content coding";
    let error = Kind::UnsupportedCoding.told(sentence);
    Err(error.with_field("accept-encoding", "identity"))
}

/// Missing ranges that a document tells.
const MOST_GAPS: usize = 1024;
/// Missing ranges that a field tells.
const MOST_TOLD: usize = 64;
