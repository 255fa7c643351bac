//! Which filesystems answer at once: those of this machine, as opposed to those that ask a server or a program.
//!
//! Asking a filesystem what it is may itself wait for the server. So an answer is only learned on a helper thread, and
//! kept for a short while under the device number, which can be had without asking.

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, StatxFlags};

/// The kind of what an `O_PATH` descriptor stands for, and its device; never waits for a server.
fn known_of(fd: impl AsFd) -> Option<(u32, (u32, u32))> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let found = rustix::fs::statx(fd, "", flags, StatxFlags::TYPE).ok()?;
    let device = (found.stx_dev_major, found.stx_dev_minor);
    Some((u32::from(found.stx_mode), device))
}

/// The file type and mode bits, when the filesystem is known to answer at once; never waits.
pub fn mode_if_local(fd: impl AsFd) -> Option<u32> {
    let (mode, device) = known_of(fd)?;
    let learned = lock().get(&device).copied();
    match learned.filter(|(_, at)| at.elapsed() < FRESH) {
        Some((is_local, _)) => is_local.then_some(mode),
        // A block device lies below it; where that is served by a program (fuseblk), the first look by a helper tells.
        None => (device.0 != 0).then_some(mode),
    }
}

/// Learns whether the filesystem of `fd` answers at once. For helper threads: it may wait.
pub fn learn(fd: impl AsFd) {
    let Some((_, device)) = known_of(&fd) else {
        return;
    };
    let Ok(found) = rustix::fs::fstatfs(fd) else {
        return;
    };
    let is_local = !REMOTE.contains(&found.f_type.cast_unsigned());
    let mut learned = lock();
    if learned.len() >= MOST {
        learned.clear();
    }
    learned.insert(device, (is_local, Instant::now()));
}

type Learned = HashMap<(u32, u32), (bool, Instant)>;

fn lock() -> MutexGuard<'static, Learned> {
    LEARNED.lock().unwrap_or_else(PoisonError::into_inner)
}

static LEARNED: LazyLock<Mutex<Learned>> = LazyLock::new(Mutex::default);
/// Device numbers without a block device are given to other mounts after an unmount.
const FRESH: Duration = Duration::from_secs(10);
const MOST: usize = 1024;

/// Magic numbers of statfs(2): FUSE (virtiofs too), NFS, SMB, CIFS, SMB2, 9P, Ceph, AFS, Coda, OCFS2, GFS2.
const REMOTE: &[u64] = &[
    0x6573_5546,
    0x6969,
    0x517b,
    0xff53_4d42,
    0xfe53_4d42,
    0x0102_1997,
    0x00c3_6400,
    0x5346_414f,
    0x7375_7245,
    0x7461_636f,
    0x0116_1970,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_block_device_must_be_learned_first() {
        let proc = std::fs::File::open("/proc/self/stat").expect("proc is mounted");
        lock().clear();
        assert_eq!(mode_if_local(&proc), None);
        learn(&proc);
        assert!(mode_if_local(&proc).is_some());
    }
}
