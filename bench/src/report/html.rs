//! The report as one page of HTML that needs neither network nor script.

use std::fmt::Write;

use super::cast::{Cast, EQUAL_UP_TO, Standing};
use super::charts::{Chart, Charts, Table};
use super::escape::{command_line, file_stem, markup, prose};
use super::figure;
use super::headline;
use super::overview::{self, Cell, Row};
use super::setting;
use super::svg;
use crate::results::{Results, ScenarioResults};

/// The whole page.
pub(crate) fn page(results: &Results, cast: &Cast<'_>, charts: &Charts) -> String {
    let mut page = Page {
        results,
        cast,
        out: String::new(),
    };
    // Writing to a String cannot fail.
    let _ = page.write(charts);
    page.out
}

struct Page<'a> {
    results: &'a Results,
    cast: &'a Cast<'a>,
    out: String,
}

impl Page<'_> {
    fn write(&mut self, charts: &Charts) -> std::fmt::Result {
        self.write_head()?;
        self.write_warnings()?;
        self.write_overview()?;
        self.write_setting()?;
        for curves in &charts.curves {
            writeln!(
                self.out,
                "<section>\n<h2>{}</h2>\n<p>{}</p>",
                markup(&curves.title),
                markup(curves.about)
            )?;
            self.write_charts(&curves.charts)?;
            writeln!(self.out, "</section>")?;
        }
        for (scenario, charts) in self.results.scenarios.iter().zip(&charts.scenarios) {
            self.write_scenario(scenario, charts)?;
        }
        writeln!(
            self.out,
            "<footer>Bars reach to the median of all rounds, whiskers from the least to the most, each dot is one round. \
             They begin at zero; where one is more than {:.0} times another, the scale is logarithmic and says so. \
             Ratios are taken within each round; their median is shown.</footer>\n</main>\n</body>\n</html>",
            svg::LINEAR_UP_TO
        )
    }

    fn write_head(&mut self) -> std::fmt::Result {
        let setting = &self.results.setting;
        let title = format!("ringbench, {}", setting.date);
        let (ours, peers) = (self.cast.ours(), self.cast.peers());
        let names = match peers {
            [] => markup(ours),
            _ => format!("{} against {}", markup(ours), markup(&listed(peers))),
        };
        write!(
            self.out,
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
             <meta name=\"color-scheme\" content=\"light dark\">\n\
             <title>{}</title>\n<style>\n{}</style>\n</head>\n<body>\n",
            markup(&title),
            style()
        )?;
        writeln!(
            self.out,
            "<header>\n<div><h1>{}</h1>\n<p class=\"lede\">{names}</p>\n\
             <p class=\"soft\">{} CPUs, {} · Linux {} · {} · {} rounds</p></div>\n{THEMES}\n</header>\n<main>",
            markup(&title),
            setting.cpus,
            markup(&setting.processor),
            markup(&setting.kernel),
            markup(&setting.filesystem),
            setting.rounds
        )
    }

    fn write_warnings(&mut self) -> std::fmt::Result {
        for warning in setting::warnings(self.results) {
            let class = if warning.is_grave { "alarm" } else { "warn" };
            let text = markup(&warning.text);
            writeln!(
                self.out,
                "<p class=\"note {class}\" role=\"note\">{text}</p>"
            )?;
        }
        Ok(())
    }

    fn write_overview(&mut self) -> std::fmt::Result {
        let rows = overview::rows(self.results, self.cast);
        let ours = markup(self.cast.ours());
        writeln!(
            self.out,
            "<section>\n<h2 id=\"overview\">Overview</h2>\n\
             <p>The main figure of each scenario for {ours}, and its ratio to each other target's. \
             Blue cells: {ours} is better, orange cells: the other is. Within {:.0} % counts as equal.</p>\n\
             <div class=\"scroll\"><table class=\"overview\">\n<thead><tr><th scope=\"col\">scenario</th>\
             <th scope=\"col\" class=\"about\">figure</th><th scope=\"col\" class=\"number\">{ours}</th>",
            (EQUAL_UP_TO - 1.0) * 100.0
        )?;
        for peer in self.cast.peers() {
            write!(self.out, "<th scope=\"col\">{ours} / {}</th>", markup(peer))?;
        }
        writeln!(self.out, "</tr></thead>\n<tbody>")?;
        for row in &rows {
            self.write_row(row)?;
        }
        writeln!(self.out, "</tbody>")?;
        if !self.cast.peers().is_empty() {
            writeln!(
                self.out,
                "<tfoot><tr><th scope=\"row\" colspan=\"3\">{ours} better / equal / worse, load-bound ones left out</th>"
            )?;
            for tally in overview::tallies(&rows, self.cast) {
                let (ours, equal, peer) = (tally.ours, tally.equal, tally.peer);
                write!(self.out, "<td>{ours} / {equal} / {peer}</td>")?;
            }
            writeln!(self.out, "</tr></tfoot>")?;
        }
        writeln!(self.out, "</table></div>\n</section>")
    }

    fn write_row(&mut self, row: &Row<'_>) -> std::fmt::Result {
        let scenario = row.scenario;
        write!(
            self.out,
            "<tr><th scope=\"row\"><a href=\"#{}\">{}</a></th>",
            anchor(self.results, scenario),
            markup(&scenario.name)
        )?;
        let Some(metric) = row.metric else {
            let why = match &scenario.failure {
                Some(failure) => format!("failed: {failure}"),
                None => figure::NOT_MEASURED.to_owned(),
            };
            return writeln!(
                self.out,
                "<td class=\"failed\" colspan=\"{}\">{}</td></tr>",
                self.cast.names().len() + 1,
                markup(&why)
            );
        };
        let bound = if row.ours_is_bound { BOUND } else { "" };
        let failed = scenario.failure.as_ref().map_or("", |_| FAILED);
        write!(
            self.out,
            "<td class=\"about\">{}{failed}</td><td class=\"number\">{}{bound}</td>",
            markup(&metric.metric),
            markup(&row.ours)
        )?;
        for (cell, peer) in row.cells.iter().zip(self.cast.peers()) {
            self.write_cell(cell, peer)?;
        }
        writeln!(self.out, "</tr>")
    }

    fn write_cell(&mut self, cell: &Cell, peer: &str) -> std::fmt::Result {
        let (ratio, standing, is_bound) = match cell {
            Cell::Skipped => return write!(self.out, "<td class=\"none\">skipped</td>"),
            Cell::Incomparable => {
                return write!(self.out, "<td class=\"none\">not comparable</td>");
            }
            Cell::Unmeasured => {
                return write!(self.out, "<td class=\"none\">{}</td>", figure::NOT_MEASURED);
            }
            Cell::Compared {
                ratio,
                standing,
                is_bound,
            } => (*ratio, *standing, *is_bound),
        };
        let (class, words) = match standing {
            Standing::Equal => ("equal".to_owned(), "equal".to_owned()),
            Standing::Ours(factor) => (
                format!("ours{}", strength(factor)),
                format!("{} better, {} ×", self.cast.ours(), figure::digits(factor)),
            ),
            Standing::Peer(factor) => (
                format!("peer{}", strength(factor)),
                format!("{peer} better, {} ×", figure::digits(factor)),
            ),
        };
        write!(
            self.out,
            "<td class=\"{class}\" data-ratio=\"{ratio}\"><b>{}</b> <span>{}</span>{}</td>",
            figure::digits(ratio),
            markup(&words),
            if is_bound { BOUND } else { "" }
        )
    }

    fn write_setting(&mut self) -> std::fmt::Result {
        writeln!(
            self.out,
            "<section>\n<h2>Setting</h2>\n<div class=\"pair\">\n<dl>"
        )?;
        for (name, value) in setting::facts(&self.results.setting) {
            let value = markup(&value);
            let value = if name == "Command" {
                format!("<code>{value}</code>")
            } else {
                value
            };
            writeln!(self.out, "<dt>{name}</dt><dd>{value}</dd>")?;
        }
        writeln!(self.out, "</dl>\n<dl>")?;
        for target in &self.results.targets {
            let mut facts: Vec<String> = Vec::new();
            facts.extend(target.version.as_deref().map(markup));
            let bytes = target.binary_bytes.map(f64_of_bytes);
            facts.extend(bytes.map(|bytes| format!("program of {}", figure::measure(bytes, "B"))));
            facts.push(target.command.as_deref().map_or_else(
                || "ran already".to_owned(),
                |command| {
                    let words: Vec<String> = command.split(' ').map(str::to_owned).collect();
                    format!("<code>{}</code>", markup(&command_line(&words)))
                },
            ));
            writeln!(
                self.out,
                "<dt><span class=\"swatch swatch{}\"></span>{}</dt><dd>{}</dd>",
                self.cast.rank(&target.name) % svg::HUES,
                markup(&target.name),
                facts.join(" · ")
            )?;
        }
        writeln!(self.out, "</dl>\n</div>\n</section>")
    }

    fn write_scenario(&mut self, scenario: &ScenarioResults, charts: &[Chart]) -> std::fmt::Result {
        writeln!(
            self.out,
            "<section id=\"{}\">\n<h2>{}</h2>\n<p>{}</p>",
            anchor(self.results, scenario),
            markup(&scenario.name),
            prose(&scenario.title)
        )?;
        if let Some(failure) = &scenario.failure {
            writeln!(
                self.out,
                "<p class=\"note alarm\" role=\"note\">Failed: {}</p>",
                markup(failure)
            )?;
        }
        if charts.is_empty() && scenario.failure.is_none() {
            writeln!(self.out, "<p class=\"soft\">{}</p>", figure::NOT_MEASURED)?;
        }
        let skipped = scenario.skipped.iter();
        let skipped = skipped.map(|one| format!("{} was skipped: {}", one.target, one.why));
        let notes: Vec<String> = scenario.notes.iter().cloned().chain(skipped).collect();
        if !notes.is_empty() {
            writeln!(self.out, "<ul class=\"soft\">")?;
            for note in &notes {
                writeln!(self.out, "<li>{}</li>", prose(note))?;
            }
            writeln!(self.out, "</ul>")?;
        }
        self.write_charts(charts)?;
        if !scenario.series.is_empty() {
            self.write_table("All figures", &self.all_figures(scenario))?;
        }
        writeln!(self.out, "</section>")
    }

    fn write_charts(&mut self, charts: &[Chart]) -> std::fmt::Result {
        if charts.is_empty() {
            return Ok(());
        }
        writeln!(self.out, "<div class=\"charts\">")?;
        for chart in charts {
            writeln!(self.out, "<figure>\n{}", chart.drawing.inline())?;
            self.write_table("Table", &chart.table)?;
            writeln!(self.out, "</figure>")?;
        }
        writeln!(self.out, "</div>")
    }

    fn all_figures(&self, scenario: &ScenarioResults) -> Table {
        let head = ["metric", "target", "median", "min", "max"].map(str::to_owned);
        let mut head: Vec<String> = head.into();
        head.push(format!("{} / it", self.cast.ours()));
        let rows = headline::in_metric_order(scenario)
            .into_iter()
            .map(|series| {
                let unit = figure::Unit::plain(&series.unit);
                let mut row = vec![
                    format!("{} ({})", series.metric, unit.name),
                    series.target.clone(),
                ];
                let figures = [series.median(), series.min(), series.max()];
                row.extend(figures.map(|value| unit.digits(value)));
                let ratio = self.cast.ratio(scenario, &series.target, &series.metric);
                row.push(ratio.map_or_else(String::new, figure::digits));
                row
            });
        Table {
            rows: rows.collect(),
            head,
        }
    }

    fn write_table(&mut self, summary: &str, table: &Table) -> std::fmt::Result {
        write!(
            self.out,
            "<details><summary>{summary}</summary>\n<div class=\"scroll\"><table>\n<thead><tr>"
        )?;
        for head in &table.head {
            write!(self.out, "<th scope=\"col\">{}</th>", markup(head))?;
        }
        writeln!(self.out, "</tr></thead>\n<tbody>")?;
        for row in &table.rows {
            write!(self.out, "<tr>")?;
            for (at, cell) in row.iter().enumerate() {
                if at == 0 {
                    write!(self.out, "<th scope=\"row\">{}</th>", markup(cell))?;
                } else {
                    write!(self.out, "<td>{}</td>", markup(cell))?;
                }
            }
            writeln!(self.out, "</tr>")?;
        }
        writeln!(self.out, "</tbody></table></div></details>")
    }
}

