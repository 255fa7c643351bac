//! Documents held against their schemas: the keywords that ours use, and no key that is not described.

use serde_json::{Map, Value};

/// Schemas that may refer to each other.
pub(crate) struct Shapes<'a> {
    /// The types by name.
    pub(crate) named: &'a Map<String, Value>,
}

/// Why a document does not fit.
type Fit = Result<(), String>;

impl Shapes<'_> {
    /// Checks that `value` is what `schema` says, and holds nothing that it does not say.
    pub(crate) fn fit(&self, schema: &Value, value: &Value) -> Fit {
        let schema = schema.as_object().ok_or("a schema that is no object")?;
        for (keyword, rule) in schema {
            self.follow(keyword, rule, value)
                .map_err(|why| format!("{why} in {value}"))?;
        }
        let Some(known) = schema.get("properties").and_then(Value::as_object) else {
            return Ok(());
        };
        for name in value.as_object().into_iter().flat_map(Map::keys) {
            if !known.contains_key(name) {
                return Err(format!("{name} is not described, in {value}"));
            }
        }
        Ok(())
    }

    fn follow(&self, keyword: &str, rule: &Value, value: &Value) -> Fit {
        let number = value.as_f64();
        let must = |holds: bool| match holds {
            true => Ok(()),
            false => Err(format!("not {keyword} {rule}")),
        };
        match keyword {
            "$ref" => {
                let name = rule.as_str().and_then(|path| path.rsplit('/').next());
                let name = name.ok_or("a reference that is none")?;
                let schema = self.named.get(name).ok_or(format!("no type {name}"))?;
                self.fit(schema, value)
            }
            "type" => must(match rule {
                Value::Array(names) => names.iter().any(|name| is_of(name, value)),
                name => is_of(name, value),
            }),
            "const" => must(rule == value),
            "enum" => must(rule.as_array().is_some_and(|all| all.contains(value))),
            "anyOf" => must(self.fitting(rule, value) > 0),
            "oneOf" => must(self.fitting(rule, value) == 1),
            "minimum" => must(number.is_none_or(|number| Some(number) >= rule.as_f64())),
            "maximum" => must(number.is_none_or(|number| Some(number) <= rule.as_f64())),
            "minLength" | "maxLength" => {
                let length = value.as_str().map(|text| text.chars().count() as u64);
                let (length, bound) = (length.unwrap_or(0), rule.as_u64().unwrap_or(0));
                must(match keyword {
                    "minLength" => length >= bound,
                    _ => length <= bound,
                })
            }
            "maxItems" => {
                let items = value.as_array().map_or(0, Vec::len) as u64;
                must(rule.as_u64().is_some_and(|most| items <= most))
            }
            "items" => {
                let mut items = value.as_array().into_iter().flatten();
                items.try_for_each(|item| self.fit(rule, item))
            }
            "required" => {
                let names = rule.as_array().into_iter().flatten();
                must(
                    names
                        .filter_map(Value::as_str)
                        .all(|name| value.get(name).is_some()),
                )
            }
            "properties" => {
                let rules = rule.as_object().into_iter().flatten();
                let mut present = rules.filter_map(|(name, rule)| Some((rule, value.get(name)?)));
                present.try_for_each(|(rule, value)| self.fit(rule, value))
            }
            "additionalProperties" => match rule {
                Value::Bool(_) => Ok(()),
                rule => {
                    let mut values = value.as_object().into_iter().flat_map(Map::values);
                    values.try_for_each(|value| self.fit(rule, value))
                }
            },
            "description" | "default" | "format" | "title" => Ok(()),
            _ => Err(format!("the keyword {keyword} is not known here")),
        }
    }

    fn fitting(&self, rules: &Value, value: &Value) -> usize {
        let rules = rules.as_array().into_iter().flatten();
        rules.filter(|rule| self.fit(rule, value).is_ok()).count()
    }
}

fn is_of(name: &Value, value: &Value) -> bool {
    match name.as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("boolean") => value.is_boolean(),
        Some("null") => value.is_null(),
        Some("integer") => value.is_i64() || value.is_u64(),
        Some("number") => value.is_number(),
        _ => false,
    }
}

#[test]
fn what_is_wrong_or_not_described_does_not_fit() {
    use serde_json::json;
    let named = json!({
        "Phase": {"oneOf": [{"const": "a", "type": "string"}, {"const": "b", "type": "string"}]},
        "Thing": {
            "type": "object",
            "properties": {
                "phase": {"$ref": "#/$defs/Phase"},
                "count": {"type": ["integer", "null"], "minimum": 0},
                "all": {"type": "array", "items": {"type": "string"}},
            },
            "required": ["phase"],
        },
    });
    let named = named.as_object().expect("types");
    let shapes = Shapes { named };
    let thing = json!({"$ref": "#/$defs/Thing"});
    for good in [
        json!({"phase": "a"}),
        json!({"phase": "b", "count": null, "all": ["x"]}),
        json!({"phase": "b", "count": 0, "all": []}),
    ] {
        assert_eq!(shapes.fit(&thing, &good), Ok(()), "{good}");
    }
    for bad in [
        json!({}),
        json!([]),
        json!({"phase": "c"}),
        json!({"phase": "a", "count": -1}),
        json!({"phase": "a", "count": 1.5}),
        json!({"phase": "a", "all": [1]}),
        json!({"phase": "a", "more": 1}),
    ] {
        assert!(shapes.fit(&thing, &bad).is_err(), "{bad}");
    }
    let unknown = json!({"pattern": "x"});
    assert!(shapes.fit(&unknown, &json!("x")).is_err());
}
