//! All bytes of a file shown to a visitor on helper threads, such as one that makes a digest of them.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::SystemTime;

use super::file::Opened;
use super::lent::unreadable;
use super::version::TICK;
use crate::error::{Error, Kind, Result};
use crate::ring::{Outflow, buffers, clock, pool};

/// What is shown each piece of a file, in order.
pub trait Visitor: Send + 'static {
    /// Takes the next bytes.
    fn visit(&mut self, bytes: &[u8]);
}

impl Opened {
    /// Shows a file that has a size to `visitor`; `None` when it changed meanwhile, so that what was seen is no version.
    ///
    /// Whoever drops this stops it after a few pieces.
    ///
    /// # Errors
    /// `Internal` when the file cannot be read, is shorter than it was, or changed under a guard.
    pub async fn visit<V: Visitor>(&self, visitor: V) -> Result<Option<V>> {
        self.settle().await;
        let mut tour = Tour::new(self, visitor)?;
        while tour.offset < tour.end {
            // Others who need a helper get one between two stretches.
            let stretch = tour.offset.saturating_add(STRETCH);
            tour = tour.go_on(stretch).await?;
        }
        let is_same = self.still_is().await?;
        Ok(Some(tour.leave()).filter(|_| is_same))
    }

    /// Sends a file that has a size, and shows what is sent to `visitor`.
    ///
    /// # Errors
    /// `Internal` when the file cannot be read or is not at the end what it was; those of the sink.
    pub async fn send_visited<V: Visitor>(&self, visitor: V, sink: &mut dyn Outflow) -> Result<V> {
        self.settle().await;
        let mut tour = Tour::new(self, visitor)?;
        while tour.offset < tour.end {
            let piece = tour.offset.saturating_add(1);
            tour = tour.go_on(piece).await?;
            sink.write(&tour.buffer).await?;
            sink.flush().await?;
        }
        self.check_unchanged().await?;
        Ok(tour.leave())
    }

    /// Reads a file that has a size into memory and shows it to `visitor`, which is lost when the file changed meanwhile.
    ///
    /// # Errors
    /// As [`Opened::visit`].
    pub async fn load_visited<V: Visitor>(&self, mut visitor: V) -> Result<(Vec<u8>, Option<V>)> {
        self.settle().await;
        let mut bytes = Vec::new();
        self.fill(&mut bytes, 0, self.size().unwrap_or(0)).await?;
        let visited = pool::run(move || {
            visitor.visit(&bytes);
            (bytes, visitor)
        });
        let (bytes, visitor) = visited.await?;
        let is_same = self.still_is().await?;
        Ok((bytes, Some(visitor).filter(|_| is_same)))
    }

    /// Waits until every further change of the file shows: else what is read could be of two versions that look alike.
    async fn settle(&self) {
        let now = SystemTime::now();
        if self.version().is_some_and(|version| version.is_fresh(now)) {
            clock::sleep(TICK).await;
        }
    }
}

/// A visitor on its way through a file; it goes to a helper thread and comes back.
struct Tour<V> {
    file: Arc<File>,
    offset: u64,
    end: u64,
    /// The piece seen last.
    buffer: Vec<u8>,
    visitor: V,
}

impl<V: Visitor> Tour<V> {
    fn new(opened: &Opened, visitor: V) -> Result<Self> {
        Ok(Self {
            file: Arc::new(opened.file.try_clone().map_err(unreadable)?),
            offset: 0,
            end: opened.size().unwrap_or(0),
            buffer: buffers::take(),
            visitor,
        })
    }

    /// Goes on at least to `until`, or to the end of the file.
    async fn go_on(mut self, until: u64) -> Result<Self> {
        let until = until.min(self.end);
        pool::run(move || {
            while self.offset < until {
                self.step()?;
            }
            Ok(self)
        })
        .await?
    }

    fn step(&mut self) -> Result<()> {
        let left = usize::try_from(self.end - self.offset).unwrap_or(usize::MAX);
        self.buffer.resize(left.min(buffers::LEASE), 0);
        let read = self.file.read_at(&mut self.buffer, self.offset);
        let count = read.map_err(unreadable)?;
        if count == 0 {
            return Err(shorter());
        }
        self.buffer.truncate(count);
        self.visitor.visit(&self.buffer);
        self.offset += count as u64;
        Ok(())
    }

