//! What a process holds in memory: its resident set, the peak of it, and a watch over a stretch of work.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::Pid;

const KIB: f64 = 1024.0;
const SAMPLE_EVERY: Duration = Duration::from_millis(2);

/// One reading of `/proc/PID/status`, in MiB.
#[derive(Clone, Copy)]
pub(crate) struct Resident {
    /// VmRSS: anonymous, file and shared pages.
    pub(crate) total: f64,
    /// VmHWM: the highest VmRSS since the last `forget_peak`.
    pub(crate) peak: f64,
    /// RssAnon: pages that no file backs.
    pub(crate) anonymous: f64,
}

pub(crate) fn resident(pid: Pid) -> Result<Resident> {
    let path = format!("/proc/{}/status", pid.as_raw_nonzero());
    let status = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    let mib = |key: &str| -> Result<f64> {
        let line = status.lines().find(|line| line.starts_with(key));
        let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<f64>().ok());
        Ok(kib.with_context(|| format!("{path} has no {key}"))? / KIB)
    };
    Ok(Resident {
        total: mib("VmRSS:")?,
        peak: mib("VmHWM:")?,
        anonymous: mib("RssAnon:")?,
    })
}

/// Sets VmHWM back to the present VmRSS (proc(5), `clear_refs`).
pub(crate) fn forget_peak(pid: Pid) -> Result<()> {
    let path = format!("/proc/{}/clear_refs", pid.as_raw_nonzero());
    std::fs::write(&path, "5").with_context(|| format!("cannot write {path}"))
}

/// Bytes that a process caused to be read from the disk, when the kernel keeps that account.
pub(crate) fn disk_read_bytes(pid: Pid) -> Option<u64> {
    let io = std::fs::read_to_string(format!("/proc/{}/io", pid.as_raw_nonzero())).ok()?;
    io.lines()
        .find_map(|line| line.strip_prefix("read_bytes: ")?.trim().parse().ok())
}

/// How far a process grew while it was watched, in MiB.
pub(crate) struct Growth {
    pub(crate) total: f64,
    pub(crate) anonymous: f64,
}

/// Watches one process from `start` to `stop`.
///
/// The kernel keeps the peak of the resident set. It keeps none for the anonymous part, so a thread samples that.
pub(crate) struct Watch {
    pid: Pid,
    before: Resident,
    ended: Arc<AtomicBool>,
    sampler: JoinHandle<f64>,
}

impl Watch {
    pub(crate) fn start(pid: Pid) -> Result<Self> {
        forget_peak(pid)?;
        let before = resident(pid)?;
        let ended = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&ended);
        let sampler = std::thread::spawn(move || {
            let mut peak = before.anonymous;
            while !stop.load(Ordering::Relaxed) {
                let Ok(now) = resident(pid) else { break };
                peak = peak.max(now.anonymous);
                std::thread::sleep(SAMPLE_EVERY);
            }
            peak
        });
        Ok(Self {
            pid,
            before,
            ended,
            sampler,
        })
    }

    pub(crate) fn stop(self) -> Result<Growth> {
        let after = resident(self.pid)?;
        self.ended.store(true, Ordering::Relaxed);
        let anonymous = self
            .sampler
            .join()
            .ok()
            .context("the memory sampler failed")?;
        Ok(Growth {
            total: (after.peak - self.before.total).max(0.0),
            anonymous: (anonymous.max(after.anonymous) - self.before.anonymous).max(0.0),
        })
    }
}
