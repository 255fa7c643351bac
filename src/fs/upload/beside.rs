//! A file beside its target that takes the name when it is whole.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use rustix::fs::{AtFlags, CWD, RenameFlags};

use super::super::lent::{self, Lent};
use super::super::make::Made;
use super::super::spool;
use super::super::target::temporary_name;
use super::turnstile::Turn;
use super::*;

/// A file that is to replace the target.
pub(super) struct Beside {
    pub(super) target: Target,
    pub(super) file: Lent,
    /// The name of the file until it is renamed, where the filesystem has no files without one.
    name: Option<Temporary>,
    /// True when it is in the spool directory: the target can be written, but not replaced.
    pub(super) aside: bool,
    /// What is to be synced when it has the name.
    pub(super) unsynced: Vec<File>,
    /// Directories that were made for it.
    pub(super) above: Made,
    is_dressed: bool,
}

impl Drop for Beside {
    fn drop(&mut self) {
        undo(self.name.take(), std::mem::take(&mut self.above));
    }
}

/// Removes what is not kept: the name, then the directories above it.
pub(super) fn undo(name: Option<Temporary>, above: Made) {
    if name.is_some() || !above.is_empty() {
        lent::let_go(move || {
            drop(name);
            drop(above);
        });
    }
}

/// A name that is removed unless it is kept.
pub(super) struct Temporary {
    pub(super) dir: Arc<OwnedFd>,
    pub(super) leaf: Vec<u8>,
    pub(super) keep: bool,
    /// Set for a name that others use too: it is removed only while it is that of our file.
    pub(super) shared: Option<Shared>,
}

/// What tells our file from others of its name.
#[derive(Clone, Copy)]
pub(super) struct Shared {
    /// Device and inode number of the directory.
    pub(super) home: (u64, u64),
    /// Those of the file.
    pub(super) file: (u64, u64),
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.keep {
            let (dir, leaf) = (Arc::clone(&self.dir), std::mem::take(&mut self.leaf));
            let shared = self.shared;
            lent::let_go(move || {
                let leaf = leaf.as_slice();
                let _turn = shared.map(|shared| Turn::at(shared.home, leaf));
                if shared.is_none_or(|shared| shared.has(&dir, leaf)) {
                    let _ = rustix::fs::unlinkat(&dir, leaf, AtFlags::empty());
                }
            });
        }
    }
}

impl Temporary {
    /// Gives its file the free name `leaf` where the kernel cannot do it in one call.
    fn move_slowly(&mut self, dir: &OwnedFd, leaf: &[u8]) -> std::result::Result<(), Errno> {
        let old = self.leaf.as_slice();
        match rustix::fs::linkat(&self.dir, old, dir, leaf, AtFlags::empty()) {
            // Nothing is left that the filesystem could do; nobody else here has the turn.
            Err(Errno::PERM | Errno::NOSYS | Errno::NOTSUP) => {
                rustix::fs::renameat(&self.dir, old, dir, leaf)?;
                self.keep = true;
            }
            linked => {
                linked?;
                // Now, because it changes the version that is about to be told.
                self.keep = rustix::fs::unlinkat(&self.dir, old, AtFlags::empty()).is_ok();
            }
        }
        Ok(())
    }
}

impl Shared {
    /// True while our file has the name.
    fn has(self, dir: &OwnedFd, leaf: &[u8]) -> bool {
        let there = rustix::fs::statat(dir, leaf, AtFlags::SYMLINK_NOFOLLOW);
        there.is_ok_and(|there| (there.st_dev, there.st_ino) == self.file)
    }
}

/// How a file came to its name, or did not.
enum Outcome {
    Named,
    /// The directory is no longer there.
    Gone,
    /// The name cannot be given to another file, but the file that has it can be written.
    Stuck,
}

