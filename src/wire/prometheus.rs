//! The text in which Prometheus reads metrics: its own exposition format 0.0.4, or OpenMetrics 1.0.

use std::fmt::{Display, Write};

/// Which of the two formats is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Prometheus text exposition 0.0.4.
    Text,
    /// OpenMetrics 1.0.
    Open,
}

impl Format {
    /// The media type.
    pub fn media(self) -> &'static str {
        match self {
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
            Self::Open => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// What a family measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// It only grows; the name of a sample ends in `_total`.
    Counter,
    /// It goes up and down.
    Gauge,
    /// How many observations were not above each of some bounds.
    Histogram,
    /// Always 1: what there is to know stands in the labels, and the name of a sample ends in `_info`.
    Info,
}

/// A document under construction.
pub struct Document {
    format: Format,
    text: String,
}

/// The labels of a sample: names, and values that may hold anything.
pub type Labels<'a> = &'a [(&'a str, &'a str)];

impl Document {
    /// An empty document.
    pub fn new(format: Format) -> Self {
        Self {
            format,
            text: String::with_capacity(ROOM),
        }
    }

    /// Begins a family; `name` is without the suffix that its type brings. To be called once for each name.
    pub fn family(&mut self, kind: Type, name: &'static str, help: &str) -> Family<'_> {
        // Prometheus' own format knows no families: it describes the samples by their own name.
        let suffix = match (self.format, kind) {
            (Format::Open, _) => "",
            (Format::Text, kind) => suffix(kind),
        };
        let word = match (self.format, kind) {
            (_, Type::Counter) => "counter",
            (_, Type::Gauge) | (Format::Text, Type::Info) => "gauge",
            (_, Type::Histogram) => "histogram",
            (Format::Open, Type::Info) => "info",
        };
        self.text.push_str("# HELP ");
        self.text.push_str(name);
        self.text.push_str(suffix);
        self.text.push(' ');
        // Only OpenMetrics escapes quotes there.
        escape(help, self.format == Format::Open, &mut self.text);
        put(
            &mut self.text,
            format_args!("\n# TYPE {name}{suffix} {word}\n"),
        );
        Family {
            document: self,
            kind,
            name,
        }
    }

    /// Ends the document.
    pub fn finish(mut self) -> Vec<u8> {
        if self.format == Format::Open {
            self.text.push_str("# EOF\n");
        }
        self.text.into_bytes()
    }

    fn sample(&mut self, name: &str, suffix: &str, labels: Labels<'_>, value: impl Display) {
        self.text.push_str(name);
        self.text.push_str(suffix);
        for (index, (name, value)) in labels.iter().enumerate() {
            self.text.push(if index == 0 { '{' } else { ',' });
            self.text.push_str(name);
            self.text.push_str("=\"");
            escape(value, true, &mut self.text);
            self.text.push('"');
        }
        if !labels.is_empty() {
            self.text.push('}');
        }
        put(&mut self.text, format_args!(" {value}\n"));
    }
}

/// A family whose samples are being written.
pub struct Family<'a> {
    document: &'a mut Document,
    kind: Type,
    name: &'static str,
}

impl Family<'_> {
    /// Adds a sample. Families that are not histograms have these only.
    pub fn sample(&mut self, labels: Labels<'_>, value: impl Display) -> &mut Self {
        debug_assert_ne!(self.kind, Type::Histogram, "a histogram has buckets");
        self.document
            .sample(self.name, suffix(self.kind), labels, value);
        self
    }

    /// Adds a histogram: how many observations fell up to each of `bounds` and not up to the one before, and at the end
    /// how many were above all of them; and the sum of all.
    pub fn histogram(
        &mut self,
        labels: Labels<'_>,
        bounds: &[f64],
        counts: impl IntoIterator<Item = u64>,
        sum: f64,
    ) -> &mut Self {
        debug_assert_eq!(self.kind, Type::Histogram, "only a histogram has buckets");
        let mut bounds = bounds.iter();
        let mut total = 0;
        for count in counts {
            total += count;
            // OpenMetrics wants a fraction in each bound, and a series must be the same in both formats.
            let bound = bounds.next().map(|bound| format!("{bound:?}"));
            let bound = bound.as_deref().unwrap_or("+Inf");
            let labels = [labels, &[("le", bound)][..]].concat();
            self.document.sample(self.name, "_bucket", &labels, total);
        }
        self.document.sample(self.name, "_sum", labels, sum);
        self.document.sample(self.name, "_count", labels, total);
        self
    }
}

