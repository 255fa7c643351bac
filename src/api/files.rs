//! Operations on files: one file read or written, a tree read or written as a tar archive.

use std::path::PathBuf;
use std::rc::Rc;
use std::time::{SystemTime, UNIX_EPOCH};

use super::row::{Access, Answer, Call, Form, Method, Part, Produce, Row, Run, Source};
use crate::app::App;
use crate::error::{Kind, Result};
use crate::fs::extract;
use crate::fs::file::{self, Opened};
use crate::fs::lines::Window;
use crate::fs::pack::{self, Pack};
use crate::fs::range::Range;
use crate::fs::upload::{self, Upload};
use crate::ring::{Outflow, Step};
use crate::wire::http::date;
use crate::wire::http::head::Fields;
use crate::wire::http::query::Query;

/// The rows of this room.
pub static ROWS: &[Row] = &[
    Row {
        name: "file.read",
        method: Method::Get,
        path: "/v1/fs/file",
        access: Access::Bearer,
        form: Form::Text,
        about: "the bytes of a file, a range of them, or a window of its lines",
        errors: &[
            Kind::Malformed,
            Kind::NotFound,
            Kind::RangeNotSatisfiable,
            Kind::Internal,
        ],
        run: |_, call| -> Run { Box::pin(read_file(call)) },
    },
    Row {
        name: "file.write",
        method: Method::Put,
        path: "/v1/fs/file",
        access: Access::Bearer,
        form: Form::Text,
        about: "writes a file, whole or not at all, making the directories above it",
        errors: &[
            Kind::Malformed,
            Kind::TooLarge,
            Kind::UnsupportedCoding,
            Kind::DiskFull,
            Kind::Internal,
        ],
        run: |app, call| -> Run { Box::pin(write_file(app, call)) },
    },
    Row {
        name: "tar.read",
        method: Method::Get,
        path: "/v1/fs/tar",
        access: Access::Bearer,
        form: Form::Text,
        about: "a directory with all below it, as a tar archive",
        errors: &[
            Kind::Malformed,
            Kind::NotFound,
            Kind::TooLarge,
            Kind::Internal,
        ],
        run: |app, call| -> Run { Box::pin(read_tar(app, call)) },
    },
    Row {
        name: "tar.write",
        method: Method::Put,
        path: "/v1/fs/tar",
        access: Access::Bearer,
        form: Form::Text,
        about: "extracts a tar archive below a directory, after checking all of it",
        errors: &[
            Kind::Malformed,
            Kind::TooLarge,
            Kind::UnsupportedCoding,
            Kind::DiskFull,
            Kind::Internal,
        ],
        run: |app, call| -> Run { Box::pin(write_tar(app, call)) },
    },
];

async fn read_file(call: Call) -> Result<Answer> {
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

async fn write_file(app: Rc<App>, mut call: Call) -> Result<Answer> {
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
    uncoded(&call.fields)?;
    upload::write(upload, call.body.as_mut()).await?;
    Ok(Answer::Done)
}

async fn read_tar(app: Rc<App>, call: Call) -> Result<Answer> {
    let path = path(&call.query)?;
    unfiltered(&call.query)?;
    let limits = &app.config.limits;
    let limits = pack::Limits {
        members: limits.max_tar_members,
        bytes: limits.max_tar_bytes,
    };
    let pack = pack::plan(&path, limits).await?;
    Ok(Answer::Bytes(Source {
        media: "application/x-tar",
        length: Some(pack.length()),
        part: None,
        fields: Vec::new(),
        produce: Box::new(Archive(pack)),
    }))
}

async fn write_tar(app: Rc<App>, mut call: Call) -> Result<Answer> {
    let root = path(&call.query)?;
    if !root.is_absolute() {
        return Err(Kind::Malformed.told("path must be absolute for extraction"));
    }
    let unspooled = choice(&call.query, "spool", "on", "off")?;
    uncoded(&call.fields)?;
    let limits = &app.config.limits;
    let limits = extract::Limits {
        members: limits.max_tar_members,
        bytes: limits.max_tar_bytes,
        reserve: limits.disk_reserve_bytes,
        spool_dir: limits.spool_dir.clone(),
        spool_memory: limits.spool_memory_bytes,
    };
    match unspooled {
        false => extract::spooled(&root, call.body.as_mut(), &limits).await?,
        true => extract::streamed(&root, call.body.as_mut(), &limits).await?,
    }
    Ok(Answer::Done)
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

/// Refuses a body in a content coding: bodies are stored as they are sent.
fn uncoded(fields: &Fields) -> Result<()> {
    let coded = |value: &[u8]| !value.trim_ascii().eq_ignore_ascii_case(b"identity");
    if fields.all("content-encoding").any(coded) {
        return Err(
            Kind::UnsupportedCoding.told("the body is in a content coding that is not known here")
        );
    }
    Ok(())
}

fn path(query: &Query) -> Result<PathBuf> {
    match query.one("path") {
        Ok(Some(path)) => Ok(PathBuf::from(path)),
        _ => Err(Kind::Malformed.told("path query parameter is required")),
    }
}

/// True when `key` has the value `other`, false when it has the `usual` one or is absent.
fn choice(query: &Query, key: &str, usual: &str, other: &str) -> Result<bool> {
    match query.one(key)? {
        None => Ok(false),
        Some(value) if value == usual => Ok(false),
        Some(value) if value == other => Ok(true),
        Some(_) => Err(Kind::Malformed.told(format!("{key} must be {usual} or {other}"))),
    }
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

/// Ways to choose among members that other agents have.
const FILTERS: &[&str] = &["include", "exclude"];

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

struct Archive(Pack);

impl Produce for Archive {
    fn produce<'a>(self: Box<Self>, sink: &'a mut dyn Outflow) -> Step<'a, ()>
    where
        Self: 'a,
    {
        Box::pin(async move { self.0.send(sink).await })
    }
}
