//! What uploads in several requests cost: disk, descriptors, memory, and that all of it comes back.

use std::fs;

use rustix::process::Signal;

use crate::daemon::{Daemon, Setup};
use crate::driver::Driver;
use crate::process::{is_root, wait_until};
use crate::request::{Request, file_at};
use crate::resumable::{append, ask, began, begin, creation, digest, list, offset, patch};
use crate::scratch::{names, noise};

both![
    cancelling_frees_the_disk_and_ends_the_request_under_way,
    an_upload_that_is_idle_for_too_long_is_given_up,
    a_slow_upload_is_not_idle,
    a_disk_that_fills_up_keeps_what_has_arrived,
    the_reserve_is_kept_while_an_upload_grows,
    nothing_is_left_when_the_daemon_is_told_to_end,
    many_uploads_leave_no_descriptor_behind,
    memory_does_not_grow_with_an_upload,
];

fn cancelling_frees_the_disk_and_ends_the_request_under_way(driver: Driver) {
    let setup = Setup::new(driver);
    let place = setup.path("small");
    let Some(daemon) = with_small_disk(setup, "0") else {
        return;
    };
    let before = daemon.at_rest();
    let bytes = noise(10 << 20);
    for _ in 0..3 {
        let upload = begin(&daemon, "small/f", None);
        append(&daemon, &upload, 0, false, &bytes[..8 << 20]).is(204);
        let mut stalled = daemon.connect();
        let request = patch(&upload, 8 << 20, "?1")
            .body(&bytes[8 << 20..])
            .bytes();
        stalled.send(&request[..request.len() - 1]);
        wait_until("it is under way", || list(&daemon)[0]["requests"] == 1);
        daemon
            .call(&Request::new("DELETE", &*upload).bearer())
            .bare(204);
        stalled.reply().is(409);
        ask(&daemon, &upload).is(404);
        daemon
            .call(&Request::new("DELETE", &*upload).bearer())
            .is(404);
        // The disk holds 16 MiB, so the next round needs what this one has freed.
        daemon
            .put(file_at(place.join("g")), vec![0; 14 << 20])
            .is(204);
        daemon.put(file_at(place.join("g")), Vec::new()).is(204);
    }
    daemon.holds_at_most(before);
}

fn an_upload_that_is_idle_for_too_long_is_given_up(driver: Driver) {
    let setup = Setup::new(driver).flag("--upload-ttl", "0.3");
    let place = setup.path("small");
    let Some(daemon) = with_small_disk(setup, "0") else {
        return;
    };
    let before = daemon.at_rest();
    let upload = begin(&daemon, "small/f", None);
    append(&daemon, &upload, 0, false, &noise(10 << 20)).is(204);
    wait_until("it is given up", || list(&daemon).is_empty());
    let reply = append(&daemon, &upload, 10 << 20, true, &[]).is(404);
    assert_eq!(reply.json()["error"], "unknown_upload");
    wait_until("its disk is free", || {
        daemon
            .put(file_at(place.join("g")), vec![0; 14 << 20])
            .status
            == 204
    });
    daemon.holds_at_most(before);
}

fn a_slow_upload_is_not_idle(driver: Driver) {
    let daemon = Setup::new(driver).flag("--upload-ttl", "0.1").ready();
    // An upload of its own, begun later, is given up while the slow one goes on.
    let slow = begin(&daemon, "slow", None);
    let mut connection = daemon.connect();
    let bytes = patch(&slow, 0, "?1").body("text").bytes();
    connection.send(&bytes[..bytes.len() - 1]);
    wait_until("it is under way", || {
        list(&daemon).iter().any(|entry| entry["requests"] == 1)
    });
    let other = begin(&daemon, "other", None);
    // Asking would keep it alive, looking does not.
    wait_until("the other one is given up", || list(&daemon).len() == 1);
    ask(&daemon, &other).is(404);
    connection.send(&bytes[bytes.len() - 1..]);
    connection.reply().is(204);
    assert_eq!(fs::read(daemon.path("slow")).expect("it is there"), b"text");
}

