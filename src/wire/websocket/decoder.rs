//! Frames of a peer, mostly a client: found in its bytes as they arrive, wherever they are cut, and unmasked where they stand.

use std::io::Cursor;
use std::ops::Range;

use tungstenite::protocol::frame::FrameHeader;
use tungstenite::protocol::frame::coding::{CloseCode, Control, Data as Code, OpCode};

use super::mask::unmask;

/// How much of a message is handed out at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grain {
    /// Whatever has arrived, so that a frame may have any length.
    Bytes,
    /// Whole frames of so many bytes at most.
    Frames(usize),
}

/// What was found; ranges are places in the bytes that were given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Payload of a message.
    Data(Data),
    /// A ping that wants its payload back.
    Ping(Range<usize>),
    /// The client is done; nothing is found behind it. The code, if it gave one.
    Close(Option<u16>),
}

/// Payload of a message, or a part of it; may be empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Data {
    /// Where it stands.
    pub at: Range<usize>,
    /// True for a text message, false for a binary one.
    pub is_text: bool,
    /// True when the message begins here.
    pub is_first: bool,
    /// True when the message ends here.
    pub is_last: bool,
}

/// What a client must not send: the code to close with, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Violation {
    /// A code of RFC 6455, section 7.4.1.
    pub code: u16,
    /// The reason in one sentence.
    pub why: &'static str,
}

/// The state of one peer's stream of frames.
#[derive(Debug)]
pub struct Decoder {
    grain: Grain,
    /// True when the peer is a server, which masks nothing.
    is_of_server: bool,
    /// Where the reason of the close frame stands, once that was found.
    reason: Range<usize>,
    /// The data frame whose head was read and whose payload is not all handed out.
    frame: Option<Frame>,
    /// The message under way: whether it is text, and whether some of it was handed out.
    message: Option<Message>,
    is_closed: bool,
}

#[derive(Debug)]
struct Frame {
    left: u64,
    mask: [u8; 4],
    /// Payload bytes before those that are left, modulo 4.
    done: usize,
    is_final: bool,
}

#[derive(Clone, Copy, Debug)]
struct Message {
    is_text: bool,
    is_begun: bool,
}

/// A head, checked.
struct Header {
    header: FrameHeader,
    mask: [u8; 4],
    /// Bytes of the head.
    bytes: usize,
    length: u64,
}

impl Decoder {
    /// Before the first frame of a client.
    pub fn new(grain: Grain) -> Self {
        Self {
            grain,
            is_of_server: false,
            reason: 0..0,
            frame: None,
            message: None,
            is_closed: false,
        }
    }

    /// Before the first frame of a server.
    pub fn of_server(grain: Grain) -> Self {
        Self {
            is_of_server: true,
            ..Self::new(grain)
        }
    }

    /// Where the reason stands that came with the close frame, in the bytes in which that was found; may be empty.
    pub fn reason(&self) -> Range<usize> {
        self.reason.clone()
    }

    /// Finds the next piece in `bytes` behind `at`, and moves `at` behind it.
    ///
    /// `None` asks for more bytes behind those from `at` on, which stay the caller's to keep: a head or a control frame
    /// of at most 139 bytes, or with [`Grain::Frames`] a frame.
    ///
    /// # Errors
    /// A [`Violation`], after which nothing can be found any more.
    pub fn next(&mut self, bytes: &mut [u8], at: &mut usize) -> Result<Option<Piece>, Violation> {
        while !self.is_closed {
            if self.frame.is_some() {
                return Ok(self.payload(bytes, at));
            }
            let Some(header) = self.header(&bytes[*at..])? else {
                return Ok(None);
            };
            match header.header.opcode {
                OpCode::Control(code) => {
                    let Some(payload) = take_whole(&header, bytes, at) else {
                        return Ok(None);
                    };
                    match code {
                        Control::Ping => return Ok(Some(Piece::Ping(payload))),
                        Control::Close => {
                            self.is_closed = true;
                            self.reason = payload.end.min(payload.start + 2)..payload.end;
                            return closing(&bytes[payload]).map(Piece::Close).map(Some);
                        }
                        // Nobody asked: a pong is a sign of life, and no more.
                        _ => {}
                    }
                }
                OpCode::Data(code) => {
                    let missing = header.length > (bytes.len() - *at - header.bytes) as u64;
                    if missing && self.grain != Grain::Bytes {
                        return Ok(None);
                    }
                    *at += header.bytes;
                    self.begin(code, &header);
                }
            }
        }
        // What follows a close frame is nothing (RFC 6455, section 5.5.1).
        *at = bytes.len();
        Ok(None)
    }

