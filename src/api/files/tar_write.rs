//! A tar archive extracted below a directory.

use std::rc::Rc;

use super::{choice, path};
use crate::api::intake;
use crate::api::row::{Answer, Call};
use crate::app::App;
use crate::error::{Kind, Result};
use crate::fs::extract;

pub(super) async fn write(app: Rc<App>, call: Call) -> Result<Answer> {
    let root = path(&call.query)?;
    if !root.is_absolute() {
        return Err(Kind::Malformed.told("path must be absolute for extraction"));
    }
    let unspooled = choice(&call.query, "spool", "on", "off")?;
    let mut body = intake::open(&app, "tar.write", &root, &call.fields, call.body)?;
    let limits = &app.config.limits;
    let limits = extract::Limits {
        members: limits.max_tar_members,
        bytes: limits.max_tar_bytes,
        reserve: limits.disk_reserve_bytes,
        spool_dir: limits.spool_dir.clone(),
        spool_memory: limits.spool_memory_bytes,
    };
    match unspooled {
        false => extract::spooled(&root, body.as_mut(), &limits).await?,
        true => extract::streamed(&root, body.as_mut(), &limits).await?,
    }
    Ok(Answer::Done)
}
