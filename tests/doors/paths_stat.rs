//! What a path names (`GET /v1/fs/stat`).

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;

use rustix::fs::{AtFlags, CWD, FileType, Mode, Timespec, Timestamps};
use serde_json::{Value, json};

use crate::daemon::{Daemon, Setup};
use crate::driver::Driver;
use crate::paths::{odd, stat, stat_at};
use crate::process::is_root;
use crate::reply::keys;
use crate::request::{Request, file_at};
use crate::scratch::noise;

both![
    a_file_is_told_with_everything_that_the_kernel_knows,
    every_type_has_its_name,
    a_link_is_told_itself_unless_it_is_to_be_followed,
    times_are_exact_to_the_nanosecond,
    the_etag_is_that_of_a_read,
    what_the_kernel_makes_up_has_no_etag,
    a_mount_point_is_told_as_one,
    what_is_not_there_is_not_found,
    odd_names_are_taken_and_told,
    what_is_no_question_is_refused,
    a_head_has_no_body,
];

fn a_file_is_told_with_everything_that_the_kernel_knows(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let path = daemon.path("f");
    fs::write(&path, noise(5000)).expect("ours");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o4751)).expect("ours");
    fs::hard_link(&path, daemon.path("g")).expect("ours");
    let reply = daemon.get(stat_at(&path)).is(200);
    let keys = keys(&reply.text());
    let expected = "path type size allocated mode uid gid user group mtime mtime_nanos atime atime_nanos ctime \
                    ctime_nanos btime btime_nanos inode device links mount_id mount_point etag";
    assert_eq!(keys, expected.split_whitespace().collect::<Vec<_>>());
    let told = reply.json();
    let meta = fs::metadata(&path).expect("ours");
    assert_eq!(told["path"], path.to_str().expect("text"));
    assert_eq!(told["type"], "file");
    assert_eq!(told["size"], 5000);
    assert_eq!(told["allocated"], meta.blocks() * 512);
    assert_eq!(told["mode"], "4751");
    assert_eq!(
        (&told["uid"], &told["gid"]),
        (&json!(meta.uid()), &json!(meta.gid()))
    );
    if is_root("the name of the owner") {
        assert_eq!(
            (&told["user"], &told["group"]),
            (&json!("root"), &json!("root"))
        );
    }
    assert_eq!(told["mtime"], meta.mtime());
    assert_eq!(told["mtime_nanos"], meta.mtime_nsec());
    assert_eq!(told["ctime_nanos"], meta.ctime_nsec());
    assert_eq!(told["inode"], meta.ino());
    let (major, minor) = (rustix::fs::major(meta.dev()), rustix::fs::minor(meta.dev()));
    assert_eq!(told["device"], format!("{major}:{minor}"));
    assert_eq!(told["links"], 2);
    assert_eq!(told["mount_point"], false);
    assert_eq!(
        stat(&daemon, "f")["inode"],
        meta.ino(),
        "relative to where the daemon works"
    );
}

fn every_type_has_its_name(driver: Driver) {
    let daemon = Daemon::ready(driver);
    fs::create_dir(daemon.path("d")).expect("ours");
    symlink("d", daemon.path("l")).expect("ours");
    let fifo = daemon.path("p");
    rustix::fs::mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR, 0).expect("ours");
    let _socket = UnixListener::bind(daemon.path("s")).expect("ours");
    for (name, expected) in [
        ("d", "directory"),
        ("l", "symlink"),
        ("p", "fifo"),
        ("s", "socket"),
    ] {
        assert_eq!(stat(&daemon, daemon.path(name))["type"], expected, "{name}");
    }
    let null = stat(&daemon, "/dev/null");
    assert_eq!(
        (&null["type"], &null["rdev"]),
        (&json!("char_device"), &json!("1:3"))
    );
    assert_eq!(stat(&daemon, "/")["type"], "directory");
}

fn a_link_is_told_itself_unless_it_is_to_be_followed(driver: Driver) {
    let daemon = Daemon::ready(driver);
    fs::write(daemon.path("f"), "four").expect("ours");
    symlink("f", daemon.path("l")).expect("ours");
    symlink("nowhere", daemon.path("dangling")).expect("ours");
    let link = stat(&daemon, daemon.path("l"));
    assert_eq!(
        (&link["type"], &link["target"]),
        (&json!("symlink"), &json!("f"))
    );
    assert_eq!(link["etag"], Value::Null);
    let target = format!("{}&follow=1", stat_at(daemon.path("l")));
    let told = daemon.get(target).is(200).json();
    assert_eq!((&told["type"], &told["size"]), (&json!("file"), &json!(4)));
    assert_eq!(stat(&daemon, daemon.path("dangling"))["target"], "nowhere");
    let target = format!("{}&follow=true", stat_at(daemon.path("dangling")));
    daemon.get(target).refuses(404, "not_found");
}

