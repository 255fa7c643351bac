//! Frames: ours with a mask of zeros, which leaves the payload as it is, and the server's as they arrive.

use anyhow::{Context, Result, bail, ensure};

/// A binary message in one frame, ready to be sent again and again.
pub(crate) struct Frame {
    sealed: Vec<u8>,
    header_bytes: usize,
}

impl Frame {
    pub(crate) fn of(payload: &[u8]) -> Self {
        let sealed = sealed(BINARY, payload);
        Self {
            header_bytes: sealed.len() - payload.len(),
            sealed,
        }
    }

    pub(crate) fn payload(&self) -> &[u8] {
        &self.sealed[self.header_bytes..]
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.sealed
    }
}

/// A frame of ours (RFC 6455, section 5.2).
pub(super) fn sealed(opcode: u8, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(MOST_HEADER_BYTES + payload.len());
    out.push(FINAL | opcode);
    match payload.len() {
        short @ ..126 => out.push(MASKED | u8::try_from(short).expect("it is below 126")),
        length => match u16::try_from(length) {
            Ok(length) => {
                out.push(MASKED | TWO_BYTES);
                out.extend_from_slice(&length.to_be_bytes());
            }
            Err(_) => {
                out.push(MASKED | EIGHT_BYTES);
                out.extend_from_slice(&(length as u64).to_be_bytes());
            }
        },
    }
    out.extend_from_slice(&[0; MASK_BYTES]);
    out.extend_from_slice(payload);
    out
}

/// What comes from the server.
#[derive(Default)]
pub(super) struct Inbox {
    /// A header, or a control frame, that is not complete.
    gathered: Vec<u8>,
    /// Bytes of the present message frame still to come.
    payload_left: u64,
    /// Payloads of pings that are not answered yet.
    pings: Vec<Vec<u8>>,
    /// The payload of the close frame.
    closed: Option<Vec<u8>>,
}

/// The header of a frame.
struct Header {
    opcode: u8,
    length: u64,
    bytes: usize,
}

impl Inbox {
    /// Takes bytes of the connection and shows those of messages to `sink`, and whether they end their frame.
    pub(super) fn take(
        &mut self,
        mut bytes: &[u8],
        sink: &mut impl FnMut(&[u8], bool) -> Result<()>,
    ) -> Result<()> {
        while !bytes.is_empty() {
            if self.payload_left > 0 {
                let most = usize::try_from(self.payload_left).unwrap_or(usize::MAX);
                let (payload, rest) = bytes.split_at(bytes.len().min(most));
                self.skip(payload.len() as u64);
                sink(payload, self.payload_left == 0)?;
                bytes = rest;
                continue;
            }
            ensure!(!self.is_closed(), "something came after the close frame");
            let missing = wanted(&self.gathered)? - self.gathered.len();
            let (part, rest) = bytes.split_at(bytes.len().min(missing));
            self.gathered.extend_from_slice(part);
            bytes = rest;
            if self.gathered.len() == wanted(&self.gathered)? {
                self.tell()?;
            }
        }
        Ok(())
    }

    /// Bytes of the present message frame still to come.
    pub(super) fn payload_left(&self) -> u64 {
        self.payload_left
    }

    /// Counts bytes of the present message frame that were dropped.
    pub(super) fn skip(&mut self, count: u64) {
        debug_assert!(count <= self.payload_left, "no more than are left");
        self.payload_left -= count;
    }

    /// The pings that came since the last look.
    pub(super) fn pings(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.pings)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.is_some()
    }

    /// The status of the close frame, if it has one.
    pub(super) fn status(&self) -> Option<u16> {
        let status = self.closed.as_ref()?.first_chunk()?;
        Some(u16::from_be_bytes(*status))
    }

    /// Why the server closed, as it says.
    pub(super) fn reason(&self) -> String {
        match (&self.closed, self.status()) {
            (Some(payload), Some(status)) => {
                format!("{status} {}", String::from_utf8_lossy(&payload[2..]))
            }
            (Some(_), None) => "without a status".to_owned(),
            (None, _) => "without a close frame".to_owned(),
        }
    }

    /// A whole header of a message, or a whole control frame.
    fn tell(&mut self) -> Result<()> {
        let frame = std::mem::take(&mut self.gathered);
        let header = header(&frame)?.context("a header is complete")?;
        let payload = frame[header.bytes..].to_vec();
        match header.opcode {
            PING => self.pings.push(payload),
            CLOSE => self.closed = Some(payload),
            PONG => {}
            _ => self.payload_left = header.length,
        }
        Ok(())
    }
}

/// How much is to be gathered before anything can be told.
fn wanted(gathered: &[u8]) -> Result<usize> {
    let Some(header) = header(gathered)? else {
        return Ok(match gathered.get(1) {
            None => 2,
            Some(&TWO_BYTES) => 4,
            Some(_) => 10,
        });
    };
    match header.opcode & CONTROL {
        0 => Ok(header.bytes),
        _ => Ok(header.bytes + usize::try_from(header.length)?),
    }
}

