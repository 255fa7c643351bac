//! Small files that are in the page cache, downloaded again and again.

use anyhow::{Result, ensure};

use super::super::{Sample, measure, take_turns};
use super::exchanges::Exchanges;
use super::reader::{ANYONE, Reader, discard};
use crate::bench::Bench;
use crate::fixture::FileSet;
use crate::load::{Connection, Manner, at_rate, awake};
use crate::results::{Metric, ScenarioResults};

/// A size of files, and how much is done with them.
pub(super) struct Size {
    pub(super) bytes: u64,
    /// So many files there are, unless fewer are asked for.
    pub(super) files: usize,
    /// One download for so many of `--requests`.
    pub(super) get_share: usize,
    /// One upload for so many of `--requests`: what is written takes room.
    pub(super) put_share: usize,
}

pub(super) const SMALL: Size = Size {
    bytes: 4 << 10,
    files: 1024,
    get_share: 1,
    put_share: 4,
};
pub(super) const MEDIUM: Size = Size {
    bytes: 64 << 10,
    files: 256,
    get_share: 1,
    put_share: 10,
};
pub(super) const LARGE: Size = Size {
    bytes: 1 << 20,
    files: 64,
    get_share: 10,
    put_share: 100,
};

impl Size {
    pub(super) fn open(&self, bench: &Bench) -> Result<FileSet> {
        let files = self.files.min(bench.sizes.requests.max(LEAST_FILES));
        FileSet::open(bench.dir(), files, self.bytes)
    }
}

/// Fewer would make their names too hot.
const LEAST_FILES: usize = 64;

/// One file after the other on each of the connections.
pub(super) async fn get(
    bench: &Bench,
    out: &mut ScenarioResults,
    size: Size,
    connections: usize,
) -> Result<()> {
    let set = size.open(bench)?;
    let exchanges = Exchanges {
        connections,
        requests: (bench.sizes.requests / size.get_share).max(connections),
    };
    let readers = Reader::open(bench, out, ANYONE, &set).await?;
    take_turns(
        bench,
        out,
        readers,
        async |reader| reader.check(&set, connections).await,
        async |reader| {
            let exchange = async |connection: &mut Connection, index: usize| {
                discard(connection, reader.get(index), 200, set.bytes).await
            };
            let mut sample = Sample::default();
            for manner in exchanges.manners() {
                let added = exchanges.add_to(&mut sample, &reader.target, *manner, exchange);
                added.await?;
            }
            Ok(sample)
        },
    )
    .await
}

/// Files are due at a constant rate.
pub(super) async fn get_at_rate(bench: &Bench, out: &mut ScenarioResults) -> Result<()> {
    let set = MEDIUM.open(bench)?;
    let (requests, rate) = (bench.sizes.requests, bench.sizes.rate);
    ensure!(rate > 0, "--rate 0: nothing is ever due");
    out.notes.push(format!(
        "{rate} requests are due in a second, over {CONNECTIONS} connections. The load side never sleeps meanwhile."
    ));
    let readers = Reader::open(bench, out, ANYONE, &set).await?;
    take_turns(
        bench,
        out,
        readers,
        async |reader| reader.check(&set, CONNECTIONS).await,
        async |reader| {
            let exchange = async |connection: &mut Connection, index: usize| {
                discard(connection, reader.get(index), 200, set.bytes).await
            };
            let mut connections = reader.connect(Manner::Ready, CONNECTIONS).await?;
            let work = at_rate(&mut connections, requests, rate, exchange);
            let (reading, latencies) = measure(&reader.target, awake(work)).await?;
            let mut sample = Sample::default();
            sample.put(CPU, reading.cpu_us_each(requests));
            sample.put(RATE, requests as f64 / reading.wall_s);
            sample.latencies(LATENCY, latencies, Some(f64::from(rate)));
            Ok(sample)
        },
    )
    .await
}

const CPU: Metric = Metric::low("CPU", "us/request").main();
const RATE: Metric = Metric::high("rate", "requests/s");
const LATENCY: Metric = Metric::low("latency", "us");
/// So many requests of the constant rate can be under way at once.
const CONNECTIONS: usize = 16;
