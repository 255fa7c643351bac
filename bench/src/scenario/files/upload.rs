//! Files that are uploaded under names of their own, and read back.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};

use super::reader::summary;
use crate::bench::Bench;
use crate::fixture::{LargeFile, MIB, warm_free_pages};
use crate::load::{Connection, Manner, Request};
use crate::target::{Dialect, Target};

/// Names in a new directory of a target.
pub(super) struct Upload<'a> {
    target: &'a Target,
    dir: PathBuf,
    paths: Vec<PathBuf>,
    /// Request targets, in the order of the paths.
    places: Vec<String>,
    is_shared: bool,
}

impl<'a> Upload<'a> {
    /// Makes the directory where we can; elsewhere the target makes it.
    ///
    /// `bytes` will be written to each of the files: that much is made ready, so that no target pays for it.
    pub(super) async fn prepare(
        bench: &Bench,
        target: &'a Target,
        count: usize,
        bytes: u64,
    ) -> Result<Self> {
        let dir = bench.fresh_path(target, "put").await?;
        let is_shared = bench.shares_files(target).await?;
        if is_shared {
            std::fs::create_dir(&dir)?;
            bench.settle()?;
            warm_free_pages(bench.dir(), count as u64 * bytes + 16 * MIB)?;
        }
        let paths: Vec<PathBuf> = (0..count)
            .map(|index| dir.join(format!("u{index:05}")))
            .collect();
        let place = |path: &PathBuf| target.file(path, bench.dir());
        Ok(Self {
            target,
            places: paths.iter().map(place).collect(),
            dir,
            paths,
            is_shared,
        })
    }

    /// Uploads `content` under the name of an index.
    pub(super) async fn store(
        &self,
        connection: &mut Connection,
        index: usize,
        content: &[u8],
    ) -> Result<()> {
        let place = &self.places[index];
        if content.len() <= ONE_SEND_BYTES {
            connection.send(Request::of("PUT", place, content)).await?;
        } else {
            let request = Request::of("PUT", place, b"");
            connection.send_head(request, content.len() as u64).await?;
            connection.send_bytes(content).await?;
        }
        self.finish(connection, index).await
    }

    /// Uploads `bytes` bytes made of one hot buffer.
    pub(super) async fn store_repeated(
        &self,
        connection: &mut Connection,
        buffer: &[u8],
        bytes: u64,
    ) -> Result<()> {
        let request = Request::of("PUT", &self.places[0], b"");
        connection.send_head(request, bytes).await?;
        connection.send_repeated(buffer, bytes).await?;
        self.finish(connection, 0).await
    }

    /// Uploads a file.
    pub(super) async fn store_file(
        &self,
        connection: &mut Connection,
        file: &LargeFile,
    ) -> Result<()> {
        let request = Request::of("PUT", &self.places[0], b"");
        connection.send_head(request, file.bytes).await?;
        connection.send_file(&file.path).await?;
        self.finish(connection, 0).await
    }

    async fn finish(&self, connection: &mut Connection, index: usize) -> Result<()> {
        connection.discard().await?;
        connection.expect(&STORED, Request::of("PUT", &self.places[index], b""))
    }

    /// Reads a file back, from the disk that we share or through the target, and compares length and checksum.
    pub(super) async fn verify(&self, index: usize, bytes: u64, crc: u32) -> Result<()> {
        let found = match self.is_shared {
            true => LargeFile::measure(&self.paths[index])?,
            false => {
                let mut connection = self.target.connect(Manner::Ring)?;
                let request = Request::get(&self.places[index]);
                summary(&mut connection, request, &[200]).await?
            }
        };
        ensure!(
            found == (bytes, crc),
            "{} holds {} bytes with the checksum {:08x}; {bytes} with {crc:08x} were sent",
            self.paths[index].display(),
            found.0,
            found.1
        );
        Ok(())
    }

    /// Gives the room back that the files take. Their names are not used again.
    pub(super) async fn release(self) -> Result<()> {
        if self.is_shared {
            return std::fs::remove_dir_all(&self.dir)
                .with_context(|| format!("cannot remove {}", self.dir.display()));
        }
        ensure!(
            self.target.dialect == Dialect::Guest,
            "only the contract says that an upload cuts the file that is there"
        );
        let mut connection = self.target.connect(Manner::Ready)?;
        for index in 0..self.places.len() {
            self.store(&mut connection, index, b"").await?;
        }
        Ok(())
    }
}

/// Up to this size head and content go out with one call.
const ONE_SEND_BYTES: usize = 64 << 10;
/// What says that a file is stored: the contract says 204, web servers may say 201 of a new one.
const STORED: [u16; 2] = [204, 201];
