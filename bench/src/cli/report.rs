//! `ringbench report`: results as a page, as charts and as Markdown.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::report::{Cast, Charts, page, summary};
use crate::results::Results;

/// Show results as a page, as charts and as Markdown; as Markdown on the terminal when no file is named.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The file that a run wrote
    results: PathBuf,
    /// Write one self-contained page
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write each chart as a file of SVG into this directory
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,
    /// Write a summary in Markdown
    #[arg(long, value_name = "FILE")]
    md: Option<PathBuf>,
    /// The target that the others are compared with [default: ringd, else the first]
    #[arg(long, value_name = "NAME")]
    ours: Option<String>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let results = Results::read(&arguments.results)?;
    let cast = Cast::of(&results, arguments.ours.as_deref())
        .with_context(|| format!("cannot report {}", arguments.results.display()))?;
    let charts = Charts::of(&results, &cast);
    if let Some(path) = &arguments.html {
        write(path, &page(&results, &cast, &charts))?;
    }
    if let Some(dir) = &arguments.svg {
        for chart in charts.all() {
            let path = dir.join(format!("{}.svg", chart.drawing.name));
            write(&path, &chart.drawing.standalone())?;
        }
    }
    if let Some(path) = &arguments.md {
        write(path, &summary(&results, &cast))?;
    }
    let outputs = [&arguments.html, &arguments.svg, &arguments.md];
    if outputs.iter().all(|output| output.is_none()) {
        print!("{}", summary(&results, &cast));
    }
    Ok(())
}

fn write(path: &Path, text: &str) -> Result<()> {
    if let Some(dir) = path.parent() {
        std::fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    }
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}
