//! The blocking pool: a few helper threads for work that may block, started on demand, ended when idle.
//!
//! A job owns everything it needs and holds no state of ours. Its result comes back through an eventfd that the
//! driver watches, since wakers of this runtime must not leave their thread. A job whose caller is gone still runs
//! to its end; its result is dropped. Each [`Lane`] has threads of its own, so that what hangs in one leaves the
//! others alone; a lane whose threads all hang gets more of them, up to a bound.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::clock::within;
use super::notify::Once;
use super::{Fd, guard, spawn};
use crate::error::{Kind, Result};

/// Every lane.
pub const LANES: [Lane; 2] = [Lane::Files, Lane::Processes];

/// What a job works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// Files, which may lie on a mount that hangs.
    Files,
    /// The process table, which never hangs: kills and time limits depend on it.
    Processes,
}

impl Lane {
    /// `files` or `processes`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Files => "files",
            Self::Processes => "processes",
        }
    }
}

/// How busy a lane is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Jobs that wait for a thread.
    pub waiting: usize,
    /// Threads that work.
    pub busy: usize,
    /// Threads that wait for a job.
    pub idle: usize,
    /// Jobs taken since the start.
    pub jobs: u64,
    /// Jobs refused since the start: too many were waiting, or no thread could be had.
    pub refused: u64,
}

/// How busy a lane of this thread is.
pub fn load(lane: Lane) -> Load {
    let Some(pool) = POOLS.with_borrow(|pools| pools[lane as usize].clone()) else {
        return Load::default();
    };
    let state = held(&pool.shared.state);
    // Who was woken for a job is counted idle until it has taken it.
    Load {
        waiting: state.jobs.len(),
        busy: state.threads - state.idle,
        idle: state.idle,
        jobs: pool.last.get() - pool.refused.get(),
        refused: pool.refused.get(),
    }
}

/// Threads of a lane while its jobs end in time.
const THREADS: usize = 4;
/// Threads of a lane when they hang.
const MOST_THREADS: usize = 64;
/// How long a job may wait for a thread before the lane gets one more.
const HANGING: Duration = Duration::from_millis(500);
/// Jobs that may wait for a thread.
const WAITING: usize = 4096;
/// How long a thread waits for the next job before it ends.
const IDLE: Duration = Duration::from_secs(10);
/// Stack of a helper thread, in bytes.
const STACK: usize = 512 * 1024;

type Job = Box<dyn FnOnce() + Send>;

struct Shared {
    state: Mutex<State>,
    work: Condvar,
    bell: OwnedFd,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    done: Vec<u64>,
    threads: usize,
    idle: usize,
}

struct Pool {
    shared: Arc<Shared>,
    waiting: RefCell<HashMap<u64, Rc<Once<()>>>>,
    last: Cell<u64>,
    refused: Cell<u64>,
}

thread_local! {
    static POOLS: RefCell<[Option<Rc<Pool>>; 2]> = const { RefCell::new([None, None]) };
}

/// Runs `job` on a helper thread of [`Lane::Files`] and waits for its result.
///
/// # Errors
/// As [`run_on`].
pub async fn run<T: Send + 'static>(job: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    run_on(Lane::Files, job).await
}

/// Runs `job` on a helper thread of `lane` and waits for its result.
///
/// # Errors
/// `Busy` when too many jobs wait, `Internal` when the job panics or no thread can be had.
pub async fn run_on<T: Send + 'static>(
    lane: Lane,
    job: impl FnOnce() -> T + Send + 'static,
) -> Result<T> {
    let pool = pool(lane)?;
    let slot = Arc::new(Mutex::new(None));
    let filled = Arc::clone(&slot);
    let id = pool.enqueue(move |id, shared| {
        let outcome = catch_unwind(AssertUnwindSafe(job));
        *held(&filled) = Some(outcome);
        drop(filled);
        held(&shared.state).done.push(id);
        // The counter cannot overflow: the reader takes all of it at once.
        let _ = rustix::io::write(&shared.bell, &1u64.to_ne_bytes());
    })?;
    let done = Rc::new(Once::default());
    pool.waiting.borrow_mut().insert(id, Rc::clone(&done));
    let forget = Forget { pool: &pool, id };
    while within(HANGING, done.wait()).await.is_none() {
        pool.relieve();
    }
    drop(forget);
    let outcome = held(&slot).take();
    match outcome {
        Some(Ok(value)) => Ok(value),
        Some(Err(payload)) => {
            let panic = guard::message(payload.as_ref());
            tracing::error!(panic, "a blocking job panicked");
            Err(Kind::Internal.told("internal error"))
        }
        None => Err(Kind::Internal.told("internal error")),
    }
}

