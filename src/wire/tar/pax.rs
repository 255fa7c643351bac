//! Records of a pax extended header: `length key=value\n`, the length in decimal and counting itself.

use super::{Moment, Segment};

/// The records that concern us, gathered from the extended headers before a member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Records {
    pub(super) path: Option<Vec<u8>>,
    pub(super) link: Option<Vec<u8>>,
    pub(super) size: Option<u64>,
    pub(super) mtime: Option<Moment>,
    pub(super) uid: Option<u64>,
    pub(super) gid: Option<u64>,
    pub(super) xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// `GNU.sparse.name`: the true name when `path` is a stand-in.
    pub(super) sparse_name: Option<Vec<u8>>,
    /// `GNU.sparse.size` (0.x) or `GNU.sparse.realsize` (1.0).
    pub(super) real_size: Option<u64>,
    /// The runs of versions 0.0 and 0.1.
    pub(super) runs: Option<Vec<Segment>>,
    /// True for version 1.0, whose runs stand before the data.
    pub(super) runs_in_data: bool,
    major: Option<u64>,
    minor: Option<u64>,
    offset: Option<u64>,
}

impl Records {
    /// Reads the records of one extended header over those known; the error says what is wrong.
    pub(super) fn read(&mut self, mut text: &[u8]) -> Result<(), &'static str> {
        while !text.is_empty() {
            let (record, rest) = split(text).ok_or("a pax record has a wrong length")?;
            text = rest;
            let at = record.iter().position(|byte| *byte == b'=');
            let at = at.ok_or("a pax record has no =")?;
            self.take(&record[..at], &record[at + 1..])
                .ok_or("a pax record has a value that is no number")?;
        }
        self.runs_in_data = self.major == Some(1) && self.minor == Some(0);
        Ok(())
    }

    fn take(&mut self, key: &[u8], value: &[u8]) -> Option<()> {
        match key {
            // An empty value takes the record back (POSIX).
            b"path" => self.path = some(value),
            b"linkpath" => self.link = some(value),
            b"size" => self.size = optional(value)?,
            b"mtime" if value.is_empty() => self.mtime = None,
            b"mtime" => self.mtime = Some(moment(value)?),
            b"uid" => self.uid = owner(value),
            b"gid" => self.gid = owner(value),
            b"GNU.sparse.name" => self.sparse_name = some(value),
            b"GNU.sparse.size" | b"GNU.sparse.realsize" => self.real_size = optional(value)?,
            b"GNU.sparse.major" => self.major = optional(value)?,
            b"GNU.sparse.minor" => self.minor = optional(value)?,
            b"GNU.sparse.numblocks" => self.runs = Some(Vec::new()),
            b"GNU.sparse.offset" => self.offset = Some(number(value)?),
            b"GNU.sparse.numbytes" => {
                let offset = self.offset.take()?;
                let length = number(value)?;
                self.runs
                    .get_or_insert_default()
                    .push(Segment { offset, length });
            }
            b"GNU.sparse.map" => self.runs = Some(map(value)?),
            _ => {
                if let Some(name) = key.strip_prefix(b"SCHILY.xattr.") {
                    let name = plain(name);
                    self.xattrs.retain(|(known, _)| *known != name);
                    self.xattrs.push((name, value.to_vec()));
                }
            }
        }
        Some(())
    }
}

