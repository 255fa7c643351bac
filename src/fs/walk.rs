//! A walk over a tree: what will be packed, in the order in which it is packed, with every size known.
//!
//! A directory is read as a whole and its entries are ordered; then they are taken one by one, and the walk goes down
//! where the names of a directory's content belong. A directory that only leads to members is one itself as soon as
//! the first of them is found; one that turns out to lead to none is forgotten with all below it.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use rustix::fs::{FileType, Mode, OFlags, RawDir, Stat};

use super::confine::Way;
use super::entry::is_gone;
use super::filter::Verdict;
use super::listed::Listed;
use super::mount::{self, Mounted};
use super::plan::{Item, Mark, More, Plan, Span, is_too_long};
use super::tree::{Options, Tree, unreadable};
use crate::error::{Error, Kind, Result};
use crate::wire::tar::{Type, write};
use entry::{Found, item, nanos};

mod entry;

/// Walks the tree below `root`; `told` is its path, for sentences. For helper threads.
///
/// # Errors
/// `TooLarge` beyond the limits, `NotFound` for a listed name, `Internal` when a directory cannot be read, `ClientGone`
/// once `is_given_up`.
pub(super) fn walk(
    root: OwnedFd,
    told: &Path,
    options: &Options,
    is_given_up: &AtomicBool,
) -> Result<(Plan, Tree)> {
    let stat = rustix::fs::fstat(&root).map_err(unreadable)?;
    let mut walk = Walk {
        plan: Plan::new(options.strip),
        locals: HashMap::from([(stat.st_dev, mount::is_local(&root))]),
        mounted: Mounted::of(&root, &stat),
        tree: Tree::at(root, options.follow)?,
        above: Vec::new(),
        twins: HashMap::new(),
        linked: Vec::new(),
        told,
        options,
        is_given_up,
        bytes: 0,
        records: 0,
        path: Vec::new(),
        link: Vec::new(),
        buffer: vec![MaybeUninit::uninit(); LISTING],
    };
    walk.begin(&stat)?;
    let mut frames = vec![walk.read(0)?];
    while let Some(frame) = frames.last_mut() {
        match frame.steps.pop() {
            Some(Step { item, down: true }) => {
                frames.push(walk.read(item)?);
            }
            Some(Step { item, .. }) => walk.take(item)?,
            None => {
                if let Some(frame) = frames.pop() {
                    walk.leave(&frame);
                }
            }
        }
    }
    walk.plan.length += write::END.len() as u64;
    Ok((walk.plan, walk.tree))
}

struct Walk<'a> {
    plan: Plan,
    tree: Tree,
    /// Device and inode of the directories under way, where links are followed.
    above: Vec<(u64, u64)>,
    /// Files with several names, by device, inode and the directory that is stripped off.
    twins: HashMap<(u64, u64, u32), u32>,
    /// What each [`More::Linked`] stands for.
    linked: Vec<Linked>,
    /// Which devices are local.
    locals: HashMap<u64, bool>,
    told: &'a Path,
    options: &'a Options,
    is_given_up: &'a AtomicBool,
    /// What holds the root.
    mounted: Mounted,
    bytes: u64,
    /// Bytes of all pax records.
    records: usize,
    /// Room for names.
    path: Vec<u8>,
    link: Vec<u8>,
    buffer: Vec<MaybeUninit<u8>>,
}

#[derive(Clone, Copy)]
struct Linked {
    device: u64,
    inode: u64,
    more: More,
}

/// A directory under way.
struct Frame {
    directory: u32,
    /// What to do, last first.
    steps: Vec<Step>,
    /// Where the plan ended before it was read, and what else is counted.
    mark: Mark,
    linked: usize,
    records: usize,
}

/// Packing a member, or going down into it.
#[derive(Clone, Copy)]
struct Step {
    item: u32,
    down: bool,
}

