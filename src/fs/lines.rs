//! A window of lines, cut out of a file byte for byte.

mod index;
mod last;

use std::io::BufRead;

use super::file::Opened;
use crate::error::{Kind, Result};
use crate::ring::{Outflow, buffers};

/// What is asked for of the lines of a file; a line ends with its `\n`, the last one with the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Window {
    /// Those between two numbers.
    Span(Span),
    /// So many, counted from the end.
    Last(u64),
}

/// Lines `first` to `last`, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    first: u64,
    /// `u64::MAX` when the window is open.
    last: u64,
}

impl Window {
    /// Reads the values of `start_line`, `end_line` and `last_lines`; `None` when none is given.
    ///
    /// # Errors
    /// `Malformed` for what is no number, for line 0, for an end before the start, and for both kinds at once.
    pub fn parse(
        start: Option<&str>,
        end: Option<&str>,
        last: Option<&str>,
    ) -> Result<Option<Self>> {
        let span = Span::parse(start, end)?;
        let Some(last) = last else {
            return Ok(span.map(Self::Span));
        };
        let last = last.parse().map_err(|_| no_count())?;
        match span {
            None => Ok(Some(Self::Last(last))),
            Some(_) => {
                Err(Kind::Malformed.told("last_lines stands without start_line and end_line"))
            }
        }
    }
}

impl Span {
    fn parse(start: Option<&str>, end: Option<&str>) -> Result<Option<Self>> {
        if start.is_none() && end.is_none() {
            return Ok(None);
        }
        let first = start.map(number).transpose()?.unwrap_or(1);
        let last = end.map(number).transpose()?.unwrap_or(u64::MAX);
        if first == 0 {
            return Err(Kind::Malformed.told("start_line is 1-based, so 0 is no line"));
        }
        if last < first {
            return Err(
                Kind::Malformed.told(format!("end_line {last} is before start_line {first}"))
            );
        }
        Ok(Some(Self { first, last }))
    }
}

/// Sends the window of a file; reads no farther than its last line, and begins at the last known place before it.
///
/// # Errors
/// Those of the sink; `Internal` when the file cannot be read.
pub(super) async fn send(window: Span, opened: &Opened, sink: &mut dyn Outflow) -> Result<()> {
    let lasting = opened.lasting();
    let (mut offset, line) = lasting.map_or((0, 1), |version| index::find(version, window.first));
    let mut cutter = Cutter { window, line };
    let mut reader = opened.reader(offset);
    let mut buffer = buffers::lease();
    while !cutter.is_over() {
        buffer.clear();
        if reader.read(&mut buffer).await? == 0 {
            break;
        }
        let mut rest = buffer.as_slice();
        let mut is_silent = true;
        while !rest.is_empty() && !cutter.is_over() {
            let (piece, behind) = rest.split_at(index::until_mark(offset, rest.len()));
            rest = behind;
            offset += piece.len() as u64;
            let cut = cutter.cut(piece);
            if let Some(version) = lasting.filter(|_| !cutter.is_over()) {
                index::note(version, offset, cutter.line);
            }
            is_silent &= cut.is_empty();
            sink.write(cut).await?;
        }
        sink.flush().await?;
        if is_silent {
            // With the head out, a client that has left shows, and a long search for the window ends.
            sink.check()?;
        }
    }
    Ok(())
}

/// Finds the window in pieces of a file, cut anywhere.
struct Cutter {
    window: Span,
    /// The number of the line that the next byte belongs to.
    line: u64,
}

impl Cutter {
    /// True when no byte to come can belong to the window.
    fn is_over(&self) -> bool {
        self.line > self.window.last
    }

    /// The part of `piece` inside the window.
    fn cut<'a>(&mut self, piece: &'a [u8]) -> &'a [u8] {
        let rest = self.skip(piece, self.window.first);
        let behind = self.skip(rest, self.window.last.saturating_add(1));
        &rest[..rest.len() - behind.len()]
    }

    /// What of `piece` lies on line `line` and after.
    fn skip<'a>(&mut self, mut piece: &'a [u8], line: u64) -> &'a [u8] {
        while self.line < line && !piece.is_empty() {
            // Counting a block costs a fraction of finding each line in it.
            let (block, behind) = piece.split_at(piece.len().min(BLOCK));
            let lines = newlines(block);
            if self.line + lines < line {
                self.line += lines;
                piece = behind;
                continue;
            }
            while self.line < line {
                // A slice reads without an error.
                let _ = piece.skip_until(b'\n');
                self.line += 1;
            }
        }
        piece
    }
}

/// How many lines end in `bytes`.
fn newlines(bytes: &[u8]) -> u64 {
    // Sums that fit a byte are made many at a time.
    let sum = |few: &[u8]| few.iter().map(|byte| u8::from(*byte == b'\n')).sum::<u8>();
    bytes.chunks(FEW).map(|few| u64::from(sum(few))).sum()
}