    /// Reads and checks the head at the front of `bytes`, as far as it is there.
    fn header(&self, bytes: &[u8]) -> Result<Option<Header>, Violation> {
        let mut cursor = Cursor::new(bytes);
        let parsed = FrameHeader::parse(&mut cursor);
        let Some((header, length)) = parsed.map_err(|_| broken("an opcode is reserved"))? else {
            return Ok(None);
        };
        if header.rsv1 || header.rsv2 || header.rsv3 {
            return Err(broken("a reserved bit is set"));
        }
        let mask = match (header.mask, self.is_of_server) {
            (Some(mask), false) => mask,
            (None, true) => [0; 4],
            (None, false) => return Err(broken("a frame of a client must be masked")),
            (Some(_), true) => return Err(broken("a frame of a server must not be masked")),
        };
        match (header.opcode, self.message) {
            (OpCode::Control(_), _) if !header.is_final => {
                return Err(broken("a control frame is fragmented"));
            }
            (OpCode::Control(_), _) if length > MOST_CONTROL as u64 => {
                return Err(broken("a control frame is longer than 125 bytes"));
            }
            (OpCode::Data(Code::Continue), None) => {
                return Err(broken("nothing is there to be continued"));
            }
            (OpCode::Data(Code::Text | Code::Binary), Some(_)) => {
                return Err(broken("a message begins inside another"));
            }
            _ => {}
        }
        // The first bit of eight bytes is always zero (RFC 6455, section 5.2).
        if i64::try_from(length).is_err() {
            return Err(broken("a length is not one"));
        }
        match self.grain {
            Grain::Frames(most) if length > most as u64 => Err(Violation {
                code: CloseCode::Size.into(),
                why: "a frame is too long",
            }),
            _ => Ok(Some(Header {
                header,
                mask,
                bytes: usize::try_from(cursor.position()).unwrap_or(usize::MAX),
                length,
            })),
        }
    }

    fn begin(&mut self, code: Code, header: &Header) {
        if code != Code::Continue {
            self.message = Some(Message {
                is_text: code == Code::Text,
                is_begun: false,
            });
        }
        self.frame = Some(Frame {
            left: header.length,
            mask: header.mask,
            done: 0,
            is_final: header.header.is_final,
        });
    }

    /// Hands out what is there of the present data frame; `None` when nothing is.
    fn payload(&mut self, bytes: &mut [u8], at: &mut usize) -> Option<Piece> {
        let frame = self.frame.as_mut()?;
        let message = self.message.as_mut()?;
        let here = bytes.len() - *at;
        let count = usize::try_from(frame.left).map_or(here, |left| left.min(here));
        if count == 0 && frame.left > 0 {
            return None;
        }
        let place = *at..*at + count;
        unmask(&mut bytes[place.clone()], frame.mask, frame.done);
        *at = place.end;
        frame.left -= count as u64;
        frame.done = (frame.done + count) % 4;
        let ends_frame = frame.left == 0;
        let piece = Data {
            at: place,
            is_text: message.is_text,
            is_first: !message.is_begun,
            is_last: ends_frame && frame.is_final,
        };
        message.is_begun = true;
        if piece.is_last {
            self.message = None;
        }
        if ends_frame {
            self.frame = None;
        }
        Some(Piece::Data(piece))
    }
}

/// Steps over a frame that is all here, and tells where its payload stands, unmasked.
fn take_whole(header: &Header, bytes: &mut [u8], at: &mut usize) -> Option<Range<usize>> {
    let length = usize::try_from(header.length).ok()?;
    let start = *at + header.bytes;
    let payload = bytes.get_mut(start..start + length)?;
    unmask(payload, header.mask, 0);
    *at = start + length;
    Some(start..start + length)
}

/// The code in the payload of a close frame (RFC 6455, sections 5.5.1 and 7.4).
fn closing(payload: &[u8]) -> Result<Option<u16>, Violation> {
    let Some((code, reason)) = payload.split_first_chunk() else {
        return match payload {
            [] => Ok(None),
            _ => Err(broken("half a close code")),
        };
    };
    let code = u16::from_be_bytes(*code);
    if !CloseCode::from(code).is_allowed() {
        return Err(broken("a close code that nobody may send"));
    }
    if std::str::from_utf8(reason).is_err() {
        return Err(Violation {
            code: CloseCode::Invalid.into(),
            why: "the reason of a close frame is not UTF-8",
        });
    }
    Ok(Some(code))
}

fn broken(why: &'static str) -> Violation {
    Violation {
        code: CloseCode::Protocol.into(),
        why,
    }
}

/// Payload of a control frame, at most (RFC 6455, section 5.5).
pub(super) const MOST_CONTROL: usize = 125;

#[cfg(test)]
#[path = "decoder_tests.rs"]
mod tests;
