//! The statuses of what has a name, each provoked.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::client::Connection;
use crate::daemon::{Daemon, Setup};
use crate::documented::{routes, shapes};
use crate::driver::Driver;
use crate::reply::Reply;
use crate::request::{Request, with_path};
use crate::statuses::{Case, World, walk};
use crate::watcher::{Watcher, watch_at};

both![
    every_status_of_names,
    every_event_of_a_watch_is_as_published,
];

fn every_status_of_names(driver: Driver) {
    let is_mine = |path: &str| {
        ["stat", "list", "mkdir", "move", "path", "watch"]
            .iter()
            .any(|name| path == format!("/v1/fs/{name}"))
    };
    walk(driver, is_mine, CASES, AS_ROOT);
}

const CASES: &[Case] = &[
    (STAT, 200, "", |world| get(&world.daemon, STAT, text(world))),
    (STAT, 400, MALFORMED, |world| {
        world.daemon.get("/v1/fs/stat")
    }),
    (STAT, 404, "not_found", |world| {
        get(&world.daemon, STAT, "absent")
    }),
    (LIST, 200, "", |world| {
        text(world);
        world.daemon.get("/v1/fs/list?path=.&detail=1")
    }),
    (LIST, 400, MALFORMED, |world| {
        get(&world.daemon, LIST, text(world))
    }),
    (LIST, 404, "not_found", |world| {
        get(&world.daemon, LIST, "absent")
    }),
    (MAKE, 201, "", |world| {
        world.daemon.post("/v1/fs/mkdir?path=new")
    }),
    (MAKE, 204, "", |world| {
        world.daemon.post("/v1/fs/mkdir?path=new&parents=1")
    }),
    (MAKE, 400, MALFORMED, |world| {
        world.daemon.post("/v1/fs/mkdir?path=new&mode=9")
    }),
    (MAKE, 404, "not_found", |world| {
        world.daemon.post("/v1/fs/mkdir?path=a/b/c")
    }),
    (MAKE, 409, "already_exists", |world| {
        world.daemon.post("/v1/fs/mkdir?path=.")
    }),
    (MAKE, 507, "disk_full", |world| {
        world.poor().post("/v1/fs/mkdir?path=new")
    }),
    (MOVE, 204, "", |world| {
        fs::write(world.daemon.path("from"), "text").expect("the scratch directory is ours");
        rename(&world.daemon, &json!({"from": "from", "to": "to"}))
    }),
    (MOVE, 400, MALFORMED, |world| {
        fs::create_dir_all(world.daemon.path("dir")).expect("the scratch directory is ours");
        rename(&world.daemon, &json!({"from": "dir", "to": "dir/in"}))
    }),
    (MOVE, 404, "not_found", |world| {
        rename(&world.daemon, &json!({"from": "absent", "to": "to"}))
    }),
    (MOVE, 409, "already_exists", |world| {
        let path = text(world);
        rename(&world.daemon, &json!({"from": path, "to": path}))
    }),
    (MOVE, 409, "not_empty", |world| {
        for name in ["one", "two/sub"] {
            fs::create_dir_all(world.daemon.path(name)).expect("the scratch directory is ours");
        }
        rename(
            &world.daemon,
            &json!({"from": "one", "to": "two", "replace": true}),
        )
    }),
    (REMOVE, 200, "", |world| {
        fs::write(world.daemon.path("gone"), "text").expect("the scratch directory is ours");
        remove(&world.daemon, "gone")
    }),
    (REMOVE, 400, MALFORMED, |world| {
        remove(&world.daemon, "dir/..")
    }),
    (REMOVE, 404, "not_found", |world| {
        remove(&world.daemon, "absent")
    }),
    (REMOVE, 409, "not_empty", |world| {
        fs::create_dir_all(world.daemon.path("full/sub")).expect("the scratch directory is ours");
        remove(&world.daemon, "full")
    }),
    (REMOVE, 409, "in_use", |world| {
        remove(&world.daemon, world.daemon.path(""))
    }),
    (WATCH, 200, "", |world| {
        let daemon = Daemon::ready(world.driver);
        let mut connection = daemon.connect();
        connection.send(watch_at(daemon.path(""), "").bytes());
        ended_watch(&daemon, connection)
    }),
    (WATCH, 400, MALFORMED, |world| {
        world.daemon.get("/v1/fs/watch?path=.&events=none")
    }),
    (WATCH, 400, "unsupported", |world| {
        let daemon = world.setup().flag("--max-watches", "1").ready();
        fs::create_dir(daemon.path("sub")).expect("the scratch directory is ours");
        daemon.get("/v1/fs/watch?path=.&recursive=1")
    }),
    (WATCH, 404, "not_found", |world| {
        world.daemon.get("/v1/fs/watch?path=absent")
    }),
    (WATCH, 503, "busy", |world| {
        let daemon = world.setup().flag("--max-watches", "1").ready();
        let _first = Watcher::start(&daemon, daemon.path(""), "");
        daemon.get("/v1/fs/watch?path=.")
    }),
];

