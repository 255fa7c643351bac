//! Wishes 1 to 9: output is complete, in order, and told once.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::client::Connection;
use crate::daemon::{Daemon, Setup};
use crate::driver::Driver;
use crate::events::{Event, Events, Heard, Stream};
use crate::execs::exec_at;
use crate::process::{is_alive, stat, wait_until};
use crate::request::Request;
use crate::scratch::noise;

both![
    wish_1_a_slow_reader_gets_all_bytes_and_then_the_exit,
    wish_2_the_exit_is_never_visible_before_the_last_byte,
    wish_3_a_late_follower_of_a_fast_command_gets_everything,
    wish_4_a_reconnect_at_any_byte_loses_and_repeats_nothing,
    wish_4_reconnects_under_load_lose_and_repeat_nothing,
    wish_4_a_reconnect_to_a_frozen_daemon_loses_and_repeats_nothing,
    wish_5_an_expired_cursor_is_told_of_and_a_held_one_is_served,
    wish_6_a_stalled_follower_slows_neither_the_child_nor_the_others,
    wish_7_bytes_are_bytes,
    wish_8_truncated_is_honest_and_each_stream_has_its_budget,
    wish_8_what_came_before_a_timeout_is_kept,
    wish_9_no_size_of_output_is_a_cliff,
    wish_9_no_size_of_input_is_a_cliff,
];

const MIB: usize = 1 << 20;

fn wish_1_a_slow_reader_gets_all_bytes_and_then_the_exit(driver: Driver) {
    let daemon = holding(driver, 16 * MIB);
    let bytes = noise(4 * MIB);
    std::fs::write(daemon.path("f"), &bytes).expect("the scratch directory is ours");
    // Over a Unix socket, which takes less than a tenth of it while nobody reads.
    let mut connection = daemon.connect_to(1);
    daemon.begin("e", &json!({"command": ["cat", "f"]}));
    connection.send(Events::request("e", 0).bytes());
    ended(&daemon, "e");
    let mut events = Events::answered(connection, 0);
    let heard = events.rest();
    heard.is_whole();
    assert!(heard.of(Stream::Stdout) == bytes, "the output differs");
    events.connection().is_usable();
}

fn wish_2_the_exit_is_never_visible_before_the_last_byte(driver: Driver) {
    let daemon = holding(driver, 16 * MIB);
    std::fs::write(daemon.path("f"), noise(200_000)).expect("the scratch directory is ours");
    let mut polls = daemon.connect();
    for round in 0..20 {
        let id = format!("e{round}");
        daemon.begin_script(&id, "cat f >&2; echo last");
        let mut events = Events::follow(&daemon, &id, 0);
        // A poll that tells the exit tells all output with it.
        let poll = Request::get(exec_at(&id)).bearer();
        let mut result = Value::Null;
        wait_until("it exits", || {
            result = polls.call(&poll).is(200).json();
            assert!(result.get("exit_code").is_none() || result["stdout"] == "last\n");
            result["phase"] == "exited"
        });
        // An exit event ends the stream, and tells how much there was: `Events` and `is_whole` check that.
        let heard = events.rest();
        heard.is_whole();
        assert_eq!(heard.bytes.len(), 200_005);
    }
    // Also when the last byte comes from somebody who outlives the command.
    daemon.begin_script(
        "late",
        "(while [ ! -e go ]; do sleep 0.01; done; echo late) & echo $$ > up",
    );
    let leader = daemon.pid_in("up");
    wait_until("the command has ended", || !is_alive(leader));
    assert_eq!(daemon.poll("late").json()["phase"], "running");
    let mut events = Events::follow(&daemon, "late", 0);
    std::fs::write(daemon.path("go"), "").expect("the scratch directory is ours");
    assert_eq!(events.rest().of(Stream::Stdout), b"late\n");
}

fn wish_3_a_late_follower_of_a_fast_command_gets_everything(driver: Driver) {
    let daemon = Daemon::ready(driver);
    for round in 0..50 {
        let id = format!("e{round}");
        daemon.begin_script(&id, "echo out; echo err >&2");
        if round % 2 == 0 {
            ended(&daemon, &id);
        }
        let heard = Events::follow(&daemon, &id, 0).rest();
        heard.is_whole();
        assert_eq!(heard.of(Stream::Stdout), b"out\n");
        assert_eq!(heard.of(Stream::Stderr), b"err\n");
    }
    // An ack takes the result, and leaves what can be followed.
    ended(&daemon, "e0");
    daemon.post("/v1/exec/e0/ack").is(200);
    let heard = Events::follow(&daemon, "e0", 0).rest();
    heard.is_whole();
    assert_eq!(heard.of(Stream::Stdout), b"out\n");
}

