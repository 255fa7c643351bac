//! Large members of a spooled archive, received where they belong: in files that get their names when all is checked.
//!
//! Such a file is made in the deepest directory on its way that exists. So it is on the right filesystem, and inherits
//! group and access list as if it were made at its place.

use std::collections::VecDeque;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;

use super::confine::{Descent, Stop, Way};
use super::lent::Lent;
use super::member::{Action, Entry};
use super::space;
use crate::error::{Kind, Result};
use crate::ring::copy::CHECK_EVERY;
use crate::ring::file::Writer;
use crate::ring::pool;

/// Files that have landed, by their number among the files of the archive.
#[derive(Default)]
pub(super) struct Landed {
    /// Files that have passed by.
    files: u64,
    waiting: VecDeque<(u64, Lent)>,
}

/// Members on their way.
pub(super) struct Landings {
    root: PathBuf,
    reserve: u64,
    /// False once it turned out that files without a name cannot be had.
    possible: bool,
    open: Option<Open>,
    landed: Landed,
}

struct Open {
    file: Lent,
    writer: Writer,
    /// Bytes to come.
    left: u64,
    unchecked: u64,
}

impl Landed {
    /// The file that holds the data of this member, if it has landed; to be asked once for each member, in order.
    pub(super) fn claim(&mut self, entry: &Entry) -> Option<Lent> {
        if matches!(entry.action, Action::File(_)) {
            self.files += 1;
        }
        match self.waiting.front() {
            Some((number, _)) if *number == self.files => {
                self.waiting.pop_front().map(|(_, file)| file)
            }
            _ => None,
        }
    }
}

impl Landings {
    /// Landings below `root`.
    pub(super) fn new(root: &Path, reserve: u64) -> Self {
        Self {
            root: root.into(),
            reserve,
            possible: true,
            open: None,
            landed: Landed::default(),
        }
    }

    /// Opens a file for the data of this member, if it is worth one; true when there is one.
    ///
    /// Holes are not kept track of here, so sparse members go the other way.
    ///
    /// # Errors
    /// `Busy`; no descriptor is left.
    pub(super) async fn begin(&mut self, entry: &Entry) -> Result<bool> {
        let Action::File(content) = &entry.action else {
            return Ok(false);
        };
        self.landed.files += 1;
        let least = (self.landed.waiting.len() as u64 + 1) * STEP;
        if !self.possible || content.stored < least || content.runs.is_some() {
            return Ok(false);
        }
        let (root, dir) = (self.root.clone(), entry.place.name.split().0.to_vec());
        let needed = self.reserve.saturating_add(content.stored);
        let opened = pool::run(move || open(&root, &dir, needed)).await?;
        let Some(file) = opened else {
            self.possible = false;
            return Ok(false);
        };
        let writer = Writer::new(&file).map_err(|error| {
            let told = Kind::Internal.told("tar operation failed");
            told.because(error)
        })?;
        self.open = Some(Open {
            file,
            writer,
            left: content.stored,
            unchecked: 0,
        });
        Ok(true)
    }

    /// Takes the next piece of a member that was begun; false when it belongs elsewhere.
    ///
    /// # Errors
    /// `DiskFull`, `Internal`.
    pub(super) async fn take(&mut self, bytes: &Arc<Vec<u8>>, piece: Range<usize>) -> Result<bool> {
        let Some(open) = &mut self.open else {
            return Ok(false);
        };
        let length = piece.len() as u64;
        let at = open.writer.offset;
        open.writer.put(Arc::clone(bytes), piece, at).await?;
        open.writer.offset += length;
        open.unchecked += length;
        if open.unchecked >= CHECK_EVERY {
            open.unchecked = 0;
            space::recheck(&open.file, &self.root, self.reserve).await?;
        }
        open.left -= length;
        if open.left == 0
            && let Some(Open { file, .. }) = self.open.take()
        {
            self.landed.waiting.push_back((self.landed.files, file));
        }
        Ok(true)
    }

    /// What has landed, to be claimed from the first member on.
    pub(super) fn close(mut self) -> Landed {
        self.landed.files = 0;
        self.landed
    }
}

/// A file without a name for a member of the directory `dir` below `root`, where `needed` bytes are free.
fn open(root: &Path, dir: &[u8], needed: u64) -> Option<Lent> {
    let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(0o600);
    let file = match Descent::open(root) {
        Ok(mut descent) => {
            let dir = match descent.enter(dir, Way::Looking) {
                Err(Stop {
                    end,
                    errno: Errno::NOENT,
                }) => {
                    let slash = dir[..end].iter().rposition(|byte| *byte == b'/');
                    descent.enter(&dir[..slash.unwrap_or(0)], Way::Looking)
                }
                other => other,
            };
            rustix::fs::openat(&*dir.ok()?, ".", flags, mode)
        }
        Err(Errno::NOENT) => {
            let mut above = root.ancestors().skip(1);
            let found = above.find(|ancestor| ancestor.exists())?;
            rustix::fs::openat(CWD, found, flags, mode)
        }
        Err(_) => return None,
    };
    let file = Lent::scrap(file.ok()?.into());
    let fits = space::check_file(&file, root, needed).is_ok();
    fits.then_some(file)
}

/// The first member to land has at least this many bytes, the second twice that, and so on: an archive of 8 GiB has
/// at most 127 files open.
const STEP: u64 = 1024 * 1024;
