//! One file written.

use std::rc::Rc;

use super::{choice, path};
use crate::api::intake;
use crate::api::row::{Answer, Call};
use crate::app::App;
use crate::error::Result;
use crate::fs::upload::{self, Upload};

pub(super) async fn write(app: Rc<App>, call: Call) -> Result<Answer> {
    let upload = Upload {
        path: path(&call.query)?,
        mode: call
            .query
            .one("mode")?
            .map(|mode| upload::parse_mode(&mode))
            .transpose()?,
        in_place: choice(&call.query, "replace", "atomic", "in_place")?,
        reserve: app.config.limits.disk_reserve_bytes,
        spool_dir: app.config.limits.spool_dir.clone(),
    };
    let mut body = intake::open(&app, "file.write", &upload.path, &call.fields, call.body)?;
    upload::write(upload, body.as_mut()).await?;
    Ok(Answer::Done)
}
