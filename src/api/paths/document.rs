//! What is told of files and directories, as JSON: names that are not UTF-8 have a second, exact form.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::Serialize;

use crate::fs::list::Item;
use crate::fs::stat::{Facts, Sort};
use crate::wire::base64;

/// One entry, with the keys in this order.
#[derive(Serialize, JsonSchema)]
#[schemars(
    rename = "PathEntry",
    description = "What a path names; of a listed entry only its type, unless details are asked for"
)]
pub(super) struct EntryDocument<'a> {
    /// As it was asked for; of a listed entry relative to the directory.
    path: Cow<'a, str>,
    /// The exact path as base64, when it is no text.
    #[serde(skip_serializing_if = "Option::is_none")]
    path_b64: Option<String>,
    #[serde(rename = "type")]
    sort: &'static str,
    #[serde(flatten)]
    facts: Option<FactsDocument<'a>>,
    /// Why it cannot be looked at, or read.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
}

#[derive(Serialize, JsonSchema)]
struct FactsDocument<'a> {
    size: u64,
    /// Bytes that it takes on its disk.
    allocated: u64,
    /// The permission bits, four octal digits.
    mode: String,
    uid: u32,
    gid: u32,
    /// The name of the user, if it has one.
    user: Option<&'a str>,
    /// The name of the group, if it has one.
    group: Option<&'a str>,
    /// Seconds since 1970.
    mtime: i64,
    mtime_nanos: u32,
    atime: i64,
    atime_nanos: u32,
    ctime: i64,
    ctime_nanos: u32,
    /// When it was made, where that is known.
    btime: Option<i64>,
    btime_nanos: Option<u32>,
    inode: u64,
    /// Major and minor number.
    device: String,
    links: u32,
    mount_id: Option<u64>,
    mount_point: Option<bool>,
    /// Of a device, what it stands for.
    #[serde(skip_serializing_if = "Option::is_none")]
    rdev: Option<String>,
    /// Of a link, where it leads.
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target_b64: Option<String>,
    /// Of a regular file, that of its bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    etag: Option<&'a str>,
}

/// The entry of this path.
pub(super) fn of<'a>(path: &'a [u8], facts: &'a Facts) -> EntryDocument<'a> {
    EntryDocument {
        path: String::from_utf8_lossy(path),
        path_b64: exact(path),
        sort: sort(facts.sort),
        facts: Some(facts.into()),
        error: None,
    }
}

impl<'a> From<&'a Item> for EntryDocument<'a> {
    fn from(item: &'a Item) -> Self {
        Self {
            path: String::from_utf8_lossy(&item.path),
            path_b64: exact(&item.path),
            sort: sort(item.sort),
            facts: item.facts.as_ref().map(FactsDocument::from),
            error: item.error.as_deref(),
        }
    }
}

impl<'a> From<&'a Facts> for FactsDocument<'a> {
    fn from(facts: &'a Facts) -> Self {
        let numbers = |(major, minor): (u32, u32)| format!("{major}:{minor}");
        let target = facts.target.as_deref();
        Self {
            size: facts.size,
            allocated: facts.allocated,
            mode: format!("{:04o}", facts.mode),
            uid: facts.uid,
            gid: facts.gid,
            user: facts.user.as_deref(),
            group: facts.group.as_deref(),
            mtime: facts.modified.seconds,
            mtime_nanos: facts.modified.nanos,
            atime: facts.accessed.seconds,
            atime_nanos: facts.accessed.nanos,
            ctime: facts.changed.seconds,
            ctime_nanos: facts.changed.nanos,
            btime: facts.born.map(|time| time.seconds),
            btime_nanos: facts.born.map(|time| time.nanos),
            inode: facts.inode,
            device: numbers(facts.device),
            links: facts.links,
            mount_id: facts.mount,
            mount_point: facts.is_mount_point,
            rdev: facts.stands_for.map(numbers),
            target: target.map(String::from_utf8_lossy),
            target_b64: target.and_then(exact),
            etag: facts.etag.as_deref(),
        }
    }
}

/// The bytes as base64, for those that are no text.
pub(super) fn exact(bytes: &[u8]) -> Option<String> {
    std::str::from_utf8(bytes).is_err().then(|| {
        let mut text = Vec::new();
        base64::append(&mut text, bytes);
        String::from_utf8_lossy(&text).into_owned()
    })
}

fn sort(sort: Sort) -> &'static str {
    match sort {
        Sort::File => "file",
        Sort::Directory => "directory",
        Sort::Symlink => "symlink",
        Sort::Fifo => "fifo",
        Sort::Socket => "socket",
        Sort::CharDevice => "char_device",
        Sort::BlockDevice => "block_device",
        Sort::Unknown => "unknown",
    }
}
