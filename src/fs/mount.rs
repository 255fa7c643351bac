//! What kind of filesystem a file is on, for helper threads: asking may itself wait for a server.

use std::os::fd::AsFd;

use rustix::fs::StatFs;

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
}
