//! `ringbench goals`: which promises a run shows to be kept.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};

use crate::goals::{judge, markdown};
use crate::results::Results;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Results of `ringbench run`.
    #[arg(value_name = "RESULTS.json")]
    results: PathBuf,
    /// The target whose promises these are.
    #[arg(long, value_name = "NAME", default_value = "ringd")]
    target: String,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let results = Results::read(&arguments.results)?;
    let goals = judge(&results, &arguments.target)?;
    std::io::stdout()
        .write_all(markdown(&results, &goals).as_bytes())
        .context("cannot write to standard output")?;
    let is_broken = goals.iter().any(|goal| goal.is_kept == Some(false));
    Ok(match is_broken {
        true => ExitCode::FAILURE,
        false => ExitCode::SUCCESS,
    })
}
