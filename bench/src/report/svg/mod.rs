//! Charts as SVG: inside a page, where they take its colours, or as files of their own.

mod bars;
mod element;
mod lines;
mod scale;
mod theme;

pub(crate) use bars::{Bar, Bars};
pub(crate) use lines::{Line, Lines, Point, round_ticks};
pub(crate) use scale::LINEAR_UP_TO;
pub(crate) use theme::{CHART, HUES, variables};

use element::{Element, fitted, px};
use scale::Scale;

use super::escape;

/// A chart that is drawn.
pub(crate) struct Drawing {
    /// Stem of its file's name; unique in a report.
    pub(crate) name: String,
    /// What it shows, over it.
    heading: String,
    /// Where it belongs: said only where no page says it.
    place: String,
    /// Unit, direction and scale.
    about: String,
    /// The same as the chart in words, for those who cannot see it.
    description: String,
    height: f64,
    body: String,
}

impl Drawing {
    fn add(&mut self, element: &Element) {
        self.body.push_str(&element.to_string());
        self.body.push('\n');
    }

    /// As a part of an HTML page.
    pub(crate) fn inline(&self) -> String {
        self.render("", 0.0, "", &self.about)
    }

    /// As a file.
    pub(crate) fn standalone(&self) -> String {
        let style = format!("<style>{}</style>\n", theme::standalone());
        let paper = Element::new("rect", "paper").at([
            ("x", -MARGIN),
            ("y", -MARGIN),
            ("width", WIDTH + 2.0 * MARGIN),
            ("height", self.height + 2.0 * MARGIN),
        ]);
        let about = format!("{} · {}", self.place, self.about);
        let text = self.render(
            " xmlns=\"http://www.w3.org/2000/svg\"",
            MARGIN,
            &format!("{style}{paper}\n"),
            &about,
        );
        text + "\n"
    }

    fn render(&self, attributes: &str, margin: f64, before: &str, about: &str) -> String {
        let width = px(WIDTH + 2.0 * margin);
        let height = px(self.height + 2.0 * margin);
        let corner = px(-margin);
        let name = escape::markup(&self.name);
        let shown = escape::markup(&self.heading);
        let title = Element::new("title", "")
            .with("id", format!("{}-title", self.name))
            .text(&format!("{}: {}", self.place, self.heading));
        let description = Element::new("desc", "")
            .with("id", format!("{}-desc", self.name))
            .text(&self.description);
        let heading = Element::new("text", "head")
            .at([("x", 0.0), ("y", 16.0)])
            .text(&fitted(&self.heading, WIDTH, 14.0));
        let about = Element::new("text", "sub")
            .at([("x", 0.0), ("y", 33.0)])
            .text(&fitted(about, WIDTH, 11.0));
        format!(
            "<svg{attributes} class=\"chart\" data-chart=\"{name}\" data-heading=\"{shown}\" \
             viewBox=\"{corner} {corner} {width} {height}\" width=\"{width}\" height=\"{height}\" \
             role=\"img\" aria-labelledby=\"{name}-title {name}-desc\">\n\
             {title}\n{description}\n{before}{heading}\n{about}\n{}</svg>",
            self.body
        )
    }
}

/// All charts are as wide, so that they align.
const WIDTH: f64 = 520.0;
/// Room for heading and what is about it.
const TOP: f64 = 46.0;
/// Around a chart that stands alone.
const MARGIN: f64 = 8.0;