fn a_disk_that_fills_up_keeps_what_has_arrived(driver: Driver) {
    let setup = Setup::new(driver);
    let place = setup.path("small");
    let Some(daemon) = with_small_disk(setup, "0") else {
        return;
    };
    daemon
        .put(file_at(place.join("g")), vec![0; 8 << 20])
        .is(204);
    let bytes = noise(12 << 20);
    let upload = begin(&daemon, "small/f", None);
    let reply = append(&daemon, &upload, 0, true, &bytes).is(507);
    assert_eq!(reply.json()["error"], "disk_full");
    let told = reply
        .field("upload-offset")
        .expect("where to go on")
        .to_owned();
    let arrived = offset(&daemon, &upload);
    assert_eq!(told, arrived.to_string());
    assert!(arrived > 6 << 20 && arrived < 9 << 20, "{arrived}");
    // When there is room again, the upload goes on.
    daemon.put(file_at(place.join("g")), Vec::new()).is(204);
    append(&daemon, &upload, arrived, true, &bytes[arrived..]).is(204);
    assert!(daemon.get(file_at(place.join("f"))).is(200).body == bytes);
}

fn the_reserve_is_kept_while_an_upload_grows(driver: Driver) {
    let setup = Setup::new(driver);
    let place = setup.path("small");
    let Some(daemon) = with_small_disk(setup, "10485760") else {
        return;
    };
    // What cannot fit is refused when it begins.
    let reply = daemon.call(&creation(&daemon, "small/dir/f", Some(13 << 20)));
    assert_eq!(reply.is(507).json()["error"], "disk_full");
    daemon
        .call(&Request::new("HEAD", file_at(place.join("dir"))).bearer())
        .is(404);
    let upload = begin(&daemon, "small/f", None);
    append(&daemon, &upload, 0, false, &noise(14 << 20)).is(507);
    let arrived = offset(&daemon, &upload);
    append(&daemon, &upload, arrived, false, b"x").is(507);
    assert_eq!(offset(&daemon, &upload), arrived);
    daemon
        .call(&Request::new("DELETE", &*upload).bearer())
        .is(204);
    daemon
        .put(file_at(place.join("g")), vec![0; 4 << 20])
        .is(204);
}

fn nothing_is_left_when_the_daemon_is_told_to_end(driver: Driver) {
    let mut daemon = Setup::new(driver).flag("--drain-timeout", "0.2").ready();
    let upload = begin(&daemon, "f", None);
    append(&daemon, &upload, 0, false, &noise(100_000)).is(204);
    let stalled_upload = begin(&daemon, "g", None);
    let mut stalled = daemon.connect();
    let request = patch(&stalled_upload, 0, "?1").body(noise(100_000)).bytes();
    stalled.send(&request[..request.len() - 1]);
    wait_until("it is under way", || list(&daemon)[1]["requests"] == 1);
    daemon.signal(Signal::TERM);
    assert!(daemon.wait().success());
    assert_eq!(names(&daemon.path("")), [""; 0]);
    assert_eq!(names(&daemon.temporary()), [""; 0]);
}

fn many_uploads_leave_no_descriptor_behind(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let before = daemon.at_rest();
    for round in 0..30 {
        let upload = begin(&daemon, "f", None);
        append(&daemon, &upload, 0, false, &noise(1000 * round)).is(204);
        append(&daemon, &upload, 1, false, b"x").is(409);
        match round % 3 {
            0 => append(&daemon, &upload, 1000 * round, true, b"x").is(204),
            1 => daemon.post(format!("{upload}/finish")).is(204),
            _ => daemon
                .call(&Request::new("DELETE", &*upload).bearer())
                .is(204),
        };
    }
    daemon.holds_at_most(before);
    assert_eq!(names(&daemon.path("")), ["f"]);
}

fn memory_does_not_grow_with_an_upload(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let bytes = noise(48 << 20);
    daemon.put(file_at(daemon.path("f")), bytes.clone()).is(204);
    let before = resident(&daemon);
    let request = creation(&daemon, "f", None).field("repr-digest", digest(&bytes));
    let upload = began(&daemon.call(&request));
    append(&daemon, &upload, 0, true, &bytes).is(204);
    let grown = resident(&daemon).saturating_sub(before);
    assert!(grown < 24 << 20, "{grown} bytes");
}

/// A daemon with 16 MiB of disk of its own at `small`; `None` where that cannot be had.
#[track_caller]
fn with_small_disk(setup: Setup, reserve: &str) -> Option<Daemon> {
    if !is_root("a disk of its own") {
        return None;
    }
    let place = setup.path("small");
    fs::create_dir(&place).expect("the scratch directory is ours");
    let mount = format!("-t tmpfs -o size=16m tmpfs {}", place.display());
    let setup = setup.flag("--disk-reserve-bytes", reserve);
    Some(setup.with_mount(&mount).ready())
}

/// The most memory that the daemon has had, in bytes.
fn resident(daemon: &Daemon) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", daemon.pid())).expect("it runs");
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    kilobytes.expect("the kernel tells") * 1024
}
