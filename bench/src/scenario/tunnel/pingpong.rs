//! One byte at a time there and back: what a tunnel adds to the latency of a connection.

use std::net::Ipv4Addr;
use std::time::Instant;

use anyhow::{Result, ensure};
use tokio::net::TcpListener;

use super::super::turns::Entrant;
use super::super::{Sample, measure, opened, take_turns};
use super::{NEEDS, dug};
use crate::bench::Bench;
use crate::load::{Frame, Latencies, Manner, Peer, WebSocket};
use crate::results::{Metric, ScenarioResults};
use crate::target::{Placement, Target};

const CPU: Metric = Metric::low("CPU", "us/round trip").main();
const P50: Metric = Metric::low("round trip, p50", "us");
const P99: Metric = Metric::low("round trip, p99", "us");
const TIMES: Metric = Metric::low("round trip", "us");

/// How the bytes go.
enum Way {
    Tunnel(Target),
    /// Over a connection of their own.
    Direct,
}

impl Entrant for Way {
    fn name(&self) -> &str {
        match self {
            Self::Tunnel(target) => target.name(),
            Self::Direct => "direct",
        }
    }
}

pub(super) async fn run(bench: &Bench, out: &mut ScenarioResults) -> Result<()> {
    out.notes.push(
        "Both ends are in one thread of the load, which never sleeps; direct is a connection between them without a tunnel."
            .to_owned(),
    );
    let targets = opened(bench, out, NEEDS, Placement::ServerCpu).await?;
    let ways = targets.into_iter().map(Way::Tunnel);
    let ways = ways.chain([Way::Direct]).collect();
    take_turns(
        bench,
        out,
        ways,
        async |way| times(way, CHECKED).await.map(drop),
        async |way| {
            let count = bench.sizes.requests;
            let (times, cpu_us) = times(way, count).await?;
            let mut sample = Sample::default();
            sample.put(CPU, cpu_us);
            sample.put(P50, times.percentile_us(50.0));
            sample.put(P99, times.percentile_us(99.0));
            sample.latencies(TIMES, times, None);
            Ok(sample)
        },
    )
    .await
}

/// How long `count` round trips took, and what one cost the target.
async fn times(way: &Way, count: usize) -> Result<(Latencies, Option<f64>)> {
    match way {
        Way::Tunnel(target) => {
            let (mut socket, mut peer) = dug(target, Manner::Spin).await?;
            let trips = through(&mut socket, &mut peer, count);
            let (reading, times) = measure(target, trips).await?;
            socket.close().await?;
            Ok((times, reading.cpu_us_each(count)))
        }
        Way::Direct => {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
            let mut near = Peer::connect(listener.local_addr()?, Manner::Spin)?;
            let mut far = Peer::accept(&listener, Manner::Spin).await?;
            let times = beside(&mut near, &mut far, count).await?;
            Ok((times, None))
        }
    }
}

async fn through(socket: &mut WebSocket, peer: &mut Peer, count: usize) -> Result<Latencies> {
    let mut times = Latencies::new();
    for byte in (0..=u8::MAX).cycle().take(count) {
        let frame = Frame::of(&[byte]);
        let start = Instant::now();
        socket.send(&frame).await?;
        echo(peer).await?;
        let mut back = None;
        while back.is_none() {
            let sink = |bytes: &[u8]| {
                ensure!(back.is_none() && bytes == [byte], "a wrong byte came back");
                back = Some(byte);
                Ok(())
            };
            socket.receive(sink).await?;
        }
        times.record_since(start);
    }
    Ok(times)
}

async fn beside(near: &mut Peer, far: &mut Peer, count: usize) -> Result<Latencies> {
    let mut times = Latencies::new();
    for byte in (0..=u8::MAX).cycle().take(count) {
        let start = Instant::now();
        near.send(&[byte]).await?;
        echo(far).await?;
        let check = |bytes: &[u8]| {
            ensure!(bytes == [byte], "a wrong byte came back");
            Ok(())
        };
        near.receive(&mut [0], 1, check).await?;
        times.record_since(start);
    }
    Ok(times)
}

/// Sends one byte back.
async fn echo(peer: &mut Peer) -> Result<()> {
    let mut byte = [0];
    peer.receive(&mut byte, 1, |_| Ok(())).await?;
    peer.send(&byte).await
}

const CHECKED: usize = 256;
