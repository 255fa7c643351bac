//! A client of resumable and parallel uploads.

use base64::Engine;
use serde_json::Value;

use crate::daemon::Daemon;
use crate::reply::Reply;
use crate::request::{Request, with_path};

/// Begins an upload of a file below the daemon's working directory, without bytes; answers where it is.
#[track_caller]
pub(crate) fn begin(daemon: &Daemon, name: &str, length: Option<usize>) -> String {
    began(&daemon.call(&creation(daemon, name, length)))
}

/// The same for one whose parts come in any order.
#[track_caller]
pub(crate) fn begin_parallel(daemon: &Daemon, name: &str, length: usize) -> String {
    let target = format!("{}&parallel=1", with_path("/v1/uploads", daemon.path(name)));
    let request = Request::post(target).bearer();
    began(&daemon.call(&request.field("upload-length", length.to_string())))
}

/// The request that begins an upload.
pub(crate) fn creation(daemon: &Daemon, name: &str, length: Option<usize>) -> Request {
    let request = Request::post(with_path("/v1/uploads", daemon.path(name))).bearer();
    match length {
        Some(length) => request.field("upload-length", length.to_string()),
        None => request,
    }
}

/// Where the upload is that a request has begun.
#[track_caller]
pub(crate) fn began(reply: &Reply) -> String {
    assert_eq!(reply.status, 201, "{reply:?}");
    assert_eq!(reply.field("upload-complete"), Some("?0"), "{reply:?}");
    let location = reply.field("location").expect("a place to go on");
    assert!(location.starts_with("/v1/uploads/"), "{location}");
    location.to_owned()
}

/// A request that brings bytes from `offset` on, without a body yet.
pub(crate) fn patch(location: &str, offset: usize, complete: &str) -> Request {
    Request::new("PATCH", location)
        .bearer()
        .field("content-type", "application/partial-upload")
        .field("upload-offset", offset.to_string())
        .field("upload-complete", complete)
}

/// Brings bytes.
#[track_caller]
pub(crate) fn append(
    daemon: &Daemon,
    location: &str,
    offset: usize,
    complete: bool,
    bytes: &[u8],
) -> Reply {
    let complete = if complete { "?1" } else { "?0" };
    daemon.call(&patch(location, offset, complete).body(bytes))
}

/// Asks how far an upload is.
#[track_caller]
pub(crate) fn ask(daemon: &Daemon, location: &str) -> Reply {
    daemon.call(&Request::new("HEAD", location).bearer())
}

/// How far an upload is, and that it is not complete.
#[track_caller]
pub(crate) fn offset(daemon: &Daemon, location: &str) -> usize {
    let reply = ask(daemon, location).bare(204);
    assert_eq!(reply.field("upload-complete"), Some("?0"), "{reply:?}");
    assert_eq!(reply.field("cache-control"), Some("no-store"), "{reply:?}");
    let offset = reply.field("upload-offset").expect("an offset");
    offset.parse().expect("a number")
}

/// What the list of uploads says.
#[track_caller]
pub(crate) fn list(daemon: &Daemon) -> Vec<Value> {
    let list = daemon.get("/v1/uploads").is(200).json();
    list["uploads"].as_array().expect("a list").clone()
}

/// What is told of one upload.
#[track_caller]
pub(crate) fn status(daemon: &Daemon, location: &str) -> Value {
    daemon.get(location).is(200).json()
}

/// A digest field of these bytes.
pub(crate) fn digest(bytes: &[u8]) -> String {
    use sha2::Digest;
    let digest = base64::engine::general_purpose::STANDARD.encode(sha2::Sha256::digest(bytes));
    format!("sha-256=:{digest}:")
}