impl Beside {
    /// Makes the file; the directories `above` were made for it.
    pub(super) fn open(
        target: Target,
        upload: &Upload,
        unsynced: Vec<File>,
        above: Made,
    ) -> Result<Self> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let wanted = upload.mode.or(target.there.map(|stat| stat.st_mode));
        // Without a name nobody can open it, so it may have its mode at once; the umask is seen to later.
        let first = Mode::from_raw_mode(wanted.unwrap_or(0o666) & 0o777);
        let (file, name) =
            match rustix::fs::openat(&target.dir, ".", flags | OFlags::TMPFILE, first) {
                Ok(file) => (file, None),
                Err(Errno::ACCESS | Errno::PERM | Errno::ROFS) if target.there.is_some() => {
                    return Self::aside(target, upload, above);
                }
                Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOENT) => {
                    // What will be narrowed later must not be wide before.
                    let first = if wanted.is_some() { 0o600 } else { 0o666 };
                    named(&target, Mode::from_raw_mode(first))?
                }
                Err(errno) => return Err(unwritten(errno)),
            };
        let beside = Self {
            target,
            file: Lent::scrap(file.into()),
            name,
            aside: false,
            unsynced,
            above,
            is_dressed: false,
        };
        // An owner that may not be set is refused before the body is taken.
        if upload.owner.is_given() {
            attributes::give(&beside.file, upload.owner)?;
        }
        Ok(beside)
    }

    /// A file in the spool directory, for a target that we may write in a directory that we may not.
    fn aside(target: Target, upload: &Upload, above: Made) -> Result<Self> {
        // What cannot be written is refused before its body is there.
        drop(open_there(&target)?);
        space::check(&upload.spool_dir, upload.reserve)?;
        let file = spool::unnamed(&upload.spool_dir).map_err(unmade)?;
        Ok(Self {
            target,
            file,
            name: None,
            aside: true,
            unsynced: Vec::new(),
            above,
            is_dressed: false,
        })
    }

    /// Gives the file its mode, its owner and its time.
    fn dress(&mut self, upload: &Upload) -> Result<()> {
        if self.aside || std::mem::replace(&mut self.is_dressed, true) {
            return Ok(());
        }
        let there = self.target.there.as_ref();
        attributes::dress(&self.file, there, upload.mode, upload.owner)?;
        match upload.mtime {
            Some(mtime) => attributes::set_mtime(&self.file, mtime),
            None => Ok(()),
        }
    }

    /// Gives the file what it has not yet, and the name of the target; for helper threads.
    pub(super) fn publish(mut self, upload: &Upload) -> Result<Published> {
        self.dress(upload)?;
        let mut outcome = match self.aside {
            true => Outcome::Stuck,
            false => self.take_name(upload)?,
        };
        for _ in 0..MOST_LOOKS {
            if !matches!(outcome, Outcome::Gone) {
                break;
            }
            self.find_again(upload)?;
            outcome = self.take_name(upload)?;
        }
        let published = match outcome {
            Outcome::Named => Published {
                version: version(&self.file)?,
                unsynced: std::mem::take(&mut self.unsynced),
            },
            Outcome::Gone => return Err(unwritten(Errno::NOENT)),
            Outcome::Stuck => self.pour(upload)?,
        };
        self.above.keep();
        Ok(published)
    }

    /// Makes the directory again: whoever made it before us gave up, and took it away while it was empty.
    fn find_again(&mut self, upload: &Upload) -> Result<()> {
        let there = self.target.there;
        self.target = place::find_making(&upload.path, &mut self.above)?;
        self.target.there = self.target.there.or(there);
        if upload.sync {
            self.unsynced = place::directories(&self.target, &self.above)?;
        }
        Ok(())
    }

    /// Takes the name, once the condition holds of what has it.
    fn take_name(&mut self, upload: &Upload) -> Result<Outcome> {
        let _turn = Turn::at(self.target.home, &self.target.leaf);
        for _ in 0..MOST_LOOKS {
            if upload.is_conditional() {
                self.target.look_again().map_err(unwritten)?;
                upload.admit(Found::of(self.target.there.as_ref()))?;
            }
            let named = match (&self.target.there, upload.is_conditional()) {
                (None, true) => self.take_free_name(),
                _ => self.take_any_name(),
            };
            return match named {
                Ok(()) => {
                    self.file.keep();
                    Ok(Outcome::Named)
                }
                // Somebody else was faster: what is there now is judged.
                Err(Errno::EXIST) if upload.is_conditional() => continue,
                Err(Errno::NOENT) => Ok(Outcome::Gone),
                // A mount point cannot be replaced, and in a sticky directory not a file of somebody else.
                Err(Errno::BUSY | Errno::XDEV | Errno::PERM | Errno::ACCESS)
                    if self.target.there.is_some() =>
                {
                    Ok(Outcome::Stuck)
                }
                Err(errno) => Err(unwritten(errno)),
            };
        }
        Err(unwritten(Errno::EXIST))
    }

    /// Takes the name only if nothing has it.
    fn take_free_name(&mut self) -> std::result::Result<(), Errno> {
        let Target { dir, leaf, .. } = &self.target;
        let leaf = leaf.as_slice();
        let Some(name) = &mut self.name else {
            return link(&self.file, dir, leaf);
        };
        let old = name.leaf.as_slice();
        match rustix::fs::renameat_with(&name.dir, old, dir, leaf, RenameFlags::NOREPLACE) {
            Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {}
            renamed => {
                name.keep = renamed.is_ok();
                return renamed;
            }
        }
        name.move_slowly(dir, leaf)
    }

    /// Takes the name from whatever has it.
    fn take_any_name(&mut self) -> std::result::Result<(), Errno> {
        let Target {
            dir, leaf, there, ..
        } = &self.target;
        let leaf = leaf.as_slice();
        if self.name.is_none() && there.is_none() {
            match link(&self.file, dir, leaf) {
                Err(Errno::EXIST) => {}
                linked => return linked,
            }
        }
        let mut name = match self.name.take() {
            Some(name) => name,
            None => {
                let name = Temporary {
                    dir: Arc::clone(dir),
                    leaf: temporary_name().into_vec(),
                    keep: true,
                    shared: None,
                };
                link(&self.file, dir, &name.leaf)?;
                name
            }
        };
        let renamed = rustix::fs::renameat(&name.dir, name.leaf.as_slice(), dir, leaf);
        name.keep = renamed.is_ok();
        renamed
    }

    /// Copies what has arrived into the file that is there, which loses its content only when there is room.
    fn pour(&self, upload: &Upload) -> Result<Published> {
        let mut target = open_there(&self.target)?;
        let arrived = self.file.metadata().map_err(unmade)?;
        let needed = match upload.sparse {
            true => arrived.blocks() * 512,
            false => arrived.len(),
        };
        let held = target.metadata().map_err(unmade)?.blocks() * 512;
        let more = needed.saturating_sub(held);
        space::check_file(&target, &upload.path, upload.reserve.saturating_add(more))?;
        // Until the end: of two who pour into one file the bytes of one are there.
        let _turn = Turn::at(self.target.home, &self.target.leaf);
        if upload.is_conditional() {
            let stat = rustix::fs::fstat(&target).map_err(unwritten)?;
            upload.admit(Found::of(Some(&stat)))?;
        }
        there::set_before(&target, upload)?;
        target.set_len(0).map_err(unmade)?;
        let mut file: &File = &self.file;
        match upload.sparse {
            true => sparse::copy(file, &target, arrived.len()).map_err(unmade)?,
            false => {
                io::Seek::rewind(&mut file).map_err(unmade)?;
                io::copy(&mut file, &mut target).map_err(unmade)?;
            }
        }
        there::set_after(&target, upload)?;
        Ok(Published {
            version: version(&target)?,
            unsynced: upload.sync.then_some(target).into_iter().collect(),
        })
    }
}

