//! Whether an archive can be extracted, found out before anything is written: its members in order, played through on
//! a model of the tree that asks the disk for what was there before.

use std::collections::HashMap;

use rustix::fs::{AtFlags, FileType, Stat};
use rustix::io::Errno;

use super::confine::{Descent, Stop, Way};
use super::journal::Wish;
use super::member::{LINK_ON_THE_WAY, Name, Place};
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

/// What is known of a name.
#[derive(Clone, Copy)]
struct Node {
    id: u32,
    now: Now,
    /// True for a directory that was on the disk: what is not known of it must be looked up there.
    on_disk: bool,
    /// True on the filesystem of the root.
    is_here: bool,
    /// Bytes that the content of a file takes.
    held: u64,
}

/// The tree below a root.
pub(super) struct Model {
    /// What is known, by the number of the directory and the name there.
    nodes: HashMap<Box<[u8]>, Node>,
    root: Node,
    /// A key under construction.
    key: Vec<u8>,
    disk: Option<Descent>,
    /// The filesystem of the root.
    device: Option<u64>,
    most: usize,
    /// Bytes that the filesystem of the root takes at a time.
    unit: u64,
    /// Bytes that the filesystem of the root has lost so far, and the most that it had lost at any time.
    lost: i64,
    most_lost: i64,
}

impl Model {
    /// A model of the tree below `disk`, `None` when the root does not exist; it may come to know `most` names, and
    /// files take space in blocks of `unit` bytes.
    pub(super) fn new(disk: Option<Descent>, most: usize, unit: u64) -> Self {
        Self {
            nodes: HashMap::new(),
            root: Node {
                id: 0,
                now: Now::Directory,
                on_disk: disk.is_some(),
                is_here: true,
                held: 0,
            },
            key: Vec::new(),
            device: disk.as_ref().and_then(Descent::device),
            disk,
            most,
            unit,
            lost: 0,
            most_lost: 0,
        }
    }

    /// Plays one member through.
    ///
    /// # Errors
    /// Those that extracting it would meet.
    pub(super) fn play(&mut self, place: &Place, wish: &Wish) -> Result<()> {
        let becomes = match wish {
            Wish::Directory => Now::Directory,
            Wish::File { .. } => Now::File,
            Wish::Symlink => Now::Symlink,
            Wish::HardLink(target) => self.target(place, target)?,
        };
        let (dir, leaf) = place.name.split();
        let parent = self.directory(place, dir, Way::Making)?;
        let node = self.child(parent, place.name.bytes(), leaf)?;
        let link = matches!(wish, Wish::Symlink | Wish::HardLink(_));
        match (becomes, node.now) {
            (Now::Directory, Now::Directory) => return Ok(()),
            (_, Now::Absent) | (Now::File, Now::File) => {}
            (_, Now::File | Now::Symlink | Now::Other) if link => {}
            (_, Now::Symlink) => {
                return Err(place.obstructed(place.name.bytes().len(), LINK_ON_THE_WAY));
            }
            (_, Now::Directory) => {
                return Err(place.impossible("a directory of that name is there"));
            }
            (_, _) => return Err(place.impossible("something else of that name is there")),
        }
        let held = match *wish {
            // In blocks, as what it replaces is counted.
            Wish::File { stored, .. } => {
                stored.checked_next_multiple_of(self.unit).unwrap_or(stored)
            }
            _ => 0,
        };
        if node.is_here {
            self.spend(wish, node, held);
        }
        self.set(parent, leaf, becomes, held);
        Ok(())
    }

    /// Bytes that the filesystem of the root must have free for all that was played, beyond those that have landed.
    pub(super) fn needs(&self) -> u64 {
        u64::try_from(self.most_lost).unwrap_or(0)
    }

    /// Counts the `held` bytes that a member takes, and what it gives back.
    fn spend(&mut self, wish: &Wish, node: Node, held: u64) {
        let bytes = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        self.lost = self.lost.saturating_sub(bytes(node.held));
        let Wish::File { landed, .. } = *wish else {
            return;
        };
        let stored = bytes(held);
        // What has landed and finds its name taken is copied, and goes when that is done.
        let taken = match (landed, node.now) {
            (false, _) => (stored, stored),
            (true, Now::File) => (stored, 0),
            (true, _) => (0, 0),
        };
        self.most_lost = self.most_lost.max(self.lost.saturating_add(taken.0));
        self.lost = self.lost.saturating_add(taken.1);
    }

    /// What a hard link would become: its target must be there already, and be no directory.
    fn target(&mut self, place: &Place, target: &Name) -> Result<Now> {
        if *target == place.name {
            return Err(place.impossible("a hard link to itself"));
        }
        let (dir, leaf) = target.split();
        let parent = self.directory(place, dir, Way::Looking)?;
        if target.bytes().is_empty() {
            return Err(place.impossible("a hard link to a directory"));
        }
        match self.child(parent, target.bytes(), leaf)?.now {
            Now::Absent => Err(place.impossible("the target of the hard link is not there")),
            Now::Directory => Err(place.impossible("a hard link to a directory")),
            now => Ok(now),
        }
    }

