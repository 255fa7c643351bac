//! Which bytes of a file have arrived: ranges in order that neither overlap nor touch.

use std::collections::BTreeMap;
use std::ops::Range;

/// A set of bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Spans {
    /// Where a range ends, by where it begins.
    ends: BTreeMap<u64, u64>,
}

impl Spans {
    /// Adds a range.
    pub(super) fn insert(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let Range { mut start, mut end } = range;
        while let Some((first, last)) = self.last_from(end) {
            if last < start {
                break;
            }
            self.ends.remove(&first);
            start = start.min(first);
            end = end.max(last);
        }
        self.ends.insert(start, end);
    }

    /// Takes a range out.
    pub(super) fn remove(&mut self, range: &Range<u64>) {
        if range.is_empty() {
            return;
        }
        while let Some((first, last)) = self.last_from(range.end - 1) {
            if last <= range.start {
                break;
            }
            self.ends.remove(&first);
            if last > range.end {
                self.ends.insert(range.end, last);
            }
            if first < range.start {
                self.ends.insert(first, range.start);
            }
        }
    }

    /// True when another range may come that begins at `start`: at most `most` are kept, and one that continues another
    /// takes no place.
    pub(super) fn admits(&self, start: u64, most: usize) -> bool {
        self.ends.len() < most || self.last_from(start).is_some_and(|(_, last)| last == start)
    }

    /// Bytes from the first one on without a gap.
    pub(super) fn prefix(&self) -> u64 {
        self.ends.get(&0).copied().unwrap_or(0)
    }

    /// How many bytes there are.
    pub(super) fn total(&self) -> u64 {
        self.ends.iter().map(|(start, end)| end - start).sum()
    }

    /// What is missing of the first `length` bytes, in order.
    pub(super) fn missing(&self, length: u64) -> impl Iterator<Item = Range<u64>> + '_ {
        let starts = self.ends.keys().copied().chain([length]);
        let ends = std::iter::once(0).chain(self.ends.values().copied());
        ends.zip(starts)
            .map(move |(end, start)| end..start.min(length))
            .filter(|gap| !gap.is_empty())
    }

    /// The last range that begins at `at` or before.
    fn last_from(&self, at: u64) -> Option<(u64, u64)> {
        let (first, last) = self.ends.range(..=at).next_back()?;
        Some((*first, *last))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SPACE: u64 = 48;

    /// What the set says, byte by byte.
    fn check(spans: &Spans, naive: &[bool]) {
        let at = |byte: u64| naive[usize::try_from(byte).expect("small")];
        let mut before = None;
        for (start, end) in &spans.ends {
            assert!(start < end, "an empty range in {spans:?}");
            let apart = before.is_none_or(|before| before < *start);
            assert!(apart, "ranges that touch in {spans:?}");
            before = Some(*end);
        }
        for byte in 0..SPACE {
            let inside = spans.last_from(byte).is_some_and(|(_, end)| byte < end);
            assert_eq!(inside, at(byte), "byte {byte} of {spans:?}");
        }
        let count = naive.iter().filter(|is| **is).count() as u64;
        assert_eq!(spans.total(), count);
        let prefix = naive.iter().take_while(|is| **is).count() as u64;
        assert_eq!(spans.prefix(), prefix);
        for length in 0..=SPACE {
            let told: Vec<u64> = spans.missing(length).flatten().collect();
            let expected: Vec<u64> = (0..length).filter(|byte| !at(*byte)).collect();
            assert_eq!(told, expected, "missing of {length} in {spans:?}");
        }
    }

    proptest! {
        #[test]
        fn the_set_agrees_with_a_naive_one(
            acts in prop::collection::vec((any::<bool>(), 0..SPACE, 0..SPACE), 0..40),
        ) {
            let mut spans = Spans::default();
            let mut naive = vec![false; usize::try_from(SPACE).expect("small")];
            for (adds, one, other) in acts {
                let range = one.min(other)..one.max(other);
                for byte in range.clone() {
                    naive[usize::try_from(byte).expect("small")] = adds;
                }
                if adds {
                    spans.insert(range);
                } else {
                    spans.remove(&range);
                }
                check(&spans, &naive);
            }
        }
    }

    #[test]
    fn the_largest_numbers_do_not_overflow() {
        let mut spans = Spans::default();
        spans.insert(u64::MAX - 1..u64::MAX);
        spans.insert(0..1);
        let mut missing = spans.missing(u64::MAX);
        assert_eq!(missing.next(), Some(1..u64::MAX - 1));
        assert_eq!(missing.next(), None);
        drop(missing);
        spans.remove(&(0..u64::MAX));
        assert_eq!(spans, Spans::default());
    }

    #[test]
    fn a_full_set_takes_what_continues_a_range() {
        let mut spans = Spans::default();
        for start in [0, 10, 20] {
            spans.insert(start..start + 5);
        }
        assert!(spans.admits(7, 4));
        assert!(!spans.admits(7, 3));
        assert!(!spans.admits(3, 3));
        assert!(spans.admits(15, 3));
    }
}