fn times_are_exact_to_the_nanosecond(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let path = daemon.path("f");
    fs::write(&path, "").expect("ours");
    for (seconds, nanos) in [(1_000_000_000, 123_456_789), (-5, 7)] {
        let time = Timespec {
            tv_sec: seconds,
            tv_nsec: nanos,
        };
        let both = Timestamps {
            last_access: time,
            last_modification: time,
        };
        rustix::fs::utimensat(CWD, &path, &both, AtFlags::empty()).expect("ours");
        let told = stat(&daemon, &path);
        assert_eq!(
            (&told["mtime"], &told["mtime_nanos"]),
            (&json!(seconds), &json!(nanos))
        );
        assert_eq!(
            (&told["atime"], &told["atime_nanos"]),
            (&json!(seconds), &json!(nanos))
        );
    }
}

fn the_etag_is_that_of_a_read(driver: Driver) {
    let daemon = Daemon::ready(driver);
    fs::write(daemon.path("f"), "x").expect("ours");
    let first = stat(&daemon, daemon.path("f"))["etag"].clone();
    let read = daemon.get(file_at(daemon.path("f"))).is(200);
    assert_eq!(first.as_str(), read.field("etag"));
    fs::write(daemon.path("f"), "xy").expect("ours");
    assert_ne!(stat(&daemon, daemon.path("f"))["etag"], first);
    assert_eq!(stat(&daemon, daemon.path(""))["etag"], Value::Null);
}

fn what_the_kernel_makes_up_has_no_etag(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let told = stat(&daemon, "/proc/self/stat");
    assert_eq!(
        (&told["type"], &told["etag"]),
        (&json!("file"), &Value::Null)
    );
}

fn a_mount_point_is_told_as_one(driver: Driver) {
    if !is_root("a mount of the daemon's own") {
        return;
    }
    let setup = Setup::new(driver);
    fs::create_dir(setup.path("m")).expect("ours");
    let mount = format!("-t tmpfs tmpfs {}", setup.path("m").display());
    let daemon = setup.with_mount(&mount).ready();
    let (inner, outer) = (
        stat(&daemon, daemon.path("m")),
        stat(&daemon, daemon.path("")),
    );
    assert_eq!(inner["mount_point"], true);
    assert_eq!(outer["mount_point"], false);
    assert_ne!(inner["mount_id"], outer["mount_id"]);
}

fn what_is_not_there_is_not_found(driver: Driver) {
    let daemon = Daemon::ready(driver);
    fs::write(daemon.path("f"), "").expect("ours");
    for name in ["none", "none/x", "f/x"] {
        daemon
            .get(stat_at(daemon.path(name)))
            .refuses(404, "not_found");
    }
    daemon.get("/v1/fs/stat?path=").refuses(404, "not_found");
    let long = daemon.path(&"x".repeat(256));
    daemon.get(stat_at(long)).refuses(400, "malformed_request");
    symlink("loop", daemon.path("loop")).expect("ours");
    daemon
        .get(stat_at(daemon.path("loop/x")))
        .refuses(400, "malformed_request");
}

fn odd_names_are_taken_and_told(driver: Driver) {
    let daemon = Daemon::ready(driver);
    for name in ["a b", "a\nb", "a\"b\\", "ü😀", "a%2Fb", "a+b&c=d"] {
        fs::write(daemon.path(name), name).expect("ours");
        let told = stat(&daemon, daemon.path(name));
        assert_eq!(told["path"], daemon.path(name).to_str().expect("text"));
        assert_eq!(told["size"], name.len());
        assert_eq!(told["path_b64"], Value::Null);
    }
    // A path is UTF-8, so a name that is not cannot be asked for; where a link leads is told exactly.
    let work = daemon.path("");
    fs::write(odd(&work, b"\xff"), "").expect("ours");
    daemon
        .get(stat_at(odd(&work, b"\xff")))
        .refuses(404, "not_found");
    symlink(odd(std::path::Path::new(""), b"\xff"), daemon.path("l")).expect("ours");
    let told = stat(&daemon, daemon.path("l"));
    assert_eq!(
        (&told["target"], &told["target_b64"]),
        (&json!("\u{fffd}"), &json!("/w=="))
    );
}

fn what_is_no_question_is_refused(driver: Driver) {
    let daemon = Daemon::ready(driver);
    for query in [
        "",
        "?path=a&path=b",
        "?path=a&follow=2",
        "?path=a&follow=0&follow=0",
        "?path=a%00b",
    ] {
        daemon
            .get(format!("/v1/fs/stat{query}"))
            .refuses(400, "malformed_request");
    }
    daemon.call(&Request::get(stat_at("/"))).bare(401);
    let reply = daemon.post(stat_at("/")).bare(405);
    assert_eq!(reply.field("allow"), Some("GET,HEAD"));
}

fn a_head_has_no_body(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let reply = daemon
        .call(&Request::new("HEAD", stat_at("/")).bearer())
        .is(200);
    assert!(reply.body.is_empty() && reply.field("content-length").is_some());
}
