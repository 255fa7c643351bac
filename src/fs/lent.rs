//! Files and names that helper threads let go of, and files that only they read.
//!
//! The last close of a big file without a name frees it block by block, and closing or reading a file that lies
//! elsewhere asks its server: neither is for the main thread.

use std::fs::File;
use std::ops::Deref;

use rustix::fs::Stat;

use crate::error::{Error, Kind, Result};
use crate::ring::{self, Outflow, buffers, file, pool};
use crate::wire::tar::Segment;

/// An open file, closed where that holds up nobody.
pub(super) struct Lent {
    /// Gone only while it is dropped.
    file: Option<File>,
    /// False when reading it may ask a server.
    local: bool,
    fate: Fate,
}

/// What becomes of a file when it is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It is closed at once.
    Light,
    /// It is closed by a helper.
    Heavy,
    /// It is emptied and closed by a helper.
    Scrap,
}

impl Lent {
    /// A file to read, of `size` bytes.
    pub(super) fn to_read(file: File, size: u64, local: bool) -> Self {
        let light = local && size < HEAVY;
        Self {
            file: Some(file),
            local,
            fate: if light { Fate::Light } else { Fate::Heavy },
        }
    }

    /// A file to write whose name was there before.
    pub(super) fn to_write(file: File) -> Self {
        Self {
            file: Some(file),
            local: false,
            fate: Fate::Heavy,
        }
    }

    /// A file that we made, whose bytes go with it unless it is kept.
    pub(super) fn scrap(file: File) -> Self {
        Self {
            file: Some(file),
            local: false,
            fate: Fate::Scrap,
        }
    }

    /// Says that the bytes stay: somebody else may know the file from now on.
    pub(super) fn keep(&mut self) {
        self.fate = Fate::Heavy;
    }

    /// What the filesystem says about it now.
    ///
    /// # Errors
    /// `Internal`.
    pub(super) async fn stat(&self) -> Result<Stat> {
        let stat = if self.local {
            rustix::fs::fstat(&**self)
        } else {
            let file = self.try_clone().map_err(unreadable)?;
            pool::run(move || rustix::fs::fstat(&file)).await?
        };
        stat.map_err(|errno| unreadable(errno.into()))
    }

    /// Reads at most `most` bytes from `offset` into the spare capacity of `into`; 0 at the end.
    ///
    /// # Errors
    /// `Internal`.
    pub(super) async fn read_at(
        &self,
        into: &mut Vec<u8>,
        offset: u64,
        most: usize,
    ) -> Result<usize> {
        let count = if self.local {
            let (count, bytes) = file::read_at(self, std::mem::take(into), offset, most).await;
            *into = bytes;
            count
        } else {
            let read = move |file: &File, buffer: &mut Vec<u8>| {
                let before = buffer.len();
                buffer.resize(before + most.min(buffer.capacity() - before), 0);
                let count = rustix::io::pread(file, &mut buffer[before..], offset);
                buffer.truncate(before + count.as_ref().copied().unwrap_or(0));
                count.map_err(std::io::Error::from)
            };
            self.on_helper(into, read).await?
        };
        count.map_err(unreadable)
    }

    /// Sends exactly a span of it: from the page cache where it is local, through a buffer where it is not.
    ///
    /// # Errors
    /// Those of the sink; `Internal` when the file cannot be read or is shorter than that.
    pub(super) async fn send(&self, span: Segment, sink: &mut dyn Outflow) -> Result<()> {
        if self.local {
            return sink.send_file(self, span.offset, span.length).await;
        }
        self.send_copied(span, sink).await
    }

    /// The same through a buffer always: what was read goes out, whatever becomes of the file then.
    ///
    /// # Errors
    /// As [`Lent::send`].
    pub(super) async fn send_copied(&self, span: Segment, sink: &mut dyn Outflow) -> Result<()> {
        let mut buffer = buffers::lease();
        let mut at = span.offset;
        let mut left = span.length;
        while left > 0 {
            let most = usize::try_from(left).unwrap_or(usize::MAX);
            let count = self.read_at(&mut buffer, at, most).await? as u64;
            if count == 0 {
                return Err(Kind::Internal.told("the file became shorter while it was sent"));
            }
            sink.write(&buffer).await?;
            sink.flush().await?;
            buffer.clear();
            at += count;
            left -= count;
        }
        Ok(())
    }

