//! Heads of members as we write them: GNU format, which GNU tar, bsdtar and Python all read.

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
    /// The runs of data when the file is sparse; only they are stored.
    pub runs: Option<&'a [Segment]>,
}

/// Bytes of a head, extension blocks included.
pub fn length(path: usize, link: usize, runs: Option<usize>) -> u64 {
    let tables = runs.unwrap_or(0).saturating_sub(IN_HEAD).div_ceil(IN_BLOCK);
    long(path) + long(link) + BLOCK + tables as u64 * BLOCK
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
    /// Appends the head to `out`: exactly [`length`] bytes.
    pub fn write(&self, out: &mut Vec<u8>) {
        if self.link.len() > SHORT {
            extension(b'K', self.link, out);
        }
        if self.path.len() > SHORT {
            extension(b'L', self.path, out);
        }
        let mut header = Header::new_gnu();
        self.fill(&mut header);
        let Some(runs) = self.runs else {
            finish(&mut header, out);
            return;
        };
        let (first, rest) = runs.split_at(runs.len().min(IN_HEAD));
        if let Some(gnu) = header.as_gnu_mut() {
            table(&mut gnu.sparse, first);
            gnu.set_is_extended(!rest.is_empty());
            number::encode(&mut gnu.realsize, signed(self.size));
        }
        finish(&mut header, out);
        let mut blocks = rest.chunks(IN_BLOCK).peekable();
        while let Some(runs) = blocks.next() {
            let mut block = tar::GnuExtSparseHeader::new();
            table(block.sparse_mut(), runs);
            block.set_is_extended(blocks.peek().is_some());
            out.extend_from_slice(block.as_bytes());
        }
    }

    fn fill(&self, header: &mut Header) {
        let old = header.as_old_mut();
        put(&mut old.name, self.path);
        put(&mut old.linkname, self.link);
        number::encode(&mut old.mode, i64::from(self.mode & 0o7777));
        number::encode(&mut old.uid, i64::from(self.uid));
        number::encode(&mut old.gid, i64::from(self.gid));
        number::encode(&mut old.size, signed(stored(self.size, self.runs)));
        number::encode(&mut old.mtime, self.mtime);
        old.linkflag = [match self.kind {
            Type::File if self.runs.is_some() => b'S',
            Type::File => b'0',
            Type::HardLink => b'1',
            Type::Symlink => b'2',
            Type::CharDevice => b'3',
            Type::BlockDevice => b'4',
            Type::Directory => b'5',
            Type::Fifo => b'6',
            Type::Unknown(flag) => flag,
        }];
        if matches!(self.kind, Type::CharDevice | Type::BlockDevice)
            && let Some(gnu) = header.as_gnu_mut()
        {
            number::encode(&mut gnu.dev_major, i64::from(self.device.0));
            number::encode(&mut gnu.dev_minor, i64::from(self.device.1));
        }
    }
}

/// Appends the zeros that fill the last block of `length` bytes of data.
pub fn pad(length: u64, out: &mut Vec<u8>) {
    let zeros = usize::try_from(padded(length) - length).unwrap_or(0);
    out.resize(out.len() + zeros, 0);
}

/// A name that is too long for its field travels as the data of a member before (GNU L and K), with a NUL at its end.
fn extension(flag: u8, text: &[u8], out: &mut Vec<u8>) {
    let mut header = Header::new_gnu();
    let old = header.as_old_mut();
    put(&mut old.name, b"././@LongLink");
    number::encode(&mut old.mode, 0o644);
    number::encode(&mut old.uid, 0);
    number::encode(&mut old.gid, 0);
    number::encode(&mut old.mtime, 0);
    let length = text.len() as u64 + 1;
    number::encode(&mut old.size, signed(length));
    old.linkflag = [flag];
    finish(&mut header, out);
    out.extend_from_slice(text);
    out.push(0);
    pad(length, out);
}

fn finish(header: &mut Header, out: &mut Vec<u8>) {
    header.set_cksum();
    out.extend_from_slice(header.as_bytes());
}

fn table(entries: &mut [tar::GnuSparseHeader], runs: &[Segment]) {
    for (entry, run) in entries.iter_mut().zip(runs) {
        number::encode(&mut entry.offset, signed(run.offset));
        number::encode(&mut entry.numbytes, signed(run.length));
    }
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
/// Runs in the header itself, and in each block behind it.
const IN_HEAD: usize = 4;
const IN_BLOCK: usize = 21;

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
        let mut out = Vec::new();
        head.write(&mut out);
        let runs = head.runs.map(<[_]>::len);
        assert_eq!(
            out.len() as u64,
            length(head.path.len(), head.link.len(), runs)
        );
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
                nanos: 0
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
        for count in [0, 1, 4, 5, 25, 26, 100] {
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
}
