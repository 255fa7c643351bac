//! The cgroups of execs: one made before each start where we have a subtree, removed when nobody is left in it.

use std::cell::RefCell;
use std::os::fd::OwnedFd;

use super::allowance::Means;
use crate::error::{Kind, Result};
use crate::ring::cgroup::{Leaf, Subtree};
use crate::ring::pool::{self, Lane};

/// The subtree, if there is one, and the leaves in which somebody was left at the end of the exec.
#[derive(Default)]
pub(super) struct Cgroups {
    subtree: Option<Subtree>,
    left: RefCell<Vec<Leaf>>,
}

impl Cgroups {
    pub(super) fn new(subtree: Option<Subtree>) -> Self {
        Self {
            subtree,
            left: RefCell::default(),
        }
    }

    /// Where leaves are made.
    pub(super) fn subtree(&self) -> Option<&Subtree> {
        self.subtree.as_ref()
    }

    /// Makes the leaf of an exec, with its limits; `None` where there are no cgroups.
    ///
    /// When it cannot be made and there is nothing to limit, the exec does without.
    ///
    /// # Errors
    /// `SpawnFailed` when the limits need it; `Busy` and `Internal` of the pool.
    pub(super) async fn make(&self, means: &Means) -> Result<Option<(Leaf, OwnedFd)>> {
        let Some(leaf) = self.subtree.as_ref().map(Subtree::leaf) else {
            return Ok(None);
        };
        let (made, limits) = (leaf.clone(), means.cgroup.clone());
        match pool::run_on(Lane::Processes, move || made.make(&limits)).await? {
            Ok(directory) => Ok(Some((leaf, directory))),
            Err(error) if means.cgroup.is_empty() => {
                tracing::warn!(%error, "no cgroup could be made for an exec");
                Ok(None)
            }
            Err(error) => {
                let told = format!("no cgroup can be made for the limits: {error}");
                Err(Kind::SpawnFailed.told(told).because(error))
            }
        }
    }

    /// Removes the leaf of an exec that has ended, now or when the last process in it has.
    pub(super) async fn remove(&self, leaf: Leaf) {
        self.left.borrow_mut().push(leaf);
        self.sweep().await;
    }

    /// Removes those leaves that have become empty.
    pub(super) async fn sweep(&self) {
        let leaves = self.left.take();
        if leaves.is_empty() {
            return;
        }
        let mut tried = leaves.clone();
        let job = move || {
            tried.retain(|leaf| !leaf.remove());
            tried
        };
        // What could not be tried is tried again.
        let rest = pool::run_on(Lane::Processes, job).await.unwrap_or(leaves);
        self.left.borrow_mut().extend(rest);
    }

    /// True when a leaf waits to be removed.
    pub(super) fn has_left(&self) -> bool {
        !self.left.borrow().is_empty()
    }

    /// Removes what is empty, at the end of the process.
    pub(super) fn close(&self) {
        if let Some(subtree) = &self.subtree {
            subtree.close();
        }
    }
}
