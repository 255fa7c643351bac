//! The load side: HTTP/1.1 connections on tokio-uring, which copy and wake as little as they can.

mod connection;
mod head;
mod incoming;
mod latencies;
mod many;
mod registered;
mod request;
mod timer;
mod unsupported;

use std::net::SocketAddr;

pub(crate) use connection::{Answer, Connection};
pub(crate) use head::Head;
pub(crate) use latencies::Latencies;
pub(crate) use many::{at_rate, awake, closed_loop, open_many};
pub(crate) use registered::STEP_BYTES;
pub(crate) use request::Request;
pub(crate) use unsupported::Unsupported;

/// Where a daemon is reached, and as whom.
#[derive(Clone, Debug)]
pub(crate) struct Endpoint {
    pub(crate) address: SocketAddr,
    /// Bearer token; may be empty.
    pub(crate) token: String,
}

/// How a connection waits for the server and what it does with bodies that nobody looks at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Manner {
    /// Never sleeps, so the server never pays for waking it; bodies are dropped uncopied (MSG_TRUNC of tcp(7)).
    /// Shows the server's own cost. For one connection at a time: it holds up all others.
    Spin,
    /// Waits until the socket is readable; bodies are dropped uncopied. For many connections.
    Ready,
    /// An ordinary client: receives into registered buffers, and copies what it receives. Shows what a user sees.
    Ring,
}

/// Runs the load side on this thread.
///
/// The registered buffers live as long as the ring.
pub(crate) fn start<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio_uring::start(async {
        registered::register()?;
        work.await
    })
}
