//! A directory listed (`GET /v1/fs/list`), page by page and in lines.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use serde_json::{Value, json};

use crate::daemon::{Daemon, Setup};
use crate::driver::Driver;
use crate::paths::{lines, list_at, mkdir, name, odd, page, pages, remove, rename, stat};
use crate::process::{is_root, status};
use crate::reply::keys;
use crate::request::{Request, escaped};

both![
    entries_come_in_the_order_of_bytes,
    a_listing_is_the_same_in_pages_of_any_size,
    a_listing_in_lines_ends_with_a_line_that_says_so,
    lines_that_are_limited_tell_where_to_go_on,
    levels_below_are_told_up_to_the_depth,
    what_begins_with_a_dot_can_be_left_out,
    details_are_those_of_stat,
    links_are_told_and_never_entered,
    names_that_are_no_text_are_told_exactly,
    pages_are_stable_while_the_directory_changes,
    a_page_of_a_large_directory_costs_a_page,
    a_large_directory_in_lines_takes_little_memory,
    wish_13_only_what_is_asked_for_is_touched,
    a_directory_that_may_not_be_read_is_marked,
    what_is_no_directory_is_refused,
    what_is_no_question_is_refused,
];

fn make(daemon: &Daemon, names: &[&str]) {
    for name in names {
        match name.strip_suffix('/') {
            Some(name) => fs::create_dir_all(daemon.path(name)).expect("ours"),
            None => fs::write(daemon.path(name), "").expect("ours"),
        }
    }
}

fn entries_come_in_the_order_of_bytes(driver: Driver) {
    let daemon = Daemon::ready(driver);
    make(
        &daemon,
        &["b", "a b", "Z/", "ä", "a", "10", "9", "a\nb", ".h"],
    );
    let reply = daemon.get(list_at(daemon.path(""), "")).is(200);
    assert_eq!(keys(&reply.text()), ["path", "entries", "next"]);
    let told = reply.json();
    assert_eq!(told["path"], daemon.path("").to_str().expect("text"));
    assert_eq!(told["next"], Value::Null);
    let expected = [".h", "10", "9", "Z", "a", "a\nb", "a b", "b", "ä"];
    assert_eq!(page(&daemon, daemon.path(""), "&sort=name").0, expected);
    assert_eq!(told["entries"][0], json!({"path": ".h", "type": "file"}));
    assert_eq!(
        told["entries"][3],
        json!({"path": "Z", "type": "directory"})
    );
    make(&daemon, &["empty/"]);
    assert_eq!(page(&daemon, "empty", ""), (Vec::new(), None));
}

fn a_listing_is_the_same_in_pages_of_any_size(driver: Driver) {
    let daemon = Daemon::ready(driver);
    make(
        &daemon,
        &[
            "t/b/x/", "t/b/y/", "t/a/", "t/c/", "t/a/1", "t/a/2", "t/a-b", "t/b/x/f",
        ],
    );
    let whole = page(&daemon, "t", "&depth=9").0;
    assert_eq!(
        whole,
        ["a", "a/1", "a/2", "a-b", "b", "b/x", "b/x/f", "b/y", "c"]
    );
    for limit in 1..=10 {
        let more = format!("&depth=9&limit={limit}");
        assert_eq!(pages(&daemon, "t", &more), whole, "{limit}");
    }
    let (first, next) = page(&daemon, "t", "&depth=9&limit=9");
    assert_eq!(
        (first.len(), next),
        (9, None),
        "there is nothing behind the last"
    );
}

