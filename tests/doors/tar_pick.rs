//! Downloading the members of a tree that a list names.

use std::fs;
use std::os::unix::fs::symlink;

use serde_json::{Value, json};

use crate::archive::entries;
use crate::daemon::{Daemon, Setup};
use crate::driver::Driver;
use crate::reply::Reply;
use crate::request::Request;
use crate::scratch::{noise, tree};

both![
    exactly_what_is_listed_is_packed,
    directories_come_with_their_content_when_asked_for,
    the_order_of_the_list_does_not_matter,
    a_name_that_is_missing_is_told_or_skipped,
    no_link_is_followed_on_the_way_to_a_name,
    options_choose_among_the_names,
    names_that_leave_the_tree_are_refused,
    a_body_that_is_no_list_is_refused,
    lists_are_bounded,
    a_list_of_thousands_is_packed,
];

fn exactly_what_is_listed_is_packed(driver: Driver) {
    let daemon = with_tree(driver);
    for (names, expected) in [
        (vec!["d/sub/g"], "d/sub/g"),
        (vec!["d"], "d"),
        (vec!["."], "."),
        (vec![], ""),
        (vec!["f", "d/link", "d/sub"], "d/link d/sub f"),
        (
            vec!["d", "d/f", "d-e", "./d/sub/", "d//f"],
            "d d-e d/f d/sub",
        ),
        (vec!["h", "f"], "f h"),
    ] {
        assert_eq!(
            shown(&pick(&daemon, json!({ "names": names })).is(200)),
            expected
        );
    }
    let packed = entries(
        &pick(&daemon, json!({"names": ["h", "f", "d/link"]}))
            .is(200)
            .body,
    );
    let links: Vec<_> = packed
        .iter()
        .map(|entry| (entry.kind, entry.link.as_deref()))
        .collect();
    assert_eq!(
        links,
        [(b'2', Some("sub/g")), (b'0', None), (b'1', Some("f"))]
    );
    // Alone, a hard link is the file.
    let packed = entries(&pick(&daemon, json!({"names": ["h"]})).is(200).body);
    assert_eq!((packed[0].kind, &*packed[0].data), (b'0', &b"f"[..]));
}

fn directories_come_with_their_content_when_asked_for(driver: Driver) {
    let daemon = with_tree(driver);
    for (names, expected) in [
        (vec!["d"], "d d/f d/link d/sub d/sub/g"),
        (vec!["d/sub", "d/sub/g", "f"], "d/sub d/sub/g f"),
        (vec!["."], ". d d-e d/f d/link d/sub d/sub/g f h"),
    ] {
        let body = json!({"names": names, "recursive": true});
        assert_eq!(shown(&pick(&daemon, body).is(200)), expected);
    }
}

fn the_order_of_the_list_does_not_matter(driver: Driver) {
    let daemon = with_tree(driver);
    let one = pick(&daemon, json!({"names": ["f", "d", "d/f", "h"]}))
        .is(200)
        .body;
    let other = pick(&daemon, json!({"names": ["h", "d/f", "d", "f", "h"]}))
        .is(200)
        .body;
    assert!(one == other);
}

fn a_name_that_is_missing_is_told_or_skipped(driver: Driver) {
    let daemon = with_tree(driver);
    let root = daemon.path("t").display().to_string();
    for (names, first) in [
        (vec!["f", "none"], "none"),
        (vec!["zz", "aa", "f"], "aa"),
        (vec!["d/none/x", "f"], "d/none/x"),
        (vec!["f/x"], "f/x"),
        (vec!["f", "f/x"], "f/x"),
        (vec!["d/link/x"], "d/link/x"),
    ] {
        let reply = pick(&daemon, json!({ "names": names })).refuses(404, "not_found");
        let detail = reply.json()["detail"].clone();
        assert_eq!(detail, format!("nothing below {root} has the name {first}"));
    }
    let names = json!({"names": ["none", "f", "f/x", "d/none/x", "d"], "missing": "skip"});
    assert_eq!(shown(&pick(&daemon, names).is(200)), "d f");
    let nowhere = json!({"path": daemon.path("none"), "names": []});
    daemon.call(&post(&nowhere)).refuses(404, "not_found");
    let file = json!({"path": daemon.path("t/f"), "names": []});
    daemon.call(&post(&file)).refuses(400, "malformed_request");
}

