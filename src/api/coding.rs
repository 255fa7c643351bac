//! Content codings of bodies: which ones a request has, which one a client prefers, and a response in it.

use std::fs::File;
use std::future::Future;
use std::pin::Pin;

use super::row::{Produce, Source};
use crate::app::App;
use crate::app::coding::Claim;
use crate::error::{Error, Kind, Result};
use crate::ring::{self, Frame, Outflow, Step, buffers, file, pool};
pub use crate::wire::coding::Coding;
use crate::wire::coding::{Encoder, Then};
use crate::wire::http::head::Fields;

/// What a request body may be coded in, as the field that tells it.
pub const ACCEPTED: &str = "zstd, gzip, identity";

/// The codings of a request body in the order in which they are undone: the last one first.
///
/// # Errors
/// `UnsupportedCoding` for one that is not known here, and for more than two.
pub fn undone(fields: &Fields) -> Result<Vec<Coding>> {
    let mut codings = Vec::new();
    for name in list(fields, "content-encoding") {
        if name.eq_ignore_ascii_case(b"identity") {
            continue;
        }
        let coding = Coding::named(name).ok_or_else(|| {
            Kind::UnsupportedCoding.told("the body is in a content coding that is not known here")
        })?;
        codings.insert(0, coding);
    }
    if codings.len() > MOST_CODINGS {
        return Err(Kind::UnsupportedCoding.told("the body is in more than two content codings"));
    }
    Ok(codings)
}

/// The coding that the client likes best (RFC 9110, section 12.5.3); `None` when that is the plain body.
///
/// Of equals zstd comes first. A coding that is named comes before the plain body, one that only `*` covers behind it.
pub fn preferred(fields: &Fields) -> Option<Coding> {
    let wishes: Vec<(&[u8], u16)> = list(fields, "accept-encoding").filter_map(wish).collect();
    let of = |fits: &dyn Fn(&[u8]) -> bool| {
        let fitting = wishes.iter().filter(|(name, _)| fits(name));
        fitting.map(|(_, weight)| *weight).max()
    };
    let any = of(&|name| name == b"*");
    let plain = of(&|name| name.eq_ignore_ascii_case(b"identity"));
    let plain = plain.or(any);
    let mut best = None;
    for coding in [Coding::Zstd, Coding::Gzip] {
        let named = of(&|name| Coding::named(name) == Some(coding));
        let Some(weight) = named.or(any).filter(|weight| *weight > 0) else {
            continue;
        };
        let beats_plain = match plain {
            Some(plain) if named.is_none() => weight > plain,
            Some(plain) => weight >= plain,
            None => true,
        };
        if beats_plain && best.is_none_or(|(_, most)| weight > most) {
            best = Some((coding, weight));
        }
    }
    best.map(|(coding, _)| coding)
}

/// The etag of a representation in `coding`, from that of the plain one: the coding goes inside the quotes.
pub fn tag(etag: &str, coding: Coding) -> String {
    match etag.strip_suffix('"') {
        Some(start) => format!("{start}-{}\"", coding.name()),
        None => etag.to_owned(),
    }
}

/// `source` in `coding`: without a length or ranges, with an etag of its own, compressed while it is sent.
///
/// A part of a whole stays as it is, and so does all when the codings under way leave no memory for another one. A digest
/// of the plain bytes has no place in it (RFC 9530, section 3.1), so who makes one does not ask for a coding.
pub fn encode(app: &App, source: Source, coding: Coding) -> Source {
    if source.part.is_some() {
        return source;
    }
    let Ok(claim) = app.coding_memory.claim(Encoder::memory(coding)) else {
        return source;
    };
    let mut fields = source.fields;
    fields.retain(|field| !matches!(field.0, "accept-ranges" | "vary"));
    for (name, value) in &mut fields {
        if *name == "etag" {
            *value = tag(value, coding);
        }
    }
    fields.push(("content-encoding", coding.name().to_owned()));
    fields.push(("vary", "accept-encoding".to_owned()));
    let plain = source.produce;
    Source {
        media: source.media,
        length: None,
        part: None,
        fields,
        produce: Box::new(Coded {
            plain,
            _claim: claim,
            coding,
        }),
    }
}

/// The tokens of a list field.
fn list<'a>(fields: &'a Fields, name: &'a str) -> impl Iterator<Item = &'a [u8]> + 'a {
    let parts = fields
        .all(name)
        .flat_map(|all| all.split(|byte| *byte == b','));
    parts
        .map(<[u8]>::trim_ascii)
        .filter(|part| !part.is_empty())
}

