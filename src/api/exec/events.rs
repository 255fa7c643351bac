//! The output of an exec as a body: server-sent events, or binary frames.

use std::time::Duration;

use schemars::JsonSchema;

use super::answer::ExitEvent;
use crate::api::row::Produce;
use crate::error::Result;
use crate::exec::{Follower, Next, Outcome};
use crate::ring::{Outflow, Step, clock};
use crate::wire::{output, sse};

/// The output of one exec, until its end.
pub(super) struct Events {
    pub(super) follower: Follower,
    /// Silence after which the peer is told that we are there.
    pub(super) keepalive: Duration,
    pub(super) form: Form,
}

/// Bytes of one stream.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "it describes; `wire::sse` writes it")]
pub(super) struct OutputEvent {
    /// Of the first byte, both streams counted together.
    offset: u64,
    stream: StreamKind,
    /// The bytes as base64.
    output: String,
}

/// Which of the two output streams.
#[derive(JsonSchema)]
#[serde(rename_all = "lowercase")]
#[expect(dead_code, reason = "it describes; `wire::sse` writes it")]
enum StreamKind {
    Stdout,
    Stderr,
}

/// Bytes that are no longer held.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "it describes; `wire::sse` writes it")]
pub(super) struct GapEvent {
    /// The first of them.
    from: u64,
    /// The first that is held again.
    to: u64,
}

/// How output is written.
pub(super) enum Form {
    /// Server-sent events.
    Events {
        /// What is sent into a silence.
        comment: Vec<u8>,
    },
    /// Binary frames (`wire/output`).
    Frames,
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
        let mut has_offered = false;
        loop {
            match self.follower.look() {
                Next::Output => {
                    // What is there now may be more than the peer takes, and others want their turn.
                    if std::mem::replace(&mut has_offered, true) {
                        sink.ready().await?;
                    }
                    match &self.form {
                        Form::Events { .. } => self.follower.events(|all| sink.offer(all)).await?,
                        Form::Frames => self.follower.frames(|all| sink.offer(all)).await?,
                    }
                    continue;
                }
                Next::Gap { from, to } => sink.write(&self.form.gap(from, to)).await?,
                Next::Exit(outcome) => {
                    // It goes out with the end of the body.
                    return sink.write(&self.form.exit(&outcome)).await;
                }
                Next::Nothing => {
                    sink.flush().await?;
                    self.wait(sink).await?;
                }
            }
            has_offered = false;
        }
    }

    /// Waits for news, and tells the peer now and then that we are there.
    async fn wait(&self, sink: &mut dyn Outflow) -> Result<()> {
        let keepalive = self.keepalive.max(SHORTEST);
        let mut left = keepalive;
        loop {
            let look = left.min(LOOK_EVERY);
            if clock::within(look, self.follower.changed()).await.is_some() {
                return Ok(());
            }
            sink.check()?;
            left -= look;
            if left.is_zero() {
                sink.write(&self.form.idle(self.follower.offset())).await?;
                sink.flush().await?;
                left = keepalive;
            }
        }
    }
}

/// Time between two looks whether a silent peer is still there.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// The shortest silence that is broken, whatever is set: a peer that keeps up would be told without end.
const SHORTEST: Duration = Duration::from_millis(10);

impl Form {
    fn gap(&self, from: u64, to: u64) -> Vec<u8> {
        let mut text = Vec::new();
        match self {
            Self::Events { .. } => sse::gap(&mut text, from, to),
            Self::Frames => output::gap(&mut text, from, to),
        }
        text
    }

    fn idle(&self, offset: u64) -> Vec<u8> {
        match self {
            Self::Events { comment } => comment.clone(),
            Self::Frames => {
                let mut frame = Vec::new();
                output::idle(&mut frame, offset);
                frame
            }
        }
    }

    fn exit(&self, outcome: &Outcome) -> Vec<u8> {
        let event = ExitEvent::from(outcome);
        let event = serde_json::to_vec(&event).expect("numbers and flags are always JSON");
        let mut text = Vec::new();
        match self {
            Self::Events { .. } => sse::event(&mut text, "exit", &event),
            Self::Frames => output::exit(&mut text, outcome.total, &event),
        }
        text
    }
}
