//! What a child is held to beyond what it inherits, set between vfork and exec, and which of it was refused.

use std::cell::Cell;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::ptr;

use super::{check, errno};

/// What a child is held to.
#[derive(Debug, Default)]
pub struct Bounds {
    /// Resource limits, set in this order.
    pub resources: Vec<Resource>,
    /// The nice value.
    pub nice: Option<i32>,
    /// The OOM score adjustment; wins over the one that is put back.
    pub oom_score_adj: Option<i32>,
    /// The directory of the cgroup to start in.
    pub cgroup: Option<OwnedFd>,
}

/// One resource limit (setrlimit(2)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resource {
    /// Which one.
    pub bound: Bound,
    /// The soft limit.
    pub soft: u64,
    /// The hard limit.
    pub hard: u64,
}

/// One thing that a child can be held to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bound {
    /// Open descriptors.
    Nofile,
    /// Seconds of processor time.
    CpuSeconds,
    /// Bytes of a file that is written.
    FileSize,
    /// Bytes of address space.
    Memory,
    /// Processes of the user.
    Processes,
    /// The nice value.
    Nice,
    /// The OOM score adjustment.
    OomScoreAdj,
    /// The cgroup.
    Cgroup,
}

/// Why a child was not started.
#[derive(Debug)]
pub struct Refusal {
    /// What it could not be held to; `None` when something else failed.
    pub bound: Option<Bound>,
    /// What the failing call said.
    pub error: io::Error,
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Self {
        Self { bound: None, error }
    }
}

/// The bounds as the child sets them: it must not allocate.
pub(super) struct Orders {
    resources: Vec<(Bound, libc::c_int, libc::rlimit64)>,
    nice: Option<i32>,
    oom_score: Option<CString>,
    pub(super) cgroup: Option<RawFd>,
    /// True when the child was born elsewhere and has to move to its cgroup.
    pub(super) moves: bool,
    refused: Cell<Option<Bound>>,
}

impl Orders {
    pub(super) fn of(bounds: &Bounds) -> Self {
        let resource = |one: &Resource| {
            let limit = libc::rlimit64 {
                rlim_cur: one.soft,
                rlim_max: one.hard,
            };
            Some((one.bound, one.bound.resource()?, limit))
        };
        let score = bounds.oom_score_adj;
        Self {
            resources: bounds.resources.iter().filter_map(resource).collect(),
            nice: bounds.nice,
            oom_score: score.and_then(|score| CString::new(score.to_string()).ok()),
            cgroup: bounds.cgroup.as_ref().map(AsRawFd::as_raw_fd),
            moves: false,
            refused: Cell::new(None),
        }
    }

    /// What the child could not be held to, when that is why it has failed.
    pub(super) fn refused(&self) -> Option<Bound> {
        self.refused.get()
    }

    /// Holds the calling process to them; the errors are errno values.
    ///
    /// # Safety
    /// To be called in a vfork child only, before its credentials change.
    #[expect(unsafe_code, reason = "raw system calls between vfork and exec")]
    pub(super) unsafe fn obey(&self) -> Result<(), i32> {
        let refuse = |bound, errno| {
            self.refused.set(Some(bound));
            errno
        };
        // SAFETY: plain system calls on values; the pointers are to strings and limits that the parent owns.
        unsafe {
            if let Some(cgroup) = self.cgroup.filter(|_| self.moves) {
                put(cgroup, c"cgroup.procs", c"0").map_err(|no| refuse(Bound::Cgroup, no))?;
            }
            if let Some(score) = &self.oom_score {
                put(libc::AT_FDCWD, c"/proc/self/oom_score_adj", score)
                    .map_err(|no| refuse(Bound::OomScoreAdj, no))?;
            }
            if let Some(nice) = self.nice {
                let set = libc::syscall(libc::SYS_setpriority, libc::PRIO_PROCESS, 0, nice);
                check(set).map_err(|no| refuse(Bound::Nice, no))?;
            }
            // Behind everything that opens a file, for which there may be no number left.
            for (bound, resource, limit) in &self.resources {
                let none = ptr::null_mut::<libc::rlimit64>();
                let set = libc::syscall(libc::SYS_prlimit64, 0, *resource, &raw const *limit, none);
                check(set).map_err(|no| refuse(*bound, no))?;
            }
        }
        Ok(())
    }
}

impl Bound {
    /// The number of the resource limit; `None` for what is none.
    fn resource(self) -> Option<libc::c_int> {
        // The type of the constants differs from one C library to the next.
        Some(match self {
            Self::Nofile => libc::RLIMIT_NOFILE as libc::c_int,
            Self::CpuSeconds => libc::RLIMIT_CPU as libc::c_int,
            Self::FileSize => libc::RLIMIT_FSIZE as libc::c_int,
            Self::Memory => libc::RLIMIT_AS as libc::c_int,
            Self::Processes => libc::RLIMIT_NPROC as libc::c_int,
            Self::Nice | Self::OomScoreAdj | Self::Cgroup => return None,
        })
    }
}

/// Writes a small kernel file.
///
/// # Safety
/// As [`Orders::obey`].
#[expect(unsafe_code, reason = "raw system calls between vfork and exec")]
unsafe fn put(base: RawFd, path: &std::ffi::CStr, text: &std::ffi::CStr) -> Result<(), i32> {
    // SAFETY: the strings end in NUL and live on; the descriptor is the one that was just opened.
    unsafe {
        let fd = libc::openat(base, path.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
        check(fd.into())?;
        let written = libc::write(fd, text.as_ptr().cast(), text.count_bytes());
        let outcome = if written < 0 { Err(errno()) } else { Ok(()) };
        libc::close(fd);
        outcome
    }
}
