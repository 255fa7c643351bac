//! The body of an upload as it was before its content codings, checked against its digests, its progress to be seen.
//!
//! ```text
//! body ─▶ counted ─▶ content-digest ─▶ coding undone (at most twice) ─▶ repr-digest ─▶ operation
//! ```
//! Stages that a request does not ask for are not there.

use std::cell::Cell;
use std::path::Path;
use std::rc::Rc;

use super::coding::{self, Coding};
use super::digest::{self, Comparison, Expected};
use crate::app::App;
use crate::app::coding::{Claim, Memory};
use crate::app::transfers::Place;
use crate::error::{Kind, Result};
use crate::ring::{Inflow, Step, buffers, pool};
use crate::wire::coding::Decoder;
use crate::wire::http::head::Fields;

/// The content of `body`: decoded, bounded, and refused by its last read when it is not what its digests say.
///
/// # Errors
/// `UnsupportedCoding`; `Malformed` for a digest field that is none. The reads fail with `Malformed` for what cannot be
/// decoded or has another digest, with `TooLarge` when more comes out than a body of this operation may have, and with
/// `Busy` when the bodies that are decoded at the same time leave no memory for it.
pub fn open(
    app: &Rc<App>,
    operation: &'static str,
    path: &Path,
    fields: &Fields,
    body: Box<dyn Inflow>,
) -> Result<Box<dyn Inflow>> {
    let codings = coding::undone(fields)?;
    let content = digest::expected(fields, CONTENT)?;
    let repr = digest::expected(fields, REPR)?;
    let total = body.remaining();
    let mut flow: Box<dyn Inflow> = Box::new(Counted {
        inner: body,
        place: app.transfers.enter(operation, path, total),
    });
    if let Some(expected) = content {
        flow = Box::new(Checked::new(flow, expected, CONTENT));
    }
    // What a coded body represents may be told of it as it is sent, or of what it decodes to: either proves it whole.
    let agreed = Rc::new(Cell::new(false));
    if let Some(expected) = repr.clone().filter(|_| !codings.is_empty()) {
        flow = Box::new(Checked {
            is_hint: true,
            agreed: Rc::clone(&agreed),
            ..Checked::new(flow, expected, REPR)
        });
    }
    let limit = bound(app, operation);
    for coding in codings {
        flow = Box::new(Decoded::new(flow, coding, limit, &app.coding_memory)?);
    }
    if let Some(expected) = repr {
        flow = Box::new(Checked {
            agreed,
            ..Checked::new(flow, expected, REPR)
        });
    }
    Ok(flow)
}

/// A part of a larger whole: as it was sent, checked against `content-digest` alone.
///
/// # Errors
/// `Malformed` for a digest field that is none, and from the reads for a part that has another digest.
pub fn part(
    app: &Rc<App>,
    operation: &'static str,
    path: &Path,
    fields: &Fields,
    body: Box<dyn Inflow>,
) -> Result<Box<dyn Inflow>> {
    let content = digest::expected(fields, CONTENT)?;
    let total = body.remaining();
    let counted = Box::new(Counted {
        inner: body,
        place: app.transfers.enter(operation, path, total),
    });
    Ok(match content {
        Some(expected) => Box::new(Checked::new(counted, expected, CONTENT)),
        None => counted,
    })
}

/// Bytes that a body may decode to: an archive is bounded by its files, and what stands around them.
fn bound(app: &App, operation: &str) -> u64 {
    let limits = &app.config.limits;
    match operation {
        "tar.write" => {
            let around = limits.max_tar_members.saturating_mul(AROUND_A_MEMBER);
            limits.max_tar_bytes.saturating_add(around)
        }
        _ => limits.max_body_bytes,
    }
}

/// Counts what comes.
struct Counted {
    inner: Box<dyn Inflow>,
    place: Place,
}

impl Inflow for Counted {
    fn remaining(&self) -> Option<u64> {
        self.inner.remaining()
    }

    fn read<'a>(&'a mut self, into: &'a mut Vec<u8>) -> Step<'a, usize> {
        Box::pin(async move {
            let count = self.inner.read(into).await?;
            self.count(count);
            Ok(count)
        })
    }

    fn gather(&mut self, into: &mut Vec<u8>) -> Result<()> {
        let before = into.len();
        let gathered = self.inner.gather(into);
        self.count(into.len() - before);
        gathered
    }
}

impl Counted {
    fn count(&self, count: usize) {
        let received = &self.place.transfer.received;
        received.set(received.get() + count as u64);
    }
}

/// Compares what comes with digests.
struct Checked {
    inner: Box<dyn Inflow>,
    comparison: Option<Comparison>,
    /// The field that tells the digests.
    field: &'static str,
    /// True when a difference is not an error here.
    is_hint: bool,
    /// True when another comparison has found what was expected.
    agreed: Rc<Cell<bool>>,
    is_over: bool,
}

impl Checked {
    fn new(inner: Box<dyn Inflow>, expected: Expected, field: &'static str) -> Self {
        Self {
            inner,
            comparison: Some(Comparison::new(expected)),
            field,
            is_hint: false,
            agreed: Rc::default(),
            is_over: false,
        }
    }

    async fn next(&mut self, into: &mut Vec<u8>) -> Result<usize> {
        if into.len() == into.capacity() {
            return Ok(0);
        }
        let before = into.len();
        let count = self.inner.read(into).await?;
        if count > 0 {
            let take = move |comparison: &mut Comparison, bytes: &mut Vec<u8>| {
                comparison.update(&bytes[before..]);
            };
            work(count, &mut self.comparison, into, take).await?;
        }
        if count == 0 || self.inner.remaining() == Some(0) {
            self.conclude()?;
        }
        Ok(count)
    }

