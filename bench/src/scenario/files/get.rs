//! Large files that are in the page cache, downloaded once.

use anyhow::Result;

use super::super::{GROWTH, LOAD, Sample, measure, take_turns};
use super::reader::{ANYONE, Reader, discard};
use crate::bench::Bench;
use crate::fixture::{FileSet, MIB};
use crate::load::{Connection, Manner, closed_loop};
use crate::results::{Metric, ScenarioResults};

pub(super) const CPU: Metric = Metric::low("CPU", "CPU-s/GiB").main();
pub(super) const RATE: Metric = Metric::high("rate", "GiB/s");
pub(super) const CPU_ORDINARY: Metric = Metric::low("CPU, ordinary client", "CPU-s/GiB");
pub(super) const RATE_ORDINARY: Metric = Metric::high("rate, ordinary client", "GiB/s");

/// One file over one connection.
pub(super) async fn large(bench: &Bench, out: &mut ScenarioResults) -> Result<()> {
    let set = FileSet::of(bench.large()?);
    download(bench, out, &set, &[Manner::Spin, Manner::Ring]).await
}

/// The same amount in shares, each a file of its own over a connection of its own.
pub(super) async fn large_shared(bench: &Bench, out: &mut ScenarioResults) -> Result<()> {
    let share = bench.sizes.large_mib * MIB / SHARES as u64;
    let set = FileSet::open(bench.dir(), SHARES, share)?;
    download(bench, out, &set, &[Manner::Ready]).await
}

const SHARES: usize = 16;

/// All files of a set at once.
async fn download(
    bench: &Bench,
    out: &mut ScenarioResults,
    set: &FileSet,
    manners: &[Manner],
) -> Result<()> {
    let count = set.paths.len();
    let total = set.bytes * count as u64;
    let readers = Reader::open(bench, out, ANYONE, set).await?;
    take_turns(
        bench,
        out,
        readers,
        async |reader| reader.check(set, count).await,
        async |reader| {
            let exchange = async |connection: &mut Connection, index: usize| {
                discard(connection, reader.get(index), 200, set.bytes).await
            };
            let mut sample = Sample::default();
            for manner in manners {
                let mut connections = reader.connect(*manner, count).await?;
                let work = closed_loop(&mut connections, count, exchange);
                let (reading, _) = measure(&reader.target, work).await?;
                let (cpu, rate) = match manner {
                    Manner::Ring => (CPU_ORDINARY, RATE_ORDINARY),
                    Manner::Spin | Manner::Ready => (CPU, RATE),
                };
                sample.put(cpu, reading.cpu_per_gib(total));
                sample.put(rate, reading.gib_per_s(total));
                if *manner != Manner::Spin {
                    sample.put(GROWTH, reading.grown_mib);
                    sample.put(LOAD, reading.load_share());
                    sample.bound_by_load(reading.is_load_bound());
                }
            }
            Ok(sample)
        },
    )
    .await
}
