//! What of a tree is wanted, from a query or a JSON body.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::body;
use crate::error::{Kind, Result};
use crate::fs::filter::Filter;
use crate::fs::pack::{Limits, Listed, Options};
use crate::wire::http::instant;
use crate::wire::http::query::Query;
use crate::wire::tar::Moment;

/// The options that GET and POST share, as they were written.
#[derive(Debug, Default)]
pub(super) struct Wishes {
    include: Vec<String>,
    exclude: Vec<String>,
    strip: u64,
    newer_than: Option<String>,
    one_file_system: bool,
    follow: bool,
    xattrs: bool,
    precise: bool,
    listed: Option<List>,
}

#[derive(Debug)]
struct List {
    names: Vec<String>,
    recursive: bool,
    skip_missing: bool,
}

/// The body of `tar.pick`. A field that is not known would be left out in silence, and with it what it asks for.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(description = "What of a tree goes into an archive")]
pub(super) struct PickRequest {
    /// The directory; links to it are followed.
    path: String,
    /// Names below it; `.` is the directory itself.
    names: Vec<String>,
    /// Packs directories with all below them.
    #[serde(default)]
    recursive: bool,
    /// What becomes of a name that is not there.
    #[serde(default)]
    missing: Missing,
    /// Patterns that choose among the names, as gitignore(5) has them.
    #[serde(default)]
    include: Vec<String>,
    /// Patterns of what is left out, whatever includes it.
    #[serde(default)]
    exclude: Vec<String>,
    /// Components that names lose at their front.
    #[serde(default)]
    #[schemars(range(max = 2048))]
    strip: u64,
    /// Only what was modified after this time: seconds since 1970, or a date of RFC 3339 or RFC 9110.
    #[serde(default)]
    newer_than: Option<Time>,
    /// Leaves out what is on other filesystems.
    #[serde(default)]
    one_file_system: bool,
    /// Packs what symbolic links lead to, in their place.
    #[serde(default)]
    follow: bool,
    /// Packs extended attributes and access lists.
    #[serde(default)]
    xattrs: bool,
    /// Tells times to the nanosecond.
    #[serde(default)]
    precise: bool,
}

#[derive(Default, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum Missing {
    #[default]
    Error,
    Skip,
}

#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
enum Time {
    Seconds(#[schemars(with = "f64")] serde_json::Number),
    Text(String),
}

impl Wishes {
    /// Reads the query of `tar.read`.
    ///
    /// # Errors
    /// `Malformed`, naming the key.
    pub(super) fn of(query: &Query) -> Result<Self> {
        let strip = query.one("strip")?;
        let strip = strip.map(|text| components(text.parse().ok()));
        Ok(Self {
            include: query.all("include").collect(),
            exclude: query.all("exclude").collect(),
            strip: strip.transpose()?.unwrap_or(0) as u64,
            newer_than: query.one("newer_than")?,
            one_file_system: query.flag("one_file_system", false)?,
            follow: query.flag("follow", false)?,
            xattrs: query.flag("xattrs", false)?,
            precise: query.flag("precise", false)?,
            listed: None,
        })
    }

    /// Reads the body of `tar.pick`: the path of the tree, and what is wanted of it.
    ///
    /// # Errors
    /// `Malformed`, saying where the body is wrong.
    pub(super) fn read(bytes: &[u8]) -> Result<(String, Self)> {
        let body: PickRequest = body::object(bytes, "tar request")?;
        let wishes = Self {
            include: body.include,
            exclude: body.exclude,
            strip: body.strip,
            newer_than: body.newer_than.map(|time| match time {
                Time::Seconds(number) => number.to_string(),
                Time::Text(text) => text,
            }),
            one_file_system: body.one_file_system,
            follow: body.follow,
            xattrs: body.xattrs,
            precise: body.precise,
            listed: Some(List {
                names: body.names,
                recursive: body.recursive,
                skip_missing: body.missing == Missing::Skip,
            }),
        };
        Ok((body.path, wishes))
    }

    /// True when it takes no time to make [`Options`] of it.
    pub(super) fn is_plain(&self) -> bool {
        self.include.is_empty() && self.exclude.is_empty() && self.listed.is_none()
    }

    /// What it means.
    ///
    /// # Errors
    /// `Malformed` with the pattern, name or value that is wrong; `TooLarge` for too many names.
    pub(super) fn options(self, limits: Limits) -> Result<Options> {
        let newer_than = self.newer_than.as_deref().map(moment).transpose()?;
        let listed = self.listed.map(|list| {
            if list.names.len() as u64 > limits.members {
                let most = limits.members;
                return Err(Kind::TooLarge.told(format!("names has more than {most} entries")));
            }
            Listed::new(list.names, list.recursive, list.skip_missing)
        });
        Ok(Options {
            filter: Filter::new(&self.include, &self.exclude)?,
            listed: listed.transpose()?,
            strip: components(Some(self.strip))?,
            newer_than,
            one_file_system: self.one_file_system,
            follow: self.follow,
            xattrs: self.xattrs,
            precise: self.precise,
            ..Options::whole(limits)
        })
    }
}

/// Checks that a body claims to be JSON.
pub(super) fn must_be_json(content_type: Option<&[u8]>) -> Result<()> {
    match body::is_json(content_type) {
        true => Ok(()),
        false => Err(Kind::Malformed.told("content-type must be application/json")),
    }
}

fn moment(text: &str) -> Result<Moment> {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let now = now.map_or(0, |now| i64::try_from(now.as_secs()).unwrap_or(0));
    instant::parse(text, now).ok_or_else(|| {
        let shown: String = text.chars().take(100).collect();
        Kind::Malformed.told(format!(
            "newer_than {shown:?} is neither seconds since 1970 nor a date of RFC 3339 or RFC 9110"
        ))
    })
}

/// How many components are to be stripped; `None` is what was no number.
pub(super) fn components(strip: Option<u64>) -> Result<usize> {
    let strip = strip.and_then(|strip| usize::try_from(strip).ok());
    strip.filter(|strip| *strip <= MOST_STRIP).ok_or_else(|| {
        Kind::Malformed.told(format!("strip must be a whole number up to {MOST_STRIP}"))
    })
}

/// Components of the longest path.
const MOST_STRIP: usize = 2048;