fn suffix(kind: Type) -> &'static str {
    match kind {
        Type::Counter => "_total",
        Type::Info => "_info",
        Type::Gauge | Type::Histogram => "",
    }
}

fn escape(text: &str, quotes: bool, into: &mut String) {
    for letter in text.chars() {
        match letter {
            '\\' => into.push_str("\\\\"),
            '\n' => into.push_str("\\n"),
            '"' if quotes => into.push_str("\\\""),
            other => into.push(other),
        }
    }
}

fn put(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    text.write_fmt(arguments).expect("a string takes all");
}

/// What a daemon that has served a few routes fills.
const ROOM: usize = 32 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn written(format: Format, write: impl Fn(&mut Document)) -> String {
        let mut document = Document::new(format);
        write(&mut document);
        String::from_utf8(document.finish()).expect("text")
    }

    fn check(write: impl Fn(&mut Document), text: &str, open: &str) {
        assert_eq!(written(Format::Text, &write), text);
        assert_eq!(written(Format::Open, &write), format!("{open}# EOF\n"));
    }

    #[test]
    fn a_counter_is_named_after_its_family_in_one_format_only() {
        check(
            |document| {
                let mut family = document.family(Type::Counter, "a_b", "What it counts.");
                family.sample(&[], 1).sample(&[("c", "d"), ("e", "f")], 2);
            },
            "# HELP a_b_total What it counts.\n# TYPE a_b_total counter\n\
             a_b_total 1\na_b_total{c=\"d\",e=\"f\"} 2\n",
            "# HELP a_b What it counts.\n# TYPE a_b counter\n\
             a_b_total 1\na_b_total{c=\"d\",e=\"f\"} 2\n",
        );
    }

    #[test]
    fn an_info_is_a_gauge_where_there_is_no_such_type() {
        check(
            |document| {
                let mut family = document.family(Type::Info, "build", "It.");
                family.sample(&[("version", "1")], 1);
            },
            "# HELP build_info It.\n# TYPE build_info gauge\nbuild_info{version=\"1\"} 1\n",
            "# HELP build It.\n# TYPE build info\nbuild_info{version=\"1\"} 1\n",
        );
    }

    #[test]
    fn buckets_add_up() {
        let text = "# HELP h H.\n# TYPE h histogram\n\
             h_bucket{a=\"b\",le=\"0.0001\"} 1\nh_bucket{a=\"b\",le=\"1.0\"} 1\nh_bucket{a=\"b\",le=\"+Inf\"} 6\n\
             h_sum{a=\"b\"} 7.25\nh_count{a=\"b\"} 6\n";
        check(
            |document| {
                let mut family = document.family(Type::Histogram, "h", "H.");
                family.histogram(&[("a", "b")], &[0.0001, 1.0], [1, 0, 5], 7.25);
            },
            text,
            text,
        );
    }

    #[test]
    fn what_would_end_a_value_or_a_line_is_escaped() {
        check(
            |document| {
                let mut family = document.family(Type::Gauge, "g", "a\\b\n\"c\"");
                family.sample(&[("l", "a\\b\n\"c\"")], 0.5);
            },
            "# HELP g a\\\\b\\n\"c\"\n# TYPE g gauge\ng{l=\"a\\\\b\\n\\\"c\\\"\"} 0.5\n",
            "# HELP g a\\\\b\\n\\\"c\\\"\n# TYPE g gauge\ng{l=\"a\\\\b\\n\\\"c\\\"\"} 0.5\n",
        );
    }

    #[test]
    fn a_family_without_samples_is_described() {
        let text = "# HELP g Nothing yet.\n# TYPE g gauge\n";
        check(
            |document| {
                document.family(Type::Gauge, "g", "Nothing yet.");
            },
            text,
            text,
        );
    }
}
