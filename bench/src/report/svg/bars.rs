//! One figure of all targets: a bar to the median, whiskers from least to most, a dot for each round.

use super::super::figure::{self, Unit};
use super::element::{Element, f64_of, fitted, px, width_of};
use super::{Drawing, HUES, Scale, TOP, WIDTH};
use crate::results::{Better, Series};

/// What a chart of bars shows.
pub(crate) struct Bars<'a> {
    pub(crate) name: String,
    pub(crate) place: &'a str,
    /// Any series of the metric, for its name and unit.
    pub(crate) metric: &'a Series,
    pub(crate) bars: Vec<Bar<'a>>,
}

/// One row of it.
pub(crate) struct Bar<'a> {
    pub(crate) target: &'a str,
    /// Place among all targets; the first is ours.
    pub(crate) rank: usize,
    /// Nothing when the target did not take part.
    pub(crate) series: Option<&'a Series>,
    /// Said in place of a bar that is missing.
    pub(crate) absence: &'a str,
}

impl Bar<'_> {
    fn measured(&self) -> Option<&Series> {
        self.series.filter(|series| !series.values.is_empty())
    }
}

impl Bars<'_> {
    pub(crate) fn draw(&self) -> Drawing {
        let measured = || self.bars.iter().filter_map(Bar::measured);
        let values: Vec<f64> = measured()
            .flat_map(|series| series.values.clone())
            .collect();
        let medians: Vec<f64> = measured().map(Series::median).collect();
        let scale = Scale::new(&values, &medians);
        let most = medians.iter().copied().fold(0.0, f64::max);
        let unit = Unit::for_size(&self.metric.unit, most);
        let names = self
            .bars
            .iter()
            .map(|bar| width_of(bar.target, FONT) * 1.1 + 10.0);
        let frame = Frame {
            left: names.fold(LEAST_NAME, f64::max).min(MOST_NAME),
            right: WIDTH - FIGURE,
            bottom: TOP + f64_of(self.bars.len()) * ROW,
            scale,
            unit,
        };
        let mut drawing = Drawing {
            name: self.name.clone(),
            heading: self.metric.metric.clone(),
            place: self.place.to_owned(),
            about: about(&frame.unit, self.metric.better, scale.is_log),
            description: self.describe(&frame.unit),
            height: frame.bottom + AXIS,
            body: String::new(),
        };
        drawing.add(&hatch(&self.name));
        frame.draw_axis(&mut drawing);
        for (at, bar) in self.bars.iter().enumerate() {
            let middle = TOP + (f64_of(at) + 0.5) * ROW;
            frame.draw_name(&mut drawing, bar, middle);
            match bar.measured() {
                Some(series) => frame.draw_bar(&mut drawing, bar, series, middle),
                None => drawing.add(
                    &Element::new("text", "none")
                        .at([("x", frame.left + 6.0), ("y", middle + 4.0)])
                        .text(&fitted(bar.absence, WIDTH - frame.left, FONT)),
                ),
            }
        }
        drawing
    }

    fn describe(&self, unit: &Unit) -> String {
        let told = self.bars.iter().map(|bar| match bar.measured() {
            Some(series) => format!(
                "{} {} (from {} to {})",
                bar.target,
                unit.digits(series.median()),
                unit.digits(series.min()),
                unit.digits(series.max())
            ),
            None => format!("{} {}", bar.target, bar.absence),
        });
        let told: Vec<String> = told.collect();
        format!("Median in {}: {}.", unit.name, told.join(", "))
    }
}

/// Where the bars are, and how long.
struct Frame {
    left: f64,
    right: f64,
    bottom: f64,
    scale: Scale,
    unit: Unit,
}

impl Frame {
    fn x(&self, value: f64) -> f64 {
        self.left + self.scale.place(value) * (self.right - self.left)
    }

    fn draw_axis(&self, drawing: &mut Drawing) {
        for tick in self.scale.ticks(5.0) {
            let x = self.x(tick);
            drawing.add(&Element::new("line", "grid").at([
                ("x1", x),
                ("x2", x),
                ("y1", TOP),
                ("y2", self.bottom),
            ]));
            drawing.add(
                &Element::new("text", "tick")
                    .at([("x", x), ("y", self.bottom + 15.0)])
                    .with("text-anchor", "middle")
                    .text(&figure::tick(tick * self.unit.factor)),
            );
        }
        let x = self.x(self.scale.base());
        drawing.add(&Element::new("line", "base").at([
            ("x1", x),
            ("x2", x),
            ("y1", TOP),
            ("y2", self.bottom),
        ]));
    }

