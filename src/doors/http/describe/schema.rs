//! The document of `GET /v1/schema`, in the form of the reference (contract, section 7).

use serde_json::{Map, Value, json};

use super::definitions::Definitions;
use super::{method, statuses};
use crate::api::contract::Shape;
use crate::api::system::VERSION;
use crate::api::{self, Access, Row};
use crate::config::Config;
use crate::doors::http::respond::VERSION_FIELD;

/// The whole document.
pub(super) fn document(config: &Config) -> Value {
    let mut definitions = Definitions::new("/$defs");
    let routes = listed().map(|row| route(row, &mut definitions));
    let routes: Vec<Value> = routes.collect();
    let (all, collisions) = definitions.finish();
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$defs": all,
        "title": "the guest HTTP protocol of ringd",
        "generated_from": "the table of operations that routes requests, and the types that handlers read and write",
        "definition_collisions": collisions,
        "daemon_version": VERSION,
        "protocol_version": PROTOCOL,
        "version_header": VERSION_FIELD,
        "hook_prefix": HOOKS,
        "auth": auth(),
        "limits": limits(config),
        "routes": routes,
        "unmatched_path": {
            "code": 404,
            "meaning": "no route has this path; the body is empty, and access is not asked",
        },
    })
}

/// The rows of the reference, and ours behind them.
pub(super) fn listed() -> impl Iterator<Item = &'static Row> {
    let of = |is_ours| api::rows().filter(move |row| row.contract.is_ours == is_ours);
    of(false).chain(of(true))
}

fn route(row: &Row, definitions: &mut Definitions) -> Value {
    let contract = &row.contract;
    let request = contract.request.first();
    let response = contract.response.first();
    let request = request.map(|one| shape(one, |describe| definitions.read(describe)));
    let response = response.map(|one| shape(one, |describe| definitions.written(describe)));
    let statuses = statuses::of(row).into_iter().map(
        |told| json!({"code": told.code.as_u16(), "error": told.slug, "meaning": told.meaning}),
    );
    let mut route = Map::from_iter([
        ("method".to_owned(), method(row).into()),
        ("path".to_owned(), row.path.into()),
        ("auth".to_owned(), access(row.access).into()),
        ("summary".to_owned(), row.about.into()),
        ("request".to_owned(), request.into()),
        ("response".to_owned(), response.into()),
        ("statuses".to_owned(), statuses.collect()),
    ]);
    if let Some(describe) = contract.query {
        let query = json!({"media_type": FORM, "schema": definitions.read(describe)});
        route.insert("query".to_owned(), query);
    }
    if let [_, others @ ..] = contract.response
        && !others.is_empty()
    {
        let others = others
            .iter()
            .map(|one| shape(one, |describe| definitions.written(describe)));
        route.insert("other_responses".to_owned(), others.collect());
    }
    if !contract.events.is_empty() {
        let events = contract.events.iter().map(|event| {
            let schema = definitions.written(event.schema);
            json!({"event": event.name, "schema": schema, "meaning": event.meaning})
        });
        route.insert("sse_events".to_owned(), events.collect());
    }
    route.into()
}

fn shape(shape: &Shape, schema: impl FnOnce(api::contract::Describe) -> Value) -> Value {
    let mut told = Map::from_iter([("media_type".to_owned(), shape.media.into())]);
    if let Some(describe) = shape.schema {
        told.insert("schema".to_owned(), schema(describe));
    }
    if !shape.note.is_empty() {
        told.insert("note".to_owned(), shape.note.into());
    }
    told.into()
}

fn access(access: Access) -> &'static str {
    match access {
        Access::Open => "none",
        Access::Bearer | Access::Scraper => "bearer",
        Access::Platform => "none (platform hook)",
    }
}

fn auth() -> Value {
    json!({
        "scheme": "bearer",
        "header": "authorization",
        "bootstrap": {
            "how": "the run hook installs the token, once",
            "before_bootstrap": "503",
            "wrong_token": "401",
            "note": "access is decided before a byte of the body is read",
        },
    })
}

fn limits(config: &Config) -> Value {
    let limits = &config.limits;
    json!({
        "exec_ttl_secs": limits.exec_ttl.as_secs_f64(),
        "kill_grace_secs": limits.kill_grace.as_secs_f64(),
        "max_body_bytes": limits.max_body_bytes,
        "max_drain_bytes": limits.max_drain_bytes,
        "max_output_bytes": limits.max_output_bytes,
        "max_stdin_write_bytes": limits.max_stdin_write_bytes,
        "max_tar_bytes": limits.max_tar_bytes,
        "max_tar_members": limits.max_tar_members,
        "output_linger_secs": limits.output_linger.as_secs_f64(),
        "sse_keepalive_secs": limits.sse_keepalive.as_secs_f64(),
        "stdin_write_timeout_secs": limits.stdin_write_timeout.as_secs_f64(),
        "stream_replay_bytes": limits.stream_buffer_bytes,
    })
}

/// The version of the protocol, which the first part of a path names too.
const PROTOCOL: &str = "1";
const HOOKS: &str = "/aws/lambda-microvms/runtime/v1";
const FORM: &str = "application/x-www-form-urlencoded";