/// The header at the front of `bytes`, or nothing while it is incomplete.
fn header(bytes: &[u8]) -> Result<Option<Header>> {
    let &[first, second, ref rest @ ..] = bytes else {
        return Ok(None);
    };
    ensure!(first & RESERVED == 0, "a frame has reserved bits set");
    ensure!(second & MASKED == 0, "a server's frame is masked");
    let opcode = first & !FINAL;
    match opcode {
        CONTINUATION | BINARY => {}
        CLOSE | PING | PONG => ensure!(
            first & FINAL != 0 && second < TWO_BYTES,
            "a control frame is whole and short"
        ),
        other => bail!("a frame with the opcode {other}"),
    }
    let (length, bytes) = match second {
        TWO_BYTES => match rest.first_chunk() {
            Some(length) => (u64::from(u16::from_be_bytes(*length)), 4),
            None => return Ok(None),
        },
        EIGHT_BYTES => match rest.first_chunk() {
            Some(length) => (u64::from_be_bytes(*length), 10),
            None => return Ok(None),
        },
        short => (u64::from(short), 2),
    };
    Ok(Some(Header {
        opcode,
        length,
        bytes,
    }))
}

/// The longest header: with a length of 8 bytes and a mask.
pub(super) const MOST_HEADER_BYTES: usize = 14;
const MASK_BYTES: usize = 4;
const FINAL: u8 = 0x80;
const RESERVED: u8 = 0x70;
const MASKED: u8 = 0x80;
/// In place of a length: it follows in two bytes.
const TWO_BYTES: u8 = 126;
/// In place of a length: it follows in eight bytes.
const EIGHT_BYTES: u8 = 127;
/// The bit that control frames have in their opcode.
const CONTROL: u8 = 8;
const CONTINUATION: u8 = 0;
const BINARY: u8 = 2;
pub(super) const CLOSE: u8 = 8;
const PING: u8 = 9;
pub(super) const PONG: u8 = 10;

#[cfg(test)]
mod tests {
    use super::*;

    /// A server's frame with the shortest length that holds it.
    fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
        let mut out = sealed(first, payload);
        out[0] = first;
        out[1] &= !MASKED;
        let mask_at = out.len() - payload.len() - MASK_BYTES;
        out.drain(mask_at..mask_at + MASK_BYTES);
        out
    }

    #[test]
    fn frames_are_understood_wherever_they_are_cut() {
        let long = vec![9; 300];
        let huge = vec![8; 70_000];
        let stream = [
            frame(FINAL | BINARY, b"hello"),
            frame(FINAL | BINARY, b""),
            frame(BINARY, &long),
            frame(FINAL | PING, b"yes"),
            frame(FINAL | CONTINUATION, &huge),
            frame(FINAL | CLOSE, b"\x11\x30gone"),
        ]
        .concat();
        let whole = [&b"hello"[..], &long, &huge].concat();
        let cuts = (0..400).chain(stream.len() - 20..=stream.len());
        for cut in cuts {
            let mut inbox = Inbox::default();
            let mut payload = Vec::new();
            for part in [&stream[..cut], &stream[cut..]] {
                let sink = &mut |bytes: &[u8], _| {
                    payload.extend_from_slice(bytes);
                    Ok(())
                };
                inbox.take(part, sink).expect("nothing is wrong");
            }
            assert!(payload == whole, "cut at {cut}");
            assert_eq!(inbox.pings(), [b"yes".to_vec()], "cut at {cut}");
            assert_eq!(inbox.reason(), "4400 gone", "cut at {cut}");
        }
    }

    #[test]
    fn wrong_frames_are_refused() {
        for wrong in [
            vec![FINAL | BINARY, MASKED | 1, 0, 0, 0, 0, 7],
            frame(0xc0 | BINARY, b"x"),
            frame(FINAL | 3, b"x"),
            frame(PING, b"x"),
            frame(FINAL | PING, &[0; 126]),
            [frame(FINAL | CLOSE, b""), frame(FINAL | BINARY, b"x")].concat(),
        ] {
            let outcome = Inbox::default().take(&wrong, &mut |_, _| Ok(()));
            assert!(outcome.is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn our_frames_are_masked_with_zeros() {
        assert_eq!(sealed(BINARY, b"hi"), b"\x82\x82\0\0\0\0hi");
        assert_eq!(sealed(BINARY, &[1; 126])[..8], *b"\x82\xfe\x00\x7e\0\0\0\0");
        let huge = sealed(BINARY, &[1; 65_536]);
        assert_eq!(Frame::of(b"hi").payload(), b"hi");
        assert_eq!(huge[..14], *b"\x82\xff\0\0\0\0\0\x01\0\0\0\0\0\0");
    }
}
