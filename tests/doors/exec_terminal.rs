//! Terminals: what a child finds, what is typed at it, how its window changes, how it ends.

use std::fs;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::daemon::{Daemon, Setup};
use crate::driver::Driver;
use crate::execs::exec_at;
use crate::process::{self, is_alive, is_root, wait_until};
use crate::request::Request;
use crate::terminal::{Viewer, end, in_shell, in_terminal, resize, stdin, write};

both![
    a_child_finds_one_terminal_of_the_size_asked_for,
    all_output_is_stdout_and_kept_to_the_byte,
    a_child_leads_a_session_whose_terminal_it_has,
    the_kind_of_terminal_is_below_the_launch_environment,
    control_characters_signal_the_foreground,
    a_shell_controls_its_jobs,
    the_erase_character_takes_back_a_whole_letter,
    a_resize_is_seen_by_who_runs_in_the_foreground,
    end_of_file_ends_a_reader_wherever_the_line_is,
    end_of_file_ends_a_shell_that_edits_its_line,
    end_of_file_closes_the_input_and_not_the_terminal,
    what_is_written_before_the_end_arrives_before_the_end,
    a_terminal_that_is_opened_again_is_still_heard,
    who_holds_the_terminal_past_the_linger_loses_it,
    jobs_of_a_child_that_ends_are_hung_up,
    a_kill_reaches_who_left_the_session,
    a_time_limit_ends_a_terminal_exec,
    another_user_may_open_the_terminal,
    a_raw_terminal_takes_a_megabyte,
    a_child_that_does_not_read_holds_up_its_writer_only,
    a_writer_is_let_go_when_the_terminal_ends,
    a_line_is_kept_up_to_its_longest,
    a_size_that_is_none_is_refused,
    a_resize_without_an_open_terminal_is_refused,
    a_guest_without_terminals_says_so,
    fifty_terminals_leave_no_descriptor,
];

fn a_child_finds_one_terminal_of_the_size_asked_for(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let script = "stty size; tty; test -t 0 && test -t 1 && test -t 2 && echo all";
    let asked = json!({"shell": true, "command": [script], "tty": {"cols": 132, "rows": 43}});
    let printed = daemon.output(&asked);
    let lines: Vec<&str> = printed.split("\r\n").collect();
    assert_eq!((lines[0], lines[2]), ("43 132", "all"), "{printed}");
    assert!(lines[1].starts_with("/dev/pts/"), "{printed}");
    let largest = json!({"command": ["stty", "size"], "tty": {"cols": 65535, "rows": 1}});
    assert_eq!(daemon.output(&largest), "1 65535\r\n");
    // The directory that ls reads is its fourth descriptor.
    let listed = daemon.output(&in_terminal(&["ls", "-l", "/proc/self/fd"]));
    let targets: Vec<&str> = listed
        .split("\r\n")
        .filter_map(|line| line.split_once(" -> "))
        .map(|pair| pair.1)
        .collect();
    assert_eq!(targets.len(), 4, "{listed}");
    assert!(targets[0].starts_with("/dev/pts/"), "{listed}");
    assert!(
        targets[..3].iter().all(|one| *one == targets[0]),
        "{listed}"
    );
    // Null asks for none.
    let none = json!({"shell": true, "command": ["test -t 1 || echo none"], "tty": null});
    assert_eq!(daemon.output(&none), "none\n");
}

fn all_output_is_stdout_and_kept_to_the_byte(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let script = r"stty -opost; printf '\033[31mred\033[0m\377\000\n'; printf err >&2";
    daemon.begin("e", &in_shell(script));
    let outcome = daemon.exited("e");
    let expected = "\u{1b}[31mred\u{1b}[0m\u{fffd}\0\nerr";
    assert_eq!(outcome["stdout"], expected, "{outcome}");
    assert_eq!(outcome["stderr"], "", "{outcome}");
    let (seen, exit) = Viewer::of(&daemon, "e").until_the_end();
    assert_eq!(seen, b"\x1b[31mred\x1b[0m\xff\0\nerr");
    assert_eq!(exit["offset"], seen.len());
}

