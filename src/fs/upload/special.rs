//! Writing to what is no regular file on a disk: devices, FIFOs, files that the kernel makes up. Always in place.

use std::time::Duration;

use rustix::fs::CWD;

use super::*;
use crate::ring::{Fd, clock};

/// Refuses what makes sense for regular files only.
///
/// # Errors
/// `Malformed`.
pub(super) fn judge(upload: &Upload, kind: FileType) -> Result<()> {
    let asked = [
        ("sparse", upload.sparse),
        ("owner", upload.owner.is_given()),
        ("mtime", upload.mtime.is_some()),
        ("fsync", upload.sync && kind != FileType::BlockDevice),
    ];
    match asked.iter().find(|(_, is_asked)| *is_asked) {
        None => Ok(()),
        Some((name, _)) => Err(Kind::Malformed.told(format!(
            "{name} is for regular files, which the one at path is not"
        ))),
    }
}

/// Writes `body` to the device, FIFO or kernel file at the path.
///
/// # Errors
/// `Malformed` when a FIFO has no reader in time, those of the body, else `Internal`.
pub(super) async fn write(upload: &Upload, kind: FileType, body: &mut dyn Inflow) -> Result<()> {
    let file = open(&upload.path, kind).await?;
    let mut buffer = buffers::lease();
    loop {
        let ended = match kind {
            // Whole buffers, because a kernel file takes each write for a value of its own.
            FileType::RegularFile | FileType::BlockDevice => copy::fill(body, &mut buffer).await?,
            // Somebody waits at the other end.
            _ => body.read(&mut buffer).await? == 0,
        };
        let mut rest = buffer.take();
        while !rest.is_empty() {
            rest = push(&file, rest).await?;
        }
        buffer.restore(rest);
        if ended {
            break;
        }
    }
    if upload.sync {
        file::sync(&file).await.map_err(unsynced_file)?;
    }
    match upload.mode {
        Some(mode) => pool::run(move || attributes::set_mode(&file, mode)).await?,
        None => Ok(()),
    }
}

/// Writes some of the bytes, and answers with the rest.
async fn push(file: &File, mut bytes: Vec<u8>) -> Result<Vec<u8>> {
    let failed = |error| space::failed(error, CANNOT_WRITE);
    let lent = file.try_clone().map_err(failed)?;
    let (written, back) = pool::run(move || (rustix::io::write(&lent, &bytes), bytes)).await?;
    bytes = back;
    match written {
        Ok(count) => {
            bytes.drain(..count);
        }
        Err(Errno::INTR) => {}
        Err(Errno::AGAIN) => {
            let fd = file
                .try_clone()
                .and_then(|file| Fd::new(file.into()))
                .map_err(failed)?;
            let ready = clock::within(PATIENCE, fd.writable()).await;
            ready
                .ok_or_else(|| Kind::Internal.told("cannot write file: nobody takes the bytes"))?
                .map_err(failed)?;
        }
        Err(errno) => return Err(unwritten(errno)),
    }
    Ok(bytes)
}

/// Opens without blocking; a FIFO gets a short while to find a reader.
async fn open(path: &Path, kind: FileType) -> Result<File> {
    let deadline = clock::Deadline::after(READER);
    loop {
        let path = path.to_owned();
        let opened = pool::run(move || {
            let mut flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
            if kind == FileType::RegularFile {
                flags |= OFlags::TRUNC;
            }
            rustix::fs::openat(CWD, &path, flags, Mode::empty())
        });
        match opened.await? {
            Ok(file) => return Ok(file.into()),
            Err(Errno::NXIO) if kind == FileType::Fifo => {
                if deadline.has_passed() {
                    return Err(Kind::Malformed.told("nobody reads the FIFO at path"));
                }
                clock::sleep(RETRY).await;
            }
            Err(errno) => return Err(unwritten(errno)),
        }
    }
}

/// How long a FIFO waits for a reader (D27 allows 3 s in all).
const READER: Duration = Duration::from_millis(2500);
const RETRY: Duration = Duration::from_millis(20);
/// How long whoever reads may take nothing.
const PATIENCE: Duration = Duration::from_secs(30);
