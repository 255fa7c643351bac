//! Tar archives made by hand, so that every wrong one can be made too.

use std::io::Read;

use crate::daemon::Daemon;
use crate::reply::Reply;
use crate::request::tar_at;

/// One member: a header block and what follows it.
#[derive(Clone)]
pub(crate) struct Member {
    pub(crate) name: Vec<u8>,
    pub(crate) kind: u8,
    pub(crate) mode: u32,
    pub(crate) owner: u32,
    pub(crate) mtime: u64,
    pub(crate) link: Vec<u8>,
    pub(crate) prefix: Vec<u8>,
    pub(crate) size: u64,
    pub(crate) data: Vec<u8>,
    /// Bytes to put into the header before its checksum is made: offset and value.
    pub(crate) patches: Vec<(usize, Vec<u8>)>,
    /// True for the magic of GNU tar, false for that of POSIX.
    pub(crate) gnu: bool,
}

impl Member {
    pub(crate) fn new(kind: u8, name: impl AsRef<[u8]>) -> Self {
        Self {
            name: name.as_ref().to_vec(),
            kind,
            mode: 0o644,
            owner: 0,
            mtime: 1_000_000_000,
            link: Vec::new(),
            prefix: Vec::new(),
            size: 0,
            data: Vec::new(),
            patches: Vec::new(),
            gnu: false,
        }
    }

    pub(crate) fn data(mut self, data: impl Into<Vec<u8>>) -> Self {
        self.data = data.into();
        self.size = u64::try_from(self.data.len()).expect("64 bits");
        self
    }

    pub(crate) fn link(mut self, target: impl AsRef<[u8]>) -> Self {
        self.link = target.as_ref().to_vec();
        self
    }

    pub(crate) fn mode(mut self, mode: u32) -> Self {
        self.mode = mode;
        self
    }

    pub(crate) fn mtime(mut self, seconds: u64) -> Self {
        self.mtime = seconds;
        self
    }

    pub(crate) fn owner(mut self, id: u32) -> Self {
        self.owner = id;
        self
    }

    pub(crate) fn prefix(mut self, prefix: &str) -> Self {
        self.prefix = prefix.as_bytes().to_vec();
        self
    }

    /// Declares a size other than that of the data.
    pub(crate) fn size(mut self, size: u64) -> Self {
        self.size = size;
        self
    }

    /// Writes bytes into the header.
    pub(crate) fn patch(mut self, offset: usize, bytes: impl AsRef<[u8]>) -> Self {
        self.patches.push((offset, bytes.as_ref().to_vec()));
        self
    }

    pub(crate) fn gnu(mut self) -> Self {
        self.gnu = true;
        self
    }

    /// The header block, and the data padded to whole blocks.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut header = [0_u8; BLOCK];
        let mut put = |offset: usize, bytes: &[u8]| {
            header[offset..offset + bytes.len()].copy_from_slice(bytes)
        };
        put(0, &self.name);
        put(100, format!("{:07o}\0", self.mode).as_bytes());
        put(108, format!("{:07o}\0", self.owner).as_bytes());
        put(116, format!("{:07o}\0", self.owner).as_bytes());
        put(124, format!("{:011o}\0", self.size).as_bytes());
        put(136, format!("{:011o}\0", self.mtime).as_bytes());
        put(148, b"        ");
        put(156, &[self.kind]);
        put(157, &self.link);
        put(
            257,
            if self.gnu {
                b"ustar  \0"
            } else {
                b"ustar\x0000"
            },
        );
        put(345, &self.prefix);
        for (offset, bytes) in &self.patches {
            put(*offset, bytes);
        }
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        let mut bytes = header.to_vec();
        bytes.extend_from_slice(&padded(&self.data));
        bytes
    }
}

pub(crate) const BLOCK: usize = 512;

pub(crate) fn file(name: impl AsRef<[u8]>, data: impl Into<Vec<u8>>) -> Member {
    Member::new(b'0', name).data(data)
}

