//! What a client needs to know to send and fetch only what differs.

use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use rustix::fs::{FileType, Stat};
use schemars::{JsonSchema, SchemaGenerator};
use serde::{Deserialize, Serialize};

use super::contract::{Contract, Shape, Success, either};
use super::queries::ManifestQuery;
use super::row::{Access, Answer, Call, Form, Method, Produce, Row, Run, Source};
use super::{body, coding};
use crate::app::App;
use crate::error::{Kind, Result};
use crate::fs::filter::Filter;
use crate::fs::manifest::{self, Entry, Manifest, Options, Totals};
use crate::ring::{Outflow, Step, clock, pool};
use crate::wire::base64;
use crate::wire::digest::Algorithm;

/// The rows of this room.
pub static ROWS: &[Row] = &[Row {
    name: "manifest",
    method: Method::Post,
    path: "/v1/fs/manifest",
    access: Access::Bearer,
    form: Form::Json,
    about: "every entry below a directory in the order of names, with digests of files on request",
    errors: &[
        (
            Kind::Malformed,
            "the body is no manifest request, a pattern or digest in it is none, or path is no directory",
        ),
        (Kind::NotFound, "it does not exist"),
        (Kind::Internal, "the directory itself cannot be read"),
    ],
    contract: Contract {
        is_ours: true,
        query: Some(SchemaGenerator::subschema_for::<ManifestQuery>),
        takes: &[(
            "accept-encoding",
            "`zstd` or `gzip` for a body in that coding",
        )],
        request: &[Shape::json::<Request>()],
        successes: &[(Success::Whole, "every entry, in the byte order of paths")],
        response: &[Shape::lines(
            either::<EntryLine, LastLine>,
            "an entry a line; only the last line has complete",
        )],
        tells: &[("content-encoding", "the coding of the body")],
        ..Contract::NONE
    },
    run: |app, call| -> Run { Box::pin(tell(app, call)) },
}];

/// The body of `manifest`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ManifestRequest", description = "What of a tree is told")]
struct Request {
    /// The directory.
    path: String,
    /// The digest of each file: `sha-256`, `blake3`, or `true` for the first.
    #[serde(default)]
    digest: DigestField,
    /// Patterns of what is told, as gitignore(5) has them; everything without one.
    #[serde(default)]
    include: Vec<String>,
    /// Patterns of what is left out, whatever includes it.
    #[serde(default)]
    exclude: Vec<String>,
    /// Leaves out what is on other filesystems.
    #[serde(default)]
    one_file_system: bool,
    /// Tells names that begin with a dot, and what is below them.
    #[serde(default = "yes")]
    hidden: bool,
}

#[derive(Deserialize, JsonSchema, Serialize)]
#[serde(untagged)]
#[schemars(inline)]
enum DigestField {
    Flag(bool),
    Number(u64),
    Name(String),
}

impl Default for DigestField {
    fn default() -> Self {
        Self::Flag(false)
    }
}

fn yes() -> bool {
    true
}

async fn tell(app: Rc<App>, mut call: Call) -> Result<Answer> {
    if !body::is_json(call.fields.first("content-type")) {
        return Err(Kind::Malformed.told("the content type is not JSON"));
    }
    let bytes = body::read(&mut *call.body, MOST_BYTES).await?;
    let asked = call.query.one("digest")?;
    // Much JSON and many patterns can take some milliseconds.
    let (path, options) = pool::run(move || wishes(&bytes, asked.as_deref())).await??;
    let digest = options.digest;
    let manifest = manifest::open(&path, options).await?;
    let keepalive = app.config.limits.sse_keepalive;
    let source = Source {
        media: "application/x-ndjson",
        length: None,
        part: None,
        fields: vec![("vary", "accept-encoding".to_owned())],
        produce: Box::new(Lines {
            manifest,
            digest,
            keepalive,
            look: keepalive.clamp(SHORTEST, LOOK),
        }),
    };
    Ok(Answer::Bytes(match coding::preferred(&call.fields) {
        Some(coding) => coding::encode(&app, source, coding),
        None => source,
    }))
}

