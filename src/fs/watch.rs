//! Watching a file or directory for changes, and on request every directory below it.
//!
//! The kernel holds the changes back until they are taken, up to a bound of its own; past that it says so. So who takes
//! them slowly costs a bounded amount of memory, and learns that something is missing.

mod survey;

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

pub use survey::Found;
use survey::{Stop, Tree};

use crate::error::{Error, Kind, Result};
use crate::ring::clock::{self, Deadline};
use crate::ring::inotify::{Bell, Change, ReadFlags, WatchFlags};
use crate::ring::pool;

/// A watch that is asked for.
#[derive(Clone, Debug)]
pub struct Ask {
    /// What is watched; links are followed.
    pub path: PathBuf,
    /// True watches all directories below it too; links are not followed there.
    pub recursive: bool,
    /// The kinds of change that are told.
    pub kinds: Vec<What>,
}

/// What happened to an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    Created,
    Modified,
    ClosedWrite,
    Deleted,
    MovedFrom,
    MovedTo,
    Attributes,
}

/// Something to tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// An entry has changed.
    Changed {
        /// Relative to what is watched; empty for that itself.
        path: Vec<u8>,
        what: What,
        is_dir: bool,
        /// The same in both halves of a move.
        cookie: Option<u32>,
    },
    /// Changes are missing.
    Overflow,
    /// Nothing more will come, for this reason.
    Gone(&'static str),
}

/// How many directories may be watched, by all together.
#[derive(Clone)]
pub struct Allowance(Arc<Shared>);

struct Shared {
    used: AtomicUsize,
    most: usize,
}

impl Allowance {
    /// An allowance of which nothing is used.
    pub fn new(most: usize) -> Self {
        let used = AtomicUsize::new(0);
        Self(Arc::new(Shared { used, most }))
    }

    /// Directories and files that are watched now.
    pub fn used(&self) -> usize {
        self.0.used.load(Ordering::Relaxed)
    }
}

/// What one watch uses of the allowance; given back when it is dropped.
struct Claim {
    allowance: Allowance,
    count: usize,
}

impl Claim {
    fn take(&mut self) -> bool {
        let Shared { used, most } = &*self.allowance.0;
        let more = |used: usize| (used < *most).then_some(used + 1);
        let is_free = used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        self.count += usize::from(is_free.is_ok());
        is_free.is_ok()
    }

    fn give_back(&mut self, count: usize) {
        self.count -= count;
        self.allowance.0.used.fetch_sub(count, Ordering::Relaxed);
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.give_back(self.count);
    }
}

/// A watch that is in place.
pub struct Watch {
    /// Gone while a helper works on it.
    tree: Option<Tree>,
    bell: Bell,
    kinds: Vec<What>,
    leaving: Vec<Leaving>,
}

/// A directory that was moved from its name; where to comes in a moment, or never when that is outside.
struct Leaving {
    /// `None` where nobody has told that it was moved.
    cookie: Option<u32>,
    path: Vec<u8>,
    /// Those of its watches that were not seen elsewhere since.
    watches: Vec<i32>,
    until: Deadline,
}

impl Watch {
    /// Puts a watch in place.
    ///
    /// # Errors
    /// `NotFound`, `Denied`; `Busy` when as many directories are watched as the daemon or the kernel allows;
    /// `Unsupported` when the tree has more than that.
    pub async fn open(ask: Ask, allowance: Allowance) -> Result<Self> {
        let most = allowance.0.most;
        let kinds = ask.kinds.clone();
        let claim = Claim {
            allowance,
            count: 0,
        };
        let tree = pool::run(move || Tree::open(&ask, flags(&ask), claim, most)).await??;
        let bell = Bell::new(tree.watches()).map_err(unwatched)?;
        Ok(Self {
            tree: Some(tree),
            bell,
            kinds,
            leaving: Vec::new(),
        })
    }

    /// Directories, or files, that are watched.
    pub fn count(&self) -> usize {
        self.tree.as_ref().map_or(0, Tree::count)
    }

