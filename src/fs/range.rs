//! Byte ranges (RFC 9110, section 14).

use crate::error::{Kind, Result};

/// The part of a file that is sent, first and last byte; never empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// Offset of the first byte.
    pub first: u64,
    /// Offset of the last byte.
    pub last: u64,
}

impl Range {
    /// Reads a `range` field for a file of `total` bytes; `None` means the whole file (several ranges, another unit or
    /// bad syntax, all of which a server may ignore).
    ///
    /// # Errors
    /// `RangeNotSatisfiable`, its sentence being the `content-range` to answer with: `bytes */total`.
    pub fn parse(field: &[u8], total: u64) -> Result<Option<Self>> {
        let Some(spec) = spec(field) else {
            return Ok(None);
        };
        let range = match spec {
            (Some(first), last) => {
                let last = last.unwrap_or(u64::MAX).min(total.saturating_sub(1));
                (first < total).then_some(Self { first, last })
            }
            // No part of an empty file can be told, so it goes out whole.
            (None, Some(1..)) if total == 0 => return Ok(None),
            (None, Some(length)) => (length > 0 && total > 0).then(|| Self {
                first: total.saturating_sub(length),
                last: total - 1,
            }),
            (None, None) => return Ok(None),
        };
        match range {
            Some(range) => Ok(Some(range)),
            None => Err(Kind::RangeNotSatisfiable.told(format!("bytes */{total}"))),
        }
    }

    /// Bytes of it.
    pub fn length(self) -> u64 {
        self.last - self.first + 1
    }
}

type Spec = (Option<u64>, Option<u64>);

/// `bytes=first-last`, either end open; `None` for what is to be ignored.
fn spec(field: &[u8]) -> Option<Spec> {
    let text = std::str::from_utf8(field).ok()?.trim();
    let (unit, set) = text.split_once('=')?;
    if !unit.trim().eq_ignore_ascii_case("bytes") {
        return None;
    }
    let (first, last) = set.trim().split_once('-')?;
    let first = position(first)?;
    let last = position(last)?;
    match (first, last) {
        (Some(first), Some(last)) if last < first => None,
        spec => Some(spec),
    }
}

/// A number, or nothing at all; one beyond 64 bits is as good as the largest.
fn position(text: &str) -> Option<Option<u64>> {
    if text.is_empty() {
        return Some(None);
    }
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some(Some(text.parse().unwrap_or(u64::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(field: &str, total: u64, expected: std::result::Result<Option<(u64, u64)>, &str>) {
        let found = Range::parse(field.as_bytes(), total);
        let found = found.map(|range| range.map(|range| (range.first, range.last)));
        let found = found.as_ref().map_err(|error| error.sentence()).copied();
        assert_eq!(found, expected, "{field} of {total}");
    }

    #[test]
    fn a_single_range_is_cut_at_the_end() {
        check("bytes=0-0", 10, Ok(Some((0, 0))));
        check("bytes=2-5", 10, Ok(Some((2, 5))));
        check("bytes=2-", 10, Ok(Some((2, 9))));
        check("bytes=2-999999999999999999999999", 10, Ok(Some((2, 9))));
        check("Bytes = 9-9", 10, Ok(Some((9, 9))));
    }

    #[test]
    fn a_suffix_counts_from_the_end() {
        check("bytes=-1", 10, Ok(Some((9, 9))));
        check("bytes=-10", 10, Ok(Some((0, 9))));
        check("bytes=-11", 10, Ok(Some((0, 9))));
        // An empty file is less than that, and no part of it can be told.
        check("bytes=-5", 0, Ok(None));
    }

    #[test]
    fn a_range_outside_is_not_satisfiable() {
        check("bytes=10-", 10, Err("bytes */10"));
        check("bytes=10-20", 10, Err("bytes */10"));
        check("bytes=-0", 10, Err("bytes */10"));
        check("bytes=0-", 0, Err("bytes */0"));
        check("bytes=-0", 0, Err("bytes */0"));
    }

    #[test]
    fn what_is_not_understood_is_ignored() {
        for field in [
            "bytes=0-1,3-4",
            "bytes=5-2",
            "bytes=-",
            "bytes=",
            "bytes",
            "lines=0-1",
            "bytes=a-b",
            "bytes=+1-2",
            "bytes=1 - 2",
            "",
        ] {
            check(field, 10, Ok(None));
        }
    }
}
