//! A directory, and what is below it, listed in the order of names, page by page, in bounded memory.
//!
//! The names of a directory are not kept all at once: each pass over it takes the smallest ones behind the last that was
//! told, as many as the budget allows. So a directory of any size can be listed in order, and a listing that goes on
//! behind a name tells each entry once that is there all the time, whatever else changes meanwhile.

use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use rustix::fs::{CWD, FileType, Mode, OFlags, RawDir, Statx};
use rustix::io::Errno;

use super::confine::{Descent, Way};
use super::entry::{is_gone, kind, refused, said, unseen};
use super::mount;
use super::owners::Owners;
use super::stat::{Facts, Sort, look_at};
use crate::error::{Kind, Result};
use crate::ring::pool;

/// A listing that is asked for.
#[derive(Clone, Debug)]
pub struct Ask {
    pub path: PathBuf,
    /// Levels that are told; 1 is the directory alone.
    pub depth: usize,
    /// False leaves out names that begin with a dot, and all below them.
    pub hidden: bool,
    /// True tells of what links lead to; directories behind links are never entered.
    pub follow: bool,
    /// True tells more than path and type.
    pub detail: bool,
    /// The entry behind which the listing begins, relative to the directory; empty for all.
    pub after: Vec<u8>,
    /// Entries at most.
    pub limit: u64,
}

/// One entry of a listing.
#[derive(Debug)]
pub struct Item {
    /// Relative to the directory that is listed.
    pub path: Vec<u8>,
    pub sort: Sort,
    /// Present when details were asked for.
    pub facts: Option<Facts>,
    /// Why it could not be looked at, or why what is in it is not told.
    pub error: Option<String>,
}

/// How far a listing has come.
#[derive(Debug, PartialEq, Eq)]
pub enum Progress {
    /// There is more to tell.
    More,
    /// All has been told.
    Complete,
    /// The limit is reached, and there is more behind the entry of this path.
    Limited(Vec<u8>),
}

/// A listing under way.
pub struct Listing {
    ask: Ask,
    descent: Descent,
    /// The directories on the way from the root to where we are.
    frames: Vec<Frame>,
    owners: Option<Owners>,
    /// Which devices the kernel makes up.
    pseudo: HashMap<(u32, u32), bool>,
    /// Entries told so far.
    told: u64,
    /// The path of the last one.
    last: Vec<u8>,
}

/// Writes one entry down.
pub type Encode = fn(&Item, &mut Vec<u8>);

struct Frame {
    path: Vec<u8>,
    /// The last name that was taken; empty at the start.
    cursor: Vec<u8>,
    names: VecDeque<Name>,
    /// Bytes that `names` took when they were read.
    held: usize,
    /// True when the directory has names behind those.
    has_more: bool,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Name {
    name: Box<[u8]>,
    /// The type as the directory tells it; zero when it does not.
    kind: u8,
}

impl Listing {
    /// Opens the directory, following links, and reads its first names.
    ///
    /// # Errors
    /// `NotFound`, `Denied`, `Malformed` for what is no directory and for an `after` that is no path below it.
    pub async fn open(ask: Ask) -> Result<Self> {
        pool::run(move || Self::open_now(ask)).await?
    }

    /// Appends some more entries to `into`, by a helper; also says how far that is, and how many were told so far.
    ///
    /// # Errors
    /// When the directory cannot be read any more.
    pub async fn more(
        mut self,
        mut into: Vec<u8>,
        encode: Encode,
    ) -> Result<(Self, Vec<u8>, Progress)> {
        pool::run(move || {
            let progress = self.fill(&mut into, encode)?;
            Ok((self, into, progress))
        })
        .await?
    }

    /// Entries told so far.
    pub fn told(&self) -> u64 {
        self.told
    }

    /// The path of the last entry that was told.
    pub fn last(&self) -> &[u8] {
        &self.last
    }

    fn open_now(ask: Ask) -> Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = match rustix::fs::openat(CWD, &ask.path, flags, Mode::empty()) {
            Ok(root) => root,
            // Said of the path itself, or of something on the way.
            Err(Errno::NOTDIR) if rustix::fs::stat(&ask.path).is_ok() => {
                let told = format!("{} is not a directory", ask.path.display());
                return Err(Kind::Malformed.told(told));
            }
            Err(errno) => return Err(unseen(errno, &ask.path)),
        };
        let mut listing = Self {
            descent: Descent::at(root),
            frames: Vec::new(),
            owners: ask.detail.then(Owners::read),
            pseudo: HashMap::new(),
            told: 0,
            last: Vec::new(),
            ask,
        };
        listing.resume()?;
        Ok(listing)
    }

