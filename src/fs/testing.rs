//! What the tests of this room share: a directory that is removed with all in it.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// A fresh directory.
pub(crate) struct Dir(PathBuf);

impl Dir {
    pub(crate) fn new() -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let number = LAST.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("ringd-fs-{}-{number}", std::process::id()));
        std::fs::create_dir(&path).expect("the name is fresh");
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs a future on a runtime of its own, in a thread of its own, since a thread has one runtime in its life.
pub(crate) fn run<T: Send>(main: impl AsyncFnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let mut answer = None;
            let main = async {
                answer = Some(main().await);
                0
            };
            crate::ring::start(crate::ring::Choice::Auto, main).expect("a runtime starts");
            answer.expect("the future has ended")
        });
        thread.join().expect("the test does not panic")
    })
}

/// An outflow into memory.
#[derive(Default)]
pub(crate) struct Sink(pub(crate) Vec<u8>);

impl crate::ring::Outflow for Sink {
    fn write<'a>(&'a mut self, bytes: &'a [u8]) -> crate::ring::Step<'a, ()> {
        self.0.extend_from_slice(bytes);
        Box::pin(async { Ok(()) })
    }

    fn flush(&mut self) -> crate::ring::Step<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    fn offer(&mut self, _: &[crate::ring::Frame<'_>]) -> crate::error::Result<usize> {
        unreachable!("nobody offers here")
    }

    fn ready(&mut self) -> crate::ring::Step<'_, ()> {
        unreachable!("nobody offers here")
    }

    fn send_file<'a>(
        &'a mut self,
        file: &'a std::fs::File,
        offset: u64,
        length: u64,
    ) -> crate::ring::Step<'a, ()> {
        Box::pin(async move {
            let before = self.0.len();
            self.0
                .resize(before + usize::try_from(length).expect("it fits"), 0);
            let read =
                std::os::unix::fs::FileExt::read_exact_at(file, &mut self.0[before..], offset);
            read.map_err(|error| {
                crate::error::Kind::Internal
                    .told("cannot read file")
                    .because(error)
            })
        })
    }
}

/// An inflow that yields some bytes and then fails or waits for ever.
pub(crate) struct Broken {
    pub(crate) bytes: Vec<u8>,
    pub(crate) length: Option<u64>,
    pub(crate) kind: Option<crate::error::Kind>,
}

impl crate::ring::Inflow for Broken {
    fn remaining(&self) -> Option<u64> {
        self.length
    }

    fn read<'a>(&'a mut self, into: &'a mut Vec<u8>) -> crate::ring::Step<'a, usize> {
        Box::pin(async move {
            if self.bytes.is_empty() {
                return match self.kind {
                    Some(kind) => Err(kind.told("the body broke off")),
                    None => std::future::pending().await,
                };
            }
            let count = self.bytes.len().min(into.capacity() - into.len());
            into.extend(self.bytes.drain(..count));
            self.length = self
                .length
                .map(|length| length.saturating_sub(count as u64));
            Ok(count)
        })
    }
}

/// What is below a directory: `type mode [size|target|links] name`, in byte order.
pub(crate) fn listing(root: &Path) -> Vec<String> {
    use std::os::unix::fs::MetadataExt;
    let mut found = Vec::new();
    let mut waiting = vec![root.to_owned()];
    while let Some(dir) = waiting.pop() {
        for entry in std::fs::read_dir(&dir).expect("it can be listed") {
            let path = entry.expect("it can be listed").path();
            let meta = path.symlink_metadata().expect("it is there");
            let name = path
                .strip_prefix(root)
                .expect("it is below")
                .display()
                .to_string();
            let mode = meta.mode() & 0o7777;
            found.push(if meta.is_dir() {
                waiting.push(path);
                format!("{name} d {mode:o}")
            } else if meta.is_symlink() {
                format!(
                    "{name} l {}",
                    std::fs::read_link(&path).expect("it is a link").display()
                )
            } else {
                format!(
                    "{name} f {mode:o} {} n{}",
                    String::from_utf8_lossy(&std::fs::read(&path).unwrap_or_default()),
                    meta.nlink()
                )
            });
        }
    }
    found.sort();
    found
}
