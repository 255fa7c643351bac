//! TCP connections that a target relays through a WebSocket (guest HTTP contract, section 8).

mod near;
mod pingpong;
mod stream;

use std::net::Ipv4Addr;

use anyhow::{Context, Result};
use futures_util::future::try_join;
use tokio::net::TcpListener;

use super::Scenario;
use crate::bench::Needs;
use crate::load::{Manner, Peer, Verified, WebSocket};
use crate::target::{Dialect, Target};

use near::Near;

pub(super) const TABLE: &[Scenario] = &[
    Scenario {
        name: "tunnel-stream",
        title: "a stream goes through a tunnel, first to the program behind it, then back",
        run: |bench, out| Box::pin(stream::run(bench, out, Kind::Plain)),
    },
    Scenario {
        name: "tunnel-verified",
        title: "a stream goes through a tunnel whose ends have proved their keys and whose messages are encrypted, both ways",
        run: |bench, out| Box::pin(stream::run(bench, out, Kind::Verified)),
    },
    Scenario {
        name: "tunnel-pingpong",
        title: "single bytes go through a tunnel and come back",
        run: |bench, out| Box::pin(pingpong::run(bench, out)),
    },
];

/// The program behind the tunnel is this one: the target must reach it.
const NEEDS: Needs = Needs::dialects(&[Dialect::Guest, Dialect::Bare]).shared_files();
/// A loop without frames has no handshake either.
const VERIFIED_NEEDS: Needs = Needs::GUEST.shared_files();
/// What readers must know of the bare loop.
const BARE: &str = "bare splices between two sockets, without frames.";

/// What a tunnel asks of its ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Plain,
    Verified,
}

/// Both ends of a new tunnel: ours, and that of the program behind it.
async fn dug(target: &Target, manner: Manner, kind: Kind) -> Result<(Near, Peer)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let address = listener.local_addr()?;
    let connection = target.connect(manner)?;
    let near = match target.dialect {
        Dialect::Bare => Near::Plain(Peer::through(connection, address).await?),
        _ if kind == Kind::Verified => {
            Near::Verified(Box::new(Verified::open(connection, address.port()).await?))
        }
        _ => {
            let route = format!("/v1/tcp?port={}", address.port());
            Near::Framed(WebSocket::open(connection, &route).await?)
        }
    };
    let far = Peer::accept(&listener, manner).await;
    Ok((near, far.context("the tunnel leads nowhere")?))
}

/// Ends a tunnel as its users do: the program behind it ends, too, once it sees the end of what it is sent.
async fn filled_in(near: Near, mut far: Peer) -> Result<()> {
    let ended = async {
        let ended = far.ended().await;
        drop(far);
        ended.context("behind a tunnel that was closed")
    };
    try_join(near.close(), ended).await.map(drop)
}
