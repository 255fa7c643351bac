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
        let kept = match self.disk {
            None => Kept::Memory(self.held),
            Some((file, _)) => Kept::Disk(file, Vec::new()),
        };
        Archive { kept, at: 0 }
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

/// An archive that is all here, read from its start.
pub(super) struct Archive {
    kept: Kept,
    /// Bytes that were read.
    at: u64,
}

enum Kept {
    Memory(Vec<u8>),
    /// A file, and the bytes of it that were read last.
    Disk(Lent, Vec<u8>),
}

impl Archive {
    /// The next bytes, none at the end; for helper threads.
    ///
    /// # Errors
    /// What the kernel says.
    pub(super) fn next(&mut self) -> std::io::Result<&[u8]> {
        let piece = match &mut self.kept {
            Kept::Memory(held) => {
                let start = usize::try_from(self.at).map_or(held.len(), |at| at.min(held.len()));
                let rest = &held[start..];
                &rest[..rest.len().min(WINDOW)]
            }
            Kept::Disk(file, window) => {
                window.clear();
                window.reserve_exact(WINDOW);
                rustix::io::pread(&**file, rustix::buffer::spare_capacity(window), self.at)?;
                window.as_slice()
            }
        };
        self.at += piece.len() as u64;
        Ok(piece)
    }
}

/// A file of `dir` that no name leads to; for helper threads.
pub(super) fn unnamed(dir: &Path) -> std::io::Result<Lent> {
    file::unnamed(dir, super::target::temporary_name().as_ref()).map(Lent::scrap)
}

/// Bytes of a spooled archive read at once: few enough to stay in a processor's cache until they are written.
const WINDOW: usize = buffers::LEASE;
