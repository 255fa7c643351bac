//! Frames of ours: never masked, never fragmented.

use tungstenite::protocol::frame::FrameHeader;
use tungstenite::protocol::frame::coding::{Control, Data, OpCode};

/// The head of a binary message in one frame.
#[derive(Clone, Copy, Debug)]
pub struct Head {
    bytes: [u8; Self::MOST],
    length: usize,
}

impl Head {
    /// Bytes of the longest head.
    pub const MOST: usize = 10;

    /// The head before a payload of `length` bytes.
    pub fn of(length: usize) -> Self {
        let mut bytes = [0; Self::MOST];
        let mut rest = &mut bytes[..];
        format(OpCode::Data(Data::Binary), length, &mut rest);
        let left = rest.len();
        Self {
            bytes,
            length: Self::MOST - left,
        }
    }

    /// The head as it is sent.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// A ping without a payload.
pub fn ping() -> Vec<u8> {
    control(Control::Ping, &[])
}

/// The answer to a ping with this payload.
pub fn pong(payload: &[u8]) -> Vec<u8> {
    control(Control::Pong, payload)
}

/// A close frame; of `reason` goes out what fits, in whole characters.
pub fn close(code: u16, reason: &str) -> Vec<u8> {
    let mut ends = (0..=reason.len().min(MOST_REASON)).rev();
    let end = ends.find(|end| reason.is_char_boundary(*end)).unwrap_or(0);
    let payload = [&code.to_be_bytes(), &reason.as_bytes()[..end]].concat();
    control(Control::Close, &payload)
}

/// Writes a control frame. Payloads of at most 125 bytes are the caller's to see to.
fn control(code: Control, payload: &[u8]) -> Vec<u8> {
    debug_assert!(payload.len() <= super::decoder::MOST_CONTROL);
    let mut frame = Vec::with_capacity(2 + payload.len());
    format(OpCode::Control(code), payload.len(), &mut frame);
    frame.extend_from_slice(payload);
    frame
}

fn format(opcode: OpCode, length: usize, into: &mut impl std::io::Write) {
    let header = FrameHeader {
        opcode,
        ..FrameHeader::default()
    };
    // Only a writer without room can fail.
    let _ = header.format(length as u64, into);
}

/// What a close frame has room for behind its code (RFC 6455, section 5.5).
const MOST_REASON: usize = 123;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_takes_the_shortest_form() {
        for (length, head) in [
            (0, &b"\x82\x00"[..]),
            (125, b"\x82\x7d"),
            (126, b"\x82\x7e\x00\x7e"),
            (65_535, b"\x82\x7e\xff\xff"),
            (65_536, b"\x82\x7f\0\0\0\0\0\x01\0\0"),
        ] {
            assert_eq!(Head::of(length).bytes(), head, "{length}");
        }
    }

    #[test]
    fn control_frames_are_whole_and_short() {
        assert_eq!(ping(), b"\x89\x00");
        assert_eq!(pong(b"hi"), b"\x8a\x02hi");
        assert_eq!(close(1000, ""), b"\x88\x02\x03\xe8");
        let long = close(4502, &"ä".repeat(100));
        assert_eq!(long.len(), 2 + 2 + 122);
        assert!(std::str::from_utf8(&long[4..]).is_ok());
    }
}
