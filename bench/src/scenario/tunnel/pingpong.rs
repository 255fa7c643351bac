//! One byte at a time there and back: what a tunnel adds to the latency of a connection.

use std::net::Ipv4Addr;
use std::time::Instant;

use anyhow::{Result, ensure};
use tokio::net::TcpListener;

use super::super::turns::Entrant;
use super::super::{Sample, measure, opened, take_turns};
use super::near::Near;
use super::{BARE, Kind, NEEDS, dug};
use crate::bench::Bench;
use crate::load::{Frame, Latencies, Manner, Peer};
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
    out.notes.push(BARE.to_owned());
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
            let (mut near, mut far) = dug(target, Manner::Spin, Kind::Plain).await?;
            let trips = trips(&mut near, &mut far, count);
            let (reading, times) = measure(target, trips).await?;
            drop(far);
            near.close().await?;
            Ok((times, reading.cpu_us_each(count)))
        }
        Way::Direct => {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
            let near = Peer::connect(listener.local_addr()?, Manner::Spin)?;
            let mut far = Peer::accept(&listener, Manner::Spin).await?;
            let times = trips(&mut Near::Plain(near), &mut far, count).await?;
            Ok((times, None))
        }
    }
}

async fn trips(near: &mut Near, far: &mut Peer, count: usize) -> Result<Latencies> {
    let mut times = Latencies::new();
    for byte in (0..=u8::MAX).cycle().take(count) {
        let frame = Frame::of(&[byte]);
        let is_it = |bytes: &[u8]| {
            ensure!(bytes == [byte], "a wrong byte came out");
            Ok(())
        };
        let start = Instant::now();
        near.send(&frame).await?;
        far.receive(1, is_it).await?;
        far.send(&[byte]).await?;
        near.receive(1, is_it).await?;
        times.record_since(start);
    }
    Ok(times)
}

const CHECKED: usize = 256;
