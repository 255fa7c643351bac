//! The members of an archive that is spooled, as few bytes each: all that the check before an extraction needs.

use super::member::{Action, Entry, Name, Place};
use crate::error::{Kind, Result};

/// Names and kinds of members, in order.
pub(super) struct Journal {
    /// For each member a tag, its name, and for a file its size, for a hard link its target; names with their length
    /// before them.
    bytes: Vec<u8>,
    strip: usize,
}

/// What a name is to become.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Wish {
    File {
        /// Bytes of it that are stored.
        stored: u64,
        /// True when they are on the target filesystem already.
        landed: bool,
    },
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

    /// Takes down a member; `landed` is true when its data is not in the spool.
    ///
    /// # Errors
    /// `TooLarge` when all names together are too long.
    pub(super) fn note(&mut self, entry: &Entry, landed: bool) -> Result<()> {
        let tag = match &entry.action {
            Action::Nothing => return Ok(()),
            Action::File(_) if landed => LANDED,
            Action::File(_) => FILE,
            Action::Directory => DIRECTORY,
            Action::Symlink(_) => SYMLINK,
            Action::HardLink(_) => HARD_LINK,
        };
        self.bytes.push(tag);
        self.put(entry.place.told());
        match &entry.action {
            Action::File(content) => self.bytes.extend_from_slice(&content.stored.to_le_bytes()),
            Action::HardLink(target) => self.put(target.bytes()),
            _ => {}
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
                FILE | LANDED => {
                    let (stored, after) = rest.split_first_chunk::<8>()?;
                    rest = after;
                    Wish::File {
                        stored: u64::from_le_bytes(*stored),
                        landed: *tag == LANDED,
                    }
                }
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
const LANDED: u8 = 4;
