//! The size of a terminal as it is written, and the operation that changes it.

use std::num::NonZeroU16;
use std::rc::Rc;

use schemars::JsonSchema;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::members::Members;
use super::{json, parse};
use crate::api::row::{Answer, Call};
use crate::app::App;
use crate::error::{Error, Kind, Result};
use crate::exec::Size;

pub(super) async fn resize(app: Rc<App>, mut call: Call) -> Result<Answer> {
    let make = |fields: Fields| fields.size("");
    let size = parse(&app, &mut call, "resize", make).await?;
    app.execs.resize(&call.id, size)?;
    json(&SizeAnswer {
        exec_id: &call.id,
        cols: size.cols.get(),
        rows: size.rows.get(),
    })
}

/// The size that is now in force.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ResizeResponse")]
pub(super) struct SizeAnswer<'a> {
    exec_id: &'a str,
    cols: u16,
    rows: u16,
}

/// The size of a terminal, in characters.
#[derive(JsonSchema)]
#[schemars(rename = "TerminalSize")]
#[expect(dead_code, reason = "it describes `Fields`, which are refused by name")]
pub(super) struct SizeRequest {
    cols: NonZeroU16,
    rows: NonZeroU16,
}

/// The field `tty` of a start request.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum TtyField {
    Size(Fields),
    Other(IgnoredAny),
}

impl TtyField {
    /// The size that it means.
    ///
    /// # Errors
    /// `Malformed`, naming the field that is wrong, missing or not known.
    pub(super) fn into_size(self) -> Result<Size> {
        let Self::Size(fields) = self else {
            return Err(Kind::Malformed.told("tty must be an object of cols and rows"));
        };
        if let Some(name) = fields.names().find(|name| !["cols", "rows"].contains(name)) {
            return Err(Kind::Malformed.told(format!("tty has no field {name:?}")));
        }
        fields.size("tty.")
    }
}

/// The members of a size.
type Fields = Members<Value>;

impl Fields {
    fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }

    /// The size in the fields `cols` and `rows`; in errors they are named behind `place`.
    fn size(&self, place: &str) -> Result<Size> {
        let side = |name| self.side(name).ok_or_else(|| wrong(place, name));
        Ok(Size {
            cols: side("cols")?,
            rows: side("rows")?,
        })
    }

    fn side(&self, name: &str) -> Option<NonZeroU16> {
        let mut found = self.0.iter().filter(|(known, _)| known == name);
        let ((_, value), None) = (found.next()?, found.next()) else {
            return None;
        };
        NonZeroU16::new(value.as_u64()?.try_into().ok()?)
    }
}

fn wrong(place: &str, name: &str) -> Error {
    let told = format!("{place}{name} must be given once, a whole number from 1 to 65535");
    Kind::Malformed.told(told)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: std::result::Result<(u16, u16), &str>) {
        let field: TtyField = serde_json::from_str(text).expect("JSON");
        let size = field.into_size();
        let size = size.as_ref().map(|size| (size.cols.get(), size.rows.get()));
        assert_eq!(size.map_err(Error::sentence), expected, "{text}");
    }

    #[test]
    fn a_size_has_both_sides_and_nothing_else() {
        let (cols, rows) = (
            Err("tty.cols must be given once, a whole number from 1 to 65535"),
            Err("tty.rows must be given once, a whole number from 1 to 65535"),
        );
        check(r#"{"cols":80,"rows":24}"#, Ok((80, 24)));
        check(r#"{"rows":65535,"cols":1}"#, Ok((1, 65535)));
        check(r#"{"cols":80}"#, rows);
        check(r#"{"rows":24}"#, cols);
        check("{}", cols);
        for bad in ["0", "-1", "65536", "80.0", "\"80\"", "null", "[80]", "1e2"] {
            check(&format!(r#"{{"cols":{bad},"rows":24}}"#), cols);
            check(&format!(r#"{{"cols":80,"rows":{bad}}}"#), rows);
        }
        check(r#"{"cols":80,"rows":24,"cols":80}"#, cols);
        check(
            r#"{"cols":80,"rows":24,"width":1}"#,
            Err("tty has no field \"width\""),
        );
        for other in ["true", "[80,24]", "\"80x24\"", "80"] {
            check(other, Err("tty must be an object of cols and rows"));
        }
    }
}
