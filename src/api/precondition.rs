//! The preconditions of a request, judged against what is there (RFC 9110, section 13).

use std::time::{SystemTime, UNIX_EPOCH};

use crate::fs::version::Version;
use crate::wire::http::date;
use crate::wire::http::head::Fields;

/// What a request is about to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aim {
    /// To read (GET, HEAD).
    Read,
    /// To change (all others).
    Change,
}

/// What the preconditions say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The request is performed.
    Perform,
    /// The client holds what it asks for (304).
    Unchanged,
    /// What is there is not what the request says it must be (412).
    Failed,
}

/// How what is there is told from other versions of it; neither is known of what the kernel makes up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Validators {
    /// A strong validator, quotes included.
    pub etag: Option<String>,
    /// The time of last modification, seconds since 1970.
    pub modified: Option<i64>,
}

impl Validators {
    /// Those of a version of a file.
    pub fn of(version: &Version) -> Self {
        Self {
            etag: Some(version.etag()),
            modified: Some(version.modified()),
        }
    }
}

/// Judges the preconditions in the order of RFC 9110, section 13.2.2; `there` is `None` where nothing is.
///
/// `if-match` takes the validator of any content coding of a version: it names the version, not the coding.
/// `if-range` is not among them, see [`range_holds`].
pub fn judge(fields: &Fields, aim: Aim, there: Option<&Validators>) -> Verdict {
    let etag = there.and_then(|there| there.etag.as_deref());
    let modified = there.and_then(|there| there.modified);
    let among = |name: &str, same: &dyn Fn(&[u8], &str) -> bool| {
        is_given(fields, name).then(|| {
            fields.all(name).any(|list| {
                let named = |tag| etag.is_some_and(|etag| same(tag, etag));
                list.trim_ascii() == b"*" && there.is_some() || tags(list).any(named)
            })
        })
    };
    let holds = match among("if-match", &is_version) {
        Some(matches) => matches,
        None => !since(fields, "if-unmodified-since", modified, |at, given| {
            at > given
        }),
    };
    if !holds {
        return Verdict::Failed;
    }
    let is_held = match (among("if-none-match", &is_alike), aim) {
        (Some(matches), _) => matches,
        (None, Aim::Read) => since(fields, "if-modified-since", modified, |at, given| {
            at <= given
        }),
        (None, Aim::Change) => false,
    };
    match (is_held, aim) {
        (false, _) => Verdict::Perform,
        (true, Aim::Read) => Verdict::Unchanged,
        (true, Aim::Change) => Verdict::Failed,
    }
}

/// True unless an `if-range` names something else than this version: then the range is to be ignored (section 13.1.5).
pub fn range_holds(fields: &Fields, version: &Version) -> bool {
    let Some(condition) = fields.first("if-range").map(<[u8]>::trim_ascii) else {
        return true;
    };
    if fields.all("if-range").nth(1).is_some() {
        return false;
    }
    if condition.contains(&b'"') {
        return condition == version.etag().as_bytes();
    }
    let now = now();
    date::parse(condition, now) == Some(version.modified()) && version.is_dated(now)
}

/// True when the date of the field `name` stands so to `at`; a date that is none, or two, are as none.
fn since(fields: &Fields, name: &str, at: Option<i64>, stands: fn(i64, i64) -> bool) -> bool {
    let mut values = fields.all(name);
    let (Some(at), Some(value), None) = (at, values.next(), values.next()) else {
        return false;
    };
    date::parse(value, now()).is_some_and(|given| stands(at, given))
}

fn is_given(fields: &Fields, name: &str) -> bool {
    fields.first(name).is_some()
}

/// The weak comparison (section 8.8.3.2), with a validator of ours, which is strong.
fn is_alike(tag: &[u8], etag: &str) -> bool {
    tag.strip_prefix(b"W/").unwrap_or(tag) == etag.as_bytes()
}

/// The strong comparison, whatever the coding.
fn is_version(tag: &[u8], etag: &str) -> bool {
    uncoded(tag) == uncoded(etag.as_bytes())
}

/// A tag without its closing quote and without the name of a coding.
fn uncoded(tag: &[u8]) -> &[u8] {
    let open = tag.strip_suffix(b"\"").unwrap_or(tag);
    CODED
        .iter()
        .find_map(|end| open.strip_suffix(*end))
        .unwrap_or(open)
}

/// The tags of a list, weakness and quotes included; what stands between them is passed over.
fn tags(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = list;
    std::iter::from_fn(move || {
        let open = rest.iter().position(|byte| *byte == b'"')?;
        let close = open + 1 + rest[open + 1..].iter().position(|byte| *byte == b'"')?;
        let is_weak = rest[..open].ends_with(b"W/");
        let tag = &rest[open - if is_weak { 2 } else { 0 }..=close];
        rest = &rest[close + 1..];
        Some(tag)
    })
}

/// Seconds since 1970.
fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
    })
}

/// How the validator of a version ends when it is that of a coding of it.
const CODED: &[&[u8]] = &[b"-zstd", b"-gzip"];

#[cfg(test)]
#[path = "precondition_tests.rs"]
mod tests;