/// A coding and its weight in thousandths; `None` for what cannot be read, which asks for nothing.
fn wish(part: &[u8]) -> Option<(&[u8], u16)> {
    let mut pieces = part.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
    let name = pieces.next()?;
    let mut weight = 1000;
    for piece in pieces {
        let text = std::str::from_utf8(piece).ok()?;
        let (key, value) = text.split_once('=')?;
        if key.eq_ignore_ascii_case("q") {
            weight = thousandths(value)?;
        }
    }
    Some((name, weight))
}

/// A weight as RFC 9110 has it: 0 to 1 with at most three places.
pub(super) fn thousandths(text: &str) -> Option<u16> {
    let (whole, places) = text.split_once('.').unwrap_or((text, ""));
    if places.len() > 3 || !places.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let places: u16 = format!("{places:0<3}").parse().ok()?;
    match whole {
        "0" => Some(places),
        "1" if places == 0 => Some(1000),
        _ => None,
    }
}

/// A body that is compressed on its way.
struct Coded {
    plain: Box<dyn Produce>,
    _claim: Claim,
    coding: Coding,
}

impl Produce for Coded {
    fn produce<'a>(self: Box<Self>, sink: &'a mut dyn Outflow) -> Step<'a, ()>
    where
        Self: 'a,
    {
        Box::pin(async move {
            let press = Press {
                encoder: Encoder::new(self.coding)?,
                coded: Vec::new(),
            };
            let mut flow = Pressed {
                sink,
                press: Some(press),
                at_work: None,
                plain: Vec::new(),
                rest: Vec::new(),
            };
            self.plain.produce(&mut flow).await?;
            flow.finish().await
        })
    }
}

/// What a helper thread needs to compress.
struct Press {
    encoder: Encoder,
    /// What the last piece became.
    coded: Vec<u8>,
}

impl Press {
    fn take(&mut self, plain: &[u8], then: Then) -> Result<()> {
        self.coded.clear();
        self.encoder.feed(plain, &mut self.coded, then)
    }
}

/// A piece that is being compressed; the press comes back with an empty buffer.
type AtWork = Pin<Box<dyn Future<Output = Option<Result<(Press, Vec<u8>)>>>>>;

/// An outflow that compresses: while one piece is on a helper thread, the next one is gathered.
struct Pressed<'a> {
    sink: &'a mut dyn Outflow,
    /// There unless a piece is under way.
    press: Option<Press>,
    at_work: Option<AtWork>,
    /// Bytes that are not compressed yet, less than [`PIECE`].
    plain: Vec<u8>,
    /// Compressed bytes of an offer that the sink did not take.
    rest: Vec<u8>,
}

