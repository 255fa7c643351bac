//! What followers see, and the linger.

use super::*;

#[test]
fn output_of_any_size_is_complete_and_the_exit_comes_last() {
    alone_with(
        "output::output_of_any_size_is_complete_and_the_exit_comes_last",
        |limits| limits.replay_bytes = 4 << 20,
        async |execs| {
            let exec = start(&execs, launch("e", "seq 1 300000; echo end >&2")).await;
            let (events, stdout, stderr) = follow(&execs, "e", 0).await;
            let expected: String = (1..=300_000).map(|number| format!("{number}\n")).collect();
            assert_eq!(events, [format!("exit at {}", expected.len() + 4)]);
            assert!(stdout == expected && stderr == "end\n");
            let report = exec.report().expect("it has ended");
            assert!(report.outcome.truncated);
            assert!(report.stdout[..] == expected.as_bytes()[..1 << 20]);
            assert_eq!(
                *report.stderr, b"end\n",
                "each stream has a budget of its own"
            );
        },
    );
}

#[test]
fn a_late_follower_gets_what_is_held_and_the_gap_before_it() {
    alone_with(
        "output::a_late_follower_gets_what_is_held_and_the_gap_before_it",
        |limits| limits.replay_bytes = 100,
        async |execs| {
            let exec = start(&execs, launch("e", "seq 1 1000")).await;
            exec.finished().await;
            execs.ack("e").expect("it has ended");
            let expected: String = (1..=1000).map(|number| format!("{number}\n")).collect();
            let tail = &expected[expected.len() - 100..];
            let gap = format!("gap 0..{}", expected.len() - 100);
            let exit = format!("exit at {}", expected.len());
            let (events, stdout, _) = follow(&execs, "e", 0).await;
            assert_eq!((events, stdout.as_str()), (vec![gap, exit.clone()], tail));
            let (events, stdout, _) = follow(&execs, "e", expected.len() as u64 - 3).await;
            assert_eq!((events, stdout.as_str()), (vec![exit.clone()], "00\n"));
            let (events, stdout, _) = follow(&execs, "e", 1 << 40).await;
            assert_eq!((events, stdout.as_str()), (vec![exit], ""));
        },
    );
}

#[test]
fn a_grandchild_holds_the_exec_only_for_the_linger() {
    alone_with(
        "output::a_grandchild_holds_the_exec_only_for_the_linger",
        |limits| limits.output_linger = SHORT,
        async |execs| {
            let exec = start(&execs, launch("e", "sleep 60 & echo started")).await;
            let outcome = exec.finished().await;
            assert!(outcome.writers_may_be_alive && outcome.wall >= SHORT);
            assert_eq!(*exec.report().expect("it waits").stdout, b"started\n");
            let procs = execs.procs().await.expect("proc is there");
            assert!(procs[0].child_exited && procs[0].pids.len() == 1);
            assert!(execs.kill("e").await.expect("it is registered"));
            assert!(!execs.kill("e").await.expect("it is registered"));
            let procs = execs.procs().await.expect("proc is there");
            assert!(procs[0].pids.is_empty());
        },
    );
}

#[test]
fn a_redirected_grandchild_does_not_hold_the_exec() {
    alone(
        "output::a_redirected_grandchild_does_not_hold_the_exec",
        async |execs| {
            let script = "sleep 60 >/dev/null 2>&1 & echo started";
            let outcome = start(&execs, launch("e", script)).await.finished().await;
            assert!(!outcome.writers_may_be_alive);
            assert!(execs.kill("e").await.expect("it is registered"));
        },
    );
}
