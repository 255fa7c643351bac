//! Answers held against `docs/schema.json`: every response that a test gets must be one that is published.

use std::sync::LazyLock;

use serde_json::{Map, Value};

use crate::reply::Reply;
use crate::request::Request;
use crate::shapes::Shapes;

/// The published document.
static DOCUMENT: LazyLock<Value> = LazyLock::new(|| {
    let text = include_str!("../../docs/schema.json");
    serde_json::from_str(text).expect("docs/schema.json is JSON")
});

/// The published document, which a test of its own compares with that of a daemon.
pub(crate) fn document() -> &'static Value {
    &DOCUMENT
}

/// Every route of the document.
pub(crate) fn routes() -> impl Iterator<Item = &'static Value> {
    DOCUMENT["routes"].as_array().into_iter().flatten()
}

/// How a route is called in tests: `GET /v1/health`.
pub(crate) fn name_of(route: &Value) -> String {
    let words = ["method", "path"].map(|key| route[key].as_str().expect("a text"));
    words.join(" ")
}

/// The types of the document.
pub(crate) fn shapes() -> Shapes<'static> {
    static NONE: LazyLock<Map<String, Value>> = LazyLock::new(Map::new);
    Shapes {
        named: DOCUMENT["$defs"].as_object().unwrap_or(&NONE),
    }
}

/// Checks that this response to this request is published.
///
/// What no route decides is left out: a head that is refused, a path or method that there is not, a daemon that has too
/// much to do.
#[track_caller]
pub(crate) fn check(request: &Request, reply: &Reply) {
    let Some(route) = route(request) else {
        return;
    };
    let is_busy = reply.status == 503 && reply.field("retry-after").is_some();
    let is_of_the_head = reply.body.is_empty()
        && [400, 408, 414, 431].contains(&reply.status)
        && reply.field("connection") == Some("close");
    let is_over_the_limit = reply.status == 413 && request.method == "GET";
    if is_busy || is_of_the_head || is_over_the_limit {
        return;
    }
    let judged = match &*request.method {
        // A head tells the status alone.
        "HEAD" => {
            let mut statuses = route["statuses"].as_array().into_iter().flatten();
            let is_published = statuses.any(|status| status["code"] == reply.status);
            is_published
                .then_some(())
                .ok_or_else(|| format!("{} is not published", reply.status))
        }
        _ => judge(route, reply),
    };
    if let Err(why) = judged {
        panic!("{why}, of {}: {reply:?}", name_of(route));
    }
}

/// Why a response is not one that is published for `route`.
pub(crate) fn judge(route: &Value, reply: &Reply) -> Result<(), String> {
    let slug = slug(reply);
    let statuses = route["statuses"].as_array().into_iter().flatten();
    let mut fitting = statuses
        .filter(|status| status["code"] == reply.status && status["error"] == slug.as_str());
    if fitting.next().is_none() {
        return Err(format!("{} {slug:?} is not published", reply.status));
    }
    let schema = &route["response"]["schema"];
    if reply.status != 200 || !is_json(reply) || schema.is_null() || reply.body.len() > MOST_BODY {
        return Ok(());
    }
    let document = serde_json::from_slice(&reply.body).map_err(|error| error.to_string())?;
    shapes().fit(schema, &document)
}

/// The slug of an error, empty where there is none.
pub(crate) fn slug(reply: &Reply) -> String {
    if reply.status < 400 || !is_json(reply) {
        return String::new();
    }
    let document: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
    document["error"].as_str().unwrap_or_default().to_owned()
}

fn is_json(reply: &Reply) -> bool {
    let media = reply.field("content-type").unwrap_or_default();
    media == "application/json" || media.ends_with("+json")
}

fn route(request: &Request) -> Option<&'static Value> {
    let path = request.target().split('?').next().unwrap_or_default();
    let method = match &*request.method {
        "HEAD" => "GET",
        other => other,
    };
    let mut on_path: Vec<&Value> = routes().filter(|route| route["path"] == path).collect();
    if on_path.is_empty() {
        on_path.extend(routes().filter(|route| has_shape(route, path)));
    }
    on_path.into_iter().find(|route| route["method"] == method)
}

fn has_shape(route: &Value, path: &str) -> bool {
    let pattern = route["path"].as_str().unwrap_or_default();
    let Some((before, after)) = pattern.split_once("{id}") else {
        return false;
    };
    let id = path
        .strip_prefix(before)
        .and_then(|rest| rest.strip_suffix(after));
    id.is_some_and(|id| !id.is_empty() && !id.contains('/'))
}

/// Bytes of a body that is held against its schema: larger ones are long outputs.
const MOST_BODY: usize = 256 * 1024;
