//! The life of one exec after its start: both pipes read to their end, the child awaited, limits of time enforced.
//!
//! ```text
//! started ──> reading ──── pipes at their end and child reaped ────────────────> finished
//!               │  time limit: SIGTERM, grace, SIGKILL (still reading)              ^
//!               │  child reaped, reap asked: the same for what is left of the group │
//!               └─ child reaped, a pipe still open: linger, then stop reading ──────┘
//! ```

use std::future::Future;
use std::pin::pin;
use std::rc::Rc;

use super::Limits;
use super::drain::{Pipes, drain};
use super::entry::{End, Exec};
use super::kill::Reach;
use super::together::both;
use crate::ring::child::{Child, Exit};
use crate::ring::clock::{self, Deadline};
use crate::ring::guard::guarded;
use crate::ring::notify::Once;

/// A child that runs, and the ends of the pipes that it writes to: standard output and standard error.
pub(super) struct Started {
    pub(super) child: Child,
    pub(super) pipes: Pipes,
    pub(super) deadline: Deadline,
}

/// Watches `exec` to its end and publishes how it ended.
///
/// Runs as a task of its own and is never dropped before its end.
pub(super) async fn supervise(exec: Rc<Exec>, started: Started, limits: Rc<Limits>) {
    let Started {
        child,
        pipes,
        deadline,
    } = started;
    let life = Box::pin(watch(&exec, (&child, deadline), pipes, &limits));
    if !conclude(&exec, life).await {
        // Whoever ends this exec later must know when its group number is no longer its own.
        child.exited().await;
        exec.tree.reaped();
    }
}

/// Publishes the end of `life`; when that panics, an end that says nothing, and false.
async fn conclude(exec: &Exec, life: impl Future<Output = End>) -> bool {
    let ended = guarded(life).await;
    let is_known = ended.is_ok();
    let end = ended.unwrap_or_else(|panic| {
        tracing::error!(exec = exec.serial, panic, "a supervisor panicked");
        End {
            exit: UNKNOWN,
            timed_out: false,
            writers_may_be_alive: true,
        }
    });
    exec.finish(end);
    is_known
}

async fn watch(
    exec: &Rc<Exec>,
    (child, deadline): (&Child, Deadline),
    pipes: Pipes,
    limits: &Limits,
) -> End {
    let over = Once::default();
    // Pinned here: what takes a future as an argument has room for it twice.
    let watch = pin!(async {
        let ended = end_of(exec, child, deadline, limits).await;
        over.set(());
        ended
    });
    let stop = pin!(async {
        over.wait().await;
        clock::sleep(limits.output_linger).await;
    });
    let drain = pin!(drain(exec, pipes, stop));
    let ((exit, timed_out), writers_may_be_alive) = both(watch, drain).await;
    End {
        exit,
        timed_out,
        writers_may_be_alive,
    }
}

/// Waits for the child, ending it at the deadline; true with the exit when the deadline did.
async fn end_of(exec: &Exec, child: &Child, deadline: Deadline, limits: &Limits) -> (Exit, bool) {
    let in_time = clock::until(deadline, child.exited()).await;
    let timed_out = in_time.is_none();
    if timed_out {
        end_tree(exec, Reach::All, limits).await;
    }
    let exit = child.exited().await;
    exec.tree.reaped();
    if let Some(terminal) = &exec.terminal {
        terminal.leave();
    }
    if exec.reap && !timed_out {
        end_tree(exec, Reach::Group, limits).await;
    }
    (exit, timed_out)
}

async fn end_tree(exec: &Exec, reach: Reach, limits: &Limits) {
    if let Err(error) = exec.tree.end(reach, limits.kill_grace).await {
        tracing::warn!(exec = exec.serial, %error, "the process table could not be walked");
    }
}

/// The exit of a child that nobody watched to its end.
const UNKNOWN: Exit = Exit {
    code: None,
    signal: None,
    usage: None,
};

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};
    use std::time::Duration;

    use super::*;
    use crate::exec::budget::{Budget, Share};
    use crate::exec::counters::Counters;
    use crate::exec::entry::{Birth, Phase};
    use crate::exec::kill::Tree;
    use crate::exec::spill::{Place, Spill};
    use crate::exec::stdin::Stdin;

    fn exec(counters: &Rc<Counters>) -> Exec {
        let limits = Limits {
            max_output_bytes: 10,
            output_linger: Duration::ZERO,
            exec_ttl: Duration::ZERO,
            replay_bytes: 10,
            kill_grace: Duration::ZERO,
            stdin_write_timeout: Duration::ZERO,
            max_stdin_write_bytes: 0,
            oom_score: None,
            descriptors: None,
            spill_bytes: 0,
            max_spill_bytes: 0,
            spill_dir: "/tmp".into(),
            disk_reserve: 0,
            max_execs: 1,
            max_output_memory: 0,
        };
        let spills = Rc::new(Place {
            dir: limits.spill_dir.clone(),
            reserve: 0,
            budget: Budget::new(0),
        });
        let birth = Birth {
            id: "e".into(),
            serial: 1,
            started_at: 0,
            reap: false,
            tree: Tree::new(1, None),
            stdin: Stdin::new(None),
            terminal: None,
            began: clock::now(),
            counters: Rc::clone(counters),
            spill: Spill::new(&spills),
            memory: Share::new(&Budget::new(0)),
        };
        Exec::new(birth, &limits)
    }

    #[test]
    fn a_supervisor_that_panics_publishes_an_end() {
        let counters = Rc::default();
        let exec = exec(&counters);
        assert_eq!((exec.phase(), counters.running()), (Phase::Running, 1));
        let life = async { panic!("as a defect would") };
        let conclusion = pin!(conclude(&exec, life));
        let polled = conclusion.poll(&mut Context::from_waker(Waker::noop()));
        assert_eq!(polled, Poll::Ready(false));
        let outcome = exec.outcome().expect("it was published");
        assert_eq!(outcome.exit, UNKNOWN);
        assert!(outcome.writers_may_be_alive && !outcome.timed_out);
        assert_eq!((exec.phase(), counters.running()), (Phase::Exited, 0));
    }
}
