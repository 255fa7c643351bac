//! Sparse maps: where the runs of data lie, in the three places that archives keep them.

use tar::GnuSparseHeader;

use super::{Segment, number, pax};

/// Runs of a map at most; a file with more is refused.
pub(super) const MOST_RUNS: usize = 65_536;

/// Adds the runs of a GNU header's table; the error says what is wrong.
pub(super) fn take(table: &[GnuSparseHeader], runs: &mut Vec<Segment>) -> Result<(), &'static str> {
    for entry in table.iter().filter(|entry| !entry.is_empty()) {
        let offset = number::unsigned(&entry.offset);
        let length = number::unsigned(&entry.numbytes);
        let run = offset
            .zip(length)
            .map(|(offset, length)| Segment { offset, length });
        runs.push(run.ok_or(NO_NUMBER)?);
    }
    if runs.len() > MOST_RUNS {
        return Err("a sparse map has too many runs");
    }
    Ok(())
}

/// The map that stands before the data in pax version 1.0, fed block by block: a count, then pairs, a line each.
#[derive(Debug, Default)]
pub(super) struct Text {
    line: Vec<u8>,
    expected: Option<u64>,
    numbers: Vec<u64>,
}

impl Text {
    /// Reads one block; true when the map is complete (the rest of the block is padding).
    pub(super) fn feed(&mut self, block: &[u8]) -> Result<bool, &'static str> {
        for byte in block {
            if *byte != b'\n' {
                self.line.push(*byte);
                if self.line.len() > 20 {
                    return Err(NO_NUMBER);
                }
                continue;
            }
            let value = pax::number(&self.line).ok_or(NO_NUMBER)?;
            self.line.clear();
            match self.expected {
                None if value > MOST_RUNS as u64 => return Err("a sparse map has too many runs"),
                None => self.expected = Some(value * 2),
                Some(_) => self.numbers.push(value),
            }
            if self.expected == Some(self.numbers.len() as u64) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    pub(super) fn runs(self) -> Vec<Segment> {
        let pairs = self.numbers.chunks_exact(2);
        pairs
            .map(|pair| Segment {
                offset: pair[0],
                length: pair[1],
            })
            .collect()
    }
}

/// Checks a map against the sizes of its file: runs ascend, end within `size`, and hold `stored` bytes together.
pub(super) fn settle(
    runs: Vec<Segment>,
    stored: u64,
    size: u64,
) -> Result<Box<[Segment]>, &'static str> {
    let mut end = 0;
    let mut held = 0u64;
    for run in &runs {
        if run.offset < end {
            return Err("the runs of a sparse map overlap");
        }
        end = run.offset.checked_add(run.length).ok_or(NO_NUMBER)?;
        held += run.length;
    }
    if end > size {
        return Err("a sparse map reaches past the end of its file");
    }
    if held != stored {
        return Err("a sparse map does not match the stored bytes");
    }
    Ok(runs.into_iter().filter(|run| run.length > 0).collect())
}

const NO_NUMBER: &str = "a sparse map has a broken number";
