//! Changes told as they happen (`GET /v1/fs/watch`).

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::daemon::{Daemon, Setup};
use crate::driver::Driver;
use crate::paths::{mkdir, odd, rename};
use crate::process::{is_root, wait_until};
use crate::request::{Request, with_path};
use crate::watcher::{Watcher, watch_at};

both![
    a_watch_is_ready_before_anything_is_told,
    every_kind_of_change_is_told,
    only_what_is_asked_for_is_told,
    a_move_is_told_in_two_halves_that_belong_together,
    a_file_can_be_watched,
    writes_in_a_row_are_told_as_one_change,
    odd_names_are_told,
    a_link_is_watched_where_it_leads,
    the_end_of_what_is_watched_is_told,
    an_unmount_ends_a_watch,
    a_silent_watch_is_kept_alive,
    watches_are_bounded_and_given_back,
    a_watch_goes_with_its_client,
    a_daemon_that_leaves_ends_its_watches,
    what_cannot_be_watched_is_refused,
];

fn a_watch_is_ready_before_anything_is_told(driver: Driver) {
    let daemon = Daemon::ready(driver);
    fs::create_dir_all(daemon.path("d/e")).expect("ours");
    fs::write(daemon.path("d/old"), "").expect("ours");
    let mut connection = daemon.connect();
    connection.send(watch_at("d", "&recursive=1").bytes());
    connection.head().expect("a response").is(200);
    let first = connection
        .chunk(0)
        .expect("a chunk")
        .expect("the first event");
    assert_eq!(
        String::from_utf8_lossy(&first),
        "event: ready\ndata: {\"watches\":2}\n\n"
    );
    fs::write(daemon.path("d/new"), "").expect("ours");
    let next = connection
        .chunk(0)
        .expect("a chunk")
        .expect("the next event");
    let expected =
        "event: change\ndata: {\"path\":\"new\",\"kind\":\"created\",\"is_dir\":false}\n\n";
    assert!(
        next.starts_with(expected.as_bytes()),
        "{}",
        String::from_utf8_lossy(&next)
    );
}

fn every_kind_of_change_is_told(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let mut watcher = Watcher::start(&daemon, daemon.path(""), "");
    fs::write(daemon.path("f"), "x").expect("ours");
    watcher.tells(&["created f", "modified f", "closed_write f"]);
    fs::set_permissions(daemon.path("f"), fs::Permissions::from_mode(0o600)).expect("ours");
    watcher.tells(&["attributes f"]);
    fs::rename(daemon.path("f"), daemon.path("g")).expect("ours");
    watcher.tells(&["moved_from f", "moved_to g"]);
    fs::remove_file(daemon.path("g")).expect("ours");
    watcher.tells(&["deleted g"]);
    // Of our own doing, too.
    mkdir(&daemon, "d", "").bare(201);
    watcher.tells(&["created d/"]);
    rename(&daemon, "d", "e", &json!({})).bare(204);
    watcher.tells(&["moved_from d/", "moved_to e/"]);
    fs::remove_dir(daemon.path("e")).expect("ours");
    watcher.tells(&["deleted e/"]);
}

fn only_what_is_asked_for_is_told(driver: Driver) {
    let daemon = Daemon::ready(driver);
    for recursive in ["0", "1"] {
        let more = format!("&recursive={recursive}&events=deleted,closed_write");
        let mut watcher = Watcher::start(&daemon, daemon.path(""), &more);
        fs::create_dir(daemon.path("d")).expect("ours");
        fs::write(daemon.path("f"), "x").expect("ours");
        watcher.tells(&["closed_write f"]);
        fs::remove_file(daemon.path("f")).expect("ours");
        fs::remove_dir(daemon.path("d")).expect("ours");
        watcher.tells(&["deleted f", "deleted d/"]);
    }
}

fn a_move_is_told_in_two_halves_that_belong_together(driver: Driver) {
    let daemon = Daemon::ready(driver);
    fs::write(daemon.path("a"), "").expect("ours");
    let mut watcher = Watcher::start(
        &daemon,
        daemon.path(""),
        "&events=moved_from,moved_to,created",
    );
    fs::rename(daemon.path("a"), daemon.path("b")).expect("ours");
    fs::rename(daemon.path("b"), daemon.path("c")).expect("ours");
    fs::write(daemon.path("d"), "").expect("ours");
    let mut cookie = || watcher.next().expect("a change").1["cookie"].clone();
    let told = [cookie(), cookie(), cookie(), cookie(), cookie()];
    assert!(
        told[0].is_u64() && told[0] == told[1] && told[2] == told[3] && told[1] != told[2],
        "{told:?}"
    );
    assert_eq!(told[4], Value::Null);
}

