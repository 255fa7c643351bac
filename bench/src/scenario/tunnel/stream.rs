//! A stream through a tunnel, one way after the other.

use anyhow::{Result, ensure};
use futures_util::future::try_join;

use super::super::{GROWTH, LOAD, Sample, measure, opened, take_turns};
use super::near::Near;
use super::{BARE, Kind, NEEDS, VERIFIED_NEEDS, dug, filled_in};
use crate::bench::Bench;
use crate::fixture::{MIB, Noise};
use crate::load::{Frame, Manner, Peer};
use crate::results::{Metric, ScenarioResults};
use crate::target::{Placement, Target};

const CPU: Metric = Metric::low("CPU, both ways", "CPU-s/GiB").main();
const CPU_IN: Metric = Metric::low("CPU, into the guest", "CPU-s/GiB");
const CPU_OUT: Metric = Metric::low("CPU, out of the guest", "CPU-s/GiB");
const RATE_IN: Metric = Metric::high("rate, into the guest", "GiB/s");
const RATE_OUT: Metric = Metric::high("rate, out of the guest", "GiB/s");

pub(super) async fn run(bench: &Bench, out: &mut ScenarioResults, kind: Kind) -> Result<()> {
    let (notes, needs) = match kind {
        Kind::Plain => ([MESSAGES, BARE], NEEDS),
        Kind::Verified => ([SEALED, UNOPENED], VERIFIED_NEEDS),
    };
    out.notes.extend(notes.map(str::to_owned));
    let targets = opened(bench, out, needs, Placement::ServerCpu).await?;
    take_turns(
        bench,
        out,
        targets,
        async |target| check(target, kind).await,
        async |target| sample(bench, target, kind).await,
    )
    .await
}

async fn sample(bench: &Bench, target: &Target, kind: Kind) -> Result<Sample> {
    let bytes = bench.sizes.large_mib * MIB;
    let block = vec![0x5a; BLOCK_BYTES];
    let frame = Frame::of(&block);
    let (mut near, mut far) = dug(target, Manner::Ready, kind).await?;
    let (inward, _) = measure(target, {
        let sent = async {
            for _ in 0..bytes / BLOCK_BYTES as u64 {
                near.send(&frame).await?;
            }
            Ok(())
        };
        try_join(sent, far.discard(bytes))
    })
    .await?;
    let (outward, _) = measure(target, {
        let sent = async {
            for _ in 0..bytes / BLOCK_BYTES as u64 {
                far.send(&block).await?;
            }
            Ok(())
        };
        try_join(sent, near.discard(bytes))
    })
    .await?;
    filled_in(near, far).await?;
    let mut sample = Sample::default();
    let both = inward.cpu_s.zip(outward.cpu_s);
    let gib = (2 * bytes) as f64 / (1024 * MIB) as f64;
    sample.put(CPU, both.map(|(inward, outward)| (inward + outward) / gib));
    sample.put(CPU_IN, inward.cpu_per_gib(bytes));
    sample.put(CPU_OUT, outward.cpu_per_gib(bytes));
    sample.put(RATE_IN, inward.gib_per_s(bytes));
    sample.put(RATE_OUT, outward.gib_per_s(bytes));
    for reading in [inward, outward] {
        sample.bound_by_load(reading.is_load_bound());
    }
    sample.put(GROWTH, inward.grown_mib);
    let load_s = inward.load_cpu_s + outward.load_cpu_s;
    sample.put(LOAD, load_s / (inward.wall_s + outward.wall_s));
    Ok(sample)
}

/// Sends noise both ways, in pieces of many sizes, and compares every byte; then one end ends the other.
async fn check(target: &Target, kind: Kind) -> Result<()> {
    let mut noise = vec![0; CHECKED_BYTES];
    Noise::new(13).fill(&mut noise);
    let (mut near, mut far) = dug(target, Manner::Ready, kind).await?;
    into_the_guest(&mut near, &mut far, &noise).await?;
    out_of_the_guest(&mut near, &mut far, &noise).await?;
    filled_in(near, far).await
}

async fn into_the_guest(near: &mut Near, far: &mut Peer, noise: &[u8]) -> Result<()> {
    let sent = async {
        for part in pieces(noise) {
            near.send(&Frame::of(part)).await?;
        }
        Ok(())
    };
    let mut received = Received { noise, bytes: 0 };
    let taken = far.receive(noise.len() as u64, |bytes| received.take(bytes));
    try_join(sent, taken).await.map(drop)
}

async fn out_of_the_guest(near: &mut Near, far: &mut Peer, noise: &[u8]) -> Result<()> {
    let sent = async {
        for part in pieces(noise) {
            far.send(part).await?;
        }
        Ok(())
    };
    let mut received = Received { noise, bytes: 0 };
    let taken = near.receive(noise.len() as u64, |bytes| received.take(bytes));
    try_join(sent, taken).await.map(drop)
}

/// What came out of a tunnel, and what should.
struct Received<'a> {
    noise: &'a [u8],
    bytes: usize,
}

impl Received<'_> {
    fn take(&mut self, bytes: &[u8]) -> Result<()> {
        let rest = &self.noise[self.bytes..];
        ensure!(
            rest.starts_with(bytes),
            "a wrong byte, or one too many, after {}",
            self.bytes
        );
        self.bytes += bytes.len();
        Ok(())
    }
}

/// The whole in pieces of 1 byte, 3, 9 and so on, up to more than a message of 64 KiB.
fn pieces(mut rest: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut length = 1;
    std::iter::from_fn(move || {
        let (piece, others) = rest.split_at(length.min(rest.len()));
        rest = others;
        length = if length > BLOCK_BYTES { 1 } else { length * 3 };
        (!piece.is_empty()).then_some(piece)
    })
}

const MESSAGES: &str = "Our messages have 64 KiB, and a mask of zeros. Both ends are in the load's process, and drop what comes uncopied.";
const SEALED: &str = "Our messages have 32 KiB before they are encrypted, and a mask of zeros; the load encrypts them while it is measured.";
const UNOPENED: &str = "What comes out is decrypted and compared in the check only; the second generation of the handshake is spoken.";
const BLOCK_BYTES: usize = 64 << 10;
const CHECKED_BYTES: usize = 2 << 20;
