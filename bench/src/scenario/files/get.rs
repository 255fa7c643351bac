//! Files that are downloaded.

use std::path::Path;

use anyhow::{Result, ensure};

use super::super::{GROWTH, LOAD, Sample, measure, opened, take_turns};
use crate::bench::{Bench, Needs};
use crate::load::{Manner, Request};
use crate::results::{Metric, ScenarioResults};
use crate::target::{Dialect, Placement, Target};

const CPU: Metric = Metric::low("CPU", "CPU-s/GiB").main();
const RATE: Metric = Metric::high("rate", "GiB/s");
const CPU_COPY: Metric = Metric::low("CPU, ordinary client", "CPU-s/GiB");
const RATE_COPY: Metric = Metric::high("rate, ordinary client", "GiB/s");

pub(super) async fn large(bench: &Bench, out: &mut ScenarioResults) -> Result<()> {
    let needs = Needs::dialects(&[Dialect::Guest, Dialect::Plain, Dialect::Bare]);
    let targets = opened(bench, out, needs, Placement::ServerCpu).await?;
    let large = bench.large()?;
    take_turns(
        bench,
        out,
        targets,
        async |target| {
            let path = bench.provide(target, &large.path).await?;
            let (bytes, crc) = fetch(bench, target, &path).await?;
            ensure!(
                bytes == large.bytes,
                "{bytes} bytes came instead of {}",
                large.bytes
            );
            ensure!(
                target.dialect == Dialect::Bare || crc == large.crc,
                "a byte is wrong"
            );
            Ok(())
        },
        async |target| {
            let path = bench.provide(target, &large.path).await?;
            let mut sample = Sample::default();
            for (manner, cpu, rate) in [
                (Manner::Spin, CPU, RATE),
                (Manner::Ring, CPU_COPY, RATE_COPY),
            ] {
                let mut connection = target.connect(manner)?;
                let file = target.file(&path, bench.dir());
                let (reading, bytes) = measure(target, async {
                    connection.send(Request::get(&file)).await?;
                    connection.discard().await
                })
                .await?;
                ensure!(
                    bytes == large.bytes,
                    "{bytes} bytes came instead of {}",
                    large.bytes
                );
                sample.put(cpu, reading.cpu_per_gib(bytes));
                sample.put(rate, reading.gib_per_s(bytes));
                if manner == Manner::Ring {
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

/// Downloads a file and says how long it was, and its checksum.
async fn fetch(bench: &Bench, target: &Target, path: &Path) -> Result<(u64, u32)> {
    let mut connection = target.connect(Manner::Ring)?;
    connection
        .send(Request::get(&target.file(path, bench.dir())))
        .await?;
    let mut crc = crc32fast::Hasher::new();
    let bytes = connection
        .body(|bytes| {
            crc.update(bytes);
            Ok(())
        })
        .await?;
    Ok((bytes, crc.finalize()))
}
