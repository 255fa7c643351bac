//! Files that are uploaded: many small ones, or a large one.

use anyhow::Result;

use super::super::turns::take_turns;
use super::super::{GROWTH, LOAD, Sample, measure, opened};
use super::exchanges::Exchanges;
use super::get::{CPU, CPU_ORDINARY, RATE, RATE_ORDINARY};
use super::reader::ANYONE;
use super::small::Size;
use super::upload::Upload;
use crate::bench::Bench;
use crate::fixture::{MIB, noise};
use crate::load::{Connection, Manner, STEP_BYTES, closed_loop, open_many};
use crate::results::ScenarioResults;
use crate::target::{Placement, Target};

/// One new file after the other on each of the connections.
pub(super) async fn small(
    bench: &Bench,
    out: &mut ScenarioResults,
    size: Size,
    connections: usize,
) -> Result<()> {
    let exchanges = Exchanges {
        connections,
        requests: (bench.sizes.requests / size.put_share).max(connections),
    };
    let bytes = usize::try_from(size.bytes)?;
    let contents: Vec<Vec<u8>> = (0..CHECKED).map(|index| noise(index, bytes)).collect();
    let content = &contents[0];
    let crc = crc32fast::hash(content);
    let targets = opened(bench, out, ANYONE, Placement::ServerCpu).await?;
    take_turns(
        bench,
        out,
        targets,
        async |target| check(bench, target, &size, &contents, connections).await,
        async |target| {
            let mut sample = Sample::default();
            for manner in exchanges.manners() {
                let count = exchanges.requests;
                let upload = Upload::prepare(bench, target, count, size.bytes).await?;
                let exchange = async |connection: &mut Connection, index: usize| {
                    upload.store(connection, index, content).await
                };
                let added = exchanges.add_to(&mut sample, target, *manner, exchange);
                added.await?;
                for index in 0..count {
                    upload.verify(index, size.bytes, crc).await?;
                }
                leave(upload, &size).await?;
            }
            Ok(sample)
        },
    )
    .await
}

/// So many different files are uploaded by the check.
const CHECKED: usize = 16;

/// Uploads files of different content and reads each back.
async fn check(
    bench: &Bench,
    target: &Target,
    size: &Size,
    contents: &[Vec<u8>],
    connections: usize,
) -> Result<()> {
    let count = contents.len();
    let upload = Upload::prepare(bench, target, count, size.bytes).await?;
    let mut all = open_many(&target.endpoint, Manner::Ready, connections.min(count)).await?;
    let exchange = async |connection: &mut Connection, index: usize| {
        upload.store(connection, index, &contents[index]).await
    };
    closed_loop(&mut all, count, exchange).await?;
    for (index, content) in contents.iter().enumerate() {
        upload
            .verify(index, size.bytes, crc32fast::hash(content))
            .await?;
    }
    leave(upload, size).await
}

/// Small files stay until the end of the run: a file system is slower after a removal. Larger ones take much room.
async fn leave(upload: Upload<'_>, size: &Size) -> Result<()> {
    match size.bytes < MIB {
        true => Ok(()),
        false => upload.release().await,
    }
}

/// One large new file.
pub(super) async fn large(bench: &Bench, out: &mut ScenarioResults) -> Result<()> {
    let large = bench.large()?;
    let bytes = large.bytes;
    let buffer = vec![0x5a; STEP_BYTES];
    let crc = repeated_crc(&buffer, bytes);
    out.notes.push(
        "Before each upload as much page cache is taken and given back, so that no target pays for pages that the \
         host had taken."
            .to_owned(),
    );
    let targets = opened(bench, out, ANYONE, Placement::ServerCpu).await?;
    take_turns(
        bench,
        out,
        targets,
        async |target| {
            let upload = Upload::prepare(bench, target, 1, bytes).await?;
            let mut connection = target.connect(Manner::Ready)?;
            upload.store_file(&mut connection, large).await?;
            upload.verify(0, bytes, large.crc).await?;
            upload.release().await
        },
        async |target| {
            let mut sample = Sample::default();
            for (manner, cpu, rate) in [
                (Manner::Spin, CPU, RATE),
                (Manner::Ring, CPU_ORDINARY, RATE_ORDINARY),
            ] {
                let upload = Upload::prepare(bench, target, 1, bytes).await?;
                let mut connection = target.connect(manner)?;
                let work = upload.store_repeated(&mut connection, &buffer, bytes);
                let (reading, ()) = measure(target, work).await?;
                sample.put(cpu, reading.cpu_per_gib(bytes));
                sample.put(rate, reading.gib_per_s(bytes));
                if manner == Manner::Ring {
                    sample.put(GROWTH, reading.grown_mib);
                    sample.put(LOAD, reading.load_share());
                    sample.bound_by_load(reading.is_load_bound());
                }
                upload.verify(0, bytes, crc).await?;
                upload.release().await?;
            }
            Ok(sample)
        },
    )
    .await
}

/// The checksum of `bytes` bytes made of one buffer.
fn repeated_crc(buffer: &[u8], bytes: u64) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    let mut left = bytes;
    while left > 0 {
        let step = usize::try_from(left)
            .unwrap_or(usize::MAX)
            .min(buffer.len());
        crc.update(&buffer[..step]);
        left -= step as u64;
    }
    crc.finalize()
}
