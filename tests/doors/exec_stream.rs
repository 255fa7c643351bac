//! What followers are told, however far behind they are: memory first, then the disk, then a gap (D17).

use serde_json::json;

use crate::daemon::{Daemon, Setup};
use crate::driver::Driver;
use crate::events::{Event, Events, Heard, Stream};
use crate::frames::Frames;
use crate::process::{self, wait_until};
use crate::request::Request;

both![
    frames_tell_the_same_as_events,
    frames_are_for_those_who_ask_for_nothing_else,
    a_silence_is_broken_in_both_forms,
    a_silent_follower_that_has_reset_is_noticed_before_the_next_comment,
    output_beyond_memory_is_held_on_disk,
    output_is_resumed_at_any_byte_wherever_it_is_held,
    a_gap_comes_only_past_memory_and_disk,
    without_a_file_the_gap_is_exact,
    a_follower_that_stalls_goes_on_from_the_oldest_byte_held,
    all_files_together_keep_their_bound,
    the_reserve_of_the_disk_is_respected,
    a_full_disk_costs_a_gap_and_nothing_else,
    a_file_goes_with_its_exec,
    what_many_late_followers_read_from_disk_is_whole,
    a_client_of_the_old_protocol_is_told_without_chunks,
];

fn frames_tell_the_same_as_events(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let script =
        "printf 'a\\0b\\033\\377'; echo err >&2; head -c 300000 /dev/zero; echo end; exit 3";
    daemon.begin_script("e", script);
    let live = Frames::follow(&daemon, "e", 0).rest();
    daemon.exited("e");
    let framed = Frames::follow(&daemon, "e", 0).rest();
    let told = Events::follow(&daemon, "e", 0).rest();
    assert!(framed == told && live == told);
    assert_eq!(told.exit.expect("it has ended")["exit_code"], 3);
    assert_eq!(told.bytes.len(), 5 + 4 + 300_000 + 4);
}

fn frames_are_for_those_who_ask_for_nothing_else(driver: Driver) {
    let daemon = Daemon::ready(driver);
    daemon.begin("e", &json!({"command": ["true"]}));
    daemon.exited("e");
    let (events, frames) = ("text/event-stream", "application/octet-stream");
    for (accept, expected) in [
        ("*/*", events),
        ("text/event-stream", events),
        ("application/octet-stream", frames),
        ("Application/Octet-Stream;q=0.9", frames),
        ("text/plain, application/octet-stream", frames),
        ("application/octet-stream, text/event-stream", events),
        ("application/octet-streams", events),
        ("application/octet-stream, */*", events),
        ("application/octet-stream, text/*;q=0.1", events),
        ("application/octet-stream;q=0", events),
        ("text/event-stream;q=0, application/octet-stream", frames),
        ("application/octet-stream, */*;q=0.0", frames),
    ] {
        let request = Events::request("e", 0).field("accept", accept);
        let reply = daemon.call(&request).is(200);
        assert_eq!(reply.field("content-type"), Some(expected), "{accept}");
    }
}

fn a_silence_is_broken_in_both_forms(driver: Driver) {
    let daemon = Setup::new(driver).flag("--sse-keepalive", "0.02").ready();
    daemon.begin("e", &json!({"command": ["cat"], "stdin": true}));
    let mut framed = Frames::follow(&daemon, "e", 0);
    let mut told = Events::follow(&daemon, "e", 0);
    for _ in 0..3 {
        assert_eq!(framed.next(), Some(Event::Comment(String::new())));
        assert_eq!(told.next(), Some(Event::Comment(String::new())));
    }
    let eof = Request::post("/v1/exec/e/stdin").bearer();
    daemon.call(&eof.json(&json!({"signal": "eof"}))).is(200);
    told.rest().is_whole();
    framed.rest().is_whole();
}

