//! A directory for one test, and the command lines that work in it.

use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

/// A directory for one test, and the command line that works in it.
pub(crate) struct Desk {
    dir: TempDir,
}

impl Desk {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().expect("there is room");
        Self { dir }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// `ringbench run` of the smallest download, results to `out.json`.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ringbench"));
        command.args(["run", "--size", "1", "--dir"]);
        command.arg(self.dir.path()).arg("--out");
        command.arg(self.path("out.json")).args(words);
        command
    }

    pub(crate) fn run(&self, words: &[&str]) -> Output {
        self.command(words).output().expect("it was built")
    }

    pub(crate) fn results(&self) -> Value {
        let text = std::fs::read(self.path("out.json")).expect("it was written");
        serde_json::from_slice(&text).expect("it is JSON")
    }

    pub(crate) fn left_over(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.dir.path()).expect("it is a directory");
        let names = entries.map(|entry| entry.expect("an entry").file_name());
        names
            .map(|name| name.to_string_lossy().into_owned())
            .collect()
    }
}

pub(crate) const GET: [&str; 2] = ["--scenario", "get-1g"];

pub(crate) fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The values of a target's metric in the only scenario.
pub(crate) fn values<'a>(results: &'a Value, target: &str, metric: &str) -> Option<&'a Vec<Value>> {
    let series = results["scenarios"][0]["series"].as_array()?;
    let fits = |series: &&Value| series["target"] == target && series["metric"] == metric;
    series.iter().find(fits)?["values"].as_array()
}
