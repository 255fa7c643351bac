//! The document of `GET /v1/openapi.json`: the rows in the terms of OpenAPI 3.1.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::definitions::Definitions;
use super::schema::listed;
use super::statuses::{self, Body, Told};
use super::{method, reads_a_body};
use crate::api::contract::{Field, Shape};
use crate::api::system::VERSION;
use crate::api::{Access, Row};

/// The whole document.
pub(super) fn document() -> Value {
    let mut definitions = Definitions::new("/components/schemas");
    let mut paths: Map<String, Value> = Map::new();
    for row in listed() {
        let operation = operation(row, &mut definitions);
        let path = paths.entry(row.path).or_insert_with(|| json!({}));
        path[method(row).to_ascii_lowercase()] = operation;
    }
    let (mut schemas, _) = definitions.finish();
    schemas.insert("ErrorBody".to_owned(), error_body());
    schemas.insert("ProblemBody".to_owned(), problem_body());
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "ringd",
            "version": VERSION,
            "description": ABOUT,
        },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "bearer": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "the token that the run hook has installed",
                },
            },
        },
    })
}

fn operation(row: &Row, definitions: &mut Definitions) -> Value {
    let security = match row.access {
        Access::Bearer | Access::Scraper => json!([{"bearer": []}]),
        Access::Open | Access::Platform => json!([]),
    };
    let room = row.name.split('.').next().unwrap_or_default();
    let mut operation = json!({
        "operationId": row.name,
        "summary": row.about,
        "tags": [room],
        "security": security,
        "responses": responses(row, definitions),
    });
    let parameters = parameters(row, definitions);
    if !parameters.is_empty() {
        operation["parameters"] = parameters.into();
    }
    if reads_a_body(row) {
        let content = content(row.contract.request, |describe| definitions.read(describe));
        operation["requestBody"] = json!({"required": true, "content": content});
    }
    operation
}

fn parameters(row: &Row, definitions: &mut Definitions) -> Vec<Value> {
    let mut all = Vec::new();
    if row.path.contains("{id}") {
        all.push(json!({
            "name": "id", "in": "path", "required": true,
            "schema": {"type": "string", "minLength": 1},
        }));
    }
    let keys = row.contract.query.map(|query| definitions.keys(query));
    for (name, mut schema, is_required) in keys.into_iter().flatten() {
        let about = schema.as_object_mut().and_then(|schema| {
            never_null(schema);
            schema.remove("description")
        });
        let mut key = json!({"name": name, "in": "query", "schema": schema});
        if let Some(about) = about {
            key["description"] = about;
        }
        if is_required {
            key["required"] = true.into();
        }
        all.push(key);
    }
    all.extend(row.contract.takes.iter().filter(|one| is_parameter(one)).map(|(name, about)| {
        json!({"name": name, "in": "header", "description": about, "schema": {"type": "string"}})
    }));
    all
}

/// Takes null out of the schema of a key: what a query does not say is not there.
fn never_null(schema: &mut Map<String, Value>) {
    if schema.get("default").is_some_and(Value::is_null) {
        schema.remove("default");
    }
    for (keyword, null) in [("type", json!("null")), ("enum", Value::Null)] {
        if let Some(Value::Array(all)) = schema.get_mut(keyword) {
            all.retain(|one| *one != null);
        }
    }
    if let Some([one]) = schema
        .get("type")
        .and_then(Value::as_array)
        .map(Vec::as_slice)
    {
        let one = one.clone();
        schema.insert("type".to_owned(), one);
    }
}

/// OpenAPI has other ways to say what these are.
fn is_parameter((name, _): &Field) -> bool {
    !["accept", "content-type", "authorization"].contains(name)
}

fn responses(row: &Row, definitions: &mut Definitions) -> Value {
    let mut by_code: BTreeMap<u16, Vec<Told>> = BTreeMap::new();
    for told in statuses::of(row) {
        let code = told.code.as_u16();
        by_code.entry(code).or_default().push(told);
    }
    let responses = by_code.into_iter().map(|(code, all)| {
        let response = response(row, &all, definitions);
        (code.to_string(), response)
    });
    Value::Object(responses.collect())
}