fn wish_4_a_reconnect_at_any_byte_loses_and_repeats_nothing(driver: Driver) {
    let daemon = Daemon::ready(driver);
    // Characters of two and three bytes, bytes that are none, and both streams: the cursor counts raw bytes.
    let script = r"printf 'a\303\274\342\202\254\377\000z'; sleep 0.01; printf 'e\303\274' >&2; printf '\033\n'";
    daemon.begin_script("e", script);
    ended(&daemon, "e");
    let all = Events::follow(&daemon, "e", 0).rest();
    all.is_whole();
    let mut connection = daemon.connect();
    for offset in 0..=all.bytes.len() {
        let from = u64::try_from(offset).expect("small");
        let mut events = Events::over(connection, "e", from);
        let heard = events.rest();
        assert_eq!(heard.bytes, all.bytes[offset..], "from {offset}");
        assert_eq!(heard.exit, all.exit);
        connection = events.connection();
    }
}

fn wish_4_reconnects_under_load_lose_and_repeat_nothing(driver: Driver) {
    let daemon = holding(driver, 16 * MIB);
    let bytes = noise(MIB);
    std::fs::write(daemon.path("f"), &bytes).expect("the scratch directory is ours");
    // Others run, write and are followed meanwhile.
    daemon.begin_script("load", "while :; do cat f; done");
    let load: Vec<Connection> = (0..4)
        .map(|_| {
            let mut connection = daemon.connect();
            connection.send(Events::request("load", 0).bytes());
            connection
        })
        .collect();
    // A few bytes of the other stream, so that no cursor behind them is a round number.
    daemon.begin_script("e", "printf abc >&2; cat f f");
    let mut heard = Heard::default();
    let (mut cursor, mut step) = (0, 1);
    while heard.exit.is_none() {
        let mut events = Events::follow(&daemon, "e", cursor);
        let enough = heard.bytes.len() + step;
        events.hear_until(&mut heard, |heard| heard.bytes.len() >= enough);
        cursor = events.cursor();
        step = step * 3 / 2 + 1000;
        // What has come since is in the socket, cut anywhere, and is lost with it.
        drop(events);
    }
    heard.is_whole();
    assert_eq!(heard.of(Stream::Stderr), b"abc");
    let stdout = heard.of(Stream::Stdout);
    assert!(stdout == bytes.repeat(2), "the output differs");
    drop(load);
    daemon.post("/v1/exec/load/kill").is(200);
}

fn wish_4_a_reconnect_to_a_frozen_daemon_loses_and_repeats_nothing(driver: Driver) {
    let daemon = holding(driver, 16 * MIB);
    let bytes = noise(MIB);
    std::fs::write(daemon.path("f"), &bytes).expect("the scratch directory is ours");
    daemon.begin_script(
        "e",
        "printf abc >&2; cat f; while [ ! -e go ]; do sleep 0.01; done; cat f",
    );
    let mut heard = Heard::default();
    let mut events = Events::follow(&daemon, "e", 0);
    events.hear_until(&mut heard, |heard| heard.bytes.len() >= MIB / 2);
    let cursor = events.cursor();
    daemon.signal(Signal::STOP);
    wait_until("the daemon stands still", || {
        stat(daemon.pid()).is_some_and(|fields| fields[0] == "T")
    });
    drop(events);
    std::fs::write(daemon.path("go"), "").expect("the scratch directory is ours");
    let mut connection = daemon.connect();
    connection.send(Events::request("e", cursor).bytes());
    daemon.signal(Signal::CONT);
    Events::answered(connection, cursor).hear_until(&mut heard, |_| false);
    heard.is_whole();
    assert_eq!(heard.of(Stream::Stderr), b"abc");
    let stdout = heard.of(Stream::Stdout);
    assert!(stdout == bytes.repeat(2), "the output differs");
}

