//! Why a tunnel ends, as its close frame says it (guest HTTP contract, section 8).

use std::borrow::Cow;

use crate::wire::websocket::{self, Violation};

/// A close code and its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ending {
    pub(super) code: u16,
    pub(super) reason: Cow<'static, str>,
}

impl Ending {
    /// A side has ended in an orderly way.
    pub(super) fn clean() -> Self {
        Self::of(1000, "")
    }

    /// The daemon is leaving.
    pub(super) fn going_away() -> Self {
        Self::of(1001, "the daemon is shutting down")
    }

    /// A verified tunnel carries binary messages only.
    pub(super) fn text() -> Self {
        Self::of(1003, "a verified tunnel takes binary messages only")
    }

    /// A message of a verified tunnel is not from the peer of the handshake, or not the next one.
    pub(super) fn forged() -> Self {
        Self::of(1008, "a message does not authenticate")
    }

    /// A message of a verified tunnel is longer than it can be.
    pub(super) fn too_long() -> Self {
        Self::of(1009, "a message is too long")
    }

    pub(super) fn port_zero() -> Self {
        Self::of(
            4400,
            "port 0 cannot be dialled; name the guest port to relay to",
        )
    }

    pub(super) fn without_keys() -> Self {
        Self::of(4401, "this guest was launched without an identity seed")
    }

    pub(super) fn refused() -> Self {
        Self::of(
            4403,
            "identity handshake refused: wrong pin or wrong caller",
        )
    }

    /// The guest's side broke, or does not take what is sent.
    pub(super) fn failed() -> Self {
        Self::of(4500, "the guest connection failed mid-relay")
    }

    /// Nobody answers at `place`.
    pub(super) fn nobody(place: &str) -> Self {
        Self::of(
            4502,
            format!("nothing is listening on {place} in the guest"),
        )
    }

    /// The close frame that says it.
    pub(super) fn frame(&self) -> Vec<u8> {
        websocket::close(self.code, &self.reason)
    }

    fn of(code: u16, reason: impl Into<Cow<'static, str>>) -> Self {
        Self {
            code,
            reason: reason.into(),
        }
    }
}

impl From<Violation> for Ending {
    fn from(violation: Violation) -> Self {
        Self::of(violation.code, violation.why)
    }
}
