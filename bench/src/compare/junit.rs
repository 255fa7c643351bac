//! `JUnit` XML: a suite a scenario, a case a figure. Its failures are those of the exit status.

use super::{Comparison, Lack, Row, Verdict, wording};

pub(super) fn render(comparison: &Comparison) -> String {
    let mut suites: Vec<(&str, Vec<Case>)> = Vec::new();
    let rows = comparison
        .rows
        .iter()
        .map(|row| (row.scenario.as_str(), Case::of_row(row)));
    let unpaired = comparison.unpaired.iter().map(|unpaired| {
        let told = wording::lack(unpaired);
        let case = Case {
            class: class(
                &unpaired.scenario,
                unpaired.target.as_deref().unwrap_or("all targets"),
            ),
            name: unpaired
                .metric
                .clone()
                .unwrap_or_else(|| "all figures".to_owned()),
            outcome: match unpaired.lack {
                _ if unpaired.fails => Outcome::Failed(told),
                Lack::Added => Outcome::Skipped(told),
                Lack::Missing | Lack::Failed => Outcome::Passed(told),
            },
        };
        (unpaired.scenario.as_str(), case)
    });
    for (scenario, case) in rows.chain(unpaired) {
        match suites.iter_mut().find(|(name, _)| *name == scenario) {
            Some((_, cases)) => cases.push(case),
            None => suites.push((scenario, vec![case])),
        }
    }
    let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let all: Vec<&Case> = suites.iter().flat_map(|(_, cases)| cases).collect();
    xml += &format!("<testsuites name=\"ringbench compare\" {}>\n", counts(&all));
    for (name, cases) in &suites {
        let borrowed: Vec<&Case> = cases.iter().collect();
        let (name, counts) = (escape(name), counts(&borrowed));
        xml += &format!("  <testsuite name=\"{name}\" {counts}>\n");
        cases.iter().for_each(|case| xml.push_str(&case.render()));
        xml.push_str("  </testsuite>\n");
    }
    xml.push_str("</testsuites>\n");
    xml
}

struct Case {
    class: String,
    name: String,
    outcome: Outcome,
}

/// With what is to be said.
enum Outcome {
    Passed(String),
    Failed(String),
    Skipped(String),
}

impl Case {
    fn of_row(row: &Row) -> Self {
        let told = format!(
            "{}; base {} {unit}, new {} {unit}, ratio {}",
            wording::verdict(row),
            wording::figure(row.base),
            wording::figure(row.new),
            wording::ratio(row),
            unit = row.unit,
        );
        Self {
            class: class(&row.scenario, &row.target),
            name: row.metric.clone(),
            outcome: match row.verdict() {
                Verdict::Worse if row.is_gated => Outcome::Failed(told),
                Verdict::TooNoisy | Verdict::LoadBound => Outcome::Skipped(told),
                Verdict::Worse | Verdict::Better | Verdict::Same => Outcome::Passed(told),
            },
        }
    }

    fn render(&self) -> String {
        let told = match &self.outcome {
            Outcome::Passed(told) => format!("<system-out>{}</system-out>", escape(told)),
            Outcome::Failed(told) => format!("<failure message=\"{}\"/>", escape(told)),
            Outcome::Skipped(told) => format!("<skipped message=\"{}\"/>", escape(told)),
        };
        format!(
            "    <testcase classname=\"{}\" name=\"{}\" time=\"0\">{told}</testcase>\n",
            escape(&self.class),
            escape(&self.name)
        )
    }
}

/// Dots part packages where this is shown, so a name has none of its own.
fn class(scenario: &str, target: &str) -> String {
    format!(
        "{}.{}",
        scenario.replace('.', "_"),
        target.replace('.', "_")
    )
}

fn counts(cases: &[&Case]) -> String {
    let count = |is: fn(&Outcome) -> bool| cases.iter().filter(|case| is(&case.outcome)).count();
    format!(
        "tests=\"{}\" failures=\"{}\" errors=\"0\" skipped=\"{}\" time=\"0\"",
        cases.len(),
        count(|outcome| matches!(outcome, Outcome::Failed(_))),
        count(|outcome| matches!(outcome, Outcome::Skipped(_))),
    )
}

/// For text and attributes. XML 1.0 has no form for most control characters.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for one in text.chars() {
        match one {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\t' => escaped.push_str("&#9;"),
            '\n' => escaped.push_str("&#10;"),
            '\r' => escaped.push_str("&#13;"),
            '\0'..' ' | '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            one => escaped.push(one),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_character_survives_or_is_replaced() {
        let text: String = ('\0'..='\u{d7ff}')
            .chain('\u{e000}'..='\u{10000}')
            .collect();
        let xml = format!("<a b=\"{0}\">{0}</a>", escape(&text));
        let document = roxmltree::Document::parse(&xml).expect("it is well-formed");
        let root = document.root_element();
        let expected: String = text
            .chars()
            .map(|one| match one {
                '\t' | '\n' | '\r' => one,
                '\0'..' ' | '\u{fffe}' | '\u{ffff}' => '\u{fffd}',
                one => one,
            })
            .collect();
        assert_eq!(root.attribute("b"), Some(expected.as_str()));
        assert_eq!(root.text(), Some(expected.as_str()));
    }
}