    /// Goes to where the listing begins.
    fn resume(&mut self) -> Result<()> {
        let after = std::mem::take(&mut self.ask.after);
        let mut names = after.split(|byte| *byte == b'/').peekable();
        if after.is_empty() {
            names.next();
        } else if names.clone().any(|name| matches!(name, b"" | b"." | b"..")) {
            return Err(Kind::Malformed.told("after is not a path below the directory"));
        }
        let mut path = Vec::new();
        loop {
            let name = names.next();
            let cursor = name.unwrap_or_default().to_vec();
            let entered = self.enter(path.clone(), cursor);
            match entered {
                Ok(()) => {}
                // It is gone, or was told as one that cannot be read; what comes behind it is told.
                Err(errno) if !path.is_empty() && (is_gone(errno) || errno == Errno::ACCESS) => {
                    return Ok(());
                }
                Err(errno) => return Err(refused(errno, "list", &self.ask.path)),
            }
            let Some(name) = name.filter(|name| self.is_told(name)) else {
                return Ok(());
            };
            if self.frames.len() >= self.ask.depth {
                return Ok(());
            }
            path = joined(&path, name);
        }
    }

    fn fill(&mut self, into: &mut Vec<u8>, encode: Encode) -> Result<Progress> {
        let start = into.len();
        let before = self.told;
        while into.len() - start < SLICE_BYTES && self.told - before < SLICE_ENTRIES {
            let Some(item) = self.step()? else {
                return Ok(Progress::Complete);
            };
            if self.told >= self.ask.limit {
                return Ok(Progress::Limited(self.last.clone()));
            }
            encode(&item, into);
            self.told += 1;
            self.last = item.path;
        }
        Ok(Progress::More)
    }

    /// The next entry; `None` behind the last.
    fn step(&mut self) -> Result<Option<Item>> {
        loop {
            let Some(frame) = self.frames.last_mut() else {
                return Ok(None);
            };
            let Some(name) = frame.names.pop_front() else {
                if !frame.has_more {
                    self.frames.pop();
                    continue;
                }
                let Some(Frame { path, cursor, .. }) = self.frames.pop() else {
                    continue;
                };
                match self.enter(path, cursor) {
                    Err(errno) if !is_gone(errno) => {
                        return Err(refused(errno, "list", &self.ask.path));
                    }
                    _ => continue,
                }
            };
            frame.cursor = name.name.to_vec();
            let parent = frame.path.clone();
            if let Some(item) = self.look(&parent, &name) {
                return Ok(Some(item));
            }
        }
    }

    /// What an entry is; `None` when it is gone. A directory that is told of is entered.
    fn look(&mut self, parent: &[u8], name: &Name) -> Option<Item> {
        let mut item = Item {
            path: joined(parent, &name.name),
            sort: name.sort(),
            facts: None,
            error: None,
        };
        let dir = match self.descent.enter(parent, Way::Looking) {
            Ok(dir) => dir,
            Err(stop) if is_gone(stop.errno) => return None,
            Err(stop) => {
                item.error = Some(said(stop.errno));
                return Some(item);
            }
        };
        let needs_look = self.ask.detail || item.sort == Sort::Unknown;
        let mut is_dir = item.sort == Sort::Directory;
        if needs_look || (self.ask.follow && item.sort == Sort::Symlink) {
            match look_at(&dir, &name.name, false) {
                Ok(found) => {
                    is_dir = kind(&found) == FileType::Directory;
                    self.tell(&dir, &name.name, found, &mut item);
                }
                Err(Errno::NOENT) => return None,
                Err(errno) => item.error = Some(said(errno)),
            }
        }
        if is_dir && self.frames.len() < self.ask.depth {
            let entered = self.enter(item.path.clone(), Vec::new());
            if let Some(errno) = entered.err().filter(|errno| !is_gone(*errno)) {
                item.error = Some(said(errno));
            }
        }
        Some(item)
    }

    /// Puts into `item` what is known of it; of a link to nowhere what the link is.
    fn tell(&mut self, dir: &OwnedFd, name: &[u8], found: Statx, item: &mut Item) {
        let is_link = kind(&found) == FileType::Symlink;
        let behind = (is_link && self.ask.follow).then(|| look_at(dir, name, true).ok());
        let behind = behind.flatten();
        let end = match behind {
            Some(_) => OFlags::empty(),
            None => OFlags::NOFOLLOW,
        };
        let found = behind.unwrap_or(found);
        item.sort = kind(&found).into();
        let Some(owners) = &self.owners else { return };
        let device = (found.stx_dev_major, found.stx_dev_minor);
        let is_pseudo = *self.pseudo.entry(device).or_insert_with(|| {
            let flags = OFlags::PATH | OFlags::CLOEXEC | end;
            let opened = rustix::fs::openat(dir, name, flags, Mode::empty());
            opened.is_ok_and(mount::is_pseudo)
        });
        let mut facts = Facts::of(&found, owners, is_pseudo);
        if facts.sort == Sort::Symlink {
            let target = rustix::fs::readlinkat(dir, name, Vec::new());
            facts.target = target.ok().map(std::ffi::CString::into_bytes);
        }
        item.facts = Some(facts);
    }

