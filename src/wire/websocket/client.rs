//! What only a client does: masked frames, and the check of the answer to its key.

use tungstenite::protocol::frame::FrameHeader;
use tungstenite::protocol::frame::coding::{Control, Data, OpCode};

pub use tungstenite::handshake::derive_accept_key as accept_key;

/// The kinds of frames that a client sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opcode {
    /// A binary message.
    Binary,
    /// The answer to a ping.
    Pong,
    /// The last frame.
    Close,
}

/// The head of a whole frame, with the key that masks its payload.
#[derive(Clone, Copy, Debug)]
pub struct MaskedHead {
    bytes: [u8; Self::MOST],
    length: usize,
}

impl MaskedHead {
    /// Bytes of the longest head.
    pub const MOST: usize = 14;

    /// The head before a payload of `length` bytes.
    pub fn of(opcode: Opcode, length: usize, key: [u8; 4]) -> Self {
        let header = FrameHeader {
            opcode: match opcode {
                Opcode::Binary => OpCode::Data(Data::Binary),
                Opcode::Pong => OpCode::Control(Control::Pong),
                Opcode::Close => OpCode::Control(Control::Close),
            },
            mask: Some(key),
            ..FrameHeader::default()
        };
        let mut bytes = [0; Self::MOST];
        let mut rest = &mut bytes[..];
        header
            .format(length as u64, &mut rest)
            .expect("there is room for the longest head");
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

/// Masks the whole payload of a frame where it stands.
pub fn mask(payload: &mut [u8], key: [u8; 4]) {
    super::mask::unmask(payload, key, 0);
}

#[cfg(test)]
mod tests {
    use super::super::{Decoder, Grain, Piece};
    use super::*;

    #[test]
    fn frames_of_a_server_are_read_unmasked_and_its_reason_is_told() {
        let mut bytes = b"\x82\x05hello\x89\x01?\x88\x07\x11\x96 late".to_vec();
        let mut decoder = Decoder::of_server(Grain::Bytes);
        let mut at = 0;
        let mut next = |bytes: &mut Vec<u8>| decoder.next(bytes, &mut at);
        match next(&mut bytes) {
            Ok(Some(Piece::Data(data))) => assert_eq!(&bytes[data.at], b"hello"),
            other => panic!("{other:?}"),
        }
        assert_eq!(next(&mut bytes), Ok(Some(Piece::Ping(9..10))));
        assert_eq!(next(&mut bytes), Ok(Some(Piece::Close(Some(4502)))));
        assert_eq!(&bytes[decoder.reason()], b" late");
    }

    #[test]
    fn a_close_frame_without_a_reason_has_an_empty_one() {
        for mut bytes in [b"\x88\x00".to_vec(), b"\x88\x02\x03\xe8".to_vec()] {
            let mut decoder = Decoder::of_server(Grain::Bytes);
            let found = decoder.next(&mut bytes, &mut 0);
            assert!(matches!(found, Ok(Some(Piece::Close(_)))), "{found:?}");
            assert!(decoder.reason().is_empty());
        }
    }

    #[test]
    fn a_server_that_masks_is_refused() {
        let mut bytes = [MaskedHead::of(Opcode::Binary, 1, [1; 4]).bytes(), b"x"].concat();
        let found = Decoder::of_server(Grain::Bytes).next(&mut bytes, &mut 0);
        assert!(found.is_err(), "{found:?}");
    }

    #[test]
    fn a_frame_is_that_of_the_standard() {
        // RFC 6455, section 5.7: a masked "Hello", here as a binary message.
        let key = [0x37, 0xfa, 0x21, 0x3d];
        let mut payload = *b"Hello";
        mask(&mut payload, key);
        assert_eq!(payload, [0x7f, 0x9f, 0x4d, 0x51, 0x58]);
        let head = MaskedHead::of(Opcode::Binary, 5, key);
        assert_eq!(head.bytes(), [0x82, 0x85, 0x37, 0xfa, 0x21, 0x3d]);
    }

    #[test]
    fn a_length_takes_the_shortest_form() {
        for (opcode, length, head) in [
            (Opcode::Close, 2, &b"\x88\x82abcd"[..]),
            (Opcode::Pong, 125, b"\x8a\xfdabcd"),
            (Opcode::Binary, 126, b"\x82\xfe\x00\x7eabcd"),
            (Opcode::Binary, 65_536, b"\x82\xff\0\0\0\0\0\x01\0\0abcd"),
        ] {
            let made = MaskedHead::of(opcode, length, *b"abcd");
            assert_eq!(made.bytes(), head, "{length}");
        }
    }
}
