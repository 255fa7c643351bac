//! Scenarios that differ in one count: the same work for more followers or over more connections.

use super::super::cast::Cast;
use super::super::figure;
use super::super::headline;
use super::super::svg::{Line, Lines, Point};
use super::{Chart, Curves, Names, Table};
use crate::results::{Better, Latency, Results, ScenarioResults, Series};

/// The members with their counts, rising.
pub(crate) struct Family<'a> {
    name: String,
    kind: &'static Kind,
    members: Vec<(u32, &'a ScenarioResults)>,
}

struct Kind {
    title: &'static str,
    about: &'static str,
    axis: &'static str,
}

const FOLLOWERS: Kind = Kind {
    title: "from few followers to many",
    about: "What one more follower costs, and how late it is told.",
    axis: "followers",
};
const CONNECTIONS: Kind = Kind {
    title: "from one connection to many",
    about: "The same requests over more connections at once.",
    axis: "connections",
};

/// What the delay of followers is called in the name of its metric.
const DELAY: &str = "delay";
/// Which latency stands for all of a scenario: late enough to hurt, early enough to be steady.
const PERCENTILE: f64 = 99.0;
const FANOUT: &str = "fanout-";
const CONNECTION_MARK: &str = "-c";

/// All families of at least two.
pub(crate) fn find(results: &Results) -> Vec<Family<'_>> {
    let mut families: Vec<Family<'_>> = Vec::new();
    for scenario in &results.scenarios {
        let Some((name, kind, count)) = relate(&scenario.name, results) else {
            continue;
        };
        match families.iter_mut().find(|family| family.name == name) {
            Some(family) => family.members.push((count, scenario)),
            None => families.push(Family {
                name: name.to_owned(),
                kind,
                members: vec![(count, scenario)],
            }),
        }
    }
    for family in &mut families {
        family.members.sort_by_key(|(count, _)| *count);
    }
    families.retain(|family| family.members.len() > 1);
    families
}

/// Family and count of a scenario: `fanout-500`, `get-64k-c16`, or `get-64k` where it has others.
fn relate<'a>(name: &'a str, results: &Results) -> Option<(&'a str, &'static Kind, u32)> {
    let positive = |text: &str| text.parse().ok().filter(|count: &u32| *count > 0);
    if let Some(count) = name.strip_prefix(FANOUT).and_then(positive) {
        return Some((FANOUT.trim_end_matches('-'), &FOLLOWERS, count));
    }
    if let Some((base, count)) = name.rsplit_once(CONNECTION_MARK)
        && let Some(count) = positive(count)
    {
        return Some((base, &CONNECTIONS, count));
    }
    let has_others = results.scenarios.iter().any(|other| {
        let rest = other.name.strip_prefix(name);
        let count = rest.and_then(|rest| rest.strip_prefix(CONNECTION_MARK));
        count.and_then(positive).is_some()
    });
    has_others.then_some((name, &CONNECTIONS, 1))
}

/// What one curve chart shows of each member.
#[derive(Clone, Copy)]
struct Shown<'a> {
    metric: &'a str,
    unit: &'a str,
    better: Better,
    /// The figure is a latency, of which one percentile is shown.
    is_latency: bool,
}

impl<'a> Shown<'a> {
    fn series(series: &'a Series) -> Self {
        Self {
            metric: &series.metric,
            unit: &series.unit,
            better: series.better,
            is_latency: false,
        }
    }

    fn latency(latency: &'a Latency) -> Self {
        Self {
            metric: &latency.metric,
            unit: &latency.unit,
            better: Better::Low,
            is_latency: true,
        }
    }

    fn heading(&self) -> String {
        if self.is_latency {
            format!("{}, p{PERCENTILE}", self.metric)
        } else {
            self.metric.to_owned()
        }
    }

    fn is_of(&self, scenario: &ScenarioResults) -> bool {
        if self.is_latency {
            let mut all = scenario.latencies.iter();
            all.any(|latency| latency.metric == self.metric)
        } else {
            let mut all = scenario.series.iter();
            all.any(|series| series.metric == self.metric)
        }
    }