fn a_child_leads_a_session_whose_terminal_it_has(driver: Driver) {
    // A leader of a session without a terminal takes the first that it opens, unless it takes care.
    let daemon = Setup::new(driver).under(&["setsid"]).ready();
    let line = daemon.output(&in_terminal(&["cat", "/proc/self/stat"]));
    let pid = line.split(' ').next().expect("a pid");
    let (_, fields) = line.rsplit_once(')').expect("a name");
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let [_, parent, group, session, terminal, foreground, ..] = fields[..] else {
        panic!("{line}");
    };
    assert_eq!(parent, daemon.pid().to_string());
    assert_eq!([group, session, foreground], [pid; 3], "{line}");
    // The device number of a slave: its majors begin at 136.
    let terminal: u32 = terminal.parse().expect("a number");
    assert_eq!(terminal >> 8, 136, "{line}");
    let ours = process::stat(daemon.pid()).expect("it runs");
    assert_eq!(ours[3], daemon.pid().to_string());
    assert_eq!(ours[4], "0");
}

fn the_kind_of_terminal_is_below_the_launch_environment(driver: Driver) {
    let print = |more: Value| {
        let mut asked = in_terminal(&["/usr/bin/env"]);
        for (key, value) in more.as_object().expect("an object") {
            asked[key] = value.clone();
        }
        asked
    };
    let daemon = Setup::new(driver).env("TERM", "image").ready();
    let of = |more| daemon.output(&print(more));
    assert_eq!(of(json!({})), "TERM=xterm-256color\r\n");
    let inherited = of(json!({"inherit_image_env": true}));
    assert!(inherited.contains("TERM=xterm-256color\r\n"), "{inherited}");
    assert_eq!(of(json!({"env": {"TERM": "vt100"}})), "TERM=vt100\r\n");
    let plain = daemon.output(&json!({"command": ["/usr/bin/env"]}));
    assert_eq!(plain, "");
    let launched = Setup::new(driver).ready_with(&json!({"TERM": "launch"}));
    assert_eq!(launched.output(&print(json!({}))), "TERM=launch\r\n");
}

fn control_characters_signal_the_foreground(driver: Driver) {
    let daemon = Daemon::ready(driver);
    for (typed, signal) in [("\x03", 2), ("\x1c", 3)] {
        for command in ["cat", "sleep 1000"] {
            let id = format!("{command} {signal}");
            // The core of a program that is quit is nobody's business.
            daemon.begin(
                &id,
                &in_shell(&format!("ulimit -c 0; echo up; exec {command}")),
            );
            Viewer::of(&daemon, &id).wait_for("up\r\n");
            write(&daemon, &id, typed).is(200);
            let outcome = daemon.exited(&id);
            assert_eq!(outcome["signal"], signal, "{outcome}");
        }
    }
}

fn a_shell_controls_its_jobs(driver: Driver) {
    let daemon = Daemon::ready(driver);
    for shell in [&["sh", "-i"][..], &["bash", "--norc", "-i"]] {
        if !std::path::Path::new("/bin").join(shell[0]).exists() {
            eprintln!("{} is not here", shell[0]);
            continue;
        }
        let id = shell[0];
        daemon.begin(id, &in_terminal(shell));
        let mut viewer = Viewer::of(&daemon, id);
        // What is typed is echoed, so the quotes tell the answer from the question.
        write(&daemon, id, "sh -c 'echo u\"\"p; exec sleep 1000'\n").is(200);
        viewer.wait_for("up\r\n");
        write(&daemon, id, "\x1a").is(200);
        viewer.wait_for("Stopped");
        write(&daemon, id, "fg; echo st\"\"atus $?\n").is(200);
        viewer.wait_for("sleep 1000");
        wait_until("the job is in the foreground", || {
            let groups = process::descendants(daemon.pid());
            groups.into_iter().any(|pid| {
                process::stat(pid)
                    .is_some_and(|stat| stat[2] == stat[5] && stat[2] != stat[3] && stat[0] == "S")
            })
        });
        write(&daemon, id, "\x03").is(200);
        write(&daemon, id, "\nexit 7\n").is(200);
        let outcome = daemon.exited(id);
        assert_eq!(outcome["exit_code"], 7, "{outcome}");
        let printed = outcome["stdout"].as_str().expect("text");
        assert!(!printed.contains("job control"), "{printed}");
    }
}

fn the_erase_character_takes_back_a_whole_letter(driver: Driver) {
    let daemon = Daemon::ready(driver);
    daemon.begin("e", &in_shell("stty -echo; echo up; exec cat"));
    Viewer::of(&daemon, "e").wait_for("up\r\n");
    write(&daemon, "e", "aü\x7fb\n").is(200);
    end(&daemon, "e").is(200);
    assert_eq!(daemon.exited("e")["stdout"], "up\r\nab\r\n");
}

