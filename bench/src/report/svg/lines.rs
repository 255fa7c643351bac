//! Curves of all targets over one axis: percentiles, followers, connections or seconds.

use super::super::figure::{self, Unit};
use super::element::{Element, f64_of, fitted, px, width_of};
use super::{Drawing, HUES, Scale, TOP, WIDTH};

/// What a chart of curves shows.
pub(crate) struct Lines<'a> {
    pub(crate) name: String,
    pub(crate) place: &'a str,
    pub(crate) heading: String,
    /// Said after unit and scale.
    pub(crate) about: String,
    pub(crate) unit: &'a str,
    /// What the horizontal axis counts.
    pub(crate) axis: &'static str,
    /// Places on the horizontal axis with what is written there.
    pub(crate) ticks: Vec<(f64, String)>,
    pub(crate) lines: Vec<Line<'a>>,
    /// Whether each point has a mark; without, a curve has too many.
    pub(crate) has_marks: bool,
}

/// One target's curve.
pub(crate) struct Line<'a> {
    pub(crate) target: &'a str,
    pub(crate) rank: usize,
    pub(crate) points: Vec<Point>,
}

/// A value at a place of the horizontal axis.
pub(crate) struct Point {
    pub(crate) x: f64,
    /// The place as a reader knows it: `99.9`, `500`, `1.5`.
    pub(crate) at: String,
    pub(crate) y: f64,
    /// Least and most, where the value is a median.
    pub(crate) spread: Option<(f64, f64)>,
    /// Whether the load was the limit.
    pub(crate) is_bound: bool,
}

impl Lines<'_> {
    pub(crate) fn draw(&self) -> Drawing {
        let frame = Frame::around(self);
        let mut drawing = Drawing {
            name: self.name.clone(),
            heading: self.heading.clone(),
            place: self.place.to_owned(),
            about: self.say(&frame),
            description: self.describe(),
            height: BOTTOM + AXIS,
            body: String::new(),
        };
        frame.draw_axes(&mut drawing, self);
        // Ours is drawn last, over the others.
        for line in self.lines.iter().rev() {
            frame.draw_line(&mut drawing, line, self.has_marks);
        }
        frame.draw_names(&mut drawing, &self.lines);
        if self.lines.iter().all(|line| line.points.is_empty()) {
            drawing.add(
                &Element::new("text", "none")
                    .at([("x", frame.left + 8.0), ("y", TOP + 24.0)])
                    .text(figure::NOT_MEASURED),
            );
        }
        drawing
    }

    fn say(&self, frame: &Frame) -> String {
        let (counted, per) = self.unit.split_once('/').unwrap_or((self.unit, ""));
        // Where each mark of the axis has its unit, only what it is divided by remains to be said.
        let mut about = match (frame.y.is_log && Unit::is_known(counted), per) {
            (false, _) => format!("{} over {}", frame.unit.name, self.axis),
            (true, "") => format!("over {}", self.axis),
            (true, per) => format!("per {per} over {}", self.axis),
        };
        if frame.y.is_log {
            about.push_str(" · logarithmic scale");
        }
        if !self.about.is_empty() {
            about.push_str(" · ");
            about.push_str(&self.about);
        }
        let mut points = self.lines.iter().flat_map(|line| &line.points);
        if points.any(|point| point.is_bound) {
            about.push_str(" · hollow: load-bound");
        }
        about
    }

    fn describe(&self) -> String {
        let told = self.lines.iter().map(|line| match line.points.last() {
            None => format!("{} {}", line.target, figure::NOT_MEASURED),
            Some(_) if self.has_marks => {
                let points = line.points.iter();
                let points = points.map(|point| {
                    format!("{} at {}", figure::measure(point.y, self.unit), point.at)
                });
                format!("{} {}", line.target, points.collect::<Vec<_>>().join(", "))
            }
            Some(last) => {
                let most = line
                    .points
                    .iter()
                    .map(|point| point.y)
                    .fold(last.y, f64::max);
                format!(
                    "{} {} at most, {} at the end",
                    line.target,
                    figure::measure(most, self.unit),
                    figure::measure(last.y, self.unit)
                )
            }
        });
        let told: Vec<String> = told.collect();
        format!("Over {}: {}.", self.axis, told.join("; "))
    }
}

/// Where the curves are.
struct Frame {
    left: f64,
    right: f64,
    first: f64,
    last: f64,
    y: Scale,
    unit: Unit,
}

