//! Changes of files, told as server-sent events while they happen.

use std::borrow::Cow;
use std::rc::Rc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;

use super::document::exact;
use super::path;
use crate::api::row::{Answer, Call, Produce, Source};
use crate::app::App;
use crate::error::{Kind, Result};
use crate::fs::watch::{Ask, News, Watch, What};
use crate::ring::clock::within;
use crate::ring::{Outflow, Step, turn};
use crate::wire::http::query::Query;
use crate::wire::sse;

pub(super) async fn watch(app: Rc<App>, call: Call) -> Result<Answer> {
    let query = &call.query;
    let ask = Ask {
        path: path(query)?,
        recursive: query.flag("recursive", false)?,
        kinds: kinds(query)?,
    };
    let comment = match query.flag("pad", false)? {
        true => sse::padded_comment(),
        false => sse::COMMENT.to_vec(),
    };
    let watch = Watch::open(ask, app.watches.clone()).await?;
    Ok(Answer::Bytes(Source {
        media: "text/event-stream",
        length: None,
        part: None,
        fields: vec![
            ("cache-control", "no-cache".into()),
            ("x-accel-buffering", "no".into()),
        ],
        produce: Box::new(Changes {
            keepalive: app.config.limits.sse_keepalive,
            app,
            watch,
            comment,
        }),
    }))
}

/// The kinds of change that are asked for; all without `events`.
fn kinds(query: &Query) -> Result<Vec<What>> {
    let Some(text) = query.one("events")? else {
        return Ok(KINDS.iter().map(|(_, what)| *what).collect());
    };
    let kind = |name: &str| {
        let found = KINDS.iter().find(|(known, _)| *known == name.trim());
        found.map(|(_, what)| *what).ok_or_else(|| {
            let known: Vec<_> = KINDS.iter().map(|(name, _)| *name).collect();
            let told = format!("events has {name:?}, which is none of {}", known.join(", "));
            Kind::Malformed.told(told)
        })
    };
    text.split(',').map(kind).collect()
}

/// The changes as a body, until its reader leaves or nothing more can come.
struct Changes {
    app: Rc<App>,
    watch: Watch,
    /// Silence after which the peer is told that we are there.
    keepalive: Duration,
    comment: Vec<u8>,
}

impl Produce for Changes {
    fn produce<'a>(self: Box<Self>, sink: &'a mut dyn Outflow) -> Step<'a, ()>
    where
        Self: 'a,
    {
        Box::pin(self.run(sink))
    }
}

impl Changes {
    async fn run(mut self: Box<Self>, sink: &mut dyn Outflow) -> Result<()> {
        let mut text = Vec::new();
        let watches = self.watch.count();
        event(&mut text, "ready", &Ready { watches });
        sink.write(&text).await?;
        loop {
            sink.flush().await?;
            if !self.wait(sink).await? {
                return gone(sink, "shutdown").await;
            }
            text.clear();
            for news in self.watch.take().await? {
                match news {
                    News::Changed {
                        path,
                        what,
                        is_dir,
                        cookie,
                    } => event(
                        &mut text,
                        "change",
                        &Change::of(&path, what, is_dir, cookie),
                    ),
                    News::Overflow => event(&mut text, "overflow", &Nothing {}),
                    News::Gone(reason) => {
                        sink.write(&text).await?;
                        return gone(sink, reason).await;
                    }
                }
            }
            sink.write(&text).await?;
            // Where much changes, there is always more.
            turn().await;
        }
    }

    /// Waits for something to take, and tells the peer now and then that we are there; false when the daemon leaves.
    async fn wait(&self, sink: &mut dyn Outflow) -> Result<bool> {
        let connections = &self.app.connections;
        let keepalive = self.keepalive.max(SHORTEST);
        let mut left = keepalive;
        while !connections.is_draining() {
            let look = left.min(LOOK_EVERY);
            let drains = connections.drain.next();
            let woken = async {
                monoio::select! {
                    ready = self.watch.ready() => ready,
                    () = drains => Ok(()),
                }
            };
            if let Some(ready) = within(look, woken).await {
                ready?;
                return Ok(!connections.is_draining());
            }
            sink.check()?;
            left -= look;
            if left.is_zero() {
                sink.write(&self.comment).await?;
                sink.flush().await?;
                left = keepalive;
            }
        }
        Ok(false)
    }
}

async fn gone(sink: &mut dyn Outflow, reason: &'static str) -> Result<()> {
    let mut text = Vec::new();
    event(&mut text, "gone", &Gone { reason });
    sink.write(&text).await
}

fn event(into: &mut Vec<u8>, name: &str, data: &impl Serialize) {
    let data = serde_json::to_vec(data).expect("texts and numbers are always JSON");
    sse::event(into, name, &data);
}

/// A watch has begun.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "WatchReady")]
pub(super) struct Ready {
    /// Directories and files that are watched.
    watches: usize,
}

/// Changes are missing.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "WatchOverflow")]
pub(super) struct Nothing {}

/// A watch has ended.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "WatchGone")]
pub(super) struct Gone {
    /// `deleted`, `moved`, `unmounted`, `limit`, `shutdown` or `failed`.
    reason: &'static str,
}

/// Something has changed.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "WatchChange")]
pub(super) struct Change<'a> {
    /// Relative to what is watched, whose own is empty.
    path: Cow<'a, str>,
    /// The exact path as base64, when it is no text.
    #[serde(skip_serializing_if = "Option::is_none")]
    path_b64: Option<String>,
    /// `created`, `modified`, `closed_write`, `deleted`, `moved_from`, `moved_to` or `attributes`.
    kind: &'static str,
    is_dir: bool,
    /// The same for both halves of a move.
    #[serde(skip_serializing_if = "Option::is_none")]
    cookie: Option<u32>,
}

impl<'a> Change<'a> {
    fn of(path: &'a [u8], what: What, is_dir: bool, cookie: Option<u32>) -> Self {
        let kind = KINDS.iter().find(|(_, known)| *known == what);
        Self {
            path: String::from_utf8_lossy(path),
            path_b64: exact(path),
            kind: kind.map_or("", |(name, _)| name),
            is_dir,
            cookie,
        }
    }
}

const KINDS: &[(&str, What)] = &[
    ("created", What::Created),
    ("modified", What::Modified),
    ("closed_write", What::ClosedWrite),
    ("deleted", What::Deleted),
    ("moved_from", What::MovedFrom),
    ("moved_to", What::MovedTo),
    ("attributes", What::Attributes),
];
/// Time between two looks whether a silent peer is still there.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// The shortest silence that is broken, whatever is set: a peer that keeps up would be told without end.
const SHORTEST: Duration = Duration::from_millis(10);