/// Colours of both themes, then what they are used for.
fn style() -> String {
    let (light, dark) = (svg::variables(false), svg::variables(true));
    let mut out = String::new();
    let _ = writeln!(
        out,
        ":root{{color-scheme:light dark;{light}}}\n\
         @media (prefers-color-scheme:dark){{:root{{{dark}}}}}\n\
         :root:has(#theme-light:checked){{color-scheme:light;{light}}}\n\
         :root:has(#theme-dark:checked){{color-scheme:dark;{dark}}}\n\
         @media print{{:root{{color-scheme:light;{light}}}\n\
         :root:has(#theme-dark:checked){{color-scheme:light;{light}}}}}"
    );
    for hue in 0..svg::HUES {
        let _ = writeln!(out, ".swatch{hue}{{background:var(--s{hue})}}");
    }
    out + svg::CHART + include_str!("page.css")
}

/// The place of a scenario on the page; also of two with one name.
fn anchor(results: &Results, scenario: &ScenarioResults) -> String {
    let mut all = results.scenarios.iter();
    let at = all.position(|other| std::ptr::eq(other, scenario));
    format!("{}-{}", file_stem(&scenario.name), at.unwrap_or(0) + 1)
}

/// How strong the colour of a cell is.
fn strength(factor: f64) -> usize {
    STEPS.iter().filter(|step| factor >= **step).count() + 1
}

/// `a, b and c`.
fn listed(names: &[&str]) -> String {
    match names {
        [before @ .., last] if !before.is_empty() => {
            format!("{} and {last}", before.join(", "))
        }
        _ => names.join(""),
    }
}

/// A size of a file; exact below 8 PiB.
#[expect(clippy::cast_precision_loss, reason = "three digits of it are shown")]
fn f64_of_bytes(bytes: u64) -> f64 {
    bytes as f64
}

/// Nothing is loaded and nothing runs.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";
/// Factors from which on a cell has the next stronger colour.
const STEPS: [f64; 3] = [1.5, 3.0, 8.0];
const BOUND: &str = " <span class=\"bound-tag\">load-bound</span>";
const FAILED: &str = " <span class=\"failed\">failed before all was measured</span>";
const THEMES: &str = "<fieldset class=\"themes\"><legend>Theme</legend>\
    <label><input type=\"radio\" name=\"theme\" id=\"theme-auto\" checked>auto</label>\
    <label><input type=\"radio\" name=\"theme\" id=\"theme-light\">light</label>\
    <label><input type=\"radio\" name=\"theme\" id=\"theme-dark\">dark</label></fieldset>";