impl Frame {
    fn around(lines: &Lines<'_>) -> Self {
        let points = || lines.lines.iter().flat_map(|line| &line.points);
        let heads: Vec<f64> = points().map(|point| point.y).collect();
        let spreads = points().filter_map(|point| point.spread);
        let mut values: Vec<f64> = spreads.flat_map(|(low, high)| [low, high]).collect();
        values.extend(&heads);
        // What grows and shrinks over time is read from zero.
        let judged = if lines.has_marks { &heads[..] } else { &[] };
        let y = Scale::new(&values, judged);
        let places = || {
            let ticks = lines.ticks.iter().map(|(place, _)| *place);
            ticks.chain(points().map(|point| point.x))
        };
        let (first, last) = (
            places().fold(f64::INFINITY, f64::min),
            places().fold(f64::NEG_INFINITY, f64::max),
        );
        let names = lines.lines.iter().map(|line| width_of(line.target, BOLD));
        let name = names.fold(0.0, f64::max).min(MOST_NAME);
        let unit = match y.is_log {
            true => Unit::plain(lines.unit),
            false => Unit::for_size(lines.unit, heads.iter().copied().fold(0.0, f64::max)),
        };
        let ticks = y.ticks(TICKS).into_iter();
        let ticks =
            ticks.map(|tick| width_of(&tick_text(tick, lines.unit, &unit, y.is_log), SMALL));
        Self {
            left: ticks.fold(0.0, f64::max) + 10.0,
            right: WIDTH - name - LEADER,
            first: if first.is_finite() { first } else { 0.0 },
            last: if last > first { last } else { first + 1.0 },
            y,
            unit,
        }
    }

    fn x(&self, place: f64) -> f64 {
        let share = (place - self.first) / (self.last - self.first);
        let share = if share.is_finite() { share } else { 0.0 };
        self.left + INSET + share.clamp(0.0, 1.0) * (self.right - self.left - 2.0 * INSET)
    }

    fn y(&self, value: f64) -> f64 {
        BOTTOM - self.y.place(value) * (BOTTOM - TOP)
    }

    fn draw_axes(&self, drawing: &mut Drawing, lines: &Lines<'_>) {
        for tick in self.y.ticks(TICKS) {
            let y = self.y(tick);
            drawing.add(&Element::new("line", "grid").at([
                ("x1", self.left),
                ("x2", self.right),
                ("y1", y),
                ("y2", y),
            ]));
            drawing.add(
                &Element::new("text", "tick")
                    .at([("x", self.left - 6.0), ("y", y + 4.0)])
                    .with("text-anchor", "end")
                    .text(&tick_text(tick, lines.unit, &self.unit, self.y.is_log)),
            );
        }
        let mut written = 0.0;
        for (place, text) in &lines.ticks {
            let x = self.x(*place);
            let half = width_of(text, SMALL) / 2.0;
            drawing.add(&Element::new("line", "grid").at([
                ("x1", x),
                ("x2", x),
                ("y1", TOP),
                ("y2", BOTTOM),
            ]));
            if x - half < written {
                continue;
            }
            written = x + half + 4.0;
            drawing.add(
                &Element::new("text", "tick")
                    .at([("x", x), ("y", BOTTOM + 15.0)])
                    .with("text-anchor", "middle")
                    .text(text),
            );
        }
        drawing.add(&Element::new("line", "base").at([
            ("x1", self.left),
            ("x2", self.right),
            ("y1", BOTTOM),
            ("y2", BOTTOM),
        ]));
        drawing.add(
            &Element::new("text", "axis-name")
                .at([("x", (self.left + self.right) / 2.0), ("y", BOTTOM + 31.0)])
                .with("text-anchor", "middle")
                .text(lines.axis),
        );
    }

    fn draw_line(&self, drawing: &mut Drawing, line: &Line<'_>, has_marks: bool) {
        let hue = line.rank % HUES;
        let drawn = if has_marks {
            line.points.iter().collect()
        } else {
            thinned(&line.points)
        };
        let places = drawn.into_iter();
        let mut places: Vec<String> = places
            .map(|point| format!("{} {}", px(self.x(point.x)), px(self.y(point.y))))
            .collect();
        if let [only] = &places[..] {
            // A line to the same place would not be seen.
            let place = only.clone();
            places[0] = format!("{place}h2");
        }
        if !places.is_empty() {
            drawing.add(
                &Element::new("path", &format!("line hue{hue}"))
                    .with("d", format!("M{}", places.join("L")))
                    .with("data-line", line.target)
                    .with("data-count", line.points.len()),
            );
        }
        for point in line.points.iter().filter(|_| has_marks) {
            let (x, y) = (self.x(point.x), self.y(point.y));
            if let Some((low, high)) = point.spread {
                drawing.add(&Element::new("line", &format!("spread hue{hue}")).at([
                    ("x1", x),
                    ("x2", x),
                    ("y1", self.y(low)),
                    ("y2", self.y(high)),
                ]));
            }
            let bound = if point.is_bound { " bound" } else { "" };
            drawing.add(
                &Element::new("path", &format!("mark fill{hue}{bound}"))
                    .with("d", shape(line.rank, x, y))
                    .with("data-series", line.target)
                    .with("data-at", &point.at)
                    .with("data-value", point.y),
            );
        }
    }

