//! Trees on disk, looked at so closely that any change shows.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// What one name is.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) kind: char,
    pub(crate) mode: u32,
    pub(crate) owner: (u32, u32),
    pub(crate) mtime: (i64, i64),
    /// The target of a link.
    pub(crate) target: Vec<u8>,
    pub(crate) size: u64,
    /// A sum of the content.
    pub(crate) content: u64,
    /// True when a large part of it is not stored.
    pub(crate) sparse: bool,
    /// The first of the names that share its inode, where there are more than one.
    pub(crate) first: Option<PathBuf>,
}

/// A directory and all that is below it, by name; the directory itself has none.
pub(crate) type Exact = BTreeMap<PathBuf, Seen>;

/// Looks at a directory and everything below it; what does not exist is nothing.
pub(crate) fn exact(root: &Path) -> Exact {
    let mut seen = Exact::new();
    let mut inodes = BTreeMap::new();
    let mut waiting = vec![PathBuf::new()];
    // The first name of an inode is the least one, so names are taken in order.
    while let Some(name) = waiting.pop() {
        let path = root.join(&name);
        let Ok(meta) = fs::symlink_metadata(&path) else {
            continue;
        };
        let is_file = meta.is_file();
        let first = (is_file && meta.nlink() > 1).then(|| {
            let known = inodes.entry((meta.dev(), meta.ino()));
            known.or_insert_with(|| name.clone()).clone()
        });
        let target = fs::read_link(&path).map(|target| target.as_os_str().as_bytes().to_vec());
        let kind = match meta.file_type() {
            kind if kind.is_dir() => 'd',
            kind if kind.is_symlink() => 'l',
            _ if is_file => 'f',
            _ => '?',
        };
        if kind == 'd' {
            let entries = fs::read_dir(&path).expect("a directory of ours can be read");
            let mut below: Vec<PathBuf> = entries
                .map(|entry| name.join(entry.expect("it can be read").file_name()))
                .collect();
            below.sort();
            waiting.extend(below.into_iter().rev());
        }
        let content = match is_file {
            true => sum(&fs::read(&path).expect("a file of ours can be read")),
            false => 0,
        };
        let about = Seen {
            kind,
            mode: meta.mode() & 0o7777,
            owner: (meta.uid(), meta.gid()),
            mtime: (meta.mtime(), meta.mtime_nsec()),
            target: target.unwrap_or_default(),
            size: if is_file { meta.size() } else { 0 },
            content,
            sparse: is_file && meta.size() > 65_536 && meta.blocks() * 512 < meta.size() / 2,
            first,
        };
        seen.insert(name, about);
    }
    seen
}

/// Checks that two trees are the same, and names the first difference.
#[track_caller]
pub(crate) fn same(what: &str, found: &Exact, expected: &Exact) {
    for (name, expected) in expected {
        match found.get(name) {
            Some(found) => assert_eq!(found, expected, "{what}: {name:?}"),
            None => panic!("{what}: {name:?} is missing, {expected:?}"),
        }
    }
    for (name, found) in found {
        assert!(
            expected.contains_key(name),
            "{what}: {name:?} is too much, {found:?}"
        );
    }
}

impl std::fmt::Debug for Seen {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            kind, mode, mtime, ..
        } = self;
        write!(out, "{kind} {mode:o} {:?} {mtime:?}", self.owner)?;
        let target = self.target.escape_ascii();
        write!(out, " -> {target} {} bytes", self.size)?;
        let (content, sparse, first) = (self.content, self.sparse, &self.first);
        write!(out, " sum {content:x} sparse {sparse} first {first:?}")
    }
}

fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xCBF2_9CE4_8422_2325, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3)
    })
}
