//! Uploads whose parts come in any order, on many connections at once.

use std::fs;
use std::thread;

use rustix::process::{Pid, Resource, Rlimit};
use serde_json::{Value, json};

use crate::daemon::{Daemon, Setup};
use crate::driver::Driver;
use crate::process::wait_until;
use crate::request::{Request, file_at, with_path};
use crate::resumable::{append, ask, began, begin_parallel, digest, list, offset, patch, status};
use crate::scratch::{names, noise};

both![
    sixteen_parts_at_once_out_of_order_and_with_retries_make_one_file,
    what_is_missing_is_told_and_keeps_the_upload_open,
    a_part_that_breaks_off_counts_as_far_as_it_came,
    a_part_that_comes_again_takes_over_from_the_first_try,
    parts_that_do_not_overlap_leave_each_other_alone,
    a_bad_part_takes_what_it_overwrote_with_it,
    a_part_that_cannot_be_written_takes_what_it_may_have_overwritten_with_it,
    a_part_that_does_not_fit_changes_nothing,
    the_last_part_may_say_so,
    what_the_whole_is_to_be_can_be_mended,
    an_end_that_is_said_twice_at_once_is_one_end,
    cancelling_ends_every_part,
];

/// A part of a parallel upload.
fn part(upload: &str, at: usize, bytes: &[u8]) -> Request {
    Request::new("PATCH", upload)
        .bearer()
        .field("content-type", "application/partial-upload")
        .field("upload-offset", at.to_string())
        .body(bytes)
}

fn finish(daemon: &Daemon, upload: &str) -> crate::reply::Reply {
    daemon.post(format!("{upload}/finish"))
}

fn sixteen_parts_at_once_out_of_order_and_with_retries_make_one_file(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let before = daemon.at_rest();
    let bytes = noise(16 * 700_001);
    let target = with_path("/v1/uploads", daemon.path("f"));
    let request = Request::post(format!("{target}&parallel=1&mode=600")).bearer();
    let request = request.field("upload-length", bytes.len().to_string());
    let upload = began(&daemon.call(&request.field("repr-digest", digest(&bytes))));
    thread::scope(|scope| {
        for number in 0..16_usize {
            // Neighbours in time are far apart in the file.
            let at = (number * 7 % 16) * 700_001;
            let (address, upload) = (daemon.addresses()[0].clone(), &upload);
            let bytes = &bytes[at..at + 700_001];
            scope.spawn(move || {
                let mut retry = address.connect().expect("it listens");
                // A first try that breaks off, and comes again while the daemon still waits for it.
                let _first = (number % 3 == 0).then(|| {
                    let mut connection = address.connect().expect("it listens");
                    let request = part(upload, at, bytes).field("expect", "100-continue");
                    connection.send(request.head());
                    // Only who has been asked for the bytes is surely here before the second try.
                    assert_eq!(connection.head().expect("it is invited").status, 100);
                    connection.send(&bytes[..bytes.len() / 2]);
                    connection
                });
                let digest = digest(bytes);
                let reply = retry.call(&part(upload, at, bytes).field("content-digest", digest));
                reply.is(204);
                if number % 4 == 0 {
                    retry.call(&part(upload, at, bytes)).is(204);
                }
            });
        }
    });
    assert_eq!(ask(&daemon, &upload).field("upload-missing"), None);
    assert_eq!(offset(&daemon, &upload), bytes.len());
    assert_eq!(names(&daemon.path("")), [""; 0]);
    let reply = finish(&daemon, &upload).bare(204);
    assert_eq!(reply.field("upload-complete"), Some("?1"));
    assert!(fs::read(daemon.path("f")).expect("it is there") == bytes);
    assert_eq!(crate::scratch::mode(&daemon.path("f")), 0o600);
    daemon.holds_at_most(before);
}

fn what_is_missing_is_told_and_keeps_the_upload_open(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let bytes = noise(1000);
    let upload = begin_parallel(&daemon, "f", 1000);
    daemon.call(&part(&upload, 100, &bytes[100..200])).is(204);
    let reply = daemon.call(&part(&upload, 900, &bytes[900..])).is(204);
    assert_eq!(reply.field("upload-offset"), Some("0"));
    daemon.call(&part(&upload, 0, &bytes[..50])).is(204);
    let asked = ask(&daemon, &upload).bare(204);
    assert_eq!(asked.field("upload-missing"), Some("bytes=50-99,200-899"));
    assert_eq!(asked.field("upload-offset"), Some("50"));
    assert_eq!(asked.field("upload-length"), Some("1000"));
    let told = status(&daemon, &upload);
    assert_eq!(
        told["missing"],
        json!([{"first": 50, "last": 99}, {"first": 200, "last": 899}])
    );
    assert_eq!(told["missing_truncated"], false);
    assert_eq!(told["received"], 250);
    let last = patch(&upload, 1000, "?1");
    for request in [Request::post(format!("{upload}/finish")).bearer(), last] {
        let reply = daemon.call(&request).is(409);
        assert_eq!(reply.field("upload-offset"), Some("50"));
        assert_eq!(reply.field("upload-missing"), Some("bytes=50-99"));
        assert_eq!(
            reply.json(),
            json!({"error": "upload_incomplete", "detail": "bytes 50-99 are missing"})
        );
        assert_eq!(names(&daemon.path("")), [""; 0]);
    }
    daemon.call(&part(&upload, 50, &bytes[50..100])).is(204);
    daemon.call(&part(&upload, 150, &bytes[150..950])).is(204);
    finish(&daemon, &upload).bare(204);
    assert!(fs::read(daemon.path("f")).expect("it is there") == bytes);
    // Many gaps are told in part.
    let upload = begin_parallel(&daemon, "g", 10_000);
    let mut connection = daemon.connect();
    for at in (0..2200).step_by(2) {
        connection.call(&part(&upload, at, b"x")).is(204);
    }
    let asked = ask(&daemon, &upload);
    let missing = asked.field("upload-missing").expect("gaps");
    assert_eq!(missing.split(',').count(), 64);
    let told = status(&daemon, &upload);
    assert_eq!(told["missing"].as_array().map(Vec::len), Some(1024));
    assert_eq!(told["missing_truncated"], true);
}