    fn leave(self) -> V {
        buffers::give_back(self.buffer);
        self.visitor
    }
}

fn shorter() -> Error {
    Kind::Internal.told("the file became shorter while it was read")
}

/// Bytes that are read between two looks for whether somebody still waits.
const STRETCH: u64 = 4 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::file::open;
    use super::super::testing::{Dir, Sink, run};
    use super::*;

    /// Remembers what it has seen, and changes the file when it has seen so many bytes.
    struct Witness {
        seen: Vec<u8>,
        changes: Option<(usize, std::path::PathBuf)>,
    }

    impl Visitor for Witness {
        fn visit(&mut self, bytes: &[u8]) {
            self.seen.extend_from_slice(bytes);
            if let Some((_, path)) = self.changes.take_if(|(after, _)| *after <= self.seen.len()) {
                let file = File::options().append(true).open(path).expect("ours");
                std::io::Write::write_all(&mut &file, b"more").expect("there is room");
            }
        }
    }

    fn witness(changes: Option<(usize, &Path)>) -> Witness {
        Witness {
            seen: Vec::new(),
            changes: changes.map(|(after, path)| (after, path.to_owned())),
        }
    }

    #[test]
    fn a_visitor_sees_what_is_sent() {
        let dir = Dir::new();
        let path = dir.path().join("f");
        for size in [0, 1, 524_287, 524_288, 524_289, 9_000_000] {
            let bytes: Vec<u8> = (0..size).map(|at| (at % 251) as u8).collect();
            std::fs::write(&path, &bytes).expect("it can be made");
            let (visited, sent, seen, loaded) = run(async || {
                let opened = open(&path).await?;
                let visited = opened.visit(witness(None)).await?.expect("unchanged").seen;
                let mut sink = Sink::default();
                let seen = opened.send_visited(witness(None), &mut sink).await?.seen;
                let (loaded, _) = opened.load_visited(witness(None)).await?;
                Ok::<_, Error>((visited, sink.0, seen, loaded))
            })
            .expect("it can be read");
            assert!(visited == bytes && sent == bytes && seen == bytes && loaded == bytes);
        }
    }

    /// Writes other bytes over those of a file once it has seen some.
    struct Forger(Option<std::path::PathBuf>);

    impl Visitor for Forger {
        fn visit(&mut self, _: &[u8]) {
            if let Some(path) = self.0.take() {
                let file = File::options().write(true).open(path).expect("ours");
                file.write_all_at(b"false", 0).expect("it is that long");
            }
        }
    }

    #[test]
    fn a_file_written_twice_in_one_instant_is_no_version() {
        let dir = Dir::new();
        let path = dir.path().join("f");
        // Where the kernel's clock does not move on in between, which is likely each time.
        for _ in 0..3 {
            let open = async || {
                std::fs::write(&path, "truth").expect("ours");
                open(&path).await.expect("it is there")
            };
            let forger = || Forger(Some(path.clone()));
            run(async || {
                let seen = open().await.visit(forger()).await;
                assert!(seen.expect("it can be read").is_none());
                let loaded = open().await.load_visited(forger()).await;
                assert!(loaded.expect("it can be read").1.is_none());
                let mut sink = Sink::default();
                let sent = open().await.send_visited(forger(), &mut sink).await;
                assert!(sent.is_err(), "what was sent is no version");
            });
        }
    }

    #[test]
    fn a_file_that_changes_on_the_way_is_no_version() {
        let dir = Dir::new();
        let path = dir.path().join("f");
        std::fs::write(&path, vec![7; 9_000_000]).expect("it is fresh");
        for after in [1, 5_000_000, 9_000_000] {
            let (seen, sent) = run(async || {
                let changing = || witness(Some((after, &path)));
                let opened = open(&path).await.expect("it is there");
                let seen = opened.visit(changing()).await;
                let seen = seen.expect("it can be read").is_some();
                let opened = open(&path).await.expect("it is there");
                let mut sink = Sink::default();
                let sent = opened.send_visited(changing(), &mut sink).await;
                (seen, sent.err())
            });
            assert!(!seen, "after {after}");
            let error = sent.expect("it is another version");
            assert_eq!(error.sentence(), "the file changed while it was read");
        }
    }
}
