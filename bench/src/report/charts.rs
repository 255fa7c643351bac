//! Which charts a run gives, each with the table of its figures.

mod family;

use std::collections::HashSet;

use super::cast::Cast;
use super::escape;
use super::figure;
use super::headline;
use super::svg::{Bar, Bars, Drawing, Line, Lines, Point, round_ticks};
use crate::results::{Latency, Results, ScenarioResults, Series, Timeline};

/// A chart and what it is drawn from.
pub(crate) struct Chart {
    pub(crate) drawing: Drawing,
    pub(crate) table: Table,
}

/// Figures in rows; the first cell of each names it.
pub(crate) struct Table {
    pub(crate) head: Vec<String>,
    pub(crate) rows: Vec<Vec<String>>,
}

/// Charts that belong together, with what they show.
pub(crate) struct Curves {
    pub(crate) title: String,
    pub(crate) about: &'static str,
    pub(crate) charts: Vec<Chart>,
}

/// All charts of a report.
pub(crate) struct Charts {
    pub(crate) curves: Vec<Curves>,
    /// One list for each scenario, in their order.
    pub(crate) scenarios: Vec<Vec<Chart>>,
}

impl Charts {
    pub(crate) fn of(results: &Results, cast: &Cast<'_>) -> Self {
        let mut names = Names::default();
        let curves = family::find(results)
            .iter()
            .map(|family| family.draw(cast, &mut names))
            .filter(|curves| !curves.charts.is_empty())
            .collect();
        let scenarios = results
            .scenarios
            .iter()
            .map(|scenario| draw_scenario(scenario, cast, &mut names))
            .collect();
        Self { curves, scenarios }
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Chart> {
        let curves = self.curves.iter().flat_map(|curves| &curves.charts);
        curves.chain(self.scenarios.iter().flatten())
    }
}

/// Names of charts that were given away.
#[derive(Default)]
pub(crate) struct Names(HashSet<String>);

impl Names {
    /// `SCENARIO-WHAT`, with a number when there is such a chart already.
    fn take(&mut self, scenario: &str, what: &str) -> String {
        let stem = format!("{}-{what}", escape::file_stem(scenario));
        let numbered = (2..).map(|count| format!("{stem}-{count}"));
        let mut names = std::iter::once(stem.clone()).chain(numbered);
        let free = names.find(|name| !self.0.contains(name));
        let name = free.expect("there are more numbers than charts");
        self.0.insert(name.clone());
        name
    }
}

fn draw_scenario(scenario: &ScenarioResults, cast: &Cast<'_>, names: &mut Names) -> Vec<Chart> {
    let mut charts: Vec<Chart> = Vec::new();
    for metric in headline::mains(scenario) {
        let name = names.take(&scenario.name, "main");
        charts.push(draw_bars(scenario, metric, cast, name));
    }
    if let Some(metric) = headline::beside(scenario) {
        let name = names.take(&scenario.name, "beside");
        charts.push(draw_bars(scenario, metric, cast, name));
    }
    for metric in firsts(&scenario.latencies, |latency| &latency.metric) {
        let name = names.take(&scenario.name, "latency");
        charts.push(draw_latencies(scenario, metric, cast, name));
    }
    for metric in firsts(&scenario.timelines, |timeline| &timeline.metric) {
        let name = names.take(&scenario.name, "time");
        charts.push(draw_timelines(scenario, metric, cast, name));
    }
    charts
}

/// The first item with each name.
fn firsts<T>(items: &[T], name: impl Fn(&T) -> &str) -> Vec<&T> {
    let mut found: Vec<&T> = Vec::new();
    for item in items {
        if found.iter().all(|known| name(known) != name(item)) {
            found.push(item);
        }
    }
    found
}

fn draw_bars(scenario: &ScenarioResults, metric: &Series, cast: &Cast<'_>, name: String) -> Chart {
    let mut bars = Vec::new();
    for (rank, target) in cast.names().iter().enumerate() {
        let series = scenario.find(target, &metric.metric);
        let is_skipped = scenario.skipped.iter().any(|one| one.target == *target);
        if series.is_some() || is_skipped {
            bars.push(Bar {
                target,
                rank,
                series,
                absence: if is_skipped {
                    SKIPPED
                } else {
                    figure::NOT_MEASURED
                },
            });
        }
    }
    let table = Table {
        head: [
            "target",
            "median",
            "min",
            "max",
            "rounds",
            "load-bound rounds",
        ]
        .map(str::to_owned)
        .into(),
        rows: bars
            .iter()
            .map(|bar| bar_row(bar.target, bar.series, bar.absence))
            .collect(),
    };
    let bars = Bars {
        name,
        place: &scenario.name,
        metric,
        bars,
    };
    Chart {
        drawing: bars.draw(),
        table,
    }
}

fn bar_row(target: &str, series: Option<&Series>, absence: &str) -> Vec<String> {
    let mut row = vec![target.to_owned()];
    match series.filter(|series| !series.values.is_empty()) {
        Some(series) => {
            let figures = [series.median(), series.min(), series.max()];
            row.extend(figures.map(|value| figure::measure(value, &series.unit)));
            row.push(series.values.len().to_string());
            row.push(series.load_bound_rounds.to_string());
        }
        None => row.push(absence.to_owned()),
    }
    row
}

fn draw_latencies(
    scenario: &ScenarioResults,
    metric: &Latency,
    cast: &Cast<'_>,
    name: String,
) -> Chart {
    let all = scenario.latencies.iter();
    let mut found: Vec<&Latency> = all.filter(|one| one.metric == metric.metric).collect();
    found.sort_by_key(|latency| cast.rank(&latency.target));
    let mut percents: Vec<f64> = found
        .iter()
        .flat_map(|latency| latency.percentiles.iter().map(|(percent, _)| *percent))
        .collect();
    percents.sort_by(f64::total_cmp);
    percents.dedup();
    let last_but_one = percents.iter().rev().find(|percent| **percent < 100.0);
    // The longest of all stands one step behind the last percentile.
    let behind = last_but_one.map_or(1.0, |percent| nines(*percent) + 1.0);
    let place = |percent: f64| {
        if percent < 100.0 {
            nines(percent)
        } else {
            behind
        }
    };
    let line = |latency: &&'_ Latency| {
        let points = latency.percentiles.iter();
        points
            .map(|(percent, value)| Point {
                x: place(*percent),
                at: percent_name(*percent),
                y: *value,
                spread: None,
                is_bound: false,
            })
            .collect()
    };
    let lines = found.iter().map(|latency| Line {
        target: &latency.target,
        rank: cast.rank(&latency.target),
        points: line(latency),
    });
    let ticks = percents.iter();
    let lines = Lines {
        name,
        place: &scenario.name,
        heading: format!("{}, latency", metric.metric),
        about: pace(metric),
        unit: &metric.unit,
        axis: "percentile of requests",
        ticks: ticks
            .map(|percent| (place(*percent), percent_name(*percent)))
            .collect(),
        lines: lines.collect(),
        has_marks: true,
    };
    Chart {
        table: latency_table(&found, &percents),
        drawing: lines.draw(),
    }
}

