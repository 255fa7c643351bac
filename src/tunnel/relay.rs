//! The relay: both directions at once, each held back by whoever does not take.
//!
//! One future carries each direction, and a third watches. All three are polled together, the one that speaks to the
//! client last: so it sees what the others ask of it in the same round, and nobody else ever writes to the client.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::io::IoSlice;
use std::ops::Range;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use super::Limits;
use super::ending::Ending;
use super::near::{Inbox, PARTING, PIECES, RECEIVE};
use super::plain::Spout;
use super::sealed::Sealer;
use super::secure::Session;
use super::watch::watch;
use crate::error::{Kind, Result};
use crate::ring::buffers;
use crate::ring::clock::{Deadline, within};
use crate::ring::notify::Event;
use crate::ring::socket::{Socket, Tally};
use crate::wire::websocket::{self, Piece};

/// A tunnel whose two ends are there.
pub(super) struct Line<'a> {
    near: &'a Socket,
    pub(super) guest: Socket,
    /// The keys of a verified tunnel.
    pub(super) session: Option<RefCell<Session>>,
    patience: Duration,
    pub(super) owed: Owed,
    /// True once nothing more will be written to the guest: it has only its last words to say.
    finished: Cell<bool>,
    /// True while the end of what the client sends would be taken for one that it is not.
    pub(super) is_cut: Cell<bool>,
    /// Bytes relayed, both ways.
    pub(super) moved: Cell<u64>,
    /// Where they count together with those of other tunnels.
    tally: Rc<Tally>,
}

/// What the client is to be told between two messages.
#[derive(Default)]
pub(super) struct Owed {
    /// The payload of its newest ping: the older ones need no answer (RFC 6455, section 5.5.3).
    pong: RefCell<Option<Vec<u8>>>,
    ping: Cell<bool>,
    ending: RefCell<Option<Ending>>,
}

/// How the client's side of a tunnel ends.
pub(super) enum Inward {
    /// It is done: what the guest still says is relayed.
    Done,
    /// The tunnel ends, and says this.
    Ends(Ending),
    /// It has stopped sending, without a word.
    Left,
    /// It is gone without a word.
    Gone,
}

/// What becomes of bytes for the guest.
pub(super) enum Passed {
    /// All are taken.
    All,
    /// It does not take any: it is gone, or reads no more.
    Refused,
    /// It has taken none for too long.
    Stalled,
    /// Meanwhile the client has gone.
    Gone,
}

/// How the guest's bytes are said to the client.
enum Voice<'a> {
    Plain(Spout),
    Sealed(Sealer<'a>),
}

/// What one look at the guest has brought, all of which is relayed.
pub(super) enum Heard {
    /// So many bytes; [`RECEIVE`] of them when there may be more.
    Bytes(usize),
    Nothing,
    /// It says no more.
    End,
    /// Its connection broke.
    Failure,
}

/// What the future that speaks to the client has waited for.
enum Cue {
    /// The guest says something, or has ended.
    Guest,
    /// The client is owed something, or the guest is now saying its last words.
    Owed,
    /// The guest had its time for last words.
    Silence,
}

/// Relays until both ends are done with it; the guest's is closed on return.
pub(super) async fn run(line: &Line<'_>, inbox: Inbox<'_>, limits: Limits, drain: &Event) {
    let mut watch = pin!(watch(line, limits.drain, drain));
    let mut inward = pin!(line.inward(inbox));
    let mut outward = pin!(line.outward());
    let mut is_away = false;
    let mut heard = None;
    let mut has_left = false;
    let has_parted = poll_fn(|context| {
        if !is_away && watch.as_mut().poll(context).is_ready() {
            is_away = true;
            line.owed.ends(Ending::going_away());
        }
        if heard.is_none()
            && let Poll::Ready(end) = inward.as_mut().poll(context)
        {
            match &end {
                Inward::Done => {}
                Inward::Ends(ending) => line.owed.ends(ending.clone()),
                Inward::Left | Inward::Gone => {
                    has_left = matches!(end, Inward::Left);
                    return Poll::Ready(false);
                }
            }
            heard = Some(end);
        }
        outward.as_mut().poll(context).map(|said| said.is_ok())
    });
    if has_parted.await {
        if heard.is_none() {
            // What the client has sent before it hears of the end is still for the guest.
            within(PARTING, inward).await;
        }
    } else if has_left && !line.is_cut.get() {
        line.guest.finish_sending();
        // Closed while it holds unread bytes, the connection would lose what is on its way to the guest.
        within(PARTING, line.hear_out()).await;
    }
    if line.is_cut.get() {
        line.guest.reset_on_close();
    }
    tracing::debug!(bytes = line.moved.get(), "a tunnel has ended");
}