fn no_link_is_followed_on_the_way_to_a_name(driver: Driver) {
    let daemon = with_tree(driver);
    fs::create_dir(daemon.path("outside")).expect("the scratch directory is ours");
    fs::write(daemon.path("outside/secret"), "secret").expect("the scratch directory is ours");
    symlink("../outside", daemon.path("t/out")).expect("the scratch directory is ours");
    symlink("d", daemon.path("t/in")).expect("the scratch directory is ours");
    for follow in [false, true] {
        let body = json!({"names": ["out/secret"], "follow": follow});
        pick(&daemon, body).refuses(404, "not_found");
    }
    pick(&daemon, json!({"names": ["in/f"]})).refuses(404, "not_found");
    let body = json!({"names": ["in/f", "in/link", "out"], "follow": true});
    let packed = entries(&pick(&daemon, body).is(200).body);
    let kinds: Vec<_> = packed
        .iter()
        .map(|entry| (entry.name.as_str(), entry.kind))
        .collect();
    assert_eq!(kinds, [("in/f", b'0'), ("in/link", b'0'), ("out", b'2')]);
}

fn options_choose_among_the_names(driver: Driver) {
    let daemon = with_tree(driver);
    for (body, expected) in [
        (
            json!({"names": ["d", "f"], "recursive": true, "exclude": ["sub/"]}),
            "d d/f d/link f",
        ),
        (
            json!({"names": ["d", "f", "h"], "recursive": true, "include": ["f"]}),
            "d d/f f",
        ),
        (
            json!({"names": ["d/sub/g", "d/f", "f"], "strip": 1}),
            "f sub/g",
        ),
        (json!({"names": ["f"], "newer_than": 4_000_000_000_u64}), ""),
        (
            json!({"names": ["f"], "newer_than": "2001-01-01T00:00:00Z"}),
            "f",
        ),
        (
            json!({"names": ["f"], "newer_than": 1.5, "precise": false, "xattrs": true}),
            "f",
        ),
    ] {
        assert_eq!(
            shown(&pick(&daemon, body.clone()).is(200)),
            expected,
            "{body}"
        );
    }
}

fn names_that_leave_the_tree_are_refused(driver: Driver) {
    let daemon = with_tree(driver);
    let before = tree(&daemon.path(""));
    for (name, what) in [
        ("/etc/passwd", "is not relative to path"),
        ("", "is not relative to path"),
        ("../outside", "has a .. in it"),
        ("d/../f", "has a .. in it"),
        ("a\0b", "has a NUL"),
    ] {
        let reply = pick(&daemon, json!({"names": [name]})).refuses(400, "malformed_request");
        assert_eq!(reply.json()["detail"], format!("name {name:?} {what}"));
    }
    assert_eq!(tree(&daemon.path("")), before);
}

