//! Measures ringd against its peers: alternating rounds, pinned servers, checked bytes.

mod baseline;
mod cli;
mod client;
mod cpu;
mod fixture;
mod gate;
mod lab;
mod memory;
mod options;
mod report;
#[expect(
    dead_code,
    reason = "the commands that read and write it come one by one"
)]
mod results;
mod scenario;
mod target;

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use crate::lab::Lab;
use crate::options::{Command, Options};
use crate::report::{Report, Setting};
use crate::scenario::{ALL, Scenario};

fn main() -> ExitCode {
    let is_gate = std::env::args_os()
        .nth(1)
        .is_some_and(|word| word == "gate");
    let status = if is_gate {
        cli::dispatch()
    } else {
        obey().map(|()| ExitCode::SUCCESS)
    };
    status.unwrap_or_else(|error| {
        eprintln!("ringbench: {error:#}");
        ExitCode::from(2)
    })
}

fn obey() -> Result<()> {
    match options::parse(std::env::args().skip(1))? {
        Command::Run(options) => run(options),
        Command::ServeAxum(config) => baseline::axum::serve(config),
        Command::ServeBare { port } => baseline::bare::serve(port),
        Command::Emit { lines, bytes } => fixture::emit(lines, bytes),
        Command::List => {
            ALL.iter()
                .for_each(|scenario| println!("{}", scenario.name));
            Ok(())
        }
        Command::Help => {
            println!("{}", options::USAGE);
            Ok(())
        }
    }
}

fn run(options: Options) -> Result<()> {
    let chosen = choose(&options.scenarios)?;
    cpu::pin(cpu::LOAD_CPU).context("the harness needs two cpus")?;
    if !options.ringd.is_file() {
        eprintln!(
            "ringd is not at {}: only its peers are measured",
            options.ringd.display()
        );
    }
    let lab = Lab::open(options)?;
    let mut setting =
        Setting::of_this_machine(lab.options.rounds, lab.options.size_mib, lab.options.files);
    let stolen_before = cpu::stolen_ms();
    let mut scenarios = Vec::new();
    let mut failed = Vec::new();
    for scenario in chosen {
        eprintln!("{}", scenario.name);
        // What the others measured is worth keeping.
        match (scenario.run)(&lab).with_context(|| format!("{} failed", scenario.name)) {
            Ok(report) => scenarios.push(report),
            Err(error) => {
                eprintln!("{error:#}");
                failed.push(scenario.name);
            }
        }
    }
    setting.stolen_ms = cpu::stolen_ms() - stolen_before;
    let report = Report {
        setting,
        goals: report::judge(&scenarios),
        scenarios,
    };
    publish(&lab.options, &report)?;
    if !failed.is_empty() {
        bail!("failed: {}", failed.join(", "));
    }
    Ok(())
}

fn choose(names: &[String]) -> Result<Vec<&'static Scenario>> {
    if names.is_empty() {
        return Ok(ALL.iter().collect());
    }
    let mut chosen = Vec::new();
    for name in names {
        let Some(scenario) = ALL.iter().find(|scenario| scenario.name == name) else {
            bail!("no scenario is called {name:?}; --list shows them");
        };
        chosen.push(scenario);
    }
    Ok(chosen)
}

fn publish(options: &Options, report: &Report) -> Result<()> {
    let markdown = report::markdown(report);
    print!("{markdown}");
    if let Some(path) = &options.md {
        write(path, &markdown)?;
    }
    if let Some(path) = &options.out {
        write(path, &(serde_json::to_string_pretty(report)? + "\n"))?;
    }
    Ok(())
}

fn write(path: &Path, text: &str) -> Result<()> {
    if let Some(dir) = path.parent() {
        std::fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    }
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}