    fn directory(&mut self, place: &Place, dir: &[u8], way: Way) -> Result<Node> {
        let mut node = self.root;
        let mut start = 0;
        while start < dir.len() {
            let length = dir[start..]
                .iter()
                .position(|byte| *byte == b'/')
                .unwrap_or(dir.len() - start);
            let end = start + length;
            let parent = node;
            node = self.child(parent, &dir[..end], &dir[start..end])?;
            match node.now {
                Now::Directory => {}
                Now::Absent if way == Way::Making => {
                    self.set(parent, &dir[start..end], Now::Directory, 0);
                }
                Now::Absent => {
                    return Err(place.impossible("the target of the hard link is not there"));
                }
                Now::Symlink if way == Way::Making => {
                    return Err(place.obstructed(end, LINK_ON_THE_WAY));
                }
                Now::Symlink => return Err(place.obstructed(0, LINK_ON_THE_WAY)),
                Now::File | Now::Other => {
                    return Err(place.impossible("a component of its name is no directory"));
                }
            }
            start = end + 1;
        }
        Ok(node)
    }

    /// The node of the component `leaf` of `parent`; `name` is the whole name up to it.
    fn child(&mut self, parent: Node, name: &[u8], leaf: &[u8]) -> Result<Node> {
        self.name(parent, leaf);
        if let Some(node) = self.nodes.get(self.key.as_slice()) {
            return Ok(*node);
        }
        if leaf.len() > 255 {
            return Err(
                Kind::Internal.told("tar operation failed: a name is longer than 255 bytes")
            );
        }
        let too_many = || Kind::TooLarge.told("archive names too many directories");
        if self.nodes.len() >= self.most {
            return Err(too_many());
        }
        let mut node = Node {
            id: u32::try_from(self.nodes.len() + 1).map_err(|_| too_many())?,
            now: Now::Absent,
            on_disk: false,
            is_here: parent.is_here,
            held: 0,
        };
        if let Some(disk) = &mut self.disk
            && parent.on_disk
            && let Some(stat) = look(disk, name, leaf)?
        {
            node.now = Now::of(&stat);
            node.on_disk = node.now == Now::Directory;
            node.is_here = self.device == Some(stat.st_dev);
            if node.now == Now::File {
                node.held = u64::try_from(stat.st_blocks).unwrap_or(0) * 512;
            }
        }
        self.nodes.insert(self.key.as_slice().into(), node);
        Ok(node)
    }

    /// Says what a name is from now on; [`Model::child`] has found it before.
    fn set(&mut self, parent: Node, leaf: &[u8], now: Now, held: u64) {
        self.name(parent, leaf);
        if let Some(node) = self.nodes.get_mut(self.key.as_slice()) {
            node.now = now;
            node.held = held;
        }
    }

    fn name(&mut self, parent: Node, leaf: &[u8]) {
        self.key.clear();
        self.key.extend_from_slice(&parent.id.to_le_bytes());
        self.key.extend_from_slice(leaf);
    }
}

impl Now {
    fn of(stat: &Stat) -> Self {
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Self::File,
            FileType::Directory => Self::Directory,
            FileType::Symlink => Self::Symlink,
            _ => Self::Other,
        }
    }
}

fn look(disk: &mut Descent, name: &[u8], leaf: &[u8]) -> Result<Option<Stat>> {
    let failed = |errno: Errno| Kind::Internal.told("tar operation failed").because(errno);
    let above = name.len() - leaf.len();
    let dir = disk.enter(&name[..above.saturating_sub(1)], Way::Looking);
    let dir = dir.map_err(|Stop { errno, .. }| failed(errno))?;
    match rustix::fs::statat(&dir, leaf, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(failed(errno)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::Dir;
    use super::*;

    #[test]
    fn small_files_that_are_replaced_give_no_room_to_others() {
        let dir = Dir::new();
        let file = Wish::File {
            stored: 1,
            landed: false,
        };
        let place = |name: &str| Place::again(name.as_bytes(), 0).expect("it is a name");
        let disk = Descent::open(dir.path()).expect("it is there");
        let unit = super::super::space::unit(dir.path());
        let mut model = Model::new(Some(disk), 1000, unit);
        for number in 0..100 {
            let name = format!("f{number}");
            std::fs::write(dir.path().join(&name), "x").expect("it is fresh");
            model.play(&place(&name), &file).expect("it can be written");
        }
        let big = Wish::File {
            stored: 100 * unit,
            landed: false,
        };
        model.play(&place("big"), &big).expect("it can be written");
        assert!(model.needs() >= 100 * unit, "{}", model.needs());
    }
}
