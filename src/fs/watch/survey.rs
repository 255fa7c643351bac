//! The directories of a tree that are watched, and finding those that are not yet.

use std::collections::{HashMap, HashSet};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RawDir, Statx};
use rustix::io::Errno;

use super::super::confine::{Descent, Way};
use super::super::entry::{WANTED, is_same, kind, unseen};
use super::super::mount;
use super::{Ask, Claim};
use crate::error::{Kind, Result};
use crate::ring::inotify::{Change, ReadFlags, WatchFlags, Watches};

/// An entry that was there before its directory was watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    pub path: Vec<u8>,
    pub is_dir: bool,
}

/// Why a survey ends early.
#[derive(Debug)]
pub(super) enum Stop {
    /// More was found than is told one by one.
    TooMuch,
    /// As many directories are watched as may be.
    Full,
    /// The same, by the bound of the kernel.
    KernelIsFull,
    /// The root of the tree is not where it was.
    Gone,
    Failed(std::io::Error),
}

/// What is watched, and under which names.
pub(super) struct Tree {
    watches: Watches,
    /// The path of the root, without links.
    root: PathBuf,
    /// What was there when the watch began.
    found: Statx,
    root_watch: i32,
    is_recursive: bool,
    flags: WatchFlags,
    /// Relative path by watch.
    paths: HashMap<i32, Vec<u8>>,
    claim: Claim,
}

impl Tree {
    /// Watches what is there; `most` is how much all may watch together. For helper threads.
    pub(super) fn open(ask: &Ask, flags: WatchFlags, claim: Claim, most: usize) -> Result<Self> {
        let open = OFlags::PATH | OFlags::CLOEXEC;
        let root = rustix::fs::openat(CWD, &ask.path, open, Mode::empty());
        let root = root.map_err(|errno| unseen(errno, &ask.path))?;
        let found = rustix::fs::statx(&root, "", AtFlags::EMPTY_PATH, WANTED);
        let found = found.map_err(|errno| unseen(errno, &ask.path))?;
        let place = std::fs::read_link(format!("/proc/self/fd/{}", root.as_raw_fd()));
        let failed = |error: std::io::Error| {
            let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
            match errno {
                Errno::MFILE | Errno::NFILE => {
                    Kind::Busy.told("as many watches are open as the kernel allows")
                }
                errno => super::super::entry::refused(errno, "watch", &ask.path),
            }
        };
        let mut tree = Self {
            watches: Watches::new().map_err(failed)?,
            root: place.map_err(failed)?,
            found,
            root_watch: -1,
            is_recursive: ask.recursive && kind(&found) == FileType::Directory,
            flags,
            paths: HashMap::new(),
            claim,
        };
        let outcome = match tree.is_recursive {
            true => tree.survey(b"", &mut Vec::new(), &mut HashSet::new()),
            false => tree.add(&root, b"").map(drop),
        };
        let path = ask.path.display();
        match outcome {
            // What is there when the watch begins is nothing new.
            Ok(()) | Err(Stop::TooMuch) => {}
            Err(Stop::Full) if tree.claim.count >= most => {
                return Err(Kind::Unsupported.told(format!(
                    "{path} has more directories than the {most} that may be watched (--max-watches)"
                )));
            }
            Err(Stop::Full) => {
                return Err(Kind::Busy.told(format!(
                    "{path} cannot be watched: all together watch {most} directories at most (--max-watches)"
                )));
            }
            Err(Stop::KernelIsFull) => {
                return Err(Kind::Busy.told(format!(
                    "{path} cannot be watched: the kernel allows no more watches (fs.inotify.max_user_watches)"
                )));
            }
            Err(Stop::Gone) => return Err(unseen(Errno::NOENT, &ask.path)),
            Err(Stop::Failed(error)) => return Err(failed(error)),
        }
        let first = tree.paths.iter().find(|(_, path)| path.is_empty());
        match first {
            Some((watch, _)) => tree.root_watch = *watch,
            None => return Err(unseen(Errno::NOENT, &ask.path)),
        }
        Ok(tree)
    }

    pub(super) fn watches(&self) -> &Watches {
        &self.watches
    }