fn a_part_that_breaks_off_counts_as_far_as_it_came(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let bytes = noise(2_000_000);
    let upload = begin_parallel(&daemon, "f", bytes.len());
    let mut connection = daemon.connect();
    let request = part(&upload, 500_000, &bytes[500_000..]).bytes();
    connection.send(&request[..request.len() - 400_000]);
    drop(connection);
    wait_until("it has ended", || {
        let entry = &list(&daemon)[0];
        entry["requests"] == 0 && entry["received"] != 0
    });
    let asked = ask(&daemon, &upload);
    assert_eq!(
        asked.field("upload-missing"),
        Some("bytes=0-499999,1600000-1999999")
    );
    daemon
        .call(&part(&upload, 1_600_000, &bytes[1_600_000..]))
        .is(204);
    daemon.call(&part(&upload, 0, &bytes[..500_000])).is(204);
    finish(&daemon, &upload).is(204);
    assert!(fs::read(daemon.path("f")).expect("it is there") == bytes);
}

fn a_part_that_comes_again_takes_over_from_the_first_try(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let bytes = noise(900_000);
    let wrong = vec![0; 900_000];
    let upload = begin_parallel(&daemon, "f", bytes.len());
    let mut stalled = daemon.connect();
    let request = part(&upload, 0, &wrong).bytes();
    let (most, last) = request.split_at(request.len() - 100_000);
    stalled.send(most);
    wait_until("it is under way", || list(&daemon)[0]["requests"] == 1);
    daemon.call(&part(&upload, 0, &bytes)).is(204);
    // What the first one still sends comes too late.
    let _ = stalled.try_send(last);
    let refused = stalled.reply().is(409);
    assert_eq!(refused.json()["error"], "in_use");
    finish(&daemon, &upload).is(204);
    assert!(fs::read(daemon.path("f")).expect("it is there") == bytes);
}

fn parts_that_do_not_overlap_leave_each_other_alone(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let bytes = noise(300_000);
    let upload = begin_parallel(&daemon, "f", bytes.len());
    let mut connections = Vec::new();
    for at in [0, 100_000, 200_000] {
        let mut connection = daemon.connect();
        let request = part(&upload, at, &bytes[at..at + 100_000]).bytes();
        let (most, last) = request.split_at(request.len() - 1);
        connection.send(most);
        connections.push((connection, last.to_vec()));
    }
    wait_until("all are under way", || list(&daemon)[0]["requests"] == 3);
    assert_eq!(offset(&daemon, &upload), 0);
    let transfers = daemon.get("/v1/transfers").is(200).json();
    let shown = transfers.to_string();
    assert_eq!(shown.matches("uploads.append").count(), 3, "{shown}");
    // While parts are under way that are missing, the end is refused and they go on.
    finish(&daemon, &upload).is(409);
    for (connection, last) in &mut connections {
        connection.send(&last);
        connection.reply().is(204);
    }
    finish(&daemon, &upload).is(204);
    assert!(fs::read(daemon.path("f")).expect("it is there") == bytes);
}

fn a_bad_part_takes_what_it_overwrote_with_it(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let bytes = noise(3_000_000);
    let upload = begin_parallel(&daemon, "f", bytes.len());
    daemon.call(&part(&upload, 0, &bytes)).is(204);
    let wrong = vec![0; 2_000_000];
    let bad = part(&upload, 500_000, &wrong).field("content-digest", digest(b"other"));
    daemon.call(&bad).is(400);
    let asked = ask(&daemon, &upload);
    let missing = asked.field("upload-missing").expect("a gap").to_owned();
    let (first, last) = missing
        .strip_prefix("bytes=")
        .and_then(|range| range.split_once('-'))
        .expect("one range");
    assert_eq!(first, "500000");
    let last: usize = last.parse().expect("a number");
    assert!(last < 2_500_000, "{missing}");
    finish(&daemon, &upload).is(409);
    daemon
        .call(&part(&upload, 500_000, &bytes[500_000..=last]))
        .is(204);
    finish(&daemon, &upload).is(204);
    assert!(fs::read(daemon.path("f")).expect("it is there") == bytes);
}

