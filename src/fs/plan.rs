//! What will be packed, every size known: members as the walk found them, and the order in which they are packed.

use super::member::PATH_BYTES;
use crate::error::{Error, Kind, Result};
use crate::wire::tar::{Segment, Type, padded, write};

/// A member to be; names, targets, records and runs lie in the [`Plan`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Item {
    /// The directory that holds it; the root is 0 and holds itself.
    pub(super) parent: u32,
    pub(super) name: Span,
    pub(super) kind: Type,
    pub(super) mode: u16,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) mtime: i64,
    /// Nanoseconds of its time, as far as they are told.
    pub(super) nanos: u32,
    /// Bytes of a file; the number of a device.
    pub(super) size: u64,
    pub(super) more: More,
    /// Its pax records.
    pub(super) records: Span,
    /// True when what is cached of it answers at once; false where a server may be asked.
    pub(super) local: bool,
    /// True when it lies at the end of a symbolic link with this name.
    pub(super) followed: bool,
    /// True when it is chosen for itself, not for what it leads to.
    pub(super) chosen: bool,
    /// True when it is a member for itself: chosen, and new enough.
    pub(super) kept: bool,
    /// True when it is no member, though it may lead to some.
    pub(super) vanishes: bool,
    /// True once it, or something below it, is a member.
    pub(super) alive: bool,
    /// True when all below it is packed, whatever the list of names says.
    pub(super) whole: bool,
}

/// A stretch of the arena of texts, or of the list of runs.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Span {
    at: u32,
    length: u32,
}

/// What else a member has.
#[derive(Clone, Copy, Debug)]
pub(super) enum More {
    Nothing,
    /// The target of a symbolic link.
    Target(Span),
    /// The member that a hard link is another name of.
    Twin(u32),
    /// The runs of a sparse file.
    Runs(Span),
    /// A file with several names, until it is known which of them comes first.
    Linked(u32),
}

/// All that will be packed.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) items: Vec<Item>,
    /// The members in the order of the archive; those that are not alive are left out.
    pub(super) order: Vec<u32>,
    arena: Vec<u8>,
    runs: Vec<Segment>,
    /// Components that names lose at their front.
    strip: usize,
    /// Bytes of the whole archive.
    pub(super) length: u64,
}

/// How far the parts of a plan reached at some time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Mark {
    items: usize,
    order: usize,
    arena: usize,
    runs: usize,
}

impl Plan {
    pub(super) fn new(strip: usize) -> Self {
        Self {
            strip,
            ..Self::default()
        }
    }

    pub(super) fn name(&self, item: &Item) -> &[u8] {
        cut(&self.arena, item.name)
    }

    pub(super) fn runs(&self, item: &Item) -> Option<&[Segment]> {
        match item.more {
            More::Runs(span) => Some(cut(&self.runs, span)),
            _ => None,
        }
    }

    /// Puts the full name of an item on disk into `path`; that of the root is empty.
    pub(super) fn path(&self, index: u32, path: &mut Vec<u8>) {
        let above = |index: u32| {
            let next = |at: &u32| Some(self.items[*at as usize].parent);
            std::iter::successors(Some(index), next).take_while(|at| *at != 0)
        };
        let names = || above(index).map(|at| cut(&self.arena, self.items[at as usize].name));
        let length: usize = names().map(|name| name.len() + 1).sum();
        path.clear();
        path.resize(length.saturating_sub(1), b'/');
        let mut end = path.len();
        for name in names() {
            path[end - name.len()..end].copy_from_slice(name);
            end = (end - name.len()).saturating_sub(1);
        }
    }

    /// Components of the full name of an item.
    pub(super) fn depth(&self, index: u32) -> usize {
        let next = |at: &u32| Some(self.items[*at as usize].parent);
        std::iter::successors(Some(index), next)
            .take_while(|at| *at != 0)
            .count()
    }

