//! Calls on names: targets, requests, and listings read to their end.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use serde_json::{Value, json};

use crate::daemon::Daemon;
use crate::reply::Reply;
use crate::request::{Request, escaped, with_path};

/// `/v1/fs/stat` for this path.
pub(crate) fn stat_at(path: impl AsRef<Path>) -> String {
    with_path("/v1/fs/stat", path.as_ref())
}

/// `/v1/fs/list` for this path, with more of a query.
pub(crate) fn list_at(path: impl AsRef<Path>, more: &str) -> String {
    with_path("/v1/fs/list", path.as_ref()) + more
}

/// What stat tells.
#[track_caller]
pub(crate) fn stat(daemon: &Daemon, path: impl AsRef<Path>) -> Value {
    daemon.get(stat_at(path)).is(200).json()
}

/// Asks for a directory to be made, with more of a query.
#[track_caller]
pub(crate) fn mkdir(daemon: &Daemon, path: impl AsRef<Path>, more: &str) -> Reply {
    daemon.post(with_path("/v1/fs/mkdir", path.as_ref()) + more)
}

/// Asks for a removal, with more of a query.
#[track_caller]
pub(crate) fn remove(daemon: &Daemon, path: impl AsRef<Path>, more: &str) -> Reply {
    let target = with_path("/v1/fs/path", path.as_ref()) + more;
    daemon.call(&Request::new("DELETE", target).bearer())
}

/// Asks for a move, with more fields.
#[track_caller]
pub(crate) fn rename(
    daemon: &Daemon,
    from: impl AsRef<Path>,
    to: impl AsRef<Path>,
    more: &Value,
) -> Reply {
    let mut body = json!({"from": from.as_ref(), "to": to.as_ref()});
    for (key, value) in more.as_object().expect("an object") {
        body[key] = value.clone();
    }
    daemon.call(&Request::post("/v1/fs/move").bearer().json(&body))
}

/// The paths of a page, and where the next one begins.
#[track_caller]
pub(crate) fn page(
    daemon: &Daemon,
    path: impl AsRef<Path>,
    more: &str,
) -> (Vec<String>, Option<String>) {
    let page = daemon.get(list_at(path, more)).is(200).json();
    let entries = page["entries"].as_array().expect("an array");
    let next = page["next"].as_str().map(str::to_owned);
    (entries.iter().map(name).collect(), next)
}

/// Every path of a listing, page by page.
#[track_caller]
pub(crate) fn pages(daemon: &Daemon, path: impl AsRef<Path>, more: &str) -> Vec<String> {
    let mut all = Vec::new();
    let mut after = String::new();
    loop {
        let (mut entries, next) = page(daemon, path.as_ref(), &format!("{more}{after}"));
        all.append(&mut entries);
        let Some(next) = next else { return all };
        after = format!("&after={}", escaped(next.as_bytes()));
    }
}

/// The entries of a listing in lines, and its last line.
#[track_caller]
pub(crate) fn lines(daemon: &Daemon, path: impl AsRef<Path>, more: &str) -> (Vec<Value>, Value) {
    let request = Request::get(list_at(path, more)).bearer();
    let reply = daemon.call(&request.field("accept", "application/x-ndjson"));
    let reply = reply.is(200);
    assert_eq!(reply.field("content-type"), Some("application/x-ndjson"));
    let text = reply.text();
    assert!(text.ends_with('\n'), "{text}");
    let parse = |line| serde_json::from_str(line).expect("each line is JSON");
    let mut lines: Vec<Value> = text.lines().map(parse).collect();
    let end = lines.pop().expect("the last line");
    (lines, end)
}

/// The path of an entry.
#[track_caller]
pub(crate) fn name(entry: &Value) -> String {
    entry["path"].as_str().expect("a path").to_owned()
}

/// A path below `dir` whose last name is these bytes.
pub(crate) fn odd(dir: &Path, name: &[u8]) -> std::path::PathBuf {
    dir.join(std::ffi::OsStr::from_bytes(name))
}
