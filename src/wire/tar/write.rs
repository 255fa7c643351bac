//! Heads of members as we write them: GNU format, and pax records where that has no place for something.
//!
//! GNU tar, bsdtar and Python read both, also mixed. Names stay in GNU format, since those of pax are UTF-8.

use tar::Header;

use super::{BLOCK, Segment, Type, number, padded};

/// What a head says.
#[derive(Clone, Copy, Debug)]
pub struct Head<'a> {
    /// The name, any bytes but NUL.
    pub path: &'a [u8],
    /// The target of a link; empty for other types.
    pub link: &'a [u8],
    /// What the member is.
    pub kind: Type,
    /// Permission bits, low 12.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Time of last modification, seconds since 1970.
    pub mtime: i64,
    /// Bytes of the file.
    pub size: u64,
    /// Major and minor number of a device.
    pub device: (u32, u32),
    /// The runs of data when the file is sparse (pax format 1.0); only they are stored.
    pub runs: Option<&'a [Segment]>,
}

/// What only pax records can say.
#[derive(Clone, Copy, Debug, Default)]
pub struct Extra<'a> {
    /// Nanoseconds after the seconds of the time; told unless 0.
    pub nanos: u32,
    /// Further records, as [`record`] makes them.
    pub records: &'a [u8],
}

/// Bytes stored for a file: all of it, or its runs.
pub fn stored(size: u64, runs: Option<&[Segment]>) -> u64 {
    match runs {
        Some(runs) => runs.iter().map(|run| run.length).sum(),
        None => size,
    }
}

/// The blocks that end an archive.
pub const END: [u8; 1024] = [0; 1024];

impl Head<'_> {
    /// Bytes of the head: extension blocks and the map of a sparse file included.
    pub fn length(&self, extra: &Extra<'_>) -> u64 {
        let path = if self.runs.is_some() {
            0
        } else {
            self.path.len()
        };
        let plain = long(path) + long(self.link.len()) + BLOCK;
        if !self.is_extended(extra) {
            return plain;
        }
        let map = self.runs.map_or(0, |runs| padded(map(runs).len() as u64));
        plain + BLOCK + padded(self.pax(extra).len() as u64) + map
    }

    /// Appends the head to `out`.
    pub fn write(&self, out: &mut Vec<u8>) {
        self.write_with(&Extra::default(), out);
    }

    /// Appends the head to `out`: exactly [`Head::length`] bytes.
    pub fn write_with(&self, extra: &Extra<'_>, out: &mut Vec<u8>) {
        if self.link.len() > SHORT {
            extension(b'K', self.link, out);
        }
        if self.path.len() > SHORT && self.runs.is_none() {
            extension(b'L', self.path, out);
        }
        if !self.is_extended(extra) {
            let mut header = Header::new_gnu();
            self.fill(&mut header, self.path, self.size);
            return finish(&mut header, out);
        }
        let records = self.pax(extra);
        let mut header = Header::new_ustar();
        special(&mut header, b'x', b"././@PaxHeader", records.len() as u64);
        finish(&mut header, out);
        out.extend_from_slice(&records);
        pad(records.len() as u64, out);
        // GNU tar reads pax sparse only behind a header with the magic of POSIX.
        let mut header = Header::new_ustar();
        let Some(runs) = self.runs else {
            self.fill(&mut header, self.path, self.size);
            return finish(&mut header, out);
        };
        let map = map(runs);
        let size = padded(map.len() as u64) + stored(self.size, self.runs);
        self.fill(&mut header, &stand_in(self.path), size);
        finish(&mut header, out);
        out.extend_from_slice(&map);
        pad(map.len() as u64, out);
    }

    /// True when the member needs pax records.
    fn is_extended(&self, extra: &Extra<'_>) -> bool {
        self.runs.is_some() || extra.nanos != 0 || !extra.records.is_empty()
    }

    fn pax(&self, extra: &Extra<'_>) -> Vec<u8> {
        let mut records = Vec::new();
        if extra.nanos != 0 {
            let mtime = seconds(self.mtime, extra.nanos);
            record(b"mtime", mtime.as_bytes(), &mut records);
        }
        if self.runs.is_some() {
            if std::str::from_utf8(self.path).is_err() {
                record(b"hdrcharset", b"BINARY", &mut records);
            }
            record(b"GNU.sparse.major", b"1", &mut records);
            record(b"GNU.sparse.minor", b"0", &mut records);
            record(b"GNU.sparse.name", self.path, &mut records);
            let size = self.size.to_string();
            record(b"GNU.sparse.realsize", size.as_bytes(), &mut records);
        }
        records.extend_from_slice(extra.records);
        records
    }

    fn fill(&self, header: &mut Header, path: &[u8], size: u64) {
        let old = header.as_old_mut();
        put(&mut old.name, path);
        put(&mut old.linkname, self.link);
        number::encode(&mut old.mode, i64::from(self.mode & 0o7777));
        number::encode(&mut old.uid, i64::from(self.uid));
        number::encode(&mut old.gid, i64::from(self.gid));
        number::encode(&mut old.size, signed(size));
        number::encode(&mut old.mtime, self.mtime);
        old.linkflag = [match self.kind {
            Type::File => b'0',
            Type::HardLink => b'1',
            Type::Symlink => b'2',
            Type::CharDevice => b'3',
            Type::BlockDevice => b'4',
            Type::Directory => b'5',
            Type::Fifo => b'6',
            Type::Unknown(flag) => flag,
        }];
        if matches!(self.kind, Type::CharDevice | Type::BlockDevice) {
            // The same place in both formats.
            let bytes = header.as_mut_bytes();
            number::encode(&mut bytes[329..337], i64::from(self.device.0));
            number::encode(&mut bytes[337..345], i64::from(self.device.1));
        }
    }
}

