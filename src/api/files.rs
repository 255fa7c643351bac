//! Operations on files: one file read or written, a tree read or written as a tar archive.

mod owner;
mod read;
mod tar_options;
mod tar_read;
mod tar_write;
mod write;

use std::path::PathBuf;

pub(super) use write::{asked, told};

use super::row::{Access, Form, Method, Row, Run};
use crate::error::{Kind, Result};
use crate::wire::http::query::Query;

/// The rows of this room.
pub static ROWS: &[Row] = &[
    Row {
        name: "file.read",
        method: Method::Get,
        path: "/v1/fs/file",
        access: Access::Bearer,
        form: Form::Text,
        about: "the bytes of a file, a range of them, or a window of its lines",
        errors: &[
            Kind::Malformed,
            Kind::NotFound,
            Kind::PreconditionFailed,
            Kind::RangeNotSatisfiable,
            Kind::TooLarge,
            Kind::Internal,
        ],
        run: |app, call| -> Run { Box::pin(read::read(app, call)) },
    },
    Row {
        name: "file.write",
        method: Method::Put,
        path: "/v1/fs/file",
        access: Access::Bearer,
        form: Form::Text,
        about: "writes a file, whole or not at all, making the directories above it",
        errors: &[
            Kind::Malformed,
            Kind::UnknownUser,
            Kind::UnknownGroup,
            Kind::Denied,
            Kind::PreconditionFailed,
            Kind::TooLarge,
            Kind::UnsupportedCoding,
            Kind::DiskFull,
            Kind::Internal,
        ],
        run: |app, call| -> Run { Box::pin(write::write(app, call)) },
    },
    Row {
        name: "tar.read",
        method: Method::Get,
        path: "/v1/fs/tar",
        access: Access::Bearer,
        form: Form::Text,
        about: "a directory with all below it, or what is chosen of it, as a tar archive",
        errors: &[
            Kind::Malformed,
            Kind::NotFound,
            Kind::TooLarge,
            Kind::Internal,
        ],
        run: |app, call| -> Run { Box::pin(tar_read::read(app, call)) },
    },
    Row {
        name: "tar.pick",
        method: Method::Post,
        path: "/v1/fs/tar",
        access: Access::Bearer,
        form: Form::Json,
        about: "the members of a tree that a list names, as a tar archive",
        errors: &[
            Kind::Malformed,
            Kind::NotFound,
            Kind::TooLarge,
            Kind::Internal,
        ],
        run: |app, call| -> Run { Box::pin(tar_read::pick(app, call)) },
    },
    Row {
        name: "tar.write",
        method: Method::Put,
        path: "/v1/fs/tar",
        access: Access::Bearer,
        form: Form::Text,
        about: "extracts a tar archive below a directory, after checking all of it",
        errors: &[
            Kind::Malformed,
            Kind::Denied,
            Kind::TooLarge,
            Kind::UnsupportedCoding,
            Kind::DiskFull,
            Kind::Internal,
        ],
        run: |app, call| -> Run { Box::pin(tar_write::write(app, call)) },
    },
];

fn path(query: &Query) -> Result<PathBuf> {
    match query.one("path") {
        Ok(Some(path)) => Ok(PathBuf::from(path)),
        _ => Err(Kind::Malformed.told("path query parameter is required")),
    }
}

/// True when `key` has the value `other`, false when it has the `usual` one or is absent.
fn choice(query: &Query, key: &str, usual: &str, other: &str) -> Result<bool> {
    match query.one(key)? {
        None => Ok(false),
        Some(value) if value == usual => Ok(false),
        Some(value) if value == other => Ok(true),
        Some(_) => Err(Kind::Malformed.told(format!("{key} must be {usual} or {other}"))),
    }
}
