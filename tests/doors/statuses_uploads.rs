//! The statuses of uploads, each provoked.

use std::fs;

use crate::client::Connection;
use crate::daemon::Daemon;
use crate::disk::with_disk;
use crate::driver::Driver;
use crate::process::wait_until;
use crate::reply::Reply;
use crate::request::{Request, with_path};
use crate::resumable::{append, ask, begin, begin_parallel, creation, digest, list, patch};
use crate::scratch::noise;
use crate::statuses::{Case, World, walk};

both![every_status_of_uploads];

fn every_status_of_uploads(driver: Driver) {
    walk(
        driver,
        |path| path.starts_with("/v1/uploads"),
        CASES,
        AS_ROOT,
    );
}

const CASES: &[Case] = &[
    (CREATE, 201, "", |world| {
        world.daemon.call(&creation(&world.daemon, "new", None))
    }),
    (CREATE, 204, "", |world| {
        let request = creation(&world.daemon, "whole", Some(4));
        world
            .daemon
            .call(&request.field("upload-complete", "?1").body("text"))
    }),
    (CREATE, 400, "malformed_request", |world| {
        world.daemon.post("/v1/uploads")
    }),
    (CREATE, 400, "unknown_user", |world| {
        create(world, "&owner=no%20one")
    }),
    (CREATE, 400, "unknown_group", |world| {
        create(world, "&owner=:no%20one")
    }),
    (CREATE, 400, "inconsistent_length", |world| {
        let request = creation(&world.daemon, "long", Some(3));
        world.daemon.call(&request.body("text"))
    }),
    (CREATE, 409, "upload_incomplete", |world| {
        let target = with_path("/v1/uploads", world.daemon.path("part")) + "&parallel=1";
        let request = Request::post(target).bearer().field("upload-length", "4");
        world
            .daemon
            .call(&request.field("upload-complete", "?1").chunks(["te"]))
    }),
    (CREATE, 409, "in_use", |world| {
        let daemon = Daemon::ready(world.driver);
        let stalled = stall(&daemon, &creation(&daemon, "taken", None).body("text"));
        let id = list(&daemon)[0]["id"].as_str().expect("a text").to_owned();
        taken_over(&daemon, &format!("/v1/uploads/{id}"), stalled)
    }),
    (CREATE, 412, "precondition_failed", |world| {
        fs::write(world.daemon.path("there"), "old").expect("the scratch directory is ours");
        let request = creation(&world.daemon, "there", None).field("if-none-match", "*");
        world
            .daemon
            .call(&request.field("upload-complete", "?1").body("text"))
    }),
    (CREATE, 415, "unsupported_coding", |world| {
        let request = creation(&world.daemon, "coded", None);
        world
            .daemon
            .call(&request.field("content-encoding", "gzip").body("text"))
    }),
    (CREATE, 500, "", |world| {
        fs::write(world.daemon.path("file"), "text").expect("the scratch directory is ours");
        world
            .daemon
            .call(&creation(&world.daemon, "file/below", None))
    }),
    (CREATE, 503, "busy", |world| {
        let daemon = world.setup().flag("--max-uploads", "1").ready();
        begin(&daemon, "a", None);
        daemon.call(&creation(&daemon, "b", None))
    }),
    (CREATE, 507, "disk_full", |world| {
        world.poor().call(&creation(world.poor(), "f", None))
    }),
    (LIST, 200, "", |world| {
        begin(&world.daemon, "listed", None);
        world.daemon.get("/v1/uploads")
    }),
    (STATUS, 200, "", |world| {
        let upload = begin_parallel(&world.daemon, "asked", 4);
        world.daemon.get(upload)
    }),
    (STATUS, 204, "", |world| {
        let upload = begin(&world.daemon, "asked", None);
        ask(&world.daemon, &upload)
    }),
    (STATUS, 404, UNKNOWN, |world| {
        world.daemon.get("/v1/uploads/x")
    }),
    (APPEND, 204, "", |world| {
        let upload = begin(&world.daemon, "longer", None);
        append(&world.daemon, &upload, 0, false, b"text")
    }),
    (APPEND, 400, "malformed_request", |world| {
        let upload = begin(&world.daemon, "longer", None);
        world
            .daemon
            .call(&Request::new("PATCH", upload).bearer().body("text"))
    }),
    (APPEND, 400, "upload_completed", |world| {
        let upload = begin(&world.daemon, "longer", None);
        append(&world.daemon, &upload, 0, true, b"text").is(204);
        append(&world.daemon, &upload, 0, false, b"")
    }),
    (APPEND, 400, "inconsistent_length", |world| {
        let upload = begin(&world.daemon, "longer", Some(3));
        append(&world.daemon, &upload, 0, true, b"text")
    }),
    (APPEND, 404, UNKNOWN, |world| {
        append(&world.daemon, "/v1/uploads/x", 0, true, b"text")
    }),
    (APPEND, 409, "upload_offset", |world| {
        let upload = begin(&world.daemon, "longer", None);
        append(&world.daemon, &upload, 1, false, b"text")
    }),
    (APPEND, 409, "upload_incomplete", |world| {
        let upload = begin_parallel(&world.daemon, "longer", 4);
        append(&world.daemon, &upload, 0, true, b"te")
    }),
    (APPEND, 409, "in_use", |world| {
        let daemon = Daemon::ready(world.driver);
        let upload = begin(&daemon, "taken", None);
        let stalled = stall(&daemon, &patch(&upload, 0, "?0").body("text"));
        taken_over(&daemon, &upload, stalled)
    }),
    (APPEND, 412, "precondition_failed", |world| {
        let upload = spoiled(world, "spoiled");
        append(&world.daemon, &upload, 0, true, b"text")
    }),
    (APPEND, 415, "unsupported_media_type", |world| {
        let upload = begin(&world.daemon, "longer", None);
        let request = Request::new("PATCH", upload).bearer().body("text");
        world
            .daemon
            .call(&request.field("content-type", "text/plain"))
    }),
    (APPEND, 415, "unsupported_coding", |world| {
        let upload = begin(&world.daemon, "longer", None);
        let request = patch(&upload, 0, "?0").body("text");
        world
            .daemon
            .call(&request.field("content-encoding", "gzip"))
    }),
    (APPEND, 500, "", |world| {
        let upload = begin(&world.daemon, "dir", None);
        fs::create_dir_all(world.daemon.path("dir")).expect("the scratch directory is ours");
        append(&world.daemon, &upload, 0, true, b"text")
    }),
    (FINISH, 204, "", |world| {
        let upload = begin_parallel(&world.daemon, "done", 0);
        world.daemon.post(format!("{upload}/finish"))
    }),
    (FINISH, 400, "malformed_request", |world| {
        let upload = begin_parallel(&world.daemon, "done", 0);
        let request = Request::post(format!("{upload}/finish")).bearer();
        world
            .daemon
            .call(&request.field("repr-digest", digest(b"other")))
    }),
    (FINISH, 404, UNKNOWN, |world| {
        world.daemon.post("/v1/uploads/x/finish")
    }),
    (FINISH, 409, "upload_incomplete", |world| {
        let upload = begin_parallel(&world.daemon, "done", 4);
        world.daemon.post(format!("{upload}/finish"))
    }),
    (FINISH, 409, "in_use", |world| {
        let daemon = Daemon::ready(world.driver);
        let upload = begin(&daemon, "busy", None);
        append(&daemon, &upload, 0, false, b"text").is(204);
        let _stalled = stall(&daemon, &patch(&upload, 4, "?0").body("text"));
        daemon.post(format!("{upload}/finish"))
    }),
    (FINISH, 412, "precondition_failed", |world| {
        let upload = spoiled(world, "spoiled too");
        append(&world.daemon, &upload, 0, false, b"").is(204);
        world.daemon.post(format!("{upload}/finish"))
    }),
    (FINISH, 500, "", |world| {
        let upload = begin_parallel(&world.daemon, "in the way", 0);
        fs::create_dir(world.daemon.path("in the way")).expect("the scratch directory is ours");
        world.daemon.post(format!("{upload}/finish"))
    }),
    (CANCEL, 204, "", |world| {
        let upload = begin(&world.daemon, "given up", None);
        world.daemon.call(&Request::new("DELETE", upload).bearer())
    }),
    (CANCEL, 404, UNKNOWN, |world| {
        world
            .daemon
            .call(&Request::new("DELETE", "/v1/uploads/x").bearer())
    }),
];

