//! Where lines are: for files that are paged through, the line number at every so many bytes.
//!
//! What a search passes by is kept under the version of the file, so a file that has changed is searched anew. It is
//! kept only for a version that had rested when it was opened: any later change gives it other times.

use std::cell::RefCell;

use super::super::version::Version;

/// The known places of one file.
struct Index {
    version: Version,
    /// Bytes between two marks.
    stride: u64,
    /// The number of the line that the byte at `stride`, `2 * stride` and so on belongs to.
    marks: Vec<u64>,
}

/// The files searched last, the latest at the end.
#[derive(Default)]
struct Indexes(Vec<Index>);

thread_local! {
    static INDEXES: RefCell<Indexes> = const { RefCell::new(Indexes(Vec::new())) };
}

/// The last known place before the start of `line`: an offset, and the line that the byte there belongs to.
pub(super) fn find(version: &Version, line: u64) -> (u64, u64) {
    INDEXES.with_borrow_mut(|indexes| indexes.find(version, line))
}

/// Keeps that the byte at `offset` belongs to `line`, when that is the next mark.
pub(super) fn note(version: &Version, offset: u64, line: u64) {
    if offset.is_multiple_of(STRIDE) {
        INDEXES.with_borrow_mut(|indexes| indexes.note(version, offset, line));
    }
}

/// How many of `length` bytes from `offset` there are to the next possible mark.
pub(super) fn until_mark(offset: u64, length: usize) -> usize {
    let left = STRIDE - offset % STRIDE;
    length.min(usize::try_from(left).unwrap_or(usize::MAX))
}

impl Indexes {
    fn find(&mut self, version: &Version, line: u64) -> (u64, u64) {
        let Some(index) = self.used(version) else {
            return (0, 1);
        };
        // A mark on the line itself may lie behind its start.
        let before = index.marks.partition_point(|mark| *mark < line);
        match before.checked_sub(1) {
            Some(last) => (before as u64 * index.stride, index.marks[last]),
            None => (0, 1),
        }
    }

    fn note(&mut self, version: &Version, offset: u64, line: u64) {
        if self.used(version).is_none() && offset == STRIDE {
            if self.0.len() == FILES {
                self.0.remove(0);
            }
            self.0.push(Index {
                version: *version,
                stride: STRIDE,
                marks: Vec::new(),
            });
        }
        if let Some(index) = self.used(version) {
            index.note(offset, line);
        }
    }

    /// The index of a file, which becomes the latest.
    fn used(&mut self, version: &Version) -> Option<&mut Index> {
        let place = self.0.iter().position(|index| index.version == *version)?;
        self.0[place..].rotate_left(1);
        self.0.last_mut()
    }
}

impl Index {
    fn note(&mut self, offset: u64, line: u64) {
        if offset != (self.marks.len() as u64 + 1) * self.stride {
            return;
        }
        self.marks.push(line);
        if self.marks.len() == MARKS {
            let mut is_even = true;
            self.marks.retain(|_| {
                is_even = !is_even;
                is_even
            });
            self.stride *= 2;
        }
    }
}

/// Bytes between two marks, until there are too many of them.
const STRIDE: u64 = 1024 * 1024;
/// Marks of one file, 8 bytes each; when there are so many, every other one is dropped.
const MARKS: usize = 2048;
/// Files that are remembered.
const FILES: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn version(number: i64) -> Version {
        let file = std::fs::File::open("/").expect("it is there");
        let mut stat = rustix::fs::fstat(file).expect("it is open");
        stat.st_size = number;
        Version::of(&stat)
    }

    /// Notes `count` marks of a file whose every stride has ten lines.
    fn noted(count: u64) -> Indexes {
        let mut indexes = Indexes::default();
        for mark in 1..=count {
            indexes.note(&version(1), mark * STRIDE, mark * 10 + 1);
        }
        indexes
    }

    #[test]
    fn a_search_begins_at_the_last_mark_before_its_line() {
        let mut indexes = noted(3);
        for (line, expected) in [
            (1, (0, 1)),
            (10, (0, 1)),
            // The mark may lie within line 11.
            (11, (0, 1)),
            (12, (STRIDE, 11)),
            (21, (STRIDE, 11)),
            (22, (2 * STRIDE, 21)),
            (1000, (3 * STRIDE, 31)),
        ] {
            assert_eq!(indexes.find(&version(1), line), expected, "{line}");
        }
        assert_eq!(indexes.find(&version(2), 1000), (0, 1));
    }

    #[test]
    fn a_mark_that_does_not_follow_the_last_is_not_kept() {
        let mut indexes = noted(1);
        indexes.note(&version(1), 3 * STRIDE, 31);
        indexes.note(&version(1), STRIDE, 11);
        assert_eq!(indexes.find(&version(1), 1000), (STRIDE, 11));
        indexes.note(&version(2), 2 * STRIDE, 21);
        assert_eq!(indexes.find(&version(2), 1000), (0, 1));
    }

    #[test]
    fn marks_are_thinned_out_and_stay_true() {
        let all = 5000;
        let mut indexes = noted(all);
        let index = &indexes.0[0];
        assert!(index.marks.len() < MARKS, "{}", index.marks.len());
        assert_eq!(index.stride, 4 * STRIDE);
        for line in (1..all * 10).step_by(997) {
            let (offset, found) = indexes.find(&version(1), line);
            assert!(found < line || offset == 0, "{line}");
            assert_eq!(offset / STRIDE * 10 + 1, found, "{line}");
            assert!(line - found <= 50, "{line}: {found}");
        }
    }

    #[test]
    fn the_files_searched_last_are_remembered() {
        let mut indexes = Indexes::default();
        for number in 1..=16 {
            indexes.note(&version(number), STRIDE, 5);
        }
        assert_eq!(indexes.find(&version(1), 9), (STRIDE, 5));
        indexes.note(&version(17), STRIDE, 5);
        assert_eq!(indexes.0.len(), FILES);
        assert_eq!(indexes.find(&version(1), 9), (STRIDE, 5));
        assert_eq!(indexes.find(&version(2), 9), (0, 1), "the oldest has left");
    }
}
