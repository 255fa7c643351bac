//! Plain text with aligned columns.

use super::{Comparison, Row, wording};

const HEAD: [&str; 7] = [
    "scenario",
    "target",
    "metric",
    "base",
    "new",
    "ratio new/base",
    "verdict",
];

/// The columns with numbers, which end at one edge.
const NUMBERS: std::ops::Range<usize> = 3..5;

pub(super) fn render(comparison: &Comparison) -> String {
    let mut lines = vec![
        wording::headline(comparison),
        String::new(),
        format!("base  {}", comparison.base),
        format!("new   {}", comparison.new),
    ];
    lines.extend(wording::method(comparison));
    lines.extend(
        comparison
            .warnings
            .iter()
            .map(|warning| format!("Warning: {warning}.")),
    );
    let (first, rest): (Vec<&Row>, Vec<&Row>) = comparison
        .rows
        .iter()
        .partition(|row| row.is_main || row.fails());
    for (title, rows) in [("Main figures", first), ("Other figures", rest)] {
        if !rows.is_empty() {
            lines.push(String::new());
            lines.push(title.to_owned());
            lines.extend(align(&rows));
        }
    }
    if !comparison.unpaired.is_empty() {
        lines.push(String::new());
        lines.extend(comparison.unpaired.iter().map(wording::lack));
    }
    let clean: Vec<String> = lines.iter().map(|line| clean(line)).collect();
    clean.join("\n") + "\n"
}

fn align(rows: &[&Row]) -> Vec<String> {
    let mut cells = vec![HEAD.map(str::to_owned)];
    cells.extend(rows.iter().map(|row| row_cells(row)));
    let widths: Vec<usize> = (0..HEAD.len())
        .map(|column| cells.iter().map(|row| width(&row[column])).max())
        .map(|widest| widest.unwrap_or(0))
        .collect();
    let line = |row: &[String; HEAD.len()]| {
        let mut line = String::from(" ");
        for (column, (cell, widest)) in row.iter().zip(&widths).enumerate() {
            let blanks = " ".repeat(widest - width(cell));
            line.push(' ');
            if NUMBERS.contains(&column) {
                line.push_str(&blanks);
                line.push_str(cell);
            } else {
                line.push_str(cell);
                line.push_str(&blanks);
            }
            line.push(' ');
        }
        line.trim_end().to_owned()
    };
    cells.iter().map(line).collect()
}

fn row_cells(row: &Row) -> [String; HEAD.len()] {
    [
        row.scenario.clone(),
        row.target.clone(),
        format!("{} ({})", row.metric, row.unit),
        wording::figure(row.base),
        wording::figure(row.new),
        wording::ratio(row),
        wording::verdict(row),
    ]
}

fn width(cell: &str) -> usize {
    cell.chars().count()
}

/// One line, in which no name from a file moves the cursor of whoever reads it.
fn clean(text: &str) -> String {
    text.chars()
        .map(|one| if one.is_control() { ' ' } else { one })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_move_the_cursor() {
        assert_eq!(clean("a\u{1b}[2Jb\nc"), "a [2Jb c");
    }
}
