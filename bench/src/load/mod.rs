//! The load side: HTTP/1.1 connections on tokio-uring, which copy and wake as little as they can.

mod account;
mod connection;
mod events;
mod follower;
mod frames;
mod head;
mod incoming;
mod latencies;
mod many;
mod peer;
mod registered;
mod request;
mod script;
mod timer;
mod unsupported;
mod verified;
mod websocket;

use std::net::SocketAddr;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

pub(crate) use connection::Connection;
pub(crate) use follower::{Follower, Form};
pub(crate) use head::Head;
pub(crate) use latencies::Latencies;
pub(crate) use many::{at_rate, at_rate_while, awake, closed_loop, open_many};
pub(crate) use peer::Peer;
pub(crate) use registered::STEP_BYTES;
pub(crate) use request::Request;
pub(crate) use script::Script;
pub(crate) use unsupported::{Unsupported, wanted};
pub(crate) use verified::{IDENTITY, Verified};
pub(crate) use websocket::{Frame, WebSocket};

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
/// The registered buffers live as long as the ring. As many descriptors are allowed as may be: a connection takes two.
pub(crate) fn start<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let most = getrlimit(Resource::Nofile).maximum;
    let all = Rlimit {
        current: most,
        maximum: most,
    };
    setrlimit(Resource::Nofile, all)?;
    tokio_uring::start(async {
        registered::register()?;
        work.await
    })
}