    fn draw_name(&self, drawing: &mut Drawing, bar: &Bar<'_>, middle: f64) {
        let bound = bar.measured().filter(|series| series.load_bound_rounds > 0);
        let shift = if bound.is_some() { -2.0 } else { 4.0 };
        drawing.add(
            &Element::new("text", if bar.rank == 0 { "name ours" } else { "name" })
                .at([("x", 0.0), ("y", middle + shift)])
                .text(&fitted(bar.target, self.left - 6.0, FONT)),
        );
        if let Some(series) = bound {
            drawing.add(
                &Element::new("text", "bound-note")
                    .at([("x", 0.0), ("y", middle + 11.0)])
                    .text(&format!(
                        "load-bound {}/{}",
                        series.load_bound_rounds,
                        series.values.len()
                    )),
            );
        }
    }

    fn draw_bar(&self, drawing: &mut Drawing, bar: &Bar<'_>, series: &Series, middle: f64) {
        let hue = bar.rank % HUES;
        let (zero, median) = (self.x(self.scale.base()), self.x(series.median()));
        let (left, length) = (zero.min(median), (median - zero).abs().max(1.0));
        let body = [
            ("x", left),
            ("y", middle - THICK / 2.0),
            ("width", length),
            ("height", THICK),
        ];
        drawing.add(
            &Element::new("rect", &format!("bar fill{hue}"))
                .at(body)
                .with("data-bar", bar.target)
                .with("data-median", series.median()),
        );
        if series.load_bound_rounds > 0 {
            let fill = format!("url(#{}-hatch)", drawing.name);
            drawing.add(&Element::new("rect", "").at(body).with("fill", fill));
        }
        let (least, most) = (self.x(series.min()), self.x(series.max()));
        let cap = |x: f64| format!("M{} {}v8", px(x), px(middle - 4.0));
        let whisker = format!(
            "{}{}M{} {}H{}",
            cap(least),
            cap(most),
            px(least),
            px(middle),
            px(most)
        );
        drawing.add(&Element::new("path", "whisker").with("d", whisker));
        drawing.add(&Element::new("line", "median").at([
            ("x1", median),
            ("x2", median),
            ("y1", middle - THICK / 2.0),
            ("y2", middle + THICK / 2.0),
        ]));
        for (round, value) in series.values.iter().enumerate() {
            // Rounds step down, so that equal values are not one dot.
            let step = f64_of(round % LANES) - f64_of(LANES - 1) / 2.0;
            drawing.add(
                &Element::new("circle", &format!("dot fill{hue}"))
                    .at([
                        ("cx", self.x(*value)),
                        ("cy", middle + step * THICK / f64_of(LANES + 1)),
                        ("r", 3.0),
                    ])
                    .with("data-series", bar.target)
                    .with("data-round", round + 1)
                    .with("data-value", value),
            );
        }
        drawing.add(
            &Element::new(
                "text",
                if bar.rank == 0 {
                    "figure ours"
                } else {
                    "figure"
                },
            )
            .at([("x", WIDTH), ("y", middle + 4.0)])
            .with("text-anchor", "end")
            .text(&self.unit.digits(series.median())),
        );
    }
}

/// Unit, direction and scale in one line.
fn about(unit: &Unit, better: Better, is_log: bool) -> String {
    let direction = match better {
        Better::Low => "lower is better",
        Better::High => "higher is better",
    };
    let scale = if is_log { " · logarithmic scale" } else { "" };
    format!("{} · {direction}{scale}", unit.name)
}

/// The pattern over bars whose load was the limit.
fn hatch(name: &str) -> Element {
    let stroke =
        Element::new("line", "hatch").at([("x1", 0.0), ("x2", 0.0), ("y1", 0.0), ("y2", 8.0)]);
    let pattern = Element::new("pattern", "")
        .with("id", format!("{name}-hatch"))
        .with("width", 8)
        .with("height", 8)
        .with("patternUnits", "userSpaceOnUse")
        .with("patternTransform", "rotate(45)")
        .holding(&stroke);
    Element::new("defs", "").holding(&pattern)
}

const FONT: f64 = 12.0;
const ROW: f64 = 34.0;
const THICK: f64 = 20.0;
const AXIS: f64 = 22.0;
const LEAST_NAME: f64 = 90.0;
const MOST_NAME: f64 = 170.0;
const FIGURE: f64 = 66.0;
/// Rounds are spread over so many heights of a bar.
const LANES: usize = 5;