pub(crate) fn dir(name: impl AsRef<[u8]>) -> Member {
    Member::new(b'5', name).mode(0o755)
}

pub(crate) fn symlink(name: impl AsRef<[u8]>, target: impl AsRef<[u8]>) -> Member {
    Member::new(b'2', name).mode(0o777).link(target)
}

pub(crate) fn hard_link(name: impl AsRef<[u8]>, target: impl AsRef<[u8]>) -> Member {
    Member::new(b'1', name).link(target)
}

/// A member that gives the next one a longer name (`L`) or link target (`K`), as GNU tar does.
pub(crate) fn gnu_long(kind: u8, text: impl AsRef<[u8]>) -> Member {
    let mut data = text.as_ref().to_vec();
    data.push(0);
    Member::new(kind, "././@LongLink").data(data).gnu()
}

/// A pax header for the next member (`x`) or for all (`g`).
pub(crate) fn pax(kind: u8, records: &[(&str, &str)]) -> Member {
    let mut data = Vec::new();
    for (key, value) in records {
        data.extend_from_slice(&pax_record(key, value.as_bytes()));
    }
    Member::new(kind, "@PaxHeader").data(data)
}

/// One record, whose length counts its own digits.
pub(crate) fn pax_record(key: &str, value: &[u8]) -> Vec<u8> {
    let rest = key.len() + value.len() + 3;
    let mut length = rest + 1;
    while rest + length.to_string().len() != length {
        length += 1;
    }
    let mut record = format!("{length} {key}=").into_bytes();
    record.extend_from_slice(value);
    record.push(b'\n');
    record
}

/// The members with the two zero blocks behind them.
pub(crate) fn archive(members: impl IntoIterator<Item = Member>) -> Vec<u8> {
    let mut bytes = unended(members);
    bytes.extend_from_slice(&[0; 2 * BLOCK]);
    bytes
}

/// The members alone.
pub(crate) fn unended(members: impl IntoIterator<Item = Member>) -> Vec<u8> {
    members
        .into_iter()
        .flat_map(|member| member.bytes())
        .collect()
}

/// Data filled up to whole blocks.
pub(crate) fn padded(data: &[u8]) -> Vec<u8> {
    let mut bytes = data.to_vec();
    bytes.resize(data.len().next_multiple_of(BLOCK), 0);
    bytes
}

/// Uploads an archive to a root below the working directory.
#[track_caller]
pub(crate) fn upload(daemon: &Daemon, root: &str, body: Vec<u8>) -> Reply {
    daemon.put(tar_at(daemon.path(root)), body)
}

/// What stands in one header: name, type, mode, link target, content.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) kind: u8,
    pub(crate) mode: u32,
    pub(crate) link: Option<String>,
    pub(crate) data: Vec<u8>,
}

/// The members of an archive as the `tar` crate reads them.
#[track_caller]
pub(crate) fn entries(body: &[u8]) -> Vec<Entry> {
    let mut packed = tar::Archive::new(body);
    let members = packed.entries().expect("an archive");
    members
        .map(|member| {
            let mut member = member.expect("a header");
            let mut data = Vec::new();
            member.read_to_end(&mut data).expect("data");
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            Entry {
                // Some write the name of a directory with a slash at its end.
                name: text(&member.path_bytes()).trim_end_matches('/').to_owned(),
                kind: member.header().entry_type().as_byte(),
                mode: member.header().mode().expect("a mode") & 0o7777,
                link: member
                    .link_name_bytes()
                    .map(|bytes| text(&bytes))
                    .filter(|link| !link.is_empty()),
                data,
            }
        })
        .collect()
}

/// One entry, written by hand.
pub(crate) fn entry(name: &str, kind: u8, mode: u32, link: Option<&str>, data: &[u8]) -> Entry {
    Entry {
        name: name.into(),
        kind,
        mode,
        link: link.map(str::to_owned),
        data: data.to_vec(),
    }
}