fn a_listing_in_lines_ends_with_a_line_that_says_so(driver: Driver) {
    let daemon = Daemon::ready(driver);
    make(&daemon, &["d/", "d/b", "d/a"]);
    let (entries, end) = lines(&daemon, "d", "");
    assert_eq!(
        entries,
        [
            json!({"path": "a", "type": "file"}),
            json!({"path": "b", "type": "file"})
        ]
    );
    assert_eq!(end, json!({"complete": true, "count": 2, "next": null}));
    let accepts = |value: &str| {
        let request = Request::get(list_at("d", ""))
            .bearer()
            .field("accept", value);
        let reply = daemon.call(&request).is(200);
        assert_eq!(reply.field("vary"), Some("accept"));
        reply.field("content-type").expect("a type").to_owned()
    };
    for value in [
        "application/json",
        "*/*",
        "text/html, application/x-ndjson;q=0",
    ] {
        assert_eq!(accepts(value), "application/json", "{value}");
    }
    for value in [
        "Application/X-NDJSON",
        "application/json;q=0.5, application/x-ndjson; q=0.9",
    ] {
        assert_eq!(accepts(value), "application/x-ndjson", "{value}");
    }
}

fn lines_that_are_limited_tell_where_to_go_on(driver: Driver) {
    let daemon = Daemon::ready(driver);
    make(&daemon, &["d/", "d/a", "d/b", "d/c"]);
    let (entries, end) = lines(&daemon, "d", "&limit=2");
    assert_eq!(entries.len(), 2);
    assert_eq!(end, json!({"complete": false, "count": 2, "next": "b"}));
    let (entries, end) = lines(&daemon, "d", "&limit=2&after=b");
    assert_eq!(entries[0]["path"], "c");
    assert_eq!(end, json!({"complete": true, "count": 1, "next": null}));
}

fn levels_below_are_told_up_to_the_depth(driver: Driver) {
    let daemon = Daemon::ready(driver);
    make(&daemon, &["t/a/b/c/", "t/z"]);
    assert_eq!(page(&daemon, "t", "&depth=1").0, ["a", "z"]);
    assert_eq!(page(&daemon, "t", "&depth=2").0, ["a", "a/b", "z"]);
    assert_eq!(
        page(&daemon, "t", "&depth=256").0,
        ["a", "a/b", "a/b/c", "z"]
    );
    let deep = vec!["d"; 300].join("/");
    make(&daemon, &[&format!("u/{deep}/")]);
    let told = pages(&daemon, "u", "&depth=256&limit=100");
    assert_eq!(told.len(), 256);
    assert!(deep.starts_with(&told[255]));
}

fn what_begins_with_a_dot_can_be_left_out(driver: Driver) {
    let daemon = Daemon::ready(driver);
    make(&daemon, &["t/.git/", "t/.git/config", "t/.rc", "t/a"]);
    assert_eq!(page(&daemon, "t", "&depth=2&hidden=0").0, ["a"]);
    let all = [".git", ".git/config", ".rc", "a"];
    assert_eq!(page(&daemon, "t", "&depth=2&hidden=1").0, all);
    assert_eq!(page(&daemon, "t", "&depth=2&hidden=0&after=.git").0, ["a"]);
    make(&daemon, &[".top/", ".top/x"]);
    assert_eq!(
        page(&daemon, ".top", "&hidden=0").0,
        ["x"],
        "the directory itself was asked for"
    );
}

fn details_are_those_of_stat(driver: Driver) {
    let daemon = Daemon::ready(driver);
    make(&daemon, &["t/d/"]);
    fs::write(daemon.path("t/d/f"), "four").expect("ours");
    symlink("f", daemon.path("t/d/l")).expect("ours");
    let (entries, _) = lines(&daemon, "t", "&depth=2&detail=1");
    assert_eq!(entries.len(), 3);
    for mut entry in entries {
        let path = daemon.path("t").join(name(&entry));
        let told = stat(&daemon, &path);
        entry["path"] = told["path"].clone();
        // Reading a directory counts as a use of it.
        for key in ["atime", "atime_nanos"] {
            entry[key] = told[key].clone();
        }
        assert_eq!(entry, told);
    }
}

