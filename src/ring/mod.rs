//! The kernel, asynchronously: the one room with unsafe code, and the only one that knows which driver runs.
//!
//! Sockets and pipes are driven by readiness ([`Fd`]): the ring says when, a plain system call moves the bytes.
//! So a dropped future loses nothing, an idle connection lends no buffer, and both drivers run one code path.
//! Files are read and written through the ring ([`file`]) or, under epoll, on the blocking pool.

pub mod batch;
pub mod buffers;
pub mod cgroup;
pub mod child;
pub mod clock;
pub mod copy;
mod driver;
pub mod fd;
pub mod file;
pub mod flow;
pub mod guard;
pub mod inotify;
pub mod listener;
pub mod local;
pub mod notify;
pub mod pool;
pub mod process;
pub mod rings;
pub mod signals;
pub mod socket;
mod turn;

pub use driver::{Choice, Driver, running, start};
pub use fd::Fd;
pub use flow::{Frame, Inflow, Outflow, Step};
pub use guard::{detached, spawn};
pub use turn::turn;
