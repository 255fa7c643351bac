//! Logging that never stops the thread: JSON lines to stderr, bounded in memory, with drops counted and said.
//!
//! Lines go out by non-blocking writes. What stderr does not take waits in a queue of [`MOST_WAITING`] bytes; past
//! that, lines are dropped, and the next line that fits says how many.

use std::collections::VecDeque;
use std::io::{self, IsTerminal, Write};
use std::sync::{Mutex, PoisonError};

use rustix::event::{PollFd, PollFlags, Timespec};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::prelude::*;

/// Starts logging with the filter that [`check`] has accepted.
pub fn start(filter: &str) {
    let targets: Targets = filter.parse().unwrap_or_default();
    let base = tracing_subscriber::registry().with(targets);
    let layer = tracing_subscriber::fmt::layer().with_writer(Stderr);
    let started = if io::stderr().is_terminal() {
        base.with(layer).try_init()
    } else {
        base.with(layer.json()).try_init()
    };
    // A second start in one process (tests) keeps the first.
    drop(started);
    // The default hook writes to stderr by itself, which may block, and tells what the panic says.
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string);
        tracing::error!(place, "panic");
    }));
}

/// Checks the syntax of a filter: `info`, or `ringd=debug,info`.
///
/// # Errors
/// A sentence that names the part that is not understood.
pub fn check(filter: &str) -> Result<(), String> {
    filter
        .parse::<Targets>()
        .map(drop)
        .map_err(|error| format!("{filter:?} is not a log filter: {error}"))
}

/// Tries again to write what is waiting; answers whether anything still waits.
pub fn flush() -> bool {
    let mut queue = QUEUE.lock().unwrap_or_else(PoisonError::into_inner);
    queue.drain();
    !queue.bytes.is_empty()
}

/// Lines that were dropped since the start.
pub fn dropped() -> u64 {
    QUEUE.lock().unwrap_or_else(PoisonError::into_inner).dropped
}

/// Bytes of log that wait for stderr at most.
pub const MOST_WAITING: usize = 256 * 1024;

/// A pipe that polls as writable takes this many bytes without blocking (pipe(7), PIPE_BUF).
const PIECE: usize = 4096;

static QUEUE: Mutex<Queue> = Mutex::new(Queue {
    bytes: VecDeque::new(),
    unsaid: 0,
    dropped: 0,
});

struct Queue {
    bytes: VecDeque<u8>,
    /// Lines that were dropped since that was last said.
    unsaid: u64,
    dropped: u64,
}

impl Queue {
    fn push(&mut self, line: &[u8]) {
        self.drain();
        if self.bytes.len() + line.len() > MOST_WAITING {
            self.unsaid += 1;
            self.dropped += 1;
            return;
        }
        if self.unsaid > 0 {
            let lost = std::mem::take(&mut self.unsaid);
            let said = format!(
                "{{\"level\":\"WARN\",\"fields\":{{\"message\":\"log lines were dropped\",\"count\":{lost}}},\"target\":\"ringd::log\"}}\n"
            );
            self.bytes.extend(said.as_bytes());
        }
        self.bytes.extend(line);
        self.drain();
    }

    fn drain(&mut self) {
        while !self.bytes.is_empty() && takes_more() {
            let (front, _) = self.bytes.as_slices();
            let piece = &front[..front.len().min(PIECE)];
            match rustix::io::write(rustix::stdio::stderr(), piece) {
                Ok(written) => drop(self.bytes.drain(..written)),
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => return,
                // Nobody will ever read it: stderr is closed.
                Err(_) => self.bytes.clear(),
            }
        }
    }
}

fn takes_more() -> bool {
    let stderr = rustix::stdio::stderr();
    let mut polled = [PollFd::new(&stderr, PollFlags::OUT)];
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    matches!(rustix::event::poll(&mut polled, Some(&now)), Ok(1))
}

struct Stderr;

struct Line(Vec<u8>);

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if !self.0.is_empty() {
            let mut queue = QUEUE.lock().unwrap_or_else(PoisonError::into_inner);
            queue.push(&self.0);
        }
    }
}

impl MakeWriter<'_> for Stderr {
    type Writer = Line;

    fn make_writer(&self) -> Line {
        Line(Vec::with_capacity(256))
    }
}
