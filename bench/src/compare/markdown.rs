//! Markdown for a pull request: the outcome, the main figures, and the rest folded away.

use super::{Comparison, Row, wording};

pub(super) fn render(comparison: &Comparison) -> String {
    let mut parts = vec![
        format!("**{}**", wording::headline(comparison)),
        format!(
            "Base: {}. New: {}.",
            escape(&comparison.base),
            escape(&comparison.new)
        ),
    ];
    let mut marks: Vec<String> = comparison
        .warnings
        .iter()
        .map(|warning| format!("- Warning: {}.", escape(warning)))
        .collect();
    marks.extend(
        comparison
            .unpaired
            .iter()
            .map(|unpaired| format!("- {}", escape(&wording::lack(unpaired)))),
    );
    if !marks.is_empty() {
        parts.push(marks.join("\n"));
    }
    let (first, rest): (Vec<&Row>, Vec<&Row>) = comparison
        .rows
        .iter()
        .partition(|row| row.is_main || row.fails());
    if !first.is_empty() {
        parts.push(table(&first));
    }
    if !rest.is_empty() {
        parts.push(fold(
            &format!("{} other figures", rest.len()),
            &table(&rest),
        ));
    }
    parts.push(fold(
        "How this was judged",
        &wording::method(comparison).join("\n\n"),
    ));
    parts.join("\n\n") + "\n"
}

fn table(rows: &[&Row]) -> String {
    let mut lines = vec![
        "| scenario | target | metric | base | new | ratio new/base | verdict |".to_owned(),
        "| --- | --- | --- | ---: | ---: | ---: | --- |".to_owned(),
    ];
    lines.extend(rows.iter().map(|row| {
        format!(
            "| {} | {} | {} ({}) | {} | {} | {} | {} |",
            escape(&row.scenario),
            escape(&row.target),
            escape(&row.metric),
            escape(&row.unit),
            wording::figure(row.base),
            wording::figure(row.new),
            wording::ratio(row),
            mark(row),
        )
    }));
    lines.join("\n")
}

/// What fails is to be seen at a glance.
fn mark(row: &Row) -> String {
    let verdict = escape(&wording::verdict(row));
    if row.fails() {
        format!("**{verdict}**")
    } else {
        verdict
    }
}

/// The blank lines are what makes Markdown inside of HTML be read as such.
fn fold(title: &str, text: &str) -> String {
    format!("<details>\n<summary>{title}</summary>\n\n{text}\n\n</details>")
}

/// Text that stays text: no markup, no HTML, no end of a cell.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for one in text.chars() {
        match one {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '|' | '*' | '`' | '[' | ']' | '\\' | '~' => {
                escaped.push('\\');
                escaped.push(one);
            }
            one if one.is_control() => escaped.push(' '),
            one => escaped.push(one),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_end_its_cell_or_bring_markup() {
        assert_eq!(
            escape("a|b <img> **c**\n[d](e)"),
            "a\\|b &lt;img&gt; \\*\\*c\\*\\* \\[d\\](e)"
        );
        assert_eq!(escape("cpu_s / GiB"), "cpu_s / GiB");
    }
}