fn a_resize_is_seen_by_who_runs_in_the_foreground(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let script = "trap 'stty size' WINCH; stty size; while [ ! -e stop ]; do sleep 0.02; done";
    daemon.begin("r/1", &in_shell(script));
    let mut viewer = Viewer::of(&daemon, "r/1");
    viewer.wait_for("24 80\r\n");
    let reply = resize(&daemon, "r/1", r#"{"cols":100,"rows":50}"#).is(200);
    assert_eq!(
        reply.text(),
        r#"{"exec_id":"r/1","cols":100,"rows":50}"#,
        "{reply:?}"
    );
    viewer.wait_for("50 100\r\n");
    // Other fields are ignored, as in every request.
    resize(&daemon, "r/1", r#"{"rows":1,"cols":65535,"x":null}"#).is(200);
    viewer.wait_for("1 65535\r\n");
    fs::write(daemon.path("stop"), "").expect("the scratch directory is ours");
    assert_eq!(daemon.exited("r/1")["exit_code"], 0);
}

fn end_of_file_ends_a_reader_wherever_the_line_is(driver: Driver) {
    let daemon = Daemon::ready(driver);
    // What is typed first, what comes together with the end, what was read.
    let rows = [
        ("", "", ""),
        ("abc\n", "", "abc\n"),
        ("abc", "", "abc"),
        ("", "abc", "abc"),
        ("ab", "c\n", "abc\n"),
        ("a\rb\n", "c", "a\nb\nc"),
        ("abc\x15", "", ""),
        ("a\x04", "", "a"),
    ];
    for (number, (first, last, read)) in rows.into_iter().enumerate() {
        let id = format!("e{number}");
        let script = "stty -echo -onlcr; echo up; cat; echo; echo after; cat";
        daemon.begin(&id, &in_shell(script));
        let mut viewer = Viewer::of(&daemon, &id);
        viewer.wait_for("up");
        write(&daemon, &id, first).is(200);
        let body = json!({"data_b64": STANDARD.encode(last), "signal": "eof"});
        let reply = stdin(&daemon, &id, &body).is(200).json();
        assert_eq!(
            reply,
            json!({"exec_id": id, "written": last.len(), "eof": true})
        );
        viewer.wait_for("after\n");
        // Said exactly once: the second reader still waits.
        assert_eq!(daemon.poll(&id).json()["phase"], "running");
        daemon.post(format!("{}/kill", exec_at(&id))).is(200);
        let outcome = daemon.exited(&id);
        assert_eq!(outcome["signal"], 15, "{outcome}");
        let printed = format!("up\n{read}\nafter\n");
        assert_eq!(outcome["stdout"], printed, "{rows:?}");
    }
}

fn end_of_file_ends_a_shell_that_edits_its_line(driver: Driver) {
    if !std::path::Path::new("/bin/bash").exists() {
        eprintln!("no bash here: end of file on a raw terminal is not checked");
        return;
    }
    let daemon = Daemon::ready(driver);
    let asked = json!({"command": ["bash", "--norc", "-i"], "env": {"PS1": "<prompt>"},
                       "tty": {"cols": 80, "rows": 24}});
    daemon.begin("b", &asked);
    Viewer::of(&daemon, "b").wait_for("<prompt>");
    end(&daemon, "b").is(200);
    assert_eq!(daemon.exited("b")["exit_code"], 0);
}

fn end_of_file_closes_the_input_and_not_the_terminal(driver: Driver) {
    let daemon = Daemon::ready(driver);
    daemon.begin(
        "e",
        &in_shell("cat; echo up; while [ ! -e stop ]; do sleep 0.02; done"),
    );
    end(&daemon, "e").is(200);
    Viewer::of(&daemon, "e").wait_for("up\r\n");
    write(&daemon, "e", "x").refuses(410, "stdin_closed");
    stdin(&daemon, "e", &json!({})).refuses(410, "stdin_closed");
    end(&daemon, "e").refuses(410, "stdin_closed");
    resize(&daemon, "e", r#"{"cols":1,"rows":1}"#).is(200);
    fs::write(daemon.path("stop"), "").expect("the scratch directory is ours");
    let outcome = daemon.exited("e");
    assert_eq!(
        (&outcome["exit_code"], &outcome["signal"]),
        (&json!(0), &Value::Null)
    );
}

fn what_is_written_before_the_end_arrives_before_the_end(driver: Driver) {
    let daemon = Setup::new(driver)
        .flag("--stream-buffer-bytes", "8000000")
        .ready();
    let script = "stty -opost; head -c 5000000 /dev/zero | tr '\\0' x; printf end";
    daemon.begin("big", &in_shell(script));
    let (seen, exit) = Viewer::of(&daemon, "big").until_the_end();
    assert_eq!(seen.len(), 5_000_003);
    assert!(seen.ends_with(b"xend") && seen[..5_000_000].iter().all(|byte| *byte == b'x'));
    assert_eq!(
        (&exit["offset"], &exit["exit_code"]),
        (&json!(5_000_003), &json!(0))
    );
    let outcome = daemon.exited("big");
    assert_eq!(outcome["stdout"].as_str().map(str::len), Some(5_000_003));
    assert_eq!(outcome["writers_may_be_alive"], false);
    for _ in 0..30 {
        assert_eq!(daemon.output(&in_terminal(&["echo", "swift"])), "swift\r\n");
    }
}

fn a_terminal_that_is_opened_again_is_still_heard(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let script = "echo one; exec </dev/null >/dev/null 2>&1; echo $$ >pid; \
                  while [ ! -e go ]; do sleep 0.02; done; exec >/dev/tty; echo two";
    daemon.begin("e", &in_shell(script));
    daemon.pid_in("pid");
    let mut viewer = Viewer::of(&daemon, "e");
    viewer.wait_for("one\r\n");
    assert_eq!(daemon.health()["busy"], true);
    fs::write(daemon.path("go"), "").expect("the scratch directory is ours");
    assert_eq!(daemon.exited("e")["stdout"], "one\r\ntwo\r\n");
}

fn who_holds_the_terminal_past_the_linger_loses_it(driver: Driver) {
    let daemon = Setup::new(driver).flag("--output-linger", "0.2").ready();
    let before = daemon.at_rest();
    let script = "trap '' HUP; (echo $$ >pid; while echo x; do sleep 0.02; done; echo $? >lost) & \
                  while [ ! -e pid ]; do sleep 0.02; done";
    daemon.begin("e", &in_shell(script));
    let outcome = daemon.exited("e");
    assert_eq!(outcome["exit_code"], 0, "{outcome}");
    assert_eq!(outcome["writers_may_be_alive"], true, "{outcome}");
    wait_until("the writer is told", || daemon.path("lost").exists());
    daemon.holds_at_most(before);
}

fn jobs_of_a_child_that_ends_are_hung_up(driver: Driver) {
    let daemon = Daemon::ready(driver);
    daemon.begin("e", &in_shell("sleep 1000 & echo $! >pid; exit 3"));
    let outcome = daemon.exited("e");
    assert_eq!(outcome["exit_code"], 3, "{outcome}");
    assert_eq!(outcome["writers_may_be_alive"], false, "{outcome}");
    let job = daemon.pid_in("pid");
    wait_until("the job is gone", || !is_alive(job));
}

fn a_kill_reaches_who_left_the_session(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let script = "setsid sh -c 'echo $$ >pid; exec sleep 1000' & wait";
    daemon.begin("k", &in_shell(script));
    let far = daemon.pid_in("pid");
    assert_eq!(
        daemon.post("/v1/exec/k/kill").is(200).json()["killed"],
        true
    );
    assert!(!is_alive(far));
    assert_eq!(daemon.exited("k")["signal"], 15);
}

fn a_time_limit_ends_a_terminal_exec(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let mut asked = in_terminal(&["sleep", "1000"]);
    asked["timeout_sec"] = json!(0.1);
    let outcome = daemon.exec(&asked);
    assert_eq!(
        (&outcome["timed_out"], &outcome["signal"]),
        (&json!(true), &json!(15))
    );
}

fn another_user_may_open_the_terminal(driver: Driver) {
    if !is_root("a terminal of another user") {
        return;
    }
    let daemon = Daemon::ready(driver);
    let script = "id -u; echo tty >/dev/tty; echo name >$(tty); echo again >/proc/self/fd/1; stat -c %u $(tty)";
    let mut asked = in_shell(script);
    asked["user"] = json!(65534);
    asked["cwd"] = json!("/");
    let printed = daemon.output(&asked);
    assert_eq!(printed, "65534\r\ntty\r\nname\r\nagain\r\n65534\r\n");
}

fn a_raw_terminal_takes_a_megabyte(driver: Driver) {
    let daemon = Daemon::ready(driver);
    daemon.begin(
        "e",
        &in_shell("stty raw -echo; echo up; head -c 1000000 | tee got; echo done"),
    );
    let mut viewer = Viewer::of(&daemon, "e");
    viewer.wait_for("up");
    let sent: Vec<u8> = (0..251).cycle().take(1_000_000).collect();
    write(&daemon, "e", &sent).is(200);
    let (seen, _) = viewer.until_the_end();
    assert!(
        seen == [b"\n", &sent[..], b"done\n"].concat(),
        "{} bytes came back",
        seen.len()
    );
    let got = fs::read(daemon.path("got")).expect("the child made it");
    assert!(got == sent, "{} bytes came, or others", got.len());
}

fn a_child_that_does_not_read_holds_up_its_writer_only(driver: Driver) {
    let daemon = Setup::new(driver)
        .flag("--stdin-write-timeout", "0.2")
        .ready();
    let before = daemon.at_rest();
    daemon.begin("e", &in_shell("stty raw -echo; echo up; exec sleep 1000"));
    Viewer::of(&daemon, "e").wait_for("up");
    write(&daemon, "e", vec![b'x'; 1 << 20]).refuses(408, "stdin_write_timeout");
    assert_eq!(daemon.health()["busy"], true);
    daemon.post("/v1/exec/e/kill").is(200);
    assert_eq!(daemon.exited("e")["signal"], 15);
    write(&daemon, "e", "x").refuses(410, "stdin_closed");
    daemon.holds_at_most(before);
}

fn a_writer_is_let_go_when_the_terminal_ends(driver: Driver) {
    let daemon = Daemon::ready(driver);
    daemon.begin("e", &in_shell("stty raw -echo; echo up; exec sleep 1000"));
    Viewer::of(&daemon, "e").wait_for("up");
    // More than the terminal takes: the writer waits, and then there is nobody to wait for.
    let mut writer = daemon.connect();
    let put = Request::put(format!("{}/stdin", exec_at("e"))).bearer();
    let sent = writer.send_aside(put.body(vec![b'x'; 1 << 20]).bytes());
    wait_until("something was typed", || {
        daemon.get(format!("{}/stdin", exec_at("e"))).json()["offset"] != 0
    });
    daemon.post("/v1/exec/e/kill").is(200);
    assert_eq!(daemon.exited("e")["signal"], 15);
    writer.reply().refuses(410, "stdin_closed");
    assert_eq!(daemon.health()["busy"], false);
    // Whether all of the body was read is the daemon's choice.
    drop(writer);
    let _ = sent.join();
}

fn a_line_is_kept_up_to_its_longest(driver: Driver) {
    let daemon = Daemon::ready(driver);
    daemon.begin("e", &in_shell("stty -echo; echo up; head -n 1 | wc -c"));
    let mut viewer = Viewer::of(&daemon, "e");
    viewer.wait_for("up\r\n");
    let mut line = vec![b'x'; 10_000];
    line.push(b'\n');
    write(&daemon, "e", line).is(200);
    viewer.wait_for("4096\r\n");
    assert_eq!(daemon.exited("e")["exit_code"], 0);
}

fn a_size_that_is_none_is_refused(driver: Driver) {
    let daemon = Daemon::ready(driver);
    daemon.begin("t", &in_terminal(&["cat"]));
    let rows = [
        (r#"{"cols":80}"#, "rows"),
        (r#"{"rows":24}"#, "cols"),
        (r#"{"cols":0,"rows":24}"#, "cols"),
        (r#"{"cols":80,"rows":65536}"#, "rows"),
        (r#"{"cols":-1,"rows":24}"#, "cols"),
        (r#"{"cols":80,"rows":24.5}"#, "rows"),
        (r#"{"cols":"80","rows":24}"#, "cols"),
        (r#"{"cols":80,"rows":null}"#, "rows"),
        (r#"{"cols":80,"rows":24,"cols":80}"#, "cols"),
    ];
    for (size, field) in rows {
        let body = format!(r#"{{"exec_id":"x","command":["true"],"tty":{size}}}"#);
        let start = Request::post("/v1/exec/start").bearer().json_text(body);
        let reply = daemon.call(&start).refuses(400, "malformed_request");
        let detail = format!("tty.{field}");
        assert!(reply.text().contains(&detail), "{size}: {reply:?}");
        let reply = resize(&daemon, "t", size).refuses(400, "malformed_request");
        assert!(reply.text().contains(field), "{size}: {reply:?}");
    }
    for (tty, named) in [
        (json!({"cols": 80, "rows": 24, "depth": 8}), "depth"),
        (json!(true), "tty"),
        (json!([80, 24]), "tty"),
        (json!("80x24"), "tty"),
    ] {
        let asked = json!({"exec_id": "x", "command": ["true"], "tty": tty});
        let reply = daemon.ask(&asked).refuses(400, "malformed_request");
        assert!(reply.text().contains(named), "{reply:?}");
    }
    for text in ["", "null", "[80,24]", "{\"cols\":80,\"rows\":24", "{} x"] {
        resize(&daemon, "t", text).refuses(400, "malformed_request");
    }
    daemon
        .post("/v1/exec/t/resize")
        .refuses(400, "malformed_request");
    daemon.poll("x").refuses(404, "unknown_exec");
}

fn a_resize_without_an_open_terminal_is_refused(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let size = r#"{"cols":80,"rows":24}"#;
    resize(&daemon, "none", size).refuses(404, "unknown_exec");
    daemon.begin("p", &json!({"command": ["sleep", "1000"], "stdin": true}));
    resize(&daemon, "p", size).refuses(409, "no_terminal");
    resize(&daemon, "p", "{}").refuses(400, "malformed_request");
    daemon.begin("t", &in_terminal(&["true"]));
    daemon.exited("t");
    resize(&daemon, "t", size).refuses(410, "terminal_closed");
    write(&daemon, "t", "x").refuses(410, "stdin_closed");
    daemon.post("/v1/exec/t/ack").is(200);
    resize(&daemon, "t", size).refuses(410, "terminal_closed");
    assert_eq!(
        daemon.get("/v1/exec/t/resize").bare(405).field("allow"),
        Some("POST")
    );
}

fn a_guest_without_terminals_says_so(driver: Driver) {
    if !is_root("a guest without terminals") {
        return;
    }
    // Another file system lies over that of the terminals; then one that has room for a single terminal.
    let rows = [
        ("tmpfs", "size=64k", "/dev/ptmx"),
        ("devpts", "newinstance,ptmxmode=0666,max=1", "in use"),
    ];
    for (kind, options, told) in rows {
        let mount = format!("-t {kind} -o {options} none /dev/pts");
        let daemon = Setup::new(driver).with_mount(&mount).ready();
        let before = daemon.at_rest();
        let mut asked = in_terminal(&["cat"]);
        if kind == "devpts" {
            daemon.begin("first", &asked);
        }
        asked["exec_id"] = "t".into();
        let reply = daemon.ask(&asked).refuses(500, "spawn_failed");
        assert!(reply.text().contains("no pseudo-terminal"), "{reply:?}");
        assert!(reply.text().contains(told), "{reply:?}");
        daemon.poll("t").refuses(404, "unknown_exec");
        daemon.post("/v1/exec/first/kill");
        daemon.holds_at_most(before);
        // What needs no terminal works.
        assert_eq!(daemon.output(&json!({"command": ["echo", "x"]})), "x\n");
    }
}

fn fifty_terminals_leave_no_descriptor(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let before = daemon.at_rest();
    for number in 0..50 {
        daemon.begin(&format!("e{number}"), &in_terminal(&["cat"]));
    }
    for number in 0..50 {
        let id = format!("e{number}");
        resize(&daemon, &id, r#"{"cols":90,"rows":30}"#).is(200);
        end(&daemon, &id).is(200);
        assert_eq!(daemon.exited(&id)["exit_code"], 0);
    }
    daemon.holds_at_most(before);
    for number in 0..20 {
        let mut asked = in_terminal(&["/nonexistent"]);
        asked["exec_id"] = format!("f{number}").into();
        daemon.ask(&asked).refuses(500, "spawn_failed");
    }
    daemon.holds_at_most(before);
    let terminals = daemon.descriptor_targets();
    let is_terminal = |target: &String| target.contains("ptmx") || target.contains("pts/");
    assert!(!terminals.iter().any(is_terminal), "{terminals:?}");
}
