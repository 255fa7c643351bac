//! TCP connections that a target relays through a WebSocket (guest HTTP contract, section 8).

mod pingpong;
mod stream;

use std::net::Ipv4Addr;

use anyhow::{Context, Result};
use tokio::net::TcpListener;

use super::Scenario;
use crate::bench::Needs;
use crate::load::{Manner, Peer, WebSocket};
use crate::target::Target;

pub(super) const TABLE: &[Scenario] = &[
    Scenario {
        name: "tunnel-stream",
        title: "a stream goes through a tunnel, first to the program behind it, then back",
        run: |bench, out| Box::pin(stream::run(bench, out)),
    },
    Scenario {
        name: "tunnel-pingpong",
        title: "single bytes go through a tunnel and come back",
        run: |bench, out| Box::pin(pingpong::run(bench, out)),
    },
];

/// The program behind the tunnel is this one: the target must reach it.
const NEEDS: Needs = Needs::GUEST.shared_files();

/// Both ends of a new tunnel: ours, and that of the program behind it.
async fn dug(target: &Target, manner: Manner) -> Result<(WebSocket, Peer)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let route = format!("/v1/tcp?port={}", listener.local_addr()?.port());
    let socket = WebSocket::open(target.connect(manner)?, &route).await?;
    let peer = Peer::accept(&listener, manner).await;
    Ok((socket, peer.context("the tunnel leads nowhere")?))
}
