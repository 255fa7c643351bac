//! Time: sleeping, bounding a wait, and deadlines that count running time only.
//!
//! All waits of a thread share one timerfd. The runtime's own timers are served only when it has nothing else to do,
//! so under load they would never fire; a descriptor is told of with every other event. While anybody waits it fires at
//! least once per second, so that a machine that was frozen is noticed (see [`running`]).

#[cfg(test)]
pub(crate) mod jump;
mod running;
#[cfg(test)]
mod tests;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};

pub use running::Moment;
use running::{RunningTime, TICK};

use super::{Fd, spawn};

/// The running time of this thread: it stands still while the machine does.
pub fn now() -> Moment {
    let mut time = TIME.get();
    let skipped = time.look(monotonic());
    TIME.set(time);
    if let Some(skipped) = skipped {
        let seconds = skipped.as_secs_f64();
        tracing::warn!(
            seconds,
            "the machine stood still; every deadline moves by that"
        );
    }
    time.now()
}

/// A point in running time, or never.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline(Option<Moment>);

impl Deadline {
    /// A deadline that never comes.
    pub const NEVER: Self = Self(None);

    /// The deadline `span` from now; a span too long to represent never comes.
    pub fn after(span: Duration) -> Self {
        if span > LONGEST {
            return Self::NEVER;
        }
        Self(Some(now() + span))
    }

    /// True once the deadline has passed.
    pub fn has_passed(self) -> bool {
        self.0.is_some_and(|at| now() >= at)
    }

    /// Running time left, zero when it has passed, `None` when it never comes.
    pub fn left(self) -> Option<Duration> {
        self.0.map(|at| at.since(now()))
    }
}

/// Waits for `span`.
pub async fn sleep(span: Duration) {
    match Deadline::after(span).0 {
        Some(at) => Alarm::at(at).await,
        None => std::future::pending().await,
    }
}

/// The outcome of `future`, or `None` when `span` passes first; `future` is then dropped.
///
/// The future is asked first: what is ready counts, however short the span, and costs no look at the clock.
pub async fn within<F: Future>(span: Duration, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut alarm = None;
    std::future::poll_fn(|context| {
        if let Poll::Ready(value) = future.as_mut().poll(context) {
            return Poll::Ready(Some(value));
        }
        match alarm.get_or_insert_with(|| Deadline::after(span).0.map(Alarm::at)) {
            Some(alarm) => Pin::new(alarm).poll(context).map(|()| None),
            None => Poll::Pending,
        }
    })
    .await
}

/// The outcome of `future`, or `None` when `deadline` passes first.
pub async fn until<F: Future>(deadline: Deadline, future: F) -> Option<F::Output> {
    let Some(at) = deadline.0 else {
        return Some(future.await);
    };
    let mut future = pin!(future);
    let mut alarm = Alarm::at(at);
    std::future::poll_fn(|context| {
        if let Poll::Ready(value) = future.as_mut().poll(context) {
            return Poll::Ready(Some(value));
        }
        Pin::new(&mut alarm).poll(context).map(|()| None)
    })
    .await
}

/// One wait for a point in time; dropped, it leaves nothing behind.
struct Alarm {
    at: Moment,
    ticket: Option<u64>,
}

impl Alarm {
    fn at(at: Moment) -> Self {
        Self { at, ticket: None }
    }
}

impl Future for Alarm {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let Some(clock) = clock() else {
            // Without a descriptor for the clock a wait ends early rather than never.
            return Poll::Ready(());
        };
        let ticket = match self.ticket {
            Some(ticket) => ticket,
            None if self.at <= now() => return Poll::Ready(()),
            None => clock.enter(self.at, context.waker()),
        };
        self.ticket = Some(ticket);
        match clock.waiting.borrow_mut().get_mut(&(self.at, ticket)) {
            Some(waker) => {
                waker.clone_from(context.waker());
                Poll::Pending
            }
            None => Poll::Ready(()),
        }
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket
            && let Some(clock) = CLOCK.with_borrow(Clone::clone)
        {
            clock.waiting.borrow_mut().remove(&(self.at, ticket));
        }
    }
}

/// The alarms of a thread, and the timer that is set for the first of them, or earlier: for the planned look.
struct Clock {
    timer: Fd,
    waiting: RefCell<BTreeMap<(Moment, u64), Waker>>,
    tickets: Cell<u64>,
}

thread_local! {
    static TIME: Cell<RunningTime> = const { Cell::new(RunningTime::new()) };
    static CLOCK: RefCell<Option<Rc<Clock>>> = const { RefCell::new(None) };
}

/// The clock of this thread, made at the first call.
fn clock() -> Option<Rc<Clock>> {
    if let Some(clock) = CLOCK.with_borrow(Clone::clone) {
        return Some(clock);
    }
    make().ok()
}

/// Makes the clock of this thread.
///
/// # Errors
/// No descriptor is left.
pub(super) fn open() -> io::Result<()> {
    make().map(drop)
}

fn make() -> io::Result<Rc<Clock>> {
    let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
    let clock = Rc::new(Clock {
        timer: Fd::new(timerfd_create(TimerfdClockId::Monotonic, flags)?)?,
        waiting: RefCell::default(),
        tickets: Cell::new(0),
    });
    spawn("clock", Rc::clone(&clock).run());
    CLOCK.set(Some(Rc::clone(&clock)));
    Ok(clock)
}

impl Clock {
    fn enter(&self, at: Moment, waker: &Waker) -> u64 {
        let ticket = self.tickets.get();
        self.tickets.set(ticket + 1);
        self.waiting
            .borrow_mut()
            .insert((at, ticket), waker.clone());
        // A timer that is set too early costs one look; one that is set too late would be an alarm missed.
        if TIME.get().planned().is_none_or(|planned| at < planned) {
            self.wind(at);
        }
        ticket
    }

    /// Sets the timer for `at`, or for a tick from now if that is earlier.
    fn wind(&self, at: Moment) {
        let left = at.since(now()).min(TICK);
        let mut time = TIME.get();
        time.plan(Some(time.now() + left));
        TIME.set(time);
        self.set(left);
    }

    fn set(&self, left: Duration) {
        // Zero would stop the timer.
        let left = left.max(Duration::from_nanos(1));
        let spec = Itimerspec {
            it_interval: Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            },
            it_value: Timespec {
                tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: left.subsec_nanos().into(),
            },
        };
        // The values are in range, so this cannot fail on a timerfd.
        let _ = timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &spec);
    }

    async fn run(self: Rc<Self>) {
        while self.timer.readable().await.is_ok() {
            let mut count = [0u8; 8];
            let _ = rustix::io::read(&self.timer, &mut count);
            self.ring();
        }
    }

    /// Wakes every alarm that is due, and sets the timer for the next.
    fn ring(&self) {
        let now = now();
        let mut time = TIME.get();
        time.plan(None);
        TIME.set(time);
        let due = {
            let mut waiting = self.waiting.borrow_mut();
            let later = waiting.split_off(&(now, u64::MAX));
            std::mem::replace(&mut *waiting, later)
        };
        for waker in due.into_values() {
            waker.wake();
        }
        let next = self.waiting.borrow().keys().next().map(|(at, _)| *at);
        if let Some(at) = next {
            self.wind(at);
        }
    }
}

/// CLOCK_MONOTONIC.
fn monotonic() -> Duration {
    let clock = Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap_or_default();
    #[cfg(test)]
    let clock = clock + jump::jumped();
    clock
}

/// A year: what is further away never comes.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);
