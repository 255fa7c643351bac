//! Starting, the result, acknowledging and collecting.

use std::future::ready;

use super::*;
use crate::exec::together::{First, first};

#[test]
fn a_result_tells_code_signal_and_both_streams() {
    alone(
        "life::a_result_tells_code_signal_and_both_streams",
        async |execs| {
            let report = run(&execs, "echo out; printf '\\377a\\0' >&2; exit 7").await;
            assert_eq!(report.outcome.exit.code, Some(7));
            assert_eq!(
                (&report.stdout[..], &report.stderr[..]),
                (&b"out\n"[..], &b"\xffa\0"[..])
            );
            assert!(!report.outcome.truncated && !report.outcome.writers_may_be_alive);
            let report = run(&execs, "kill -9 $$").await;
            assert_eq!(
                (report.outcome.exit.code, report.outcome.exit.signal),
                (None, Some(9))
            );
        },
    );
}

#[test]
fn two_starts_of_one_id_spawn_once() {
    alone("life::two_starts_of_one_id_spawn_once", async |execs| {
        let mut first = launch("e", "sleep 1000");
        // Looking a name up makes both wait between the first look at the id and the spawn.
        first.user = Some(Account::Name("root".into()));
        let mut second = first.clone();
        second.command = vec!["sleep 1001".into()];
        let around = Surroundings::default();
        let (one, two) = both(execs.start(first, &around), execs.start(second, &around)).await;
        assert!(one.is_ok() && two.is_ok());
        assert_eq!(execs.activity().execs, 1);
        assert_eq!(children(), 1);
        assert!(execs.kill("e").await.expect("it is registered"));
    });
}

#[test]
fn a_start_that_waited_for_one_that_failed_tries_itself() {
    alone(
        "life::a_start_that_waited_for_one_that_failed_tries_itself",
        async |execs| {
            let mut failing = launch("e", "/no/such/program");
            failing.shell = Shell::None;
            failing.user = Some(Account::Name("root".into()));
            let around = Surroundings::default();
            let good = execs.start(launch("e", "echo good"), &around);
            let (bad, good) = both(execs.start(failing, &around), good).await;
            assert_eq!((kind(bad), kind(good)), (Some(Kind::SpawnFailed), None));
            let exec = execs.look("e").expect("it is registered");
            exec.finished().await;
            assert_eq!(*exec.report().expect("it waits").stdout, b"good\n");
        },
    );
}

#[test]
fn a_start_goes_on_when_nobody_waits_for_it() {
    alone(
        "life::a_start_goes_on_when_nobody_waits_for_it",
        async |execs| {
            let mut named = launch("e", "echo one");
            named.user = Some(Account::Name("root".into()));
            let around = Surroundings::default();
            // Asked once, then dropped.
            let dropped = first(execs.start(named, &around), ready(())).await;
            assert!(matches!(dropped, First::Right(())) && !execs.knows("e"));
            let again = execs.start(launch("e", "echo two"), &around).await;
            assert!(again.is_ok());
            let exec = execs.look("e").expect("it is registered");
            exec.finished().await;
            assert_eq!(*exec.report().expect("it waits").stdout, b"one\n");
            assert!(!execs.activity().busy);
        },
    );
}

#[test]
fn a_failed_spawn_registers_nothing_and_keeps_nothing() {
    alone(
        "life::a_failed_spawn_registers_nothing_and_keeps_nothing",
        async |execs| {
            // What is opened once for all is open then.
            run(&execs, ":").await;
            let before = descriptors();
            for (program, told) in [
                ("/no/such/program", "No such file or directory (os error 2)"),
                ("no-such-program", "No such file or directory (os error 2)"),
                ("", "No such file or directory (os error 2)"),
                ("/etc/passwd", "Permission denied (os error 13)"),
            ] {
                let mut launch = launch("e", program);
                launch.shell = Shell::None;
                launch.stdin = true;
                let error = execs.start(launch, &Surroundings::default()).await;
                let error = error.expect_err("there is no such program");
                assert_eq!(
                    (error.kind(), error.sentence()),
                    (Kind::SpawnFailed, told),
                    "{program}"
                );
            }
            let mut elsewhere = launch("e", "true");
            elsewhere.cwd = Some("/no/such/directory".into());
            let refused = execs.start(elsewhere, &Surroundings::default()).await;
            assert_eq!(kind(refused), Some(Kind::SpawnFailed));
            assert!(!execs.knows("e"));
            settle(before).await;
            assert_eq!(children(), 0);
        },
    );
}

#[test]
fn a_thousand_execs_leave_no_zombie_and_no_descriptor() {
    alone(
        "life::a_thousand_execs_leave_no_zombie_and_no_descriptor",
        async |execs| {
            // What is opened once for all is open then.
            run(&execs, ":").await;
            let before = descriptors();
            for round in 0..20 {
                let mut running = Vec::new();
                for number in 0..50 {
                    running.push(start(&execs, launch(&format!("{round}.{number}"), ":")).await);
                }
                for exec in running {
                    assert_eq!(exec.finished().await.exit.code, Some(0));
                    execs.ack(&exec.id).expect("it has ended");
                }
            }
            assert!(!execs.activity().busy);
            execs.sweep(clock::now() + LONG);
            assert_eq!(
                execs.activity(),
                Activity {
                    busy: false,
                    execs: 0
                }
            );
            assert_eq!(children(), 0);
            settle(before).await;
        },
    );
}

#[test]
fn an_acked_exec_is_collected_after_its_time_and_its_id_is_free() {
    alone(
        "life::an_acked_exec_is_collected_after_its_time_and_its_id_is_free",
        async |execs| {
            let mut sleeper = launch("e", "cat; echo one");
            sleeper.stdin = true;
            let exec = start(&execs, sleeper).await;
            assert_eq!(kind(execs.ack("e")), Some(Kind::StillRunning));
            execs.write(&exec, b"", true).await.expect("it is open");
            exec.finished().await;
            assert_eq!(exec.phase(), Phase::Exited);
            execs.sweep(clock::now() + 2 * LONG);
            assert_eq!(*execs.ack("e").expect("it has ended").stdout, b"one\n");
            assert_eq!(kind(execs.ack("e")), Some(Kind::AlreadyAcked));
            assert_eq!((exec.phase(), exec.report()), (Phase::Acked, None));
            execs.sweep(clock::now() + (LONG - Duration::from_secs(5)));
            assert!(execs.knows("e"));
            execs.sweep(clock::now() + LONG);
            assert_eq!(kind(execs.look("e")), Some(Kind::UnknownExec));
            let again = start(&execs, launch("e", "echo two")).await;
            again.finished().await;
            assert_eq!(*again.report().expect("it waits").stdout, b"two\n");
        },
    );
}

#[test]
fn a_child_gets_its_credentials_and_nothing_of_ours() {
    alone(
        "life::a_child_gets_its_credentials_and_nothing_of_ours",
        async |execs| {
            let script = "env -u PWD -u _ -u SHLVL; ls /proc/self/fd | wc -l; id -u; id -g; id -G";
            if !rustix::process::geteuid().is_root() {
                return;
            }
            let mut other = launch("e", script);
            other.user = Some(Account::Id(1234));
            other.group = Some(Account::Id(5678));
            let exec = start(&execs, other).await;
            exec.finished().await;
            let report = exec.report().expect("it waits");
            // `ls` has its three, and the directory that it reads.
            let expected = "PATH=/usr/bin:/bin\n4\n1234\n5678\n5678\n";
            assert_eq!(String::from_utf8_lossy(&report.stdout), expected);
            assert!(report.stderr.is_empty());
        },
    );
}