fn a_silent_follower_that_has_reset_is_noticed_before_the_next_comment(driver: Driver) {
    let daemon = Setup::new(driver)
        .flag("--sse-keepalive", "3600")
        .listen("127.0.0.1:0")
        .ready();
    daemon.begin("e", &json!({"command": ["sleep", "1000"]}));
    let before = daemon.at_rest();
    let followers: Vec<_> = (0..5)
        .map(|_| {
            let mut connection = daemon.connect();
            connection.send(Events::request("e", 0).bytes());
            connection.head().expect("it is followed");
            connection
        })
        .collect();
    assert!(daemon.descriptors() >= before + 5);
    followers
        .into_iter()
        .for_each(|connection| connection.reset());
    daemon.holds_at_most(before);
}

/// A daemon that holds little in memory.
fn forgetful(driver: Driver, spill: u64) -> Setup {
    Setup::new(driver)
        .flag("--stream-buffer-bytes", MEMORY.to_string())
        .flag("--stream-spill-bytes", spill.to_string())
        .flag("--disk-reserve-bytes", "0")
}

const MEMORY: usize = 64 << 10;

/// Runs an exec that numbers its bytes by lines, and returns what it wrote.
fn count(daemon: &Daemon, id: &str, lines: usize) -> Vec<u8> {
    let command = json!({"command": ["seq", "-f", "%015.0f", "1", lines.to_string()]});
    daemon.begin(id, &command);
    daemon.exited(id);
    counted(lines)
}

fn counted(lines: usize) -> Vec<u8> {
    let lines = (1..=lines).map(|number| format!("{number:015}\n"));
    lines.collect::<String>().into_bytes()
}

fn output_beyond_memory_is_held_on_disk(driver: Driver) {
    let daemon = forgetful(driver, 8 << 20).ready();
    let expected = count(&daemon, "e", 500_000);
    for heard in [
        Events::follow(&daemon, "e", 0).rest(),
        Frames::follow(&daemon, "e", 0).rest(),
    ] {
        heard.is_whole();
        assert!(heard.bytes == expected);
    }
    // It is on disk, and no name leads there.
    let files = deleted_files(&daemon);
    assert!(!files.is_empty());
    let temporary = daemon.temporary();
    let names = std::fs::read_dir(temporary).expect("it is there");
    assert_eq!(names.count(), 0);
}

/// The sizes of the daemon's open files that no name leads to, each file once.
fn deleted_files(daemon: &Daemon) -> Vec<u64> {
    use std::os::unix::fs::MetadataExt;
    let entries = std::fs::read_dir(format!("/proc/{}/fd", daemon.pid())).expect("it runs");
    let found = entries.filter_map(|entry| {
        let meta = std::fs::metadata(entry.ok()?.path()).ok()?;
        let is_unnamed = meta.is_file() && meta.nlink() == 0;
        is_unnamed.then(|| (meta.ino(), meta.len()))
    });
    let files: std::collections::BTreeMap<u64, u64> = found.collect();
    files.into_values().collect()
}

fn output_is_resumed_at_any_byte_wherever_it_is_held(driver: Driver) {
    let daemon = forgetful(driver, 2 << 20).ready();
    let expected = count(&daemon, "e", 100_000);
    let memory = expected.len() - MEMORY;
    let middles = (0..20).map(|step| step * 79_999);
    let edges = [
        memory - 1,
        memory,
        memory + 1,
        expected.len() - 1,
        expected.len(),
    ];
    for offset in middles
        .chain(edges)
        .filter(|offset| *offset <= expected.len())
    {
        let heard = Frames::follow(&daemon, "e", offset as u64).rest();
        assert!(heard.gaps.is_empty() && heard.bytes == expected[offset..]);
        let heard = Events::follow(&daemon, "e", offset as u64).rest();
        assert!(heard.gaps.is_empty() && heard.bytes == expected[offset..]);
    }
}