fn wish_5_an_expired_cursor_is_told_of_and_a_held_one_is_served(driver: Driver) {
    // Whatever else keeps output is off: what is held is the window, to the byte.
    let daemon = Setup::new(driver)
        .flag("--stream-buffer-bytes", "5000")
        .env("RINGD_STREAM_SPILL_BYTES", "0")
        .ready();
    std::fs::write(daemon.path("f"), noise(20_000)).expect("the scratch directory is ours");
    daemon.begin("e", &json!({"command": ["cat", "f"]}));
    ended(&daemon, "e");
    for (offset, gap, first) in [
        (0, Some((0, 15_000)), 15_000),
        (14_999, Some((14_999, 15_000)), 15_000),
        (15_000, None, 15_000),
        (15_001, None, 15_001),
        (19_999, None, 19_999),
        (20_000, None, 20_000),
    ] {
        let heard = Events::follow(&daemon, "e", offset).rest();
        assert_eq!(heard.gaps, Vec::from_iter(gap), "from {offset}");
        assert!(heard.bytes == noise(20_000)[first..], "from {offset}");
        assert_eq!(heard.exit.expect("it has ended")["offset"], 20_000);
    }
    // A cursor that expires while its follower is there is told of as well: `Events` fails on a silent move.
    let mut connection = daemon.connect();
    daemon.begin_script(
        "live",
        "echo first; while [ ! -e go ]; do sleep 0.01; done; cat f f f f f f f f f f",
    );
    connection.send(Events::request("live", 0).bytes());
    std::fs::write(daemon.path("go"), "").expect("the scratch directory is ours");
    ended(&daemon, "live");
    let heard = Events::answered(connection, 0).rest();
    let missing: u64 = heard.gaps.iter().map(|(from, to)| to - from).sum();
    assert_eq!(heard.bytes.len() as u64 + missing, 200_006);
}

fn wish_6_a_stalled_follower_slows_neither_the_child_nor_the_others(driver: Driver) {
    let daemon = holding(driver, 16 * MIB);
    let bytes = noise(MIB);
    std::fs::write(daemon.path("f"), &bytes).expect("the scratch directory is ours");
    let script = "while [ ! -e go ]; do sleep 0.01; done; cat f f f";
    daemon.begin_script("e", script);
    // These ask and do not read: a Unix socket takes some 200 KB. What they cost in memory is in `fan_out`.
    let stalled: Vec<Connection> = (0..5)
        .map(|_| {
            let mut connection = daemon.connect_to(1);
            connection.send(Events::request("e", 0).bytes());
            connection
        })
        .collect();
    let mut events = Events::follow(&daemon, "e", 0);
    std::fs::write(daemon.path("go"), "").expect("the scratch directory is ours");
    let heard = events.rest();
    heard.is_whole();
    assert!(
        heard.of(Stream::Stdout) == bytes.repeat(3),
        "the output differs"
    );
    daemon.exited("e");
    for connection in stalled {
        assert!(Events::answered(connection, 0).rest() == heard);
    }
}

fn wish_7_bytes_are_bytes(driver: Driver) {
    let daemon = holding(driver, 16 * MIB);
    let every: Vec<u8> = (0..=255).collect();
    // A line longer than any buffer, characters that no chunk edge respects, and no newline at the end.
    let line = vec![b'x'; 2 * MIB];
    let characters = "aü€😀".repeat(50_000).into_bytes();
    let escapes = b"\0\x1b[31m\r\n\r\r\n\n\0 data: x\n\nevent: exit\n\n".to_vec();
    for (name, bytes) in [
        ("every", every),
        ("line", line),
        ("characters", characters),
        ("escapes", escapes),
    ] {
        std::fs::write(daemon.path(name), &bytes).expect("the scratch directory is ours");
        daemon.begin_script(name, &format!("cat {name}; cat {name} >&2"));
        let heard = Events::follow(&daemon, name, 0).rest();
        heard.is_whole();
        assert!(heard.of(Stream::Stdout) == bytes, "{name}: stdout differs");
        assert!(heard.of(Stream::Stderr) == bytes, "{name}: stderr differs");
        let result = daemon.exited(name);
        let text = String::from_utf8_lossy(&bytes);
        assert!(result["stdout"] == *text, "{name}: the result differs");
        assert_eq!(result["truncated"], false);
    }
}

fn wish_8_truncated_is_honest_and_each_stream_has_its_budget(driver: Driver) {
    let daemon = Setup::new(driver)
        .flag("--max-output-bytes", "1000")
        .ready();
    for (out, err, truncated) in [
        (1000, 1000, false),
        (1001, 1000, true),
        (1000, 1001, true),
        (0, 100_000, true),
        (0, 0, false),
    ] {
        let id = format!("{out}-{err}");
        let script = format!("head -c {out} /dev/zero; head -c {err} /dev/zero >&2");
        daemon.begin_script(&id, &script);
        let result = daemon.exited(&id);
        assert_eq!(result["truncated"], truncated, "{id}");
        assert_eq!(result["stdout"], "\0".repeat(out.min(1000)), "{id}");
        assert_eq!(result["stderr"], "\0".repeat(err.min(1000)), "{id}");
        // The stream tells the same of the result, and lacks nothing itself.
        let heard = Events::follow(&daemon, &id, 0).rest();
        heard.is_whole();
        assert_eq!(heard.exit.expect("it has ended")["truncated"], truncated);
        assert_eq!(heard.bytes.len(), out + err);
    }
}

