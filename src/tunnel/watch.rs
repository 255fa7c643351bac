//! The watch over a tunnel: a ping while nothing moves, and the end when the daemon leaves.

use std::time::Duration;

use super::relay::Line;
use crate::ring::clock::{Deadline, sleep, until};
use crate::ring::notify::Event;

/// Returns when the tunnel must end because the daemon leaves, `leaves_after` the start of its drain at the latest.
///
/// What is under way may go on until then, like any request; a tunnel in which nothing moves ends before.
pub(super) async fn watch(line: &Line<'_>, leaves_after: Duration, drain: &Event) {
    monoio::select! {
        () = drain.after(0) => {}
        () = ping(line) => {}
    }
    let deadline = Deadline::after(leaves_after.saturating_sub(MARGIN.min(leaves_after / 4)));
    loop {
        let before = line.moved.get();
        let is_early = until(deadline, sleep(QUIET)).await.is_some();
        if !is_early || line.moved.get() == before {
            return;
        }
    }
}

/// Asks for a ping after each span in which nothing moved: what lies between us and the client may forget us else.
async fn ping(line: &Line<'_>) {
    loop {
        let before = line.moved.get();
        sleep(PING).await;
        if line.moved.get() == before {
            line.owed.ping();
        }
    }
}

/// Silence after which a ping is sent.
const PING: Duration = Duration::from_secs(30);
/// Silence that ends a tunnel once the daemon wants to leave.
const QUIET: Duration = Duration::from_secs(5);
/// Time that is left for the close frames before the daemon is gone.
const MARGIN: Duration = Duration::from_secs(1);
