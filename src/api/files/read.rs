//! One file read: whole, a range of it, or a window of its lines.

use std::rc::Rc;

use super::path;
use crate::api::coding::{self, Coding};
use crate::api::digest::{self, Hasher};
use crate::api::precondition::{self, Aim, Validators, Verdict};
use crate::api::row::{Answer, Call, Part, Produce, Source};
use crate::app::App;
use crate::error::{Kind, Result};
use crate::fs::file::{self, Opened};
use crate::fs::lines::{Span, Window};
use crate::fs::range::Range;
use crate::fs::version::Version;
use crate::fs::visit::Visitor;
use crate::ring::{Outflow, Step};
use crate::wire::http::date;
use crate::wire::http::query::Query;

pub(super) async fn read(app: Rc<App>, call: Call) -> Result<Answer> {
    let path = path(&call.query)?;
    let window = window(&call.query)?;
    let mut opened = file::open(&path).await?;
    let Some(version) = opened.version().copied() else {
        return endless(&call, opened, window).await;
    };
    let coding = coding(&call, window, &version);
    let mut validators = Validators::of(&version);
    if let Some(coding) = coding {
        validators.etag = validators.etag.map(|etag| coding::tag(&etag, coding));
    }
    match precondition::judge(&call.fields, Aim::Read, Some(&validators)) {
        Verdict::Perform => {}
        Verdict::Unchanged => return Ok(Answer::Unchanged(described(validators.etag, &version))),
        Verdict::Failed => return Err(failed()),
    }
    // Who names a version wants no other, also when it changes on the way.
    if ["if-match", "if-range"]
        .iter()
        .any(|name| is_given(&call, name))
    {
        opened.guard();
    }
    let source = match window {
        Some(Window::Span(span)) => bytes(None, Lines(opened, span)),
        Some(Window::Last(count)) => {
            let offset = opened.last_lines_from(count).await?;
            let length = version.size() - offset;
            bytes(Some(length), Stretch(opened, offset, length))
        }
        None if is_ranged(&call) => stretch(&call, opened, &version)?,
        None if digest::wants(&call.fields) => digested(&call, opened, &version).await?,
        None => bytes(Some(version.size()), Stretch(opened, 0, version.size())),
    };
    let source = finished(source, window, &version);
    Ok(Answer::Bytes(match coding {
        Some(coding) => coding::encode(&app, source, coding),
        None => source,
    }))
}

/// A device, or a file that the kernel makes up: it ends where it ends, and nothing tells its versions apart.
async fn endless(call: &Call, opened: Opened, window: Option<Window>) -> Result<Answer> {
    match precondition::judge(&call.fields, Aim::Read, Some(&Validators::default())) {
        Verdict::Perform => {}
        Verdict::Unchanged => return Ok(Answer::Unchanged(Vec::new())),
        Verdict::Failed => return Err(failed()),
    }
    Ok(Answer::Bytes(match window {
        None => bytes(None, All(opened)),
        Some(Window::Span(span)) => bytes(None, Lines(opened, span)),
        Some(Window::Last(count)) => {
            let text = opened.last_lines_of_stream(count).await?;
            bytes(Some(text.len() as u64), Loaded(text))
        }
    }))
}

/// The coding of the answer. A range and a digest are of the bytes of the file, so those get them as they are.
fn coding(call: &Call, window: Option<Window>, version: &Version) -> Option<Coding> {
    let is_plain = window.is_none() && (is_ranged(call) || digest::wants(&call.fields));
    let is_worthwhile = version.size() >= LEAST_CODED && !is_plain;
    is_worthwhile.then(|| coding::preferred(&call.fields))?
}

/// The range that is asked for, or the whole when the range is conditional on another version or none at all.
fn stretch(call: &Call, opened: Opened, version: &Version) -> Result<Source> {
    let size = version.size();
    let field = call.fields.first("range");
    let field = field.filter(|_| precondition::range_holds(&call.fields, version));
    let range = field.map(|field| Range::parse(field, size)).transpose()?;
    let Some(range) = range.flatten() else {
        return Ok(bytes(Some(size), Stretch(opened, 0, size)));
    };
    let length = range.length();
    let part = Part {
        first: range.first,
        last: range.last,
        total: size,
    };
    Ok(Source {
        part: Some(part),
        ..bytes(Some(length), Stretch(opened, range.first, length))
    })
}

