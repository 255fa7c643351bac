//! What can be asked: the table of operations, and how a path finds its row.

pub mod body;
pub mod coding;
pub mod contract;
pub mod digest;
pub mod exec;
pub mod files;
pub mod hooks;
pub mod intake;
pub mod paths;
pub mod precondition;
mod queries;
pub mod row;
pub mod sync;
pub mod system;
pub mod transfers;
pub mod uploads;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use schemars::generate::SchemaSettings;

pub use row::{Access, Answer, Call, Document, Form, Method, Part, Produce, Row, Source};

use crate::app::App;
use crate::boot::Verdict;
use crate::error::{Kind, Result};
use crate::wire::http::query::unescape;

/// The operations, by room.
pub static TABLE: &[&[Row]] = &[
    hooks::ROWS,
    exec::ROWS,
    files::ROWS,
    sync::ROWS,
    paths::ROWS,
    transfers::ROWS,
    uploads::ROWS,
    system::ROWS,
];

/// What the table says about a method and a path.
pub enum Found {
    /// An operation, and the value of its `{id}` (decoded; empty without one).
    Row(&'static Row, Vec<u8>),
    /// The path exists, for the methods of `allow`.
    WrongMethod {
        /// Who may know even that.
        access: Access,
        /// The value of the allow field.
        allow: String,
    },
    /// No such path.
    Nothing,
}

/// Finds the row for a request.
///
/// A path that is spelled out in the table shadows one with `{id}`, for every method.
pub fn find(method: &str, path: &str) -> Found {
    let literal: Vec<&'static Row> = rows().filter(|row| row.path == path).collect();
    let (candidates, id) = if literal.is_empty() {
        let mut id = Vec::new();
        let fitting = rows().filter(|row| match capture(row.path, path) {
            Some(value) => {
                id = value;
                true
            }
            None => false,
        });
        let fitting: Vec<_> = fitting.collect();
        (fitting, id)
    } else {
        (literal, Vec::new())
    };
    let Some(first) = candidates.first() else {
        return Found::Nothing;
    };
    let wanted = match method {
        "GET" | "HEAD" => Some(Method::Get),
        "PUT" => Some(Method::Put),
        "POST" => Some(Method::Post),
        "PATCH" => Some(Method::Patch),
        "DELETE" => Some(Method::Delete),
        _ => None,
    };
    match candidates.iter().find(|row| Some(row.method) == wanted) {
        Some(row) => Found::Row(row, id),
        None => Found::WrongMethod {
            access: first.access,
            allow: allow(&candidates),
        },
    }
}

/// Decides whether a caller who presents `authorization` (the value of that field) may use an operation.
///
/// # Errors
/// `Unauthorized`, or `NotBootstrapped` while there is no token; neither has a sentence.
pub fn admit(app: &App, access: Access, authorization: Option<&[u8]>) -> Result<()> {
    if access != Access::Bearer {
        return Ok(());
    }
    match app.boot.permits(authorization) {
        Verdict::Granted => Ok(()),
        Verdict::Denied => Err(Kind::Unauthorized.bare()),
        Verdict::NotBootstrapped => Err(Kind::NotBootstrapped.bare()),
    }
}

/// Every row of the table.
pub fn rows() -> impl Iterator<Item = &'static Row> {
    TABLE.iter().flat_map(|room| room.iter())
}

/// The keys of the query that the documents tell of a row; none for a row that is not in the table.
pub fn published_keys(row: &Row) -> &'static BTreeSet<String> {
    static NONE: BTreeSet<String> = BTreeSet::new();
    static KEYS: LazyLock<BTreeMap<&str, BTreeSet<String>>> = LazyLock::new(|| {
        let mut generator = SchemaSettings::draft2020_12().into_generator();
        let mut names = |row: &Row| -> BTreeSet<String> {
            let keys = row
                .contract
                .query
                .map(|query| contract::keys(query, &mut generator));
            let keys = keys.into_iter().flatten();
            keys.map(|(name, ..)| name).collect()
        };
        rows().map(|row| (row.name, names(row))).collect()
    });
    KEYS.get(row.name).unwrap_or(&NONE)
}

fn allow(candidates: &[&'static Row]) -> String {
    let methods: BTreeSet<&str> = candidates
        .iter()
        .map(|row| match row.method {
            Method::Get => "GET,HEAD",
            Method::Post => "POST",
            Method::Put => "PUT",
            Method::Patch => "PATCH",
            Method::Delete => "DELETE",
        })
        .collect();
    methods.into_iter().collect::<Vec<_>>().join(",")
}

/// The decoded value of `{id}` when `path` has the shape of `pattern`.
fn capture(pattern: &str, path: &str) -> Option<Vec<u8>> {
    let (before, rest) = pattern.split_at(pattern.find('{')?);
    let value = path.strip_prefix(before)?;
    let value = value.strip_suffix(rest.strip_prefix("{id}")?)?;
    let is_one_segment = !value.is_empty() && !value.contains('/');
    is_one_segment.then(|| unescape(value.as_bytes(), false))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(method: &str, path: &str) -> (&'static str, String) {
        match find(method, path) {
            Found::Row(row, id) => (row.name, String::from_utf8_lossy(&id).into_owned()),
            Found::WrongMethod { allow, .. } => ("wrong method", allow),
            Found::Nothing => ("nothing", String::new()),
        }
    }

    #[test]
    fn a_path_finds_its_row() {
        assert_eq!(named("GET", "/v1/health"), ("health", String::new()));
        assert_eq!(
            named("HEAD", "/v1/exec/a%2Fb%20c"),
            ("exec.poll", "a/b c".into())
        );
        assert_eq!(named("POST", "/v1/exec/x/kill"), ("exec.kill", "x".into()));
    }

    #[test]
    fn a_spelled_path_shadows_an_id() {
        assert_eq!(named("POST", "/v1/exec/start").0, "exec.start");
        assert_eq!(
            named("GET", "/v1/exec/start"),
            ("wrong method", "POST".into())
        );
        assert_eq!(
            named("GET", "/v1/exec/%73tart"),
            ("exec.poll", "start".into())
        );
    }

    #[test]
    fn the_methods_of_a_path_are_told() {
        assert_eq!(named("DELETE", "/v1/fs/file").1, "GET,HEAD,PUT");
        assert_eq!(named("DELETE", "/v1/exec/x").1, "GET,HEAD");
    }

    #[test]
    fn what_is_not_in_the_table_is_nothing() {
        for path in [
            "/",
            "*",
            "/v1/health/",
            "//v1/health",
            "/v1/exec",
            "/v1/exec/",
            "/v1/exec//kill",
        ] {
            assert_eq!(named("GET", path).0, "nothing", "{path}");
        }
    }

    #[test]
    fn every_row_is_unique() {
        let mut seen = BTreeSet::new();
        for row in rows() {
            assert!(seen.insert(row.name), "{} stands twice", row.name);
        }
    }
}
