//! Server-sent events of an exec, read as they arrive; the text of output is never gathered.

use anyhow::{Context, Result, bail, ensure};

use super::account::Account;

const OUTPUT: &[u8] = b"\"output\":\"";
const MOST_TEXT_BYTES: usize = 64 << 10;

/// Where the next byte belongs.
pub(super) struct Events {
    place: Place,
    /// What came of an event before its output, or all of an event without one.
    text: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Outside,
    Output,
    /// Behind the output: the end of the data and of the event.
    Tail,
}

impl Events {
    pub(super) fn new() -> Self {
        Self {
            place: Place::Outside,
            text: Vec::new(),
        }
    }

    pub(super) fn take(&mut self, mut bytes: &[u8], account: &mut Account) -> Result<()> {
        while !bytes.is_empty() {
            bytes = match self.place {
                Place::Outside => self.take_text(bytes, account)?,
                Place::Output => {
                    let end = memchr::memchr(b'"', bytes);
                    account.text(&bytes[..end.unwrap_or(bytes.len())])?;
                    let Some(end) = end else { return Ok(()) };
                    account.text_ends()?;
                    self.place = Place::Tail;
                    &bytes[end + 1..]
                }
                Place::Tail => {
                    let wanted = b"}\n\n"[self.text.len()];
                    ensure!(bytes[0] == wanted, "an output event ends badly");
                    self.text.push(wanted);
                    if self.text.len() == 3 {
                        self.text.clear();
                        self.place = Place::Outside;
                    }
                    &bytes[1..]
                }
            };
        }
        Ok(())
    }

    fn take_text<'a>(&mut self, bytes: &'a [u8], account: &mut Account) -> Result<&'a [u8]> {
        let mut from = 0;
        for at in memchr::memchr2_iter(b'"', b'\n', bytes) {
            self.text.extend_from_slice(&bytes[from..=at]);
            from = at + 1;
            if bytes[at] == b'"' && self.text.ends_with(OUTPUT) {
                let (offset, stream) = parse_output(&self.text)?;
                account.output_begins(offset, stream)?;
                self.text.clear();
                self.place = Place::Output;
                return Ok(&bytes[from..]);
            }
            if bytes[at] == b'\n' && self.text.ends_with(b"\n\n") {
                tell(&self.text, account)?;
                self.text.clear();
                return Ok(&bytes[from..]);
            }
        }
        self.text.extend_from_slice(&bytes[from..]);
        ensure!(self.text.len() < MOST_TEXT_BYTES, "an event is too long");
        Ok(&[])
    }
}

/// Offset and stream of `event: output`, up to where its text begins.
fn parse_output(text: &[u8]) -> Result<(u64, &str)> {
    let text = std::str::from_utf8(text)?;
    let parse = || {
        let rest = text.strip_prefix("event: output\ndata: {\"offset\":")?;
        let (offset, rest) = rest.split_once(",\"stream\":\"")?;
        Some((offset.parse().ok()?, rest.strip_suffix("\",\"output\":\"")?))
    };
    parse().with_context(|| format!("bad output event {text:?}"))
}

/// An event without output, or a comment.
fn tell(text: &[u8], account: &mut Account) -> Result<()> {
    if text.starts_with(b":") {
        return Ok(());
    }
    let text = std::str::from_utf8(text)?.trim_end();
    let (name, data) = text
        .strip_prefix("event: ")
        .and_then(|rest| rest.split_once("\ndata: "))
        .with_context(|| format!("bad event {text:?}"))?;
    match name {
        "exit" => account.exit(data.as_bytes()),
        "gap" => {
            let gap: serde_json::Value = serde_json::from_str(data)?;
            let bound = |key: &str| gap[key].as_u64().context("a gap without its bounds");
            account.gap(bound("from")?, bound("to")?)
        }
        _ => bail!("unexpected event {name:?}"),
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;
    use crate::load::Script;

    const STREAM: &[u8] = b"event: output\ndata: {\"offset\":0,\"stream\":\"stdout\",\"output\":\"aGVsbG8sIA==\"}\n\n\
        :\n\nevent: gap\ndata: {\"from\":7,\"to\":8}\n\n\
        event: output\ndata: {\"offset\":8,\"stream\":\"stdout\",\"output\":\"b3JsZA==\"}\n\n\
        event: exit\ndata: {\"exit_code\":0,\"signal\":null,\"offset\":12}\n\n";

    fn follow(parts: &[&[u8]], script: &[u8]) -> Result<Account> {
        let mut account = Account::new(Rc::new(Script::of(script.to_vec())));
        let mut events = Events::new();
        for part in parts {
            events.take(part, &mut account)?;
        }
        Ok(account)
    }

    #[test]
    fn a_stream_is_understood_wherever_it_is_cut() {
        for cut in 0..=STREAM.len() {
            let account = follow(&[&STREAM[..cut], &STREAM[cut..]], b"hello, world")
                .expect("nothing is wrong");
            assert_eq!(
                (account.delivered, account.gaps, account.has_ended),
                (11, 1, true),
                "cut at {cut}"
            );
        }
        let bytes: Vec<&[u8]> = STREAM.chunks(1).collect();
        assert!(follow(&bytes, b"hello, world").is_ok_and(|account| account.has_ended));
    }

    #[test]
    fn a_wrong_byte_is_an_error() {
        assert!(follow(&[STREAM], b"hellO, world").is_err());
        assert!(follow(&[STREAM], b"hello, worl!").is_err());
        assert!(follow(&[STREAM], b"hello, world!").is_err());
    }
}
