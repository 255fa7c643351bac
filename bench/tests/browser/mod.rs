//! A page in headless Chromium: its DOM after loading, and the places of what is in it.

use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;

/// Options for a reader who prefers a light page, and for one who prefers a dark one.
pub(crate) const LIGHT: &str = "--blink-settings=preferredColorScheme=1";
pub(crate) const DARK: &str = "--blink-settings=preferredColorScheme=0";

/// One chart as the DOM has it.
pub(crate) struct Chart {
    pub(crate) name: String,
    pub(crate) heading: String,
    /// Targets in order of their first mark, each with the values of all its marks.
    pub(crate) marks: Vec<(String, Vec<f64>)>,
    /// Targets and how many points their curves have.
    pub(crate) lines: Vec<(String, usize)>,
}

impl Chart {
    /// `get-1g-main` and `fanout-curve-2` are a scenario or family, a kind, and sometimes a number.
    pub(crate) fn scenario_and_kind(&self) -> (&str, &str) {
        let numbers = ["-2", "-3"].iter();
        let mut stems = numbers.filter_map(|number| self.name.strip_suffix(number));
        let name = stems.next().unwrap_or(&self.name);
        name.rsplit_once('-').expect("a kind")
    }
}

/// What a script found on a page.
pub(crate) struct Probe {
    /// Of other files than the page.
    pub(crate) requests: usize,
    pub(crate) marks: usize,
    /// The background of the page.
    pub(crate) ground: String,
    pub(crate) complaints: Vec<String>,
}

/// The DOM of a page after it was loaded.
pub(crate) fn dump(page: &Path, scheme: &str) -> String {
    let profile = tempfile::tempdir().expect("a directory");
    let output = Command::new("chromium")
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
        ])
        .args(["--no-first-run", "--disable-background-networking"])
        .args([
            "--disable-component-update",
            "--disable-sync",
            "--disable-dev-shm-usage",
        ])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .args(["--window-size=1280,2400", scheme, "--dump-dom"])
        .arg(format!("file://{}", page.display()))
        .env("HOME", profile.path())
        .output();
    let output = match output {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            panic!("chromium is not installed; `apt-get install chromium` brings it on Debian")
        }
        output => output.expect("chromium starts"),
    };
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "chromium failed: {told}");
    String::from_utf8(output.stdout).expect("the DOM is text")
}

/// All charts of a DOM.
pub(crate) fn charts(dom: &str) -> Vec<Chart> {
    let pieces = dom.split("<svg ").skip(1);
    let pieces = pieces.map(|piece| piece.split_once("</svg>").map_or(piece, |(svg, _)| svg));
    pieces.map(chart).collect()
}

fn chart(svg: &str) -> Chart {
    let mut marks: Vec<(String, Vec<f64>)> = Vec::new();
    let mut lines = Vec::new();
    for tag in svg.split('<') {
        if let Some(target) = attribute(tag, "data-series") {
            let value = attribute(tag, "data-value").expect("a value");
            let value = value.parse().expect("a number");
            match marks.iter_mut().find(|(known, _)| *known == target) {
                Some((_, values)) => values.push(value),
                None => marks.push((target, vec![value])),
            }
        }
        if let Some(target) = attribute(tag, "data-line") {
            let count = attribute(tag, "data-count").expect("a count");
            lines.push((target, count.parse().expect("a number")));
        }
    }
    Chart {
        name: attribute(svg, "data-chart").expect("a name"),
        heading: attribute(svg, "data-heading").expect("a heading"),
        marks,
        lines,
    }
}

fn attribute(tag: &str, name: &str) -> Option<String> {
    let (_, rest) = tag.split_once(&format!("{name}=\""))?;
    let (value, _) = rest.split_once('"')?;
    Some(value.replace("&amp;", "&"))
}

/// Looks at a copy of a page with a script in it.
pub(crate) fn probe(page: &str, scheme: &str) -> Probe {
    // All else of the page's policy stays in force.
    let open = page.replacen(
        "default-src 'none';",
        "default-src 'none'; script-src 'unsafe-inline';",
        1,
    );
    let copy = open.replace("</body>", &format!("<script>{SCRIPT}</script></body>"));
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("copy.html");
    std::fs::write(&path, copy).expect("the copy");
    let dom = dump(&path, scheme);
    let root = dom.split("<html").nth(1).expect("a page");
    let found = |name: &str| attribute(root, name).expect("the script ran to its end");
    let complaints = found("data-complaints");
    Probe {
        requests: found("data-requests").parse().expect("a number"),
        marks: found("data-marks").parse().expect("a number"),
        ground: found("data-ground"),
        complaints: complaints
            .split(';')
            .filter(|complaint| !complaint.is_empty())
            .map(str::to_owned)
            .collect(),
    }
}

/// Complains of marks without a size, of what is outside its chart, and of texts that overlap.
const SCRIPT: &str = include_str!("probe.js");
