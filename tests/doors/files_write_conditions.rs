//! Writes under conditions: judged before the body is taken and again when the file gets its name (RFC 9110, section 13).

use std::fs;

use crate::client::Connection;
use crate::daemon::{Daemon, Setup};
use crate::driver::Driver;
use crate::process::is_root;
use crate::reply::Reply;
use crate::request::{Request, file_at};
use crate::scratch::{inode, names, noise, tree};

both![
    an_answer_tells_the_validators_of_the_new_file,
    a_chain_of_writes_goes_from_etag_to_etag,
    a_condition_that_fails_is_told_before_the_body_is_sent,
    a_condition_that_fails_changes_nothing,
    a_file_is_made_only_where_none_is,
    a_date_is_a_condition_too,
    of_two_replacements_of_one_version_one_is_made,
    of_two_files_made_where_none_was_one_is_made,
    of_many_writers_of_one_version_one_wins_each_round,
    a_file_that_changes_under_an_upload_is_not_replaced,
    a_write_in_place_is_conditional_too,
    a_mount_point_is_judged_again_before_it_is_overwritten,
    what_has_no_version_is_there_or_not,
];

fn an_answer_tells_the_validators_of_the_new_file(driver: Driver) {
    let daemon = Daemon::ready(driver);
    for (name, query, body) in [
        ("small", "", noise(10)),
        ("small", "", noise(11)),
        ("large", "", noise(1_500_000)),
        ("large", "&replace=in_place", noise(10)),
        ("empty", "", Vec::new()),
        (
            "options",
            "&mode=600&mtime=1700000000.25&fsync=1&sparse=1",
            noise(9000),
        ),
    ] {
        let target = file_at(daemon.path(name));
        let put = daemon.put(format!("{target}{query}"), body).bare(204);
        let got = daemon.get(&*target).is(200);
        assert!(put.field("etag").is_some(), "{name}{query}: {put:?}");
        for field in ["etag", "last-modified"] {
            assert_eq!(put.field(field), got.field(field), "{name}{query}");
        }
    }
    let device = daemon.put(file_at("/dev/null"), "x").bare(204);
    assert_eq!(device.field("etag"), None);
}

fn a_chain_of_writes_goes_from_etag_to_etag(driver: Driver) {
    let daemon = Daemon::ready(driver);
    for query in ["", "&replace=in_place"] {
        let target = format!("{}{query}", file_at(daemon.path("f")));
        let mut etag = etag(&daemon.put(&*target, "start").bare(204));
        for round in 0..10 {
            // Every version has the same size, and follows the one before at once.
            let body = format!("round{round}");
            let reply = conditional(&daemon, &target, "if-match", &etag, &body).bare(204);
            let new = self::etag(&reply);
            assert_ne!(new, etag, "round {round}");
            conditional(&daemon, &target, "if-match", &etag, "stale").explains(412);
            let list = format!("\"other\", {new}");
            conditional(&daemon, &target, "if-match", &list, &body).bare(204);
            etag = self::etag(&daemon.get(file_at(daemon.path("f"))).is(200));
            let found = fs::read_to_string(daemon.path("f")).expect("it was written");
            assert_eq!(found, body);
        }
    }
}

fn a_condition_that_fails_is_told_before_the_body_is_sent(driver: Driver) {
    let daemon = Daemon::ready(driver);
    fs::write(daemon.path("f"), "old").expect("the scratch directory is ours");
    let rows = [
        ("f", "if-none-match", "*"),
        ("f", "if-match", "\"other\""),
        ("new", "if-match", "*"),
        ("new/dir/f", "if-match", "\"other\""),
    ];
    let before = tree(&daemon.path(""));
    for (name, field, value) in rows {
        for expects in [false, true] {
            let mut put = Request::put(file_at(daemon.path(name)))
                .bearer()
                .field(field, value);
            if expects {
                put = put.field("expect", "100-continue");
            }
            let mut connection = daemon.connect();
            connection.send(put.body(noise(700_000)).head());
            let head = connection.head().expect("a response");
            assert_eq!(head.status, 412, "{name} {field}: {value} {head:?}");
            assert_eq!(tree(&daemon.path("")), before);
        }
    }
}

