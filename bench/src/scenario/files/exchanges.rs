//! Many small requests: their figures, and how they are taken.

use anyhow::Result;

use super::super::{GROWTH, LOAD, Sample, measure};
use crate::load::{Connection, Manner, closed_loop, open_many};
use crate::results::Metric;
use crate::target::Target;

const CPU: Metric = Metric::low("CPU", "us/request").main();
const RATE: Metric = Metric::high("rate", "requests/s");
const LATENCY: Metric = Metric::low("latency", "us");
const CPU_ORDINARY: Metric = Metric::low("CPU, ordinary client", "us/request");
const RATE_ORDINARY: Metric = Metric::high("rate, ordinary client", "requests/s");
const LATENCY_ORDINARY: Metric = Metric::low("latency, ordinary client", "us");

/// How many requests go over how many connections.
#[derive(Clone, Copy)]
pub(super) struct Exchanges {
    pub(super) connections: usize,
    pub(super) requests: usize,
}

impl Exchanges {
    /// One connection is driven twice: without a wakeup, and as an ordinary client does it.
    pub(super) fn manners(self) -> &'static [Manner] {
        match self.connections {
            1 => &[Manner::Spin, Manner::Ring],
            _ => &[Manner::Ready],
        }
    }

    /// Makes the requests and adds what they cost.
    pub(super) async fn add_to(
        self,
        sample: &mut Sample,
        target: &Target,
        manner: Manner,
        exchange: impl AsyncFn(&mut Connection, usize) -> Result<()>,
    ) -> Result<()> {
        let mut connections = open_many(&target.endpoint, manner, self.connections).await?;
        let work = closed_loop(&mut connections, self.requests, exchange);
        let (reading, latencies) = measure(target, work).await?;
        let (cpu, rate, latency) = match manner {
            Manner::Ring => (CPU_ORDINARY, RATE_ORDINARY, LATENCY_ORDINARY),
            Manner::Spin | Manner::Ready => (CPU, RATE, LATENCY),
        };
        sample.put(cpu, reading.cpu_us_each(self.requests));
        sample.put(rate, self.requests as f64 / reading.wall_s);
        sample.latencies(latency, latencies, None);
        if manner != Manner::Spin {
            sample.put(GROWTH, reading.grown_mib);
            sample.put(LOAD, reading.load_share());
            sample.bound_by_load(reading.is_load_bound());
        }
        Ok(())
    }
}