const AS_ROOT: &[Case] = &[
    (CREATE, 403, "permission_denied", |world| {
        let daemon = world.servant();
        let target = with_path("/v1/uploads", daemon.path("mine/f")) + "&owner=0";
        let request = Request::post(target)
            .bearer()
            .field("upload-complete", "?1");
        daemon.call(&request.body("text"))
    }),
    (APPEND, 507, "disk_full", |world| {
        let daemon = with_disk(world.setup()).expect("root can mount");
        let daemon = daemon.flag("--disk-reserve-bytes", "0").ready();
        let upload = begin(&daemon, "disk/f", None);
        append(&daemon, &upload, 0, true, &noise(20 << 20))
    }),
];

const CREATE: &str = "POST /v1/uploads";
const LIST: &str = "GET /v1/uploads";
const STATUS: &str = "GET /v1/uploads/{id}";
const APPEND: &str = "PATCH /v1/uploads/{id}";
const FINISH: &str = "POST /v1/uploads/{id}/finish";
const CANCEL: &str = "DELETE /v1/uploads/{id}";
const UNKNOWN: &str = "unknown_upload";

fn create(world: &World, query: &str) -> Reply {
    let target = with_path("/v1/uploads", world.daemon.path("new")) + query;
    world.daemon.post(target)
}

/// A parallel upload of nothing, to where something came that must not be there.
fn spoiled(world: &World, name: &str) -> String {
    let request = creation(&world.daemon, name, None).field("if-none-match", "*");
    let begun = world.daemon.call(&request).is(201);
    fs::write(world.daemon.path(name), "old").expect("the scratch directory is ours");
    begun
        .field("location")
        .expect("a place to go on")
        .to_owned()
}

/// Sends a request but for its last byte, and waits until the daemon works on it.
fn stall(daemon: &Daemon, request: &Request) -> Connection {
    let mut connection = daemon.connect();
    let bytes = request.bytes();
    connection.send(&bytes[..bytes.len() - 1]);
    wait_until("it is under way", || {
        list(daemon)
            .first()
            .is_some_and(|upload| upload["requests"] == 1)
    });
    connection
}

/// What a stalled request is answered when another one takes its upload.
fn taken_over(daemon: &Daemon, upload: &str, mut stalled: Connection) -> Reply {
    // It is refused, but has its turn before that.
    append(daemon, upload, 1000, false, b"x");
    let _ = stalled.try_send("t");
    stalled.reply()
}
