//! What is known of one entry: type, size, owner, times, identity.

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Statx, StatxFlags, StatxTimestamp};
use rustix::io::Errno;

use super::entry::{WANTED, is_mount_point, kind, unseen};
use super::mount;
use super::owners::Owners;
use super::version::Version;
use crate::error::Result;
use crate::ring::pool;

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sort {
    File,
    Directory,
    Symlink,
    Fifo,
    Socket,
    CharDevice,
    BlockDevice,
    /// Nothing of these, or nobody can tell.
    Unknown,
}

/// A point in time: seconds since 1970, and the nanoseconds after them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Time {
    pub seconds: i64,
    pub nanos: u32,
}

/// Everything that is told of an entry.
#[derive(Clone, Debug)]
pub struct Facts {
    pub sort: Sort,
    pub size: u64,
    /// Bytes that it takes on its disk.
    pub allocated: u64,
    /// Permission bits, low 12.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    /// The name of the owner; `None` when nobody has the number.
    pub user: Option<String>,
    /// The name of the group.
    pub group: Option<String>,
    pub modified: Time,
    pub accessed: Time,
    pub changed: Time,
    /// `None` where the filesystem does not keep it.
    pub born: Option<Time>,
    pub inode: u64,
    /// Major and minor number of the device that holds it.
    pub device: (u32, u32),
    /// The device that it is, for device files.
    pub stands_for: Option<(u32, u32)>,
    pub links: u32,
    /// Where a symbolic link points.
    pub target: Option<Vec<u8>>,
    /// The validator of a regular file, as its reads have it.
    pub etag: Option<String>,
    /// The mount that holds it; `None` before Linux 5.8.
    pub mount: Option<u64>,
    /// True for the root of a mount; `None` before Linux 5.8.
    pub is_mount_point: Option<bool>,
}

/// Looks at `path`; a link at its end is followed only when `follow` says so.
///
/// # Errors
/// `NotFound`, `Denied`, `Malformed` for a path that cannot be one, else `Internal`.
pub async fn look(path: &Path, follow: bool) -> Result<Facts> {
    let path = path.to_owned();
    pool::run(move || {
        let found = look_now(&path, follow);
        found.map_err(|errno| unseen(errno, &path))
    })
    .await?
}

fn look_now(path: &Path, follow: bool) -> std::result::Result<Facts, Errno> {
    let way = match follow {
        true => OFlags::PATH,
        false => OFlags::PATH | OFlags::NOFOLLOW,
    };
    let fd = rustix::fs::openat(CWD, path, way | OFlags::CLOEXEC, Mode::empty())?;
    let found = rustix::fs::statx(&fd, "", AtFlags::EMPTY_PATH, WANTED)?;
    let is_pseudo = mount::is_pseudo(&fd);
    let mut facts = Facts::of(&found, &Owners::read(), is_pseudo);
    if facts.sort == Sort::Symlink {
        facts.target = Some(rustix::fs::readlinkat(&fd, "", Vec::new())?.into_bytes());
    }
    Ok(facts)
}

impl Facts {
    /// What the kernel has told; `is_pseudo` says that it makes the filesystem up.
    pub(super) fn of(found: &Statx, owners: &Owners, is_pseudo: bool) -> Self {
        let sort = Sort::from(kind(found));
        let is_device = matches!(sort, Sort::CharDevice | Sort::BlockDevice);
        let has = |what: StatxFlags| found.stx_mask & what.bits() != 0;
        let (modified, changed) = (time(found.stx_mtime), time(found.stx_ctime));
        let etag = || Version::of_statx(found).etag();
        Self {
            sort,
            size: found.stx_size,
            allocated: found.stx_blocks.saturating_mul(512),
            mode: u32::from(found.stx_mode) & 0o7777,
            uid: found.stx_uid,
            gid: found.stx_gid,
            user: owners.user(found.stx_uid).map(str::to_owned),
            group: owners.group(found.stx_gid).map(str::to_owned),
            modified,
            accessed: time(found.stx_atime),
            changed,
            born: has(StatxFlags::BTIME).then(|| time(found.stx_btime)),
            inode: found.stx_ino,
            device: (found.stx_dev_major, found.stx_dev_minor),
            stands_for: is_device.then_some((found.stx_rdev_major, found.stx_rdev_minor)),
            links: found.stx_nlink,
            target: None,
            etag: (sort == Sort::File && !is_pseudo).then(etag),
            mount: has(StatxFlags::MNT_ID).then_some(found.stx_mnt_id),
            is_mount_point: is_mount_point(found),
        }
    }
}

/// Looks at `name` in `dir`, following it or not.
pub(super) fn look_at(
    dir: &OwnedFd,
    name: &[u8],
    follow: bool,
) -> std::result::Result<Statx, Errno> {
    let flags = match follow {
        true => AtFlags::NO_AUTOMOUNT,
        false => AtFlags::NO_AUTOMOUNT | AtFlags::SYMLINK_NOFOLLOW,
    };
    rustix::fs::statx(dir, name, flags, WANTED)
}

impl From<FileType> for Sort {
    fn from(file_type: FileType) -> Self {
        match file_type {
            FileType::RegularFile => Self::File,
            FileType::Directory => Self::Directory,
            FileType::Symlink => Self::Symlink,
            FileType::Fifo => Self::Fifo,
            FileType::Socket => Self::Socket,
            FileType::CharacterDevice => Self::CharDevice,
            FileType::BlockDevice => Self::BlockDevice,
            FileType::Unknown => Self::Unknown,
        }
    }
}

fn time(stamp: StatxTimestamp) -> Time {
    Time {
        seconds: stamp.tv_sec,
        nanos: stamp.tv_nsec,
    }
}