/// What a body means; `asked` is the digest of the query. For helper threads.
fn wishes(bytes: &[u8], asked: Option<&str>) -> Result<(PathBuf, Options)> {
    let request: Request = body::object(bytes, "manifest request")?;
    if request.path.is_empty() || request.path.contains('\0') {
        return Err(Kind::Malformed.told("path must be the path of a directory"));
    }
    let options = Options {
        digest: request.digest.meant(asked)?,
        filter: Filter::new(&request.include, &request.exclude)?,
        one_file_system: request.one_file_system,
        no_hidden: !request.hidden,
    };
    Ok((request.path.into(), options))
}

impl DigestField {
    /// The algorithm that is asked for, here or by the query.
    fn meant(&self, asked: Option<&str>) -> Result<Option<Algorithm>> {
        let name = match self {
            Self::Name(name) => name.as_str(),
            Self::Flag(true) | Self::Number(1) => "1",
            Self::Flag(false) | Self::Number(0) => asked.unwrap_or("0"),
            Self::Number(_) => "another",
        };
        match name {
            "0" | "false" => Ok(None),
            "1" | "true" => Ok(Some(Algorithm::Sha256)),
            name => Algorithm::named(name)
                .map(Some)
                .ok_or_else(|| Kind::Malformed.told("digest must be sha-256 or blake3")),
        }
    }
}

struct Lines {
    manifest: Manifest,
    digest: Option<Algorithm>,
    /// Silence after which a space is sent.
    keepalive: Duration,
    /// How often the client is looked after in between.
    look: Duration,
}

impl Produce for Lines {
    fn produce<'a>(mut self: Box<Self>, sink: &'a mut dyn Outflow) -> Step<'a, ()>
    where
        Self: 'a,
    {
        Box::pin(async move {
            let mut text = Vec::new();
            let mut silence = Duration::ZERO;
            loop {
                // A large file takes its time, and nobody may be waiting for its digest any more.
                let Some(next) = clock::within(self.look, self.manifest.next()).await else {
                    silence += self.look;
                    if silence >= self.keepalive {
                        // It shows a client that has left, and is nothing to one that has not.
                        silence = Duration::ZERO;
                        sink.write(b" ").await?;
                        sink.flush().await?;
                    }
                    sink.check()?;
                    continue;
                };
                silence = Duration::ZERO;
                let Some(entries) = next? else { break };
                for entry in &entries {
                    write(&mut text, &EntryLine::of(entry, self.digest))?;
                }
                if text.len() >= ENOUGH || self.manifest.is_dry() {
                    sink.write(&text).await?;
                    text.clear();
                }
                if self.manifest.is_dry() {
                    sink.flush().await?;
                }
            }
            write(&mut text, &LastLine::from(self.manifest.totals()))?;
            sink.write(&text).await
        })
    }
}

fn write(text: &mut Vec<u8>, line: &impl Serialize) -> Result<()> {
    let written = serde_json::to_writer(&mut *text, line);
    written.map_err(|error| Kind::Internal.told("internal error").because(error))?;
    text.push(b'\n');
    Ok(())
}

