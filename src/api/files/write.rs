//! One file written.

use std::rc::Rc;

use super::{choice, owner, path};
use crate::api::intake;
use crate::api::precondition::{self, Aim, Validators, Verdict};
use crate::api::row::{Answer, Call};
use crate::api::uploads;
use crate::app::App;
use crate::error::{Kind, Result};
use crate::fs::upload::{self, Condition, Found, Upload};
use crate::fs::version::Version;
use crate::wire::http::date;
use crate::wire::http::head::Fields;

pub(super) async fn write(app: Rc<App>, call: Call) -> Result<Answer> {
    if uploads::is_begun_by(&call) {
        return uploads::begin(app, call).await;
    }
    let upload = asked(&app, &call).await?;
    let mut body = intake::open(&app, "file.write", &upload.path, &call.fields, call.body)?;
    let version = upload::write(upload, body.as_mut()).await?;
    let Some(version) = version else {
        return Ok(Answer::Done);
    };
    Ok(Answer::DoneWith(told(&version).to_vec()))
}

/// The write that a request asks for.
///
/// # Errors
/// `Malformed`, `UnknownUser`, `UnknownGroup`.
pub(in crate::api) async fn asked(app: &App, call: &Call) -> Result<Upload> {
    let query = &call.query;
    let mode = query.one("mode")?;
    let mtime = query.one("mtime")?;
    Ok(Upload {
        path: path(query)?,
        mode: mode.map(|mode| upload::parse_mode(&mode)).transpose()?,
        mtime: mtime.map(|mtime| upload::parse_mtime(&mtime)).transpose()?,
        in_place: choice(query, "replace", "atomic", "in_place")?,
        sparse: query.flag("sparse", false)?,
        sync: query.flag("fsync", false)?,
        owner: owner::find(query.one("owner")?).await?,
        condition: condition(&call.fields),
        reserve: app.config.limits.disk_reserve_bytes,
        spool_dir: app.config.limits.spool_dir.clone(),
    })
}

/// What is told of a file that was written.
pub(in crate::api) fn told(version: &Version) -> [(&'static str, String); 2] {
    [
        ("etag", version.etag()),
        ("last-modified", date::imf(version.modified())),
    ]
}

/// The preconditions of the request, to be judged wherever it is time to.
fn condition(fields: &Fields) -> Condition {
    if CONDITIONS.iter().all(|name| fields.first(name).is_none()) {
        return Condition::default();
    }
    let fields = fields.clone();
    Condition::new(move |found| {
        let validators = match found {
            Found::Nothing => None,
            Found::Unversioned => Some(Validators::default()),
            Found::File(version) => Some(Validators::of(&version)),
        };
        match precondition::judge(&fields, Aim::Change, validators.as_ref()) {
            Verdict::Failed => Err(refused(found)),
            Verdict::Perform | Verdict::Unchanged => Ok(()),
        }
    })
}

fn refused(found: Found) -> crate::error::Error {
    Kind::PreconditionFailed.told(match found {
        Found::Nothing => "no file is at path, where the request says that one must be",
        _ => "what is at path is not what the request says it must be",
    })
}

/// The fields that make a change conditional (RFC 9110, section 13.1).
const CONDITIONS: &[&str] = &["if-match", "if-none-match", "if-unmodified-since"];