    fn conclude(&mut self) -> Result<()> {
        if self.is_over {
            return Ok(());
        }
        if self.comparison.as_ref().is_some_and(Comparison::agrees) {
            self.agreed.set(true);
        }
        if !self.agreed.get() && !self.is_hint {
            let field = self.field;
            return Err(Kind::Malformed.told(format!("the body is not what {field} says")));
        }
        self.is_over = true;
        Ok(())
    }
}

impl Inflow for Checked {
    fn remaining(&self) -> Option<u64> {
        // A reader that hears that nothing is left asks for no more, and would miss the verdict.
        let left = self.inner.remaining();
        left.filter(|left| *left > 0 || self.is_over)
    }

    fn read<'a>(&'a mut self, into: &'a mut Vec<u8>) -> Step<'a, usize> {
        Box::pin(self.next(into))
    }
}

/// Undoes a coding.
struct Decoded {
    inner: Box<dyn Inflow>,
    tool: Option<Tool>,
    claim: Claim,
    /// Bytes that may still come out.
    allowed: u64,
    limit: u64,
    has_ended: bool,
}

/// What a helper thread needs to decode.
struct Tool {
    decoder: Decoder,
    coded: Vec<u8>,
    /// Coded bytes that are used up.
    used: usize,
}

impl Decoded {
    fn new(
        inner: Box<dyn Inflow>,
        coding: Coding,
        limit: u64,
        memory: &Rc<Memory>,
    ) -> Result<Self> {
        let decoder = Decoder::new(coding)?;
        Ok(Self {
            inner,
            claim: memory.claim(decoder.memory())?,
            tool: Some(Tool {
                decoder,
                coded: Vec::new(),
                used: 0,
            }),
            allowed: limit,
            limit,
            has_ended: false,
        })
    }

    async fn next(&mut self, into: &mut Vec<u8>) -> Result<usize> {
        let before = into.len();
        if before == into.capacity() {
            return Ok(0);
        }
        while into.len() == before {
            let tool = self.tool.as_mut().ok_or_else(lost)?;
            if tool.is_dry() {
                if self.has_ended {
                    tool.decoder.finish()?;
                    return Ok(0);
                }
                if tool.coded.capacity() == 0 {
                    tool.coded = buffers::take();
                }
                tool.coded.clear();
                tool.used = 0;
                self.has_ended = self.inner.read(&mut tool.coded).await? == 0;
                continue;
            }
            // Little that goes in can become much: what comes out of it later is not done here.
            let size = match tool.decoder.holds_back() {
                true => usize::MAX,
                false => tool.coded.len() - tool.used,
            };
            work(size, &mut self.tool, into, Tool::decode).await??;
            // A window is as large as its frame says.
            if let Some(tool) = &self.tool {
                self.claim.grow_to(tool.decoder.memory())?;
            }
        }
        let count = into.len() - before;
        let allowed = self.allowed.checked_sub(count as u64);
        self.allowed = allowed.ok_or_else(|| {
            Kind::TooLarge.told(format!(
                "the body decodes to more than {} bytes",
                self.limit
            ))
        })?;
        Ok(count)
    }
}

impl Inflow for Decoded {
    fn remaining(&self) -> Option<u64> {
        None
    }

    fn read<'a>(&'a mut self, into: &'a mut Vec<u8>) -> Step<'a, usize> {
        Box::pin(self.next(into))
    }
}

impl Drop for Decoded {
    fn drop(&mut self) {
        if let Some(tool) = &mut self.tool {
            buffers::give_back(std::mem::take(&mut tool.coded));
        }
    }
}

impl Tool {
    /// True when nothing comes out before something goes in.
    fn is_dry(&self) -> bool {
        self.used == self.coded.len() && !self.decoder.holds_back()
    }

    fn decode(&mut self, into: &mut Vec<u8>) -> Result<()> {
        let mut input = &self.coded[self.used..];
        let outcome = self.decoder.feed(&mut input, into);
        self.used = self.coded.len() - input.len();
        outcome
    }
}

/// Lets `job` work with `tool` on `into`: here for what is `size` bytes small, else on a helper thread.
///
/// Whoever gives up while it runs loses both.
async fn work<T: Send + 'static, R: Send + 'static>(
    size: usize,
    tool: &mut Option<T>,
    into: &mut Vec<u8>,
    job: impl FnOnce(&mut T, &mut Vec<u8>) -> R + Send + 'static,
) -> Result<R> {
    let mut lent = tool.take().ok_or_else(lost)?;
    let (outcome, lent) = if size <= SMALL {
        (job(&mut lent, into), lent)
    } else {
        let mut bytes = std::mem::take(into);
        let (outcome, lent, bytes) = pool::run(move || {
            let outcome = job(&mut lent, &mut bytes);
            (outcome, lent, bytes)
        })
        .await?;
        *into = bytes;
        (outcome, lent)
    };
    *tool = Some(lent);
    Ok(outcome)
}

fn lost() -> crate::error::Error {
    Kind::Internal.told("the body was given up")
}

const CONTENT: &str = "content-digest";
const REPR: &str = "repr-digest";
/// Bytes up to which work is done here: less than the way to a helper thread and back costs others.
const SMALL: usize = 16 * 1024;
/// Bytes of an archive that a member may take beside its data: heads, long names, padding.
const AROUND_A_MEMBER: u64 = 16 * 1024;