    /// Waits until there may be something to take. If dropped, nothing is lost.
    ///
    /// # Errors
    /// The driver failed.
    pub async fn ready(&self) -> Result<()> {
        // The deadlines are in the order of their beginning.
        let until = self
            .leaving
            .first()
            .map_or(Deadline::NEVER, |one| one.until);
        match clock::until(until, self.bell.rings()).await {
            Some(rings) => rings.map_err(unwatched),
            None => Ok(()),
        }
    }

    /// Takes what there is. To be driven to its end: dropped on the way, the watch is at its end.
    ///
    /// # Errors
    /// `Internal`, `Busy`.
    pub async fn take(&mut self) -> Result<Vec<News>> {
        let Some(tree) = &self.tree else {
            return Ok(vec![News::Gone("failed")]);
        };
        let changes = tree.watches().read().map_err(unwatched)?;
        let mut news = Vec::new();
        for change in changes {
            self.note(change, &mut news).await?;
            if matches!(news.last(), Some(News::Gone(_))) {
                return Ok(news);
            }
        }
        self.let_leave();
        Ok(news)
    }

    /// Keeps the watches up to date with one change, and adds what is to be told of it.
    async fn note(&mut self, change: Change, news: &mut Vec<News>) -> Result<()> {
        let Some(tree) = &mut self.tree else {
            return Ok(());
        };
        let has = |flag: ReadFlags| change.flags.contains(flag);
        if has(ReadFlags::QUEUE_OVERFLOW) {
            // First the watches that may be missing, so that nothing is missed behind the client's next look.
            if self.is_recursive() {
                let seen = self.survey(Vec::new(), &mut Vec::new(), news).await?;
                self.leave_unseen(&seen);
            }
            if !matches!(news.last(), Some(News::Gone(_) | News::Overflow)) {
                news.push(News::Overflow);
            }
            return Ok(());
        }
        if let Some(why) = tree.end(&change) {
            news.push(News::Gone(why));
            return Ok(());
        }
        if has(ReadFlags::IGNORED) {
            tree.forget(change.watch);
            return Ok(());
        }
        let Some(path) = tree.path_of(&change) else {
            return Ok(());
        };
        let is_dir = has(ReadFlags::ISDIR);
        if let Some(what) = what(change.flags) {
            let is_half = matches!(what, What::MovedFrom | What::MovedTo);
            self.tell(news, &path, what, is_dir, is_half.then_some(change.cookie));
        }
        if !is_dir || !self.is_recursive() || change.name.is_none() {
            return Ok(());
        }
        if has(ReadFlags::MOVED_FROM) {
            self.leave(change.cookie, path);
        } else if has(ReadFlags::CREATE) || has(ReadFlags::MOVED_TO) {
            self.arrive(change.cookie, &path);
            let mut found = Vec::new();
            self.survey(path, &mut found, news).await?;
            for Found { path, is_dir } in found {
                self.tell(news, &path, What::Created, is_dir, None);
            }
        }
        Ok(())
    }

    fn tell(
        &self,
        news: &mut Vec<News>,
        path: &[u8],
        what: What,
        is_dir: bool,
        cookie: Option<u32>,
    ) {
        if !self.kinds.contains(&what) {
            return;
        }
        let changed = News::Changed {
            path: path.to_vec(),
            what,
            is_dir,
            cookie,
        };
        // Who writes a file piece by piece has changed it once.
        if what != What::Modified || news.last() != Some(&changed) {
            news.push(changed);
        }
    }

    /// Watches the directory `path` and those below it; adds what is in those that were not watched before. Answers
    /// the watches of all of them: those do not leave.
    async fn survey(
        &mut self,
        path: Vec<u8>,
        found: &mut Vec<Found>,
        news: &mut Vec<News>,
    ) -> Result<HashSet<i32>> {
        let Some(mut tree) = self.tree.take() else {
            return Ok(HashSet::new());
        };
        let job = move || {
            let mut found = Vec::new();
            let mut seen = HashSet::new();
            let outcome = tree.survey(&path, &mut found, &mut seen);
            (tree, found, seen, outcome)
        };
        let (tree, entries, seen, outcome) = pool::run(job).await?;
        self.tree = Some(tree);
        *found = entries;
        for one in &mut self.leaving {
            one.watches.retain(|watch| !seen.contains(watch));
        }
        match outcome {
            Ok(()) => {}
            Err(Stop::TooMuch) => {
                found.clear();
                news.push(News::Overflow);
            }
            Err(Stop::Full | Stop::KernelIsFull) => news.push(News::Gone("limit")),
            Err(Stop::Gone) => news.push(News::Gone("moved")),
            Err(Stop::Failed(_)) => news.push(News::Gone("failed")),
        }
        Ok(seen)
    }

