//! The members of an archive that is spooled, as few bytes each: all that the check before an extraction needs.

use super::member::{Action, Entry, Name, Place};
use crate::error::{Kind, Result};

/// Names and kinds of members, in order.
pub(super) struct Journal {
    /// For each member a tag, its name, and for a hard link its target; names with their length before them.
    bytes: Vec<u8>,
    strip: usize,
}

/// What a name is to become.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Wish {
    File,
    Directory,
    Symlink,
    HardLink(Name),
}

impl Journal {
    /// A journal of members whose names lose `strip` components.
    pub(super) fn new(strip: usize) -> Self {
        Self {
            bytes: Vec::new(),
            strip,
        }
    }

    /// Takes down a member.
    ///
    /// # Errors
    /// `TooLarge` when all names together are too long.
    pub(super) fn note(&mut self, entry: &Entry) -> Result<()> {
        let (tag, target) = match &entry.action {
            Action::Nothing => return Ok(()),
            Action::File(_) => (FILE, None),
            Action::Directory => (DIRECTORY, None),
            Action::Symlink(_) => (SYMLINK, None),
            Action::HardLink(target) => (HARD_LINK, Some(target)),
        };
        self.bytes.push(tag);
        self.put(entry.place.told());
        if let Some(target) = target {
            self.put(target.bytes());
        }
        if self.bytes.len() > MOST_BYTES {
            return Err(Kind::TooLarge.told("archive has names that are too long together"));
        }
        Ok(())
    }

    /// The members again.
    pub(super) fn members(&self) -> impl Iterator<Item = (Place, Wish)> + '_ {
        let mut rest = self.bytes.as_slice();
        std::iter::from_fn(move || {
            let (tag, after) = rest.split_first()?;
            rest = after;
            let place = Place::again(take(&mut rest)?, self.strip)?;
            let wish = match *tag {
                FILE => Wish::File,
                DIRECTORY => Wish::Directory,
                SYMLINK => Wish::Symlink,
                _ => Wish::HardLink(Name::again(take(&mut rest)?, 0)?),
            };
            Some((place, wish))
        })
    }

    fn put(&mut self, text: &[u8]) {
        let length = u16::try_from(text.len()).expect("a judged name has at most 4096 bytes");
        self.bytes.extend_from_slice(&length.to_le_bytes());
        self.bytes.extend_from_slice(text);
    }
}

fn take<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, after) = rest.split_first_chunk::<2>()?;
    let (text, after) = after.split_at_checked(usize::from(u16::from_le_bytes(*length)))?;
    *rest = after;
    Some(text)
}

/// Bytes of names and targets that are kept while an archive is spooled.
const MOST_BYTES: usize = 128 * 1024 * 1024;

const FILE: u8 = 0;
const DIRECTORY: u8 = 1;
const SYMLINK: u8 = 2;
const HARD_LINK: u8 = 3;