fn wish_8_what_came_before_a_timeout_is_kept(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let script = "echo kept; echo this too >&2; sleep 1000";
    let limited = json!({"shell": true, "command": [script], "timeout_sec": 1});
    daemon.begin("e", &limited);
    let heard = Events::follow(&daemon, "e", 0).rest();
    let result = daemon.exited("e");
    assert_eq!(result["timed_out"], true, "{result}");
    assert_eq!(result["stdout"], "kept\n");
    assert_eq!(result["stderr"], "this too\n");
    assert_eq!(result["truncated"], false);
    assert_eq!(heard.of(Stream::Stdout), b"kept\n");
    assert_eq!(heard.exit.expect("it has ended")["timed_out"], true);
}

fn wish_9_no_size_of_output_is_a_cliff(driver: Driver) {
    let daemon = Setup::new(driver)
        .flag("--stream-buffer-bytes", (64 * MIB).to_string())
        .flag("--max-output-bytes", (64 * MIB).to_string())
        .ready();
    let whole = noise(17 * MIB);
    std::fs::write(daemon.path("f"), &whole).expect("the scratch directory is ours");
    let edges = [1, 4096, 16_384, 50_000, 65_536, MIB];
    let around = edges.iter().flat_map(|edge| [edge - 1, *edge, edge + 1]);
    for size in around.chain([17 * MIB]) {
        let id = size.to_string();
        daemon.begin(&id, &json!({"command": ["head", "-c", id, "f"]}));
        let heard = Events::follow(&daemon, &id, 0).rest();
        heard.is_whole();
        assert!(heard.bytes == whole[..size], "{size}: the output differs");
    }
    // One document of 33 MiB.
    daemon.begin_script("text", "head -c 34603008 /dev/zero | tr '\\0' x");
    ended(&daemon, "text");
    let result = daemon.poll("text").is(200).json();
    let text = result["stdout"].as_str().expect("a string");
    assert_eq!(text.len(), 33 * MIB);
    assert_eq!(result["truncated"], false);
}

fn wish_9_no_size_of_input_is_a_cliff(driver: Driver) {
    let daemon = Daemon::ready(driver);
    // A request of many times 64 KB, in arguments of at most 128 KB each: that is the kernel's own limit.
    for (count, size) in [(1, 50_000), (1, 65_536), (1, 131_071), (12, 131_000)] {
        let word = "w".repeat(size);
        let mut command = vec!["-c", "shift; printf %s \"$@\" | wc -c", "sh", "-"];
        command.extend(vec![word.as_str(); count]);
        command.insert(0, "sh");
        let printed = daemon.output(&json!({"command": command}));
        assert_eq!(printed.trim(), (count * size).to_string());
    }
    daemon.begin("cat", &json!({"command": ["cat"], "stdin": true}));
    let mut sent = 0;
    for size in [1, 49_152, 65_535, 65_536, 65_537, MIB] {
        let encoded = encoded(&noise(size));
        let request = Request::post("/v1/exec/cat/stdin").bearer();
        let reply = daemon
            .call(&request.json(&json!({"data_b64": encoded})))
            .is(200);
        assert_eq!(reply.json()["written"], size);
        sent += size;
    }
    let request = Request::post("/v1/exec/cat/stdin").bearer();
    daemon
        .call(&request.json(&json!({"signal": "eof"})))
        .is(200);
    ended(&daemon, "cat");
    let total = daemon.exited("cat");
    assert_eq!(total["truncated"], false);
    let exit = Events::follow(&daemon, "cat", u64::MAX).rest().exit;
    assert_eq!(exit.expect("it has ended")["offset"], sent);
}

/// A daemon that can replay this much, with a second listener on a Unix socket.
fn holding(driver: Driver, bytes: usize) -> Daemon {
    let setup = Setup::new(driver).flag("--stream-buffer-bytes", bytes.to_string());
    let socket = format!("unix://{}", setup.path("socket").display());
    setup.listen("tcp://127.0.0.1:0").listen(socket).ready()
}

/// Waits for the end of an exec without asking for its output.
#[track_caller]
fn ended(daemon: &Daemon, id: &str) {
    let mut events = Events::follow(daemon, id, u64::MAX);
    assert!(matches!(events.next(), Some(Event::Exit(_))));
}

fn encoded(bytes: &[u8]) -> String {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}
