//! Files: a send loop of one hot buffer, sendfile of the file's own bytes, and receive with pwrite.

use std::fs::File;
use std::io::{IoSlice, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use anyhow::{Context, Result, bail, ensure};
use rustix::net::SendFlags;

use super::request::Request;
use crate::range::Asked;

/// An answer whose head is decided.
pub(super) struct Download {
    head: String,
    first: u64,
    length: u64,
    /// Nothing when a hot buffer takes the place of the file's bytes.
    file: Option<File>,
}

impl Download {
    pub(super) fn prepare(request: &Request) -> Result<Self> {
        let file = File::open(&request.path).with_context(|| request.path.clone())?;
        let metadata = file.metadata()?;
        ensure!(metadata.is_file(), "{} is no file", request.path);
        let total = metadata.len();
        let (status, first, length) = match Asked::parse(request.range.as_deref(), total) {
            Asked::Whole => ("200 OK".to_owned(), 0, total),
            Asked::Part { first, last } => (
                format!("206 Partial Content\r\ncontent-range: bytes {first}-{last}/{total}"),
                first,
                last - first + 1,
            ),
            Asked::NotThere => (
                format!("416 Range Not Satisfiable\r\ncontent-range: bytes */{total}"),
                0,
                0,
            ),
        };
        Ok(Self {
            head: format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\n\r\n"),
            first,
            length,
            file: request.sendfile.then_some(file),
        })
    }

    pub(super) fn send(&self, stream: &mut TcpStream, hot: &[u8]) -> Result<()> {
        match &self.file {
            None => self.send_hot(stream, hot),
            Some(file) => self.send_file(stream, file),
        }
    }

    fn send_hot(&self, stream: &mut TcpStream, hot: &[u8]) -> Result<()> {
        let step = |left: u64| usize::try_from(left).unwrap_or(usize::MAX).min(hot.len());
        let body = &hot[..step(self.length)];
        let sent =
            stream.write_vectored(&[IoSlice::new(self.head.as_bytes()), IoSlice::new(body)])?;
        let sent = sent.checked_sub(self.head.len());
        let mut left = self.length - sent.context("the head was not sent in one piece")? as u64;
        while left > 0 {
            left -= stream.write(&hot[..step(left)])? as u64;
        }
        Ok(())
    }

    fn send_file(&self, stream: &TcpStream, file: &File) -> Result<()> {
        // The head waits in the socket for the bytes that follow.
        let flags = match self.length {
            0 => SendFlags::empty(),
            _ => SendFlags::MORE,
        };
        let sent = rustix::net::send(stream, self.head.as_bytes(), flags)?;
        ensure!(
            sent == self.head.len(),
            "the head was not sent in one piece"
        );
        let mut offset = self.first;
        let end = self.first + self.length;
        while offset < end {
            let left = usize::try_from(end - offset)?;
            let count = rustix::fs::sendfile(stream, file, Some(&mut offset), left)?;
            ensure!(count > 0, "the file has become shorter");
        }
        Ok(())
    }
}

/// A new file and how much will come for it.
pub(super) struct Upload {
    file: File,
    length: u64,
}

impl Upload {
    pub(super) fn prepare(request: &Request) -> Result<Self> {
        let length = request.length.context("PUT needs a content-length")?;
        let file = File::create(&request.path).with_context(|| request.path.clone())?;
        Ok(Self { file, length })
    }

    pub(super) fn receive(
        &self,
        stream: &mut TcpStream,
        buffer: &mut [u8],
        early: &[u8],
    ) -> Result<()> {
        let mut offset = early.len() as u64;
        ensure!(offset <= self.length, "bytes came behind the body");
        self.file.write_all_at(early, 0)?;
        let mut mark = 1;
        while offset < self.length {
            let left = usize::try_from(self.length - offset)?;
            let step = left.min(buffer.len());
            if step != mark {
                // A mark above what is still to come would never be reached.
                set_low_water(stream, step)?;
                mark = step;
            }
            let count = stream.read(&mut buffer[..step])?;
            if count == 0 {
                bail!("the body ended early");
            }
            self.file.write_all_at(&buffer[..count], offset)?;
            offset += count as u64;
        }
        set_low_water(stream, 1)
    }
}

/// SO_RCVLOWAT: how many bytes must be there before a blocked receive is woken (socket(7)).
#[expect(unsafe_code, reason = "this socket option has no safe wrapper")]
fn set_low_water(stream: &TcpStream, bytes: usize) -> Result<()> {
    let value = libc::c_int::try_from(bytes)?;
    let size = libc::socklen_t::try_from(size_of_val(&value))?;
    // SAFETY: the descriptor is borrowed from a live stream; `value` is a live int and `size` is its size.
    let result = unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVLOWAT,
            (&raw const value).cast(),
            size,
        )
    };
    if result != 0 {
        return Err(std::io::Error::last_os_error()).context("cannot set SO_RCVLOWAT");
    }
    Ok(())
}
