//! The limits of a start request: each field is checked by name, since one that is passed over would be a lie.

use std::num::NonZeroU64;

use schemars::JsonSchema;
use serde::de::IgnoredAny;

use super::members::Members;
use crate::error::{Error, Kind, Result};
use crate::exec::Allowance;

/// The field `limits`.
#[derive(serde::Deserialize)]
#[serde(untagged)]
pub(super) enum LimitsField {
    Object(Members<NumberField>),
    Other(IgnoredAny),
}

/// What the field `limits` may hold: how much of each the command may use.
#[derive(JsonSchema)]
#[schemars(rename = "Limits", deny_unknown_fields)]
#[expect(dead_code, reason = "it describes; each field is checked by name")]
pub(super) struct LimitsRequest {
    /// Descriptors of each process.
    #[schemars(default)]
    nofile: Option<NonZeroU64>,
    /// Bytes of memory: of all processes where there are cgroups, else of each.
    #[schemars(default)]
    memory: Option<NonZeroU64>,
    /// Processor time of each process.
    #[schemars(default)]
    cpu_seconds: Option<NonZeroU64>,
    /// Bytes of each file that is written.
    #[schemars(default)]
    file_size: Option<NonZeroU64>,
    /// Processes: of the exec where there are cgroups, else of its user.
    #[schemars(default)]
    processes: Option<NonZeroU64>,
}

/// A number, or something else that is refused by the name of its field.
#[derive(serde::Deserialize)]
#[serde(untagged)]
pub(super) enum NumberField {
    Whole(u64),
    Negative(i64),
    Other(IgnoredAny),
}

/// Puts the three fields together.
///
/// # Errors
/// `Malformed`, with the name of the field that is wrong.
pub(super) fn allowance(
    limits: Option<LimitsField>,
    nice: Option<NumberField>,
    oom_score_adj: Option<NumberField>,
) -> Result<Allowance> {
    let mut allowance = Allowance {
        nice: nice
            .map(|nice| adjustment("nice", &nice, -20, 19))
            .transpose()?,
        oom_score_adj: oom_score_adj
            .map(|score| adjustment("oom_score_adj", &score, -1000, 1000))
            .transpose()?,
        ..Allowance::default()
    };
    let pairs = match limits {
        None => return Ok(allowance),
        Some(LimitsField::Object(Members(pairs))) => pairs,
        Some(LimitsField::Other(_)) => return Err(wrong("limits must be an object")),
    };
    for (name, value) in pairs {
        let place = match name.as_str() {
            "nofile" => &mut allowance.nofile,
            "memory" => &mut allowance.memory,
            "cpu_seconds" => &mut allowance.cpu_seconds,
            "file_size" => &mut allowance.file_size,
            "processes" => &mut allowance.processes,
            _ => return Err(wrong(format!("limits has no field {name:?}"))),
        };
        let number = match value {
            NumberField::Whole(number) => NonZeroU64::new(number),
            _ => None,
        };
        let Some(number) = number else {
            return Err(wrong(format!("limits.{name} must be a positive integer")));
        };
        if place.replace(number).is_some() {
            return Err(wrong(format!("limits.{name} is given twice")));
        }
    }
    Ok(allowance)
}

fn adjustment(name: &str, value: &NumberField, least: i32, most: i32) -> Result<i32> {
    let number = match value {
        NumberField::Whole(number) => i32::try_from(*number).ok(),
        NumberField::Negative(number) => i32::try_from(*number).ok(),
        NumberField::Other(_) => None,
    };
    number
        .filter(|number| (least..=most).contains(number))
        .ok_or_else(|| wrong(format!("{name} must be an integer from {least} to {most}")))
}

fn wrong(sentence: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Kind::Malformed.told(sentence)
}

#[cfg(test)]
mod tests {
    use super::super::request::object;
    use super::*;

    #[derive(serde::Deserialize)]
    struct Fields {
        limits: Option<LimitsField>,
        nice: Option<NumberField>,
        oom_score_adj: Option<NumberField>,
    }

    fn read(text: &str) -> std::result::Result<Allowance, String> {
        let fields: Fields = object(text.as_bytes()).expect("it is an object");
        let read = allowance(fields.limits, fields.nice, fields.oom_score_adj);
        read.map_err(|error| error.sentence().to_owned())
    }

    fn refused(text: &str, sentence: &str) {
        assert_eq!(read(text), Err(sentence.to_owned()), "{text}");
    }

    #[test]
    fn what_is_absent_or_null_is_inherited() {
        for text in [
            "{}",
            r#"{"limits":{}}"#,
            r#"{"limits":null,"nice":null,"oom_score_adj":null}"#,
        ] {
            assert_eq!(read(text), Ok(Allowance::default()), "{text}");
        }
    }

    #[test]
    fn each_limit_has_its_place() {
        let text = r#"{"limits":{"nofile":1,"memory":2,"cpu_seconds":3,"file_size":4,"processes":18446744073709551615},
            "nice":-20,"oom_score_adj":1000}"#;
        let expected = Allowance {
            nofile: NonZeroU64::new(1),
            memory: NonZeroU64::new(2),
            cpu_seconds: NonZeroU64::new(3),
            file_size: NonZeroU64::new(4),
            processes: NonZeroU64::new(u64::MAX),
            nice: Some(-20),
            oom_score_adj: Some(1000),
        };
        assert_eq!(read(text), Ok(expected));
    }

    #[test]
    fn a_limit_that_would_be_passed_over_is_refused() {
        refused(
            r#"{"limits":{"nproc":1}}"#,
            r#"limits has no field "nproc""#,
        );
        refused(
            r#"{"limits":{"nofile":1,"nofile":2}}"#,
            "limits.nofile is given twice",
        );
        refused(
            r#"{"limits":{"memory":1.0}}"#,
            "limits.memory must be a positive integer",
        );
        refused(
            r#"{"limits":{"memory":18446744073709551616}}"#,
            "limits.memory must be a positive integer",
        );
        refused(r#"{"limits":[]}"#, "limits must be an object");
        refused(r#"{"nice":20}"#, "nice must be an integer from -20 to 19");
    }
}
