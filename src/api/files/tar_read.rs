//! A tree read as a tar archive.

use std::rc::Rc;

use super::path;
use crate::api::row::{Answer, Call, Produce, Source};
use crate::app::App;
use crate::error::{Kind, Result};
use crate::fs::pack::{self, Pack};
use crate::ring::{Outflow, Step};
use crate::wire::http::query::Query;

pub(super) async fn read(app: Rc<App>, call: Call) -> Result<Answer> {
    let path = path(&call.query)?;
    unfiltered(&call.query)?;
    let limits = &app.config.limits;
    let limits = pack::Limits {
        members: limits.max_tar_members,
        bytes: limits.max_tar_bytes,
    };
    let pack = pack::plan(&path, pack::Options::whole(limits)).await?;
    Ok(Answer::Bytes(Source {
        media: "application/x-tar",
        length: Some(pack.length()),
        part: None,
        fields: Vec::new(),
        produce: Box::new(Archive(pack)),
    }))
}

/// Refuses a choice among the members: an archive that holds more than was asked for gives away what was left out.
fn unfiltered(query: &Query) -> Result<()> {
    match FILTERS.iter().find(|key| query.all(key).next().is_some()) {
        None => Ok(()),
        Some(key) => Err(Kind::Malformed.told(format!(
            "{key} is not known here: the archive always holds the whole tree"
        ))),
    }
}

/// Ways to choose among members that other agents have.
const FILTERS: &[&str] = &["include", "exclude"];

struct Archive(Pack);

impl Produce for Archive {
    fn produce<'a>(self: Box<Self>, sink: &'a mut dyn Outflow) -> Step<'a, ()>
    where
        Self: 'a,
    {
        Box::pin(async move { self.0.send(sink).await })
    }
}
