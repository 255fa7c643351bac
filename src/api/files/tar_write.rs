//! A tar archive extracted below a directory.

use std::rc::Rc;

use super::tar_options::components;
use super::{choice, path};
use crate::api::intake;
use crate::api::row::{Answer, Call};
use crate::app::App;
use crate::error::{Kind, Result};
use crate::fs::extract::{self, Terms};
use crate::wire::http::query::Query;

pub(super) async fn write(app: Rc<App>, call: Call) -> Result<Answer> {
    let root = path(&call.query)?;
    if !root.is_absolute() {
        return Err(Kind::Malformed.told("path must be absolute for extraction"));
    }
    let unspooled = choice(&call.query, "spool", "on", "off")?;
    let terms = terms(&call.query)?;
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
        false => extract::spooled(&root, body.as_mut(), &limits, terms).await?,
        true => extract::streamed(&root, body.as_mut(), &limits, terms).await?,
    }
    Ok(Answer::Done)
}

fn terms(query: &Query) -> Result<Terms> {
    let strip = match query.one("strip")? {
        None => 0,
        Some(text) => components(text.parse().ok())?,
    };
    let owner = choice(query, "owner", "drop", "keep")?;
    let xattrs = query.flag("xattrs", false)?;
    if owner && !extract::may_give_away() {
        return Err(Kind::Denied.told("owner=keep needs a daemon that may change owners"));
    }
    Ok(Terms {
        strip,
        owner,
        xattrs,
    })
}
