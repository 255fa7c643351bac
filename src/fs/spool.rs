//! Where an archive waits until all of it has been checked: in memory, or in a file without a name.

use std::path::{Path, PathBuf};

use super::lent::Lent;
use super::space;
use crate::error::{Kind, Result};
use crate::ring::file::{self, Writer};
use crate::ring::{buffers, pool};

/// What has arrived, on its way into memory or a file.
pub(super) struct Spool {
    dir: PathBuf,
    memory_bytes: u64,
    reserve: u64,
    held: Vec<u8>,
    disk: Option<(Lent, Writer)>,
    unchecked: u64,
}

impl Spool {
    /// A spool that keeps `memory_bytes` in memory and puts longer archives into a file in `dir`.
    pub(super) fn new(dir: &Path, memory_bytes: u64, reserve: u64) -> Self {
        Self {
            dir: dir.into(),
            memory_bytes,
            reserve,
            held: Vec::new(),
            disk: None,
            unchecked: 0,
        }
    }

    /// Takes a piece, and gives the buffer back, empty.
    ///
    /// # Errors
    /// `DiskFull` when the disk of the spool is full or its reserve touched, `Internal` when it cannot be written.
    pub(super) async fn append(&mut self, bytes: &mut Vec<u8>) -> Result<()> {
        let length = bytes.len() as u64;
        if self.disk.is_none() && self.held.len() as u64 + length <= self.memory_bytes {
            self.held.append(bytes);
            return Ok(());
        }
        if self.disk.is_none() {
            self.settle_on_disk().await?;
        }
        let Some((file, writer)) = &mut self.disk else {
            return Ok(());
        };
        let (outcome, empty) = writer.append(std::mem::take(bytes)).await;
        *bytes = empty;
        outcome?;
        self.unchecked += length;
        if self.unchecked >= crate::ring::copy::CHECK_EVERY {
            self.unchecked = 0;
            space::recheck(file, &self.dir, self.reserve).await?;
        }
        Ok(())
    }

    /// The archive, to read.
    pub(super) fn close(self) -> Archive {
        match self.disk {
            None => Archive::Memory(self.held),
            Some((file, _)) => Archive::Disk {
                file,
                window: Vec::new(),
                at: 0,
            },
        }
    }

    async fn settle_on_disk(&mut self) -> Result<()> {
        let (dir, reserve) = (self.dir.clone(), self.reserve);
        let opened = pool::run(move || {
            space::check(&dir, reserve)?;
            let file = unnamed(&dir);
            file.map_err(|error| space::failed(error, "the spool cannot be opened"))
        });
        let file = opened.await??;
        let writer = Writer::new(&file);
        let mut writer = writer.map_err(|error| {
            Kind::Internal
                .told("the spool cannot be opened")
                .because(error)
        })?;
        let held = std::mem::take(&mut self.held);
        if !held.is_empty() {
            writer.append(held).await.0?;
        }
        self.disk = Some((file, writer));
        Ok(())
    }
}

/// An archive that is all here.
pub(super) enum Archive {
    Memory(Vec<u8>),
    Disk {
        file: Lent,
        /// Bytes of the file from `at` on.
        window: Vec<u8>,
        at: u64,
    },
}

impl Archive {
    /// Some of the bytes from `at` on, at most `most` and at least one; for helper threads.
    ///
    /// # Errors
    /// What the kernel says; `UnexpectedEof` past the end.
    pub(super) fn piece(&mut self, at: u64, most: u64) -> std::io::Result<&[u8]> {
        let (window, start) = match self {
            Self::Memory(held) => (held, 0),
            Self::Disk {
                file,
                window,
                at: start,
            } => {
                if at < *start || at - *start >= window.len() as u64 {
                    window.clear();
                    window.reserve_exact(WINDOW);
                    *start = at;
                    rustix::io::pread(&**file, rustix::buffer::spare_capacity(window), at)?;
                }
                (window, *start)
            }
        };
        let from = usize::try_from(at - start).unwrap_or(usize::MAX);
        let rest = window.get(from..).unwrap_or_default();
        if rest.is_empty() && most > 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        let count = usize::try_from(most).map_or(rest.len(), |most| most.min(rest.len()));
        Ok(&rest[..count])
    }
}

/// A file of `dir` that no name leads to; for helper threads.
pub(super) fn unnamed(dir: &Path) -> std::io::Result<Lent> {
    file::unnamed(dir, super::target::temporary_name().as_ref()).map(Lent::scrap)
}

/// Bytes of a spooled archive read at once.
const WINDOW: usize = 4 * buffers::LEASE;
