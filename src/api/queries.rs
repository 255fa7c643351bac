//! The keys of each query, as they are published.
#![expect(
    dead_code,
    reason = "they describe what handlers ask a `Query` for, key by key, so that each key has its own refusal; a debug \
              build panics where a handler asks for a key that is not here"
)]

use schemars::JsonSchema;

use super::contract::{Describe, beyond};

/// The query of `GET /v1/exec/{id}`.
#[derive(Default, JsonSchema)]
#[schemars(default)]
pub(super) struct PollQuery {
    /// Decimal number of seconds: a poll of a running exec waits for its end, or this long.
    #[schemars(range(min = 0, max = 3600))]
    wait: Option<f64>,
    /// Byte of the standard output at which `stdout` begins.
    stdout_offset: Option<u64>,
    /// Byte of the standard error at which `stderr` begins.
    stderr_offset: Option<u64>,
}

/// The query of `GET /v1/exec/{id}/stream`.
#[derive(Default, JsonSchema)]
#[schemars(default)]
pub(super) struct StreamQuery {
    /// Byte from which on output is told, both streams counted together; 0 is everything that is held.
    offset: Option<u64>,
    /// Makes comments 2 KiB long, for proxies that hold small writes back.
    pad: bool,
}

/// The query of `PUT /v1/exec/{id}/stdin`.
#[derive(Default, JsonSchema)]
#[schemars(default)]
pub(super) struct StdinQuery {
    /// Which byte of the standard input the first byte of the body is; the next one if absent.
    offset: Option<u64>,
    /// Closes the standard input behind the last byte.
    eof: bool,
}

/// The query of `GET /v1/procs`.
#[derive(Default, JsonSchema)]
#[schemars(default)]
pub(super) struct ProcsQuery {
    /// Tells every process that a kill would find, one by one.
    detail: bool,
}

/// The query of `GET /v1/tcp`.
#[derive(JsonSchema)]
pub(super) struct TunnelQuery {
    /// The port of 127.0.0.1 in the guest; it or `unix` must be there.
    #[schemars(default)]
    port: Option<u16>,
    /// A Unix socket that the daemon allows, in place of a port.
    #[schemars(default)]
    unix: Option<String>,
    /// Asks for a verified tunnel.
    #[schemars(default)]
    identity: bool,
}

/// The query of `GET /v1/fs/file`.
#[derive(JsonSchema)]
pub(super) struct FileReadQuery {
    /// The file; links are followed.
    path: String,
    /// First line of a window, counted from 1.
    #[schemars(default, range(min = 1))]
    start_line: Option<u64>,
    /// Last line of the window, included.
    #[schemars(default, range(min = 1))]
    end_line: Option<u64>,
    /// So many lines from the end, in place of the other two.
    #[schemars(default, range(min = 1))]
    last_lines: Option<u64>,
}

/// What the routes of files and archives share.
#[derive(JsonSchema)]
pub(super) struct FsQuery {
    /// The file, or the root of the tree.
    path: String,
    /// Octal mode of the file that is written, such as `0644`. Archives bring their own: their routes ignore it.
    #[schemars(default)]
    mode: Option<String>,
}

/// The query of `PUT /v1/fs/file`.
pub(super) const FILE_WRITE: Describe = beyond::<FsQuery, FileWriteKeys>;

#[derive(Default, JsonSchema)]
#[schemars(default)]
struct FileWriteKeys {
    /// `USER`, `USER:GROUP` or `:GROUP`, each a number or a name.
    owner: Option<String>,
    /// Time of modification: seconds since 1970 with up to nine decimals.
    mtime: Option<String>,
    /// How the file is replaced.
    replace: Replace,
    /// Makes holes of blocks of zeros.
    sparse: bool,
    /// Answers when everything is on the disk.
    fsync: bool,
    /// Of a resumable upload: its parts may come in any order.
    parallel: bool,
}

#[derive(Default, JsonSchema, serde::Serialize)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
enum Replace {
    #[default]
    Atomic,
    InPlace,
}

/// The query of `POST /v1/uploads`.
#[derive(JsonSchema)]
pub(super) struct UploadQuery {
    /// The file that will be written; links are followed.
    path: String,
    /// Octal mode of the file, such as `0644`.
    #[schemars(default)]
    mode: Option<String>,
    /// `USER`, `USER:GROUP` or `:GROUP`, each a number or a name.
    #[schemars(default)]
    owner: Option<String>,
    /// Time of modification: seconds since 1970 with up to nine decimals.
    #[schemars(default)]
    mtime: Option<String>,
    /// How the file is replaced; an upload is always whole.
    #[schemars(default)]
    replace: ReplaceWhole,
    /// Makes holes of blocks of zeros.
    #[schemars(default)]
    sparse: bool,
    /// Answers the last request when everything is on the disk.
    #[schemars(default)]
    fsync: bool,
    /// The parts may come in any order.
    #[schemars(default)]
    parallel: bool,
}

#[derive(Default, JsonSchema, serde::Serialize)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
enum ReplaceWhole {
    #[default]
    Atomic,
}