impl Draft for Beside {
    fn file(&self) -> &File {
        &self.file
    }

    fn is_aside(&self) -> bool {
        self.aside
    }

    fn refresh(&mut self) -> Result<()> {
        self.target.look_again().map_err(unwritten)
    }

    fn dress(&mut self, upload: &Upload) -> Result<()> {
        Self::dress(self, upload)
    }

    fn publish(self: Box<Self>, upload: &Upload) -> Result<Published> {
        Self::publish(*self, upload)
    }
}

/// A file beside the target with a name of its own.
fn named(target: &Target, mode: Mode) -> Result<(OwnedFd, Option<Temporary>)> {
    let leaf = temporary_name().into_vec();
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
    let file = rustix::fs::openat(&target.dir, leaf.as_slice(), flags, mode);
    let name = Temporary {
        dir: Arc::clone(&target.dir),
        leaf,
        keep: file.is_err(),
        shared: None,
    };
    Ok((file.map_err(unwritten)?, Some(name)))
}

/// Gives an open file a name; the short way is for those with the right to, the other needs /proc.
pub(in crate::fs) fn link(
    file: &File,
    dir: &OwnedFd,
    leaf: &[u8],
) -> std::result::Result<(), Errno> {
    match rustix::fs::linkat(file, "", dir, leaf, AtFlags::EMPTY_PATH) {
        Err(Errno::NOENT | Errno::PERM) => {}
        outcome => return outcome,
    }
    let number = std::os::fd::AsRawFd::as_raw_fd(file);
    rustix::fs::linkat(
        CWD,
        format!("/proc/self/fd/{number}"),
        dir,
        leaf,
        AtFlags::SYMLINK_FOLLOW,
    )
}