impl<'a> Line<'a> {
    pub(super) fn new(
        near: &'a Socket,
        guest: Socket,
        session: Option<RefCell<Session>>,
        patience: Duration,
        tally: Rc<Tally>,
    ) -> Self {
        let promises = |session: &RefCell<Session>| session.borrow().peer_promises_end();
        Self {
            near,
            guest,
            patience,
            owed: Owed::default(),
            finished: Cell::new(false),
            is_cut: Cell::new(session.as_ref().is_some_and(promises)),
            moved: Cell::new(0),
            tally,
            session,
        }
    }

    /// Relays what the client sends until it sends no more.
    async fn inward(&self, mut inbox: Inbox<'_>) -> Inward {
        match &self.session {
            Some(session) => self.inward_sealed(&mut inbox, session).await,
            None => self.inward_plain(&mut inbox).await,
        }
    }

    async fn inward_plain(&self, inbox: &mut Inbox<'_>) -> Inward {
        let mut parts = Vec::with_capacity(PARTS);
        let mut is_refused = false;
        loop {
            parts.clear();
            let end = self.gather(inbox, &mut parts);
            if !is_refused && !parts.is_empty() {
                let mut slices = [IoSlice::new(&[]); PARTS];
                for (slice, part) in slices.iter_mut().zip(&parts) {
                    *slice = IoSlice::new(&inbox.bytes[part.clone()]);
                }
                match self.pass(&mut slices[..parts.len()]).await {
                    Passed::All => {}
                    Passed::Refused => is_refused = true,
                    Passed::Stalled => return Inward::Ends(Ending::failed()),
                    Passed::Gone => return Inward::Gone,
                }
            }
            match end {
                Some(Inward::Done) => {
                    self.guest_has_all();
                    return Inward::Done;
                }
                Some(end) => return end,
                None if inbox.has_enough() => inbox.give_way().await,
                None => match inbox.fill().await {
                    Ok(1..) => {}
                    Ok(0) => return Inward::Left,
                    Err(_) => return Inward::Gone,
                },
            }
        }
    }

    /// Collects the payload that is here, up to so many parts, an end, or the last byte.
    fn gather(&self, inbox: &mut Inbox<'_>, parts: &mut Vec<Range<usize>>) -> Option<Inward> {
        while !inbox.has_enough() {
            match inbox.next() {
                Ok(Some(Piece::Data(data))) => {
                    if !data.at.is_empty() {
                        parts.push(data.at);
                    }
                }
                Ok(Some(Piece::Ping(at))) => self.owed.pong(&inbox.bytes[at]),
                Ok(Some(Piece::Close(_))) => return Some(Inward::Done),
                Ok(None) => return None,
                Err(violation) => return Some(Inward::Ends(violation.into())),
            }
        }
        None
    }

