//! Which driver runs, and why: a probe at start, then one runtime for the life of the process.

use std::cell::RefCell;
use std::fmt;
use std::future::Future;
use std::io;
use std::str::FromStr;

use super::{batch, clock, pool, rings, turn};

/// What the operator asked for (`--driver`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// io_uring where the kernel allows it, else epoll.
    Auto,
    /// io_uring, or an error at start.
    Uring,
    /// epoll.
    Epoll,
}

impl FromStr for Choice {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "auto" => Ok(Self::Auto),
            "uring" => Ok(Self::Uring),
            "epoll" => Ok(Self::Epoll),
            _ => Err(()),
        }
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Uring => "uring",
            Self::Epoll => "epoll",
        })
    }
}

/// The driver in force and the reason for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Driver {
    /// True for io_uring, false for epoll.
    pub uring: bool,
    /// A short reason for the log: what was asked, what the kernel answered.
    pub why: String,
}

impl Driver {
    /// `io_uring` or `epoll`.
    pub fn name(&self) -> &'static str {
        if self.uring { "io_uring" } else { "epoll" }
    }
}

thread_local! {
    static RUNNING: RefCell<Option<Driver>> = const { RefCell::new(None) };
}

/// The driver of this thread; `None` outside [`start`].
pub fn running() -> Option<Driver> {
    RUNNING.with_borrow(Clone::clone)
}

/// True when files go through a ring on this thread.
pub(super) fn has_uring() -> bool {
    RUNNING.with_borrow(|driver| driver.as_ref().is_some_and(|driver| driver.uring))
}

/// Runs `main` to its end on a runtime of this thread.
///
/// The runtime is never torn down with operations in flight: the caller leaves by `process::exit`.
///
/// # Errors
/// `choice` is `Uring` and the kernel refuses a ring, or not even epoll can be set up.
pub fn start<F: Future<Output = i32>>(choice: Choice, main: F) -> io::Result<i32> {
    let (driver, runtime) = build(choice)?;
    RUNNING.set(Some(driver));
    let main = async {
        open_all();
        main.await
    };
    Ok(match runtime {
        Runtime::Uring(mut runtime) => {
            let code = runtime.block_on(main);
            std::mem::forget(runtime);
            code
        }
        Runtime::Epoll(mut runtime) => {
            let code = runtime.block_on(main);
            std::mem::forget(runtime);
            code
        }
    })
}

enum Runtime {
    Uring(monoio::Runtime<monoio::IoUringDriver>),
    Epoll(monoio::Runtime<monoio::LegacyDriver>),
}

/// Builds the runtime that the probe speaks for; what fails to build falls back like what fails the probe.
fn build(choice: Choice) -> io::Result<(Driver, Runtime)> {
    let mut driver = probe(choice)?;
    if driver.uring {
        let built = monoio::RuntimeBuilder::<monoio::IoUringDriver>::new()
            .uring_builder(ring_flags())
            .with_entries(ENTRIES)
            .build();
        match built {
            Ok(runtime) => return Ok((driver, Runtime::Uring(runtime))),
            Err(error) if choice == Choice::Uring => return Err(error),
            Err(error) => {
                driver = Driver {
                    uring: false,
                    why: format!("an io_uring of {ENTRIES} entries cannot be had: {error}"),
                };
            }
        }
    }
    let runtime = monoio::RuntimeBuilder::<monoio::LegacyDriver>::new()
        .with_entries(ENTRIES)
        .build()?;
    Ok((driver, Runtime::Epoll(runtime)))
}

/// Opens what this thread will need, so that running out of descriptors later takes nothing away from it.
fn open_all() {
    rings::find_main();
    let pool = pool::open().is_ok();
    let turn = turn::bell().is_some();
    let clock = clock::open().is_ok();
    let second_ring = batch::ring().is_some();
    tracing::debug!(pool, turn, clock, second_ring, "opened");
}

fn probe(choice: Choice) -> io::Result<Driver> {
    if choice == Choice::Epoll {
        return Ok(Driver {
            uring: false,
            why: "asked for by --driver epoll".into(),
        });
    }
    let asked = if choice == Choice::Uring {
        "asked for"
    } else {
        "automatic"
    };
    match ring_flags().build(8) {
        Ok(ring) => {
            let mut probe = io_uring_06::Probe::new();
            let known = ring.submitter().register_probe(&mut probe).is_ok()
                && NEEDED.iter().all(|code| probe.is_supported(*code));
            match (known, choice) {
                (true, _) => Ok(Driver {
                    uring: true,
                    why: format!("{asked}; the kernel has every operation needed"),
                }),
                (false, Choice::Uring) => Err(io::Error::other(
                    "the kernel's io_uring lacks an operation that ringd needs",
                )),
                (false, _) => Ok(Driver {
                    uring: false,
                    why: "the kernel's io_uring lacks an operation that ringd needs".into(),
                }),
            }
        }
        Err(error) if choice == Choice::Uring => {
            let kind = error.kind();
            Err(io::Error::new(
                kind,
                format!("io_uring is refused here: {error}"),
            ))
        }
        Err(error) => Ok(Driver {
            uring: false,
            why: format!("io_uring is refused here: {error}"),
        }),
    }
}

/// COOP_TASKRUN saves an interrupt per completion (kernel 5.19); older kernels take no flags.
fn ring_flags() -> io_uring_06::Builder {
    let mut builder = io_uring_06::IoUring::builder();
    builder.setup_coop_taskrun();
    if builder.build(8).is_err() {
        return io_uring_06::IoUring::builder();
    }
    builder
}

const ENTRIES: u32 = 1024;

const NEEDED: &[u8] = &[
    io_uring_06::opcode::PollAdd::CODE,
    io_uring_06::opcode::AsyncCancel::CODE,
    io_uring_06::opcode::Read::CODE,
    io_uring_06::opcode::Write::CODE,
    io_uring_06::opcode::Close::CODE,
];