fn a_file_can_be_watched(driver: Driver) {
    let daemon = Daemon::ready(driver);
    fs::write(daemon.path("f"), "").expect("ours");
    fs::write(daemon.path("g"), "").expect("ours");
    for more in ["", "&recursive=1"] {
        let mut watcher = Watcher::start(&daemon, daemon.path("f"), more);
        fs::write(daemon.path("g"), "x").expect("ours");
        fs::write(daemon.path("f"), "x").expect("ours");
        watcher.tells(&["modified "]);
    }
    let mut watcher = Watcher::start(&daemon, daemon.path("f"), "");
    fs::remove_file(daemon.path("f")).expect("ours");
    watcher.is_gone("deleted");
}

fn writes_in_a_row_are_told_as_one_change(driver: Driver) {
    use std::io::Write;
    let daemon = Daemon::ready(driver);
    let mut file = fs::File::create(daemon.path("f")).expect("ours");
    let mut watcher = Watcher::start(&daemon, daemon.path(""), "&events=modified,deleted");
    for _ in 0..10_000 {
        file.write_all(b"x").expect("ours");
    }
    fs::remove_file(daemon.path("f")).expect("ours");
    let mut count = 0;
    while watcher.change() == "modified f" {
        count += 1;
    }
    assert!((1..5000).contains(&count), "{count}");
}

fn odd_names_are_told(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let mut watcher = Watcher::start(&daemon, daemon.path(""), "&events=created");
    for name in ["a b", "a\n\nevent: gone", "\"\\", "ü😀"] {
        fs::write(daemon.path(name), "").expect("ours");
        watcher.tells(&[&format!("created {name}")]);
    }
    fs::write(odd(&daemon.path(""), b"\xff"), "").expect("ours");
    let (_, data) = watcher.next().expect("a change");
    assert_eq!(
        (&data["path"], &data["path_b64"]),
        (&json!("\u{fffd}"), &json!("/w=="))
    );
}

fn a_link_is_watched_where_it_leads(driver: Driver) {
    let daemon = Daemon::ready(driver);
    fs::create_dir(daemon.path("d")).expect("ours");
    symlink("d", daemon.path("l")).expect("ours");
    let mut watcher = Watcher::start(&daemon, daemon.path("l"), "&recursive=1&events=created");
    fs::write(daemon.path("d/f"), "").expect("ours");
    watcher.tells(&["created f"]);
    // Links below are told and not followed.
    fs::create_dir(daemon.path("outside")).expect("ours");
    symlink("../outside", daemon.path("d/out")).expect("ours");
    watcher.tells(&["created out"]);
    fs::write(daemon.path("outside/f"), "").expect("ours");
    watcher.is_silent(&daemon.path("d/mark"));
}

fn the_end_of_what_is_watched_is_told(driver: Driver) {
    let daemon = Daemon::ready(driver);
    for recursive in ["", "&recursive=1"] {
        fs::create_dir_all(daemon.path("d/e")).expect("ours");
        let mut watcher = Watcher::start(&daemon, "d", recursive);
        fs::write(daemon.path("d/f"), "").expect("ours");
        fs::remove_dir_all(daemon.path("d")).expect("ours");
        watcher.is_gone("deleted");
        fs::create_dir_all(daemon.path("d/e")).expect("ours");
        let mut watcher = Watcher::start(&daemon, "d", recursive);
        fs::rename(daemon.path("d"), daemon.path("moved")).expect("ours");
        watcher.is_gone("moved");
        fs::remove_dir_all(daemon.path("moved")).expect("ours");
    }
}

fn an_unmount_ends_a_watch(driver: Driver) {
    if !is_root("a mount of the daemon's own") {
        return;
    }
    let setup = Setup::new(driver);
    fs::create_dir(setup.path("m")).expect("ours");
    let mount = format!("-t tmpfs tmpfs {}", setup.path("m").display());
    let daemon = setup.with_mount(&mount).ready();
    let mut watcher = Watcher::start(&daemon, daemon.path("m"), "&recursive=1");
    daemon.script("umount m");
    watcher.is_gone("unmounted");
}

fn a_silent_watch_is_kept_alive(driver: Driver) {
    let daemon = Setup::new(driver).flag("--sse-keepalive", "0.05").ready();
    for (more, length) in [("", 3), ("&pad=1", 2048)] {
        let mut watcher = Watcher::start(&daemon, daemon.path(""), more);
        for _ in 0..3 {
            assert_eq!(watcher.next(), Some((":".into(), json!(length))));
        }
    }
}