    /// Reads names of the directory `path` behind `cursor`.
    fn enter(&mut self, path: Vec<u8>, cursor: Vec<u8>) -> std::result::Result<(), Errno> {
        let dir = self.descent.enter(&path, Way::Looking);
        let dir = dir.map_err(|stop| stop.errno)?;
        let held: usize = self.frames.iter().map(|frame| frame.held).sum();
        let left = BUDGET.saturating_sub(held);
        let is_last_level = self.frames.len() + 1 >= self.ask.depth;
        let budget = if is_last_level { left } else { left / 2 };
        let mut names = Smallest {
            names: BinaryHeap::new(),
            held: 0,
            budget: budget.max(LEAST_BUDGET),
            // One more than will be told: it says whether there is more.
            most: usize::try_from(self.ask.limit - self.told)
                .unwrap_or(usize::MAX)
                .saturating_add(1),
            has_more: false,
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let listed = rustix::fs::openat(&dir, ".", flags, Mode::empty())?;
        let mut buffer = vec![MaybeUninit::uninit(); READ];
        let mut entries = RawDir::new(&listed, &mut buffer);
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if self.is_told(name) && name > cursor.as_slice() {
                names.consider(name, entry.file_type());
            }
        }
        self.frames.push(Frame {
            path,
            cursor,
            held: names.held,
            has_more: names.has_more,
            names: names.names.into_sorted_vec().into(),
        });
        Ok(())
    }

    fn is_told(&self, name: &[u8]) -> bool {
        match name {
            b"." | b".." => false,
            _ => self.ask.hidden || !name.starts_with(b"."),
        }
    }
}

/// The smallest of the names that were considered, as many as fit.
struct Smallest {
    names: BinaryHeap<Name>,
    held: usize,
    budget: usize,
    most: usize,
    has_more: bool,
}

impl Smallest {
    fn consider(&mut self, name: &[u8], kind: FileType) {
        let is_beyond = |largest: &Name| name > &*largest.name;
        if self.has_more && self.names.peek().is_some_and(is_beyond) {
            return;
        }
        self.held += name.len() + OVERHEAD;
        self.names.push(Name {
            name: name.into(),
            kind: Name::number(kind),
        });
        let is_full = |this: &Self| this.held > this.budget || this.names.len() > this.most;
        while is_full(self) && self.names.len() > 1 {
            if let Some(largest) = self.names.pop() {
                self.held -= largest.name.len() + OVERHEAD;
                self.has_more = true;
            }
        }
    }
}

impl Name {
    /// Types in a byte; the order does not matter, since no two names are equal.
    fn number(kind: FileType) -> u8 {
        let at = KINDS.iter().position(|known| *known == kind);
        at.and_then(|at| u8::try_from(at).ok()).unwrap_or(u8::MAX)
    }

    fn sort(&self) -> Sort {
        let kind = KINDS.get(usize::from(self.kind));
        kind.map_or(Sort::Unknown, |kind| Sort::from(*kind))
    }
}

const KINDS: [FileType; 7] = [
    FileType::RegularFile,
    FileType::Directory,
    FileType::Symlink,
    FileType::Fifo,
    FileType::Socket,
    FileType::CharacterDevice,
    FileType::BlockDevice,
];

fn joined(parent: &[u8], name: &[u8]) -> Vec<u8> {
    let mut path = Vec::with_capacity(parent.len() + 1 + name.len());
    path.extend_from_slice(parent);
    if !parent.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    path
}

