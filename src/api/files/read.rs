//! One file read: whole, a range of it, or a window of its lines.

use std::time::{SystemTime, UNIX_EPOCH};

use super::path;
use crate::api::row::{Answer, Call, Part, Produce, Source};
use crate::error::{Kind, Result};
use crate::fs::file::{self, Opened};
use crate::fs::lines::Window;
use crate::fs::range::Range;
use crate::ring::{Outflow, Step};
use crate::wire::http::date;
use crate::wire::http::head::Fields;

pub(super) async fn read(call: Call) -> Result<Answer> {
    let path = path(&call.query)?;
    let not_integers = |_| Kind::Malformed.told("start_line and end_line must be integers");
    let start = call.query.one("start_line").map_err(not_integers)?;
    let end = call.query.one("end_line").map_err(not_integers)?;
    let window = Window::parse(start.as_deref(), end.as_deref())?;
    let opened = file::open(&path).await?;
    if let Some(window) = window {
        return Ok(bytes(None, None, Vec::new(), Lines(opened, window)));
    }
    let Some(size) = opened.size() else {
        return Ok(bytes(None, None, Vec::new(), Whole(opened, None)));
    };
    let range = range(&call.fields, &opened, size)?;
    let part = range.map(|range| Part {
        first: range.first,
        last: range.last,
        total: size,
    });
    let length = range.map_or(size, Range::length);
    let mut fields = vec![
        ("accept-ranges", "bytes".to_owned()),
        ("last-modified", date::imf(opened.modified())),
    ];
    fields.extend(opened.etag().map(|etag| ("etag", etag)));
    Ok(bytes(Some(length), part, fields, Whole(opened, range)))
}

/// The range that is asked for, unless it is conditional on another version of the file.
fn range(fields: &Fields, opened: &Opened, size: u64) -> Result<Option<Range>> {
    let Some(range) = fields.first("range") else {
        return Ok(None);
    };
    match fields.first("if-range") {
        Some(condition) if !is_current(condition, opened) => Ok(None),
        _ => Range::parse(range, size),
    }
}

/// True when an `if-range` value names the file as it is now (RFC 9110, section 13.1.5).
fn is_current(condition: &[u8], opened: &Opened) -> bool {
    let condition = condition.trim_ascii();
    if condition.starts_with(b"\"") {
        return opened
            .etag()
            .is_some_and(|etag| etag.as_bytes() == condition);
    }
    // A date is as coarse as a second: within the last one the file may have changed twice.
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |now| now.as_secs());
    let settled = i64::try_from(now).is_ok_and(|now| opened.modified() < now - 1);
    settled && date::imf(opened.modified()).as_bytes() == condition
}

fn bytes(
    length: Option<u64>,
    part: Option<Part>,
    fields: Vec<(&'static str, String)>,
    produce: impl Produce + 'static,
) -> Answer {
    Answer::Bytes(Source {
        media: "application/octet-stream",
        length,
        part,
        fields,
        produce: Box::new(produce),
    })
}

struct Whole(Opened, Option<Range>);

impl Produce for Whole {
    fn produce<'a>(self: Box<Self>, sink: &'a mut dyn Outflow) -> Step<'a, ()>
    where
        Self: 'a,
    {
        Box::pin(async move { self.0.send(self.1, sink).await })
    }
}

struct Lines(Opened, Window);

impl Produce for Lines {
    fn produce<'a>(self: Box<Self>, sink: &'a mut dyn Outflow) -> Step<'a, ()>
    where
        Self: 'a,
    {
        Box::pin(async move { self.0.send_lines(self.1, sink).await })
    }
}
