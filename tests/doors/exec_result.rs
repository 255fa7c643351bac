//! Polling: exit codes, signals, output, truncation, linger (contract sections 4.2 and 4.3).

use serde_json::{Value, json};

use crate::daemon::{Daemon, Setup};
use crate::driver::Driver;
use crate::execs::without_usage;
use crate::process::{is_alive, signal, wait_until};
use crate::reply::keys;
use crate::request::Request;

both![
    a_running_exec_says_only_that,
    an_exited_exec_has_the_fields_of_the_contract_in_order,
    exit_codes_and_signals_are_told_apart,
    output_is_text_with_what_is_not_utf8_replaced,
    stdout_and_stderr_are_kept_apart,
    polling_changes_nothing,
    polling_what_is_unknown_is_a_404,
    output_up_to_the_cap_is_whole_and_beyond_it_truncated,
    each_stream_has_its_own_cap,
    a_character_cut_by_the_cap_is_replaced,
    output_past_the_cap_is_drained,
    output_of_a_megabyte_arrives_whole,
    a_large_result_is_one_document_of_a_known_length,
    a_fast_exec_never_loses_its_output,
    a_writer_that_is_late_but_within_the_linger_is_heard,
    a_writer_that_outlives_the_linger_is_cut_off,
    an_exec_whose_output_is_still_held_is_running,
    a_survivor_that_holds_no_pipe_is_not_waited_for,
    a_timed_out_exec_is_terminated,
    a_timeout_that_is_handled_shows_how_the_child_ended,
    a_child_that_ignores_the_timeout_is_killed_after_the_grace,
    output_before_and_during_a_timeout_is_kept,
    a_group_is_reaped_on_exit_when_asked,
];

fn a_running_exec_says_only_that(driver: Driver) {
    let daemon = Daemon::ready(driver);
    daemon.begin("r", &json!({"command": ["sleep", "1000"]}));
    assert_eq!(
        daemon.poll("r").is(200).text(),
        r#"{"exec_id":"r","phase":"running"}"#
    );
}

fn an_exited_exec_has_the_fields_of_the_contract_in_order(driver: Driver) {
    let daemon = Daemon::ready(driver);
    daemon.begin_script("e", "echo out; echo err >&2; exit 3");
    daemon.exited("e");
    let text = without_usage(&daemon.poll("e").is(200).text());
    let names = [
        "exec_id",
        "phase",
        "exit_code",
        "signal",
        "timed_out",
        "stdout",
        "stderr",
        "truncated",
        "writers_may_be_alive",
    ];
    assert_eq!(keys(&text), names);
    let outcome: Value = serde_json::from_str(&text).expect("JSON");
    let expected = json!({
        "exec_id": "e", "phase": "exited", "exit_code": 3, "signal": null, "timed_out": false,
        "stdout": "out\n", "stderr": "err\n", "truncated": false, "writers_may_be_alive": false,
    });
    assert_eq!(outcome, expected);
}

fn exit_codes_and_signals_are_told_apart(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let rows = [
        ("exit 0", json!(0), json!(null)),
        ("exit 1", json!(1), json!(null)),
        ("exit 255", json!(255), json!(null)),
        ("exit 300", json!(44), json!(null)),
        ("no-such-command", json!(127), json!(null)),
        ("kill -9 $$", json!(null), json!(9)),
        ("kill -15 $$", json!(null), json!(15)),
        ("kill -1 $$", json!(null), json!(1)),
        ("kill -11 $$", json!(null), json!(11)),
        ("exit 137", json!(137), json!(null)),
    ];
    for (script, code, signal) in rows {
        let outcome = daemon.script(script);
        assert_eq!(outcome["exit_code"], code, "{script}: {outcome}");
        assert_eq!(outcome["signal"], signal, "{script}: {outcome}");
        assert_eq!(outcome["timed_out"], false, "{script}: {outcome}");
    }
}