/// The deepest listing.
pub const MOST_DEPTH: usize = 256;
/// Memory for names, shared by the directories on the way to where a listing is.
const BUDGET: usize = 8 * 1024 * 1024;
/// Memory for names that each of them has in any case.
const LEAST_BUDGET: usize = 16 * 1024;
/// Memory that a name takes beside its bytes.
const OVERHEAD: usize = 48;
/// Bytes of directory entries read at once.
const READ: usize = 32 * 1024;
/// What is told at a time.
const SLICE_BYTES: usize = 64 * 1024;
const SLICE_ENTRIES: u64 = 512;

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::testing::Dir;
    use super::*;

    fn ask(path: &Path) -> Ask {
        Ask {
            path: path.into(),
            depth: MOST_DEPTH,
            hidden: true,
            follow: false,
            detail: false,
            after: Vec::new(),
            limit: u64::MAX,
        }
    }

    fn all(ask: Ask, budget: Option<usize>) -> Vec<String> {
        let mut listing = Listing::open_now(ask).expect("it can be listed");
        let mut told = Vec::new();
        loop {
            // What does not fit is dropped, as if the budget had been smaller.
            if let (Some(budget), Some(frame)) = (budget, listing.frames.last_mut())
                && frame.names.len() > budget
            {
                frame.names.truncate(budget);
                frame.has_more = true;
            }
            match listing.step().expect("it can be listed") {
                Some(item) => told.push(String::from_utf8_lossy(&item.path).into_owned()),
                None => return told,
            }
        }
    }

    fn tree() -> Dir {
        let dir = Dir::new();
        for name in ["b/x/1", "b/x/2", "b/y", "a", "a-b", "c/z"] {
            std::fs::create_dir_all(dir.path().join(name)).expect("it is ours");
        }
        std::fs::write(dir.path().join("a.txt"), "").expect("it is ours");
        dir
    }

    #[test]
    fn a_directory_comes_before_what_is_in_it_and_names_in_the_order_of_bytes() {
        let dir = tree();
        let expected = [
            "a", "a-b", "a.txt", "b", "b/x", "b/x/1", "b/x/2", "b/y", "c", "c/z",
        ];
        assert_eq!(all(ask(dir.path()), None), expected);
        for budget in 1..4 {
            assert_eq!(all(ask(dir.path()), Some(budget)), expected, "{budget}");
        }
    }

    #[test]
    fn a_listing_goes_on_behind_any_of_its_entries() {
        let dir = tree();
        let whole = all(ask(dir.path()), None);
        for (index, name) in whole.iter().enumerate() {
            let mut ask = ask(dir.path());
            ask.after = name.clone().into_bytes();
            assert_eq!(all(ask, None), whole[index + 1..], "{name}");
        }
        for (after, next) in [
            ("a/none", "a-b"),
            ("b/x/10", "b/x/2"),
            ("aa", "b"),
            ("b/w/q", "b/x"),
        ] {
            let mut ask = ask(dir.path());
            ask.after = after.into();
            assert_eq!(all(ask, None)[0], next, "{after}");
        }
    }

    #[test]
    fn what_cannot_be_reached_is_told_with_the_reason() {
        let dir = tree();
        let mut listing = Listing::open_now(ask(dir.path())).expect("it can be listed");
        // The system refuses so long a name for another reason than that nothing has it.
        let lost = vec![b'n'; 300];
        let name = Name {
            name: b"x"[..].into(),
            kind: Name::number(FileType::RegularFile),
        };
        listing.frames.push(Frame {
            path: lost.clone(),
            cursor: Vec::new(),
            names: VecDeque::from([name]),
            held: 0,
            has_more: false,
        });
        let item = listing.step().expect("the rest can be told");
        let item = item.expect("it is told");
        assert_eq!(item.path, joined(&lost, b"x"));
        assert_eq!(item.error.as_deref(), Some("File name too long"));

        let mut ask = ask(dir.path());
        ask.after = joined(&lost, b"x");
        let refused = Listing::open_now(ask)
            .err()
            .expect("its place is not known");
        assert_eq!(refused.kind(), Kind::Malformed);
    }

    #[test]
    fn a_followed_link_is_told_as_what_the_kernel_makes_up_behind_it() {
        let dir = Dir::new();
        let link = dir.path().join("v");
        std::os::unix::fs::symlink("/proc/version", link).expect("it is ours");
        let mut ask = ask(dir.path());
        (ask.follow, ask.detail) = (true, true);
        let mut listing = Listing::open_now(ask).expect("it can be listed");
        let item = listing.step().expect("it can be told").expect("it is told");
        let facts = item.facts.expect("details were asked for");
        assert_eq!((facts.sort, facts.etag), (Sort::File, None));
    }

    #[test]
    fn the_smallest_names_are_kept() {
        let mut smallest = Smallest {
            names: BinaryHeap::new(),
            held: 0,
            budget: 3 * (1 + OVERHEAD),
            most: usize::MAX,
            has_more: false,
        };
        for name in [b"e", b"a", b"d", b"c", b"b", b"f"] {
            smallest.consider(name, FileType::RegularFile);
        }
        let names = smallest.names.into_sorted_vec();
        let names: Vec<_> = names.iter().map(|name| &*name.name).collect();
        assert_eq!(names, [b"a", b"b", b"c"]);
        assert!(smallest.has_more);
    }
}