fn links_are_told_and_never_entered(driver: Driver) {
    let daemon = Daemon::ready(driver);
    make(&daemon, &["t/d/", "t/d/f"]);
    symlink("d", daemon.path("t/l")).expect("ours");
    symlink("..", daemon.path("t/d/up")).expect("ours");
    symlink("none", daemon.path("t/x")).expect("ours");
    let types = |more: &str| {
        let (entries, _) = lines(&daemon, "t", more);
        let pair = |entry: &Value| {
            format!(
                "{} {}",
                name(entry),
                entry["type"].as_str().expect("a type")
            )
        };
        entries.iter().map(pair).collect::<Vec<_>>()
    };
    let plain = [
        "d directory",
        "d/f file",
        "d/up symlink",
        "l symlink",
        "x symlink",
    ];
    assert_eq!(types("&depth=9"), plain);
    let followed = [
        "d directory",
        "d/f file",
        "d/up directory",
        "l directory",
        "x symlink",
    ];
    assert_eq!(types("&depth=9&follow=1"), followed);
    symlink("t", daemon.path("link")).expect("ours");
    assert_eq!(
        page(&daemon, "link", "").0,
        ["d", "l", "x"],
        "links to the directory are followed"
    );
}

fn names_that_are_no_text_are_told_exactly(driver: Driver) {
    let daemon = Daemon::ready(driver);
    make(&daemon, &["t/"]);
    for name in [&b"a\xff"[..], b"a\xfe", b"b"] {
        fs::write(odd(&daemon.path("t"), name), "").expect("ours");
    }
    let told = daemon.get(list_at("t", "")).is(200).json();
    let first = json!({"path": "a\u{fffd}", "path_b64": "Yf4=", "type": "file"});
    assert_eq!(told["entries"][0], first);
    let told = daemon.get(list_at("t", "&limit=1")).is(200).json();
    assert_eq!(told["next_b64"], "Yf4=");
    let after = format!("&limit=1&after_b64={}", escaped(b"Yf4="));
    let told = daemon.get(list_at("t", &after)).is(200).json();
    assert_eq!(told["entries"][0]["path_b64"], "Yf8=");
    let after = format!("&after_b64={}", escaped(b"Yf8="));
    assert_eq!(page(&daemon, "t", &after).0, ["b"]);
}

fn pages_are_stable_while_the_directory_changes(driver: Driver) {
    let daemon = Daemon::ready(driver);
    make(&daemon, &["t/"]);
    for number in 0..100 {
        make(&daemon, &[&format!("t/k{number:03}")]);
    }
    let mut told = Vec::new();
    let mut after = String::new();
    let mut round = 0;
    loop {
        let (entries, next) = page(&daemon, "t", &format!("&limit=7{after}"));
        told.extend(entries);
        let Some(next) = next else { break };
        after = format!("&after={next}");
        // Others come and go around the cursor, and the cursor's own entry with them.
        make(
            &daemon,
            &[&format!("t/a{round}"), &format!("t/k{round:03}x")],
        );
        fs::remove_file(daemon.path("t").join(next)).expect("ours");
        round += 1;
    }
    told.retain(|name| name.len() == 4 && name.starts_with('k'));
    let expected: Vec<_> = (0..100).map(|number| format!("k{number:03}")).collect();
    assert_eq!(told, expected);
}

fn a_page_of_a_large_directory_costs_a_page(driver: Driver) {
    let daemon = Daemon::ready(driver);
    make(&daemon, &["t/"]);
    for number in 0..20_000 {
        fs::write(daemon.path(&format!("t/{number:05}")), "").expect("ours");
    }
    let (entries, next) = page(&daemon, "t", "&limit=10&after=12345");
    assert_eq!(entries[0], "12346");
    assert_eq!((entries.len(), next.as_deref()), (10, Some("12355")));
    let whole = pages(&daemon, "t", "&limit=10000");
    assert_eq!(whole.len(), 20_000);
    assert!(whole.is_sorted());
}

fn a_large_directory_in_lines_takes_little_memory(driver: Driver) {
    let daemon = Daemon::ready(driver);
    make(&daemon, &["t/"]);
    let peak = || -> u64 {
        let text = status(daemon.pid(), "VmHWM");
        text.trim_end_matches(" kB").parse().expect("a number")
    };
    lines(&daemon, "t", "&detail=1");
    let before = peak();
    let long = "n".repeat(200);
    for number in 0..60_000 {
        let name = format!("t/{number:05}-{long}");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            daemon.path(&name),
            rustix::fs::FileType::RegularFile,
            rustix::fs::Mode::RUSR,
            0,
        )
        .expect("ours");
    }
    // 15 MB of names: more than are kept at once, so the directory is read more than once.
    let (entries, end) = lines(&daemon, "t", "");
    assert_eq!(end["count"], 60_000);
    assert!(entries.is_sorted_by_key(name));
    let grown = peak() - before;
    assert!(grown < 24 * 1024, "{grown} KiB more");
}

