//! `ranges-16`: the large file in sixteen ranges at once, beside one stream of it.

use anyhow::{Result, ensure};

use super::super::{Sample, measure, take_turns};
use super::get::{CPU, RATE};
use super::reader::{ANYONE, Reader, discard};
use crate::bench::Bench;
use crate::fixture::{FileSet, LargeFile};
use crate::load::{Connection, Manner, Unsupported, awake, closed_loop};
use crate::results::{Metric, ScenarioResults};

const CPU_ONE: Metric = Metric::low("CPU, one stream", "CPU-s/GiB");
const RATE_ONE: Metric = Metric::high("rate, one stream", "GiB/s");
pub(crate) const RATIO: Metric = Metric::high("rate of 16 ranges over that of one stream", "x");

const RANGES: usize = 16;

pub(super) async fn ranges(bench: &Bench, out: &mut ScenarioResults) -> Result<()> {
    let large = bench.large()?;
    out.notes
        .push("The load side never sleeps meanwhile, in both cases.".to_owned());
    let readers = Reader::open(bench, out, ANYONE, &FileSet::of(large)).await?;
    take_turns(
        bench,
        out,
        readers,
        async |reader| check(reader, large).await,
        async |reader| {
            let mut one = reader.connect(Manner::Ready, 1).await?;
            let whole = async |connection: &mut Connection, _| {
                discard(connection, reader.get(0), 200, large.bytes).await
            };
            let work = awake(closed_loop(&mut one, 1, whole));
            let (stream, _) = measure(&reader.target, work).await?;
            let mut many = reader.connect(Manner::Ready, RANGES).await?;
            let part = async |connection: &mut Connection, index: usize| {
                let part = Part::of(large.bytes, index as u64);
                let field = part.field();
                discard(connection, reader.get(0).with(&field), 206, part.bytes()).await
            };
            let work = awake(closed_loop(&mut many, RANGES, part));
            let (ranges, _) = measure(&reader.target, work).await?;
            let bytes = large.bytes;
            let mut sample = Sample::default();
            sample.put(CPU, ranges.cpu_per_gib(bytes));
            sample.put(RATE, ranges.gib_per_s(bytes));
            sample.put(CPU_ONE, stream.cpu_per_gib(bytes));
            sample.put(RATE_ONE, stream.gib_per_s(bytes));
            sample.put(RATIO, ranges.gib_per_s(bytes) / stream.gib_per_s(bytes));
            Ok(sample)
        },
    )
    .await
}

/// The ranges together are the file.
async fn check(reader: &Reader, large: &LargeFile) -> Result<()> {
    let mut connection = reader.target.connect(Manner::Ring)?;
    let mut crc = crc32fast::Hasher::new();
    for index in 0..RANGES as u64 {
        let part = Part::of(large.bytes, index);
        let field = part.field();
        let request = reader.get(0).with(&field);
        connection.send(request).await?;
        let bytes = connection
            .body(|bytes| {
                crc.update(bytes);
                Ok(())
            })
            .await?;
        if connection.expect(&[200], request).is_ok() {
            return Err(Unsupported("it answers a range with the whole file".to_owned()).into());
        }
        connection.expect(&[206], request)?;
        ensure!(
            bytes == part.bytes(),
            "{bytes} bytes came instead of {}",
            part.bytes()
        );
    }
    ensure!(crc.finalize() == large.crc, "a byte is wrong");
    Ok(())
}

/// First and last byte.
#[derive(Debug, PartialEq, Eq)]
struct Part(u64, u64);

impl Part {
    /// One of the sixteen; the last one takes what is left over.
    fn of(total: u64, index: u64) -> Self {
        let share = total / RANGES as u64;
        match index + 1 == RANGES as u64 {
            true => Self(index * share, total - 1),
            false => Self(index * share, (index + 1) * share - 1),
        }
    }

    fn bytes(&self) -> u64 {
        self.1 - self.0 + 1
    }

    fn field(&self) -> String {
        format!("range: bytes={}-{}\r\n", self.0, self.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_are_the_whole() {
        for total in [16, 100, (1 << 30) + 5] {
            let mut next = 0;
            for index in 0..RANGES as u64 {
                let part = Part::of(total, index);
                assert_eq!(part.0, next);
                next += part.bytes();
            }
            assert_eq!(next, total);
        }
    }
}
