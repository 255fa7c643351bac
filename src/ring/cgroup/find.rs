//! Which cgroup may be used: our own as `/proc` tells it, and whether it was delegated to us.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::fs::statfs;

/// Our own cgroup, or the one above it, if it carries the mark of a delegation.
///
/// With `DelegateSubgroup=` systemd puts a service one level below the cgroup that it delegates (systemd.exec(5)).
pub(super) fn delegated() -> Option<PathBuf> {
    let own = own()?;
    let above = own.parent().map(Path::to_owned);
    [Some(own), above]
        .into_iter()
        .flatten()
        .find(|path| is_delegated(path))
}

/// Checks that `path` is a cgroup to which we may move processes of ours.
pub(super) fn check(path: &Path) -> io::Result<()> {
    let kind = statfs(path)?.f_type;
    if u64::try_from(kind) != Ok(CGROUP2_MAGIC) {
        return Err(io::Error::other(
            "it is not a directory of a cgroup2 file system",
        ));
    }
    // A move needs the right to write here in the cgroup that holds both ends (cgroups(7), delegation containment).
    let path = path.canonicalize()?;
    let common = own().and_then(|own| common(&own, &path));
    let procs = common.as_deref().unwrap_or(&path).join("cgroup.procs");
    let opened = fs::File::options().write(true).open(&procs);
    opened.map(drop).map_err(|error| {
        let told = format!(
            "processes may not be moved below it: {}: {error}",
            procs.display()
        );
        io::Error::new(error.kind(), told)
    })
}

fn is_delegated(path: &Path) -> bool {
    ["user.delegate", "trusted.delegate"].iter().any(|name| {
        let mut value = [0; 8];
        let read = rustix::fs::getxattr(path, *name, &mut value[..]);
        read.is_ok_and(|length| &value[..length] == b"1")
    })
}

/// The directory of our own cgroup.
fn own() -> Option<PathBuf> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    locate(&groups, &mounts)
}

/// Finds the directory of the cgroup that `/proc/PID/cgroup` names, among the mounts of `/proc/PID/mountinfo`.
fn locate(groups: &str, mounts: &str) -> Option<PathBuf> {
    let group = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    // A process outside the root of its namespace is shown by a way upwards.
    if group.starts_with("/..") {
        return None;
    }
    mounts.lines().find_map(|line| {
        let (fields, kind) = line.split_once(" - ")?;
        if kind.split(' ').next() != Some("cgroup2") {
            return None;
        }
        let mut fields = fields.split(' ').skip(3);
        let (root, point) = (fields.next()?, fields.next()?);
        let inside = Path::new(group).strip_prefix(unescaped(root)).ok()?;
        // Without a trailing slash where it is the mount point itself.
        Some(unescaped(point).join(inside).components().collect())
    })
}

/// A path of mountinfo, in which some bytes are written as `\040` (proc(5)).
fn unescaped(text: &str) -> PathBuf {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, later)) = rest.split_first() {
        let code = later
            .get(..3)
            .and_then(|code| std::str::from_utf8(code).ok());
        let code = code.and_then(|code| u8::from_str_radix(code, 8).ok());
        match code {
            Some(byte) if *first == b'\\' => {
                bytes.push(byte);
                rest = &later[3..];
            }
            _ => {
                bytes.push(*first);
                rest = later;
            }
        }
    }
    std::ffi::OsString::from_vec(bytes).into()
}

/// The deepest directory that holds both, within the cgroup file system.
fn common(left: &Path, right: &Path) -> Option<PathBuf> {
    let pairs = left.components().zip(right.components());
    let shared: PathBuf = pairs
        .take_while(|(left, right)| left == right)
        .map(|(left, _)| left)
        .collect();
    let kind = statfs(&shared).ok()?.f_type;
    (u64::try_from(kind) == Ok(CGROUP2_MAGIC)).then_some(shared)
}

/// `CGROUP2_SUPER_MAGIC` of linux/magic.h.
const CGROUP2_MAGIC: u64 = 0x6367_7270;

#[cfg(test)]
mod tests {
    use super::*;

    fn check(groups: &str, mounts: &str, expected: Option<&str>) {
        let found = locate(groups, mounts);
        assert_eq!(found.as_deref(), expected.map(Path::new), "{groups}");
    }

    const UNIFIED: &str = "30 23 0:27 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n";

    #[test]
    fn our_own_cgroup_is_found_where_it_is_mounted() {
        check("0::/a.slice/b\n", UNIFIED, Some("/sys/fs/cgroup/a.slice/b"));
        check("0::/\n", UNIFIED, Some("/sys/fs/cgroup"));
        let hybrid = "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                      41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 none rw\n";
        check(
            "4:memory:/x\n0::/y\n",
            hybrid,
            Some("/sys/fs/cgroup/unified/y"),
        );
    }

    #[test]
    fn a_mount_of_a_part_shows_only_that_part() {
        let part = "30 23 0:27 /pods/p1 /mnt/my\\040groups rw - cgroup2 cgroup2 rw\n";
        check("0::/pods/p1/c\n", part, Some("/mnt/my groups/c"));
        check("0::/pods/p2\n", part, None);
        check("0::/../p2\n", UNIFIED, None);
    }

    #[test]
    fn without_the_second_version_there_is_none() {
        check("4:memory:/x\n", UNIFIED, None);
        check("0::/x\n", "31 23 0:28 / /sys rw - sysfs sysfs rw\n", None);
        check("", "", None);
    }
}
