//! A scrape of the metrics, read by the letter of the exposition format and checked for what every scrape keeps.

use std::collections::{BTreeMap, BTreeSet};

use crate::daemon::Daemon;
use crate::request::Request;

/// What one scrape has told.
#[derive(Debug)]
pub(crate) struct Scrape {
    pub(crate) text: String,
    /// The type of each family, by the name of its samples.
    pub(crate) types: BTreeMap<String, String>,
    samples: Vec<Sample>,
}

#[derive(Debug, PartialEq)]
pub(crate) struct Sample {
    pub(crate) name: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) value: f64,
}

/// Labels by name.
pub(crate) type Labels<'a> = &'a [(&'a str, &'a str)];

impl Scrape {
    /// Scrapes with the token.
    #[track_caller]
    pub(crate) fn of(daemon: &Daemon) -> Self {
        let reply = daemon.call(&Request::get("/v1/metrics").bearer()).is(200);
        let media = Some("text/plain; version=0.0.4; charset=utf-8");
        assert_eq!(reply.field("content-type"), media);
        Self::parse(&reply.text())
    }

    /// Parses the text format 0.0.4: each family is described once, before its samples, which stand together.
    #[track_caller]
    pub(crate) fn parse(text: &str) -> Self {
        assert!(text.ends_with('\n'), "the last line ends");
        let mut types = BTreeMap::new();
        let mut helps = BTreeSet::new();
        let mut current = String::new();
        let mut samples = Vec::new();
        let mut series = BTreeSet::new();
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                let (name, help) = rest.split_once(' ').expect("a help text");
                assert!(!help.is_empty() && helps.insert(name.to_owned()), "{line}");
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').expect("a type");
                assert!(helps.contains(name), "{line} has a help text before it");
                let before = types.insert(name.to_owned(), kind.to_owned());
                assert_eq!(before, None, "{line}");
                name.clone_into(&mut current);
            } else {
                let sample = Sample::parse(line);
                let suffix = sample.name.strip_prefix(&*current);
                let fits = match types.get(&current).map(String::as_str) {
                    Some("histogram") => {
                        ["_bucket", "_sum", "_count"].contains(&suffix.unwrap_or(""))
                    }
                    Some(_) => suffix == Some(""),
                    None => false,
                };
                assert!(fits, "{line} stands below {current}");
                let fresh = series.insert((sample.name.clone(), sample.labels.clone()));
                assert!(fresh, "{line} stands twice");
                samples.push(sample);
            }
        }
        Self {
            text: text.to_owned(),
            types,
            samples,
        }
    }

    /// The value of the sample that has exactly these labels.
    #[track_caller]
    pub(crate) fn value(&self, name: &str, labels: Labels<'_>) -> f64 {
        let value = self.find(name, labels);
        value.unwrap_or_else(|| panic!("no {name}{labels:?} in\n{}", self.text))
    }

    /// The same, or nothing.
    pub(crate) fn find(&self, name: &str, labels: Labels<'_>) -> Option<f64> {
        let labels: BTreeMap<_, _> = owned(labels);
        let mut all = self.samples(name);
        all.find(|one| one.labels == labels).map(|one| one.value)
    }

    /// The samples of this name.
    pub(crate) fn samples(&self, name: &str) -> impl Iterator<Item = &Sample> {
        self.samples.iter().filter(move |one| one.name == name)
    }

    /// Requests that are over, of this route, by method and status.
    pub(crate) fn requests(&self, route: &str, method: &str, code: &str) -> f64 {
        let labels = [("route", route), ("method", method), ("code", code)];
        self.find("ringd_http_requests_total", &labels)
            .unwrap_or(0.0)
    }
}

impl Sample {
    #[track_caller]
    fn parse(line: &str) -> Self {
        let (series, value) = line.rsplit_once(' ').expect("a value");
        let (name, labels) = match series.split_once('{') {
            Some((name, labels)) => (name, labels.strip_suffix('}').expect("a closing brace")),
            None => (series, ""),
        };
        let value: f64 = value
            .parse()
            .unwrap_or_else(|error| panic!("{error}: {line}"));
        assert!(value.is_finite() && value >= 0.0, "{line}");
        Self {
            name: name.to_owned(),
            labels: self::labels(labels),
            value,
        }
    }
}

/// Reads `name="value",…`; a backslash, a quote and a line feed in a value are escaped.
#[track_caller]
fn labels(text: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut letters = text.chars().peekable();
    while letters.peek().is_some() {
        let name: String = letters
            .by_ref()
            .take_while(|letter| *letter != '=')
            .collect();
        assert_eq!(letters.next(), Some('"'), "{text}");
        let mut value = String::new();
        loop {
            match letters.next().expect("a closing quote") {
                '"' => break,
                '\\' => value.push(match letters.next() {
                    Some('n') => '\n',
                    Some(letter @ ('\\' | '"')) => letter,
                    other => panic!("an escape {other:?} in {text}"),
                }),
                other => value.push(other),
            }
        }
        assert_eq!(found.insert(name, value), None, "{text}");
        assert!(matches!(letters.next(), None | Some(',')), "{text}");
    }
    found
}

fn owned(labels: Labels<'_>) -> BTreeMap<String, String> {
    let pairs = labels.iter();
    pairs
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}
