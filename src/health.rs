//! How much disk is left: a look that cannot stall the thread.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use schemars::JsonSchema;
use serde::Serialize;

use crate::ring::clock::within;
use crate::ring::notify::Once;
use crate::ring::{pool, spawn};

/// Free space, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "DiskHealth")]
pub struct Disk {
    /// What an unprivileged writer could still use.
    pub available_bytes: u64,
    /// What must stay free; 0 disables the guard.
    pub reserve_bytes: u64,
    /// True when a write would be refused now.
    pub under_pressure: bool,
}

/// Free space where the daemon works, measured again when the last look is older than [`FRESH`].
#[derive(Default)]
pub struct Gauge {
    last: RefCell<Option<u64>>,
    looked: Cell<Option<Instant>>,
    /// The look that is under way; there is one at most, so that a dead mount takes one helper thread only.
    looking: RefCell<Option<Rc<Once<()>>>>,
}

/// How long a look stays good.
const FRESH: Duration = Duration::from_millis(200);
/// How long a look may take; a mount that is dead then counts as not measurable.
const PATIENCE: Duration = Duration::from_secs(1);

impl Gauge {
    /// The disk as it is now, give or take [`FRESH`].
    pub async fn read(self: &Rc<Self>, reserve_bytes: u64) -> Option<Disk> {
        let known = self.last.borrow().is_some();
        let fresh = known && self.looked.get().is_some_and(|at| at.elapsed() < FRESH);
        if !fresh && within(PATIENCE, self.look().wait()).await.is_none() {
            return None;
        }
        let available_bytes = (*self.last.borrow())?;
        Some(Disk {
            available_bytes,
            reserve_bytes,
            under_pressure: reserve_bytes > 0 && available_bytes < reserve_bytes,
        })
    }

    /// Joins the look that is under way, or starts one.
    fn look(self: &Rc<Self>) -> Rc<Once<()>> {
        if let Some(looking) = &*self.looking.borrow() {
            return Rc::clone(looking);
        }
        let done = Rc::new(Once::default());
        *self.looking.borrow_mut() = Some(Rc::clone(&done));
        let (gauge, told) = (Rc::clone(self), Rc::clone(&done));
        spawn("disk", async move {
            let free = match pool::run(|| rustix::fs::statvfs(".")).await {
                Ok(Ok(found)) => Some(found.f_bavail.saturating_mul(found.f_frsize)),
                _ => None,
            };
            *gauge.last.borrow_mut() = free;
            gauge.looked.set(Some(Instant::now()));
            *gauge.looking.borrow_mut() = None;
            told.set(());
        });
        done
    }
}