fn a_body_that_is_no_list_is_refused(driver: Driver) {
    let daemon = with_tree(driver);
    let path = daemon.path("t").display().to_string();
    for text in [
        "".to_owned(),
        "[]".to_owned(),
        format!("[{path:?}, []]"),
        "{\"names\":[]}".to_owned(),
        format!("{{\"path\":{path:?}}}"),
        format!("{{\"path\":{path:?},\"names\":\"f\"}}"),
        format!("{{\"path\":{path:?},\"names\":[1]}}"),
        format!("{{\"path\":{path:?},\"names\":[],\"missing\":\"ignore\"}}"),
        format!("{{\"path\":{path:?},\"names\":[],\"excludes\":[\"secret\"]}}"),
        format!("{{\"path\":{path:?},\"names\":[],\"strip\":-1}}"),
        format!("{{\"path\":{path:?},\"names\":[]"),
    ] {
        let request = Request::post("/v1/fs/tar").bearer().json_text(text.clone());
        let reply = daemon.call(&request).refuses(400, "malformed_request");
        let detail = reply.json()["detail"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        assert!(
            detail.starts_with("body is not a valid tar request"),
            "{text}: {detail}"
        );
    }
    for (key, value) in [
        ("strip", json!(3000)),
        ("newer_than", json!("soon")),
        ("include", json!(["[a"])),
    ] {
        let reply =
            pick(&daemon, json!({"names": [], key: value})).refuses(400, "malformed_request");
        assert!(reply.json()["detail"].to_string().contains(key), "{key}");
    }
    let untyped = Request::post("/v1/fs/tar")
        .bearer()
        .body(format!("{{\"path\":{path:?},\"names\":[]}}"));
    daemon.call(&untyped).refuses(400, "malformed_request");
}

fn lists_are_bounded(driver: Driver) {
    let setup = Setup::new(driver).flag("--max-tar-members", "3");
    let daemon = setup.ready();
    fill(&daemon);
    pick(&daemon, json!({"names": ["f", "h", "d-e"]})).is(200);
    pick(&daemon, json!({"names": ["f", "h", "d-e", "d"]})).explains(413);
    pick(&daemon, json!({"names": ["d"], "recursive": true})).explains(413);
    let long = format!("{{\"path\":\"/\",\"names\":[\"{}\"]}}", "x".repeat(9 << 20));
    let mut connection = daemon.connect();
    let request = Request::post("/v1/fs/tar").bearer().json_text(long);
    let sending = connection.send_aside(request.bytes());
    connection.reply().explains(413);
    drop(connection);
    // The daemon need not take the rest.
    let _ = sending.join();
}

fn a_list_of_thousands_is_packed(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let mut names = Vec::new();
    for dir in 0..20 {
        fs::create_dir_all(daemon.path(&format!("t/{dir}")))
            .expect("the scratch directory is ours");
        for file in 0..100 {
            let name = format!("{dir}/{file}");
            fs::write(daemon.path("t").join(&name), noise(file * 20))
                .expect("the scratch directory is ours");
            names.push(name);
        }
    }
    names.retain(|name| !name.ends_with('7'));
    let reply = pick(&daemon, json!({ "names": names })).is(200);
    assert_eq!(
        reply.field("content-length"),
        Some(&*reply.body.len().to_string())
    );
    let packed = entries(&reply.body);
    names.sort();
    let found: Vec<_> = packed.iter().map(|entry| entry.name.clone()).collect();
    assert_eq!(found, names);
}

fn with_tree(driver: Driver) -> Daemon {
    let daemon = Daemon::ready(driver);
    fill(&daemon);
    daemon
}

fn fill(daemon: &Daemon) {
    fs::create_dir_all(daemon.path("t/d/sub")).expect("the scratch directory is ours");
    for name in ["f", "d/f", "d/sub/g", "d-e"] {
        fs::write(daemon.path("t").join(name), name).expect("the scratch directory is ours");
    }
    fs::hard_link(daemon.path("t/f"), daemon.path("t/h")).expect("the scratch directory is ours");
    symlink("sub/g", daemon.path("t/d/link")).expect("the scratch directory is ours");
}

/// Asks for a part of the tree `t`.
fn pick(daemon: &Daemon, mut body: Value) -> Reply {
    body["path"] = json!(daemon.path("t"));
    daemon.call(&post(&body))
}

fn post(body: &Value) -> Request {
    Request::post("/v1/fs/tar").bearer().json(body)
}

fn shown(reply: &Reply) -> String {
    let packed = entries(&reply.body);
    let names: Vec<_> = packed.iter().map(|entry| entry.name.as_str()).collect();
    names.join(" ")
}