fn output_is_text_with_what_is_not_utf8_replaced(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let rows = [
        (r"\377\376a\303", "\u{fffd}\u{fffd}a\u{fffd}"),
        (r"a\000b\033[0m", "a\0b\u{1b}[0m"),
        (r"\303\274\342\202\254", "ü€"),
        (r"no end", "no end"),
        (r"\r\n\t\\\042", "\r\n\t\\\""),
        (r"\355\240\200", "\u{fffd}\u{fffd}\u{fffd}"),
    ];
    for (format, expected) in rows {
        let outcome = daemon.script(&format!("printf '{format}'; printf '{format}' >&2"));
        assert_eq!(outcome["stdout"], expected, "{format}");
        assert_eq!(outcome["stderr"], expected, "{format}");
        assert_eq!(outcome["truncated"], false, "{format}");
    }
}

fn stdout_and_stderr_are_kept_apart(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let outcome = daemon.script("for i in 1 2 3 4 5; do echo o$i; echo e$i >&2; done");
    assert_eq!(outcome["stdout"], "o1\no2\no3\no4\no5\n");
    assert_eq!(outcome["stderr"], "e1\ne2\ne3\ne4\ne5\n");
}

fn polling_changes_nothing(driver: Driver) {
    let daemon = Daemon::ready(driver);
    daemon.begin_script("e", "echo hello");
    daemon.exited("e");
    let first = daemon.poll("e").text();
    for _ in 0..5 {
        assert_eq!(daemon.poll("e").text(), first);
    }
    let head = daemon
        .call(&Request::new("HEAD", "/v1/exec/e").bearer())
        .is(200);
    assert_eq!(
        head.field("content-length"),
        Some(first.len().to_string().as_str())
    );
}

