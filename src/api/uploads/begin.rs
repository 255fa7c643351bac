//! Uploads begun: by a PUT of a file that says so, or at the route of their own.

use std::rc::Rc;

use super::fields::{self, COMPLETE, LENGTH, VERSION};
use super::{answer, uncoded};
use crate::api::files::asked;
use crate::api::row::{Answer, Call};
use crate::api::{digest, intake};
use crate::app::App;
use crate::error::{Kind, Result};
use crate::fs::resumable::{Part, Plan};

/// True when a PUT of a file begins an upload: it brings not all of it, or can go on when its connection breaks.
///
/// A client that brings everything and does not say that it speaks the draft has no way to hear of the upload: its
/// request is as good as any other PUT.
pub(in crate::api) fn is_begun_by(call: &Call) -> bool {
    match fields::boolean(&call.fields, COMPLETE) {
        None => false,
        Some(false) => true,
        Some(true) => is_in_the_know(call) && uncoded(&call.fields).is_ok(),
    }
}

/// Begins an upload, with the bytes that the request brings.
pub(in crate::api) async fn begin(app: Rc<App>, mut call: Call) -> Result<Answer> {
    let parallel = call.query.flag("parallel", false)?;
    let completes = fields::boolean(&call.fields, COMPLETE).unwrap_or(false);
    let length = fields::integer(&call.fields, LENGTH);
    if parallel && length.is_none() {
        return Err(Kind::Malformed.told("a parallel upload needs upload-length"));
    }
    let upload = asked(&app, &call).await?;
    if upload.in_place {
        return Err(Kind::Malformed.told("an upload cannot be written in place"));
    }
    uncoded(&call.fields)?;
    let declared = call.body.remaining();
    let implied = declared.filter(|_| completes);
    if let (Some(length), Some(brought)) = (length, declared)
        && (brought > length || implied.is_some_and(|all| all != length))
    {
        return Err(Kind::InconsistentLength.told(format!(
            "the request brings {brought} bytes of an upload of {length}"
        )));
    }
    let plan = Plan {
        length: length.or(implied),
        parallel,
        digest: digest::expected(&call.fields, "repr-digest")?,
    };
    let path = upload.path.clone();
    let ongoing = app.uploads.create(upload, plan).await?;
    let mut about = fields::about(&app, fields::version(&call.fields));
    about.push(fields::location(&ongoing.id));
    let is_known = is_in_the_know(&call) && call.body.announce(&about).await.unwrap_or(false);
    let part = Part {
        offset: 0,
        length,
        completes,
    };
    let body = intake::part(&app, "uploads.create", &path, &call.fields, call.body);
    let outcome = match body {
        Ok(mut body) => {
            app.uploads
                .append(&ongoing, part, None, body.as_mut())
                .await
        }
        Err(error) => Err(error),
    };
    match outcome {
        Ok(Some(finished)) => Ok(answer::published(&finished)),
        Ok(None) => {
            about.extend(fields::state(&ongoing.status()));
            Ok(Answer::Created(about))
        }
        Err(error) => {
            // Nobody can go on with an upload that nobody has heard of.
            if !is_known {
                app.uploads.scrap(&ongoing);
            }
            Err(error)
        }
    }
}

/// True when the client speaks the draft, so that it expects interim responses that others stumble over.
fn is_in_the_know(call: &Call) -> bool {
    fields::integer(&call.fields, VERSION).is_some()
}