/// One line, with the keys in this order.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ManifestEntry", description = "One entry of a tree")]
struct EntryLine {
    /// Relative to the directory, whose own is empty.
    path: String,
    /// The exact path as base64, when it is no text.
    #[serde(skip_serializing_if = "Option::is_none")]
    path_b64: Option<String>,
    #[serde(flatten)]
    facts: Option<Facts>,
    /// What a symbolic link says.
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target_b64: Option<String>,
    #[serde(rename = "sha-256", skip_serializing_if = "Option::is_none")]
    sha256: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    blake3: Option<String>,
    /// Why something is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

#[derive(Serialize, JsonSchema)]
struct Facts {
    #[serde(rename = "type")]
    sort: &'static str,
    /// Of a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
    mode: String,
    uid: u32,
    gid: u32,
    mtime: i64,
    mtime_nanos: u64,
    /// Of a device, what it stands for.
    #[serde(skip_serializing_if = "Option::is_none")]
    rdev: Option<String>,
    /// The three that tell which names lead to one file: of a file that has several.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<u64>")]
    links: Option<libc::nlink_t>,
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    inode: Option<u64>,
}

impl EntryLine {
    fn of(entry: &Entry, algorithm: Option<Algorithm>) -> Self {
        let digest = entry.digest.as_ref().map(hexadecimal);
        let (sha256, blake3) = match algorithm {
            Some(Algorithm::Blake3) => (None, digest),
            _ => (digest, None),
        };
        let target = entry.target.as_deref();
        Self {
            path: String::from_utf8_lossy(&entry.path).into_owned(),
            path_b64: exact(&entry.path),
            facts: entry.stat.as_ref().map(Facts::from),
            target: target.map(|target| String::from_utf8_lossy(target).into_owned()),
            target_b64: target.and_then(exact),
            sha256,
            blake3,
            error: entry.error.clone(),
        }
    }
}

impl From<&Stat> for Facts {
    fn from(stat: &Stat) -> Self {
        let kind = FileType::from_raw_mode(stat.st_mode);
        let numbers = |device| {
            let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
            format!("{major}:{minor}")
        };
        let is_file = kind == FileType::RegularFile;
        let is_device = matches!(kind, FileType::CharacterDevice | FileType::BlockDevice);
        let is_linked = is_file && stat.st_nlink > 1;
        Self {
            sort: sort(kind),
            size: is_file.then(|| u64::try_from(stat.st_size).unwrap_or(0)),
            mode: format!("{:04o}", stat.st_mode & 0o7777),
            uid: stat.st_uid,
            gid: stat.st_gid,
            mtime: stat.st_mtime,
            mtime_nanos: stat.st_mtime_nsec,
            rdev: is_device.then(|| numbers(stat.st_rdev)),
            links: is_linked.then_some(stat.st_nlink),
            device: is_linked.then(|| numbers(stat.st_dev)),
            inode: is_linked.then_some(stat.st_ino),
        }
    }
}

/// The line behind the last entry: without it a manifest is not whole.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ManifestEnd")]
struct LastLine {
    /// False when a directory could not be read.
    complete: bool,
    entries: u64,
    bytes: u64,
    errors: u64,
}

impl From<Totals> for LastLine {
    fn from(totals: Totals) -> Self {
        Self {
            complete: totals.unread == 0,
            entries: totals.entries,
            bytes: totals.bytes,
            errors: totals.errors,
        }
    }
}

/// The bytes as base64, for those that are no text.
fn exact(bytes: &[u8]) -> Option<String> {
    std::str::from_utf8(bytes).is_err().then(|| {
        let mut text = Vec::new();
        base64::append(&mut text, bytes);
        String::from_utf8_lossy(&text).into_owned()
    })
}

fn hexadecimal(digest: &[u8; 32]) -> String {
    let digit = |half: u8| char::from_digit(half.into(), 16).unwrap_or('0');
    let digits = digest.iter().flat_map(|byte| [byte >> 4, byte & 0xf]);
    digits.map(digit).collect()
}

fn sort(kind: FileType) -> &'static str {
    match kind {
        FileType::RegularFile => "file",
        FileType::Directory => "directory",
        FileType::Symlink => "symlink",
        FileType::Fifo => "fifo",
        FileType::Socket => "socket",
        FileType::CharacterDevice => "char_device",
        FileType::BlockDevice => "block_device",
        FileType::Unknown => "unknown",
    }
}

/// Bytes of a request.
const MOST_BYTES: u64 = 1024 * 1024;
/// Time after which a client that hears nothing is looked after.
const LOOK: Duration = Duration::from_secs(1);
/// And after which at the earliest.
const SHORTEST: Duration = Duration::from_millis(10);
/// Bytes of text that are worth a write of their own.
const ENOUGH: usize = 32 * 1024;
