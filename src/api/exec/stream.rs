//! Following the output of an exec.

use super::events::Events;
use crate::api::row::{Answer, Call, Source};
use crate::app::App;
use crate::error::{Kind, Result};
use crate::wire::sse;

pub(super) fn stream(app: &App, call: &Call) -> Result<Answer> {
    let bad_offset = || Kind::Malformed.told("offset must be a non-negative integer");
    let offset = match call.query.one("offset").map_err(|_| bad_offset())? {
        Some(text) => text.parse().map_err(|_| bad_offset())?,
        None => 0,
    };
    let is_padded = call.query.all("pad").any(|value| value == "1");
    let events = Events {
        follower: app.execs.follow(&call.id, offset)?,
        keepalive: app.config.limits.sse_keepalive,
        comment: if is_padded {
            sse::padded_comment()
        } else {
            sse::COMMENT.to_vec()
        },
    };
    Ok(Answer::Bytes(Source {
        media: "text/event-stream",
        length: None,
        part: None,
        fields: vec![
            ("cache-control", "no-cache".into()),
            ("x-accel-buffering", "no".into()),
        ],
        produce: Box::new(events),
    }))
}
