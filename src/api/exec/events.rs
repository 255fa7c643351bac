//! The output of an exec as server-sent events.

use std::time::Duration;

use super::answer::ExitEvent;
use crate::api::row::Produce;
use crate::error::Result;
use crate::exec::{Follower, Told};
use crate::ring::{Outflow, Step, clock};
use crate::wire::sse;

/// The output of one exec as events, until its end.
pub(super) struct Events {
    pub(super) follower: Follower,
    /// Silence after which a comment is sent.
    pub(super) keepalive: Duration,
    pub(super) comment: Vec<u8>,
}

impl Produce for Events {
    fn produce<'a>(self: Box<Self>, sink: &'a mut dyn Outflow) -> Step<'a, ()>
    where
        Self: 'a,
    {
        Box::pin(self.run(sink))
    }
}

impl Events {
    async fn run(mut self: Box<Self>, sink: &mut dyn Outflow) -> Result<()> {
        let mut text = Vec::new();
        loop {
            while text.len() < BATCH && self.follower.next(|told| write_event(&mut text, &told)) {}
            if !text.is_empty() {
                sink.write(&text).await?;
                text.clear();
                continue;
            }
            sink.flush().await?;
            if self.follower.has_ended() {
                return Ok(());
            }
            // An idle follower holds no buffer.
            text = Vec::new();
            let silent = clock::within(self.keepalive, self.follower.changed()).await;
            if silent.is_none() {
                text.extend_from_slice(&self.comment);
            }
        }
    }
}

fn write_event(into: &mut Vec<u8>, told: &Told<'_>) {
    match told {
        Told::Gap { from, to } => sse::gap(into, *from, *to),
        Told::Output {
            offset,
            stream,
            bytes,
        } => sse::output(into, *offset, stream.name(), bytes),
        Told::Exit(outcome) => {
            let exit = ExitEvent::from(outcome);
            let data = serde_json::to_vec(&exit).expect("numbers and flags are always JSON");
            sse::event(into, "exit", &data);
        }
    }
}

/// Bytes of events that are sent in one write.
const BATCH: usize = 64 * 1024;