    /// The head of a member; `path` and `link` are room for its names.
    pub(super) fn head<'a>(
        &'a self,
        index: u32,
        path: &'a mut Vec<u8>,
        link: &'a mut Vec<u8>,
    ) -> (write::Head<'a>, write::Extra<'a>) {
        let item = &self.items[index as usize];
        self.path(index, path);
        link.clear();
        let link = match item.more {
            More::Twin(twin) => {
                self.path(twin, link);
                stripped(link, self.strip)
            }
            More::Target(span) => cut(&self.arena, span),
            _ => &[],
        };
        let device = matches!(item.kind, Type::CharDevice | Type::BlockDevice);
        let head = write::Head {
            path: match index {
                0 => ROOT,
                _ => stripped(path, self.strip),
            },
            link,
            kind: item.kind,
            mode: item.mode.into(),
            uid: item.uid,
            gid: item.gid,
            mtime: item.mtime,
            size: if device { 0 } else { item.size },
            device: match device {
                true => (rustix::fs::major(item.size), rustix::fs::minor(item.size)),
                false => (0, 0),
            },
            runs: self.runs(item),
        };
        let extra = write::Extra {
            nanos: item.nanos,
            records: cut(&self.arena, item.records),
        };
        (head, extra)
    }

    /// Bytes that a member takes in the archive.
    pub(super) fn measure(&self, index: u32, path: &mut Vec<u8>, link: &mut Vec<u8>) -> u64 {
        let (head, extra) = self.head(index, path, link);
        let stored = match head.kind {
            Type::File => write::stored(head.size, head.runs),
            _ => 0,
        };
        head.length(&extra) + padded(stored)
    }

    pub(super) fn keep(&mut self, text: &[u8]) -> Result<Span> {
        let at = u32::try_from(self.arena.len()).map_err(|_| too_long())?;
        let length = u32::try_from(text.len()).map_err(|_| too_long())?;
        self.arena.extend_from_slice(text);
        Ok(Span { at, length })
    }

    pub(super) fn keep_runs(&mut self, runs: &[Segment]) -> Result<Span> {
        let at = u32::try_from(self.runs.len()).map_err(|_| too_long())?;
        let length = u32::try_from(runs.len()).map_err(|_| too_long())?;
        if self.runs.len() + runs.len() > MOST_RUNS {
            return Err(Kind::TooLarge.told("the sparse files of the tree have too many holes"));
        }
        self.runs.extend_from_slice(runs);
        Ok(Span { at, length })
    }

    pub(super) fn push(&mut self, item: Item) -> Result<u32> {
        let index = u32::try_from(self.items.len()).map_err(|_| too_long())?;
        self.items.push(item);
        Ok(index)
    }

    pub(super) fn mark(&self) -> Mark {
        Mark {
            items: self.items.len(),
            order: self.order.len(),
            arena: self.arena.len(),
            runs: self.runs.len(),
        }
    }

    /// Forgets all that was found since `mark`, and the directory's own place in the order, if it is the last then.
    pub(super) fn forget(&mut self, directory: u32, mark: Mark) {
        // Directories that were never entered were not forgotten one by one.
        self.order.truncate(mark.order);
        if self.order.last() == Some(&directory) {
            self.order.pop();
        }
        self.items.truncate(mark.items);
        self.arena.truncate(mark.arena);
        self.runs.truncate(mark.runs);
    }
}

/// A name without its first components; empty when it has no more.
fn stripped(mut path: &[u8], strip: usize) -> &[u8] {
    for _ in 0..strip {
        let slash = path.iter().position(|byte| *byte == b'/');
        path = slash.map_or(&[], |at| &path[at + 1..]);
    }
    path
}

fn cut<T>(all: &[T], span: Span) -> &[T] {
    let at = span.at as usize;
    &all[at..at + span.length as usize]
}

fn too_long() -> Error {
    Kind::TooLarge.told("the names of the tree are too long together")
}

/// A path that is too long to be used.
pub(super) fn is_too_long(path: &[u8]) -> bool {
    path.len() > PATH_BYTES
}

/// The name of the root.
const ROOT: &[u8] = b"./";
/// Runs of all sparse files together at most.
const MOST_RUNS: usize = 512 * 1024;
