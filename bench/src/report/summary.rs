//! The report as Markdown: the setting, the overview, a table per scenario.

use std::fmt::Write;

use super::cast::{Cast, EQUAL_UP_TO, Standing};
use super::escape::{markdown, markdown_prose};
use super::figure;
use super::headline;
use super::overview::{self, Cell, Row};
use super::setting;
use crate::results::{Results, ScenarioResults};

pub(crate) fn summary(results: &Results, cast: &Cast<'_>) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = write_summary(&mut out, results, cast);
    out
}

fn write_summary(out: &mut String, results: &Results, cast: &Cast<'_>) -> std::fmt::Result {
    writeln!(out, "# ringbench, {}\n", markdown(&results.setting.date))?;
    for warning in setting::warnings(results) {
        writeln!(out, "**{}**\n", markdown(&warning.text))?;
    }
    for (name, value) in setting::facts(&results.setting) {
        match name {
            "Command" => writeln!(out, "- {name}: `{}`", value.replace('`', "'"))?,
            _ => writeln!(out, "- {name}: {}", markdown(&value))?,
        }
    }
    for target in &results.targets {
        if let Some(version) = &target.version {
            writeln!(out, "- {}: {}", markdown(&target.name), markdown(version))?;
        }
    }
    write_overview(out, results, cast)?;
    for scenario in &results.scenarios {
        write_scenario(out, scenario, cast)?;
    }
    Ok(())
}

fn write_overview(out: &mut String, results: &Results, cast: &Cast<'_>) -> std::fmt::Result {
    let ours = markdown(cast.ours());
    writeln!(
        out,
        "\n## Overview\n\nRatios are taken within each round; their median is shown. Within {:.0} % counts as equal.\n",
        (EQUAL_UP_TO - 1.0) * 100.0
    )?;
    write!(out, "| scenario | figure | {ours} |")?;
    for peer in cast.peers() {
        write!(out, " {ours} / {} |", markdown(peer))?;
    }
    writeln!(
        out,
        "\n| --- | --- | ---: |{}",
        " --- |".repeat(cast.peers().len())
    )?;
    for row in &overview::rows(results, cast) {
        write!(
            out,
            "| {} | {} | {}{} |",
            markdown(&row.scenario.name),
            figure_name(row),
            markdown(&row.ours),
            if row.ours_is_bound { BOUND } else { "" }
        )?;
        for (cell, peer) in row.cells.iter().zip(cast.peers()) {
            write!(out, " {} |", compare(cell, &ours, &markdown(peer)))?;
        }
        writeln!(out)?;
    }
    Ok(())
}

fn figure_name(row: &Row<'_>) -> String {
    let name = row.metric.map(|metric| markdown(&metric.metric));
    let failed = row
        .scenario
        .failure
        .as_ref()
        .map(|_| "**failed**".to_owned());
    let said: Vec<String> = name.into_iter().chain(failed).collect();
    said.join(", ")
}

fn compare(cell: &Cell, ours: &str, peer: &str) -> String {
    match cell {
        Cell::Skipped => "skipped".to_owned(),
        Cell::Incomparable => "not comparable".to_owned(),
        Cell::Unmeasured => figure::NOT_MEASURED.to_owned(),
        Cell::Compared {
            ratio,
            standing,
            is_bound,
        } => {
            let words = match standing {
                Standing::Ours(_) => format!("{ours} better"),
                Standing::Peer(_) => format!("{peer} better"),
                Standing::Equal => "equal".to_owned(),
            };
            let bound = if *is_bound { BOUND } else { "" };
            format!("{}, {words}{bound}", figure::digits(*ratio))
        }
    }
}

fn write_scenario(
    out: &mut String,
    scenario: &ScenarioResults,
    cast: &Cast<'_>,
) -> std::fmt::Result {
    writeln!(
        out,
        "\n## {}\n\n{}\n",
        markdown(&scenario.name),
        markdown_prose(&scenario.title)
    )?;
    if let Some(failure) = &scenario.failure {
        writeln!(out, "**Failed: {}**\n", markdown(failure))?;
    }
    for note in &scenario.notes {
        writeln!(out, "- {}", markdown_prose(note))?;
    }
    for skipped in &scenario.skipped {
        let (target, why) = (markdown(&skipped.target), markdown_prose(&skipped.why));
        writeln!(out, "- {target} was skipped: {why}")?;
    }
    if !scenario.notes.is_empty() || !scenario.skipped.is_empty() {
        writeln!(out)?;
    }
    if scenario.series.is_empty() {
        return writeln!(out, "{}", figure::NOT_MEASURED);
    }
    writeln!(
        out,
        "| metric | target | median | min | max | {} / it |\n| --- | --- | ---: | ---: | ---: | ---: |",
        markdown(cast.ours())
    )?;
    for series in headline::in_metric_order(scenario) {
        let unit = figure::Unit::plain(&series.unit);
        let ratio = cast.ratio(scenario, &series.target, &series.metric);
        let [median, min, max] =
            [series.median(), series.min(), series.max()].map(|value| unit.digits(value));
        writeln!(
            out,
            "| {} ({}) | {}{} | {median} | {min} | {max} | {} |",
            markdown(&series.metric),
            markdown(&unit.name),
            markdown(&series.target),
            if series.load_bound_rounds > 0 {
                BOUND
            } else {
                ""
            },
            ratio.map_or_else(String::new, figure::digits)
        )?;
    }
    write_latencies(out, scenario)
}

fn write_latencies(out: &mut String, scenario: &ScenarioResults) -> std::fmt::Result {
    if scenario.latencies.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        "\n| latency | target | requests | percentiles |\n| --- | --- | ---: | --- |"
    )?;
    for latency in &scenario.latencies {
        let told = latency.percentiles.iter().map(|(percent, value)| {
            let value = figure::measure(*value, &latency.unit);
            if *percent >= 100.0 {
                format!("max {value}")
            } else {
                format!("p{percent} {value}")
            }
        });
        let told: Vec<String> = told.collect();
        let rate = latency.constant_rate.map_or_else(String::new, |rate| {
            format!(", constant {}/s", figure::digits(rate))
        });
        writeln!(
            out,
            "| {}{rate} | {} | {} | {} |",
            markdown(&latency.metric),
            markdown(&latency.target),
            latency.count,
            markdown(&told.join(", "))
        )?;
    }
    Ok(())
}

const BOUND: &str = " (load-bound)";