fn no_count() -> crate::error::Error {
    Kind::Malformed.told("last_lines must be an integer")
}

fn number(text: &str) -> Result<u64> {
    text.parse()
        .map_err(|_| Kind::Malformed.told("start_line and end_line must be integers"))
}

/// Bytes counted at once.
const BLOCK: usize = 4096;
/// Bytes whose newlines can be counted in a byte.
const FEW: usize = 192;

#[cfg(test)]
mod tests {
    use super::*;

    fn window(first: u64, last: u64) -> Span {
        Span { first, last }
    }

    /// Cuts the text whole and at every place in two; the outcome is the same.
    fn check(text: &str, window: Span, expected: &str) {
        for at in 0..=text.len() {
            let mut cutter = Cutter { window, line: 1 };
            let mut found = Vec::new();
            for piece in [&text[..at], &text[at..]] {
                found.extend_from_slice(cutter.cut(piece.as_bytes()));
            }
            assert_eq!(
                String::from_utf8_lossy(&found),
                expected,
                "{text:?} {window:?} cut at {at}"
            );
        }
    }

    #[test]
    fn a_line_ends_with_its_newline() {
        check("a\nb\nc\n", window(1, 1), "a\n");
        check("a\nb\nc\n", window(2, 3), "b\nc\n");
        check("a\nb\nc\n", window(2, u64::MAX), "b\nc\n");
        check("a\nb\nc", window(3, 3), "c");
        check("\n\n\n", window(2, 2), "\n");
    }

    #[test]
    fn a_window_past_the_end_is_empty() {
        check("a\nb\n", window(3, 9), "");
        check("", window(1, 1), "");
        check("a", window(2, 2), "");
    }

    #[test]
    fn carriage_returns_and_zeros_are_bytes_like_others() {
        check("a\r\n\0b\r\nc", window(2, 2), "\0b\r\n");
    }

    #[test]
    fn lines_longer_than_a_block_are_found() {
        let long = "x".repeat(3 * BLOCK);
        let text = format!("{long}\ny\n{long}\nz");
        let mut cutter = Cutter {
            window: window(2, 3),
            line: 1,
        };
        assert_eq!(
            cutter.cut(text.as_bytes()),
            format!("y\n{long}\n").as_bytes()
        );
        assert!(cutter.is_over());
    }

    #[test]
    fn bounds_are_checked() {
        let told =
            |start, end| Span::parse(start, end).map_err(|error| error.sentence().to_owned());
        assert_eq!(told(None, None), Ok(None));
        assert_eq!(told(Some("2"), None), Ok(Some(window(2, u64::MAX))));
        assert_eq!(told(None, Some("2")), Ok(Some(window(1, 2))));
        for bad in ["", "x", "-1", "1.5", "99999999999999999999", " 1"] {
            assert_eq!(
                told(Some(bad), None),
                Err("start_line and end_line must be integers".into()),
                "{bad}"
            );
            assert!(told(None, Some(bad)).is_err());
        }
        assert_eq!(told(Some("+2"), None), Ok(Some(window(2, u64::MAX))));
        assert_eq!(
            told(Some("0"), Some("2")),
            Err("start_line is 1-based, so 0 is no line".into())
        );
        assert_eq!(
            told(Some("3"), Some("2")),
            Err("end_line 2 is before start_line 3".into())
        );
        assert!(told(None, Some("0")).is_err());
    }

    #[test]
    fn the_last_lines_are_asked_for_alone() {
        let told = |start, end, last| {
            Window::parse(start, end, last).map_err(|error| error.sentence().to_owned())
        };
        assert_eq!(told(None, None, None), Ok(None));
        assert_eq!(told(None, None, Some("3")), Ok(Some(Window::Last(3))));
        assert_eq!(told(None, None, Some("0")), Ok(Some(Window::Last(0))));
        let span = Window::Span(window(1, 2));
        assert_eq!(told(None, Some("2"), None), Ok(Some(span)));
        for bad in ["", "x", "-1", "1.5", "99999999999999999999"] {
            assert_eq!(
                told(None, None, Some(bad)),
                Err("last_lines must be an integer".into()),
                "{bad}"
            );
        }
        for (start, end) in [(Some("1"), None), (None, Some("1"))] {
            assert_eq!(
                told(start, end, Some("1")),
                Err("last_lines stands without start_line and end_line".into())
            );
        }
    }

    #[test]
    fn newlines_are_counted_in_any_number() {
        for length in [0, 1, 191, 192, 193, 255, 256, 257, 4096, 100_000] {
            assert_eq!(newlines(&vec![b'\n'; length]), length as u64);
            assert_eq!(newlines(&vec![b'x'; length]), 0);
        }
    }
}
