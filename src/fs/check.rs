//! Whether an archive can be extracted, found out before anything is written: its members in order, played through on
//! a model of the tree that asks the disk for what was there before.

use std::collections::HashMap;

use rustix::fs::{AtFlags, FileType};
use rustix::io::Errno;

use super::confine::{Descent, Stop, Way};
use super::member::{Action, Entry, LINK_ON_THE_WAY, Name};
use crate::error::{Kind, Result};

/// What a name is at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Now {
    Absent,
    File,
    Directory,
    Symlink,
    Other,
}

struct Node {
    now: Now,
    /// True for a directory that was on the disk: what is not known of it must be looked up there.
    on_disk: bool,
    below: HashMap<Box<[u8]>, usize>,
}

/// The tree below a root.
pub(super) struct Model {
    nodes: Vec<Node>,
    disk: Option<Descent>,
    most: usize,
}

impl Model {
    /// A model of the tree below `disk`, `None` when the root does not exist; it may come to know `most` names.
    pub(super) fn new(disk: Option<Descent>, most: usize) -> Self {
        let root = Node {
            now: Now::Directory,
            on_disk: disk.is_some(),
            below: HashMap::new(),
        };
        Self {
            nodes: vec![root],
            disk,
            most,
        }
    }

    /// Plays one member through.
    ///
    /// # Errors
    /// Those that extracting it would meet.
    pub(super) fn play(&mut self, entry: &Entry) -> Result<()> {
        let name = &entry.name;
        let becomes = match &entry.action {
            Action::Nothing => return Ok(()),
            Action::Directory => Now::Directory,
            Action::File(_) => Now::File,
            Action::Symlink(_) => Now::Symlink,
            Action::HardLink(target) => self.target(entry, target)?,
        };
        let (dir, leaf) = name.split();
        let parent = self.directory(entry, dir, Way::Making)?;
        let node = self.child(parent, name.bytes(), leaf)?;
        let link = matches!(entry.action, Action::Symlink(_) | Action::HardLink(_));
        match (becomes, self.nodes[node].now) {
            (Now::Directory, Now::Directory) => return Ok(()),
            (_, Now::Absent) | (Now::File, Now::File) => {}
            (_, Now::File | Now::Symlink | Now::Other) if link => {}
            (_, Now::Symlink) => return Err(entry.obstructed(name.bytes().len(), LINK_ON_THE_WAY)),
            (_, Now::Directory) => {
                return Err(entry.impossible("a directory of that name is there"));
            }
            (_, _) => return Err(entry.impossible("something else of that name is there")),
        }
        self.nodes[node].now = becomes;
        Ok(())
    }

    /// What a hard link would become: its target must be there already, and be no directory.
    fn target(&mut self, entry: &Entry, target: &Name) -> Result<Now> {
        if *target == entry.name {
            return Err(entry.impossible("a hard link to itself"));
        }
        let (dir, leaf) = target.split();
        let parent = self.directory(entry, dir, Way::Looking)?;
        if target.bytes().is_empty() {
            return Err(entry.impossible("a hard link to a directory"));
        }
        let node = self.child(parent, target.bytes(), leaf)?;
        match self.nodes[node].now {
            Now::Absent => Err(entry.impossible("the target of the hard link is not there")),
            Now::Directory => Err(entry.impossible("a hard link to a directory")),
            now => Ok(now),
        }
    }

    fn directory(&mut self, entry: &Entry, dir: &[u8], way: Way) -> Result<usize> {
        let mut node = 0;
        let mut start = 0;
        while start < dir.len() {
            let length = dir[start..]
                .iter()
                .position(|byte| *byte == b'/')
                .unwrap_or(dir.len() - start);
            let end = start + length;
            node = self.child(node, &dir[..end], &dir[start..end])?;
            match self.nodes[node].now {
                Now::Directory => {}
                Now::Absent if way == Way::Making => self.nodes[node].now = Now::Directory,
                Now::Absent => {
                    return Err(entry.impossible("the target of the hard link is not there"));
                }
                Now::Symlink if way == Way::Making => {
                    return Err(entry.obstructed(end, LINK_ON_THE_WAY));
                }
                Now::Symlink => return Err(entry.obstructed(0, LINK_ON_THE_WAY)),
                Now::File | Now::Other => {
                    return Err(entry.impossible("a component of its name is no directory"));
                }
            }
            start = end + 1;
        }
        Ok(node)
    }

    /// The node of the component `leaf` of `parent`; `name` is the whole name up to it.
    fn child(&mut self, parent: usize, name: &[u8], leaf: &[u8]) -> Result<usize> {
        if let Some(node) = self.nodes[parent].below.get(leaf) {
            return Ok(*node);
        }
        if leaf.len() > 255 {
            return Err(
                Kind::Internal.told("tar operation failed: a name is longer than 255 bytes")
            );
        }
        if self.nodes.len() >= self.most {
            return Err(Kind::TooLarge.told("archive names too many directories"));
        }
        let now = match &mut self.disk {
            Some(disk) if self.nodes[parent].on_disk => look(disk, name, leaf)?,
            _ => Now::Absent,
        };
        let node = self.nodes.len();
        self.nodes.push(Node {
            now,
            on_disk: now == Now::Directory,
            below: HashMap::new(),
        });
        self.nodes[parent].below.insert(leaf.into(), node);
        Ok(node)
    }
}

fn look(disk: &mut Descent, name: &[u8], leaf: &[u8]) -> Result<Now> {
    let failed = |errno: Errno| Kind::Internal.told("tar operation failed").because(errno);
    let above = name.len() - leaf.len();
    let dir = disk.enter(&name[..above.saturating_sub(1)], Way::Looking);
    let dir = dir.map_err(|Stop { errno, .. }| failed(errno))?;
    match rustix::fs::statat(&dir, leaf, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Now::File,
            FileType::Directory => Now::Directory,
            FileType::Symlink => Now::Symlink,
            _ => Now::Other,
        }),
        Err(Errno::NOENT) => Ok(Now::Absent),
        Err(errno) => Err(failed(errno)),
    }
}
