//! A tree, or what is wanted of it, read as a tar archive.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::path;
use super::tar_options::{Wishes, must_be_json};
use crate::api::row::{Answer, Call, Produce, Source};
use crate::api::{body, coding};
use crate::app::App;
use crate::error::{Kind, Result};
use crate::fs::pack::{self, Limits, Options, Pack};
use crate::ring::{Outflow, Step, pool};
use crate::wire::http::head::Fields;

/// The tree below the path of the query.
pub(super) async fn read(app: Rc<App>, call: Call) -> Result<Answer> {
    let path = path(&call.query)?;
    let wishes = Wishes::of(&call.query)?;
    let options = options(wishes, limits(&app)).await?;
    answer(&app, &path, options, &call.fields).await
}

/// The names that the body lists.
pub(super) async fn pick(app: Rc<App>, mut call: Call) -> Result<Answer> {
    must_be_json(call.fields.first("content-type"))?;
    let most = app.config.limits.max_body_bytes.min(MOST_JSON);
    let bytes = body::read(&mut *call.body, most).await?;
    let limits = limits(&app);
    let read = move || {
        let (path, wishes) = Wishes::read(&bytes)?;
        Ok((PathBuf::from(path), wishes.options(limits)?))
    };
    let (path, options) = pool::run(read).await??;
    if path.as_os_str().is_empty() {
        return Err(Kind::NotFound.told("no such directory"));
    }
    answer(&app, &path, options, &call.fields).await
}

async fn options(wishes: Wishes, limits: Limits) -> Result<Options> {
    if wishes.is_plain() {
        return wishes.options(limits);
    }
    // Patterns become state machines, which can take some milliseconds.
    pool::run(move || wishes.options(limits)).await?
}

async fn answer(app: &App, path: &Path, options: Options, fields: &Fields) -> Result<Answer> {
    let pack = pack::plan(path, options).await?;
    let source = Source {
        media: "application/x-tar",
        length: Some(pack.length()),
        part: None,
        fields: vec![("vary", "accept-encoding".to_owned())],
        produce: Box::new(Archive(pack)),
    };
    Ok(Answer::Bytes(match coding::preferred(fields) {
        Some(coding) => coding::encode(app, source, coding),
        None => source,
    }))
}

fn limits(app: &App) -> Limits {
    Limits {
        members: app.config.limits.max_tar_members,
        bytes: app.config.limits.max_tar_bytes,
    }
}

struct Archive(Pack);

impl Produce for Archive {
    fn produce<'a>(self: Box<Self>, sink: &'a mut dyn Outflow) -> Step<'a, ()>
    where
        Self: 'a,
    {
        Box::pin(async move { self.0.send(sink).await })
    }
}

/// Bytes of a list of names.
const MOST_JSON: u64 = 8 * 1024 * 1024;