fn watches_are_bounded_and_given_back(driver: Driver) {
    let daemon = Setup::new(driver).flag("--max-watches", "4").ready();
    fs::create_dir_all(daemon.path("t/a/b")).expect("ours");
    fs::create_dir_all(daemon.path("big/a/b/c/d")).expect("ours");
    let reply = daemon.call(&watch_at("big", "&recursive=1"));
    reply.refuses(400, "unsupported");
    let first = Watcher::start(&daemon, "t", "&recursive=1");
    let reply = daemon.call(&watch_at("t", "&recursive=1"));
    assert_eq!(reply.field("retry-after"), Some("1"));
    reply.refuses(503, "busy");
    // One is left, and a tree that grows past it ends its watch.
    let mut second = Watcher::start(&daemon, "t", "");
    daemon.call(&watch_at("t", "")).refuses(503, "busy");
    second.is_silent(&daemon.path("t/mark"));
    drop((first, second));
    let mut third = None;
    wait_until("the watches are given back", || {
        let mut connection = daemon.connect();
        connection.send(watch_at("t", "&recursive=1").bytes());
        let is_watched = connection.head().expect("a response").status == 200;
        third = is_watched.then_some(Watcher {
            connection,
            held: String::new(),
        });
        is_watched
    });
    let mut third = third.expect("it is there");
    assert_eq!(third.next().expect("an event").0, "ready");
    fs::create_dir_all(daemon.path("t/more/than/there/are")).expect("ours");
    third.is_gone("limit");
}

fn a_watch_goes_with_its_client(driver: Driver) {
    let daemon = Daemon::ready(driver);
    fs::create_dir_all(daemon.path("t/a/b")).expect("ours");
    let queues = || {
        let targets = daemon.descriptor_targets();
        targets
            .iter()
            .filter(|target| target.contains("inotify"))
            .count()
    };
    let before = daemon.at_rest();
    let watchers: Vec<_> = (0..10)
        .map(|_| Watcher::start(&daemon, "t", "&recursive=1"))
        .collect();
    assert_eq!(queues(), 10);
    for (number, watcher) in watchers.into_iter().enumerate() {
        match number % 2 {
            0 => watcher.connection.reset(),
            _ => drop(watcher),
        }
    }
    // Who has closed is noticed when something is sent.
    wait_until("every queue is closed", || {
        fs::write(daemon.path("t/f"), "x").expect("ours");
        queues() == 0
    });
    daemon.holds_at_most(before);
    daemon
        .call(&Request::new("HEAD", with_path("/v1/fs/watch", "t")).bearer())
        .is(200);
    wait_until("a head leaves nothing", || queues() == 0);
}

fn a_daemon_that_leaves_ends_its_watches(driver: Driver) {
    let mut daemon = Daemon::ready(driver);
    let mut watcher = Watcher::start(&daemon, daemon.path(""), "");
    daemon.signal(Signal::TERM);
    let (name, data) = watcher.next().expect("the last event");
    assert_eq!(
        (name.as_str(), data),
        ("gone", json!({"reason": "shutdown"}))
    );
    assert_eq!(watcher.next(), None);
    assert_eq!(daemon.wait().code(), Some(0));
}

fn what_cannot_be_watched_is_refused(driver: Driver) {
    let daemon = Daemon::ready(driver);
    daemon.call(&watch_at("none", "")).refuses(404, "not_found");
    for more in [
        "&events=",
        "&events=created,changed",
        "&recursive=2",
        "&pad=x",
        "&path=x",
    ] {
        let reply = daemon.call(&watch_at(".", more));
        reply.refuses(400, "malformed_request");
    }
    daemon.get("/v1/fs/watch").refuses(400, "malformed_request");
    daemon.call(&Request::get("/v1/fs/watch?path=.")).bare(401);
    if is_root("a daemon of another user") {
        let setup = Setup::new(driver);
        fs::create_dir(setup.path("closed")).expect("ours");
        fs::set_permissions(setup.path("closed"), fs::Permissions::from_mode(0o700)).expect("ours");
        let other = [
            "setpriv",
            "--reuid",
            "65534",
            "--regid",
            "65534",
            "--clear-groups",
        ];
        let daemon = setup.under(&other).ready();
        let reply = daemon.call(&watch_at("closed", ""));
        reply.refuses(403, "permission_denied");
    }
}