fn response(row: &Row, all: &[Told], definitions: &mut Definitions) -> Value {
    let meanings = all.iter().map(|told| match told.slug {
        "" => told.meaning.clone(),
        slug => format!("`{slug}`: {}", told.meaning),
    });
    let meanings: Vec<String> = meanings.collect();
    let mut description = meanings.join("; or ");
    if all.iter().any(|told| told.body == Body::Answer) {
        for event in row.contract.events {
            let schema = definitions.written(event.schema);
            let (name, meaning) = (event.name, event.meaning);
            description += &format!("\n- event `{name}` (`{}`): {meaning}", names(&schema));
        }
    }
    let mut response = json!({"description": description});
    let mut bodies = Map::new();
    let slugs = |kind: Body| -> Vec<&str> {
        let with = all.iter().filter(|told| told.body == kind);
        with.map(|told| told.slug).collect()
    };
    if all.iter().any(|told| told.body == Body::Answer) {
        let answers = content(row.contract.response, |describe| {
            definitions.written(describe)
        });
        bodies.extend(answers);
    }
    if all.iter().any(|told| told.body == Body::Sentence) {
        bodies.insert(TEXT.to_owned(), json!({"schema": {"type": "string"}}));
    }
    for (kind, media, schema) in [
        (Body::Slug, "application/json", "ErrorBody"),
        (Body::Problem, "application/problem+json", "ProblemBody"),
    ] {
        let slugs = slugs(kind);
        if !slugs.is_empty() {
            let schema = json!({
                "$ref": format!("#/components/schemas/{schema}"),
                "properties": {"error": {"enum": slugs}},
            });
            bodies.insert(media.to_owned(), json!({"schema": schema}));
        }
    }
    if !bodies.is_empty() {
        response["content"] = bodies.into();
    }
    let is_success = all.iter().any(|told| told.code.as_u16() < 400);
    if is_success && !row.contract.tells.is_empty() {
        let headers = row.contract.tells.iter().map(|(name, about)| {
            let header = json!({"description": about, "schema": {"type": "string"}});
            ((*name).to_owned(), header)
        });
        response["headers"] = Value::Object(headers.collect());
    }
    response
}

/// Bodies by their media types.
fn content(
    shapes: &[Shape],
    mut schema: impl FnMut(crate::api::contract::Describe) -> Value,
) -> Map<String, Value> {
    let content = shapes.iter().map(|shape| {
        let one = match (shape.schema, shape.media) {
            // Each line is a document; all of them together are none.
            (Some(describe), LINES) => {
                let line = schema(describe);
                let about = format!("{}: {}", shape.note, names(&line));
                json!({"schema": {"type": "string", "description": about}})
            }
            (Some(describe), _) => json!({"schema": schema(describe)}),
            (None, "application/json") => json!({"schema": {"type": "object"}}),
            // OpenAPI 3.1 has no schema for events; the description of the response names their types.
            (None, EVENTS) => json!({}),
            (None, _) => json!({"schema": {"type": "string", "format": "binary"}}),
        };
        (shape.media.to_owned(), one)
    });
    content.collect()
}

/// The names of the types that a schema refers to.
fn names(schema: &Value) -> String {
    let one = std::slice::from_ref(schema);
    let all = schema["anyOf"].as_array().map_or(one, Vec::as_slice);
    let names = all
        .iter()
        .filter_map(|schema| schema["$ref"].as_str()?.rsplit('/').next());
    names.collect::<Vec<_>>().join(" or ")
}

fn error_body() -> Value {
    json!({
        "type": "object",
        "description": "why a request was refused",
        "properties": {
            "error": {"type": "string", "description": "what clients branch on"},
            "detail": {"type": "string", "description": "a sentence for people"},
        },
        "required": ["error", "detail"],
    })
}

/// A problem document (RFC 9457), with the members of every other error.
fn problem_body() -> Value {
    json!({
        "type": "object",
        "description": "why a request was refused, as a problem document",
        "properties": {
            "error": {"type": "string", "description": "what clients branch on"},
            "detail": {"type": "string", "description": "a sentence for people"},
            "type": {"type": "string", "format": "uri"},
            "title": {"type": "string"},
            "expected-offset": {"type": "integer", "minimum": 0},
            "provided-offset": {"type": "integer", "minimum": 0},
        },
        "required": ["error", "detail", "type", "title"],
    })
}

const ABOUT: &str = "Commands, files and trees of a guest. Besides what each operation lists, any of them may answer 500 \
    for a failure of the daemon, and 503 with retry-after when too much is under way.";
const TEXT: &str = "text/plain";
const LINES: &str = "application/x-ndjson";
const EVENTS: &str = "text/event-stream";
