//! The second ring of the thread: batches of linked open, read and close for small files that are not cached.

use std::cell::{Cell, RefCell};
use std::ffi::CString;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;

use io_uring::squeue::Flags;
use io_uring::types::{DestinationSlot, Fd as RingFd, Fixed, OpenHow};
use io_uring::{IoUring, opcode};

use super::{Fd, driver, pool};

/// Files per batch at most.
pub const MOST: usize = 256;

/// A small file to read whole.
#[derive(Clone)]
pub struct Wanted {
    /// The directory that holds it.
    pub dir: Arc<OwnedFd>,
    /// Its name in that directory: one component, never followed if it is a symbolic link.
    pub name: CString,
    /// Bytes to read from its start.
    pub size: usize,
}

/// Reads each file of `wanted`, at most [`MOST`], and answers the bytes in the same order.
///
/// A shorter answer than `size` means that the file is shorter now.
pub async fn read_files(wanted: Vec<Wanted>) -> Vec<io::Result<Vec<u8>>> {
    assert!(wanted.len() <= MOST, "a batch has at most {MOST} files");
    if let Some(ring) = ring()
        && let Some(files) = ring.read(&wanted).await
    {
        return files;
    }
    let count = wanted.len();
    match pool::run(move || wanted.iter().map(read_blocking).collect()).await {
        Ok(files) => files,
        Err(error) => {
            let text = error.to_string();
            (0..count)
                .map(|_| Err(io::Error::other(text.clone())))
                .collect()
        }
    }
}

fn read_blocking(wanted: &Wanted) -> io::Result<Vec<u8>> {
    use rustix::fs::{Mode, OFlags};
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let fd = rustix::fs::openat(&wanted.dir, &wanted.name, flags, Mode::empty())?;
    let mut bytes = Vec::with_capacity(wanted.size);
    while bytes.len() < wanted.size {
        let at = bytes.len() as u64;
        let room = wanted.size - bytes.len();
        let mut piece = Vec::with_capacity(room);
        rustix::io::pread(&fd, rustix::buffer::spare_capacity(&mut piece), at)?;
        if piece.is_empty() {
            break;
        }
        bytes.extend_from_slice(&piece[..piece.len().min(room)]);
    }
    Ok(bytes)
}

pub(super) struct Ring {
    ring: RefCell<IoUring>,
    bell: Fd,
    busy: super::notify::Event,
    taken: Cell<bool>,
}

thread_local! {
    static RING: RefCell<Option<Option<Rc<Ring>>>> = const { RefCell::new(None) };
    static PASSED: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
}

/// How many operations this thread has given to its second ring, and how many have come back.
pub(super) fn passed() -> (u64, u64) {
    PASSED.get()
}

/// The ring of this thread, made at the first use; `None` where it cannot be had.
pub(super) fn ring() -> Option<Rc<Ring>> {
    if !driver::has_uring() {
        return None;
    }
    if let Some(known) = RING.with_borrow(Clone::clone) {
        return known;
    }
    let made = Ring::new().map(Rc::new);
    if let Err(error) = &made {
        tracing::warn!(%error, "no second ring: cold files are read on the blocking pool");
    }
    let made = made.ok();
    RING.set(Some(made.clone()));
    made
}

/// What the kernel reads and writes while a batch is under way: it must stay where it is until every answer is in.
struct Slot {
    name: CString,
    how: OpenHow,
    bytes: Vec<u8>,
    size: u32,
    opened: i32,
    read: i32,
}

impl Ring {
    fn new() -> io::Result<Self> {
        let slots = u32::try_from(MOST).map_err(io::Error::other)?;
        let ring = IoUring::new(slots * 3)?;
        ring.submitter().register_files_sparse(slots)?;
        let flags = rustix::event::EventfdFlags::CLOEXEC | rustix::event::EventfdFlags::NONBLOCK;
        let bell = rustix::event::eventfd(0, flags)?;
        ring.submitter().register_eventfd(bell.as_raw_fd())?;
        Ok(Self {
            ring: RefCell::new(ring),
            bell: Fd::new(bell)?,
            busy: super::notify::Event::default(),
            taken: Cell::new(false),
        })
    }

    /// One batch at a time; `None` when the ring failed and the caller must read another way.
    async fn read(self: Rc<Self>, wanted: &[Wanted]) -> Option<Vec<io::Result<Vec<u8>>>> {
        while self.taken.get() {
            self.busy.next().await;
        }
        self.taken.set(true);
        let dirs: Vec<_> = wanted.iter().map(|file| Arc::clone(&file.dir)).collect();
        let slots = wanted.iter().map(Slot::of).collect();
        // The batch runs as a task of its own, so that a caller who gives up leaves no buffer behind in the kernel.
        let batch = super::detached("batch", async move {
            let slots = self.run(slots, &dirs).await;
            self.taken.set(false);
            self.busy.happen();
            slots
        });
        let slots = batch.await??;
        Some(slots.into_iter().map(Slot::outcome).collect())
    }

