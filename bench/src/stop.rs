//! Ctrl-C: the first one ends the run after the present measurement, the second one at once, with all servers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::low_level;

/// Whether the run is to end.
#[derive(Clone, Default)]
pub(crate) struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Listens to SIGINT and SIGTERM.
    #[expect(unsafe_code, reason = "what a signal may do is little")]
    pub(crate) fn on_signals() -> Result<Self> {
        let stop = Self::default();
        for signal in [SIGINT, SIGTERM] {
            let is_set = Arc::clone(&stop.0);
            let act = move || {
                if is_set.swap(true, Ordering::Relaxed) {
                    end_wards();
                    low_level::exit(INTERRUPTED.into());
                }
            };
            // SAFETY: the action works on atomics, sends signals and exits: all are async-signal-safe
            // (signal-safety(7)).
            unsafe { low_level::register(signal, act) }.context("cannot listen to signals")?;
        }
        Ok(stop)
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A process that does not outlive a run that is ended at once. Dropped when it has ended.
pub(crate) struct Ward(usize);

impl Ward {
    /// Nothing when there are too many: that process may be left.
    pub(crate) fn of(pid: Pid) -> Option<Self> {
        let take = |slot: &AtomicI32| {
            let own = pid.as_raw_nonzero().get();
            slot.compare_exchange(0, own, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
        };
        WARDS.iter().position(take).map(Self)
    }
}

impl Drop for Ward {
    fn drop(&mut self) {
        WARDS[self.0].store(0, Ordering::Relaxed);
    }
}

fn end_wards() {
    for slot in &WARDS {
        if let Some(pid) = Pid::from_raw(slot.load(Ordering::Relaxed)) {
            // It may have ended by itself.
            let _ = kill_process(pid, Signal::TERM);
        }
    }
}

/// The status of a run that was broken off, as shells give it to a program that SIGINT ended.
pub(crate) const INTERRUPTED: u8 = 130;

static WARDS: [AtomicI32; 64] = [const { AtomicI32::new(0) }; 64];
