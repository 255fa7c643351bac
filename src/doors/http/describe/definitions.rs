//! The types that a document refers to, described as they are read or as they are written.

use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};

use crate::api::contract::Describe;

/// The types so far.
///
/// A type of a request says what may be left out, one of an answer what may be missing. So a type that were used for
/// both could have two descriptions; such a name is a collision.
pub(super) struct Definitions {
    read: SchemaGenerator,
    written: SchemaGenerator,
}

impl Definitions {
    /// None, for a document that keeps them at `place`, a JSON pointer.
    pub(super) fn new(place: &'static str) -> Self {
        let settings =
            || SchemaSettings::draft2020_12().with(|set| set.definitions_path = place.into());
        Self {
            read: settings().for_deserialize().into_generator(),
            written: settings().for_serialize().into_generator(),
        }
    }

    /// The schema of something that a client sends.
    pub(super) fn read(&mut self, describe: Describe) -> Value {
        describe(&mut self.read).into()
    }

    /// The schema of something that a client gets.
    pub(super) fn written(&mut self, describe: Describe) -> Value {
        describe(&mut self.written).into()
    }

    /// The keys of a query: name, schema, and whether it must be there.
    pub(super) fn keys(&mut self, describe: Describe) -> Vec<(String, Value, bool)> {
        crate::api::contract::keys(describe, &mut self.read)
    }

    /// Every type by its name, and the names that stand for two.
    pub(super) fn finish(mut self) -> (Map<String, Value>, Vec<String>) {
        let mut all = self.written.take_definitions(true);
        let mut collisions = Vec::new();
        for (name, schema) in self.read.take_definitions(true) {
            match all.get(&name) {
                Some(other) if *other != schema => collisions.push(name),
                _ => drop(all.insert(name, schema)),
            }
        }
        (all, collisions)
    }
}