fn wish_13_only_what_is_asked_for_is_touched(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let around = ["t/a/", "t/m/below/", "t/z/"];
    make(&daemon, &around);
    make(&daemon, &["t/m/f", "t/m/below/g", "t/a/h"]);
    let queue = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).expect("a queue");
    for name in around {
        let flags = WatchFlags::OPEN | WatchFlags::ACCESS;
        inotify::add_watch(&queue, daemon.path(name), flags).expect("a watch");
    }
    let is_touched = || {
        let mut buffer = [0; 4096];
        rustix::io::read(&queue, &mut buffer[..]).is_ok()
    };
    assert_eq!(page(&daemon, "t/m", "").0, ["below", "f"]);
    stat(&daemon, daemon.path("t/m"));
    mkdir(&daemon, "t/m/new", "").bare(201);
    rename(&daemon, "t/m/new", "t/m/newer", &json!({})).bare(204);
    remove(&daemon, "t/m/newer", "&recursive=1").is(200);
    assert!(!is_touched(), "what is around has been read");
    page(&daemon, "t", "&depth=3");
    assert!(is_touched(), "a listing that goes down is seen");
}

fn a_directory_that_may_not_be_read_is_marked(driver: Driver) {
    if !is_root("a daemon of another user") {
        return;
    }
    let setup = Setup::new(driver);
    fs::create_dir_all(setup.path("t/closed/x")).expect("ours");
    fs::create_dir(setup.path("t/z")).expect("ours");
    fs::set_permissions(setup.path("t/closed"), fs::Permissions::from_mode(0o700)).expect("ours");
    let other = [
        "setpriv",
        "--reuid",
        "65534",
        "--regid",
        "65534",
        "--clear-groups",
    ];
    let daemon = setup.under(&other).ready();
    let (entries, end) = lines(&daemon, "t", "&depth=2");
    assert_eq!(entries[0]["path"], "closed");
    assert_eq!(entries[0]["error"], "Permission denied");
    assert_eq!(entries[1], json!({"path": "z", "type": "directory"}));
    assert_eq!(end["complete"], true);
    let reply = daemon.get(list_at(daemon.path("t/closed"), ""));
    reply.refuses(403, "permission_denied");
}

fn what_is_no_directory_is_refused(driver: Driver) {
    let daemon = Daemon::ready(driver);
    make(&daemon, &["f"]);
    daemon
        .get(list_at("f", ""))
        .refuses(400, "malformed_request");
    daemon.get(list_at("f/x", "")).refuses(404, "not_found");
    daemon.get(list_at("none", "")).refuses(404, "not_found");
    let request = Request::get(list_at("none", "")).bearer();
    let reply = daemon.call(&request.field("accept", "application/x-ndjson"));
    reply.refuses(404, "not_found");
}

fn what_is_no_question_is_refused(driver: Driver) {
    let daemon = Daemon::ready(driver);
    daemon.get("/v1/fs/list").refuses(400, "malformed_request");
    for more in [
        "limit=0",
        "limit=10001",
        "limit=-1",
        "limit=+1",
        "limit=x",
        "limit=",
        "limit=1&limit=1",
        "depth=0",
        "depth=257",
        "hidden=2",
        "follow=yes",
        "detail=2",
        "sort=size",
        "after=/a",
        "after=a//b",
        "after=..",
        "after=a/",
        "after_b64=%25",
        "after=a&after_b64=YQ==",
    ] {
        let reply = daemon.get(list_at(Path::new("."), &format!("&{more}")));
        reply.refuses(400, "malformed_request");
    }
    assert_eq!(page(&daemon, ".", "&limit=10000").0, Vec::<String>::new());
}
