//! What the daemon sets for its own process: subreaper, OOM score, allocator, standard descriptors; and any signal to
//! others.

use std::fs;
use std::io;

use rustix::process::Pid;

/// Makes this process the reaper of orphaned descendants, so that they can be found and leave no zombie.
pub fn become_subreaper() {
    let me = rustix::process::getpid();
    if let Err(error) = rustix::process::set_child_subreaper(Some(me)) {
        tracing::warn!(%error, "orphans of execs will go to the init process");
    }
}

/// The OOM score adjustment that children get back: what this process had at start.
pub fn protect_from_oom() -> Option<i32> {
    let before = fs::read_to_string(OOM_SCORE).ok()?.trim().parse().ok()?;
    match fs::write(OOM_SCORE, PROTECTED) {
        Ok(()) => Some(before),
        Err(error) => {
            tracing::debug!(%error, "the OOM score stays as it is");
            None
        }
    }
}

/// Raises the limit on open descriptors as far as it goes; answers what it was, for children to get it back.
pub fn raise_descriptor_limit() -> Option<u64> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let before = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: before.maximum,
        ..before
    };
    if before.current == before.maximum {
        return None;
    }
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => before.current,
        Err(error) => {
            tracing::debug!(%error, "the limit on descriptors stays as it is");
            None
        }
    }
}

/// Keeps the allocator from holding on to large blocks that were freed.
///
/// glibc raises its threshold for blocks of their own with each large block that is freed (mallopt(3)); from then on
/// such blocks stay in its heaps. A threshold that is set stays. Other C libraries give memory back by themselves.
#[cfg_attr(
    target_env = "gnu",
    expect(unsafe_code, reason = "the allocator has no other interface")
)]
pub fn return_large_blocks() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes two numbers, and may be called at any time.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE_BLOCK);
        libc::mallopt(libc::M_TRIM_THRESHOLD, LARGE_BLOCK);
    }
}

/// Opens `/dev/null` for each of the descriptors 0 to 2 that is closed, so that no file of ours lands there.
pub fn fill_standard_descriptors() {
    while let Ok(file) = fs::File::options().read(true).write(true).open("/dev/null") {
        use std::os::fd::{AsRawFd, IntoRawFd};
        if file.as_raw_fd() > 2 {
            break;
        }
        let _ = file.into_raw_fd();
    }
}

/// Who gets a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whom {
    /// One process.
    Process(Pid),
    /// Every process of a group.
    Group(Pid),
}

/// Sends the signal of this number, real-time ones included; false when nobody is there.
///
/// # Errors
/// Somebody is there who may not be signalled, or there is no such signal (kill(2)).
#[expect(
    unsafe_code,
    reason = "the wrapper takes only signals that the C library leaves to programs"
)]
pub fn send_signal(whom: Whom, number: i32) -> io::Result<bool> {
    let target = match whom {
        Whom::Process(pid) => pid.as_raw_nonzero().get(),
        Whom::Group(group) => {
            assert!(group != Pid::INIT, "kill(2) takes -1 for everybody");
            -group.as_raw_nonzero().get()
        }
    };
    // SAFETY: a plain system call on values, which touches no memory of ours.
    if unsafe { libc::kill(target, number) } == 0 {
        return Ok(true);
    }
    match io::Error::last_os_error() {
        error if error.raw_os_error() == Some(libc::ESRCH) => Ok(false),
        error => Err(error),
    }
}

/// Bytes from which a block is the system's again as soon as it is free.
#[cfg(target_env = "gnu")]
const LARGE_BLOCK: libc::c_int = 2 << 20;
const OOM_SCORE: &str = "/proc/self/oom_score_adj";
const PROTECTED: &str = "-1000";
