//! Output of an exec as binary frames: the raw form of an output stream (docs/PROTOCOL.md, "Raw stream").
//!
//! A frame is a head of 16 bytes and a payload. The numbers are little-endian.
//!
//! ```text
//! 0      1        2          4                8                16
//! kind   stream   zero       payload length   offset           payload …
//! ```

/// Bytes of a frame's head.
pub const HEAD: usize = 16;

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Output; the payload is the bytes, the offset that of the first one.
    Output = 1,
    /// Missing output; the offset is that of the first byte that is missing, the payload that of the first one held.
    Gap = 2,
    /// The end; the payload is the exit event as JSON, the offset the number of bytes ever written.
    Exit = 3,
    /// Nothing has happened for a while; no payload, the offset is that of the next byte.
    Idle = 4,
}

/// The number of a stream in a head: 1 for standard output, 2 for standard error, 0 for frames of neither.
pub type StreamNumber = u8;

/// The head of a frame whose payload has `length` bytes.
pub fn head(kind: Kind, stream: StreamNumber, length: u32, offset: u64) -> [u8; HEAD] {
    let mut head = [0; HEAD];
    head[0] = kind as u8;
    head[1] = stream;
    head[4..8].copy_from_slice(&length.to_le_bytes());
    head[8..].copy_from_slice(&offset.to_le_bytes());
    head
}

/// Appends a gap: the bytes in `from..to` are missing.
pub fn gap(into: &mut Vec<u8>, from: u64, to: u64) {
    into.extend_from_slice(&head(Kind::Gap, 0, 8, from));
    into.extend_from_slice(&to.to_le_bytes());
}

/// Appends a sign of life before `offset`.
pub fn idle(into: &mut Vec<u8>, offset: u64) {
    into.extend_from_slice(&head(Kind::Idle, 0, 0, offset));
}

/// Appends the end after `total` bytes; `event` is the exit event as JSON.
pub fn exit(into: &mut Vec<u8>, total: u64, event: &[u8]) {
    let length = u32::try_from(event.len()).expect("an exit event is short");
    into.extend_from_slice(&head(Kind::Exit, 0, length, total));
    into.extend_from_slice(event);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_sixteen_bytes() {
        let expected = [1, 2, 0, 0, 4, 3, 0, 0, 8, 7, 6, 5, 4, 3, 2, 1];
        let offset = 0x0102_0304_0506_0708;
        assert_eq!(head(Kind::Output, 2, 0x0304, offset), expected);
    }

    #[test]
    fn a_gap_and_an_exit_are_a_head_and_a_payload() {
        let mut frames = Vec::new();
        gap(&mut frames, 5, 260);
        exit(&mut frames, 9, b"{}");
        let expected = [
            [2, 0, 0, 0, 8, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0].as_slice(),
            &[4, 1, 0, 0, 0, 0, 0, 0],
            &[3, 0, 0, 0, 2, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0],
            b"{}",
        ];
        assert_eq!(frames, expected.concat());
    }
}
