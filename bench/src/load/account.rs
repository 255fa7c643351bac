//! What one follower has been told so far, checked against the script byte by byte.

use std::rc::Rc;

use anyhow::{Result, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::script::Script;

/// Output must be contiguous but for gaps, and right. The first deviation is an error.
pub(crate) struct Account {
    script: Rc<Script>,
    cursor: u64,
    /// Bytes of output, decoded.
    pub(crate) delivered: u64,
    pub(crate) gaps: u64,
    pub(crate) has_ended: bool,
    /// Characters of the present message that are not compared yet; its last group may be padded.
    held: Vec<u8>,
}

impl Account {
    pub(crate) fn new(script: Rc<Script>) -> Self {
        Self {
            script,
            cursor: 0,
            delivered: 0,
            gaps: 0,
            has_ended: false,
            held: Vec::new(),
        }
    }

    pub(super) fn output_begins(&mut self, offset: u64, stream: &str) -> Result<()> {
        ensure!(!self.has_ended, "output came after the exit");
        ensure!(stream == "stdout", "output of {stream} was not expected");
        ensure!(
            offset == self.cursor,
            "output at {offset}, expected at {}",
            self.cursor
        );
        Ok(())
    }

    /// Characters of base64 of the output that has begun.
    pub(super) fn text(&mut self, mut part: &[u8]) -> Result<()> {
        let whole = self.held.len() + part.len();
        if whole <= 4 {
            self.held.extend_from_slice(part);
            return Ok(());
        }
        if !self.held.is_empty() {
            let missing = (4 - self.held.len() % 4) % 4;
            self.held.extend_from_slice(&part[..missing]);
            part = &part[missing..];
            let held = std::mem::take(&mut self.held);
            self.quads(&held)?;
        }
        // The last group may be padded: it waits for the end.
        let kept = match part.len() % 4 {
            0 => 4,
            rest => rest,
        };
        let (sure, last) = part.split_at(part.len() - kept);
        self.held.extend_from_slice(last);
        self.quads(sure)
    }

    pub(super) fn text_ends(&mut self) -> Result<()> {
        let held = std::mem::take(&mut self.held);
        let bytes = STANDARD.decode(&held)?;
        self.bytes(&bytes)
    }

    /// Bytes of the output that has begun.
    pub(super) fn bytes(&mut self, bytes: &[u8]) -> Result<()> {
        ensure!(
            self.script.has(self.cursor, bytes),
            "wrong bytes at {}",
            self.cursor
        );
        self.advance(bytes.len() as u64);
        Ok(())
    }

    pub(super) fn gap(&mut self, from: u64, to: u64) -> Result<()> {
        ensure!(
            from == self.cursor && to > from && to <= self.script.total(),
            "a gap from {from} to {to} at {}",
            self.cursor
        );
        self.cursor = to;
        self.gaps += 1;
        Ok(())
    }

    /// `event` is the JSON of the exit event.
    pub(super) fn exit(&mut self, event: &[u8]) -> Result<()> {
        let event: serde_json::Value = serde_json::from_slice(event)?;
        ensure!(!self.has_ended, "the exit came twice");
        ensure!(
            event["exit_code"] == 0 && event["offset"] == self.script.total(),
            "unexpected exit {event}"
        );
        ensure!(
            self.cursor == self.script.total(),
            "the exit came at {} of {}",
            self.cursor,
            self.script.total()
        );
        self.has_ended = true;
        Ok(())
    }

    fn quads(&mut self, quads: &[u8]) -> Result<()> {
        ensure!(
            self.script.has_encoded(self.cursor, quads),
            "wrong text at {}",
            self.cursor
        );
        self.advance(quads.len() as u64 / 4 * 3);
        Ok(())
    }

    fn advance(&mut self, bytes: u64) {
        self.cursor += bytes;
        self.delivered += bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(script: &[u8]) -> Account {
        Account::new(Rc::new(Script::of(script.to_vec())))
    }

    #[test]
    fn text_is_compared_wherever_it_is_cut_and_padded() {
        for script in [&b"hello, wor"[..], b"hello, worl", b"hello, world"] {
            let text = STANDARD.encode(script);
            for cut in 0..=text.len() {
                let mut account = account(script);
                account.output_begins(0, "stdout").expect("it is");
                for part in [&text[..cut], &text[cut..]] {
                    account.text(part.as_bytes()).expect("nothing is wrong");
                }
                account.text_ends().expect("nothing is wrong");
                assert_eq!(account.delivered, script.len() as u64, "cut at {cut}");
            }
        }
    }

    #[test]
    fn output_that_is_skipped_or_told_twice_is_an_error() {
        let mut account = account(b"hello");
        assert!(account.output_begins(1, "stdout").is_err());
        account.output_begins(0, "stdout").expect("it is");
        account.bytes(b"hel").expect("they are right");
        assert!(account.output_begins(0, "stdout").is_err());
        assert!(account.gap(2, 4).is_err() && account.gap(3, 6).is_err());
        assert!(account.exit(br#"{"exit_code":0,"offset":5}"#).is_err());
        account.gap(3, 5).expect("it follows");
        assert!(account.exit(br#"{"exit_code":1,"offset":5}"#).is_err());
        account
            .exit(br#"{"exit_code":0,"offset":5}"#)
            .expect("all was told");
        assert!(account.output_begins(5, "stdout").is_err());
    }
}
