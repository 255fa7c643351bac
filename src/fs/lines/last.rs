//! The last lines of a file, found from its end.

use super::super::file::Opened;
use super::newlines;
use crate::error::{Kind, Result};
use crate::ring::{buffers, turn};

impl Opened {
    /// The offset at which its last `count` lines begin, for a file that has a size.
    ///
    /// # Errors
    /// `Internal` when it cannot be read or is shorter than it was.
    pub async fn last_lines_from(&self, count: u64) -> Result<u64> {
        let mut end = self.size().unwrap_or(0);
        if count == 0 {
            return Ok(end);
        }
        let mut search = Search::new(count);
        let mut buffer = buffers::lease();
        // A screenful is mostly in the first block; for more than that, large ones cost less.
        let mut block = FIRST_BLOCK;
        while end > 0 {
            let start = end.saturating_sub(block);
            buffer.clear();
            self.fill(&mut buffer, start, end - start).await?;
            if let Some(place) = search.look_before(&buffer) {
                return Ok(start + place as u64);
            }
            // A file that is all cached never makes us wait, so the others get their turn.
            turn().await;
            end = start;
            block = buffers::LEASE as u64;
        }
        Ok(0)
    }

    /// Its last `count` lines, for a file that has no size: all of it is read.
    ///
    /// # Errors
    /// `Internal` when it cannot be read, `TooLarge` when these lines are more than is kept in memory.
    pub async fn last_lines_of_stream(&self, count: u64) -> Result<Vec<u8>> {
        let mut reader = self.reader(0);
        let mut buffer = buffers::lease();
        let mut kept = Vec::new();
        loop {
            buffer.clear();
            let is_over = reader.read(&mut buffer).await? == 0;
            kept.extend_from_slice(&buffer);
            if is_over || kept.len() > MOST_KEPT {
                let from = Search::start_of_last(&kept, count);
                kept.drain(..from);
            }
            if is_over {
                return Ok(kept);
            }
            if kept.len() > MOST_KEPT {
                return Err(Kind::TooLarge.told(format!(
                    "the last {count} lines of a file without a size are more than {MOST_KEPT} bytes"
                )));
            }
        }
    }
}

/// Counts lines from the end of a file, block by block.
struct Search {
    /// Newlines still to be met in front of the first line that is wanted.
    left: u64,
    /// True before the last byte of the file was seen: a newline there ends the last line, and begins none.
    is_at_end: bool,
}

impl Search {
    fn new(count: u64) -> Self {
        Self {
            left: count,
            is_at_end: true,
        }
    }

    /// Looks at the block that ends where the last one began; the place in it where the wanted lines begin.
    fn look_before(&mut self, block: &[u8]) -> Option<usize> {
        let mut block = block;
        if self.is_at_end {
            self.is_at_end = block.is_empty();
            block = block.strip_suffix(b"\n").unwrap_or(block);
        }
        let lines = newlines(block);
        if lines < self.left {
            self.left -= lines;
            return None;
        }
        for (place, byte) in block.iter().enumerate().rev() {
            self.left -= u64::from(*byte == b'\n');
            if self.left == 0 {
                return Some(place + 1);
            }
        }
        None
    }

    /// Where the last `count` lines of a whole text begin.
    fn start_of_last(text: &[u8], count: u64) -> usize {
        match count {
            0 => text.len(),
            _ => Self::new(count).look_before(text).unwrap_or(0),
        }
    }
}

const FIRST_BLOCK: u64 = 64 * 1024;
/// Bytes of a file without a size that are kept while its end is looked for.
const MOST_KEPT: usize = 4 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    /// Searches the text whole and cut at every place in two.
    #[track_caller]
    fn check(text: &str, count: u64, expected: &str) {
        let from = Search::start_of_last(text.as_bytes(), count);
        assert_eq!(&text[from..], expected, "{text:?} {count}");
        if count == 0 {
            return;
        }
        for at in 0..=text.len() {
            let (front, back) = text.as_bytes().split_at(at);
            let mut search = Search::new(count);
            let found = search.look_before(back).map(|place| at + place);
            let found = found.or_else(|| search.look_before(front)).unwrap_or(0);
            assert_eq!(&text[found..], expected, "{text:?} {count} cut at {at}");
        }
    }

    #[test]
    fn the_last_lines_are_found_from_the_end() {
        check("a\nb\nc\n", 1, "c\n");
        check("a\nb\nc\n", 2, "b\nc\n");
        check("a\nb\nc\n", 3, "a\nb\nc\n");
        check("a\nb\nc\n", 9, "a\nb\nc\n");
        check("a\nb\nc", 1, "c");
        check("a\nb\nc", 2, "b\nc");
        check("a\nb\nc", 0, "");
        check("\n\n\n", 1, "\n");
        check("\n\n\n", 2, "\n\n");
        check("\n", 1, "\n");
        check("a", 1, "a");
        check("", 1, "");
        check("a\r\n\0\nb", 2, "\0\nb");
        check("a\nb", u64::MAX, "a\nb");
    }
}
