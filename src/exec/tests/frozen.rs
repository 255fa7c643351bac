//! Execs on a machine that is frozen and restored: its clock has jumped ahead by hours.

use super::*;
use crate::ring::clock::jump::{jump, pass, seen};

const HOURS: Duration = Duration::from_secs(5 * 3600);
const SPAN: Duration = Duration::from_secs(10);

#[test]
fn a_jump_does_not_time_an_exec_out() {
    alone("frozen::a_jump_does_not_time_an_exec_out", async |execs| {
        let mut limited = launch("e", "echo ready; sleep 1000");
        limited.timeout = Some(SPAN);
        let exec = start(&execs, limited).await;
        wait_for(&execs, "e", "ready").await;
        jump(HOURS);
        pass(SPAN / 2).await;
        assert_eq!(exec.outcome(), None, "half of its time is left");
        pass(SPAN).await;
        let outcome = exec.finished().await;
        assert_eq!((outcome.timed_out, outcome.exit.signal), (true, Some(15)));
        assert!(outcome.wall >= SPAN && outcome.wall < HOURS, "{outcome:?}");
    });
}

#[test]
fn a_jump_does_not_shorten_the_grace() {
    alone_with(
        "frozen::a_jump_does_not_shorten_the_grace",
        |limits| limits.kill_grace = SPAN,
        async |execs| {
            let script = "trap 'echo asked' TERM; echo ready; while :; do sleep 0.01; done";
            let exec = start(&execs, launch("e", script)).await;
            wait_for(&execs, "e", "ready").await;
            let frozen = async {
                wait_for(&execs, "e", "asked").await;
                jump(HOURS);
                pass(SPAN / 2).await;
                assert_eq!(exec.outcome(), None, "half of the grace is left");
                pass(SPAN).await;
            };
            let (killed, ()) = both(execs.kill("e"), frozen).await;
            assert!(killed.expect("it is registered"));
            assert_eq!(exec.finished().await.exit.signal, Some(9));
        },
    );
}

#[test]
fn a_jump_does_not_shorten_the_linger() {
    alone_with(
        "frozen::a_jump_does_not_shorten_the_linger",
        |limits| limits.output_linger = SPAN,
        async |execs| {
            let script = "(read line; echo late) <&3 & echo $!";
            let mut lingering = launch("e", &format!("exec 3<&0; {script}"));
            lingering.stdin = true;
            let exec = start(&execs, lingering).await;
            wait_for(&execs, "e", "\n").await;
            // The leader is gone once its group has only the writer left.
            while execs.procs().await.expect("proc is there")[0].pids.len() != 1 {
                clock::sleep(Duration::from_millis(1)).await;
            }
            seen().await;
            jump(HOURS);
            seen().await;
            execs.write(&exec, b"go\n", false).await.expect("it reads");
            assert!(!exec.finished().await.writers_may_be_alive);
            let report = exec.report().expect("it waits");
            assert!(report.stdout.ends_with(b"late\n"));
        },
    );
}

#[test]
fn a_jump_collects_nothing_before_its_time() {
    alone_with(
        "frozen::a_jump_collects_nothing_before_its_time",
        |limits| limits.exec_ttl = SPAN,
        async |execs| {
            let exec = start(&execs, launch("e", ":")).await;
            exec.finished().await;
            execs.ack("e").expect("it has ended");
            seen().await;
            jump(HOURS);
            execs.sweep(clock::now());
            pass(SPAN / 2).await;
            execs.sweep(clock::now());
            assert!(execs.knows("e"), "half of its time is left");
            pass(SPAN).await;
            execs.sweep(clock::now());
            assert!(!execs.knows("e"));
        },
    );
}
