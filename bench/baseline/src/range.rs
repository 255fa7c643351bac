//! The `Range` field of a request: which part of a file is asked for (RFC 9110, section 14).

/// What a request asks for, with offsets of the first and the last byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Asked {
    Whole,
    Part { first: u64, last: u64 },
    NotThere,
}

impl Asked {
    /// A field that is malformed, of another unit or of more than one range is ignored, as the RFC allows.
    pub(crate) fn parse(field: Option<&str>, total: u64) -> Self {
        let range = field.and_then(|field| field.trim().strip_prefix("bytes="));
        let Some((first, last)) = range.and_then(|range| range.split_once('-')) else {
            return Self::Whole;
        };
        match (first.trim(), last.trim()) {
            ("", suffix) => suffix.parse().map_or(Self::Whole, |count: u64| {
                Self::between(total.saturating_sub(count), total, total)
            }),
            (first, "") => first
                .parse()
                .map_or(Self::Whole, |first| Self::between(first, total, total)),
            (first, last) => match (first.parse(), last.parse()) {
                (Ok(first), Ok(last)) if first <= last => {
                    Self::between(first, total.min(u64::saturating_add(last, 1)), total)
                }
                _ => Self::Whole,
            },
        }
    }

    fn between(first: u64, end: u64, total: u64) -> Self {
        if first >= end || first >= total {
            return Self::NotThere;
        }
        Self::Part {
            first,
            last: end - 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Asked::{self, NotThere, Part, Whole};

    fn check(field: &str, expected: Asked) {
        assert_eq!(Asked::parse(Some(field), 100), expected, "{field}");
    }

    #[test]
    fn a_single_range_is_cut_at_the_end_of_the_file() {
        check("bytes=0-0", Part { first: 0, last: 0 });
        check(
            "bytes=90-200",
            Part {
                first: 90,
                last: 99,
            },
        );
        check(
            "bytes=40-",
            Part {
                first: 40,
                last: 99,
            },
        );
        check(
            &format!("bytes=7-{}", u64::MAX),
            Part { first: 7, last: 99 },
        );
    }

    #[test]
    fn a_suffix_counts_from_the_end() {
        check(
            "bytes=-10",
            Part {
                first: 90,
                last: 99,
            },
        );
        check("bytes=-1000", Part { first: 0, last: 99 });
        check("bytes=-0", NotThere);
    }

    #[test]
    fn what_begins_behind_the_end_is_not_there() {
        check("bytes=100-", NotThere);
        check("bytes=100-120", NotThere);
        assert_eq!(Asked::parse(Some("bytes=0-"), 0), NotThere);
        assert_eq!(Asked::parse(Some("bytes=-1"), 0), NotThere);
    }

    #[test]
    fn anything_else_asks_for_the_whole() {
        for field in [
            "bytes=5-4",
            "bytes=0-1,4-5",
            "lines=1-2",
            "bytes=x-",
            "bytes=-",
        ] {
            check(field, Whole);
        }
        assert_eq!(Asked::parse(None, 100), Whole);
    }
}
