//! What the daemon sets for its own process: subreaper, OOM score, allocator, standard descriptors; and any signal to
//! others.

use std::fs;
use std::io;
use std::time::Duration;

use rustix::process::{Pid, Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};

use super::pool::{self, Lane};

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
    use rustix::process::{Rlimit, setrlimit};
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

/// What this process uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Processor time, in user and system mode.
    pub cpu: Duration,
    /// What is told of memory and threads; `None` without `/proc`.
    pub memory: Option<Memory>,
    /// Open descriptors; `None` without `/proc`.
    pub descriptors: Option<u64>,
    /// Descriptors that may be open; `None` is any number.
    pub most_descriptors: Option<u64>,
}

/// A part of `/proc/self/stat` (proc_pid_stat(5)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Bytes of address space.
    pub virtual_bytes: u64,
    /// Bytes of memory in use.
    pub resident_bytes: u64,
    /// Threads.
    pub threads: u64,
}

/// Looks at what this process uses.
pub async fn usage() -> Usage {
    let descriptors = match descriptors_by_size() {
        Some(count) => Some(count),
        // A list of thousands takes a while.
        None => pool::run_on(Lane::Processes, descriptors_by_list)
            .await
            .unwrap_or(None),
    };
    let stat = fs::read_to_string("/proc/self/stat").ok();
    Usage {
        cpu: Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap_or_default(),
        memory: stat.and_then(|line| memory(&line, rustix::param::page_size() as u64)),
        descriptors,
        most_descriptors: getrlimit(Resource::Nofile).current,
    }
}

/// The size of `/proc/self/fd` is the number of descriptors (kernel 6.2); before that it is zero.
fn descriptors_by_size() -> Option<u64> {
    let size = fs::metadata("/proc/self/fd").ok()?.len();
    (size > 0).then_some(size)
}

fn descriptors_by_list() -> Option<u64> {
    let listed = fs::read_dir("/proc/self/fd").ok()?.count() as u64;
    // One was the list's own.
    Some(listed.saturating_sub(1))
}

fn memory(stat: &str, page: u64) -> Option<Memory> {
    // The name, in parentheses, may hold anything.
    let (_, fields) = stat.rsplit_once(')')?;
    // The first field behind it is the third of the line.
    let field = |number: usize| {
        fields
            .split_ascii_whitespace()
            .nth(number - 3)?
            .parse()
            .ok()
    };
    let pages: u64 = field(24)?;
    Some(Memory {
        virtual_bytes: field(23)?,
        resident_bytes: pages * page,
        threads: field(20)?,
    })
}

/// Bytes from which a block is the system's again as soon as it is free.
#[cfg(target_env = "gnu")]
const LARGE_BLOCK: libc::c_int = 2 << 20;
const OOM_SCORE: &str = "/proc/self/oom_score_adj";
const PROTECTED: &str = "-1000";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_and_threads_are_found_behind_any_name() {
        let stat =
            "77 (a) R 1 (b) S 1 77 77 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 9 0 100 4096000 50 184 1";
        let expected = Memory {
            virtual_bytes: 4_096_000,
            resident_bytes: 204_800,
            threads: 9,
        };
        assert_eq!(memory(stat, 4096), Some(expected));
        assert_eq!(memory("77 (a) S 1", 4096), None);
    }

    #[test]
    fn both_ways_to_count_descriptors_find_what_is_open() {
        let held: Vec<_> = (0..200)
            .filter_map(|_| fs::File::open("/dev/null").ok())
            .collect();
        let mut counts = vec![descriptors_by_list().expect("proc is mounted")];
        counts.extend(descriptors_by_size());
        // Other tests open and close theirs meanwhile.
        assert!(
            counts.iter().all(|count| *count > held.len() as u64),
            "{counts:?}"
        );
    }
}