fn latency_table(found: &[&Latency], percents: &[f64]) -> Table {
    let mut head = vec!["target".to_owned(), "requests".to_owned()];
    head.extend(percents.iter().map(|percent| percent_name(*percent)));
    let rows = found.iter().map(|latency| {
        let mut row = vec![latency.target.clone(), latency.count.to_string()];
        row.extend(percents.iter().map(|percent| {
            let mut pairs = latency.percentiles.iter();
            let pair = pairs.find(|(own, _)| own.total_cmp(percent).is_eq());
            pair.map_or_else(
                || figure::NOT_MEASURED.to_owned(),
                |(_, value)| figure::measure(*value, &latency.unit),
            )
        }));
        row
    });
    Table {
        rows: rows.collect(),
        head,
    }
}

/// How the requests were sent: that decides what the figures mean.
fn pace(latency: &Latency) -> String {
    latency.constant_rate.map_or_else(
        || "one after the other".to_owned(),
        |rate| format!("at a constant {}/s", figure::digits(rate)),
    )
}

fn draw_timelines(
    scenario: &ScenarioResults,
    metric: &Timeline,
    cast: &Cast<'_>,
    name: String,
) -> Chart {
    let all = scenario.timelines.iter();
    let mut found: Vec<&Timeline> = all.filter(|one| one.metric == metric.metric).collect();
    found.sort_by_key(|timeline| cast.rank(&timeline.target));
    let seconds = found.iter().flat_map(|timeline| &timeline.points);
    let length = seconds.map(|(second, _)| *second).fold(0.0, f64::max);
    let lines = found.iter().map(|timeline| Line {
        target: &timeline.target,
        rank: cast.rank(&timeline.target),
        points: timeline.points.iter().map(moment).collect(),
    });
    let lines = Lines {
        name,
        place: &scenario.name,
        heading: format!("{} over time", metric.metric),
        about: String::new(),
        unit: &metric.unit,
        axis: "seconds since the start of a round",
        ticks: round_ticks(length),
        lines: lines.collect(),
        has_marks: false,
    };
    let rows = found.iter().map(|timeline| {
        let values = timeline.points.iter().map(|(_, value)| *value);
        let figures = [
            timeline.points.first().map(|(_, value)| *value),
            values.reduce(f64::max),
            timeline.points.last().map(|(_, value)| *value),
        ];
        let mut row = vec![timeline.target.clone(), timeline.points.len().to_string()];
        row.extend(figures.map(|value| figure::measure(value.unwrap_or(f64::NAN), &timeline.unit)));
        row
    });
    let table = Table {
        head: ["target", "points", "at the start", "at most", "at the end"]
            .map(str::to_owned)
            .into(),
        rows: rows.collect(),
    };
    Chart {
        drawing: lines.draw(),
        table,
    }
}

fn moment((second, value): &(f64, f64)) -> Point {
    Point {
        x: *second,
        at: figure::digits(*second),
        y: *value,
        spread: None,
        is_bound: false,
    }
}

/// 90 is one, 99 is two, 99.9 is three.
fn nines(percent: f64) -> f64 {
    -(1.0 - percent / 100.0).max(1e-9).log10()
}

fn percent_name(percent: f64) -> String {
    if percent >= 100.0 {
        "max".to_owned()
    } else {
        format!("p{percent}")
    }
}

/// Said in place of a bar of a target that was left out.
const SKIPPED: &str = "skipped";
