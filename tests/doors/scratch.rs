//! A directory of a test's own, and what is seen in it.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A fresh directory, removed with everything in it when dropped.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("ringd-doors-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).expect("a scratch directory can be made");
        // The path is compared with what `pwd` says, so it must be free of symbolic links.
        Self(path.canonicalize().expect("it exists"))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if fs::remove_dir_all(&self.0).is_err() {
            // Some tests make directories that only root can enter.
            open_up(&self.0);
            let _ = fs::remove_dir_all(&self.0);
        }
    }
}

/// Everything below a directory: relative name to a line that tells type, mode and content.
pub(crate) type Tree = BTreeMap<String, String>;

/// Takes a picture of everything below `root`; an absent root is an empty picture.
pub(crate) fn tree(root: &Path) -> Tree {
    let mut seen = Tree::new();
    if root.exists() {
        visit(root, root, &mut seen);
    }
    seen
}

/// Checks that exactly these names stand below `root`, and what they are.
#[track_caller]
pub(crate) fn tree_is(root: &Path, expected: &[(&str, &str)]) {
    assert_eq!(tree(root), picture(expected));
}

/// The same picture, written by hand.
pub(crate) fn picture(rows: &[(&str, &str)]) -> Tree {
    let owned = |(name, about): &(&str, &str)| ((*name).to_owned(), (*about).to_owned());
    rows.iter().map(owned).collect()
}

/// The permission bits of `path` itself, special bits included.
#[track_caller]
pub(crate) fn mode(path: &Path) -> u32 {
    let metadata =
        fs::symlink_metadata(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    metadata.permissions().mode() & 0o7777
}

/// The inode number of `path` itself.
#[track_caller]
pub(crate) fn inode(path: &Path) -> u64 {
    fs::symlink_metadata(path)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
        .ino()
}

/// The names in a directory, sorted.
#[track_caller]
pub(crate) fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
    let mut names: Vec<String> = entries
        .map(|entry| entry.expect("the directory can be read").file_name())
        .map(|name| name.to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// Bytes that differ everywhere, so that a shift or a swap is seen.
pub(crate) fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64 ^ u64::try_from(length).expect("64 bits");
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// Gives us every right to a directory and those below it.
fn open_up(dir: &Path) {
    let _ = fs::set_permissions(dir, fs::Permissions::from_mode(0o700));
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            open_up(&entry.path());
        }
    }
}

fn visit(root: &Path, dir: &Path, seen: &mut Tree) {
    for entry in fs::read_dir(dir).expect("the directory can be read") {
        let path = entry.expect("the directory can be read").path();
        let name = path.strip_prefix(root).expect("below the root");
        let about = describe(&path);
        let is_dir = about.starts_with("dir");
        seen.insert(name.to_string_lossy().into_owned(), about);
        if is_dir {
            visit(root, &path, seen);
        }
    }
}

fn describe(path: &Path) -> String {
    let metadata = fs::symlink_metadata(path).expect("it was just listed");
    let mode = metadata.permissions().mode() & 0o7777;
    let kind = metadata.file_type();
    if kind.is_dir() {
        return format!("dir {mode:o}");
    }
    if kind.is_symlink() {
        let target = fs::read_link(path).expect("it is a link");
        return format!("link {}", target.display());
    }
    if kind.is_fifo() {
        return format!("fifo {mode:o}");
    }
    if kind.is_socket() {
        return "socket".into();
    }
    let content = fs::read(path).expect("a file of ours can be read");
    let shown = match content.len() {
        0..=64 => String::from_utf8_lossy(&content).into_owned(),
        more => format!("{more} bytes, sum {}", sum(&content)),
    };
    format!("file {mode:o} {shown}")
}

/// FNV-1a: enough to tell two contents apart in a message.
fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xCBF2_9CE4_8422_2325, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3)
    })
}