const AS_ROOT: &[Case] = &[
    (STAT, 403, DENIED, |world| {
        get(world.servant(), STAT, "theirs/f")
    }),
    (LIST, 403, DENIED, |world| {
        get(world.servant(), LIST, "theirs")
    }),
    (WATCH, 403, DENIED, |world| {
        get(world.servant(), WATCH, "theirs")
    }),
    (MAKE, 403, DENIED, |world| {
        world.servant().post("/v1/fs/mkdir?path=shown/new")
    }),
    (MOVE, 403, DENIED, |world| {
        rename(world.servant(), &json!({"from": "shown/f", "to": "mine/g"}))
    }),
    (REMOVE, 403, DENIED, |world| {
        remove(world.servant(), "shown/f")
    }),
    (MOVE, 400, "unsupported", |world| {
        let daemon = with_another_mount(world.setup());
        fs::create_dir(daemon.path("dir")).expect("the scratch directory is ours");
        rename(&daemon, &json!({"from": "dir", "to": "other/dir"}))
    }),
    (MOVE, 409, "in_use", |world| {
        let daemon = with_another_mount(world.setup());
        rename(&daemon, &json!({"from": "other", "to": "elsewhere"}))
    }),
    (MOVE, 507, "disk_full", |world| {
        let all = u64::MAX.to_string();
        let daemon = with_another_mount(world.setup().flag("--disk-reserve-bytes", all));
        fs::write(daemon.path("f"), "text").expect("the scratch directory is ours");
        rename(&daemon, &json!({"from": "f", "to": "other/f"}))
    }),
];

const STAT: &str = "GET /v1/fs/stat";
const LIST: &str = "GET /v1/fs/list";
const MAKE: &str = "POST /v1/fs/mkdir";
const MOVE: &str = "POST /v1/fs/move";
const REMOVE: &str = "DELETE /v1/fs/path";
const WATCH: &str = "GET /v1/fs/watch";
const MALFORMED: &str = "malformed_request";
const DENIED: &str = "permission_denied";

/// A daemon with a directory `other` that is a filesystem of its own. Needs root.
fn with_another_mount(setup: Setup) -> Daemon {
    fs::create_dir(setup.path("other")).expect("the scratch directory is ours");
    setup.with_mount("-t tmpfs none other").ready()
}

fn text(world: &World) -> PathBuf {
    let path = world.daemon.path("text");
    fs::write(&path, "text").expect("the scratch directory is ours");
    path
}

fn get(daemon: &Daemon, route: &str, path: impl AsRef<Path>) -> Reply {
    let route = route.trim_start_matches("GET ");
    daemon.get(with_path(route, path.as_ref()))
}

fn rename(daemon: &Daemon, body: &Value) -> Reply {
    daemon.call(&Request::post("/v1/fs/move").bearer().json(body))
}

fn remove(daemon: &Daemon, path: impl AsRef<Path>) -> Reply {
    let target = with_path("/v1/fs/path", path.as_ref());
    daemon.call(&Request::new("DELETE", target).bearer())
}

/// The whole answer of a watch, which ends with its daemon.
fn ended_watch(daemon: &Daemon, mut connection: Connection) -> Reply {
    let mut reply = connection.head().expect("a response");
    let first = connection.chunk(0).expect("an event").expect("an event");
    daemon.signal(rustix::process::Signal::TERM);
    reply.body = first;
    while let Some(more) = connection.chunk(0).expect("the stream goes on") {
        reply.body.extend(more);
    }
    reply
}

fn every_event_of_a_watch_is_as_published(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let mut connection = daemon.connect();
    connection.send(watch_at(daemon.path(""), "").bytes());
    let mut reply = connection.head().expect("a response").is(200);
    reply.body = connection.chunk(0).expect("an event").expect("an event");
    fs::write(daemon.path("f"), "text").expect("the scratch directory is ours");
    reply
        .body
        .extend(connection.chunk(0).expect("an event").expect("an event"));
    daemon.signal(rustix::process::Signal::TERM);
    while let Some(more) = connection.chunk(0).expect("the stream goes on") {
        reply.body.extend(more);
    }
    let route = routes().find(|route| route["path"] == "/v1/fs/watch");
    let published = route.expect("it is published")["sse_events"].as_array();
    let published = published.expect("events");
    let mut seen = Vec::new();
    for event in reply.text().split_terminator("\n\n") {
        let (name, data) = event.split_once("\ndata: ").expect("a name and data");
        let name = name.strip_prefix("event: ").expect("a name");
        let event = published.iter().find(|event| event["event"] == name);
        let schema = &event.unwrap_or_else(|| panic!("{name} is not published"))["schema"];
        let data = serde_json::from_str(data).expect("JSON");
        shapes()
            .fit(schema, &data)
            .unwrap_or_else(|why| panic!("{name}: {why}"));
        seen.push(name.to_owned());
    }
    seen.dedup();
    assert_eq!(seen, ["ready", "change", "gone"]);
}