/// A decimal number without sign; `None` for anything else.
pub(super) fn number(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0u64, |value, byte| {
        let digit = byte.checked_sub(b'0').filter(|digit| *digit < 10)?;
        value.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

fn split(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let space = text.iter().position(|byte| *byte == b' ')?;
    let length = usize::try_from(number(&text[..space])?).ok()?;
    let record = text.get(space + 1..length)?;
    Some((record.strip_suffix(b"\n")?, &text[length..]))
}

fn some(value: &[u8]) -> Option<Vec<u8>> {
    (!value.is_empty()).then(|| value.to_vec())
}

/// The name of an attribute, in which `=` and `%` are written as `%3D` and `%25` (GNU tar, star).
fn plain(name: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(name.len());
    let mut rest = name;
    while let Some((first, after)) = rest.split_first() {
        let (byte, after) = match rest.get(..3) {
            Some(b"%3D") => (b'=', &rest[3..]),
            Some(b"%25") => (b'%', &rest[3..]),
            _ => (*first, after),
        };
        plain.push(byte);
        rest = after;
    }
    plain
}

/// The number of an owner; what is no number is beyond all that there are, since few ask for owners.
fn owner(value: &[u8]) -> Option<u64> {
    (!value.is_empty()).then(|| number(value).unwrap_or(u64::MAX))
}

fn optional(value: &[u8]) -> Option<Option<u64>> {
    if value.is_empty() {
        return Some(None);
    }
    number(value).map(Some)
}

fn map(value: &[u8]) -> Option<Vec<Segment>> {
    if value.is_empty() {
        return Some(Vec::new());
    }
    let numbers: Option<Vec<u64>> = value.split(|byte| *byte == b',').map(number).collect();
    let numbers = numbers.filter(|numbers| numbers.len() % 2 == 0)?;
    let pairs = numbers.chunks_exact(2);
    Some(
        pairs
            .map(|pair| Segment {
                offset: pair[0],
                length: pair[1],
            })
            .collect(),
    )
}

/// `[-]seconds[.fraction]`, rounded towards the past to nanoseconds.
fn moment(text: &[u8]) -> Option<Moment> {
    let (negative, text) = match text.strip_prefix(b"-") {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let mut halves = text.splitn(2, |byte| *byte == b'.');
    let secs = i64::try_from(number(halves.next()?)?).ok()?;
    let fraction = halves.next().unwrap_or_default();
    let mut nanos = 0;
    for index in 0..9 {
        let digit = fraction.get(index).copied().unwrap_or(b'0');
        let digit = digit.checked_sub(b'0').filter(|digit| *digit < 10)?;
        nanos = nanos * 10 + u32::from(digit);
    }
    match (negative, nanos) {
        (false, _) => Some(Moment { secs, nanos }),
        (true, 0) => Some(Moment { secs: -secs, nanos }),
        (true, _) => Some(Moment {
            secs: -secs - 1,
            nanos: 1_000_000_000 - nanos,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &[u8], expected: Result<(), &'static str>) -> Records {
        let mut records = Records::default();
        assert_eq!(records.read(text), expected);
        records
    }

    #[test]
    fn records_are_split_by_their_length() {
        let records = check(
            b"12 path=a=b\n15 linkpath=\xff\n",
            Err("a pax record has a wrong length"),
        );
        assert_eq!(records.path.as_deref(), Some(b"a=b".as_slice()));
        let records = check(b"12 path=a=b\n14 linkpath=\xff\n11 size=42\n", Ok(()));
        assert_eq!(records.link.as_deref(), Some(b"\xff".as_slice()));
        assert_eq!(records.size, Some(42));
    }

    #[test]
    fn attributes_and_owners_are_read() {
        let text = b"32 SCHILY.xattr.user.a%3Db%25=c\n32 SCHILY.xattr.user.a%3Db%25=d\n";
        let records = check(text, Ok(()));
        assert_eq!(records.xattrs, [(b"user.a=b%".to_vec(), b"d".to_vec())]);
        let records = check(b"15 uid=3000000\n9 gid=-1\n", Ok(()));
        assert_eq!(
            (records.uid, records.gid),
            (Some(3_000_000), Some(u64::MAX))
        );
    }

    #[test]
    fn a_length_that_lies_is_refused() {
        let wrong = Err("a pax record has a wrong length");
        check(b"0 \n", wrong);
        check(b"99 path=a\n", wrong);
        check(b"18446744073709551616 path=a\n", wrong);
        check(b"path=a\n", wrong);
        check(b"9 path=ab", wrong);
        check(b"3 a", wrong);
    }

    #[test]
    fn a_time_before_1970_rounds_down() {
        assert_eq!(
            moment(b"1.5"),
            Some(Moment {
                secs: 1,
                nanos: 500_000_000
            })
        );
        assert_eq!(
            moment(b"-1.5"),
            Some(Moment {
                secs: -2,
                nanos: 500_000_000
            })
        );
        assert_eq!(moment(b"-3"), Some(Moment { secs: -3, nanos: 0 }));
        assert_eq!(moment(b"1.0000000019"), Some(Moment { secs: 1, nanos: 1 }));
        assert_eq!(moment(b"x"), None);
        assert_eq!(moment(b""), None);
    }

    #[test]
    fn sparse_runs_come_in_two_spellings() {
        let runs = vec![
            Segment {
                offset: 1,
                length: 2,
            },
            Segment {
                offset: 5,
                length: 0,
            },
        ];
        let records = check(b"26 GNU.sparse.map=1,2,5,0\n", Ok(()));
        assert_eq!(records.runs.as_ref(), Some(&runs));
        let text = b"26 GNU.sparse.numblocks=2\n23 GNU.sparse.offset=1\n25 GNU.sparse.numbytes=2\n\
            23 GNU.sparse.offset=5\n25 GNU.sparse.numbytes=0\n";
        assert_eq!(check(text, Ok(())).runs.as_ref(), Some(&runs));
    }
}