    async fn run(&self, slots: Vec<Slot>, dirs: &[Arc<OwnedFd>]) -> Option<Vec<Slot>> {
        // The kernel may write to the slots until every answer is in: until then nothing may free them.
        let mut slots = ManuallyDrop::new(slots);
        let expected = slots.len() * 3;
        if let Err(error) = self.submit(&mut slots, dirs) {
            return retire(&error);
        }
        let mut arrived = 0;
        loop {
            arrived += self.collect(&mut slots);
            if arrived >= expected {
                return Some(ManuallyDrop::into_inner(slots));
            }
            if let Err(error) = self.bell.readable().await {
                return retire(&error);
            }
            let mut count = [0u8; 8];
            let _ = rustix::io::read(&self.bell, &mut count);
        }
    }

    #[expect(unsafe_code, reason = "submission entries carry raw pointers")]
    fn submit(&self, slots: &mut [Slot], dirs: &[Arc<OwnedFd>]) -> io::Result<()> {
        let mut ring = self.ring.borrow_mut();
        for (index, (slot, dir)) in slots.iter_mut().zip(dirs).enumerate() {
            let number = u32::try_from(index).unwrap_or(0);
            let user = u64::from(number) << 2;
            let place = DestinationSlot::try_from_slot_target(number)
                .map_err(|_| io::Error::other("slot out of range"))?;
            let dir = RingFd(dir.as_fd().as_raw_fd());
            let open = opcode::OpenAt2::new(dir, slot.name.as_ptr(), &raw const slot.how)
                .file_index(Some(place))
                .build()
                .flags(Flags::IO_LINK)
                .user_data(user);
            let read = opcode::Read::new(Fixed(number), slot.bytes.as_mut_ptr(), slot.size)
                .build()
                .flags(Flags::IO_HARDLINK)
                .user_data(user | 1);
            let close = opcode::Close::new(Fixed(number))
                .build()
                .user_data(user | 2);
            // SAFETY: the name, the how and the buffer live on the heap in `slots`, which `run` does not free before
            // all answers are in, or ever when the ring fails; the directory is kept open by `dirs` as long.
            unsafe {
                let mut queue = ring.submission();
                queue
                    .push_multiple(&[open, read, close])
                    .map_err(io::Error::other)?;
            }
        }
        while !ring.submission().is_empty() {
            match ring.submit() {
                Ok(count @ 1..) => {
                    let (submitted, completed) = PASSED.get();
                    PASSED.set((submitted + count as u64, completed));
                }
                Ok(0) => return Err(io::Error::other("the ring takes no entry")),
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                Err(_) => {}
            }
        }
        Ok(())
    }

    fn collect(&self, slots: &mut [Slot]) -> usize {
        let mut ring = self.ring.borrow_mut();
        let mut arrived = 0;
        for entry in ring.completion() {
            arrived += 1;
            let index = usize::try_from(entry.user_data() >> 2).unwrap_or(usize::MAX);
            let Some(slot) = slots.get_mut(index) else {
                continue;
            };
            match entry.user_data() & 3 {
                0 => slot.opened = entry.result(),
                1 => slot.read = entry.result(),
                _ => {}
            }
        }
        let (submitted, completed) = PASSED.get();
        PASSED.set((submitted, completed + arrived as u64));
        arrived
    }
}

/// Gives the second ring up for good: what it still holds of a batch is never freed.
fn retire(error: &io::Error) -> Option<Vec<Slot>> {
    tracing::warn!(%error, "the second ring failed: cold files are read on the blocking pool");
    RING.set(Some(None));
    None
}

impl Slot {
    fn of(wanted: &Wanted) -> Self {
        let how = OpenHow::new()
            .flags(
                (libc::O_RDONLY | libc::O_NOFOLLOW | libc::O_NONBLOCK)
                    .cast_unsigned()
                    .into(),
            )
            .resolve(libc::RESOLVE_NO_MAGICLINKS);
        Self {
            name: wanted.name.clone(),
            how,
            bytes: Vec::with_capacity(wanted.size),
            size: u32::try_from(wanted.size).unwrap_or(u32::MAX),
            opened: 0,
            read: 0,
        }
    }

    #[expect(
        unsafe_code,
        reason = "the kernel has filled the buffer, its length must be told"
    )]
    fn outcome(mut self) -> io::Result<Vec<u8>> {
        if self.opened < 0 {
            return Err(io::Error::from_raw_os_error(-self.opened));
        }
        let Ok(count) = usize::try_from(self.read) else {
            return Err(io::Error::from_raw_os_error(-self.read));
        };
        assert!(
            count <= self.bytes.capacity(),
            "the kernel wrote past a buffer"
        );
        // SAFETY: the kernel has written `count` bytes from the start, and `count` is within the capacity.
        unsafe { self.bytes.set_len(count) };
        Ok(self.bytes)
    }
}
