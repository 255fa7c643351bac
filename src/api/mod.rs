//! What can be asked: the table of operations, and how a path finds its row.

pub mod body;
pub mod coding;
pub mod digest;
pub mod exec;
pub mod files;
pub mod hooks;
pub mod intake;
pub mod metrics;
pub mod paths;
pub mod precondition;
pub mod row;
pub mod sync;
pub mod system;
pub mod transfers;
pub mod uploads;

use std::sync::LazyLock;

pub use row::{Access, Answer, Call, Form, Method, Part, Produce, Row, Source};

use crate::app::App;
use crate::app::traffic::At;
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
    metrics::ROWS,
];

/// What the table says about a method and a path.
pub enum Found {
    /// An operation, its number in the table, and the value of its `{id}` (decoded; empty without one).
    Row(&'static Row, usize, Vec<u8>),
    /// The path exists, for the methods of `allow`.
    WrongMethod {
        /// Who may know even that.
        access: Access,
        /// The value of the allow field.
        allow: &'static str,
    },
    /// No such path.
    Nothing,
}

impl Found {
    /// Where the request is counted.
    pub fn at(&self) -> At {
        match self {
            Self::Row(_, number, _) => At::Operation(*number),
            Self::WrongMethod { .. } => At::WrongMethod,
            Self::Nothing => At::Unmatched,
        }
    }
}

/// Finds the row for a request.
///
/// A path that is spelled out in the table shadows one with `{id}`, for every method.
pub fn find(method: &str, path: &str) -> Found {
    let paths = &*PATHS;
    let (candidates, id) = match paths.spelled.binary_search_by(|known| known.path.cmp(path)) {
        Ok(index) => (&paths.spelled[index], Vec::new()),
        Err(_) => {
            let mut fitting = paths.open.iter();
            let fitting = fitting.find_map(|known| Some((known, known.capture(path)?)));
            match fitting {
                Some(found) => found,
                None => return Found::Nothing,
            }
        }
    };
    let wanted = match method {
        "GET" | "HEAD" => Some(Method::Get),
        "PUT" => Some(Method::Put),
        "POST" => Some(Method::Post),
        "PATCH" => Some(Method::Patch),
        "DELETE" => Some(Method::Delete),
        _ => None,
    };
    let mut rows = candidates.rows.iter();
    match rows.find(|(row, _)| Some(row.method) == wanted) {
        Some((row, number)) => Found::Row(row, *number, id),
        None => Found::WrongMethod {
            access: candidates.rows[0].0.access,
            allow: &candidates.allow,
        },
    }
}

/// Decides whether a caller who presents `authorization` (the value of that field) may use an operation.
///
/// # Errors
/// `Unauthorized`, or `NotBootstrapped` while there is no token; neither has a sentence.
pub fn admit(app: &App, access: Access, authorization: Option<&[u8]>) -> Result<()> {
    let is_opened = access == Access::Scraper && app.config.metrics_open;
    if !access.asks_for_a_token() || is_opened {
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

/// The table by path, made at the first request.
static PATHS: LazyLock<Paths> = LazyLock::new(Paths::of_table);

struct Paths {
    /// Those without an `{id}`, in order.
    spelled: Vec<Path>,
    /// Those with one.
    open: Vec<Path>,
}

/// One path: the operations that it has.
struct Path {
    path: &'static str,
    /// What stands before and behind the `{id}`.
    around: Option<(&'static str, &'static str)>,
    /// Each with its number in the table; never empty.
    rows: Vec<(&'static Row, usize)>,
    allow: String,
}

impl Paths {
    fn of_table() -> Self {
        let mut all: Vec<Path> = Vec::new();
        for (number, row) in rows().enumerate() {
            match all.iter_mut().find(|known| known.path == row.path) {
                Some(known) => known.rows.push((row, number)),
                None => all.push(Path {
                    path: row.path,
                    around: row.path.split_once("{id}"),
                    rows: vec![(row, number)],
                    allow: String::new(),
                }),
            }
        }
        for path in &mut all {
            let mut methods: Vec<&str> = path.rows.iter().map(|(row, _)| spelled(row)).collect();
            methods.sort_unstable();
            path.allow = methods.join(",");
        }
        all.sort_unstable_by_key(|path| path.path);
        let (open, spelled) = all.into_iter().partition(|path| path.around.is_some());
        Self { spelled, open }
    }
}

impl Path {
    /// The decoded value of `{id}` when `path` has this shape.
    fn capture(&self, path: &str) -> Option<Vec<u8>> {
        let (before, behind) = self.around?;
        let value = path.strip_prefix(before)?.strip_suffix(behind)?;
        let is_one_segment = !value.is_empty() && !value.contains('/');
        is_one_segment.then(|| unescape(value.as_bytes(), false))
    }
}

/// The methods of a row as the allow field has them.
fn spelled(row: &Row) -> &'static str {
    match row.method {
        Method::Get => "GET,HEAD",
        Method::Post => "POST",
        Method::Put => "PUT",
        Method::Patch => "PATCH",
        Method::Delete => "DELETE",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::app::traffic::MOST_OPERATIONS;

    fn named(method: &str, path: &str) -> (&'static str, String) {
        match find(method, path) {
            Found::Row(row, _, id) => (row.name, String::from_utf8_lossy(&id).into_owned()),
            Found::WrongMethod { allow, .. } => ("wrong method", allow.to_owned()),
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

    #[test]
    fn every_row_is_found_and_counted_by_its_own_number() {
        for (number, row) in rows().enumerate() {
            let method = spelled(row).split(',').next().unwrap_or_default();
            let Found::Row(found, counted, _) = find(method, &row.path.replace("{id}", "x")) else {
                panic!("{} is not found", row.name);
            };
            assert_eq!((found.name, counted), (row.name, number));
            assert!(number < MOST_OPERATIONS, "{} is not counted", row.name);
        }
    }

    #[test]
    fn a_path_has_one_shape_at_most() {
        for path in &PATHS.open {
            let sample = path.path.replace("{id}", "x");
            let fitting = PATHS
                .open
                .iter()
                .filter(|other| other.capture(&sample).is_some());
            assert_eq!(fitting.count(), 1, "{sample}");
        }
    }
}