    fn point(&self, target: &str, count: u32, scenario: &ScenarioResults) -> Option<Point> {
        let point = |y: f64, spread: Option<(f64, f64)>, is_bound: bool| Point {
            x: f64::from(count).log10(),
            at: count.to_string(),
            y,
            spread,
            is_bound,
        };
        if self.is_latency {
            let mut all = scenario.latencies.iter();
            let latency = all.find(|one| one.target == target && one.metric == self.metric)?;
            let mut pairs = latency.percentiles.iter();
            let (_, value) = pairs.find(|(percent, _)| percent.total_cmp(&PERCENTILE).is_eq())?;
            return Some(point(*value, None, false));
        }
        let series = scenario.find(target, self.metric)?;
        let spread = Some((series.min(), series.max()));
        let is_bound = series.load_bound_rounds > 0;
        (!series.values.is_empty()).then(|| point(series.median(), spread, is_bound))
    }
}

impl Family<'_> {
    pub(crate) fn draw(&self, cast: &Cast<'_>, names: &mut Names) -> Curves {
        let mut shown = self.shared(|scenario| {
            let mains = headline::mains(scenario).into_iter();
            mains.map(Shown::series).collect()
        });
        shown.extend(self.shared(|scenario| {
            let also = self.also(scenario).into_iter();
            also.map(Shown::series).collect()
        }));
        shown.extend(
            self.shared(|scenario| scenario.latencies.iter().map(Shown::latency).collect()),
        );
        let charts = shown.into_iter();
        Curves {
            title: format!("{}, {}", self.name, self.kind.title),
            about: self.kind.about,
            charts: charts
                .map(|shown| self.draw_one(shown, cast, names.take(&self.name, "curve")))
                .collect(),
        }
    }

    /// Delays for followers; what stands beside the main figure for connections.
    fn also<'a>(&self, scenario: &'a ScenarioResults) -> Vec<&'a Series> {
        let mains = headline::mains(scenario);
        let is_main = |series: &&Series| mains.iter().any(|main| main.metric == series.metric);
        if self.kind.axis == FOLLOWERS.axis {
            let metrics = headline::metrics(scenario).into_iter();
            let others = metrics.filter(|series| !is_main(series));
            others
                .filter(|series| series.metric.contains(DELAY))
                .collect()
        } else {
            headline::beside(scenario).into_iter().collect()
        }
    }

    /// The chosen figures that at least two members have.
    fn shared<'a>(
        &'a self,
        choose: impl Fn(&'a ScenarioResults) -> Vec<Shown<'a>>,
    ) -> Vec<Shown<'a>> {
        let mut found: Vec<Shown<'a>> = Vec::new();
        for (_, scenario) in &self.members {
            for shown in choose(scenario) {
                let members = self.members.iter();
                let having = members.filter(|(_, member)| shown.is_of(member));
                let is_known = found.iter().any(|known| known.metric == shown.metric);
                if having.count() > 1 && !is_known {
                    found.push(shown);
                }
            }
        }
        found
    }

    fn draw_one(&self, shown: Shown<'_>, cast: &Cast<'_>, name: String) -> Chart {
        let mut lines: Vec<Line<'_>> = Vec::new();
        for (rank, target) in cast.names().iter().enumerate() {
            let members = self.members.iter();
            let points: Vec<Point> = members
                .filter_map(|(count, scenario)| shown.point(target, *count, scenario))
                .collect();
            if !points.is_empty() {
                lines.push(Line {
                    target,
                    rank,
                    points,
                });
            }
        }
        let table = self.tabulate(shown.unit, &lines);
        let direction = match shown.better {
            Better::Low => "lower is better",
            Better::High => "higher is better",
        };
        let ticks = self.members.iter();
        let lines = Lines {
            name,
            place: &self.name,
            heading: shown.heading(),
            about: direction.to_owned(),
            unit: shown.unit,
            axis: self.kind.axis,
            ticks: ticks
                .map(|(count, _)| (f64::from(*count).log10(), count.to_string()))
                .collect(),
            lines,
            has_marks: true,
        };
        Chart {
            drawing: lines.draw(),
            table,
        }
    }

    fn tabulate(&self, unit: &str, lines: &[Line<'_>]) -> Table {
        let mut head = vec!["target".to_owned()];
        let counts = self.members.iter();
        head.extend(counts.map(|(count, _)| format!("{count} {}", self.kind.axis)));
        let rows = lines.iter().map(|line| {
            let mut row = vec![line.target.to_owned()];
            row.extend(self.members.iter().map(|(count, _)| {
                let mut points = line.points.iter();
                let point = points.find(|point| point.at == count.to_string());
                figure::measure(point.map_or(f64::NAN, |point| point.y), unit)
            }));
            row
        });
        Table {
            rows: rows.collect(),
            head,
        }
    }
}