fn polling_what_is_unknown_is_a_404(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let reply = daemon.poll("zz").is(404);
    assert_eq!(reply.text(), r#"{"error":"unknown_exec","detail":"zz"}"#);
}

fn output_up_to_the_cap_is_whole_and_beyond_it_truncated(driver: Driver) {
    let daemon = Setup::new(driver).flag("--max-output-bytes", "10").ready();
    for (printed, kept, truncated) in [
        ("", "", false),
        ("123456789", "123456789", false),
        ("1234567890", "1234567890", false),
        ("12345678901", "1234567890", true),
    ] {
        let outcome = daemon.script(&format!("printf '{printed}'"));
        assert_eq!(outcome["stdout"], kept, "{printed}");
        assert_eq!(outcome["truncated"], truncated, "{printed}");
    }
}

fn each_stream_has_its_own_cap(driver: Driver) {
    let daemon = Setup::new(driver).flag("--max-output-bytes", "10").ready();
    let outcome = daemon.script("printf 1234567890; printf abcdefghij >&2");
    assert_eq!(outcome["stdout"], "1234567890");
    assert_eq!(outcome["stderr"], "abcdefghij");
    assert_eq!(outcome["truncated"], false);
    let outcome = daemon.script("printf 1; printf abcdefghijk >&2");
    assert_eq!(outcome["stdout"], "1");
    assert_eq!(outcome["stderr"], "abcdefghij");
    assert_eq!(outcome["truncated"], true);
}

fn a_character_cut_by_the_cap_is_replaced(driver: Driver) {
    let daemon = Setup::new(driver).flag("--max-output-bytes", "10").ready();
    let outcome = daemon.script(r"printf '123456789\303\274'");
    assert_eq!(outcome["stdout"], "123456789\u{fffd}");
    assert_eq!(outcome["truncated"], true);
}

fn output_past_the_cap_is_drained(driver: Driver) {
    let daemon = Setup::new(driver)
        .flag("--max-output-bytes", "1000")
        .ready();
    let outcome = daemon.script("head -c 20000000 /dev/zero && echo done >&2");
    assert_eq!(outcome["stdout"], "\0".repeat(1000));
    assert_eq!(outcome["stderr"], "done\n");
    assert_eq!(outcome["truncated"], true);
    assert_eq!(outcome["exit_code"], 0);
}

fn output_of_a_megabyte_arrives_whole(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let outcome = daemon
        .script("i=0; while [ $i -lt 40000 ]; do echo line $i of the output; i=$((i+1)); done");
    let expected: String = (0..40_000)
        .map(|number| format!("line {number} of the output\n"))
        .collect();
    assert!(outcome["stdout"] == expected.as_str(), "the output differs");
    assert_eq!(outcome["truncated"], false);
}

fn a_large_result_is_one_document_of_a_known_length(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let script = "head -c 3000000 /dev/zero; head -c 200000 /dev/zero | tr '\\0' '\\377' >&2";
    daemon.begin_script("e", script);
    let outcome = daemon.exited("e");
    let text = daemon.poll("e").is(200).text();
    assert_eq!(outcome["stdout"], "\0".repeat(3_000_000));
    assert_eq!(outcome["stderr"], "\u{fffd}".repeat(200_000));
    let request = Request::new("HEAD", "/v1/exec/e").bearer();
    let (head, length) = (daemon.call(&request).is(200), text.len().to_string());
    assert_eq!(head.field("content-length"), Some(length.as_str()));
    assert_eq!(head.field("content-type"), Some("application/json"));
    let acked = daemon.post("/v1/exec/e/ack").is(200).text();
    let expected = text.replacen("\"phase\":\"exited\"", "\"phase\":\"acked\"", 1);
    assert!(acked == expected, "the ack differs");
    assert_eq!(daemon.poll("e").json()["phase"], "acked");
}

fn a_fast_exec_never_loses_its_output(driver: Driver) {
    let daemon = Daemon::ready(driver);
    for round in 0..100 {
        let word = format!("round-{round}");
        assert_eq!(
            daemon.output(&json!({"command": ["echo", word]})),
            format!("{word}\n")
        );
    }
}

fn a_writer_that_is_late_but_within_the_linger_is_heard(driver: Driver) {
    let daemon = Setup::new(driver).flag("--output-linger", "1000").ready();
    let outcome = daemon.script("(sleep 0.2; echo late; echo later >&2) & echo early");
    assert_eq!(outcome["stdout"], "early\nlate\n");
    assert_eq!(outcome["stderr"], "later\n");
    assert_eq!(outcome["writers_may_be_alive"], false);
}

fn a_writer_that_outlives_the_linger_is_cut_off(driver: Driver) {
    let daemon = Setup::new(driver).flag("--output-linger", "0.2").ready();
    for script in [
        "sleep 1000 & echo started",
        "sleep 1000 2>&1 >/dev/null & echo started",
        "setsid sleep 1000 & echo started",
    ] {
        let outcome = daemon.script(script);
        assert_eq!(outcome["stdout"], "started\n", "{script}");
        assert_eq!(outcome["exit_code"], 0, "{script}");
        assert_eq!(outcome["writers_may_be_alive"], true, "{script}");
        assert_eq!(outcome["truncated"], false, "{script}");
    }
    // Whoever writes on gets told that nobody reads.
    daemon.script("(trap '' PIPE; while echo x; do sleep 0.01; done 2>/dev/null; echo $$ > refused) & echo started");
    daemon.pid_in("refused");
}

fn an_exec_whose_output_is_still_held_is_running(driver: Driver) {
    let daemon = Setup::new(driver).flag("--output-linger", "1000").ready();
    daemon.begin_script(
        "e",
        "echo $$ > leader; sleep 1000 & echo $! > holder; echo said",
    );
    let (leader, holder) = (daemon.pid_in("leader"), daemon.pid_in("holder"));
    wait_until("the child is gone", || !is_alive(leader));
    assert_eq!(daemon.poll("e").json()["phase"], "running");
    daemon.post("/v1/exec/e/ack").refuses(409, "still_running");
    signal(holder, rustix::process::Signal::KILL);
    let outcome = daemon.exited("e");
    assert_eq!(outcome["stdout"], "said\n");
    assert_eq!(outcome["writers_may_be_alive"], false);
}

fn a_survivor_that_holds_no_pipe_is_not_waited_for(driver: Driver) {
    let daemon = Setup::new(driver).flag("--output-linger", "1000").ready();
    let outcome = daemon.script("sleep 1000 >/dev/null 2>&1 & echo $! > survivor; echo started");
    assert_eq!(outcome["stdout"], "started\n");
    assert_eq!(outcome["writers_may_be_alive"], false);
    assert!(is_alive(daemon.pid_in("survivor")));
}

fn a_timed_out_exec_is_terminated(driver: Driver) {
    // The grace ends when everybody is dead, so its length is never waited for.
    let daemon = Setup::new(driver).flag("--kill-grace", "1000").ready();
    for timeout in [0.1, 1e-12] {
        let outcome = daemon.exec(&json!({"command": ["sleep", "1000"], "timeout_sec": timeout}));
        assert_eq!(outcome["exit_code"], Value::Null, "{outcome}");
        assert_eq!(outcome["signal"], 15, "{outcome}");
        assert_eq!(outcome["timed_out"], true, "{outcome}");
        assert_eq!(outcome["writers_may_be_alive"], false, "{outcome}");
    }
    let whole_group =
        json!({"command": ["sleep 1000 & sleep 1000"], "shell": true, "timeout_sec": 0.1});
    let outcome = daemon.exec(&whole_group);
    assert_eq!(outcome["signal"], 15, "{outcome}");
    assert_eq!(outcome["writers_may_be_alive"], false, "{outcome}");
}

fn a_timeout_that_is_handled_shows_how_the_child_ended(driver: Driver) {
    let daemon = Setup::new(driver).flag("--kill-grace", "1000").ready();
    let script = "trap 'echo bye; exit 7' TERM; echo $$ > ready; sleep 1000 & wait";
    daemon.begin(
        "e",
        &json!({"command": [script], "shell": true, "timeout_sec": 1.0}),
    );
    let outcome = daemon.exited("e");
    assert_eq!(outcome["exit_code"], 7, "{outcome}");
    assert_eq!(outcome["signal"], Value::Null, "{outcome}");
    assert_eq!(outcome["timed_out"], true, "{outcome}");
    assert_eq!(outcome["stdout"], "bye\n", "{outcome}");
}

fn a_child_that_ignores_the_timeout_is_killed_after_the_grace(driver: Driver) {
    let daemon = Setup::new(driver).flag("--kill-grace", "0.2").ready();
    let script = "trap '' TERM; while :; do sleep 1000; done";
    let outcome = daemon.exec(&json!({"command": [script], "shell": true, "timeout_sec": 1.0}));
    assert_eq!(outcome["exit_code"], Value::Null, "{outcome}");
    assert_eq!(outcome["signal"], 9, "{outcome}");
    assert_eq!(outcome["timed_out"], true, "{outcome}");
}

fn output_before_and_during_a_timeout_is_kept(driver: Driver) {
    let daemon = Setup::new(driver).flag("--kill-grace", "1000").ready();
    // More than any pipe holds is written after SIGTERM, so it must be read during the grace.
    let script = "trap 'head -c 3000000 /dev/zero; echo end >&2; exit 0' TERM; echo before; sleep 1000 & wait";
    let outcome = daemon.exec(&json!({"command": [script], "shell": true, "timeout_sec": 1.0}));
    assert_eq!(outcome["exit_code"], 0, "{}", outcome["stderr"]);
    assert_eq!(outcome["timed_out"], true);
    assert_eq!(outcome["stderr"], "end\n");
    let stdout = outcome["stdout"].as_str().expect("a string");
    assert_eq!(stdout.len(), "before\n".len() + 3_000_000);
}

fn a_group_is_reaped_on_exit_when_asked(driver: Driver) {
    let daemon = Setup::new(driver)
        .flag("--kill-grace", "1000")
        .flag("--output-linger", "1000")
        .ready();
    let script = "sleep 1000 & echo $! > member; echo started";
    let outcome =
        daemon.exec(&json!({"command": [script], "shell": true, "reap_group_on_exit": true}));
    assert_eq!(outcome["stdout"], "started\n", "{outcome}");
    assert_eq!(outcome["exit_code"], 0, "{outcome}");
    assert_eq!(outcome["timed_out"], false, "{outcome}");
    assert_eq!(outcome["writers_may_be_alive"], false, "{outcome}");
    assert!(!is_alive(daemon.pid_in("member")));
    // One that ignores SIGTERM is killed after the grace.
    let daemon = Setup::new(driver)
        .flag("--kill-grace", "0.2")
        .flag("--output-linger", "1000")
        .ready();
    let script = "(trap '' TERM; echo ready > up; while :; do sleep 1000; done) & \
                  while [ ! -s up ]; do sleep 0.01; done; echo $! > member";
    let outcome =
        daemon.exec(&json!({"command": [script], "shell": true, "reap_group_on_exit": true}));
    assert_eq!(outcome["writers_may_be_alive"], false, "{outcome}");
    assert!(!is_alive(daemon.pid_in("member")));
}
