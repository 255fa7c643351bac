//! Writing to a standard input.

use std::future::ready;
use std::pin::pin;

use super::*;
use crate::exec::together::{First, first};

#[test]
fn stdin_is_written_in_turn_and_closed_once() {
    alone(
        "stdin::stdin_is_written_in_turn_and_closed_once",
        async |execs| {
            let gate = std::env::temp_dir().join(format!("ringd-gate-{}", std::process::id()));
            let script = format!("until [ -e {0} ]; do :; done; rm {0}; cat", gate.display());
            let mut cat = launch("e", &script);
            cat.stdin = true;
            let exec = start(&execs, cat).await;
            let big = vec![b'a'; 1 << 20];
            // The first write fills the pipe and waits; the second is always looked at first and must not overtake.
            let mut early = pin!(execs.write(&exec, &big, false));
            assert!(matches!(
                first(early.as_mut(), ready(())).await,
                First::Right(())
            ));
            std::fs::write(&gate, "").expect("the gate opens");
            let (late, early) = both(execs.write(&exec, b"end", true), early).await;
            assert!(early.is_ok() && late.is_ok());
            assert_eq!(
                kind(execs.write(&exec, b"x", false).await),
                Some(Kind::StdinClosed)
            );
            let outcome = exec.finished().await;
            assert_eq!(outcome.total, (1 << 20) + 3);
            let (_, stdout, _) = follow(&execs, "e", 1 << 20).await;
            assert_eq!(stdout, "end");
            assert_eq!(
                kind(execs.write(&exec, b"", false).await),
                Some(Kind::StdinClosed)
            );
        },
    );
}

#[test]
fn a_child_that_does_not_read_costs_the_time_limit_and_not_the_pipe() {
    alone_with(
        "stdin::a_child_that_does_not_read_costs_the_time_limit_and_not_the_pipe",
        |limits| limits.stdin_write_timeout = SHORT,
        async |execs| {
            let mut deaf = launch("e", "sleep 60");
            deaf.stdin = true;
            let exec = start(&execs, deaf).await;
            let big = vec![0; 1 << 20];
            let refused = execs.write(&exec, &[0; (1 << 20) + 1], false).await;
            assert_eq!(kind(refused), Some(Kind::StdinWriteTooLarge));
            for bytes in [&big[..], b"y"] {
                let late = execs.write(&exec, bytes, false).await;
                assert_eq!(kind(late), Some(Kind::StdinWriteTimeout));
            }
            assert_eq!(kind(execs.write(&exec, b"", true).await), None);
            execs.kill("e").await.expect("it is registered");
        },
    );
}

#[test]
fn a_write_ends_with_the_exec_that_it_waits_for() {
    alone(
        "stdin::a_write_ends_with_the_exec_that_it_waits_for",
        async |execs| {
            // A process that outlives the exec holds the other end and does not read.
            let mut deaf = launch("e", "exec 3<&0; sleep 60 >/dev/null 2>&1 & exit 0");
            deaf.stdin = true;
            let exec = start(&execs, deaf).await;
            let big = vec![0; 1 << 20];
            let (written, outcome) = both(execs.write(&exec, &big, false), exec.finished()).await;
            assert_eq!(kind(written), Some(Kind::StdinClosed));
            assert_eq!(outcome.exit.code, Some(0));
            assert!(execs.kill("e").await.expect("it is registered"));
        },
    );
}

#[test]
fn a_child_that_closed_its_stdin_is_told_of() {
    alone(
        "stdin::a_child_that_closed_its_stdin_is_told_of",
        async |execs| {
            let mut closed = launch("e", "exec </dev/null; echo ready; exec sleep 60");
            closed.stdin = true;
            let exec = start(&execs, closed).await;
            wait_for(&execs, "e", "ready").await;
            assert_eq!(
                kind(execs.write(&exec, b"x", false).await),
                Some(Kind::StdinClosed)
            );
            let plain = launch("plain", "true");
            start(&execs, plain).await;
            assert_eq!(kind(execs.stdin("plain")), Some(Kind::StdinNotRequested));
            assert_eq!(kind(execs.stdin("none")), Some(Kind::UnknownExec));
            execs.kill("e").await.expect("it is registered");
        },
    );
}