/// Appends the zeros that fill the last block of `length` bytes of data.
pub fn pad(length: u64, out: &mut Vec<u8>) {
    let zeros = usize::try_from(padded(length) - length).unwrap_or(0);
    out.resize(out.len() + zeros, 0);
}

/// Appends a pax record; its length, which it begins with, counts itself.
pub fn record(key: &[u8], value: &[u8], out: &mut Vec<u8>) {
    let rest = key.len() + value.len() + b" =\n".len();
    let mut length = rest + 1;
    while length != rest + digits(length) {
        length = rest + digits(length);
    }
    out.extend_from_slice(length.to_string().as_bytes());
    out.push(b' ');
    out.extend_from_slice(key);
    out.push(b'=');
    out.extend_from_slice(value);
    out.push(b'\n');
}

fn digits(number: usize) -> usize {
    number
        .checked_ilog10()
        .map_or(1, |power| power as usize + 1)
}

/// A time as pax has it, with as many digits as it needs.
fn seconds(secs: i64, nanos: u32) -> String {
    let text = match secs < 0 {
        false => format!("{secs}.{nanos:09}"),
        true => format!("-{}.{:09}", -(secs + 1), 1_000_000_000 - nanos),
    };
    text.trim_end_matches('0').to_owned()
}

/// Where the runs lie: a count, then offset and length of each, a line for each number.
fn map(runs: &[Segment]) -> Vec<u8> {
    let mut text = format!("{}\n", runs.len());
    for Segment { offset, length } in runs {
        text.push_str(&format!("{offset}\n{length}\n"));
    }
    text.into_bytes()
}

/// The name under which somebody who knows no sparse files extracts the runs of one.
fn stand_in(path: &[u8]) -> Vec<u8> {
    let last = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
    let mut name = b"GNUSparseFile.0/".to_vec();
    let mut room = last.len().min(SHORT - name.len());
    // No character is cut.
    while last.get(room).is_some_and(|byte| byte & 0xc0 == 0x80) {
        room -= 1;
    }
    name.extend_from_slice(&last[..room]);
    name
}

/// A name that is too long for its field travels as the data of a member before (GNU L and K), with a NUL at its end.
fn extension(flag: u8, text: &[u8], out: &mut Vec<u8>) {
    let mut header = Header::new_gnu();
    let length = text.len() as u64 + 1;
    special(&mut header, flag, b"././@LongLink", length);
    finish(&mut header, out);
    out.extend_from_slice(text);
    out.push(0);
    pad(length, out);
}

/// The header of data that describes the next member.
fn special(header: &mut Header, flag: u8, name: &[u8], length: u64) {
    let old = header.as_old_mut();
    put(&mut old.name, name);
    number::encode(&mut old.mode, 0o644);
    number::encode(&mut old.uid, 0);
    number::encode(&mut old.gid, 0);
    number::encode(&mut old.mtime, 0);
    number::encode(&mut old.size, signed(length));
    old.linkflag = [flag];
}

fn finish(header: &mut Header, out: &mut Vec<u8>) {
    header.set_cksum();
    out.extend_from_slice(header.as_bytes());
}

fn put(field: &mut [u8; SHORT], text: &[u8]) {
    let count = text.len().min(SHORT);
    field[..count].copy_from_slice(&text[..count]);
}

fn long(name: usize) -> u64 {
    if name > SHORT {
        BLOCK + padded(name as u64 + 1)
    } else {
        0
    }
}

/// Sizes of files are below 2^63 on every kernel.
fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// Bytes of the name fields of a header.
const SHORT: usize = 100;

#[cfg(test)]
mod tests {
    use super::super::{Event, Moment, Scanner};
    use super::*;

