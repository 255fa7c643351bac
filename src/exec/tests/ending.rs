//! Time limits, kills and reaping.

use super::*;

#[test]
fn a_timeout_ends_as_soon_as_nobody_is_left() {
    alone(
        "ending::a_timeout_ends_as_soon_as_nobody_is_left",
        async |execs| {
            let mut plain = launch("plain", "echo kept; sleep 60 & wait");
            plain.timeout = Some(SHORT);
            let exec = start(&execs, plain).await;
            let outcome = exec.finished().await;
            assert!(outcome.timed_out && !outcome.writers_may_be_alive);
            assert_eq!(outcome.exit.signal, Some(15));
            assert_eq!(*exec.report().expect("it waits").stdout, b"kept\n");
            let mut tiny = launch("tiny", "sleep 60");
            tiny.timeout = Some(Duration::ZERO);
            let outcome = start(&execs, tiny).await.finished().await;
            assert_eq!((outcome.timed_out, outcome.exit.signal), (true, Some(15)));
        },
    );
}

#[test]
fn output_is_read_during_the_grace() {
    alone("ending::output_is_read_during_the_grace", async |execs| {
        let script = "exec 2>/dev/null; trap 'head -c 3000000 /dev/zero; exit 0' TERM; while :; do sleep 60; done";
        let mut loud = launch("e", script);
        loud.timeout = Some(SHORT);
        let outcome = start(&execs, loud).await.finished().await;
        assert_eq!((outcome.timed_out, outcome.exit.code), (true, Some(0)));
        assert_eq!(outcome.total, 3_000_000);
    });
}

#[test]
fn who_ignores_the_request_is_killed_after_the_grace() {
    alone_with(
        "ending::who_ignores_the_request_is_killed_after_the_grace",
        |limits| limits.kill_grace = SHORT,
        async |execs| {
            let exec = start(&execs, launch("e", "trap '' TERM; echo ready; sleep 60")).await;
            wait_for(&execs, "e", "ready").await;
            assert!(execs.kill("e").await.expect("it is registered"));
            let report = exec
                .report()
                .expect("a poll after the kill finds the result");
            assert_eq!(report.outcome.exit.signal, Some(9));
            assert!(!report.outcome.timed_out);
        },
    );
}

#[test]
fn reap_ends_the_rest_of_the_group_before_the_linger() {
    alone(
        "ending::reap_ends_the_rest_of_the_group_before_the_linger",
        async |execs| {
            let mut reaped = launch("e", "sleep 60 & echo started");
            reaped.reap_group_on_exit = true;
            let outcome = start(&execs, reaped).await.finished().await;
            assert!(!outcome.writers_may_be_alive && !outcome.timed_out);
            assert_eq!(outcome.exit.code, Some(0));
            assert!(!execs.kill("e").await.expect("it is registered"));
        },
    );
}

#[test]
fn a_kill_reaches_daemons_that_left_the_session() {
    alone(
        "ending::a_kill_reaches_daemons_that_left_the_session",
        async |execs| {
            if !rustix::process::geteuid().is_root() {
                return;
            }
            let daemon =
                "(setsid sh -c 'sleep 61 & echo $$ >&3; exec sleep 60' 3>&1 >/dev/null 2>&1 &)";
            let bystander = start(&execs, launch("other", &format!("{daemon}; sleep 62"))).await;
            let exec = start(&execs, launch("e", &format!("{daemon}; exit 0"))).await;
            wait_for(&execs, "e", "\n").await;
            wait_for(&execs, "other", "\n").await;
            assert!(execs.kill("e").await.expect("it is registered"));
            assert!(exec.outcome().is_some(), "nobody holds its pipes");
            assert!(!execs.kill("e").await.expect("it is registered"));
            assert!(bystander.outcome().is_none());
            assert!(execs.kill("other").await.expect("it is registered"));
            let me = i32::try_from(std::process::id()).expect("pids are small");
            let left = scan::processes();
            assert!(
                !left
                    .iter()
                    .any(|process| process.parent == me && process.live)
            );
        },
    );
}

#[test]
fn reap_leaves_a_daemon_that_left_the_group() {
    alone(
        "ending::reap_leaves_a_daemon_that_left_the_group",
        async |execs| {
            let script = "(setsid sh -c 'echo up; exec sleep 60' 2>/dev/null &) ; sleep 60 &";
            let mut reaped = launch("e", &format!("{script} read line"));
            reaped.reap_group_on_exit = true;
            reaped.stdin = true;
            let exec = start(&execs, reaped).await;
            wait_for(&execs, "e", "up").await;
            execs.write(&exec, b"go\n", false).await.expect("it reads");
            // The daemon still holds the pipe, so the exec lingers until somebody ends the daemon too.
            while !execs.procs().await.expect("proc is there")[0]
                .pids
                .is_empty()
            {
                clock::sleep(Duration::from_millis(1)).await;
            }
            assert!(exec.outcome().is_none());
            assert!(execs.kill("e").await.expect("it is registered"));
            assert!(!exec.finished().await.writers_may_be_alive);
        },
    );
}

#[test]
fn a_kill_goes_on_when_nobody_waits_for_it() {
    alone_with(
        "ending::a_kill_goes_on_when_nobody_waits_for_it",
        |limits| limits.kill_grace = SHORT,
        async |execs| {
            let exec = start(&execs, launch("e", "trap '' TERM; echo ready; sleep 60")).await;
            wait_for(&execs, "e", "ready").await;
            let dropped = clock::within(Duration::ZERO, execs.kill("e")).await;
            assert!(dropped.is_none());
            assert_eq!(exec.finished().await.exit.signal, Some(9));
        },
    );
}
