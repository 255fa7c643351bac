//! Operations on files: one file read or written, a tree read or written as a tar archive.

mod owner;
mod read;
mod tar_options;
mod tar_read;
mod tar_write;
mod write;

use std::path::PathBuf;

use schemars::SchemaGenerator;

pub(super) use write::{asked, told};

use self::tar_options::PickRequest;
use super::contract::{Contract, Field, Shape, Success};
use super::queries::{self, FileReadQuery};
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
            (
                Kind::Malformed,
                "no path, no window, a directory, or a FIFO",
            ),
            (Kind::NotFound, "it does not exist"),
            (
                Kind::PreconditionFailed,
                "it is another version than the request names",
            ),
            (
                Kind::RangeNotSatisfiable,
                "the range lies outside; content-range tells the size",
            ),
            (
                Kind::TooLarge,
                "the last lines of a file without a size are too long",
            ),
            (Kind::Internal, "it cannot be read"),
        ],
        contract: Contract {
            query: Some(SchemaGenerator::subschema_for::<FileReadQuery>),
            takes: &[
                ("range", "one range of bytes"),
                (
                    "if-range",
                    "the etag or date of the version that a range is of",
                ),
                IF_MATCH,
                ("if-none-match", "etags of versions that the client holds"),
                (
                    "if-modified-since",
                    "the date of the version that the client holds",
                ),
                IF_UNMODIFIED_SINCE,
                ACCEPT_ENCODING,
                (
                    "want-repr-digest",
                    "`sha-256=1` asks for the digest of the file",
                ),
            ],
            successes: &[
                (Success::Whole, "the file, or a window of its lines"),
                (Success::Part, "the range"),
                (Success::Unchanged, "the client holds it"),
            ],
            response: &[Shape::bytes(OCTETS, "the bytes of the file")],
            tells: &[
                ETAG,
                LAST_MODIFIED,
                ("accept-ranges", "`bytes` where ranges may be asked for"),
                ("content-range", "which part of the file it is"),
                ("content-encoding", "the coding of the body"),
                (
                    "repr-digest",
                    "the digest of the file; of a large one it is a trailer",
                ),
            ],
            ..Contract::NONE
        },
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
            (
                Kind::Malformed,
                "no path, a value that is none, a FIFO that nobody reads, or a body that is not what it says",
            ),
            (Kind::UnknownUser, "owner names a user that nobody is"),
            (Kind::UnknownGroup, "owner names a group that there is not"),
            (
                Kind::InconsistentLength,
                "the upload has another length than was said",
            ),
            (Kind::UploadIncomplete, "bytes of the upload are missing"),
            (Kind::InUse, "another request has taken the upload over"),
            (Kind::Denied, "the daemon may not set this owner or time"),
            (
                Kind::PreconditionFailed,
                "what is there is not what the request says",
            ),
            (Kind::TooLarge, "it decodes to more than a body may have"),
            (
                Kind::UnsupportedCoding,
                "a content coding that is not known",
            ),
            (
                Kind::Busy,
                "bodies that are decoded take too much memory, or too many uploads are open",
            ),
            (
                Kind::DiskFull,
                "less than the reserve is or would be free, or the disk is full",
            ),
            (Kind::Internal, "it cannot be written"),
        ],
        contract: Contract {
            query: Some(queries::FILE_WRITE),
            takes: &[
                IF_MATCH,
                ("if-none-match", "`*`: nothing may be there"),
                IF_UNMODIFIED_SINCE,
                CONTENT_ENCODING,
                CONTENT_DIGEST,
                REPR_DIGEST,
                ("upload-complete", "`?0` begins a resumable upload"),
                ("upload-length", "the length of all of the upload"),
                UPLOAD_VERSION,
            ],
            request: &[Shape::bytes(OCTETS, "the bytes of the file")],
            successes: &[
                (Success::Done, "written"),
                (Success::Created, "an upload has begun, at location"),
            ],
            tells: &[
                ETAG,
                LAST_MODIFIED,
                ("location", "the upload that has begun"),
                ("upload-complete", "whether the upload is complete"),
                ("upload-offset", "bytes of the upload that have come"),
                ("upload-length", "bytes that it will have"),
                (
                    "upload-limit",
                    "what a request may bring, and how long the upload is kept",
                ),
                UPLOAD_VERSION,
            ],
            ..Contract::NONE
        },
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
            (
                Kind::Malformed,
                "no path, no directory, or a value that is none",
            ),
            (Kind::NotFound, "it does not exist"),
            (Kind::TooLarge, "the tree is over the limits of an archive"),
            (Kind::Internal, "a directory cannot be read"),
        ],
        contract: Contract {
            query: Some(queries::TAR_READ),
            takes: &[ACCEPT_ENCODING],
            successes: &[(Success::Whole, "the archive")],
            response: &[Shape::bytes(TAR, "an uncompressed archive")],
            tells: &[("content-encoding", "the coding of the body")],
            ..Contract::NONE
        },
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
            (
                Kind::Malformed,
                "the body is no tar request, or a name or value in it is none",
            ),
            (Kind::NotFound, "no such directory, or no such name in it"),
            (Kind::TooLarge, "the tree or the list is over the limits"),
            (Kind::Internal, "a directory cannot be read"),
        ],
        contract: Contract {
            is_ours: true,
            takes: &[ACCEPT_ENCODING],
            request: &[Shape::json::<PickRequest>()],
            successes: &[(Success::Whole, "the archive")],
            response: &[Shape::bytes(TAR, "an uncompressed archive")],
            tells: &[("content-encoding", "the coding of the body")],
            ..Contract::NONE
        },
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
            (
                Kind::Malformed,
                "no absolute path, a value that is none, or a broken or refused archive",
            ),
            (Kind::Denied, "the daemon may not change owners"),
            (Kind::TooLarge, "the archive is over its limits"),
            (
                Kind::UnsupportedCoding,
                "a content coding that is not known",
            ),
            (Kind::Busy, "bodies that are decoded take too much memory"),
            (
                Kind::DiskFull,
                "less than the reserve is or would be free, or the disk is full",
            ),
            (Kind::Internal, "the file system refuses"),
        ],
        contract: Contract {
            query: Some(queries::TAR_WRITE),
            takes: &[CONTENT_ENCODING, CONTENT_DIGEST, REPR_DIGEST],
            request: &[Shape::bytes(TAR, "an archive")],
            successes: &[(Success::Done, "extracted")],
            ..Contract::NONE
        },
        run: |app, call| -> Run { Box::pin(tar_write::write(app, call)) },
    },
];

const OCTETS: &str = "application/octet-stream";
const TAR: &str = "application/x-tar";
const ETAG: Field = ("etag", "names this version of the file");
const LAST_MODIFIED: Field = ("last-modified", "when the file was modified");
const IF_MATCH: Field = ("if-match", "etags of which the file must have one");
const IF_UNMODIFIED_SINCE: Field = (
    "if-unmodified-since",
    "the date after which it must not be modified",
);
const ACCEPT_ENCODING: Field = (
    "accept-encoding",
    "`zstd` or `gzip` for a body in that coding",
);
const CONTENT_ENCODING: Field = ("content-encoding", "`zstd` and `gzip`, two of them at most");
const CONTENT_DIGEST: Field = ("content-digest", "the digest of the body as it is sent");
const REPR_DIGEST: Field = ("repr-digest", "the digest of the whole, decoded");
const UPLOAD_VERSION: Field = (
    "upload-draft-interop-version",
    "the version of the draft for resumable uploads",
);

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
