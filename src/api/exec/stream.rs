//! Following the output of an exec.

use super::events::{Events, Form};
use crate::api::row::{Answer, Call, Source};
use crate::app::App;
use crate::error::Result;
use crate::wire::sse;

pub(super) fn stream(app: &App, call: &Call) -> Result<Answer> {
    let offset = super::offset(&call.query, "offset")?.unwrap_or(0);
    let comment = match call.query.flag("pad", false)? {
        true => sse::padded_comment(),
        false => sse::COMMENT.to_vec(),
    };
    let follower = app.execs.follow(&call.id, offset)?;
    let (media, form) = match wants_frames(call) {
        true => ("application/octet-stream", Form::Frames),
        false => ("text/event-stream", Form::Events { comment }),
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

/// True when the client accepts the binary form and not the events (RFC 9110, section 12.5.1; of weights only zero
/// counts: a client that takes both gets events).
fn wants_frames(call: &Call) -> bool {
    let accepts = |medias: &[&str]| {
        let values = call.fields.all("accept");
        let mut ranges = values.flat_map(|value| value.split(|byte| *byte == b','));
        ranges.any(|range| {
            let mut parts = range.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
            let name = parts.next().unwrap_or_default();
            let is_one = medias
                .iter()
                .any(|media| name.eq_ignore_ascii_case(media.as_bytes()));
            is_one && !parts.any(is_zero_weight)
        })
    };
    accepts(&["application/octet-stream"]) && !accepts(&["text/event-stream", "text/*", "*/*"])
}

/// True for `q=0`, `q=0.0` and the like.
fn is_zero_weight(parameter: &[u8]) -> bool {
    let value = parameter
        .strip_prefix(b"q=")
        .or_else(|| parameter.strip_prefix(b"Q="));
    value.is_some_and(|value| {
        value.starts_with(b"0") && value.iter().all(|byte| matches!(byte, b'0' | b'.'))
    })
}
