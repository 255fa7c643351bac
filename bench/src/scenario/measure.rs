//! What one stretch of work costs a target and us.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::turns::skip;
use crate::bench::{Bench, Needs};
use crate::cpu;
use crate::memory::{forget_peak, resident};
use crate::results::{Metric, ScenarioResults};
use crate::target::{Placement, Target};

/// Costs of one stretch of work. What is read from a process is missing for targets elsewhere.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    /// CPU time of the server's process in seconds: all its threads, not its children.
    pub(crate) cpu_s: Option<f64>,
    /// From the first byte of the request to the last of the answer, in seconds.
    pub(crate) wall_s: f64,
    /// How far the resident set rose above its size before, in MiB.
    pub(crate) grown_mib: Option<f64>,
    /// CPU time of the load side in seconds.
    pub(crate) load_cpu_s: f64,
}

impl Reading {
    pub(crate) fn cpu_per_gib(&self, bytes: u64) -> Option<f64> {
        Some(self.cpu_s? * GIB / bytes as f64)
    }

    pub(crate) fn gib_per_s(&self, bytes: u64) -> f64 {
        bytes as f64 / GIB / self.wall_s
    }

    /// CPU time of the server per `count` things, in microseconds.
    pub(crate) fn cpu_us_each(&self, count: usize) -> Option<f64> {
        Some(self.cpu_s? * 1e6 / count as f64)
    }

    /// The share of a core that the load side used.
    pub(crate) fn load_share(&self) -> f64 {
        self.load_cpu_s / self.wall_s
    }

    /// True when the load side was busy all the time and the server was not: then the time says little of the server.
    ///
    /// Not for a spinning connection, which is busy by its nature: see `Connection::idle_share`.
    pub(crate) fn is_load_bound(&self) -> bool {
        let server = self.cpu_s.map_or(0.0, |cpu_s| cpu_s / self.wall_s);
        self.load_share() > BUSY && server < BUSY
    }
}

/// Does work and says what it cost `target`.
pub(crate) async fn measure<T>(
    target: &Target,
    work: impl Future<Output = Result<T>>,
) -> Result<(Reading, T)> {
    let pid = target.pid();
    let before = match pid {
        Some(pid) => {
            forget_peak(pid)?;
            Some((resident(pid)?.total, cpu::used_s(pid)?))
        }
        None => None,
    };
    let load_before = cpu::own_s();
    let start = Instant::now();
    let outcome = work.await?;
    let wall_s = start.elapsed().as_secs_f64();
    let load_cpu_s = cpu::own_s() - load_before;
    let mut reading = Reading {
        cpu_s: None,
        wall_s,
        grown_mib: None,
        load_cpu_s,
    };
    if let (Some(pid), Some((rss_before, cpu_before))) = (pid, before) {
        // What the server still does after its last byte is counted, too.
        tokio::time::sleep(AFTERMATH).await;
        reading.cpu_s = Some(cpu::used_s(pid)? - cpu_before);
        reading.grown_mib = Some((resident(pid)?.peak - rss_before).max(0.0));
    }
    Ok((reading, outcome))
}

/// Opens the targets of the run that can take part; the others are left out, with the reason.
pub(crate) async fn opened(
    bench: &Bench,
    out: &mut ScenarioResults,
    needs: Needs,
    placement: Placement,
) -> Result<Vec<Target>> {
    let mut targets = Vec::new();
    for spec in &bench.specs {
        let target = bench.open_target(spec, placement, &[]).await?;
        match bench.unfit(&target, needs).await? {
            None => targets.push(target),
            Some(why) => skip(bench, out, &spec.name, why),
        }
    }
    Ok(targets)
}

pub(crate) const GROWTH: Metric = Metric::low("peak RSS growth", "MiB");
/// How much of a core the load side used.
pub(crate) const LOAD: Metric = Metric::low("load", "core");

const GIB: f64 = (1u64 << 30) as f64;
const AFTERMATH: Duration = Duration::from_millis(5);
/// From this share of a core on, somebody is the limit.
const BUSY: f64 = 0.9;