/// Runs `job` on a helper thread of [`Lane::Files`] and forgets about it.
///
/// On a thread that has no runtime, which may wait, and when no helper can be had, it runs here and now.
pub fn detach(job: impl FnOnce() + Send + 'static) {
    if super::running().is_none() {
        return job();
    }
    let job = Arc::new(Mutex::new(Some(job)));
    let lent = Arc::clone(&job);
    let run = move || {
        if let Some(job) = held(&lent).take() {
            // Nobody waits for it, so nobody needs to hear of its panic.
            let _ = catch_unwind(AssertUnwindSafe(job));
        }
    };
    let queued = pool(Lane::Files).and_then(|pool| pool.enqueue(move |_, _| run()));
    if queued.is_err()
        && let Some(job) = held(&job).take()
    {
        job();
    }
}

struct Forget<'a> {
    pool: &'a Pool,
    id: u64,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.pool.waiting.borrow_mut().remove(&self.id);
    }
}

impl Pool {
    fn enqueue(&self, job: impl FnOnce(u64, &Shared) + Send + 'static) -> Result<u64> {
        let id = self.last.get() + 1;
        self.last.set(id);
        let shared = Arc::clone(&self.shared);
        let mut state = held(&self.shared.state);
        if state.jobs.len() >= WAITING {
            self.refused.set(self.refused.get() + 1);
            return Err(Kind::Busy.told("too many blocking operations are waiting"));
        }
        state.jobs.push_back(Box::new(move || job(id, &shared)));
        if state.idle >= state.jobs.len() || state.threads >= THREADS {
            drop(state);
            self.shared.work.notify_one();
            return Ok(id);
        }
        if let Err(error) = self.add_thread(&mut state)
            && state.threads == 0
        {
            state.jobs.pop_back();
            self.refused.set(self.refused.get() + 1);
            return Err(Kind::Internal
                .told("no helper thread could be started")
                .because(error));
        }
        Ok(id)
    }

    /// Adds a thread when jobs wait although every thread had time to take one.
    fn relieve(&self) {
        let mut state = held(&self.shared.state);
        if !state.jobs.is_empty() && state.idle == 0 && state.threads < MOST_THREADS {
            // When there is no thread to be had, the jobs wait for those that hang.
            let _ = self.add_thread(&mut state);
        }
    }

    fn add_thread(&self, state: &mut State) -> std::io::Result<()> {
        let shared = Arc::clone(&self.shared);
        std::thread::Builder::new()
            .name("ringd-helper".into())
            .stack_size(STACK)
            .spawn(move || help(&shared))?;
        state.threads += 1;
        Ok(())
    }

    /// Hands results to those who wait, each time the bell rings.
    async fn answer(self: Rc<Self>, bell: Fd) {
        let mut count = [0u8; 8];
        while bell.readable().await.is_ok() {
            let _ = rustix::io::read(&bell, &mut count);
            let done = std::mem::take(&mut held(&self.shared.state).done);
            for id in done {
                let waiter = self.waiting.borrow_mut().remove(&id);
                if let Some(waiter) = waiter {
                    waiter.set(());
                }
            }
        }
    }
}

fn help(shared: &Shared) {
    let mut state = held(&shared.state);
    loop {
        if let Some(job) = state.jobs.pop_front() {
            drop(state);
            job();
            state = held(&shared.state);
            continue;
        }
        state.idle += 1;
        let (woken, timeout) = shared
            .work
            .wait_timeout(state, IDLE)
            .unwrap_or_else(PoisonError::into_inner);
        state = woken;
        state.idle -= 1;
        if timeout.timed_out() && state.jobs.is_empty() {
            state.threads -= 1;
            return;
        }
    }
}

/// Makes the lanes of this thread ready.
///
/// # Errors
/// `Internal` when no descriptor is left.
pub(super) fn open() -> Result<()> {
    pool(Lane::Files)?;
    pool(Lane::Processes).map(drop)
}

fn pool(lane: Lane) -> Result<Rc<Pool>> {
    let known = POOLS.with_borrow(|pools| pools[lane as usize].clone());
    if let Some(pool) = known {
        return Ok(pool);
    }
    let failed = |error| {
        Kind::Internal
            .told("the blocking pool could not be set up")
            .because(error)
    };
    let flags = rustix::event::EventfdFlags::CLOEXEC | rustix::event::EventfdFlags::NONBLOCK;
    let bell = rustix::event::eventfd(0, flags).map_err(|error| failed(error.into()))?;
    let heard = bell.try_clone().and_then(Fd::new).map_err(failed)?;
    let pool = Rc::new(Pool {
        shared: Arc::new(Shared {
            state: Mutex::default(),
            work: Condvar::new(),
            bell,
        }),
        waiting: RefCell::default(),
        last: Cell::new(0),
        refused: Cell::new(0),
    });
    spawn("pool", Rc::clone(&pool).answer(heard));
    POOLS.with_borrow_mut(|pools| pools[lane as usize] = Some(Rc::clone(&pool)));
    Ok(pool)
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic inside a job is caught before the lock is taken again, so the state is whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