fn a_gap_comes_only_past_memory_and_disk(driver: Driver) {
    let spill = 1 << 20;
    let daemon = forgetful(driver, spill).ready();
    let expected = count(&daemon, "e", 500_000);
    for heard in [
        Events::follow(&daemon, "e", 5).rest(),
        Frames::follow(&daemon, "e", 5).rest(),
    ] {
        let [(5, to)] = heard.gaps[..] else {
            panic!("not one gap from 5 on: {:?}", heard.gaps);
        };
        let to = usize::try_from(to).expect("it fits");
        let held = expected.len() - to;
        assert!(held >= MEMORY + (1 << 20), "{held} bytes are held");
        assert!(held <= 2 * MEMORY + (1 << 20), "{held} bytes are held");
        assert!(heard.bytes == expected[to..]);
    }
    assert_eq!(deleted_files(&daemon), [spill]);
}

fn without_a_file_the_gap_is_exact(driver: Driver) {
    let daemon = Setup::new(driver).flag("--stream-spill-bytes", "0").ready();
    let command = json!({"command": ["head", "-c", "12582913", "/dev/zero"]});
    daemon.begin("e", &command);
    daemon.exited("e");
    let heard = Events::follow(&daemon, "e", 0).rest();
    assert_eq!(heard.gaps, [(0, 11_534_337)]);
    assert_eq!(heard.bytes.len(), 1_048_576);
    assert!(deleted_files(&daemon).is_empty());
}

fn a_follower_that_stalls_goes_on_from_the_oldest_byte_held(driver: Driver) {
    let daemon = forgetful(driver, 1 << 20).ready();
    let script = "read go; seq -f %015.0f 1 2000000";
    let request = json!({"shell": true, "command": [script], "stdin": true});
    daemon.begin("e", &request);
    let mut stalled = Events::follow(&daemon, "e", 0);
    let go = Request::post("/v1/exec/e/stdin").bearer();
    daemon.call(&go.json(&json!({"data_b64": "Cg=="}))).is(200);
    // Nothing is read until the exec has ended: the child does not wait for it.
    daemon.exited("e");
    let heard = stalled.rest();
    let expected = counted(2_000_000);
    let [(from, to)] = heard.gaps[..] else {
        panic!("not one gap: {:?}", heard.gaps);
    };
    let [from, to] = [from, to].map(|offset| usize::try_from(offset).expect("it fits"));
    assert!(expected.len() - to >= MEMORY + (1 << 20));
    let kept = [&expected[..from], &expected[to..]].concat();
    assert!(heard.bytes == kept);
}

fn all_files_together_keep_their_bound(driver: Driver) {
    let bound = 3 << 20;
    let setup = forgetful(driver, 2 << 20);
    let daemon = setup.flag("--max-spill-bytes", bound.to_string()).ready();
    for id in ["a", "b", "c"] {
        let expected = count(&daemon, id, 300_000);
        let heard = Events::follow(&daemon, id, 0).rest();
        let missing = expected.len() - heard.bytes.len();
        assert!(heard.bytes == expected[missing..]);
        assert!(heard.bytes.len() >= MEMORY);
        assert!(deleted_files(&daemon).iter().sum::<u64>() <= bound);
    }
}

fn the_reserve_of_the_disk_is_respected(driver: Driver) {
    let daemon = Setup::new(driver)
        .flag("--stream-buffer-bytes", MEMORY.to_string())
        .flag("--disk-reserve-bytes", (u64::MAX / 2).to_string())
        .ready();
    let expected = count(&daemon, "e", 100_000);
    let heard = Events::follow(&daemon, "e", 0).rest();
    let missing = expected.len() - heard.bytes.len();
    assert_eq!(heard.gaps, [(0, missing as u64)]);
    assert!(heard.bytes.len() >= MEMORY && heard.bytes.len() <= 2 * MEMORY);
    assert!(heard.bytes == expected[missing..]);
    assert_eq!(deleted_files(&daemon).iter().sum::<u64>(), 0);
}