    pub(super) fn count(&self) -> usize {
        self.paths.len()
    }

    pub(super) fn is_recursive(&self) -> bool {
        self.is_recursive
    }

    /// Watches the directory `start` and those below it, and adds what is in those that were not watched before, and
    /// the watches of all of them.
    pub(super) fn survey(
        &mut self,
        start: &[u8],
        found: &mut Vec<Found>,
        seen: &mut HashSet<i32>,
    ) -> std::result::Result<(), Stop> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let root = rustix::fs::openat(CWD, &self.root, flags, Mode::empty());
        let root = root.map_err(|errno| match is_short(errno) {
            true => Stop::Failed(errno.into()),
            false => Stop::Gone,
        })?;
        let now = rustix::fs::statx(&root, "", AtFlags::EMPTY_PATH, WANTED);
        if !now.is_ok_and(|now| is_same(&now, &self.found)) {
            return Err(Stop::Gone);
        }
        let mut descent = Descent::at(root);
        let mut waiting = vec![start.to_vec()];
        let mut has_too_much = false;
        while let Some(path) = waiting.pop() {
            // What is gone again is told by the directory above it.
            let entered = descent.enter(&path, Way::Looking);
            let Some(dir) = there(entered.map_err(|stop| stop.errno))? else {
                continue;
            };
            if !path.is_empty() && mount::is_pseudo(&dir) {
                continue;
            }
            let Some((watch, is_new)) = self.add(&dir, &path)? else {
                continue;
            };
            seen.insert(watch);
            // Only now: what comes later is told by the watch.
            let most = self.claim.allowance.0.most;
            let Some(entries) = there(entries(&dir, most))? else {
                continue;
            };
            for (name, is_dir) in entries {
                let entry = match path.is_empty() {
                    true => name,
                    false => [&path, b"/".as_slice(), &name].concat(),
                };
                if is_dir {
                    waiting.push(entry.clone());
                    if waiting.len() > most {
                        return Err(Stop::Full);
                    }
                }
                has_too_much |= found.len() >= MOST_FOUND;
                if is_new && !has_too_much {
                    found.push(Found {
                        path: entry,
                        is_dir,
                    });
                }
            }
        }
        match has_too_much {
            true => Err(Stop::TooMuch),
            false => Ok(()),
        }
    }

    /// Watches one directory or file; true when it was not watched before, `None` when it cannot be.
    fn add(
        &mut self,
        dir: &OwnedFd,
        path: &[u8],
    ) -> std::result::Result<Option<(i32, bool)>, Stop> {
        let watch = match self.watches.add(dir, self.flags) {
            Ok(watch) => watch,
            Err(error) => {
                return match Errno::from_io_error(&error) {
                    Some(Errno::NOSPC) => Err(Stop::KernelIsFull),
                    Some(errno) if is_short(errno) => Err(Stop::Failed(error)),
                    _ if path.is_empty() => Err(Stop::Failed(error)),
                    // It is gone, or we may not read it.
                    _ => Ok(None),
                };
            }
        };
        let is_new = !self.paths.contains_key(&watch);
        if is_new && !self.claim.take() {
            self.watches.remove(watch);
            return Err(Stop::Full);
        }
        self.paths.insert(watch, path.to_vec());
        Ok(Some((watch, is_new)))
    }

    /// Why nothing more can come, when that is what a change says.
    pub(super) fn end(&self, change: &Change) -> Option<&'static str> {
        let ends = [
            (ReadFlags::UNMOUNT, "unmounted"),
            (ReadFlags::DELETE_SELF, "deleted"),
            (ReadFlags::MOVE_SELF, "moved"),
            (ReadFlags::IGNORED, "deleted"),
        ];
        let end = ends.iter().find(|(flag, _)| change.flags.contains(*flag));
        let is_root = change.watch == self.root_watch;
        end.filter(|_| is_root).map(|(_, why)| *why)
    }

    /// The path that a change is about; `None` for what is not told.
    pub(super) fn path_of(&self, change: &Change) -> Option<Vec<u8>> {
        let dir = self.paths.get(&change.watch)?;
        match &change.name {
            Some(name) if dir.is_empty() => Some(name.clone()),
            Some(name) => Some([dir, b"/".as_slice(), name].concat()),
            // The directory above a directory tells the same with its name.
            None => (change.watch == self.root_watch).then(Vec::new),
        }
    }

    /// A watch has ended by itself.
    pub(super) fn forget(&mut self, watch: i32) {
        if self.paths.remove(&watch).is_some() {
            self.claim.give_back(1);
        }
    }

    /// The watches of a directory and those below it.
    pub(super) fn below(&self, path: &[u8]) -> Vec<i32> {
        let is_below = |(watch, known): (&i32, &Vec<u8>)| rest(known, path).map(|_| *watch);
        self.paths.iter().filter_map(is_below).collect()
    }

    /// Gives those of `watches` that are below `old` their new names.
    pub(super) fn rename(&mut self, watches: &[i32], old: &[u8], new: &[u8]) {
        for watch in watches {
            if let Some(path) = self.paths.get_mut(watch)
                && let Some(rest) = rest(path, old)
            {
                *path = [new, rest].concat();
            }
        }
    }

    /// All watches but those.
    pub(super) fn other_than(&self, seen: &HashSet<i32>) -> Vec<i32> {
        let all = self.paths.keys().copied();
        all.filter(|watch| !seen.contains(watch)).collect()
    }

    /// Ends those of `watches` that have not ended by themselves.
    pub(super) fn unwatch(&mut self, watches: &[i32]) {
        for watch in watches {
            if self.paths.contains_key(watch) {
                self.forget(*watch);
                self.watches.remove(*watch);
            }
        }
    }
}

