//! What the guest says, as binary messages: little of it by two calls, and much without a copy.

use std::io::IoSlice;

use super::near::RECEIVE;
use super::relay::Heard;
use crate::error::{Kind, Result};
use crate::ring::buffers;
use crate::ring::socket::Socket;
use crate::ring::splice::Channel;
use crate::wire::websocket::Head;

/// The way from the guest to the client.
///
/// A few bytes are received and sent. While there is much, it goes through a pipe instead, behind heads of ours.
#[derive(Default)]
pub(super) struct Spout {
    /// The pipe, from the first time that there was much.
    channel: Option<Channel>,
    /// True while there is much.
    is_full: bool,
    /// True when no pipe can be had, or these sockets take none.
    is_barred: bool,
}

impl Spout {
    /// Relays what the guest has said by now.
    ///
    /// # Errors
    /// The client is gone, or has taken nothing for too long.
    pub(super) async fn relay(&mut self, near: &Socket, guest: &Socket) -> Result<Heard> {
        let heard = match self.splice(near, guest).await? {
            Some(heard) => heard,
            None => copy(near, guest).await?,
        };
        if let Heard::Bytes(count) = heard {
            self.is_full = count >= MUCH;
        }
        Ok(heard)
    }

    /// Relays without a copy; `None` where that does not pay or cannot be done.
    async fn splice(&mut self, near: &Socket, guest: &Socket) -> Result<Option<Heard>> {
        if !self.is_full || self.is_barred {
            return Ok(None);
        }
        if self.channel.is_none() {
            self.channel = Channel::open().ok();
        }
        let taken = self
            .channel
            .as_ref()
            .map(|channel| (channel, channel.take(guest, RECEIVE)));
        let (channel, count) = match taken {
            Some((channel, Ok(Some(count @ 1..)))) => (channel, count),
            Some((_, Ok(Some(_)))) => return Ok(Some(Heard::End)),
            Some((_, Ok(None))) => return Ok(Some(Heard::Nothing)),
            Some((_, Err(error))) if error.kind() != Kind::Unsupported => {
                return Ok(Some(Heard::Failure));
            }
            Some(_) | None => {
                self.is_barred = true;
                return Ok(None);
            }
        };
        let mut left = count;
        while left > 0 {
            let now = left.min(FRAME);
            near.send_all(Head::of(now).bytes(), true).await?;
            channel.give(near, now).await?;
            left -= now;
        }
        Ok(Some(Heard::Bytes(count)))
    }
}

async fn copy(near: &Socket, guest: &Socket) -> Result<Heard> {
    let mut bytes = buffers::lease();
    let count = match guest.try_recv_at_most(&mut bytes, RECEIVE) {
        Ok(Some(count @ 1..)) => count,
        Ok(Some(_)) => return Ok(Heard::End),
        Ok(None) => return Ok(Heard::Nothing),
        Err(_) => return Ok(Heard::Failure),
    };
    let full = Head::of(FRAME);
    let last = Head::of(count % FRAME);
    let mut slices = [IoSlice::new(&[]); 2 * RECEIVE.div_ceil(FRAME)];
    let mut used = 0;
    for chunk in bytes.chunks(FRAME) {
        let head = if chunk.len() == FRAME { &full } else { &last };
        slices[used] = IoSlice::new(head.bytes());
        slices[used + 1] = IoSlice::new(chunk);
        used += 2;
    }
    near.send_slices(&mut slices[..used]).await?;
    Ok(Heard::Bytes(count))
}

/// Payload of one message, at most (guest HTTP contract, section 8).
const FRAME: usize = 64 * 1024;
/// Bytes of one receive from which the next go through the pipe.
const MUCH: usize = 32 * 1024;