    /// Lends the file and the buffer to a helper that reads.
    pub(super) async fn on_helper(
        &self,
        into: &mut Vec<u8>,
        read: impl FnOnce(&File, &mut Vec<u8>) -> std::io::Result<usize> + Send + 'static,
    ) -> Result<std::io::Result<usize>> {
        let file = self.try_clone().map_err(unreadable)?;
        let mut buffer = std::mem::take(into);
        let (count, buffer) = pool::run(move || (read(&file, &mut buffer), buffer)).await?;
        *into = buffer;
        Ok(count)
    }
}

impl Deref for Lent {
    type Target = File;

    fn deref(&self) -> &File {
        self.file
            .as_ref()
            .expect("a file is there until it is dropped")
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let Some(file) = self.file.take() else { return };
        let fate = self.fate;
        if fate == Fate::Light {
            return;
        }
        let_go(move || {
            // The ring may hold a copy that it closes after us: then nothing is left to free on its thread.
            if fate == Fate::Scrap {
                let _ = file.set_len(0);
            }
            drop(file);
        });
    }
}

/// Does on a helper thread what nobody waits for; at once where we are on one already.
pub(super) fn let_go(job: impl FnOnce() + Send + 'static) {
    match ring::running() {
        Some(_) => pool::detach(job),
        None => job(),
    }
}

/// The failure of a read.
pub(super) fn unreadable(error: std::io::Error) -> Error {
    Kind::Internal.told("cannot read file").because(error)
}

/// From this size on the last close of a local file is left to a helper, in bytes.
const HEAVY: u64 = 1024 * 1024;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::super::testing::{Dir, Sink, run};
    use super::*;

    fn check_dropped(make: fn(File) -> Lent, expected: u64) {
        let dir = Dir::new();
        let path = dir.path().join("f");
        std::fs::write(&path, "text").expect("it is fresh");
        let open = || {
            let mut options = std::fs::OpenOptions::new();
            options.read(true).write(true).open(&path).expect("ours")
        };
        let watched = open();
        drop(make(open()));
        assert_eq!(watched.metadata().expect("it is open").size(), expected);
        // On the main thread a helper does it, soon.
        run(async || {
            std::fs::write(&path, "text").expect("ours");
            drop(make(open()));
            let until = std::time::Instant::now() + std::time::Duration::from_secs(5);
            while watched.metadata().expect("it is open").size() != expected {
                assert!(std::time::Instant::now() < until, "a helper empties it");
                ring::clock::sleep(std::time::Duration::from_millis(1)).await;
            }
        });
    }

    #[test]
    fn scrap_is_emptied_and_what_is_kept_is_not() {
        check_dropped(Lent::scrap, 0);
        check_dropped(Lent::to_write, 4);
        let kept = |file| {
            let mut lent = Lent::scrap(file);
            lent.keep();
            lent
        };
        check_dropped(kept, 4);
    }

    #[test]
    fn a_file_that_lies_elsewhere_is_sent_as_one_that_does_not() {
        let dir = Dir::new();
        let path = dir.path().join("f");
        let bytes: Vec<u8> = (0..1_000_000u32).flat_map(u32::to_le_bytes).collect();
        std::fs::write(&path, &bytes).expect("it is fresh");
        for local in [true, false] {
            for (offset, length) in [(0, 4_000_000), (1, 300_000), (3_999_999, 1), (5, 0)] {
                let sent = run(async || {
                    let file = File::open(&path).expect("it is there");
                    let mut sink = Sink::default();
                    let lent = Lent::to_read(file, 4_000_000, local);
                    lent.send(Segment { offset, length }, &mut sink).await?;
                    Ok::<_, Error>(sink.0)
                });
                let place = usize::try_from(offset).expect("small");
                let end = place + usize::try_from(length).expect("small");
                assert!(sent.expect("it can be read") == bytes[place..end]);
            }
        }
    }

    #[test]
    fn a_file_that_lies_elsewhere_and_became_shorter_is_an_error() {
        let dir = Dir::new();
        let path = dir.path().join("f");
        std::fs::write(&path, "text").expect("it is fresh");
        let outcome = run(async || {
            let lent = Lent::to_read(File::open(&path).expect("it is there"), 5, false);
            let span = Segment {
                offset: 0,
                length: 5,
            };
            lent.send(span, &mut Sink::default()).await
        });
        let error = outcome.expect_err("a byte is missing");
        assert_eq!(
            error.sentence(),
            "the file became shorter while it was sent"
        );
    }
}
