//! Operations on names: what is there, and making, moving, removing and watching it.

mod change;
mod document;
mod list;
mod watch;

use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use schemars::SchemaGenerator;

use self::change::{MoveRequest, Removed};
use self::document::EntryDocument;
use self::list::{LISTED, ListPage};
use self::watch::{Change, Gone, Nothing, Ready};
use super::contract::{Contract, Event, Shape, Success};
use super::queries::{ListQuery, MakeQuery, RemoveQuery, StatQuery, WatchQuery};
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
            (
                Kind::Malformed,
                "no path, or one that cannot be; another value of follow",
            ),
            (Kind::NotFound, NOTHING),
            (Kind::Denied, "a directory on the way may not be searched"),
        ],
        contract: Contract {
            is_ours: true,
            query: Some(SchemaGenerator::subschema_for::<StatQuery>),
            successes: &[(Success::Whole, "what it is")],
            response: &[Shape::json::<EntryDocument<'_>>()],
            ..Contract::NONE
        },
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
            (Kind::Malformed, "no directory, or a value that is none"),
            (Kind::NotFound, NOTHING),
            (Kind::Denied, "the directory may not be read"),
        ],
        contract: Contract {
            is_ours: true,
            query: Some(SchemaGenerator::subschema_for::<ListQuery>),
            takes: &[("accept", "`application/x-ndjson` asks for lines")],
            successes: &[(Success::Whole, "a page, or all of it as lines")],
            response: &[Shape::json::<ListPage<'_>>(), LISTED],
            ..Contract::NONE
        },
        run: |_, call| -> Run { Box::pin(list::list(call)) },
    },
    Row {
        name: "path.make",
        method: Method::Post,
        path: "/v1/fs/mkdir",
        access: Access::Bearer,
        form: Form::Json,
        about: "makes a directory, and on request those above it",
        errors: &[
            (
                Kind::Malformed,
                "no path, or one that cannot be; a value that is none",
            ),
            (Kind::NotFound, "the directory above it is not there"),
            (
                Kind::Exists,
                "something has the name, or a part of the path is no directory",
            ),
            (Kind::Denied, DENIED),
            (Kind::DiskFull, FULL),
        ],
        contract: Contract {
            is_ours: true,
            query: Some(SchemaGenerator::subschema_for::<MakeQuery>),
            successes: &[
                (Success::Created, "made"),
                (Success::Done, "it was there, and parents is on"),
            ],
            ..Contract::NONE
        },
        run: |app, call| -> Run { Box::pin(change::make(app, call)) },
    },
    Row {
        name: "path.move",
        method: Method::Post,
        path: "/v1/fs/move",
        access: Access::Bearer,
        form: Form::Json,
        about: "gives an entry another name, on another mount too if it is a file or a link",
        errors: &[
            (
                Kind::Malformed,
                "the body is no move request, or a directory would be inside itself",
            ),
            (
                Kind::NotFound,
                "from, or the directory above to, is not there",
            ),
            (
                Kind::Exists,
                "to is there, or a file and a directory would replace each other",
            ),
            (Kind::NotEmpty, "the directory to has something in it"),
            (
                Kind::InUse,
                "a mount point, or a file that changes while it is copied",
            ),
            (Kind::Denied, DENIED),
            (
                Kind::Unsupported,
                "only files and links are moved to another mount",
            ),
            (Kind::DiskFull, FULL),
        ],
        contract: Contract {
            is_ours: true,
            request: &[Shape::json::<MoveRequest>()],
            successes: &[(Success::Done, "moved")],
            ..Contract::NONE
        },
        run: |app, call| -> Run { Box::pin(change::rename(app, call)) },
    },
    Row {
        name: "path.remove",
        method: Method::Delete,
        path: "/v1/fs/path",
        access: Access::Bearer,
        form: Form::Json,
        about: "removes an entry, and on request all that is below it",
        errors: &[
            (
                Kind::Malformed,
                "no path, or one that cannot be; a value that is none",
            ),
            (Kind::NotFound, NOTHING),
            (
                Kind::NotEmpty,
                "a directory with something in it, and recursive is off",
            ),
            (Kind::InUse, "a mount point, or what the daemon works in"),
            (Kind::Denied, DENIED),
        ],
        contract: Contract {
            is_ours: true,
            query: Some(SchemaGenerator::subschema_for::<RemoveQuery>),
            successes: &[(Success::Whole, "gone")],
            response: &[Shape::json::<Removed>()],
            ..Contract::NONE
        },
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
            (
                Kind::Malformed,
                "no path, another kind in events, or a value that is none",
            ),
            (Kind::NotFound, NOTHING),
            (Kind::Denied, "it may not be read"),
            (
                Kind::Unsupported,
                "the tree has more directories than may be watched",
            ),
            (Kind::Busy, "as much is watched as may be"),
        ],
        contract: Contract {
            is_ours: true,
            query: Some(SchemaGenerator::subschema_for::<WatchQuery>),
            successes: &[(Success::Whole, "watches")],
            response: &[Shape::bytes(
                "text/event-stream",
                "an event is a name and one line of JSON; the first one is ready, the last one gone",
            )],
            events: &[
                Event::new::<Ready>("ready", "every change behind it is told"),
                Event::new::<Change<'_>>("change", "something has changed"),
                Event::new::<Nothing>("overflow", "changes are missing: list the tree again"),
                Event::new::<Gone>("gone", "nothing more can be told; nothing follows"),
            ],
            ..Contract::NONE
        },
        run: |app, call| -> Run { Box::pin(watch::watch(app, call)) },
    },
];

const NOTHING: &str = "nothing has this path";
const DENIED: &str = "the daemon's user may not do it, or the file system is read-only";
const FULL: &str = "less than the reserve is free, or the disk is full";

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
