//! An entry moved: by one rename, or across mounts by a copy that takes the name when it is whole.

use std::path::PathBuf;

use rustix::fs::{AtFlags, FileType, Mode, RenameFlags, Statx};
use rustix::io::Errno;

use super::carry::Carry;
use super::entry::{Entry, is_at_or_above, is_same, kind, refused};
use super::make::Made;
use super::upload::Turn;
use crate::error::{Kind, Result};
use crate::ring::pool;

/// A move that is asked for. Links at the ends of both paths are not followed.
#[derive(Clone, Debug)]
pub struct Move {
    pub from: PathBuf,
    pub to: PathBuf,
    /// True lets what has the name be replaced.
    pub replace: bool,
    /// True makes the directories above `to`.
    pub parents: bool,
    /// Bytes that must stay free on the disk; 0 asks nothing.
    pub reserve: u64,
}

/// Moves an entry.
///
/// # Errors
/// `NotFound`, `Exists` when the name is taken, `NotEmpty` for a directory that would have to be replaced, `InUse` for
/// mount points and files that change meanwhile, `Unsupported` for what cannot be copied to another mount, `Malformed`
/// for a directory that would be inside itself, `Denied`, `DiskFull`, else `Internal`. Everything is then as it was.
pub async fn run(ask: Move) -> Result<()> {
    let asked = ask.clone();
    let mut across = match pool::run(move || rename_now(&asked)).await?? {
        Moved::Done => return Ok(()),
        Moved::Across(carry) => carry,
    };
    loop {
        let reserve = ask.reserve;
        let copied = pool::run(move || across.copy(reserve)).await??;
        let Some(more) = copied else {
            return Ok(());
        };
        across = more;
    }
}

enum Moved {
    Done,
    Across(Box<Carry>),
}

fn rename_now(ask: &Move) -> Result<Moved> {
    let failed = |errno| refused(errno, "move", &ask.from);
    let from = match Entry::of(&ask.from, "move") {
        // Below something that is no directory there is nothing.
        Err(error) if error.kind() == Kind::Exists => return Err(failed(Errno::NOENT)),
        from => from?,
    };
    let found = from.look().map_err(failed)?;
    let mut made = match ask.parents {
        true => Made::above(&ask.to)?,
        false => Made::default(),
    };
    let to = Entry::of(&ask.to, "move to")?;
    let is_dir = kind(&found) == FileType::Directory;
    if is_dir && is_at_or_above(&found, &to.dir).unwrap_or(false) {
        let told = format!("{} cannot be moved into itself", ask.from.display());
        return Err(Kind::Malformed.told(told));
    }
    let outcome = {
        let _turn = turn_at(&to);
        match ask.replace {
            true => replace(&from, &found, &to),
            false => claim(&from, &to, is_dir),
        }
    };
    match outcome {
        Ok(()) => {
            made.keep();
            Ok(Moved::Done)
        }
        Err(Errno::XDEV) => {
            let carry = Carry::begin(ask.clone(), from, found, to, made)?;
            Ok(Moved::Across(Box::new(carry)))
        }
        Err(errno @ (Errno::EXIST | Errno::ISDIR | Errno::NOTDIR | Errno::NOTEMPTY)) => {
            Err(refused(errno, "move to", &ask.to))
        }
        Err(errno) => Err(failed(errno)),
    }
}

/// The right to change what has a name: whoever judges it before a write gives it away does so undisturbed.
pub(super) fn turn_at(entry: &Entry) -> Option<Turn> {
    let home = rustix::fs::fstat(&entry.dir).ok()?;
    Some(Turn::at((home.st_dev, home.st_ino), &entry.leaf))
}

/// Renames over what is there.
fn replace(from: &Entry, found: &Statx, to: &Entry) -> std::result::Result<(), Errno> {
    let is_other_name = match to.look() {
        Ok(there) if is_same(found, &there) && kind(found) != FileType::Directory => {
            !is_one_name(from, to)?
        }
        _ => false,
    };
    // The kernel leaves two names of one file as they are, but a move leaves one.
    if is_other_name {
        return from.remove(AtFlags::empty());
    }
    rename(from, to, RenameFlags::empty())
}

fn is_one_name(one: &Entry, other: &Entry) -> std::result::Result<bool, Errno> {
    let look = |entry: &Entry| rustix::fs::fstat(&entry.dir);
    let (first, second) = (look(one)?, look(other)?);
    let is_one_dir = (first.st_dev, first.st_ino) == (second.st_dev, second.st_ino);
    Ok(is_one_dir && one.leaf == other.leaf)
}

/// Renames to a name that nothing may have.
pub(super) fn claim(from: &Entry, to: &Entry, is_dir: bool) -> std::result::Result<(), Errno> {
    match rename(from, to, RenameFlags::NOREPLACE) {
        // Some filesystems do not know how.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => claim_slowly(from, to, is_dir),
        outcome => outcome,
    }
}

/// The same where the kernel cannot do it in one call: the name is taken first, by a call that fails if it is there.
fn claim_slowly(from: &Entry, to: &Entry, is_dir: bool) -> std::result::Result<(), Errno> {
    if is_dir {
        rustix::fs::mkdirat(&to.dir, to.leaf.as_slice(), Mode::from_raw_mode(0o700))?;
        let renamed = rename(from, to, RenameFlags::empty());
        if renamed.is_err() {
            let _ = to.remove(AtFlags::REMOVEDIR);
        }
        return renamed;
    }
    let (old, new) = (from.leaf.as_slice(), to.leaf.as_slice());
    rustix::fs::linkat(&from.dir, old, &to.dir, new, AtFlags::empty())?;
    let removed = from.remove(AtFlags::empty());
    if removed.is_err() {
        let _ = to.remove(AtFlags::empty());
    }
    removed
}

pub(super) fn rename(
    from: &Entry,
    to: &Entry,
    flags: RenameFlags,
) -> std::result::Result<(), Errno> {
    let (old, new) = (from.leaf.as_slice(), to.leaf.as_slice());
    rustix::fs::renameat_with(&from.dir, old, &to.dir, new, flags)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::super::testing::{Dir, listing};
    use super::*;

    fn entry(path: &Path) -> Entry {
        Entry::of(path, "find").expect("its directory is there")
    }

    #[test]
    fn a_name_is_claimed_where_the_filesystem_does_not_help() {
        let dir = Dir::new();
        let at = |name: &str| entry(&dir.path().join(name));
        fs::write(dir.path().join("file"), "x").expect("ours");
        fs::create_dir_all(dir.path().join("dir/sub")).expect("ours");
        fs::create_dir(dir.path().join("taken")).expect("ours");
        let before = listing(dir.path());
        for (name, is_dir) in [("file", false), ("dir", true)] {
            let refused = claim_slowly(&at(name), &at("taken"), is_dir);
            assert_eq!(refused, Err(Errno::EXIST), "{name}");
        }
        assert_eq!(listing(dir.path()), before);
        assert_eq!(claim_slowly(&at("file"), &at("file2"), false), Ok(()));
        assert_eq!(claim_slowly(&at("dir"), &at("dir2"), true), Ok(()));
        let names = fs::read_dir(dir.path()).expect("ours").count();
        assert_eq!(names, 3);
        assert!(dir.path().join("dir2/sub").is_dir() && dir.path().join("file2").is_file());
    }
}
