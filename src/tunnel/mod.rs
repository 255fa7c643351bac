//! A byte path into the guest: a client's WebSocket on one side, a connection to a service of the guest on the other.
//!
//! ```text
//! upgraded ──▶ [verified: handshake, READY] ──▶ dialled ──▶ relayed, both ways at once ──▶ close frames ──▶ over
//!     └─ port 0, no keys, refused, nobody listens: a close frame that says so ──────────────────▲
//! ```

mod dial;
mod ending;
mod near;
mod plain;
mod relay;
mod sealed;
pub mod secure;
mod watch;

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

pub use dial::{Place, Target};
use ending::Ending;
use near::Inbox;
use relay::Line;
use secure::{Keys, MOST_MESSAGE, Responder, Session};

use crate::ring::clock::within;
use crate::ring::notify::Event;
use crate::ring::socket::{Socket, Tally};
use crate::wire::websocket::Grain;

/// One tunnel that was asked for.
pub struct Tunnel {
    /// Where it leads.
    pub target: Target,
    /// Who may use it.
    pub caller: Caller,
    /// Where relayed bytes count: what the client sends as received, what it is sent as sent.
    pub tally: Rc<Tally>,
}

/// What a caller must show, besides the token.
pub enum Caller {
    /// Nothing.
    Anybody,
    /// That it has the private half of these keys.
    Verified(Keys),
    /// The same, but this guest has no keys.
    Unverifiable,
}

/// The bounds on a tunnel's waits.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// How long one side may take nothing of what there is for it.
    pub patience: Duration,
    /// How long the handshake of a verified tunnel may take.
    pub handshake: Duration,
    /// How long after the start of the drain the daemon leaves.
    pub drain: Duration,
}

/// Why there is nothing to relay.
enum Stop {
    /// The client is told.
    Because(Ending),
    /// The client is gone.
    Gone,
}

impl Tunnel {
    /// Serves a client that speaks WebSocket from here on, to the end; `ahead` has come from it already.
    ///
    /// The socket stays open for the caller to close. `drain` happens when the daemon wants to leave.
    pub async fn run(self, near: &Socket, ahead: Vec<u8>, limits: Limits, drain: &Event) {
        let tally = Rc::clone(&self.tally);
        let grain = match self.caller {
            Caller::Verified(_) => Grain::Frames(MOST_MESSAGE),
            _ => Grain::Bytes,
        };
        let mut inbox = Inbox::new(near, ahead, grain);
        match self.establish(near, &mut inbox, limits, drain).await {
            Ok((guest, session)) => {
                let session = session.map(RefCell::new);
                let line = Line::new(near, guest, session, limits.patience, tally);
                relay::run(&line, inbox, limits, drain).await;
            }
            Err(Stop::Because(ending)) => {
                tracing::debug!(code = ending.code, "a tunnel leads nowhere");
                near::part(near, &mut inbox, &ending).await;
            }
            Err(Stop::Gone) => {}
        }
    }

    /// Everything before the relay; the guest is dialled last.
    async fn establish(
        self,
        near: &Socket,
        inbox: &mut Inbox<'_>,
        limits: Limits,
        drain: &Event,
    ) -> Result<(Socket, Option<Session>), Stop> {
        let Self { target, caller, .. } = self;
        if matches!(target, Target::Port(0)) {
            return Err(Stop::Because(Ending::port_zero()));
        }
        let session = match caller {
            Caller::Anybody => None,
            Caller::Unverifiable => return Err(Stop::Because(Ending::without_keys())),
            Caller::Verified(keys) => {
                let greeting = within(limits.handshake, greet(near, inbox, &keys, target.port()));
                let greeted = monoio::select! {
                    greeted = greeting => greeted,
                    () = drain.after(0) => return Err(Stop::Because(Ending::going_away())),
                };
                Some(greeted.ok_or_else(|| Stop::Because(Ending::refused()))??)
            }
        };
        let guest = dial::dial(&target, limits.patience).await;
        guest.map(|guest| (guest, session)).map_err(Stop::Because)
    }
}

/// The handshake of a verified tunnel, up to the moment at which the guest may be dialled.
async fn greet(
    near: &Socket,
    inbox: &mut Inbox<'_>,
    keys: &Keys,
    port: u16,
) -> Result<Session, Stop> {
    let refused = |_| Stop::Because(Ending::refused());
    let responder = Responder::new(keys, port);
    let responder = responder.map_err(|error| {
        tracing::warn!(%error, "a verified tunnel cannot be answered");
        Stop::Because(Ending::failed())
    })?;
    let mut message = Vec::new();
    inbox.whole(&mut message).await?;
    let (answer, mut session) = responder.answer(&message).map_err(refused)?;
    near::send(near, &answer).await.map_err(|_| Stop::Gone)?;
    if session.expects_ready() {
        inbox.whole(&mut message).await?;
        let mut plain = vec![0; message.len()];
        let length = session.open(&message, &mut plain).map_err(refused)?;
        if plain[..length] != *secure::READY {
            return Err(Stop::Because(Ending::refused()));
        }
    }
    Ok(session)
}
