//! A directory listed: one page as a document, or all of it as lines while it is read.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::Serialize;

use super::document::{EntryDocument, exact};
use super::{number, path};
use crate::api::contract::{Shape, either};
use crate::api::row::{Answer, Call, Produce, Source};
use crate::error::{Kind, Result};
use crate::fs::list::{Ask, Item, Listing, MOST_DEPTH, Progress};
use crate::ring::{Outflow, Step};
use crate::wire::base64;
use crate::wire::http::head::Fields;
use crate::wire::http::query::Query;

pub(super) async fn list(call: Call) -> Result<Answer> {
    let by_lines = wants_lines(&call.fields);
    let query = &call.query;
    let limit = match number(query, "limit", 1, u64::MAX)? {
        Some(limit) if by_lines => limit,
        Some(limit) if limit <= MOST_ENTRIES => limit,
        Some(_) => {
            let told = format!("limit is at most {MOST_ENTRIES}, except in lines");
            return Err(Kind::Malformed.told(told));
        }
        None if by_lines => u64::MAX,
        None => ENTRIES,
    };
    sorted(query)?;
    let ask = Ask {
        path: path(query)?,
        depth: match number(query, "depth", 1, MOST_DEPTH as u64)? {
            // Within a small bound, so it fits.
            Some(depth) => usize::try_from(depth).unwrap_or(MOST_DEPTH),
            None => 1,
        },
        hidden: query.flag("hidden", true)?,
        follow: query.flag("follow", false)?,
        detail: query.flag("detail", false)?,
        after: after(query)?,
        limit,
    };
    let told = ask.path.to_string_lossy().into_owned();
    let listing = Listing::open(ask).await?;
    if by_lines {
        return Ok(Answer::Bytes(Source {
            media: LINES,
            length: None,
            part: None,
            fields: vec![("vary", "accept".into())],
            produce: Box::new(Lines(listing)),
        }));
    }
    let document = page(listing, &told).await?;
    Ok(Answer::JsonWith(document, vec![("vary", "accept".into())]))
}

/// Refuses an order that is not the one there is.
fn sorted(query: &Query) -> Result<()> {
    match query.one("sort")?.as_deref() {
        None | Some("name") => Ok(()),
        Some(_) => Err(Kind::Malformed.told("sort must be name")),
    }
}

/// The entry behind which the listing begins, in either form.
fn after(query: &Query) -> Result<Vec<u8>> {
    match (query.one("after")?, query.one("after_b64")?) {
        (None, None) => Ok(Vec::new()),
        (Some(after), None) => Ok(after.into_bytes()),
        (None, Some(after)) => {
            base64::decode(&after).map_err(|_| Kind::Malformed.told("after_b64 is not base64"))
        }
        (Some(_), Some(_)) => Err(Kind::Malformed.told("after and after_b64 are both given")),
    }
}

/// True when the client names the media type of lines among those that it takes.
fn wants_lines(fields: &Fields) -> bool {
    let values = fields.all("accept");
    let mut ranges = values.flat_map(|value| value.split(|byte| *byte == b','));
    ranges.any(|range| {
        let mut parts = range.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
        let name = parts.next().unwrap_or_default();
        let is_refused = |part: &[u8]| {
            let weight = part.strip_prefix(b"q=").or(part.strip_prefix(b"Q="));
            weight.is_some_and(|weight| weight.iter().all(|byte| matches!(byte, b'0' | b'.')))
        };
        name.eq_ignore_ascii_case(LINES.as_bytes()) && !parts.any(is_refused)
    })
}

/// One page as a document. It ends before its limit when its entries are long.
async fn page(listing: Listing, path: &str) -> Result<Vec<u8>> {
    let path = serde_json::to_string(path).unwrap_or_default();
    let mut document = format!("{{\"path\":{path},\"entries\":[").into_bytes();
    let start = document.len();
    let (mut listing, mut progress) = (listing, Progress::More);
    while progress == Progress::More && document.len() < MOST_BYTES {
        (listing, document, progress) = listing.more(document, element).await?;
    }
    if document.len() > start {
        // The comma behind the last one.
        document.pop();
    }
    let next = match progress {
        Progress::Complete => None,
        Progress::Limited(last) => Some(last),
        Progress::More => Some(listing.last().to_vec()),
    };
    let end = serde_json::to_vec(&Next::of(next.as_deref())).unwrap_or_default();
    document.extend_from_slice(b"],");
    document.extend_from_slice(end.get(1..).unwrap_or_default());
    Ok(document)
}

/// One page of a directory.
#[derive(JsonSchema)]
#[schemars(rename = "ListResponse")]
#[expect(dead_code, reason = "it describes; `page` writes it entry by entry")]
pub(super) struct ListPage<'a> {
    /// As it was asked for.
    path: String,
    entries: Vec<EntryDocument<'a>>,
    #[schemars(flatten)]
    next: Next<'a>,
}

/// A listing as lines, described.
pub(super) const LISTED: Shape = Shape::lines(
    either::<EntryDocument<'_>, End<'_>>,
    "an entry a line; only the last line has complete",
);

/// Where to go on.
#[derive(Serialize, JsonSchema)]
struct Next<'a> {
    /// What `after` has to be for the rest; null when all has been told.
    next: Option<Cow<'a, str>>,
    /// What `after_b64` has to be, when that is no text.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_b64: Option<String>,
}

impl<'a> Next<'a> {
    fn of(path: Option<&'a [u8]>) -> Self {
        Self {
            next: path.map(String::from_utf8_lossy),
            next_b64: path.and_then(exact),
        }
    }
}

/// The last line.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ListEnd")]
struct End<'a> {
    /// False when the limit was reached.
    complete: bool,
    /// Entries that were told.
    count: u64,
    #[serde(flatten)]
    next: Next<'a>,
}

fn element(item: &Item, into: &mut Vec<u8>) {
    write(item, into);
    into.push(b',');
}

fn line(item: &Item, into: &mut Vec<u8>) {
    write(item, into);
    into.push(b'\n');
}

fn write(item: &Item, into: &mut Vec<u8>) {
    let written = serde_json::to_writer(into, &EntryDocument::from(item));
    written.expect("texts and numbers are always JSON");
}

/// All entries as lines, and one that says that nothing is missing.
struct Lines(Listing);

impl Produce for Lines {
    fn produce<'a>(self: Box<Self>, sink: &'a mut dyn Outflow) -> Step<'a, ()>
    where
        Self: 'a,
    {
        Box::pin(async move {
            let mut listing = self.0;
            let mut text = Vec::new();
            let next = loop {
                let progress;
                (listing, text, progress) = listing.more(text, line).await?;
                sink.write(&text).await?;
                text.clear();
                match progress {
                    Progress::More => sink.flush().await?,
                    Progress::Complete => break None,
                    Progress::Limited(last) => break Some(last),
                }
            };
            let end = End {
                complete: next.is_none(),
                count: listing.told(),
                next: Next::of(next.as_deref()),
            };
            let mut end = serde_json::to_vec(&end).unwrap_or_default();
            end.push(b'\n');
            sink.write(&end).await
        })
    }
}

const LINES: &str = "application/x-ndjson";
/// Entries of a page unless another number is asked for.
const ENTRIES: u64 = 1000;
/// Entries of a page at most.
const MOST_ENTRIES: u64 = 10_000;
/// Bytes after which a page ends.
const MOST_BYTES: usize = 4 * 1024 * 1024;