    fn head<'a>(path: &'a [u8], link: &'a [u8], kind: Type) -> Head<'a> {
        Head {
            path,
            link,
            kind,
            mode: 0o4755,
            uid: 70_000,
            gid: 3_000_000,
            mtime: -5,
            size: 0,
            device: (1, 3),
            runs: None,
        }
    }

    fn check(head: &Head<'_>) {
        check_with(head, &Extra::default());
    }

    fn check_with(head: &Head<'_>, extra: &Extra<'_>) {
        let mut out = Vec::new();
        head.write_with(extra, &mut out);
        assert_eq!(out.len() as u64, head.length(extra));
        let mut bytes = out.as_slice();
        let Ok(Event::Member(member)) = Scanner::default().feed(&mut bytes) else {
            panic!("no member for {head:?}");
        };
        assert_eq!(member.path, head.path);
        assert_eq!(member.link, head.link);
        assert_eq!(
            (member.kind, member.mode, member.size),
            (head.kind, head.mode, head.size)
        );
        assert_eq!(member.stored, stored(head.size, head.runs));
        assert_eq!(
            member.mtime,
            Moment {
                secs: head.mtime,
                nanos: extra.nanos
            }
        );
        assert_eq!(member.runs.as_deref(), head.runs);
        assert_eq!(member.data_at, out.len() as u64);
    }

    #[test]
    fn a_name_of_any_length_is_read_back() {
        for length in [1, 99, 100, 101, 255, 511, 512, 4096, 70_000] {
            let name = vec![b'\xff'; length];
            check(&head(&name, b"", Type::Directory));
            check(&head(b"s", &name, Type::Symlink));
            check(&head(&name, &name, Type::HardLink));
        }
    }

    #[test]
    fn a_size_beyond_eight_gibibytes_is_read_back() {
        for size in [0, 1, (8 << 30) - 1, 8 << 30, 1 << 50] {
            check(&Head {
                size,
                ..head(b"f", b"", Type::File)
            });
        }
    }

    #[test]
    fn a_sparse_file_of_any_number_of_runs_is_read_back() {
        for count in [0, 1, 4, 5, 25, 26, 100, 4000] {
            let run = |index: u64| Segment {
                offset: index * 8192,
                length: 4096,
            };
            let runs: Vec<_> = (0..count).map(run).collect();
            check(&Head {
                size: 1 << 40,
                runs: Some(&runs),
                ..head(b"f", b"", Type::File)
            });
        }
    }

    #[test]
    fn a_sparse_file_of_any_name_is_read_back() {
        let runs = [Segment {
            offset: 8192,
            length: 1,
        }];
        for name in [
            &b"f"[..],
            b"caf\xe9",
            "\u{fc}".repeat(99).as_bytes(),
            &[b'n'; 4000],
        ] {
            check(&Head {
                size: 1 << 40,
                runs: Some(&runs),
                ..head(name, b"", Type::File)
            });
            let stand_in = stand_in(name);
            assert!(stand_in.len() <= SHORT && stand_in.starts_with(b"GNUSparseFile.0/"));
            assert_eq!(
                std::str::from_utf8(&stand_in).is_ok(),
                std::str::from_utf8(name).is_ok()
            );
        }
    }

    #[test]
    fn fractions_of_seconds_are_read_back() {
        for (mtime, nanos) in [
            (0, 1),
            (7, 999_999_999),
            (-1, 500_000_000),
            (-7, 1),
            (1 << 40, 10),
        ] {
            let extra = Extra {
                nanos,
                ..Extra::default()
            };
            let at = |head| Head { mtime, ..head };
            check_with(&at(head(b"d", b"", Type::CharDevice)), &extra);
            check_with(&at(head(&[b'n'; 300], &[b'l'; 300], Type::Symlink)), &extra);
        }
        assert_eq!(seconds(-2, 500_000_000), "-1.5");
        assert_eq!(seconds(3, 120), "3.00000012");
    }

    #[test]
    fn a_record_counts_its_own_length() {
        for length in (0..1100).chain(9_980..10_020) {
            let mut out = Vec::new();
            record(b"key", &vec![b'v'; length], &mut out);
            let text = String::from_utf8(out).expect("it is ASCII");
            let told = text.split(' ').next().and_then(|told| told.parse().ok());
            assert_eq!(told, Some(text.len()));
        }
    }

    #[test]
    fn further_records_do_not_disturb() {
        let mut records = Vec::new();
        record(b"SCHILY.xattr.user.x", b"\0\n=", &mut records);
        let extra = Extra {
            nanos: 5,
            records: &records,
        };
        check_with(&head(b"f", b"", Type::File), &extra);
    }
}
