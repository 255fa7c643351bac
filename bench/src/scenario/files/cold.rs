//! Files that are on the disk only, and how long the server is ever away while it waits for them.

use std::cell::Cell;

use anyhow::{Context, Result, ensure};
use futures_util::future::try_join;

use super::super::turns::skip;
use super::super::{GROWTH, Sample, measure, take_turns};
use super::get::{CPU, RATE};
use super::reader::{ANYONE, Reader, discard};
use super::small::MEDIUM;
use crate::bench::Bench;
use crate::cpu;
use crate::fixture::{FileSet, can_be_cold, chill};
use crate::load::{Connection, Latencies, Manner, Request, awake, closed_loop};
use crate::memory::disk_read_bytes;
use crate::results::{Metric, ScenarioResults};

pub(crate) const STALL_MAX: Metric = Metric::low("longest health request meanwhile", "ms");
/// A round in which the host took time from us says nothing about the server's own pauses.
pub(crate) const STOLEN: Metric = Metric::low("taken by the host meanwhile", "ms");
const HEALTH: Metric = Metric::low("health meanwhile", "us");
const CPU_EACH: Metric = Metric::low("CPU", "us/request").main();
const RATE_EACH: Metric = Metric::high("rate", "requests/s");
const LATENCY: Metric = Metric::low("latency", "us");

/// The large file.
pub(super) async fn large(bench: &Bench, out: &mut ScenarioResults) -> Result<()> {
    let cold = Cold {
        set: FileSet::of(bench.large()?),
        requests: 1,
    };
    cold.run(bench, out, |sample, cost| {
        sample.put(CPU, cost.reading.cpu_per_gib(cost.bytes));
        sample.put(RATE, cost.reading.gib_per_s(cost.bytes));
        sample.put(GROWTH, cost.reading.grown_mib);
    })
    .await
}

/// One file of 64 KiB after the other.
pub(super) async fn medium(bench: &Bench, out: &mut ScenarioResults) -> Result<()> {
    let set = MEDIUM.open(bench)?;
    let requests = set.paths.len().min(bench.sizes.requests);
    let cold = Cold { set, requests };
    cold.run(bench, out, |sample, cost| {
        sample.put(CPU_EACH, cost.reading.cpu_us_each(requests));
        sample.put(RATE_EACH, requests as f64 / cost.reading.wall_s);
        sample.latencies(LATENCY, cost.latencies, None);
    })
    .await
}

/// Files that are read from the disk, each once in a pass.
struct Cold {
    set: FileSet,
    requests: usize,
}

/// What a pass cost.
struct Cost {
    reading: super::super::measure::Reading,
    latencies: Latencies,
    bytes: u64,
}

impl Cold {
    async fn run(
        &self,
        bench: &Bench,
        out: &mut ScenarioResults,
        put: impl Fn(&mut Sample, Cost),
    ) -> Result<()> {
        if !can_be_cold(bench.dir())? {
            for spec in &bench.specs {
                skip(bench, out, &spec.name, "files here cannot be made cold");
            }
            return Ok(());
        }
        out.notes
            .push("CPU and rate are those of a pass of its own.".to_owned());
        out.notes.push(format!(
            "In a second pass another connection asks for the health again and again. While the host takes time from \
             this machine it is repeated, {TRIES} times at most, and the least disturbed one counts."
        ));
        let readers = Reader::open(bench, out, ANYONE.shared_files(), &self.set).await?;
        take_turns(
            bench,
            out,
            readers,
            async |reader| {
                self.chill()?;
                reader.check(&self.set, 1).await
            },
            async |reader| {
                let mut sample = Sample::default();
                put(&mut sample, self.pass(reader).await?);
                let stall = self.least_disturbed(reader).await?;
                sample.put(STALL_MAX, stall.waits.percentile_us(100.0) / 1e3);
                sample.put(STOLEN, stall.stolen_ms);
                sample.latencies(HEALTH, stall.waits, None);
                Ok(sample)
            },
        )
        .await
    }

    fn chill(&self) -> Result<()> {
        self.set.paths.iter().try_for_each(|path| chill(path))
    }

    async fn pass(&self, reader: &Reader) -> Result<Cost> {
        self.chill()?;
        let bytes = self.set.bytes * self.requests as u64;
        let read = || reader.target.pid().and_then(disk_read_bytes);
        let read_before = read();
        let mut connections = reader.connect(Manner::Spin, 1).await?;
        let work = closed_loop(&mut connections, self.requests, self.exchange(reader));
        let (reading, latencies) = measure(&reader.target, work).await?;
        if let (Some(before), Some(after)) = (read_before, read()) {
            let came = after - before;
            ensure!(
                came >= bytes / 2,
                "the files were not cold: {came} of {bytes} bytes came from the disk"
            );
        }
        Ok(Cost {
            reading,
            latencies,
            bytes,
        })
    }

    fn exchange(&self, reader: &Reader) -> impl AsyncFn(&mut Connection, usize) -> Result<()> {
        async |connection, index| discard(connection, reader.get(index), 200, self.set.bytes).await
    }

    async fn least_disturbed(&self, reader: &Reader) -> Result<Stall> {
        let mut least: Option<Stall> = None;
        for _ in 0..TRIES {
            let stall = self.watched_pass(reader).await?;
            let is_undisturbed = stall.stolen_ms <= 0.0;
            if least
                .as_ref()
                .is_none_or(|least| stall.stolen_ms < least.stolen_ms)
            {
                least = Some(stall);
            }
            if is_undisturbed {
                break;
            }
        }
        least.context("it was never tried")
    }

    async fn watched_pass(&self, reader: &Reader) -> Result<Stall> {
        self.chill()?;
        let mut connections = reader.connect(Manner::Ready, 1).await?;
        let mut probe = reader.target.connect(Manner::Ready)?;
        let is_done = Cell::new(false);
        let files = async {
            let exchange = self.exchange(reader);
            closed_loop(&mut connections, self.requests, exchange).await?;
            is_done.set(true);
            Ok(())
        };
        let stolen_before = cpu::stolen_ms();
        let (waits, ()) = awake(try_join(ask_until(&mut probe, &is_done), files)).await?;
        Ok(Stall {
            waits,
            stolen_ms: cpu::stolen_ms() - stolen_before,
        })
    }
}

/// How long health requests waited while files were read.
struct Stall {
    waits: Latencies,
    stolen_ms: f64,
}

/// So many tries for one that the host does not disturb.
const TRIES: usize = 3;

/// Asks for the health again and again. The request that is under way at the end counts as well.
async fn ask_until(probe: &mut Connection, is_done: &Cell<bool>) -> Result<Latencies> {
    let mut waits = Latencies::new();
    while !is_done.get() {
        let asked = std::time::Instant::now();
        probe.demand(Request::get("/v1/health"), 200).await?;
        waits.record_since(asked);
    }
    Ok(waits)
}