fn a_condition_that_fails_changes_nothing(driver: Driver) {
    let daemon = Daemon::ready(driver);
    fs::write(daemon.path("f"), "old").expect("the scratch directory is ours");
    let before = (tree(&daemon.path("")), inode(&daemon.path("f")));
    for query in ["", "&replace=in_place", "&mode=600&owner=1:1&mtime=1"] {
        let target = format!("{}{query}", file_at(daemon.path("f")));
        for body in [noise(1), noise(10), noise(700_000)] {
            let put = Request::put(&*target).bearer().body(body.clone());
            daemon.call(&put.field("if-match", "\"x\"")).explains(412);
            let put = Request::put(&*target).bearer().chunks([body]);
            daemon.call(&put.field("if-none-match", "*")).explains(412);
            let after = (tree(&daemon.path("")), inode(&daemon.path("f")));
            assert_eq!(after, before, "{query}");
        }
    }
}

fn a_file_is_made_only_where_none_is(driver: Driver) {
    let daemon = Daemon::ready(driver);
    for query in ["", "&replace=in_place"] {
        let target = format!("{}{query}", file_at(daemon.path("a/b/f")));
        conditional(&daemon, &target, "if-none-match", "*", "first").bare(204);
        conditional(&daemon, &target, "if-none-match", "*", "second").explains(412);
        let found = fs::read_to_string(daemon.path("a/b/f")).expect("it was made");
        assert_eq!(found, "first");
        // A file that is no longer the one that the client knows is one that it does not want to replace blindly.
        let held = etag(&daemon.get(file_at(daemon.path("a/b/f"))).is(200));
        conditional(&daemon, &target, "if-none-match", &held, "third").explains(412);
        conditional(&daemon, &target, "if-none-match", "\"other\"", "first").bare(204);
        fs::remove_dir_all(daemon.path("a")).expect("it is ours");
    }
}

fn a_date_is_a_condition_too(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let target = file_at(daemon.path("f"));
    let set = format!("{target}&mtime=1700000000");
    daemon.put(set, "old").bare(204);
    let refused = "Tue, 14 Nov 2023 22:13:19 GMT";
    conditional(&daemon, &target, "if-unmodified-since", refused, "new").explains(412);
    assert_eq!(fs::read(daemon.path("f")).expect("it is there"), b"old");
    let held = "Tue, 14 Nov 2023 22:13:20 GMT";
    conditional(&daemon, &target, "if-unmodified-since", held, "new").bare(204);
    assert_eq!(fs::read(daemon.path("f")).expect("it is there"), b"new");
    // What is no date is no condition.
    conditional(&daemon, &target, "if-unmodified-since", "yesterday", "x").bare(204);
}

fn of_two_replacements_of_one_version_one_is_made(driver: Driver) {
    let daemon = Daemon::ready(driver);
    for length in [100, 700_000] {
        let target = file_at(daemon.path("f"));
        let etag = etag(&daemon.put(&*target, "old").bare(204));
        two_at_once(&daemon, &target, "if-match", &etag, length);
    }
}

fn of_two_files_made_where_none_was_one_is_made(driver: Driver) {
    let daemon = Daemon::ready(driver);
    for (number, length) in [100, 700_000].into_iter().enumerate() {
        let target = file_at(daemon.path(&format!("f{number}")));
        two_at_once(&daemon, &target, "if-none-match", "*", length);
    }
}

/// Both are admitted, since nothing has changed when they begin; the one whose body is whole first wins.
#[track_caller]
fn two_at_once(daemon: &Daemon, target: &str, field: &str, value: &str, length: usize) {
    let bodies = [vec![b'a'; length], vec![b'b'; length]];
    let mut uploads: Vec<(Connection, Vec<u8>)> = bodies
        .iter()
        .map(|body| invited(daemon, target, field, value, body.clone()))
        .collect();
    let [(first, one), (second, other)] = &mut uploads[..] else {
        panic!("two uploads");
    };
    second.send(&other[..length - 1]);
    first.send(one);
    first.reply().bare(204);
    second.send(&other[length - 1..]);
    second.reply().explains(412);
    assert!(daemon.get(target).is(200).body == bodies[0]);
    assert!(
        names(&daemon.path(""))
            .iter()
            .all(|name| name.starts_with('f'))
    );
}

fn of_many_writers_of_one_version_one_wins_each_round(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let target = file_at(daemon.path("f"));
    let mut connections: Vec<Connection> = (0..8).map(|_| daemon.connect()).collect();
    let mut condition = ("if-none-match", "*".to_owned());
    for round in 0..30 {
        for (number, connection) in connections.iter_mut().enumerate() {
            let put = Request::put(&*target).bearer();
            let put = put.field(condition.0, &*condition.1);
            connection.send(put.body(format!("{round} {number}")).bytes());
        }
        let mut winners = Vec::new();
        for (number, connection) in connections.iter_mut().enumerate() {
            let reply = connection.reply();
            match reply.status {
                204 => winners.push((number, etag(&reply))),
                _ => drop(reply.explains(412)),
            }
        }
        let [(number, etag)] = &winners[..] else {
            panic!("round {round}: {winners:?}");
        };
        let found = fs::read_to_string(daemon.path("f")).expect("it was written");
        assert_eq!(found, format!("{round} {number}"));
        condition = ("if-match", etag.clone());
    }
}

