//! Entries made, moved and removed.

use std::path::PathBuf;
use std::rc::Rc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{json, named, path};
use crate::api::body;
use crate::api::row::{Answer, Call};
use crate::app::App;
use crate::error::{Kind, Result};
use crate::fs::make::{self, Make};
use crate::fs::remove::{self, Remove};
use crate::fs::rename::{self, Move};
use crate::fs::upload;

pub(super) async fn make(app: Rc<App>, call: Call) -> Result<Answer> {
    let query = &call.query;
    let mode = query.one("mode")?;
    let make = Make {
        path: path(query)?,
        mode: mode.map(|mode| upload::parse_mode(&mode)).transpose()?,
        parents: query.flag("parents", false)?,
        reserve: app.config.limits.disk_reserve_bytes,
    };
    match make::make(make).await? {
        true => Ok(Answer::Created(Vec::new())),
        false => Ok(Answer::Done),
    }
}

/// An entry and its new path.
#[derive(Deserialize, JsonSchema)]
pub(super) struct MoveRequest {
    /// What is moved: the entry itself, not what a link leads to.
    from: String,
    /// Its new path, name included.
    to: String,
    /// Replaces what has the name.
    #[serde(default)]
    replace: bool,
    /// Makes the directories above the new path.
    #[serde(default)]
    parents: bool,
}

pub(super) async fn rename(app: Rc<App>, mut call: Call) -> Result<Answer> {
    if !body::is_json(call.fields.first("content-type")) {
        return Err(Kind::Malformed.told("the content type is not JSON"));
    }
    let bytes = body::read(call.body.as_mut(), MOST_BODY).await?;
    let request: MoveRequest = body::object(&bytes, "move request")?;
    let ask = Move {
        from: named(request.from, "from")?,
        to: named(request.to, "to")?,
        replace: request.replace,
        parents: request.parents,
        reserve: app.config.limits.disk_reserve_bytes,
    };
    rename::run(ask).await?;
    Ok(Answer::Done)
}

/// How much is gone.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "RemoveResponse")]
pub(super) struct Removed {
    /// Entries, directories included.
    removed: u64,
}

pub(super) async fn remove(app: Rc<App>, call: Call) -> Result<Answer> {
    let query = &call.query;
    let missing_is_fine = match query.one("missing")?.as_deref() {
        None => false,
        Some("ok") => true,
        Some(_) => return Err(Kind::Malformed.told("missing must be ok")),
    };
    let remove = Remove {
        path: path(query)?,
        recursive: query.flag("recursive", false)?,
        missing_is_fine,
        needed: vec![PathBuf::from("."), app.config.limits.spool_dir.clone()],
    };
    let removed = remove::remove(remove).await?;
    json(&Removed { removed })
}

/// Bytes of a request: two paths, and room for how they are written.
const MOST_BODY: u64 = 64 * 1024;