impl Pressed<'_> {
    async fn put(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            self.make_room();
            let (now, later) = bytes.split_at(bytes.len().min(PIECE - self.plain.len()));
            self.plain.extend_from_slice(now);
            bytes = later;
            if self.plain.len() == PIECE {
                self.hand_over(Then::More).await?;
            }
        }
        Ok(())
    }

    async fn put_file(&mut self, source: &File, mut offset: u64, length: u64) -> Result<()> {
        let end = offset.saturating_add(length);
        while offset < end {
            self.make_room();
            let room = PIECE - self.plain.len();
            let most = usize::try_from(end - offset).unwrap_or(room).min(room);
            let plain = std::mem::take(&mut self.plain);
            let (outcome, plain) = file::read_at(source, plain, offset, most).await;
            self.plain = plain;
            match outcome {
                Ok(0) => return Err(Kind::Internal.told("the file is shorter than it was")),
                Ok(count) => offset += count as u64,
                Err(error) => return Err(Kind::Internal.told("cannot read file").because(error)),
            }
            if self.plain.len() == PIECE {
                self.hand_over(Then::More).await?;
            }
        }
        Ok(())
    }

    fn make_room(&mut self) {
        if self.plain.capacity() < PIECE {
            let mut larger = buffers::take();
            larger.extend_from_slice(&self.plain);
            self.plain = larger;
        }
    }

    /// Starts to compress what is gathered, and sends what the piece before it became.
    async fn hand_over(&mut self, then: Then) -> Result<()> {
        self.settle().await?;
        let mut press = self.press.take().ok_or_else(lost)?;
        let sent = std::mem::take(&mut press.coded);
        if then != Then::More && self.plain.len() <= SMALL {
            let outcome = press.take(&self.plain, then);
            self.plain.clear();
            self.press = Some(press);
            outcome?;
            return self.sink.write(&sent).await;
        }
        let mut plain = std::mem::take(&mut self.plain);
        let job = pool::run(move || {
            press.take(&plain, then)?;
            plain.clear();
            Ok((press, plain))
        });
        let job = async move { job.await.and_then(|outcome| outcome) };
        self.at_work = Some(Box::pin(ring::detached("compression", job)));
        self.sink.write(&sent).await
    }

    /// Waits for the piece under way.
    async fn settle(&mut self) -> Result<()> {
        let Some(at_work) = self.at_work.take() else {
            return Ok(());
        };
        let (press, plain) = at_work.await.unwrap_or_else(|| Err(lost()))?;
        self.press = Some(press);
        if self.plain.capacity() == 0 {
            self.plain = plain;
        } else {
            buffers::give_back(plain);
        }
        Ok(())
    }

    /// Compresses all that is gathered and writes it to the sink.
    async fn drain(&mut self, then: Then) -> Result<()> {
        self.write_rest().await?;
        self.hand_over(then).await?;
        self.settle().await?;
        let press = self.press.as_mut().ok_or_else(lost)?;
        let coded = std::mem::take(&mut press.coded);
        self.sink.write(&coded).await
    }

    async fn pause(&mut self) -> Result<()> {
        let has_more = !self.plain.is_empty() || self.at_work.is_some();
        let has_more = has_more
            || self
                .press
                .as_ref()
                .is_some_and(|press| !press.coded.is_empty());
        if has_more {
            self.drain(Then::Pause).await?;
        }
        self.write_rest().await?;
        self.sink.flush().await
    }

    async fn write_rest(&mut self) -> Result<()> {
        let rest = std::mem::take(&mut self.rest);
        self.sink.write(&rest).await
    }

    async fn finish(&mut self) -> Result<()> {
        self.drain(Then::End).await
    }

    /// Compresses frames here and now, as many as make a small piece, and offers what they became.
    fn put_frames(&mut self, frames: &[Frame<'_>]) -> Result<usize> {
        let is_behind = !self.rest.is_empty() || self.at_work.is_some() || !self.plain.is_empty();
        let Some(press) = self.press.as_mut().filter(|_| !is_behind) else {
            return Ok(0);
        };
        let mut plain = Vec::new();
        let mut taken = 0;
        for frame in frames {
            plain.extend_from_slice(frame.head);
            plain.extend_from_slice(frame.body);
            taken += 1;
            if plain.len() >= SMALL {
                break;
            }
        }
        let mut coded = std::mem::take(&mut press.coded);
        press.take(&plain, Then::Pause)?;
        coded.append(&mut press.coded);
        let whole = Frame {
            head: &[],
            body: &coded,
        };
        if self.sink.offer(&[whole])? == 0 {
            self.rest = coded;
        }
        Ok(taken)
    }
}

impl Outflow for Pressed<'_> {
    fn write<'a>(&'a mut self, bytes: &'a [u8]) -> Step<'a, ()> {
        Box::pin(self.put(bytes))
    }

    fn check(&self) -> Result<()> {
        self.sink.check()
    }

    fn flush(&mut self) -> Step<'_, ()> {
        Box::pin(self.pause())
    }

    fn offer(&mut self, frames: &[Frame<'_>]) -> Result<usize> {
        self.put_frames(frames)
    }

    fn ready(&mut self) -> Step<'_, ()> {
        Box::pin(async move {
            self.pause().await?;
            self.sink.ready().await
        })
    }

    fn trailer(&mut self, name: &'static str, value: String) {
        self.sink.trailer(name, value);
    }

    fn send_file<'a>(&'a mut self, file: &'a File, offset: u64, length: u64) -> Step<'a, ()> {
        Box::pin(self.put_file(file, offset, length))
    }
}

impl Drop for Pressed<'_> {
    fn drop(&mut self) {
        buffers::give_back(std::mem::take(&mut self.plain));
    }
}

fn lost() -> Error {
    Kind::Internal.told("the body was given up")
}

/// Codings of a request body at most.
const MOST_CODINGS: usize = 2;
/// Bytes that are compressed at once.
const PIECE: usize = buffers::LEASE;
/// Bytes up to which the last ones of a body are compressed here: less than the way to a helper thread and back.
const SMALL: usize = 16 * 1024;