/// The whole with its digest: before the body where that does not keep the client waiting, else behind it.
///
/// A file that changes meanwhile has no digest.
async fn digested(call: &Call, opened: Opened, version: &Version) -> Result<Source> {
    let size = version.size();
    let hasher = Digest(Hasher::default());
    let (mut source, hasher) = if call.head_only {
        let hasher = opened.visit(hasher).await?;
        (bytes(Some(size), Stretch(opened, 0, size)), hasher)
    } else if size <= MOST_LOADED {
        let (loaded, hasher) = opened.load_visited(hasher).await?;
        (bytes(Some(size), Loaded(loaded)), hasher)
    } else {
        let mut source = bytes(None, Digested(opened, hasher));
        source.fields.push(("trailer", REPR_DIGEST.to_owned()));
        (source, None)
    };
    if let Some(Digest(hasher)) = hasher {
        let digest = digest::field(&hasher.finish());
        source.fields.push((REPR_DIGEST, digest));
    }
    Ok(source)
}

/// Adds what every answer tells of the file.
fn finished(mut source: Source, window: Option<Window>, version: &Version) -> Source {
    if window.is_none() {
        source.fields.push(("accept-ranges", "bytes".to_owned()));
    }
    source
        .fields
        .extend(described(Some(version.etag()), version));
    source
}

fn described(etag: Option<String>, version: &Version) -> Vec<(&'static str, String)> {
    let mut fields = vec![
        ("last-modified", date::imf(version.modified())),
        ("vary", "accept-encoding".to_owned()),
    ];
    fields.extend(etag.map(|etag| ("etag", etag)));
    fields
}

fn failed() -> crate::error::Error {
    Kind::PreconditionFailed.told("the file is not the version that the request names")
}

/// Ranges are for GET alone (RFC 9110, section 14.2).
fn is_ranged(call: &Call) -> bool {
    is_given(call, "range") && !call.head_only
}

fn is_given(call: &Call, name: &str) -> bool {
    call.fields.first(name).is_some()
}

fn window(query: &Query) -> Result<Option<Window>> {
    let not_integers = |_| Kind::Malformed.told("start_line and end_line must be integers");
    let start = query.one("start_line").map_err(not_integers)?;
    let end = query.one("end_line").map_err(not_integers)?;
    let last = query.one("last_lines")?;
    Window::parse(start.as_deref(), end.as_deref(), last.as_deref())
}

fn bytes(length: Option<u64>, produce: impl Produce + 'static) -> Source {
    Source {
        media: "application/octet-stream",
        length,
        part: None,
        fields: Vec::new(),
        produce: Box::new(produce),
    }
}

/// A sha-256 that is made where a file is read.
struct Digest(Hasher);

impl Visitor for Digest {
    fn visit(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }
}

/// So many bytes of a file from an offset.
struct Stretch(Opened, u64, u64);

impl Produce for Stretch {
    fn produce<'a>(self: Box<Self>, sink: &'a mut dyn Outflow) -> Step<'a, ()>
    where
        Self: 'a,
    {
        Box::pin(async move { self.0.send(self.1, self.2, sink).await })
    }
}

/// A file to wherever it ends.
struct All(Opened);

impl Produce for All {
    fn produce<'a>(self: Box<Self>, sink: &'a mut dyn Outflow) -> Step<'a, ()>
    where
        Self: 'a,
    {
        Box::pin(async move { self.0.send_all(sink).await })
    }
}

struct Lines(Opened, Span);

impl Produce for Lines {
    fn produce<'a>(self: Box<Self>, sink: &'a mut dyn Outflow) -> Step<'a, ()>
    where
        Self: 'a,
    {
        Box::pin(async move { self.0.send_lines(self.1, sink).await })
    }
}

/// A whole file, with its digest behind it.
struct Digested(Opened, Digest);

impl Produce for Digested {
    fn produce<'a>(self: Box<Self>, sink: &'a mut dyn Outflow) -> Step<'a, ()>
    where
        Self: 'a,
    {
        Box::pin(async move {
            let Digest(hasher) = self.0.send_visited(self.1, sink).await?;
            sink.trailer(REPR_DIGEST, digest::field(&hasher.finish()));
            Ok(())
        })
    }
}

/// Bytes that are all here.
struct Loaded(Vec<u8>);

impl Produce for Loaded {
    fn produce<'a>(self: Box<Self>, sink: &'a mut dyn Outflow) -> Step<'a, ()>
    where
        Self: 'a,
    {
        Box::pin(async move { sink.write(&self.0).await })
    }
}

/// Bytes of a file from which on a coding saves more than it costs.
const LEAST_CODED: u64 = 1024;
/// Bytes of a file that is read before its head goes out, so that its digest can stand there.
const MOST_LOADED: u64 = 1024 * 1024;
const REPR_DIGEST: &str = "repr-digest";
