//! Uploads carried on: bytes appended or put in their place, and the end.

use std::path::Path;
use std::rc::Rc;

use super::fields::{self, COMPLETE, LENGTH, OFFSET};
use super::{PARTIAL_UPLOAD, answer, uncoded};
use crate::api::row::{Answer, Call};
use crate::api::{digest, intake};
use crate::app::App;
use crate::error::{Error, Kind, Result};
use crate::fs::resumable::{Finished, Found, Ongoing, Part};

/// `PATCH /v1/uploads/{id}`.
pub(super) async fn append(app: Rc<App>, call: Call) -> Result<Answer> {
    judge_media(&call)?;
    uncoded(&call.fields)?;
    let missing = |name: &str| Kind::Malformed.told(format!("{name} is required"));
    let offset = fields::integer(&call.fields, OFFSET).ok_or_else(|| missing(OFFSET))?;
    let said = fields::boolean(&call.fields, COMPLETE);
    let also = digest::expected(&call.fields, "repr-digest")?;
    let ongoing = match app.uploads.find(&call.id)? {
        Found::Open(ongoing) => ongoing,
        Found::Finished(finished) => {
            let completes = said.unwrap_or(false);
            return again(&finished, offset, completes, call.body.remaining());
        }
    };
    // The parts of a parallel upload are in no order, so none of them is the last.
    let completes = match said {
        None if !ongoing.is_parallel() => return Err(missing(COMPLETE)),
        said => said.unwrap_or(false),
    };
    if also.is_some() && !completes {
        return Err(
            Kind::Malformed.told("repr-digest is for the request that completes the upload")
        );
    }
    let part = Part {
        offset,
        length: fields::integer(&call.fields, LENGTH),
        completes,
    };
    let declared = call.body.remaining();
    let path = Path::new(ongoing.path());
    let mut body = intake::part(&app, "uploads.append", path, &call.fields, call.body)?;
    match app
        .uploads
        .append(&ongoing, part, also, body.as_mut())
        .await
    {
        Ok(Some(finished)) => Ok(answer::published(&finished)),
        Ok(None) => Ok(Answer::DoneWith(fields::state(&ongoing.status()))),
        Err(error) => match app.uploads.finished(&ongoing.id) {
            // It was published while we waited for our turn.
            Some(finished) if error.kind() == Kind::UnknownUpload => {
                again(&finished, offset, completes, declared)
            }
            _ => Err(told_where(error, &ongoing)),
        },
    }
}

/// `POST /v1/uploads/{id}/finish`.
pub(super) async fn finish(app: Rc<App>, call: Call) -> Result<Answer> {
    let also = digest::expected(&call.fields, "repr-digest")?;
    let finished = match app.uploads.find(&call.id)? {
        Found::Finished(finished) => finished,
        Found::Open(ongoing) => app.uploads.finish(&ongoing, also).await?,
    };
    Ok(answer::published(&finished))
}

/// The answer to a request for an upload that was published before: the one that was given then, if nothing is asked.
fn again(
    finished: &Finished,
    offset: u64,
    completes: bool,
    declared: Option<u64>,
) -> Result<Answer> {
    let refused = |kind: Kind, sentence: &'static str| {
        let error = kind.told(sentence).with_number(OFFSET, finished.length);
        Err(error.with_field(COMPLETE, "?1"))
    };
    match declared {
        Some(0) if completes && offset == finished.length => Ok(answer::published(finished)),
        Some(0) => refused(Kind::UploadCompleted, "the upload is complete"),
        _ => refused(
            Kind::InconsistentLength,
            "the upload is complete; no bytes can be added",
        ),
    }
}

/// Adds how far the upload is now to what ended a request without touching the rest.
fn told_where(error: Error, ongoing: &Ongoing) -> Error {
    let is_told = error
        .fields()
        .iter()
        .any(|(name, _)| *name == OFFSET || *name == COMPLETE);
    match error.kind() {
        Kind::DiskFull | Kind::ClientStalled if !is_told => {
            error.with_number(OFFSET, ongoing.offset())
        }
        _ => error,
    }
}

/// Refuses a patch that is none of ours (RFC 5789, section 2.2); one that is not said to be any is taken for one.
fn judge_media(call: &Call) -> Result<()> {
    let Some(media) = call.fields.first("content-type") else {
        return Ok(());
    };
    let media = media.split(|byte| *byte == b';').next().unwrap_or_default();
    if media
        .trim_ascii()
        .eq_ignore_ascii_case(PARTIAL_UPLOAD.as_bytes())
    {
        return Ok(());
    }
    Err(Kind::UnsupportedMedia.told(format!("the content-type must be {PARTIAL_UPLOAD}")))
}
