//! The tar format (POSIX ustar and pax, GNU, v7) as values: a scanner for archives that arrive, heads for those that leave.
//!
//! Sources: POSIX.1-2017 `pax`, sections "ustar Interchange Format" and "pax Extended Header"; the GNU tar manual,
//! "Basic Tar Format" and "Storing Sparse Files".

mod draft;
mod guise;
mod number;
mod pax;
pub mod scan;
mod sparse;
pub mod write;

pub use scan::{Event, Scanner};

/// Bytes of a block: heads and data come in whole ones.
pub const BLOCK: u64 = 512;

/// `length` rounded up to whole blocks.
pub fn padded(length: u64) -> u64 {
    length.saturating_add(BLOCK - 1) / BLOCK * BLOCK
}

/// What a member is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// A regular file (also "contiguous" and sparse ones).
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// Another name of a member that came before.
    HardLink,
    /// A named pipe.
    Fifo,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
    /// A type that we do not know, as its flag byte.
    Unknown(u8),
}

/// A point in time as archives have it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// Seconds since 1970, negative before.
    pub secs: i64,
    /// Nanoseconds after that, below 1,000,000,000.
    pub nanos: u32,
}

/// A run of data in a sparse file; what lies between runs is zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Where in the file it lies.
    pub offset: u64,
    /// Bytes of it; they follow those of the run before in the archive.
    pub length: u64,
}

/// A member of an archive: everything but its data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The name, as the archive has it: any bytes.
    pub path: Vec<u8>,
    /// The target of a link, as the archive has it; empty for other types.
    pub link: Vec<u8>,
    /// What it is.
    pub kind: Type,
    /// The mode field, low 12 bits.
    pub mode: u32,
    /// The time of last modification.
    pub mtime: Moment,
    /// The numeric owner; `None` when the archive has none that a system could have.
    pub uid: Option<u32>,
    /// The numeric group, likewise.
    pub gid: Option<u32>,
    /// Extended attributes (`SCHILY.xattr.` records of pax): names and values, in order.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// Offset of its first header block in the archive, extension headers included.
    pub at: u64,
    /// Offset of its data in the archive.
    pub data_at: u64,
    /// Bytes of its data in the archive, without padding.
    pub stored: u64,
    /// Bytes of the file: as `stored`, unless it is sparse.
    pub size: u64,
    /// Where the stored bytes go when the file is sparse; runs ascend, do not overlap and end within `size`.
    pub runs: Option<Box<[Segment]>>,
}

/// Longest name or extension header that is read, in bytes.
pub const LONGEST_EXTENSION: u64 = 1024 * 1024;

fn broken(at: u64, what: &str) -> crate::error::Error {
    crate::error::Kind::Malformed.told(format!("malformed tar archive at byte {at}: {what}"))
}
