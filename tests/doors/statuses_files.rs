//! The statuses of files, archives and manifests, each provoked.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::archive::{archive, file};
use crate::daemon::Daemon;
use crate::driver::Driver;
use crate::reply::Reply;
use crate::request::{Request, file_at, tar_at};
use crate::statuses::{Case, World, walk};

both![every_status_of_files_and_archives];

fn every_status_of_files_and_archives(driver: Driver) {
    let is_mine = |path: &str| ["/v1/fs/file", "/v1/fs/tar", "/v1/fs/manifest"].contains(&path);
    walk(driver, is_mine, CASES, AS_ROOT);
}

const CASES: &[Case] = &[
    (READ, 200, "", |world| {
        world.daemon.get(file_at(text(world)))
    }),
    (READ, 206, "", |world| read(world, "range", "bytes=1-2")),
    (READ, 304, "", |world| read(world, "if-none-match", "*")),
    (READ, 400, "", |world| world.daemon.get("/v1/fs/file")),
    (READ, 404, "", |world| {
        world.daemon.get(file_at(world.daemon.path("absent")))
    }),
    (READ, 412, "", |world| read(world, "if-match", "\"x\"")),
    (READ, 413, "", |world| {
        world.daemon.get(file_at("/dev/zero") + "&last_lines=1")
    }),
    (READ, 416, "", |world| read(world, "range", "bytes=100-")),
    (READ, 500, "", |world| {
        world.daemon.get(file_at("x".repeat(300)))
    }),
    (WRITE, 204, "", |world| {
        world.daemon.put(file_at(world.daemon.path("w")), "text")
    }),
    (WRITE, 201, "", |world| {
        let request = Request::put(file_at(world.daemon.path("w"))).bearer();
        world
            .daemon
            .call(&request.field("upload-complete", "?0").body("te"))
    }),
    (WRITE, 400, "", |world| {
        world.daemon.put("/v1/fs/file", "text")
    }),
    (WRITE, 409, "", |world| {
        let target = file_at(world.daemon.path("w")) + "&parallel=1";
        let request = Request::put(target).bearer().field("upload-length", "4");
        let request = request.field("upload-draft-interop-version", "8");
        world
            .daemon
            .call(&request.field("upload-complete", "?1").chunks(["te"]))
    }),
    (WRITE, 412, "", |world| {
        let request = Request::put(file_at(text(world))).bearer().body("text");
        world.daemon.call(&request.field("if-none-match", "*"))
    }),
    (WRITE, 415, "", |world| {
        let request = Request::put(file_at(world.daemon.path("w")))
            .bearer()
            .body("text");
        world.daemon.call(&request.field("content-encoding", "br"))
    }),
    (WRITE, 500, "", |world| {
        world.daemon.put(file_at(tree(&world.daemon)), "text")
    }),
    (WRITE, 507, "", |world| {
        world.poor().put(file_at(world.poor().path("w")), "text")
    }),
    (PACK, 200, "", |world| {
        world.daemon.get(tar_at(tree(&world.daemon)))
    }),
    (PACK, 400, "", |world| world.daemon.get(tar_at(text(world)))),
    (PACK, 404, "", |world| {
        world.daemon.get(tar_at(world.daemon.path("absent")))
    }),
    (PACK, 413, "", |world| {
        let daemon = world.setup().flag("--max-tar-members", "1").ready();
        daemon.get(tar_at(tree(&daemon)))
    }),
    (PICK, 200, "", |world| pick(&world.daemon, &json!(["f"]))),
    (PICK, 400, "malformed_request", |world| {
        pick(&world.daemon, &json!(["/f"]))
    }),
    (PICK, 404, "not_found", |world| {
        pick(&world.daemon, &json!(["absent"]))
    }),
    (EXTRACT, 204, "", |world| {
        let body = archive([file("f", "text")]);
        world.daemon.put(tar_at(world.daemon.path("x")), body)
    }),
    (EXTRACT, 400, "", |world| {
        world.daemon.put(tar_at("relative"), "")
    }),
    (EXTRACT, 415, "", |world| {
        let request = Request::put(tar_at(world.daemon.path("x")))
            .bearer()
            .body("text");
        world.daemon.call(&request.field("content-encoding", "br"))
    }),
    (EXTRACT, 500, "", |world| {
        let body = archive([file("sub", "text")]);
        world.daemon.put(tar_at(tree(&world.daemon)), body)
    }),
    (EXTRACT, 507, "", |world| {
        let body = archive([file("f", "text")]);
        world.poor().put(tar_at(world.poor().path("x")), body)
    }),
    (MANIFEST, 200, "", |world| {
        manifest(&world.daemon, tree(&world.daemon))
    }),
    (MANIFEST, 400, "malformed_request", |world| {
        manifest(&world.daemon, text(world))
    }),
    (MANIFEST, 404, "not_found", |world| {
        manifest(&world.daemon, world.daemon.path("absent"))
    }),
];

const AS_ROOT: &[Case] = &[
    (WRITE, 403, "", |world| {
        let daemon = world.servant();
        daemon.put(file_at(daemon.path("mine/f")) + "&owner=0", "text")
    }),
    (PACK, 500, "", |world| {
        world.servant().get(tar_at(world.servant().path("theirs")))
    }),
    (PICK, 500, "", |world| {
        let path = world.servant().path("theirs");
        let body = json!({"path": path, "names": ["."], "recursive": true});
        world
            .servant()
            .call(&Request::post("/v1/fs/tar").bearer().json(&body))
    }),
    (EXTRACT, 403, "", |world| {
        let daemon = world.servant();
        daemon.put(tar_at(daemon.path("mine/x")) + "&owner=keep", "")
    }),
    (MANIFEST, 500, "", |world| {
        manifest(world.servant(), world.servant().path("theirs"))
    }),
];

const READ: &str = "GET /v1/fs/file";
const WRITE: &str = "PUT /v1/fs/file";
const PACK: &str = "GET /v1/fs/tar";
const PICK: &str = "POST /v1/fs/tar";
const EXTRACT: &str = "PUT /v1/fs/tar";
const MANIFEST: &str = "POST /v1/fs/manifest";

/// A file of four bytes.
fn text(world: &World) -> PathBuf {
    let path = world.daemon.path("text");
    fs::write(&path, "text").expect("the scratch directory is ours");
    path
}

/// A directory with a file and a directory.
fn tree(daemon: &Daemon) -> PathBuf {
    let path = daemon.path("tree");
    fs::create_dir_all(path.join("sub")).expect("the scratch directory is ours");
    fs::write(path.join("f"), "text").expect("the scratch directory is ours");
    path
}

fn read(world: &World, field: &str, value: &str) -> Reply {
    let request = Request::get(file_at(text(world))).bearer();
    world.daemon.call(&request.field(field, value))
}

fn pick(daemon: &Daemon, names: &Value) -> Reply {
    let body = json!({"path": tree(daemon), "names": names});
    daemon.call(&Request::post("/v1/fs/tar").bearer().json(&body))
}

fn manifest(daemon: &Daemon, path: PathBuf) -> Reply {
    let body = json!({"path": path});
    daemon.call(&Request::post("/v1/fs/manifest").bearer().json(&body))
}
