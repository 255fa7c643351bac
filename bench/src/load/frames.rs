//! Binary frames of an exec: a head of 16 bytes, then the payload, which is never gathered for output.
//!
//! Byte 0 is the kind (1 output, 2 gap, 3 exit), byte 1 the stream (1 standard output, 2 standard error, 0 none),
//! bytes 4 to 7 the length of the payload, bytes 8 to 15 the offset, both little-endian. Other kinds are skipped.

use anyhow::{Context, Result, bail, ensure};

use super::account::Account;

const HEAD_BYTES: usize = 16;
const MOST_GATHERED_BYTES: usize = 64 << 10;
const OUTPUT: u8 = 1;
const GAP: u8 = 2;
const EXIT: u8 = 3;

pub(super) struct Frames {
    /// The head, then the payload of a frame that is no output.
    gathered: Vec<u8>,
    /// Bytes of the present output frame still to come.
    output_left: usize,
}

impl Frames {
    pub(super) fn new() -> Self {
        Self {
            gathered: Vec::new(),
            output_left: 0,
        }
    }

    pub(super) fn take(&mut self, mut bytes: &[u8], account: &mut Account) -> Result<()> {
        while !bytes.is_empty() {
            if self.output_left > 0 {
                let count = bytes.len().min(self.output_left);
                account.bytes(&bytes[..count])?;
                self.output_left -= count;
                bytes = &bytes[count..];
                continue;
            }
            let missing = self.wanted()? - self.gathered.len();
            let count = bytes.len().min(missing);
            self.gathered.extend_from_slice(&bytes[..count]);
            bytes = &bytes[count..];
            if self.gathered.len() == self.wanted()? {
                self.tell(account)?;
            }
        }
        Ok(())
    }

    /// How much is to be gathered before anything can be told.
    fn wanted(&self) -> Result<usize> {
        if self.gathered.len() < HEAD_BYTES || self.gathered[0] == OUTPUT {
            return Ok(HEAD_BYTES);
        }
        let length = self.length();
        ensure!(length <= MOST_GATHERED_BYTES, "a frame is too long");
        Ok(HEAD_BYTES + length)
    }

    fn length(&self) -> usize {
        let bytes = [4, 5, 6, 7].map(|at| self.gathered[at]);
        usize::try_from(u32::from_le_bytes(bytes)).unwrap_or(usize::MAX)
    }

    fn tell(&mut self, account: &mut Account) -> Result<()> {
        let length = self.length();
        let frame = std::mem::take(&mut self.gathered);
        let offset = number(&frame[8..16])?;
        ensure!(frame[2..4] == [0, 0], "bytes 2 and 3 of a frame are zero");
        match frame[0] {
            OUTPUT => {
                let stream = match frame[1] {
                    1 => "stdout",
                    2 => "stderr",
                    other => bail!("no stream is called {other}"),
                };
                account.output_begins(offset, stream)?;
                self.output_left = length;
                Ok(())
            }
            GAP => account.gap(offset, number(&frame[HEAD_BYTES..])?),
            EXIT => account.exit(&frame[HEAD_BYTES..]),
            _ => Ok(()),
        }
    }
}

fn number(bytes: &[u8]) -> Result<u64> {
    let bytes = bytes.try_into().context("a number of 8 bytes")?;
    Ok(u64::from_le_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;
    use crate::load::Script;

    fn frame(kind: u8, stream: u8, offset: u64, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).expect("short");
        let mut out = vec![kind, stream, 0, 0];
        out.extend_from_slice(&length.to_le_bytes());
        out.extend_from_slice(&offset.to_le_bytes());
        out.extend_from_slice(payload);
        out
    }

    #[test]
    fn frames_are_understood_wherever_they_are_cut() {
        let exit = br#"{"exit_code":0,"offset":12}"#;
        let stream = [
            frame(OUTPUT, 1, 0, b"hello, "),
            frame(GAP, 0, 7, &8u64.to_le_bytes()),
            frame(OUTPUT, 1, 8, b"orld"),
            frame(EXIT, 0, 12, exit),
        ]
        .concat();
        for cut in 0..=stream.len() {
            let mut account = Account::new(Rc::new(Script::of(b"hello, world".to_vec())));
            let mut frames = Frames::new();
            for part in [&stream[..cut], &stream[cut..]] {
                frames.take(part, &mut account).expect("nothing is wrong");
            }
            assert_eq!(
                (account.delivered, account.gaps, account.has_ended),
                (11, 1, true),
                "cut at {cut}"
            );
        }
    }

    #[test]
    fn a_wrong_byte_is_an_error() {
        let mut account = Account::new(Rc::new(Script::of(b"hello".to_vec())));
        let bad = frame(OUTPUT, 1, 0, b"hellO");
        assert!(Frames::new().take(&bad, &mut account).is_err());
    }
}
