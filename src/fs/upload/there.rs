//! A file that is written where it is: by request, or because its name cannot be given to another.

use super::super::lent::Lent;
use super::super::make::Made;
use super::beside::{self, Shared, Temporary};
use super::turnstile::Turn;
use super::*;

/// The target itself.
pub(super) struct There {
    file: Lent,
    /// Set when we made it: it goes again when the body fails.
    made: Option<Temporary>,
    /// What is to be synced beside the file.
    unsynced: Vec<File>,
    above: Made,
}

impl Drop for There {
    fn drop(&mut self) {
        beside::undo(self.made.take(), std::mem::take(&mut self.above));
    }
}

impl There {
    /// Opens and empties the file that is there, or makes it; the directories `above` were made for it.
    pub(super) fn open(
        mut target: Target,
        upload: &Upload,
        unsynced: Vec<File>,
        above: Made,
    ) -> Result<Self> {
        let turn = Turn::at(target.home, &target.leaf);
        if target.there.is_none() {
            match make(&target, upload) {
                Err(Errno::EXIST) => target.look_again().map_err(unwritten)?,
                made => {
                    // Whoever removes it again takes a turn for that.
                    drop(turn);
                    let file = made.map_err(unwritten)?;
                    return Self::fresh(file, target, upload, unsynced, above);
                }
            }
        }
        let file = open_there(&target)?;
        let stat = rustix::fs::fstat(&file).map_err(unwritten)?;
        upload.admit(Found::of(Some(&stat)))?;
        set_before(&file, upload)?;
        file.set_len(0).map_err(unmade)?;
        Ok(Self {
            file: Lent::to_write(file),
            made: None,
            // The name was there before.
            unsynced: Vec::new(),
            above,
        })
    }

    fn fresh(
        file: File,
        target: Target,
        upload: &Upload,
        unsynced: Vec<File>,
        above: Made,
    ) -> Result<Self> {
        let ours = rustix::fs::fstat(&file).map_err(unwritten)?;
        let there = Self {
            file: Lent::scrap(file),
            made: Some(Temporary {
                dir: target.dir,
                leaf: target.leaf,
                keep: false,
                shared: Some(Shared {
                    home: target.home,
                    file: (ours.st_dev, ours.st_ino),
                }),
            }),
            unsynced,
            above,
        };
        if upload.owner.is_given() {
            attributes::give(&there.file, upload.owner)?;
        }
        Ok(there)
    }
}

impl Draft for There {
    fn file(&self) -> &File {
        &self.file
    }

    fn dress(&mut self, upload: &Upload) -> Result<()> {
        set_after(&self.file, upload)
    }

    fn publish(mut self: Box<Self>, _upload: &Upload) -> Result<Published> {
        if let Some(made) = &mut self.made {
            made.keep = true;
        }
        self.above.keep();
        self.file.keep();
        Ok(Published {
            version: version(&self.file)?,
            unsynced: std::mem::take(&mut self.unsynced),
        })
    }
}

fn make(target: &Target, upload: &Upload) -> std::result::Result<File, Errno> {
    let first = Mode::from_raw_mode(upload.mode.unwrap_or(0o666));
    let flags = WRITING | OFlags::CREATE | OFlags::EXCL;
    rustix::fs::openat(&target.dir, target.leaf.as_slice(), flags, first).map(File::from)
}

/// Sets what is asked for while the file has its old content, so that what may not be set costs nothing; of its mode
/// it is given no right that it has not.
pub(super) fn set_before(file: &File, upload: &Upload) -> Result<()> {
    if upload.owner.is_given() {
        attributes::give(file, upload.owner)?;
    }
    if let Some(mode) = upload.mode {
        let stat = rustix::fs::fstat(file).map_err(unwritten)?;
        attributes::set_mode(file, stat.st_mode & mode & 0o7777)?;
    }
    match upload.mtime {
        Some(mtime) => attributes::set_mtime(file, mtime),
        None => Ok(()),
    }
}

/// Sets what the new content is to have.
pub(super) fn set_after(file: &File, upload: &Upload) -> Result<()> {
    if let Some(mode) = upload.mode {
        attributes::set_mode(file, mode)?;
    }
    match upload.mtime {
        Some(mtime) => attributes::set_mtime(file, mtime),
        None => Ok(()),
    }
}
