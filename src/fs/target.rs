//! Where an upload goes: the directory and name behind a path, links followed, and what is there.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

/// A name in a directory that is held open.
pub(super) struct Target {
    pub(super) dir: OwnedFd,
    pub(super) leaf: Vec<u8>,
    /// What has the name; `None` when nothing has.
    pub(super) there: Option<Stat>,
}

impl Target {
    /// Follows `path`, and the links at its end, to where a file of that name is or would be.
    pub(super) fn find(path: &Path) -> Result<Self, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut base: Option<OwnedFd> = None;
        let mut path = path.as_os_str().as_bytes().to_vec();
        for _ in 0..MOST_LINKS {
            let (parent, leaf) = split(&path).ok_or(Errno::ISDIR)?;
            let parent = OsStr::from_bytes(parent);
            let dir = match &base {
                Some(base) => rustix::fs::openat(base, parent, flags, Mode::empty())?,
                None => rustix::fs::openat(CWD, parent, flags, Mode::empty())?,
            };
            let there = match rustix::fs::statat(&dir, leaf, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => Some(stat),
                Err(Errno::NOENT) => None,
                Err(errno) => return Err(errno),
            };
            let linked = there
                .is_some_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Symlink);
            if !linked {
                return Ok(Self {
                    leaf: leaf.to_vec(),
                    dir,
                    there,
                });
            }
            let next = rustix::fs::readlinkat(&dir, leaf, Vec::new())?.into_bytes();
            base = Some(dir);
            path = next;
        }
        Err(Errno::LOOP)
    }
}

/// True for a filesystem that the kernel makes up: its files have no true size, and no free space to ask for.
pub(super) fn is_pseudo(fd: impl AsFd) -> bool {
    rustix::fs::fstatfs(fd).is_ok_and(|fs| PSEUDO.contains(&fs.f_type.cast_unsigned()))
}

/// A name that nothing has, for a file that is about to be renamed.
pub(super) fn temporary_name() -> std::ffi::OsString {
    let mut random = [0u8; 8];
    // Names that repeat are refused by O_EXCL, so poor randomness costs an error, not a file.
    let _ = rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::NONBLOCK);
    let name = format!(".ringd-{:016x}", u64::from_ne_bytes(random));
    std::ffi::OsString::from_vec(name.into_bytes())
}

/// The directory and the last component; `None` when the path can only be a directory.
fn split(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let (parent, leaf) = match path.iter().rposition(|byte| *byte == b'/') {
        Some(0) => (&path[..1], &path[1..]),
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (b".".as_slice(), path),
    };
    let is_name = !matches!(leaf, b"" | b"." | b"..");
    is_name.then_some((parent, leaf))
}

/// As many as the kernel follows.
const MOST_LINKS: usize = 40;

/// Magic numbers of statfs(2): proc, sysfs, cgroup, cgroup2, debugfs, tracefs, securityfs, configfs, bpf, efivarfs,
/// pstore, selinuxfs, smackfs, binfmt_misc, fusectl, nsfs.
const PSEUDO: &[u64] = &[
    0x9fa0,
    0x6265_6572,
    0x27_e0eb,
    0x6367_7270,
    0x6462_6720,
    0x7472_6163,
    0x7363_6673,
    0x6265_6570,
    0xcafe_4a11,
    0xde5e_81e4,
    0x6165_676c,
    0xf97c_ff8c,
    0x4341_5d53,
    0x4249_4e4d,
    0x6573_5543,
    0x6e73_6673,
];