    fn is_recursive(&self) -> bool {
        self.tree.as_ref().is_some_and(Tree::is_recursive)
    }

    /// A directory has left its name, with all below it.
    fn leave(&mut self, cookie: u32, path: Vec<u8>) {
        if let Some(tree) = &self.tree {
            let watches = tree.below(&path);
            self.leaving.push(Leaving {
                cookie: Some(cookie),
                path,
                watches,
                until: Deadline::after(PATIENCE),
            });
        }
    }

    /// What a survey of the whole tree has not seen has left, unless it moved under its eyes: then a change tells.
    fn leave_unseen(&mut self, seen: &HashSet<i32>) {
        if let Some(tree) = &self.tree {
            self.leaving.push(Leaving {
                cookie: None,
                path: Vec::new(),
                watches: tree.other_than(seen),
                until: Deadline::after(PATIENCE),
            });
        }
    }

    /// A directory has come to a name; if it is one that left, what is below it has new names.
    fn arrive(&mut self, cookie: u32, path: &[u8]) {
        let is_it = |one: &Leaving| one.cookie == Some(cookie);
        let left = self.leaving.iter().position(is_it);
        if let (Some(index), Some(tree)) = (left, &mut self.tree) {
            let Leaving {
                path: old, watches, ..
            } = self.leaving.remove(index);
            tree.rename(&watches, &old, path);
        }
    }

    /// Ends the watches of directories that have left the tree.
    fn let_leave(&mut self) {
        let Some(tree) = &mut self.tree else { return };
        self.leaving.retain(|one| {
            let is_gone = one.until.has_passed();
            if is_gone {
                tree.unwatch(&one.watches);
            }
            !is_gone
        });
    }
}

/// What a change is called; `None` for those that are not told.
fn what(flags: ReadFlags) -> Option<What> {
    let found = KINDS.iter().find(|(flag, _, _)| flags.contains(*flag));
    found.map(|(_, _, what)| *what)
}

/// What the kernel is asked to tell.
fn flags(ask: &Ask) -> WatchFlags {
    let wanted = KINDS.iter().filter(|(_, _, what)| ask.kinds.contains(what));
    let wanted = wanted.fold(WatchFlags::empty(), |all, (_, flag, _)| all | *flag);
    let needed = match ask.recursive {
        true => WatchFlags::CREATE | WatchFlags::MOVE,
        false => WatchFlags::empty(),
    };
    let ends = WatchFlags::DELETE_SELF | WatchFlags::MOVE_SELF;
    wanted | needed | ends | WatchFlags::EXCL_UNLINK
}

fn unwatched(error: std::io::Error) -> Error {
    Kind::Internal.told("cannot watch").because(error)
}

const KINDS: &[(ReadFlags, WatchFlags, What)] = &[
    (ReadFlags::CREATE, WatchFlags::CREATE, What::Created),
    (ReadFlags::MODIFY, WatchFlags::MODIFY, What::Modified),
    (
        ReadFlags::CLOSE_WRITE,
        WatchFlags::CLOSE_WRITE,
        What::ClosedWrite,
    ),
    (ReadFlags::DELETE, WatchFlags::DELETE, What::Deleted),
    (
        ReadFlags::MOVED_FROM,
        WatchFlags::MOVED_FROM,
        What::MovedFrom,
    ),
    (ReadFlags::MOVED_TO, WatchFlags::MOVED_TO, What::MovedTo),
    (ReadFlags::ATTRIB, WatchFlags::ATTRIB, What::Attributes),
];
/// How long the second half of a move may take before the directory counts as gone.
const PATIENCE: Duration = Duration::from_secs(1);
