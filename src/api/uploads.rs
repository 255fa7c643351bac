//! Operations on uploads that are carried on by further requests (draft-ietf-httpbis-resumable-upload), and on those
//! whose parts come in any order.

mod answer;
mod append;
mod begin;
mod fields;

use std::rc::Rc;

use schemars::SchemaGenerator;

pub(super) use begin::{begin, is_begun_by};

use super::contract::{Contract, Field, Shape, Success, either};
use super::queries::UploadQuery;
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
            (Kind::Malformed, "no path, or a value or field that is none"),
            (Kind::UnknownUser, "owner names a user that nobody is"),
            (Kind::UnknownGroup, "owner names a group that there is not"),
            (Kind::Denied, "the daemon may not set this owner or time"),
            (
                Kind::PreconditionFailed,
                "what is there is not what the request says",
            ),
            (Kind::InconsistentLength, INCONSISTENT),
            (Kind::UploadIncomplete, INCOMPLETE),
            (Kind::InUse, IN_USE),
            (Kind::UnsupportedCoding, "the bytes are in a content coding"),
            (Kind::Busy, "too many uploads are open"),
            (Kind::DiskFull, FULL),
            (Kind::Internal, "the file cannot be written"),
        ],
        contract: Contract {
            is_ours: true,
            query: Some(SchemaGenerator::subschema_for::<UploadQuery>),
            takes: &[
                COMPLETE,
                LENGTH,
                ("if-match", "etags of which the file must have one"),
                ("if-none-match", "`*`: nothing may be there"),
                CONTENT_DIGEST,
                ("repr-digest", "the digest of the whole file"),
            ],
            request: &[Shape::bytes(
                "application/octet-stream",
                "the first bytes, if any",
            )],
            successes: &[
                (Success::Created, "begun; location tells where it goes on"),
                (
                    Success::Done,
                    "the request brought everything: the file is written",
                ),
            ],
            tells: &[
                ("location", "the upload"),
                OFFSET,
                COMPLETE,
                LENGTH,
                LIMIT,
                ETAG,
            ],
            ..Contract::NONE
        },
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
        contract: Contract {
            is_ours: true,
            successes: &[(Success::Whole, "the oldest first")],
            response: &[Shape::json::<answer::List>()],
            ..Contract::NONE
        },
        run: |app, _| -> Run { Box::pin(async move { answer::list(app.uploads.list()) }) },
    },
    Row {
        name: "uploads.status",
        method: Method::Get,
        path: "/v1/uploads/{id}",
        access: Access::Bearer,
        form: Form::Json,
        about: "how far an upload is, and what is missing of it",
        errors: &[(Kind::UnknownUpload, UNKNOWN)],
        contract: Contract {
            is_ours: true,
            successes: &[
                (Success::Whole, "how far it is"),
                (
                    Success::Done,
                    "the same in fields alone, to HEAD, of one that is not complete",
                ),
            ],
            response: &[Shape {
                schema: Some(either::<answer::One, answer::Done<'_>>),
                ..Shape::bytes("application/json", "")
            }],
            tells: &[OFFSET, COMPLETE, LENGTH, LIMIT, MISSING],
            ..Contract::NONE
        },
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
            (
                Kind::Malformed,
                "a field is missing or none, or the bytes are not what a digest says",
            ),
            (Kind::UnknownUpload, UNKNOWN),
            (
                Kind::UploadOffset,
                "the bytes do not begin where the upload goes on",
            ),
            (Kind::UploadIncomplete, INCOMPLETE),
            (Kind::UploadCompleted, "the upload is complete already"),
            (Kind::InconsistentLength, INCONSISTENT),
            (Kind::PreconditionFailed, OTHER_VERSION),
            (Kind::UnsupportedMedia, "the body is no partial upload"),
            (Kind::UnsupportedCoding, "the bytes are in a content coding"),
            (Kind::InUse, IN_USE),
            (Kind::DiskFull, FULL),
            (Kind::Internal, "the file cannot be written"),
        ],
        contract: Contract {
            is_ours: true,
            takes: &[
                OFFSET,
                COMPLETE,
                LENGTH,
                CONTENT_DIGEST,
                (
                    "repr-digest",
                    "the digest of the whole file, with the last bytes",
                ),
            ],
            request: &[Shape::bytes(PARTIAL_UPLOAD, "the bytes that go on")],
            successes: &[(
                Success::Done,
                "taken; with the last bytes the file is written",
            )],
            tells: &[OFFSET, COMPLETE, LENGTH, ETAG],
            ..Contract::NONE
        },
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
            (
                Kind::Malformed,
                "a digest field is none, or the file is not what it says",
            ),
            (Kind::UnknownUpload, UNKNOWN),
            (Kind::PreconditionFailed, OTHER_VERSION),
            (Kind::UploadIncomplete, INCOMPLETE),
            (Kind::InUse, "a request that appends is under way"),
            (Kind::Internal, "the file cannot be written"),
        ],
        contract: Contract {
            is_ours: true,
            takes: &[("repr-digest", "the digest of the whole file")],
            successes: &[(Success::Done, "the file is written")],
            tells: &[OFFSET, COMPLETE, ETAG],
            ..Contract::NONE
        },
        run: |app, call| -> Run { Box::pin(append::finish(app, call)) },
    },
    Row {
        name: "uploads.cancel",
        method: Method::Delete,
        path: "/v1/uploads/{id}",
        access: Access::Bearer,
        form: Form::Json,
        about: "ends an upload and frees its disk",
        errors: &[(Kind::UnknownUpload, UNKNOWN)],
        contract: Contract {
            is_ours: true,
            successes: &[(Success::Done, "ended, and its disk is free")],
            ..Contract::NONE
        },
        run: |app, call| -> Run { Box::pin(cancel(app, call)) },
    },
];

const UNKNOWN: &str = "no upload has this id";
const INCOMPLETE: &str = "bytes of the upload are missing";
const INCONSISTENT: &str = "what is said about the length does not agree";
const IN_USE: &str = "another request has taken the upload over";
const OTHER_VERSION: &str = "the file is no longer what the first request said";
const FULL: &str = "less than the reserve is or would be free, or the disk is full";
const OFFSET: Field = (fields::OFFSET, "which byte of the file is the next one");
const COMPLETE: Field = (
    fields::COMPLETE,
    "`?1` when these are the last bytes, `?0` when more will come",
);
const LENGTH: Field = (fields::LENGTH, "bytes of the whole file");
const LIMIT: Field = (
    "upload-limit",
    "what a request may bring, and how long the upload is kept",
);
const MISSING: Field = (
    answer::MISSING,
    "ranges that have not come, of a parallel upload",
);
const CONTENT_DIGEST: Field = ("content-digest", "the digest of the body");
const ETAG: Field = ("etag", "names the version of the file that was written");

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
