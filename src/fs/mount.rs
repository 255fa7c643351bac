//! What kind of filesystem a file is on, and where others begin, for helper threads: asking may itself wait for a server.

use std::ffi::OsString;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use rustix::fs::{AtFlags, FileType, Stat, StatFs, StatxFlags};

use crate::error::{Kind, Result};
use crate::ring::local;

/// True for a filesystem on a disk or in the memory of this machine: what is cached of it answers at once.
///
/// It is then known to `ring::local`, where the main thread can look it up.
pub(super) fn is_local(fd: impl AsFd) -> bool {
    if is_pseudo(&fd) {
        return false;
    }
    local::learn(&fd);
    local::mode_if_local(&fd).is_some()
}

/// True for a filesystem that the kernel makes up: its files have no true size, and no free space to ask for.
pub(super) fn is_pseudo(fd: impl AsFd) -> bool {
    rustix::fs::fstatfs(fd).is_ok_and(|fs| is_made_up(&fs))
}

/// The same of what fstatfs(2) has told.
pub(super) fn is_made_up(fs: &StatFs) -> bool {
    PSEUDO.contains(&fs.f_type.cast_unsigned())
}

/// A mounted filesystem, from which a walk can keep.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mounted {
    device: u64,
    /// Its number; `None` before Linux 5.8.
    id: Option<u64>,
}

impl Mounted {
    /// The one that holds what is open.
    pub(super) fn of(fd: impl AsFd, stat: &Stat) -> Self {
        Self {
            device: stat.st_dev,
            id: id(fd, b""),
        }
    }

    /// True when it holds `name` in `dir` too, or `dir` itself when the name is empty. No link is followed.
    pub(super) fn holds(self, dir: impl AsFd, name: &[u8], stat: &Stat) -> bool {
        let is_dir = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        let is_one_device = stat.st_dev == self.device;
        match (self.id, id(dir, name)) {
            // A subvolume has a device of its own; so have files of an overlay, which are no other filesystem.
            (Some(here), Some(there)) => here == there && (is_one_device || !is_dir),
            _ => is_one_device,
        }
    }
}

fn id(dir: impl AsFd, name: &[u8]) -> Option<u64> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | AtFlags::EMPTY_PATH;
    let found = rustix::fs::statx(dir, name, flags, StatxFlags::MNT_ID).ok()?;
    let is_told = found.stx_mask & StatxFlags::MNT_ID.bits() != 0;
    is_told.then_some(found.stx_mnt_id)
}

/// A mount point at `dir` or below it, if there is one.
///
/// # Errors
/// `Internal` when nobody can tell.
pub(super) fn below(dir: &OwnedFd) -> Result<Option<PathBuf>> {
    let unknown = |error: std::io::Error| {
        let told = "cannot tell where file systems are mounted";
        Kind::Internal.told(told).because(error)
    };
    let link = format!("/proc/self/fd/{}", dir.as_raw_fd());
    let top = std::fs::read_link(link).map_err(unknown)?;
    let table = std::fs::read("/proc/self/mountinfo").map_err(unknown)?;
    Ok(points(&table).find(|point| point.starts_with(&top)))
}

/// The mount points of a table (proc_pid_mountinfo(5)).
fn points(table: &[u8]) -> impl Iterator<Item = PathBuf> {
    let lines = table.split(|byte| *byte == b'\n');
    lines.filter_map(|line| {
        let point = line.split(|byte| *byte == b' ').nth(4)?;
        Some(PathBuf::from(OsString::from_vec(unescaped(point))))
    })
}

/// Decodes what the kernel writes as three octal digits.
fn unescaped(text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((byte, tail)) = rest.split_first() {
        let digits = tail.get(..3).filter(|_| *byte == b'\\');
        let code = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        match code.and_then(|code| u8::from_str_radix(code, 8).ok()) {
            Some(code) => {
                bytes.push(code);
                rest = &tail[3..];
            }
            None => {
                bytes.push(*byte);
                rest = tail;
            }
        }
    }
    bytes
}

/// Magic numbers of statfs(2): proc, sysfs, cgroup, cgroup2, debugfs, tracefs, securityfs, configfs, bpf, efivarfs,
/// pstore, selinuxfs, smackfs, binfmt_misc, fusectl, nsfs, resctrl, nfsd, rpc_pipefs.
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
    0x0765_5821,
    0x6e66_7364,
    0x6759_6969,
];

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str, local: bool, pseudo: bool) {
        let file = std::fs::File::open(path).expect(path);
        assert_eq!(
            (is_local(&file), is_pseudo(&file)),
            (local, pseudo),
            "{path}"
        );
    }

    #[test]
    fn what_the_kernel_makes_up_is_not_local() {
        check("/proc/self/stat", false, true);
        check("/sys", false, true);
        check("/dev", true, false);
    }

    #[test]
    fn mount_points_are_read_as_they_are_named() {
        let table =
            b"22 1 0:21 / /proc rw - proc proc rw\n23 1 0:3 / /a\\040b\\134c rw - tmpfs x rw\n";
        let found: Vec<_> = points(table).collect();
        assert_eq!(found, [PathBuf::from("/proc"), PathBuf::from("/a b\\c")]);
    }
}