/// What there is; `None` when it is gone, or not for us, or broken.
fn there<T>(outcome: std::result::Result<T, Errno>) -> std::result::Result<Option<T>, Stop> {
    match outcome {
        Ok(there) => Ok(Some(there)),
        Err(errno) if is_short(errno) => Err(Stop::Failed(errno.into())),
        Err(_) => Ok(None),
    }
}

/// True when it is we who lack something, so that nothing is said about the directory.
fn is_short(errno: Errno) -> bool {
    matches!(errno, Errno::MFILE | Errno::NFILE | Errno::NOMEM)
}

/// What follows `above` in `path`, with its slash; `None` when `path` is not there or below.
fn rest<'a>(path: &'a [u8], above: &[u8]) -> Option<&'a [u8]> {
    let rest = path.strip_prefix(above)?;
    (rest.is_empty() || rest.starts_with(b"/")).then_some(rest)
}

/// The names in a directory, and which of them are directories; of those not many more than `most`.
fn entries(dir: &OwnedFd, most: usize) -> std::result::Result<Vec<(Vec<u8>, bool)>, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let listed = rustix::fs::openat(dir, ".", flags, Mode::empty())?;
    let mut buffer = [MaybeUninit::uninit(); READ];
    let mut entries = RawDir::new(&listed, &mut buffer);
    let mut names = Vec::new();
    let mut dirs = 0;
    while dirs <= most
        && let Some(entry) = entries.next()
    {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if matches!(name, b"." | b"..") {
            continue;
        }
        let is_dir = match entry.file_type() {
            FileType::Unknown => {
                let found = super::super::stat::look_at(dir, name, false);
                found.is_ok_and(|found| kind(&found) == FileType::Directory)
            }
            known => known == FileType::Directory,
        };
        dirs += usize::from(is_dir);
        // Past what is told one by one only directories matter.
        if is_dir || names.len() <= MOST_FOUND {
            names.push((name.to_vec(), is_dir));
        }
    }
    Ok(names)
}

/// Entries of new directories that are told one by one.
const MOST_FOUND: usize = 16 * 1024;
/// Bytes of directory entries read at once; on the stack of a helper.
const READ: usize = 16 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_below_a_path_follows_a_slash() {
        for (path, above, expected) in [
            ("a", "a", Some("")),
            ("a/b", "a", Some("/b")),
            ("ab", "a", None),
            ("b", "a", None),
        ] {
            let found = rest(path.as_bytes(), above.as_bytes());
            assert_eq!(found, expected.map(str::as_bytes), "{path}");
        }
    }
}
