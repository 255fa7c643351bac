//! What the published documents tell of an operation besides what routing and access need of it.

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::Value;

/// How a type is described; usually `SchemaGenerator::subschema_for` of the type.
pub type Describe = fn(&mut SchemaGenerator) -> Schema;

/// A header field and what it means.
pub type Field = (&'static str, &'static str);

/// What the documents tell of an operation. What is left out is empty: see [`Contract::NONE`].
pub struct Contract {
    /// True for what the reference does not have; the documents list it behind what it has.
    pub is_ours: bool,
    /// The keys of the query.
    pub query: Option<Describe>,
    /// Header fields of the request that it reads.
    pub takes: &'static [Field],
    /// The body of a request; of several forms the usual one is first.
    pub request: &'static [Shape],
    /// The successes, each with its meaning.
    pub successes: &'static [(Success, &'static str)],
    /// The body of a [`Success::Whole`] or [`Success::Part`]; of several forms the usual one is first.
    pub response: &'static [Shape],
    /// Header fields of a success.
    pub tells: &'static [Field],
    /// The events of a response that is a stream of them.
    pub events: &'static [Event],
}

/// What an operation has achieved, as far as clients tell it apart. The door knows which status it becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Success {
    /// It answers with a body, or with an empty one.
    Whole,
    /// It answers with a part of a body.
    Part,
    /// It is done, and there is nothing to answer.
    Done,
    /// Something was made.
    Created,
    /// The client holds the body already.
    Unchanged,
    /// The connection speaks another protocol.
    Switched,
}

/// One form of a body.
pub struct Shape {
    /// The media type.
    pub media: &'static str,
    /// What a document of this type looks like; `None` for bytes.
    pub schema: Option<Describe>,
    /// What the schema does not say; may be empty.
    pub note: &'static str,
}

/// One kind of event in a stream of them.
pub struct Event {
    /// Its name.
    pub name: &'static str,
    /// What its data looks like.
    pub schema: Describe,
    /// What it means.
    pub meaning: &'static str,
}

impl Contract {
    /// An operation without a query, without bodies, and without a success of its own.
    pub const NONE: Self = Self {
        is_ours: false,
        query: None,
        takes: &[],
        request: &[],
        successes: &[],
        response: &[],
        tells: &[],
        events: &[],
    };
}

impl Shape {
    /// A JSON document.
    pub const fn json<T: JsonSchema>() -> Self {
        Self {
            media: "application/json",
            schema: Some(SchemaGenerator::subschema_for::<T>),
            note: "",
        }
    }

    /// JSON documents, one a line.
    pub const fn lines(schema: Describe, note: &'static str) -> Self {
        Self {
            media: "application/x-ndjson",
            schema: Some(schema),
            note,
        }
    }

    /// Bytes of a media type.
    pub const fn bytes(media: &'static str, note: &'static str) -> Self {
        Self {
            media,
            schema: None,
            note,
        }
    }
}

impl Event {
    /// An event whose data is a document of this type.
    pub const fn new<T: JsonSchema>(name: &'static str, meaning: &'static str) -> Self {
        Self {
            name,
            schema: SchemaGenerator::subschema_for::<T>,
            meaning,
        }
    }
}

/// The keys of a query: name, schema, and whether it must be there.
pub fn keys(query: Describe, generator: &mut SchemaGenerator) -> Vec<(String, Value, bool)> {
    let beside: Value = query(generator).into();
    let name = beside["$ref"]
        .as_str()
        .and_then(|path| path.rsplit('/').next());
    let shared = name.and_then(|name| generator.definitions().get(name));
    let mut keys = Vec::new();
    for schema in shared.into_iter().chain([&beside]) {
        let required = schema["required"].as_array();
        for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
            let is_required = required.is_some_and(|all| all.iter().any(|one| one == name));
            keys.push((name.clone(), schema.clone(), is_required));
        }
    }
    keys
}

/// A document of one of two types.
pub fn either<A: JsonSchema, B: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    let (one, other) = (
        generator.subschema_for::<A>(),
        generator.subschema_for::<B>(),
    );
    schemars::json_schema!({ "anyOf": [one, other] })
}

/// The properties of `A`, and further ones beside it.
///
/// The schema refers to `A` and names the others next to the reference, so that a reader who knows `A` finds it.
pub fn beyond<A: JsonSchema, More: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = generator.subschema_for::<A>();
    let more = More::json_schema(generator);
    for key in ["properties", "required"] {
        if let Some(value) = more.get(key) {
            schema.insert(key.to_owned(), value.clone());
        }
    }
    schema
}
