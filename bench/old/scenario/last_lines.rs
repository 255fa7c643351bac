//! `last-lines`: the last ten lines of the large file, again and again.

use std::os::unix::fs::FileExt;
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use super::contender::SCRATCH_BYTES;
use super::{Sample, alternate};
use crate::client::Manner;
use crate::lab::Lab;
use crate::report::{Better, Metric, ScenarioReport};
use crate::target::Kind;

pub(crate) const NAME: &str = "last-lines";

const P50: Metric = ms("p50");
pub(crate) const P99: Metric = ms("p99");

const LINES: usize = 10;
const REQUESTS: usize = 500;
/// More than ten lines of noise ever are.
const TAIL_BYTES: u64 = 256 << 10;

const fn ms(name: &'static str) -> Metric {
    Metric {
        name,
        unit: "ms",
        better: Better::Low,
    }
}

pub(super) fn run(lab: &Lab) -> Result<ScenarioReport> {
    let large = lab.large()?;
    let (servers, mut notes) = lab.start_all(&[Kind::Ringd])?;
    notes.push("Only ringd can be asked for them.".to_owned());
    let expected = last_lines(lab)?;
    let target = format!(
        "/v1/fs/file?path={}&last_lines={LINES}",
        large.path.display()
    );
    let series = alternate(&servers, lab.options.rounds, |server| {
        let mut connection = server.connection(Manner::Sleep)?;
        let mut scratch = vec![0; SCRATCH_BYTES];
        let mut waits = Vec::with_capacity(REQUESTS);
        for _ in 0..REQUESTS {
            let start = Instant::now();
            connection.ask("GET", &target, "", b"")?;
            let (status, body) = connection.answer(&mut scratch)?;
            waits.push(start.elapsed());
            ensure!(
                status == 200 && body == expected,
                "the lines are wrong, status {status}"
            );
        }
        waits.sort();
        let at = |share: usize| waits[(waits.len() - 1) * share / 100].as_secs_f64() * 1e3;
        Ok(Sample::from([(P50, at(50)), (P99, at(99))]))
    })?;
    Ok(ScenarioReport {
        name: NAME,
        notes,
        series,
    })
}

fn last_lines(lab: &Lab) -> Result<Vec<u8>> {
    let large = lab.large()?;
    let file = std::fs::File::open(&large.path)?;
    let from = large.bytes.saturating_sub(TAIL_BYTES);
    let mut tail = vec![0; usize::try_from(large.bytes - from)?];
    file.read_exact_at(&mut tail, from)?;
    // The line that ends the file needs no newline of its own.
    let inner = &tail[..tail.len() - 1];
    let ends = inner.iter().enumerate().rev();
    let ends = ends.filter(|(_, byte)| **byte == b'\n');
    let before = ends.map(|(at, _)| at).nth(LINES - 1);
    let before = before.context("the end of the file has too few lines")?;
    Ok(tail[before + 1..].to_vec())
}