    /// Names stand at the ends of their curves, moved apart where they would touch.
    fn draw_names(&self, drawing: &mut Drawing, lines: &[Line<'_>]) {
        let mut ends: Vec<(&Line<'_>, f64, f64)> = lines
            .iter()
            .filter_map(|line| {
                let last = line.points.last()?;
                Some((line, self.x(last.x), self.y(last.y)))
            })
            .collect();
        ends.sort_by(|left, right| left.2.total_cmp(&right.2));
        let mut places: Vec<f64> = ends.iter().map(|(.., y)| *y).collect();
        for at in 1..places.len() {
            places[at] = places[at].max(places[at - 1] + APART);
        }
        let mut limit = BOTTOM;
        for place in places.iter_mut().rev() {
            *place = place.min(limit);
            limit = *place - APART;
        }
        for ((line, x, y), place) in ends.iter().zip(places) {
            let name = self.right + LEADER;
            let leader = format!(
                "M{} {}L{} {}",
                px(x + 5.0),
                px(*y),
                px(name - 3.0),
                px(place)
            );
            drawing.add(
                &Element::new("path", "leader")
                    .with("d", leader)
                    .with("fill", "none"),
            );
            let class = if line.rank == 0 { " ours" } else { "" };
            drawing.add(
                &Element::new("text", &format!("fill{}{class}", line.rank % HUES))
                    .at([("x", name), ("y", place + 4.0)])
                    .text(&fitted(line.target, MOST_NAME, BOLD)),
            );
        }
    }
}

/// The least and the most of each stretch, where there are more points than can be seen.
fn thinned(points: &[Point]) -> Vec<&Point> {
    if points.len() <= MOST_POINTS {
        return points.iter().collect();
    }
    let stretch = points.len().div_ceil(MOST_POINTS / 2);
    let mut kept = Vec::new();
    for points in points.chunks(stretch) {
        let numbered = || points.iter().enumerate();
        let least = numbered().min_by(|left, right| left.1.y.total_cmp(&right.1.y));
        let most = numbered().max_by(|left, right| left.1.y.total_cmp(&right.1.y));
        let mut both: Vec<(usize, &Point)> = least.into_iter().chain(most).collect();
        both.sort_by_key(|(at, _)| *at);
        both.dedup_by_key(|(at, _)| *at);
        kept.extend(both.into_iter().map(|(_, point)| point));
    }
    kept
}

/// A value beside the axis; decades of time or size each have a unit of their own.
fn tick_text(tick: f64, name: &str, unit: &Unit, is_log: bool) -> String {
    let counted = name.split('/').next().unwrap_or(name);
    if is_log && Unit::is_known(counted) {
        figure::tick_measure(tick, counted)
    } else {
        figure::tick(tick * unit.factor)
    }
}

/// The outline of a mark; each of the first four targets has its own.
fn shape(rank: usize, x: f64, y: f64) -> String {
    let at = |dx: f64, dy: f64| format!("{} {}", px(x + dx), px(y + dy));
    match rank % 4 {
        0 => format!("M{}a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0 -9 0z", at(-4.5, 0.0)),
        1 => format!("M{}h8v8h-8z", at(-4.0, -4.0)),
        2 => format!("M{}l5 9h-10z", at(0.0, -5.5)),
        _ => format!("M{}l5.5 5.5l-5.5 5.5l-5.5 -5.5z", at(0.0, -5.5)),
    }
}

/// Round places on an axis of this length, with what is written there.
pub(crate) fn round_ticks(length: f64) -> Vec<(f64, String)> {
    let scale = Scale::new(&[length], &[length]);
    let ticks = scale.ticks(f64_of(6)).into_iter();
    ticks.map(|tick| (tick, figure::tick(tick))).collect()
}

/// Names are set in 12 px, ours in bold, which is wider.
const BOLD: f64 = 14.0;
/// Of one curve without marks; about two for each pixel.
const MOST_POINTS: usize = 1000;
const SMALL: f64 = 11.0;
const BOTTOM: f64 = 262.0;
const AXIS: f64 = 36.0;
const TICKS: f64 = 5.0;
const INSET: f64 = 8.0;
const MOST_NAME: f64 = 110.0;
/// From the end of the axis to the names.
const LEADER: f64 = 18.0;
/// Between the base lines of two names.
const APART: f64 = 14.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thinned_curve_keeps_its_peaks() {
        let mut points: Vec<Point> = (0..5000)
            .map(|at| Point {
                x: f64::from(at),
                at: at.to_string(),
                y: 5.0,
                spread: None,
                is_bound: false,
            })
            .collect();
        points[3217].y = 90.0;
        points[4001].y = 1.0;
        let kept = thinned(&points);
        assert!(kept.len() <= MOST_POINTS);
        assert!(kept.is_sorted_by(|left, right| left.x < right.x));
        for y in [90.0, 1.0] {
            assert!(kept.iter().any(|point| point.y.total_cmp(&y).is_eq()));
        }
    }
}