/// How often a name is looked at that appears and vanishes meanwhile.
const MOST_LOOKS: usize = 16;

#[cfg(test)]
mod tests {
    use super::super::super::testing::{Dir, listing};
    use super::*;

    /// A file as it is where the filesystem has none without a name.
    fn draft(dir: &Dir, upload: &Upload) -> Beside {
        let target = Target::find(&dir.path().join("f")).expect("the directory is there");
        let (file, name) = named(&target, Mode::from_raw_mode(0o600)).expect("it can be made");
        rustix::io::write(&file, b"new").expect("there is room");
        assert!(upload.path.starts_with(dir.path()));
        Beside {
            target,
            file: Lent::scrap(file.into()),
            name,
            aside: false,
            unsynced: Vec::new(),
            above: Made::default(),
            is_dressed: false,
        }
    }

    fn asked(dir: &Dir, condition: Condition) -> Upload {
        Upload {
            mode: Some(0o640),
            condition,
            ..super::super::tests::upload(dir.path().join("f"))
        }
    }

    #[test]
    fn a_file_with_a_name_of_its_own_takes_the_other_name() {
        let dir = Dir::new();
        let upload = asked(&dir, Condition::default());
        for old in [None, Some("old")] {
            if let Some(old) = old {
                std::fs::write(&upload.path, old).expect("it is ours");
            }
            draft(&dir, &upload).publish(&upload).expect("it is named");
            assert_eq!(listing(dir.path()), ["f f 640 new n1"]);
        }
    }

    #[test]
    fn a_file_that_takes_a_name_slowly_has_one_name_when_its_version_is_told() {
        let dir = Dir::new();
        let upload = asked(&dir, Condition::default());
        let mut draft = draft(&dir, &upload);
        let name = draft.name.as_mut().expect("it has one");
        let taken = name.move_slowly(&draft.target.dir, b"f");
        assert_eq!(taken, Ok(()));
        assert_eq!(listing(dir.path()), ["f f 600 new n1"]);
    }

    #[test]
    fn a_file_with_a_name_of_its_own_is_gone_when_it_is_not_published() {
        let dir = Dir::new();
        std::fs::write(dir.path().join("f"), "old").expect("it is fresh");
        let refused = Condition::new(|_| Err(Kind::PreconditionFailed.told("no")));
        let upload = asked(&dir, refused);
        drop(draft(&dir, &upload));
        assert_eq!(listing(dir.path()), ["f f 644 old n1"]);
        let outcome = draft(&dir, &upload).publish(&upload).map(drop);
        let kind = outcome.map_err(|error| error.kind());
        assert_eq!(kind, Err(Kind::PreconditionFailed));
        assert_eq!(listing(dir.path()), ["f f 644 old n1"]);
    }

    #[test]
    fn a_name_that_is_taken_after_the_last_look_is_looked_at_again() {
        for with_name in [true, false] {
            let dir = Dir::new();
            let path = dir.path().join("f");
            let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
            let condition = Condition::new({
                let (path, seen) = (path.clone(), Arc::clone(&seen));
                move |found| {
                    let mut seen = seen.lock().expect("nobody panics");
                    seen.push(matches!(found, Found::Nothing));
                    // Somebody who does not wait for a turn is faster, once.
                    if seen.len() == 1 {
                        std::fs::write(&path, "theirs").expect("it is fresh");
                    }
                    match found {
                        Found::Nothing => Ok(()),
                        _ => Err(Kind::PreconditionFailed.told("it is there")),
                    }
                }
            });
            let upload = asked(&dir, condition);
            let mut draft = draft(&dir, &upload);
            if !with_name {
                let target = Target::find(&path).expect("the directory is there");
                let quiet = asked(&dir, Condition::default());
                draft = Beside::open(target, &quiet, Vec::new(), Made::default())
                    .expect("it can be made");
            }
            let outcome = draft.publish(&upload).map(drop);
            let kind = outcome.map_err(|error| error.kind());
            assert_eq!(kind, Err(Kind::PreconditionFailed));
            assert_eq!(*seen.lock().expect("nobody panics"), [true, false]);
            assert_eq!(listing(dir.path()), ["f f 644 theirs n1"]);
        }
    }
}
