//! Many connections with one request in flight on each: one after the other, or at a constant rate.

use std::cell::{Cell, RefCell};
use std::pin::pin;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures_util::future::{Either, select, try_join_all};
use tokio::sync::Mutex;

use super::timer::Timer;
use super::{Connection, Latencies};

/// Makes `requests` requests; each connection sends its next when it has the answer to the one before.
///
/// `exchange` sends the request of an index, takes its whole answer and judges it. The first error ends everything.
pub(crate) async fn closed_loop(
    connections: &mut [Connection],
    requests: usize,
    exchange: impl AsyncFn(&mut Connection, usize) -> Result<()>,
) -> Result<Latencies> {
    let next = Cell::new(0);
    let claim = async || {
        let index = next.replace(next.get() + 1);
        Ok((index < requests).then(|| (index, Instant::now())))
    };
    drive(connections, claim, exchange).await
}

/// Makes `requests` requests, of which `per_second` are due in a second, whatever became of those before.
///
/// Each goes out on a connection that is free. While none is, requests become due that cannot be sent: the time that
/// they wait is theirs, as it would be that of users who come at this rate. Our own timer's delay is not.
pub(crate) async fn at_rate(
    connections: &mut [Connection],
    requests: usize,
    per_second: u32,
    exchange: impl AsyncFn(&mut Connection, usize) -> Result<()>,
) -> Result<Latencies> {
    at_rate_while(connections, |index| index < requests, per_second, exchange).await
}

/// The same for as long as `goes_on` says so of the index of the next request.
pub(crate) async fn at_rate_while(
    connections: &mut [Connection],
    goes_on: impl Fn(usize) -> bool,
    per_second: u32,
    exchange: impl AsyncFn(&mut Connection, usize) -> Result<()>,
) -> Result<Latencies> {
    ensure!(per_second > 0, "at a rate of 0 nothing is ever due");
    let start = Instant::now();
    let queue = Mutex::new((0, Timer::new()?));
    let claim = async || {
        let mut first = queue.lock().await;
        let (index, timer) = &mut *first;
        if !goes_on(*index) {
            return Ok(None);
        }
        let due = start + Duration::from_secs(*index as u64) / per_second;
        *index += 1;
        let claimed = *index - 1;
        if due <= Instant::now() {
            return Ok(Some((claimed, due)));
        }
        timer.reach(due).await?;
        Ok(Some((claimed, Instant::now())))
    };
    drive(connections, claim, exchange).await
}

/// Does work while this thread does not sleep, so that no answer waits until the CPU has woken up.
///
/// Not for work on [`super::Manner::Ring`]: the ring is handed its requests only when the thread would sleep.
pub(crate) async fn awake<T>(work: impl Future<Output = T>) -> T {
    let idle = async {
        loop {
            tokio::task::yield_now().await;
        }
    };
    match select(pin!(work), pin!(idle)).await {
        Either::Left((outcome, _)) => outcome,
        Either::Right((never, _)) => never,
    }
}

/// Lets every connection claim requests until there are none: an index, and since when it counts.
async fn drive(
    connections: &mut [Connection],
    claim: impl AsyncFn() -> Result<Option<(usize, Instant)>>,
    exchange: impl AsyncFn(&mut Connection, usize) -> Result<()>,
) -> Result<Latencies> {
    ensure!(!connections.is_empty(), "there is no connection");
    let latencies = RefCell::new(Latencies::new());
    let workers = connections.iter_mut().map(async |connection| {
        while let Some((index, since)) = claim().await? {
            let outcome = exchange(connection, index).await;
            outcome.with_context(|| format!("request {index}"))?;
            latencies.borrow_mut().record_since(since);
        }
        Ok::<_, anyhow::Error>(())
    });
    try_join_all(workers).await?;
    Ok(latencies.into_inner())
}

#[cfg(test)]
#[path = "many_tests.rs"]
mod tests;