    /// Sends everything to the guest; while it does not take any, the client is not read, but looked after.
    pub(super) async fn pass(&self, mut rest: &mut [IoSlice<'_>]) -> Passed {
        while !rest.is_empty() {
            match self.guest.try_send(rest) {
                Ok(0) => match self.room().await {
                    Passed::All => {}
                    end => return end,
                },
                Ok(sent) => {
                    // Whoever receives gives way, so that nobody needs to here.
                    IoSlice::advance_slices(&mut rest, sent);
                    self.count(sent);
                    self.tally.receive(sent as u64);
                }
                Err(_) => {
                    self.finished.set(true);
                    return Passed::Refused;
                }
            }
        }
        Passed::All
    }

    /// Waits until the guest has room.
    async fn room(&self) -> Passed {
        let deadline = Deadline::after(self.patience);
        loop {
            match within(ROUND, self.guest.room()).await {
                Some(Err(error)) if error.kind() == Kind::ClientStalled => return Passed::Stalled,
                // What is wrong shows when something is sent.
                Some(_) => return Passed::All,
                None if self.near.check().is_err() => return Passed::Gone,
                None if deadline.has_passed() => return Passed::Stalled,
                None => {}
            }
        }
    }

    /// Reads away what the guest says, to its end.
    async fn hear_out(&self) {
        while self.guest.readable().await.is_ok() {
            let mut bytes = buffers::lease();
            match self.guest.try_recv_at_most(&mut bytes, RECEIVE) {
                Ok(Some(count @ 1..)) => self.guest.spend(count as u64).await,
                Ok(None) => {}
                Ok(Some(_)) | Err(_) => return,
            }
        }
    }

    /// Tells the guest that this is all; it may still answer.
    pub(super) fn guest_has_all(&self) {
        self.guest.finish_sending();
        self.finished.set(true);
    }

    /// Speaks to the client until the tunnel has nothing more to say; the last word is a close frame.
    ///
    /// # Errors
    /// The client is gone, or has taken nothing for too long.
    async fn outward(&self) -> Result<()> {
        let mut voice = match &self.session {
            Some(session) => Voice::Sealed(Sealer::new(session)),
            None => Voice::Plain(Spout::default()),
        };
        let mut is_more = false;
        loop {
            let cue = match is_more && !self.owed.is_something() {
                true => Cue::Guest,
                false => self.cue().await,
            };
            match cue {
                Cue::Guest => {}
                Cue::Silence => return self.say(&Ending::clean().frame()).await,
                Cue::Owed => {
                    if let Some(ending) = self.owed.ending.take() {
                        return self.say(&ending.frame()).await;
                    }
                    self.pay().await?;
                    continue;
                }
            }
            let heard = match &mut voice {
                Voice::Plain(spout) => spout.relay(self.near, &self.guest).await?,
                Voice::Sealed(sealer) => sealer.relay(self.near, &self.guest).await?,
            };
            match heard {
                Heard::Bytes(count) => {
                    self.count(count);
                    self.tally.send(count as u64);
                    is_more = count == RECEIVE;
                }
                Heard::Nothing => is_more = false,
                Heard::End => return self.say(&Ending::clean().frame()).await,
                Heard::Failure => return self.say(&Ending::failed().frame()).await,
            }
        }
    }

    /// Waits for what comes next.
    async fn cue(&self) -> Cue {
        let is_last = self.finished.get();
        let mut readable = pin!(self.guest.readable());
        let cue = poll_fn(|context| {
            if self.owed.is_something() || self.finished.get() != is_last {
                return Poll::Ready(Cue::Owed);
            }
            readable.as_mut().poll(context).map(|_| Cue::Guest)
        });
        match is_last {
            true => within(LAST_WORDS, cue).await.unwrap_or(Cue::Silence),
            false => cue.await,
        }
    }

    /// Says what the client is owed.
    async fn pay(&self) -> Result<()> {
        let pong = self.owed.pong.take();
        if let Some(payload) = pong {
            self.say(&websocket::pong(&payload)).await?;
        }
        if self.owed.ping.take() {
            self.say(&websocket::ping()).await?;
        }
        Ok(())
    }

    async fn say(&self, bytes: &[u8]) -> Result<()> {
        self.near.send_all(bytes, false).await
    }

    fn count(&self, bytes: usize) {
        self.moved.set(self.moved.get() + bytes as u64);
    }
}

impl Owed {
    /// The client wants this payload back.
    pub(super) fn pong(&self, payload: &[u8]) {
        *self.pong.borrow_mut() = Some(payload.to_vec());
    }

    /// The client has heard nothing for a while.
    pub(super) fn ping(&self) {
        self.ping.set(true);
    }

    /// The tunnel ends; the first reason counts.
    fn ends(&self, ending: Ending) {
        self.ending.borrow_mut().get_or_insert(ending);
    }

    fn is_something(&self) -> bool {
        self.ping.get() || self.pong.borrow().is_some() || self.ending.borrow().is_some()
    }
}

/// Parts of messages that go to the guest in one call.
const PARTS: usize = PIECES;
/// How long the guest may be silent once it has all; then what it could still say is not waited for.
const LAST_WORDS: Duration = Duration::from_secs(5);
/// How often somebody looks whether the client is still there while the guest takes nothing.
const ROUND: Duration = Duration::from_secs(1);