impl Walk<'_> {
    /// Makes the root the first item, and a member where it is one.
    fn begin(&mut self, stat: &Stat) -> Result<()> {
        let options = self.options;
        let listed = options.listed.as_ref();
        let mut root = item(0, stat, FileType::Directory);
        root.local = self.locals[&stat.st_dev];
        root.chosen = options.filter.root() == Verdict::Keep;
        root.vanishes = options.strip > 0 || listed.is_some_and(|listed| !listed.has_root());
        root.whole = listed.is_none_or(|listed| listed.has_root() && listed.recursive);
        root.alive = true;
        if options.precise {
            root.nanos = nanos(stat);
        }
        if options.xattrs && !root.vanishes {
            let dir = self.tree.enter(b"", Way::Looking).map_err(unreadable)?;
            root.records = self.attributes(dir, b".", false)?.unwrap_or_default();
        }
        self.plan.push(root)?;
        if !root.vanishes {
            self.plan.order.push(0);
            self.plan.length += self.measure(0);
        }
        Ok(())
    }

    /// Reads a directory of the plan.
    fn read(&mut self, directory: u32) -> Result<Frame> {
        self.plan.path(directory, &mut self.path);
        let mut frame = Frame {
            directory,
            steps: Vec::new(),
            mark: self.plan.mark(),
            linked: self.linked.len(),
            records: self.records,
        };
        if self.options.follow {
            // One for each frame, also for a directory that is gone.
            self.above.push((u64::MAX, u64::MAX));
        }
        let dir = match self.tree.enter(&self.path, Way::Looking) {
            Ok(dir) => dir,
            // It was there a moment ago; it is packed as it is now, empty.
            Err(errno) if is_gone(errno) => {
                self.all_missing(directory)?;
                return Ok(frame);
            }
            Err(errno) => return Err(unreadable(errno)),
        };
        if let Some(identity) = self.above.last_mut() {
            let stat = rustix::fs::fstat(&dir).map_err(unreadable)?;
            *identity = (stat.st_dev, stat.st_ino);
        }
        let options = self.options;
        match &options.listed {
            Some(listed) if !self.plan.items[directory as usize].whole => {
                self.pick(listed, &dir, &mut frame)?;
            }
            _ => self.list(&dir, &mut frame)?,
        }
        let plan = &self.plan;
        let name = |step: &Step| plan.name(&plan.items[step.item as usize]);
        frame
            .steps
            .sort_unstable_by(|a, b| order((name(b), b.down), (name(a), a.down)));
        Ok(frame)
    }

    /// Takes every entry of a directory into the plan.
    fn list(&mut self, dir: &Arc<OwnedFd>, frame: &mut Frame) -> Result<()> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let listed = rustix::fs::openat(dir, ".", flags, Mode::empty()).map_err(unreadable)?;
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut listing = RawDir::new(&listed, &mut buffer);
        while let Some(entry) = listing.next() {
            let entry = entry.map_err(unreadable)?;
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            if let Found::Item(item, enter) =
                self.look(dir, name, frame.directory, entry.file_type())?
            {
                frame.add(item, enter);
            }
        }
        self.buffer = buffer;
        Ok(())
    }

    /// Takes the entries of a directory into the plan that the list names or leads through.
    fn pick(&mut self, listed: &Listed, dir: &Arc<OwnedFd>, frame: &mut Frame) -> Result<()> {
        let directory = self.path.clone();
        for group in listed.groups(&directory) {
            let found = self.look(dir, group.entry, frame.directory, FileType::Unknown)?;
            let (item, enter) = match found {
                Found::Item(item, enter) => (item, enter),
                Found::Left => continue,
                Found::Gone => {
                    self.missing(group.first)?;
                    continue;
                }
            };
            let found = &mut self.plan.items[item as usize];
            found.whole = group.exact && listed.recursive;
            if !group.exact {
                found.kept = false;
                found.vanishes = true;
            }
            match group.below {
                // No directory, or one that is not entered.
                Some(below) if !enter => {
                    self.missing(below)?;
                    if group.exact {
                        frame.add(item, false);
                    }
                }
                below => frame.add(item, enter && (below.is_some() || listed.recursive)),
            }
        }
        Ok(())
    }

    fn all_missing(&self, directory: u32) -> Result<()> {
        match &self.options.listed {
            Some(listed) if !self.plan.items[directory as usize].whole => {
                let mut groups = listed.groups(&self.path);
                groups.try_for_each(|group| self.missing(group.first))
            }
            _ => Ok(()),
        }
    }

    fn missing(&self, name: &[u8]) -> Result<()> {
        match &self.options.listed {
            Some(listed) if !listed.skip_missing => Err(Kind::NotFound.told(format!(
                "nothing below {} has the name {}",
                self.told.display(),
                String::from_utf8_lossy(name)
            ))),
            _ => Ok(()),
        }
    }

    /// Gives an item its place in the archive.
    fn take(&mut self, index: u32) -> Result<()> {
        let strip = self.options.strip;
        self.plan.path(index, &mut self.path);
        if is_too_long(&self.path) {
            return Err(self.too_large("has a path of more than 4096 bytes".to_owned()));
        }
        let depth = match strip {
            0 => usize::MAX,
            _ => self.plan.depth(index),
        };
        let mut item = self.plan.items[index as usize];
        item.vanishes |= depth <= strip;
        item.alive = item.kept && !item.vanishes;
        if item.vanishes && item.kind != Type::Directory {
            return Ok(());
        }
        if item.kind == Type::File {
            self.settle(index, &mut item, depth)?;
        }
        self.plan.items[index as usize] = item;
        if !item.vanishes {
            self.plan.order.push(index);
        }
        if item.alive {
            self.plan.length += self.measure(index);
            self.revive(item.parent);
        }
        Ok(())
    }

    /// Makes a file another name of one that came before, or counts its bytes.
    fn settle(&mut self, index: u32, item: &mut Item, depth: usize) -> Result<()> {
        if let More::Linked(at) = item.more {
            let Linked {
                device,
                inode,
                more,
            } = self.linked[at as usize];
            // Where names lose their front two files may get one name, so links stay inside what is unambiguous.
            let mut top = 0;
            if self.options.strip > 0 {
                top = index;
                for _ in self.options.strip..depth {
                    top = self.plan.items[top as usize].parent;
                }
            }
            let twin = *self.twins.entry((device, inode, top)).or_insert(index);
            if twin != index {
                item.kind = Type::HardLink;
                item.more = More::Twin(twin);
                item.records = Span::default();
                item.size = 0;
                return Ok(());
            }
            item.more = more;
        }
        self.bytes = self.bytes.saturating_add(item.size);
        let limit = self.options.limits.bytes;
        if self.bytes > limit {
            return Err(self.too_large(format!("exceeds {limit} bytes")));
        }
        Ok(())
    }

    /// Makes the directories above a member members too.
    fn revive(&mut self, mut index: u32) {
        while !self.plan.items[index as usize].alive {
            let item = &mut self.plan.items[index as usize];
            item.alive = true;
            let parent = item.parent;
            if !item.vanishes {
                self.plan.length += self.measure(index);
            }
            index = parent;
        }
    }

    /// Forgets a directory that has led to nothing.
    fn leave(&mut self, frame: &Frame) {
        self.above.pop();
        if !self.plan.items[frame.directory as usize].alive {
            self.plan.forget(frame.directory, frame.mark);
            self.linked.truncate(frame.linked);
            self.records = frame.records;
        }
    }

    fn measure(&mut self, index: u32) -> u64 {
        self.plan.measure(index, &mut self.path, &mut self.link)
    }

    fn too_large(&self, what: String) -> Error {
        Kind::TooLarge.told(format!("tree under {} {what}", self.told.display()))
    }
}

impl Frame {
    fn add(&mut self, item: u32, enter: bool) {
        self.steps.push(Step { item, down: false });
        if enter {
            self.steps.push(Step { item, down: true });
        }
    }
}

/// Orders steps so that full names come in byte order: what is in `a` comes where `a/` would, after `a-b`.
pub(super) fn order((a, a_down): (&[u8], bool), (b, b_down): (&[u8], bool)) -> Ordering {
    let shared = a.len().min(b.len());
    let next = |name: &[u8], down: bool| name.get(shared).copied().or(down.then_some(b'/'));
    a[..shared]
        .cmp(&b[..shared])
        .then_with(|| next(a, a_down).cmp(&next(b, b_down)))
}

/// Bytes of directory entries read at once.
const LISTING: usize = 64 * 1024;
