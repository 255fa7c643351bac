//! What one exec may use, as its start request says it, and the means by which this host enforces it.

use std::io;
use std::num::NonZeroU64;

use rustix::process::getuid;

use crate::error::{Error, Kind, Result};
use crate::ring::cgroup::{Controller, Subtree};
use crate::ring::child::{Bound, Bounds, Resource};

/// What one exec may use; what is absent is inherited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allowance {
    /// Open descriptors of each process.
    pub nofile: Option<NonZeroU64>,
    /// Bytes of memory: of the whole exec with a memory controller, else of the address space of each process.
    pub memory: Option<NonZeroU64>,
    /// Seconds of processor time of each process.
    pub cpu_seconds: Option<NonZeroU64>,
    /// Bytes of each file that is written.
    pub file_size: Option<NonZeroU64>,
    /// Processes: of the exec with a pids controller, else of its user.
    pub processes: Option<NonZeroU64>,
    /// The nice value, -20 to 19.
    pub nice: Option<i32>,
    /// The OOM score adjustment, -1000 to 1000.
    pub oom_score_adj: Option<i32>,
}

/// How an allowance is enforced.
#[derive(Debug, Default)]
pub(super) struct Means {
    /// What the child sets for itself.
    pub(super) bounds: Bounds,
    /// What the cgroup of the exec is limited to.
    pub(super) cgroup: Vec<(Controller, u64)>,
}

impl Allowance {
    /// Chooses the means for a child under `uid`, `None` being ours.
    ///
    /// # Errors
    /// `Unsupported` for what cannot be enforced here. What may not be enforced is known when the child tries.
    pub(super) fn means(&self, uid: Option<u32>, subtree: Option<&Subtree>) -> Result<Means> {
        let has = |controller| subtree.is_some_and(|subtree| subtree.has(controller));
        let mut means = Means::default();
        means.bounds.nice = self.nice;
        means.bounds.oom_score_adj = self.oom_score_adj;
        let mut hold = |bound, limit: Option<NonZeroU64>, beyond| {
            let Some(soft) = limit.map(NonZeroU64::get) else {
                return;
            };
            let hard = soft.saturating_add(beyond);
            means.bounds.resources.push(Resource { bound, soft, hard });
        };
        hold(Bound::Nofile, self.nofile, 0);
        hold(Bound::FileSize, self.file_size, 0);
        // The soft limit is a signal that can be caught; a second later comes the one that cannot.
        hold(Bound::CpuSeconds, self.cpu_seconds, 1);
        match self.memory {
            Some(bytes) if has(Controller::Memory) => {
                means.cgroup.push((Controller::Memory, bytes.get()));
            }
            bytes => hold(Bound::Memory, bytes, 0),
        }
        match self.processes {
            Some(count) if has(Controller::Pids) => {
                means.cgroup.push((Controller::Pids, count.get()));
            }
            Some(_) if uid.unwrap_or_else(|| getuid().as_raw()) == 0 => {
                return Err(Kind::Unsupported.told(
                    "limits.processes cannot be enforced here: no cgroup with a pids controller, \
                     and root is bound by no other limit",
                ));
            }
            count => hold(Bound::Processes, count, 0),
        }
        Ok(means)
    }

    /// The error for what a child could not be held to.
    pub(super) fn refused(&self, bound: Bound, error: io::Error) -> Error {
        let limit = |name: &str, limit: Option<NonZeroU64>| {
            let limit = limit.map_or(0, NonZeroU64::get);
            format!("limits.{name} cannot be {limit} here: {error}; a hard limit may not be raised")
        };
        let adjustment = |name: &str, value: Option<i32>| {
            let value = value.unwrap_or(0);
            format!("{name} cannot be {value} here: {error}; to go lower takes a privilege")
        };
        let sentence = match bound {
            Bound::Nofile => limit("nofile", self.nofile),
            Bound::CpuSeconds => limit("cpu_seconds", self.cpu_seconds),
            Bound::FileSize => limit("file_size", self.file_size),
            Bound::Memory => limit("memory", self.memory),
            Bound::Processes => limit("processes", self.processes),
            Bound::Nice => adjustment("nice", self.nice),
            Bound::OomScoreAdj => adjustment("oom_score_adj", self.oom_score_adj),
            Bound::Cgroup => {
                let told = format!("the cgroup of the exec cannot be entered: {error}");
                return Kind::SpawnFailed.told(told).because(error);
            }
        };
        Kind::Unsupported.told(sentence).because(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(number: u64) -> Option<NonZeroU64> {
        NonZeroU64::new(number)
    }

    #[test]
    fn what_is_not_asked_for_needs_no_means() {
        let means = Allowance::default()
            .means(None, None)
            .expect("nothing to enforce");
        assert!(means.bounds.resources.is_empty() && means.cgroup.is_empty());
    }

    #[test]
    fn the_hard_limit_of_time_comes_a_second_after_the_soft_one() {
        for (asked, soft, hard) in [(1, 1, 2), (u64::MAX, u64::MAX, u64::MAX)] {
            let allowance = Allowance {
                cpu_seconds: one(asked),
                ..Allowance::default()
            };
            let means = allowance.means(None, None).expect("every kernel has it");
            let bound = Bound::CpuSeconds;
            assert_eq!(means.bounds.resources, [Resource { bound, soft, hard }]);
        }
    }

    #[test]
    fn without_controllers_the_limits_are_those_of_processes_and_root_has_none() {
        let allowance = Allowance {
            memory: one(7),
            processes: one(8),
            ..Allowance::default()
        };
        let means = allowance.means(Some(1), None).expect("a user is bound");
        let found: Vec<_> = means
            .bounds
            .resources
            .iter()
            .map(|one| (one.bound, one.hard))
            .collect();
        assert_eq!(found, [(Bound::Memory, 7), (Bound::Processes, 8)]);
        let error = allowance.means(Some(0), None).expect_err("root is not");
        assert_eq!(error.kind(), Kind::Unsupported);
        assert!(error.sentence().contains("limits.processes"));
    }
}
