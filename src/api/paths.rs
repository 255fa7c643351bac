//! Operations on names: what is there, and making, moving, removing and watching it.

mod change;
mod document;
mod list;
mod watch;

use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use super::row::{Access, Answer, Call, Form, Method, Row, Run};
use crate::error::{Kind, Result};
use crate::fs::stat;
use crate::wire::http::query::Query;

/// The rows of this room.
pub static ROWS: &[Row] = &[
    Row {
        name: "path.stat",
        method: Method::Get,
        path: "/v1/fs/stat",
        access: Access::Bearer,
        form: Form::Json,
        about: "what a path names: type, size, mode, owner, times, identity",
        errors: &[
            Kind::Malformed,
            Kind::NotFound,
            Kind::Denied,
            Kind::Internal,
        ],
        run: |_, call| -> Run { Box::pin(look(call)) },
    },
    Row {
        name: "path.list",
        method: Method::Get,
        path: "/v1/fs/list",
        access: Access::Bearer,
        form: Form::Json,
        about: "the entries of a directory in the order of their names, and those below it",
        errors: &[
            Kind::Malformed,
            Kind::NotFound,
            Kind::Denied,
            Kind::Internal,
        ],
        run: |_, call| -> Run { Box::pin(list::list(call)) },
    },
    Row {
        name: "path.make",
        method: Method::Post,
        path: "/v1/fs/mkdir",
        access: Access::Bearer,
        form: Form::Json,
        about: "makes a directory, and on request those above it",
        errors: CHANGES,
        run: |app, call| -> Run { Box::pin(change::make(app, call)) },
    },
    Row {
        name: "path.move",
        method: Method::Post,
        path: "/v1/fs/move",
        access: Access::Bearer,
        form: Form::Json,
        about: "gives an entry another name, on another mount too if it is a file or a link",
        errors: CHANGES,
        run: |app, call| -> Run { Box::pin(change::rename(app, call)) },
    },
    Row {
        name: "path.remove",
        method: Method::Delete,
        path: "/v1/fs/path",
        access: Access::Bearer,
        form: Form::Json,
        about: "removes an entry, and on request all that is below it",
        errors: CHANGES,
        run: |app, call| -> Run { Box::pin(change::remove(app, call)) },
    },
    Row {
        name: "path.watch",
        method: Method::Get,
        path: "/v1/fs/watch",
        access: Access::Bearer,
        form: Form::Json,
        about: "tells changes of a file or directory as they happen",
        errors: &[
            Kind::Malformed,
            Kind::NotFound,
            Kind::Denied,
            Kind::Unsupported,
            Kind::Busy,
            Kind::Internal,
        ],
        run: |app, call| -> Run { Box::pin(watch::watch(app, call)) },
    },
];

/// What can become of a change.
const CHANGES: &[Kind] = &[
    Kind::Malformed,
    Kind::NotFound,
    Kind::Exists,
    Kind::NotEmpty,
    Kind::InUse,
    Kind::Denied,
    Kind::Unsupported,
    Kind::DiskFull,
    Kind::Internal,
];

async fn look(call: Call) -> Result<Answer> {
    let path = path(&call.query)?;
    let follow = call.query.flag("follow", false)?;
    let facts = stat::look(&path, follow).await?;
    json(&document::of(path.as_os_str().as_bytes(), &facts))
}

fn json(document: &impl serde::Serialize) -> Result<Answer> {
    let document = serde_json::to_vec(document);
    document
        .map(Answer::Json)
        .map_err(|error| Kind::Internal.told("internal error").because(error))
}

fn path(query: &Query) -> Result<PathBuf> {
    match query.one("path")? {
        Some(path) => named(path, "path"),
        None => Err(Kind::Malformed.told("path query parameter is required")),
    }
}

/// A path that can be one.
fn named(path: String, what: &str) -> Result<PathBuf> {
    match path.contains('\0') {
        false => Ok(PathBuf::from(path)),
        true => Err(Kind::Malformed.told(format!("{what} holds a NUL"))),
    }
}

/// A whole number of the query, both ends of its range included.
fn number(query: &Query, key: &str, least: u64, most: u64) -> Result<Option<u64>> {
    let Some(text) = query.one(key)? else {
        return Ok(None);
    };
    let is_digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.parse().ok().filter(|_| is_digits);
    match number.filter(|number| (least..=most).contains(number)) {
        Some(number) => Ok(Some(number)),
        None => {
            let told = format!("{key} must be a whole number from {least} to {most}");
            Err(Kind::Malformed.told(told))
        }
    }
}