/// The query of `GET /v1/fs/tar`.
pub(super) const TAR_READ: Describe = beyond::<FsQuery, TarReadKeys>;

#[derive(Default, JsonSchema)]
#[schemars(default)]
struct TarReadKeys {
    /// Patterns of what is packed, as gitignore(5) has them; everything without one.
    include: Vec<String>,
    /// Patterns of what is left out, whatever includes it.
    exclude: Vec<String>,
    /// Components that names lose at their front.
    #[schemars(range(max = 2048))]
    strip: u32,
    /// Only what was modified after this time: seconds since 1970, or a date of RFC 3339 or RFC 9110.
    newer_than: Option<String>,
    /// Leaves out what is on other filesystems.
    one_file_system: bool,
    /// Packs what symbolic links lead to, in their place.
    follow: bool,
    /// Packs extended attributes and access lists.
    xattrs: bool,
    /// Tells times to the nanosecond.
    precise: bool,
}

/// The query of `PUT /v1/fs/tar`.
pub(super) const TAR_WRITE: Describe = beyond::<FsQuery, TarWriteKeys>;

#[derive(Default, JsonSchema)]
#[schemars(default)]
struct TarWriteKeys {
    /// Whether all of the archive is checked before anything is extracted.
    spool: Spool,
    /// Leading components that are taken from each name.
    #[schemars(range(max = 2048))]
    strip: u32,
    /// Whether members get the numeric owner that the archive has.
    owner: Owner,
    /// Gives members the extended attributes that the archive has.
    xattrs: bool,
}

#[derive(Default, JsonSchema, serde::Serialize)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
enum Spool {
    #[default]
    On,
    Off,
}

#[derive(Default, JsonSchema, serde::Serialize)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
enum Owner {
    #[default]
    Drop,
    Keep,
}

/// The query of `POST /v1/fs/manifest`.
#[derive(Default, JsonSchema)]
#[schemars(default)]
pub(super) struct ManifestQuery {
    /// The digest of each file, where the body does not say: `sha-256`, `blake3`, or `1` for the first.
    digest: Option<String>,
}

/// The query of `GET /v1/fs/stat`.
#[derive(JsonSchema)]
pub(super) struct StatQuery {
    /// What is looked at; links on the way are followed.
    path: String,
    /// Looks at what a link at the end leads to.
    #[schemars(default)]
    follow: bool,
}

/// The query of `GET /v1/fs/list`.
#[derive(JsonSchema)]
pub(super) struct ListQuery {
    /// The directory; links are followed.
    path: String,
    /// Levels: 1 is the directory alone.
    #[schemars(default = "one", range(min = 1, max = 256))]
    depth: u32,
    /// Tells names that begin with a dot, and what is below them.
    #[schemars(default = "yes")]
    hidden: bool,
    /// Tells, for a link, what it leads to.
    #[schemars(default)]
    follow: bool,
    /// Tells all that stat tells of each entry.
    #[schemars(default)]
    detail: bool,
    /// The only order there is.
    #[schemars(default)]
    sort: Sort,
    /// Entries of a page, 1000 if absent and 10000 at most; in lines any number, and all if absent.
    #[schemars(default, range(min = 1))]
    limit: Option<u64>,
    /// The entry behind which to begin, by its path.
    #[schemars(default)]
    after: Option<String>,
    /// The same for a path that is no text, as base64.
    #[schemars(default)]
    after_b64: Option<String>,
}

#[derive(Default, JsonSchema, serde::Serialize)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
enum Sort {
    #[default]
    Name,
}

/// The query of `POST /v1/fs/mkdir`.
#[derive(JsonSchema)]
pub(super) struct MakeQuery {
    /// The directory.
    path: String,
    /// Octal mode of the directory, such as `0755`.
    #[schemars(default)]
    mode: Option<String>,
    /// Makes those above it too, and takes it for done when it is there.
    #[schemars(default)]
    parents: bool,
}

/// The query of `DELETE /v1/fs/path`.
#[derive(JsonSchema)]
pub(super) struct RemoveQuery {
    /// What is removed: the entry itself, not what a link leads to.
    path: String,
    /// Removes a directory with all that is in it.
    #[schemars(default)]
    recursive: bool,
    /// `ok` takes it for done when nothing is there.
    #[schemars(default)]
    missing: Option<Missing>,
}

#[derive(JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
enum Missing {
    Ok,
}

/// The query of `GET /v1/fs/watch`.
#[derive(JsonSchema)]
pub(super) struct WatchQuery {
    /// A directory or file; links are followed.
    path: String,
    /// Watches every directory below it too.
    #[schemars(default)]
    recursive: bool,
    /// Kinds of change, separated by commas; all if absent.
    #[schemars(default)]
    events: Option<String>,
    /// Makes comments 2 KiB long, for proxies that hold small writes back.
    #[schemars(default)]
    pad: bool,
}

fn one() -> u32 {
    1
}

fn yes() -> bool {
    true
}