fn a_part_that_cannot_be_written_takes_what_it_may_have_overwritten_with_it(driver: Driver) {
    let shell = ["/bin/sh", "-c", "trap '' XFSZ && exec \"$@\"", "sh"];
    let daemon = Setup::new(driver).under(&shell).ready();
    let upload = begin_parallel(&daemon, "f", 900_000);
    daemon.call(&part(&upload, 0, &noise(900_000))).is(204);
    assert_eq!(status(&daemon, &upload)["missing"], json!([]));
    // No file may be longer any more, so that a write ends half way.
    let most = Rlimit {
        current: Some(400_000),
        maximum: Some(400_000),
    };
    let daemon_pid = Pid::from_raw(daemon.pid());
    rustix::process::prlimit(daemon_pid, Resource::Fsize, most).expect("it is ours");
    daemon.call(&part(&upload, 0, &vec![0; 900_000])).is(500);
    let missing = status(&daemon, &upload)["missing"].clone();
    assert_eq!(missing.as_array().map(Vec::len), Some(1), "{missing}");
    let first = missing[0]["first"].as_u64().expect("a number");
    let last = missing[0]["last"].as_u64().expect("a number");
    assert!(first < 400_000 && last >= 400_000, "{missing}");
    finish(&daemon, &upload).is(409);
}

fn a_part_that_does_not_fit_changes_nothing(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let upload = begin_parallel(&daemon, "f", 1000);
    daemon.call(&part(&upload, 10, b"text")).is(204);
    let before = status(&daemon, &upload)["missing"].clone();
    let chunked = Request::new("PATCH", &*upload)
        .bearer()
        .field("upload-offset", "990");
    for request in [
        part(&upload, 990, &noise(11)),
        part(&upload, 1001, &[]),
        part(&upload, 999_999_999_999_999, b"x"),
        chunked.chunks([noise(5), noise(6)]),
        part(&upload, 0, b"x").field("upload-length", "999"),
    ] {
        let reply = daemon.call(&request).is(400);
        let document: Value = serde_json::from_slice(&reply.body).expect("a document");
        assert_eq!(document["error"], "inconsistent_length", "{request:?}");
        assert_eq!(status(&daemon, &upload)["missing"], before, "{request:?}");
    }
}

fn the_last_part_may_say_so(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let bytes = noise(1000);
    let upload = begin_parallel(&daemon, "f", 1000);
    daemon.call(&part(&upload, 500, &bytes[500..])).is(204);
    let reply = append(&daemon, &upload, 0, true, &bytes[..500]).bare(204);
    assert_eq!(reply.field("upload-complete"), Some("?1"));
    assert!(fs::read(daemon.path("f")).expect("it is there") == bytes);
    assert!(daemon.get(file_at(daemon.path("f"))).is(200).body == bytes);
}

fn what_the_whole_is_to_be_can_be_mended(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let bytes = noise(1_000_000);
    let upload = begin_parallel(&daemon, "f", bytes.len());
    daemon.call(&part(&upload, 0, &bytes)).is(204);
    daemon.call(&part(&upload, 1000, b"wrong")).is(204);
    let end = Request::post(format!("{upload}/finish")).bearer();
    let end = end.field("repr-digest", digest(&bytes));
    for _ in 0..2 {
        daemon.call(&end).is(400);
        assert_eq!(names(&daemon.path("")), [""; 0]);
    }
    daemon
        .call(&part(&upload, 1000, &bytes[1000..1005]))
        .is(204);
    daemon.call(&end).is(204);
    assert!(fs::read(daemon.path("f")).expect("it is there") == bytes);
}

fn an_end_that_is_said_twice_at_once_is_one_end(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let bytes = noise(8_000_000);
    let upload = begin_parallel(&daemon, "f", bytes.len());
    daemon.call(&part(&upload, 0, &bytes)).is(204);
    let end = Request::post(format!("{upload}/finish")).bearer();
    let end = end.field("repr-digest", digest(&bytes)).bytes();
    let mut connections: Vec<_> = (0..2).map(|_| daemon.connect()).collect();
    for connection in &mut connections {
        connection.send(&end);
    }
    for mut connection in connections {
        connection.reply().bare(204);
    }
    assert!(fs::read(daemon.path("f")).expect("it is there") == bytes);
}

fn cancelling_ends_every_part(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let before = daemon.at_rest();
    let upload = begin_parallel(&daemon, "f", 300_000);
    let mut connections = Vec::new();
    for at in [0, 100_000, 200_000] {
        let mut connection = daemon.connect();
        let request = part(&upload, at, &noise(100_000)).bytes();
        connection.send(&request[..request.len() - 1]);
        connections.push(connection);
    }
    wait_until("all are under way", || list(&daemon)[0]["requests"] == 3);
    daemon
        .call(&Request::new("DELETE", &*upload).bearer())
        .bare(204);
    for mut connection in connections {
        connection.reply().is(409);
    }
    assert!(list(&daemon).is_empty());
    assert_eq!(names(&daemon.path("")), [""; 0]);
    daemon.holds_at_most(before);
}
