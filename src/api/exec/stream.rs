//! Following the output of an exec.

use super::events::{Events, Form};
use crate::api::row::{Answer, Call, Source};
use crate::app::App;
use crate::error::Result;
use crate::wire::sse;

pub(super) fn stream(app: &App, call: &Call) -> Result<Answer> {
    let offset = super::offset(&call.query, "offset")?.unwrap_or(0);
    let follower = app.execs.follow(&call.id, offset)?;
    let (media, form) = match wants_frames(call) {
        true => ("application/octet-stream", Form::Frames),
        false => ("text/event-stream", events(call)),
    };
    Ok(Answer::Bytes(Source {
        media,
        length: None,
        part: None,
        fields: vec![
            ("cache-control", "no-cache".into()),
            ("x-accel-buffering", "no".into()),
        ],
        produce: Box::new(Events {
            follower,
            keepalive: app.config.limits.sse_keepalive,
            form,
        }),
    }))
}

fn events(call: &Call) -> Form {
    let is_padded = call.query.all("pad").any(|value| value == "1");
    Form::Events {
        comment: match is_padded {
            true => sse::padded_comment(),
            false => sse::COMMENT.to_vec(),
        },
    }
}

/// True when the client names the binary form and not the events (RFC 9110, section 12.5.1, without weights: a
/// client that takes both gets events).
fn wants_frames(call: &Call) -> bool {
    let accepts = |media: &str| {
        let values = call.fields.all("accept");
        let ranges = values.flat_map(|value| value.split(|byte| *byte == b','));
        let mut names = ranges.map(|range| {
            let name = range.split(|byte| *byte == b';').next().unwrap_or_default();
            name.trim_ascii()
        });
        names.any(|name| name.eq_ignore_ascii_case(media.as_bytes()))
    };
    accepts("application/octet-stream") && !accepts("text/event-stream")
}
