//! The report as Markdown: the promises first, then a table per scenario.

use std::fmt::Write;

use super::{OURS, Report, ScenarioReport, Series};

/// A machine busier than this before the run disturbs it.
const QUIET_PERCENT: f64 = 5.0;

pub(crate) fn markdown(report: &Report) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = write_report(&mut out, report);
    out
}

fn write_report(out: &mut String, report: &Report) -> std::fmt::Result {
    let setting = &report.setting;
    writeln!(out, "# ringbench, {}\n", setting.date)?;
    writeln!(
        out,
        "{} CPUs, {}, Linux {}.",
        setting.cpus, setting.processor, setting.kernel
    )?;
    writeln!(
        out,
        "{} rounds, targets alternating inside each; large file {} MiB, {} small files.",
        setting.rounds, setting.size_mib, setting.files
    )?;
    writeln!(
        out,
        "Servers run on CPU 0 with all their threads, clients on CPU 1. CPU is user and system time of the server process."
    )?;
    if setting.busy_before_percent > QUIET_PERCENT {
        writeln!(
            out,
            "**The machine was {:.0} % busy before the run began: do not trust these figures.**",
            setting.busy_before_percent
        )?;
    }
    writeln!(
        out,
        "The host took {:.0} ms from this machine meanwhile.\n",
        setting.stolen_ms
    )?;
    writeln!(out, "| target | measured | met |\n| --- | --- | --- |")?;
    for goal in &report.goals {
        let met = match goal.met {
            Some(true) => "yes",
            Some(false) => "**no**",
            None => "-",
        };
        writeln!(out, "| {} | {} | {met} |", goal.promise, goal.measured)?;
    }
    for scenario in &report.scenarios {
        write_scenario(out, scenario)?;
    }
    Ok(())
}

fn write_scenario(out: &mut String, scenario: &ScenarioReport) -> std::fmt::Result {
    writeln!(out, "\n## {}\n", scenario.name)?;
    for note in &scenario.notes {
        writeln!(out, "{note}")?;
    }
    if !scenario.notes.is_empty() {
        writeln!(out)?;
    }
    writeln!(
        out,
        "| metric | server | median | min | max | {OURS} / it |\n| --- | --- | ---: | ---: | ---: | ---: |"
    )?;
    for series in in_metric_order(&scenario.series) {
        let ratio = scenario
            .ratio(series.target, series.metric)
            .filter(|ratio| is_comparable(series) && ratio.is_finite());
        let ratio = ratio.map_or_else(String::new, |ratio| format!("{ratio:.3}"));
        let [median, min, max] = [series.median(), series.min(), series.max()].map(figure);
        writeln!(
            out,
            "| {} ({}) | {} | {median} | {min} | {max} | {ratio} |",
            series.metric, series.unit, series.target
        )?;
    }
    Ok(())
}

/// A ratio to nearly nothing, or to ourselves, says nothing.
fn is_comparable(series: &Series) -> bool {
    let floor = if series.unit == "MiB" {
        1.0
    } else {
        f64::MIN_POSITIVE
    };
    series.target != OURS && series.median() >= floor
}

/// All targets of the first metric, then all of the second, and so on.
fn in_metric_order(series: &[Series]) -> Vec<&Series> {
    let rank = |metric: &str| series.iter().position(|first| first.metric == metric);
    let mut sorted: Vec<&Series> = series.iter().collect();
    sorted.sort_by_key(|series| rank(series.metric));
    sorted
}

/// Three or more significant digits.
fn figure(value: f64) -> String {
    match value.abs() {
        size if size >= 1000.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}
