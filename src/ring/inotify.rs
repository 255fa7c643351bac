//! Changes of files as the kernel tells them (inotify(7)).

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;

use rustix::event::epoll;
use rustix::fs::inotify::{self, CreateFlags, Reader};
pub use rustix::fs::inotify::{ReadFlags, WatchFlags};
use rustix::io::Errno;

use super::{Fd, pool};

/// The queue of changes and its watches, for any thread.
///
/// The last close takes the kernel some milliseconds, so a helper does it.
#[derive(Clone)]
pub struct Watches(Arc<Queue>);

struct Queue(Option<OwnedFd>);

impl Drop for Queue {
    fn drop(&mut self) {
        if let Some(queue) = self.0.take() {
            pool::detach(move || drop(queue));
        }
    }
}

/// One change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The watch that tells it; -1 when the queue has overflowed.
    pub watch: i32,
    /// What happened.
    pub flags: ReadFlags,
    /// The same in both halves of a move.
    pub cookie: u32,
    /// The entry of the directory that is watched; `None` for the thing itself.
    pub name: Option<Vec<u8>>,
}

impl Watches {
    /// A queue without watches.
    ///
    /// # Errors
    /// `EMFILE` when the user has as many queues, or the process as many descriptors, as it may.
    pub fn new() -> io::Result<Self> {
        let queue = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        Ok(Self(Arc::new(Queue(Some(queue)))))
    }

    /// Watches what `target` stands for, and answers the number that its changes have. For helper threads.
    ///
    /// # Errors
    /// `ENOSPC` when the user has as many watches as it may.
    pub fn add(&self, target: impl AsFd, flags: WatchFlags) -> io::Result<i32> {
        // There is no call that takes a descriptor; this path leads to where it stands.
        let path = format!("/proc/self/fd/{}", target.as_fd().as_raw_fd());
        Ok(inotify::add_watch(self.queue()?, path, flags)?)
    }

    /// Ends a watch; one that has ended by itself is nothing special.
    pub fn remove(&self, watch: i32) {
        if let Ok(queue) = self.queue() {
            let _ = inotify::remove_watch(queue, watch);
        }
    }

    /// Takes changes that are there, as many as one call of the kernel tells; none when there are none.
    ///
    /// # Errors
    /// The queue failed, which does not happen while it is open.
    pub fn read(&self) -> io::Result<Vec<Change>> {
        let mut buffer = [MaybeUninit::uninit(); READ];
        let mut reader = Reader::new(self.queue()?, &mut buffer);
        let mut changes = Vec::new();
        loop {
            match reader.next() {
                Ok(event) => changes.push(Change {
                    watch: event.wd(),
                    flags: event.events(),
                    cookie: event.cookie(),
                    name: event.file_name().map(|name| name.to_bytes().to_vec()),
                }),
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => return Ok(changes),
                Err(errno) => return Err(errno.into()),
            }
            if reader.is_buffer_empty() {
                return Ok(changes);
            }
        }
    }

    fn queue(&self) -> io::Result<&OwnedFd> {
        // It is there until it is dropped.
        self.0.0.as_ref().ok_or(Errno::BADF.into())
    }
}

/// Waits for the changes of a queue.
///
/// What the driver watches is an epoll descriptor in front of the queue: the driver may keep what it watches a moment
/// longer than we do, and would then close the queue itself.
pub struct Bell {
    front: Fd,
}

impl Bell {
    /// A bell that rings while there are changes to be read.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn new(watches: &Watches) -> io::Result<Self> {
        let front = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let data = epoll::EventData::new_u64(0);
        epoll::add(&front, watches.queue()?, data, epoll::EventFlags::IN)?;
        Ok(Self {
            front: Fd::new(front)?,
        })
    }

    /// Waits until there may be changes; ask again when there are none.
    ///
    /// # Errors
    /// The driver failed.
    pub async fn rings(&self) -> io::Result<()> {
        self.front.readable().await
    }
}

/// Bytes read at once: at least one change with the longest name.
const READ: usize = 8 * 1024;