fn a_full_disk_costs_a_gap_and_nothing_else(driver: Driver) {
    if !process::is_root("a filesystem of our own") {
        return;
    }
    let setup = forgetful(driver, 8 << 20);
    let small = setup.path("small");
    std::fs::create_dir(&small).expect("the directory is ours");
    let place = small.to_str().expect("it is text").to_owned();
    let mount = format!("-t tmpfs -o size=1m none '{place}'");
    let daemon = setup.flag("--spool-dir", place).with_mount(&mount).ready();
    let expected = count(&daemon, "e", 300_000);
    let polled = daemon.poll("e").json();
    assert_eq!(
        polled["stdout"].as_str().map(str::len),
        Some(expected.len())
    );
    let heard = Events::follow(&daemon, "e", 0).rest();
    let missing = expected.len() - heard.bytes.len();
    assert!(heard.bytes == expected[missing..]);
    // What the disk takes is used still.
    assert!(
        heard.bytes.len() > MEMORY + (256 << 10),
        "{}",
        heard.bytes.len()
    );
    assert!(deleted_files(&daemon).iter().sum::<u64>() <= 1 << 20);
}

fn a_file_goes_with_its_exec(driver: Driver) {
    let daemon = forgetful(driver, 8 << 20).flag("--exec-ttl", "0").ready();
    count(&daemon, "warm", 20_000);
    daemon.post("/v1/exec/warm/ack").is(200);
    wait_until("the first file is gone", || {
        deleted_files(&daemon).is_empty()
    });
    let before = daemon.at_rest();
    for id in ["a", "b", "c"] {
        count(&daemon, id, 50_000);
        Events::follow(&daemon, id, 0).rest().is_whole();
        daemon.post(format!("/v1/exec/{id}/ack")).is(200);
    }
    wait_until("no file is left", || deleted_files(&daemon).is_empty());
    daemon.holds_at_most(before);
}

fn what_many_late_followers_read_from_disk_is_whole(driver: Driver) {
    let daemon = forgetful(driver, 4 << 20).ready();
    let script = "seq -f %015.0f 1 60000; seq 1 9 >&2; seq -f %015.0f 60001 120000";
    daemon.begin_script("e", script);
    daemon.exited("e");
    let expected = counted(120_000);
    let heard: Vec<Heard> = std::thread::scope(|scope| {
        let read = |number: u64| {
            let connection = daemon.connect();
            scope.spawn(move || match number % 4 {
                0 => Frames::over(connection, "e", 0).rest(),
                _ => Events::over(connection, "e", 0).rest(),
            })
        };
        let readers: Vec<_> = (0..60).map(read).collect();
        let joined = readers.into_iter().map(|reader| reader.join());
        joined.map(|told| told.expect("it reads")).collect()
    });
    for told in &heard {
        told.is_whole();
        assert!(*told == heard[0], "they differ");
    }
    assert!(heard[0].of(Stream::Stdout) == expected);
}

fn a_client_of_the_old_protocol_is_told_without_chunks(driver: Driver) {
    let daemon = Daemon::ready(driver);
    daemon.begin_script("e", "echo hi; head -c 100000 /dev/zero");
    daemon.exited("e");
    let mut connection = daemon.connect();
    let request = Frames::request("e", 0).bytes();
    let request = String::from_utf8(request).expect("it is text");
    connection.send(request.replacen("HTTP/1.1", "HTTP/1.0", 1));
    let (bytes, _) = connection.rest();
    let head = bytes.windows(4).position(|four| four == b"\r\n\r\n");
    let body = &bytes[head.expect("a head") + 4..];
    assert_eq!(body[..4], [1, 1, 0, 0]);
    assert!(body.len() > 100_003 + 16 && body[16..19] == *b"hi\n");
    assert_eq!(body[body.len() - 1], b'}');
}
