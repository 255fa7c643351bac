//! Followers of one exec: server-sent events, encoded anew for each of them.

use std::collections::VecDeque;
use std::sync::Arc;

use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::sse::{Event, KeepAlive, Sse};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures_util::Stream;
use serde::{Deserialize, Serialize};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

use super::Shared;
use super::exec::Exec;
use super::record::{Chunk, Ending, News};

#[derive(Deserialize)]
pub(super) struct StreamQuery {
    #[serde(default)]
    offset: u64,
}

#[derive(Serialize)]
struct Output {
    offset: u64,
    stream: &'static str,
    output: String,
}

#[derive(Serialize)]
struct Gap {
    from: u64,
    to: u64,
}

#[derive(Serialize)]
struct Exit {
    #[serde(flatten)]
    ending: Ending,
    offset: u64,
}

pub(super) async fn stream(
    State(app): Shared,
    Path(id): Path<String>,
    Query(query): Query<StreamQuery>,
) -> Result<Sse<impl Stream<Item = Result<Event, axum::Error>>>, StatusCode> {
    let exec = app.execs.find(&id)?;
    let (held, live) = exec.record.subscribe();
    let follower = Follower {
        exec,
        held,
        live,
        cursor: query.offset,
        has_ended: false,
    };
    let events = futures_util::stream::unfold(follower, Follower::step);
    Ok(Sse::new(events).keep_alive(KeepAlive::default()))
}

struct Follower {
    exec: Arc<Exec>,
    /// What is to be told before anything live.
    held: VecDeque<Chunk>,
    live: broadcast::Receiver<News>,
    cursor: u64,
    has_ended: bool,
}

impl Follower {
    async fn step(mut self) -> Option<(Result<Event, axum::Error>, Self)> {
        let event = self.next().await?;
        Some((event, self))
    }

    async fn next(&mut self) -> Option<Result<Event, axum::Error>> {
        if self.has_ended {
            return None;
        }
        loop {
            if let Some(chunk) = self.held.pop_front() {
                if let Some(event) = self.tell(chunk) {
                    return Some(event);
                }
                continue;
            }
            // The exit may have been sent before this follower came.
            if self.live.is_empty()
                && let (Some(ending), total) = self.exec.record.ending()
            {
                if self.cursor < total {
                    return Some(self.skip_to(total));
                }
                self.has_ended = true;
                let exit = Exit {
                    ending,
                    offset: total,
                };
                return Some(Event::default().event("exit").json_data(exit));
            }
            match self.live.recv().await {
                Ok(News::Output(chunk)) => self.held.push_back(chunk),
                // What was missed shows by the offset of the next chunk.
                Ok(News::Exit) | Err(RecvError::Lagged(_) | RecvError::Closed) => {}
            }
        }
    }

    fn tell(&mut self, mut chunk: Chunk) -> Option<Result<Event, axum::Error>> {
        if chunk.end() <= self.cursor {
            return None;
        }
        if chunk.offset > self.cursor {
            let to = chunk.offset;
            self.held.push_front(chunk);
            return Some(self.skip_to(to));
        }
        chunk.cut(self.cursor - chunk.offset);
        self.cursor = chunk.end();
        let output = Output {
            offset: chunk.offset,
            stream: chunk.stream,
            output: STANDARD.encode(&chunk.bytes),
        };
        Some(Event::default().event("output").json_data(output))
    }

    fn skip_to(&mut self, to: u64) -> Result<Event, axum::Error> {
        let gap = Gap {
            from: self.cursor,
            to,
        };
        self.cursor = to;
        Event::default().event("gap").json_data(gap)
    }
}
