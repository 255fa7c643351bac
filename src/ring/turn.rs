//! Giving way: a task that finds its descriptors always ready lets the others run.
//!
//! A task of this runtime that wakes itself starves everybody else, and under epoll a wait for a ready descriptor
//! answers at once. So giving way is a real event: a counter is raised, and the driver tells of it on its next round.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use rustix::event::{EventfdFlags, eventfd};

use super::notify::Event;
use super::{Fd, spawn};

pub(super) struct Bell {
    fd: Fd,
    rang: Event,
    is_rung: Cell<bool>,
}

thread_local! {
    static BELL: RefCell<Option<Rc<Bell>>> = const { RefCell::new(None) };
}

/// Lets every other task that is ready run, and the driver look for what has happened.
///
/// Without a descriptor to spare it returns at once.
pub async fn turn() {
    let Some(bell) = bell() else { return };
    if !bell.is_rung.replace(true) {
        let _ = rustix::io::write(&bell.fd, &1u64.to_ne_bytes());
    }
    bell.rang.next().await;
}

/// The bell of this thread, made at the first call.
pub(super) fn bell() -> Option<Rc<Bell>> {
    if let Some(bell) = BELL.with_borrow(Clone::clone) {
        return Some(bell);
    }
    let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).ok()?;
    let fd = Fd::new(fd).ok()?;
    let bell = Rc::new(Bell {
        fd,
        rang: Event::default(),
        is_rung: Cell::new(false),
    });
    let rung = Rc::clone(&bell);
    spawn("turn", async move {
        let mut count = [0u8; 8];
        while rung.fd.readable().await.is_ok() {
            let _ = rustix::io::read(&rung.fd, &mut count);
            rung.is_rung.set(false);
            rung.rang.happen();
        }
    });
    BELL.set(Some(Rc::clone(&bell)));
    Some(bell)
}