fn a_file_that_changes_under_an_upload_is_not_replaced(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let target = file_at(daemon.path("f"));
    let etag = etag(&daemon.put(&*target, "old").bare(204));
    let (mut connection, body) = invited(&daemon, &target, "if-match", &etag, noise(100_000));
    // A command of the guest, which asks nobody.
    daemon.script("echo changed > f");
    connection.send(body);
    connection.reply().explains(412);
    assert_eq!(
        fs::read(daemon.path("f")).expect("it is there"),
        b"changed\n"
    );
    assert_eq!(names(&daemon.path("")), ["f"]);
}

fn a_write_in_place_is_conditional_too(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let target = format!("{}&replace=in_place", file_at(daemon.path("f")));
    let etag = etag(&daemon.put(&*target, "old").bare(204));
    let put = Request::put(&*target).bearer().field("if-match", &*etag);
    let bytes = put.body(noise(700_000)).bytes();
    let mut first = daemon.connect();
    first.send(&bytes[..bytes.len() - 1]);
    // From its first byte on the file is no longer what it was.
    crate::process::wait_until("the first has begun", || {
        fs::read(daemon.path("f")).expect("it is there") != b"old"
    });
    conditional(&daemon, &target, "if-match", &etag, "second").explains(412);
    first.send(&bytes[bytes.len() - 1..]);
    first.reply().bare(204);
    assert!(fs::read(daemon.path("f")).expect("it is there") == noise(700_000));
}

fn a_mount_point_is_judged_again_before_it_is_overwritten(driver: Driver) {
    if !is_root("a file that is a mount point") {
        return;
    }
    let setup = Setup::new(driver);
    fs::write(setup.path("below"), "old").expect("the scratch directory is ours");
    fs::write(setup.path("f"), "").expect("the scratch directory is ours");
    let daemon = setup.with_mount("--bind below f").ready();
    let target = file_at(daemon.path("f"));
    let etag = etag(&daemon.get(&*target).is(200));
    let (mut connection, body) = invited(&daemon, &target, "if-match", &etag, noise(100_000));
    fs::write(daemon.path("below"), "changed").expect("it is ours");
    connection.send(body);
    connection.reply().explains(412);
    assert_eq!(daemon.get(&*target).is(200).text(), "changed");
    daemon.put(&*target, "new").bare(204);
    assert_eq!(fs::read(daemon.path("below")).expect("it is ours"), b"new");
}

fn what_has_no_version_is_there_or_not(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let null = file_at("/dev/null");
    conditional(&daemon, &null, "if-match", "*", "x").bare(204);
    conditional(&daemon, &null, "if-match", "\"x\"", "x").explains(412);
    conditional(&daemon, &null, "if-none-match", "*", "x").explains(412);
    conditional(&daemon, &null, "if-none-match", "\"x\"", "x").bare(204);
    fs::create_dir(daemon.path("dir")).expect("the scratch directory is ours");
    let dir = file_at(daemon.path("dir"));
    conditional(&daemon, &dir, "if-none-match", "*", "x").explains(412);
    conditional(&daemon, &dir, "if-match", "*", "x").explains(500);
}

/// An upload that was admitted, so that its file is waiting for the body; and that body.
#[track_caller]
fn invited(
    daemon: &Daemon,
    target: &str,
    field: &str,
    value: &str,
    body: Vec<u8>,
) -> (Connection, Vec<u8>) {
    let put = Request::put(target).bearer().field(field, value);
    let put = put.field("expect", "100-continue").body(body);
    let mut connection = daemon.connect();
    connection.send(put.head());
    assert_eq!(connection.head().expect("an answer").status, 100);
    (connection, put.payload())
}

/// PUT with one condition.
#[track_caller]
fn conditional(daemon: &Daemon, target: &str, field: &str, value: &str, body: &str) -> Reply {
    let put = Request::put(target).bearer().field(field, value);
    daemon.call(&put.body(body))
}

#[track_caller]
fn etag(reply: &Reply) -> String {
    reply.field("etag").expect("a validator").to_owned()
}
