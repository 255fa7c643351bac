//! Every status that an operation can answer: its own, and those that the door adds.

use std::collections::BTreeMap;

use http::StatusCode;

use super::{bounds_a_body, reads_a_body};
use crate::api::contract::Success;
use crate::api::{Form, Row};
use crate::doors::http::respond;
use crate::error::Kind;

/// One status, and what it means.
pub(super) struct Told {
    pub(super) code: StatusCode,
    /// What clients branch on besides the code; may be empty.
    pub(super) slug: &'static str,
    pub(super) meaning: String,
    pub(super) body: Body,
}

/// What stands in the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Body {
    Empty,
    /// What the operation answers.
    Answer,
    /// A sentence.
    Sentence,
    /// A slug and a sentence.
    Slug,
    /// The same as a problem document.
    Problem,
}

/// The statuses of `row` by number, those with the same slug in one.
pub(super) fn of(row: &Row) -> Vec<Told> {
    let mut all = Statuses(BTreeMap::new());
    for (success, meaning) in row.contract.successes {
        let has_body = matches!(success, Success::Whole | Success::Part);
        let body = match has_body && !row.contract.response.is_empty() {
            true => Body::Answer,
            false => Body::Empty,
        };
        all.add(respond::success(*success), "", meaning, body);
    }
    for (kind, meaning) in row.errors {
        all.fail(row.form, *kind, meaning);
    }
    let by_the_door = by_the_door(row);
    for (_, kind, meaning) in by_the_door.iter().filter(|(applies, ..)| *applies) {
        all.fail(Form::Text, *kind, meaning);
    }
    all.0.into_values().collect()
}

/// What the door refuses whatever the operation is: whether it applies, and why.
fn by_the_door(row: &Row) -> [(bool, Kind, &'static str); 6] {
    let is_guarded = row.access.asks_for_a_token();
    let reads = reads_a_body(row);
    [
        (is_guarded, Kind::Unauthorized, "another token is installed"),
        (
            is_guarded,
            Kind::NotBootstrapped,
            "no token is installed yet",
        ),
        (
            row.path.contains('{'),
            Kind::Malformed,
            "the id in the path is not UTF-8",
        ),
        (reads, Kind::ClientGone, "the body ends before its length"),
        (reads, Kind::ClientStalled, "nothing comes of the body"),
        (
            bounds_a_body(row),
            Kind::TooLarge,
            "the body is larger than limits.max_body_bytes",
        ),
    ]
}

struct Statuses(BTreeMap<(u16, &'static str), Told>);

impl Statuses {
    fn fail(&mut self, form: Form, kind: Kind, meaning: &str) {
        let slug = respond::slug(kind).filter(|_| form == Form::Json);
        let body = match (slug, kind) {
            (Some(_), kind) if respond::is_problem(kind) => Body::Problem,
            (Some(_), _) => Body::Slug,
            (None, kind) if BARE.contains(&kind) => Body::Empty,
            (None, _) => Body::Sentence,
        };
        self.add(respond::status(kind), slug.unwrap_or(""), meaning, body);
    }

    fn add(&mut self, code: StatusCode, slug: &'static str, meaning: &str, body: Body) {
        let told = self.0.entry((code.as_u16(), slug)).or_insert(Told {
            code,
            slug,
            meaning: String::new(),
            body,
        });
        told.body = told.body.max(body);
        if !told.meaning.is_empty() {
            told.meaning.push_str("; or ");
        }
        told.meaning.push_str(meaning);
    }
}

/// Kinds that are answered without a word.
const BARE: [Kind; 4] = [
    Kind::Unauthorized,
    Kind::NotBootstrapped,
    Kind::TokenTaken,
    Kind::RangeNotSatisfiable,
];
