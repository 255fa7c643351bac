//! What a handler writes, told to the log line by line, up to a bound.

use std::rc::Rc;

use rustix::io::Errno;

use crate::ring::notify::Once;
use crate::ring::{self, Fd};

/// Reads `pipe` to its end, or until `over` and what is in it by then.
pub(super) async fn follow(pipe: Fd, hook: &'static str, stream: &'static str, over: Rc<Once<()>>) {
    let mut lines = Lines::default();
    let mut say = |line: &str| tracing::info!(hook, stream, line, "a hook handler says");
    let mut buffer = vec![0; PIECE];
    let mut late = 0;
    while late < PIPE_BYTES {
        let is_over = over.peek().is_some();
        match rustix::io::read(&pipe, &mut buffer) {
            Ok(0) => break,
            Ok(count) => {
                lines.push(&buffer[..count], &mut say);
                late += if is_over { count } else { 0 };
                ring::turn().await;
            }
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) if is_over => break,
            Err(Errno::AGAIN) => {
                let is_gone = monoio::select! {
                    ready = pipe.readable() => ready.is_err(),
                    () = over.wait() => false,
                };
                if is_gone {
                    break;
                }
            }
            Err(error) => {
                tracing::warn!(hook, stream, %error, "a pipe of a hook handler could not be read");
                break;
            }
        }
    }
    let unsaid = lines.end(&mut say);
    if unsaid > 0 {
        tracing::info!(
            hook,
            stream,
            bytes = unsaid,
            "a hook handler has said more than is logged"
        );
    }
}

/// Cuts bytes into lines, and keeps to the bounds of a line and of them all.
struct Lines {
    /// The line that has no end yet.
    held: Vec<u8>,
    /// What may still be told.
    left: usize,
    /// Bytes that were not told.
    unsaid: u64,
}

impl Default for Lines {
    fn default() -> Self {
        Self {
            held: Vec::new(),
            left: MOST_SAID,
            unsaid: 0,
        }
    }
}

impl Lines {
    fn push(&mut self, bytes: &[u8], say: &mut impl FnMut(&str)) {
        let mut pieces = bytes.split(|byte| *byte == b'\n').peekable();
        while let Some(piece) = pieces.next() {
            let room = MOST_LINE.min(self.left).saturating_sub(self.held.len());
            let (kept, beyond) = piece.split_at(piece.len().min(room));
            self.held.extend_from_slice(kept);
            self.unsaid += beyond.len() as u64;
            if pieces.peek().is_some() {
                self.say(say);
            }
        }
    }

    /// Tells what has no line end; answers how many bytes were not told.
    fn end(mut self, say: &mut impl FnMut(&str)) -> u64 {
        self.say(say);
        self.unsaid
    }

    fn say(&mut self, say: &mut impl FnMut(&str)) {
        let line = self.held.trim_ascii_end();
        if !line.is_empty() {
            say(&String::from_utf8_lossy(line));
            self.left = self.left.saturating_sub(line.len() + OVERHEAD);
        }
        self.held.clear();
    }
}

/// Bytes of one line that are told.
const MOST_LINE: usize = 1024;
/// Bytes of one stream that are told, counting what the log adds to a line.
const MOST_SAID: usize = 32 * 1024;
/// About what the log adds to a line.
const OVERHEAD: usize = 128;
/// Bytes read at once.
const PIECE: usize = 16 * 1024;
/// What a pipe holds: that much may be left when its handler has ended.
const PIPE_BYTES: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    /// What is told of these pieces, and how many bytes are not.
    fn told(pieces: &[&[u8]]) -> (Vec<String>, u64) {
        let mut said = Vec::new();
        let mut say = |line: &str| said.push(line.to_owned());
        let mut lines = Lines::default();
        for piece in pieces {
            lines.push(piece, &mut say);
        }
        let unsaid = lines.end(&mut say);
        (said, unsaid)
    }

    #[test]
    fn lines_are_told_wherever_they_are_cut() {
        let text = b"one\ntwo \r\n\n\nthree";
        let whole = told(&[text]);
        assert_eq!(whole, (["one", "two", "three"].map(String::from).into(), 0));
        for cut in 0..text.len() {
            assert_eq!(told(&[&text[..cut], &text[cut..]]), whole, "{cut}");
        }
    }

    #[test]
    fn a_long_line_is_cut_and_the_next_one_is_not() {
        let long = [&[b'x'; 5000][..], b"\nnext\n"].concat();
        let (said, unsaid) = told(&[&long]);
        assert_eq!(
            said.iter().map(String::len).collect::<Vec<_>>(),
            [MOST_LINE, 4]
        );
        assert_eq!(unsaid, 5000 - 1024);
    }

    #[test]
    fn what_is_told_of_a_flood_is_bounded() {
        for line in [&b"\n"[..], b"x\n", &[b'x'; 900]] {
            let flood = line.repeat(4000);
            let (said, unsaid) = told(&[&flood]);
            let bytes: usize = said.iter().map(|line| line.len() + OVERHEAD).sum();
            assert!(bytes < MOST_SAID + MOST_LINE + OVERHEAD, "{bytes}");
            let letters = flood.iter().filter(|byte| **byte == b'x').count();
            let told: usize = said.iter().map(String::len).sum();
            assert_eq!(told as u64 + unsaid, letters as u64);
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_told_as_well_as_can_be() {
        assert_eq!(told(&[b"a\xffb\n"]).0, ["a\u{fffd}b"]);
    }
}
