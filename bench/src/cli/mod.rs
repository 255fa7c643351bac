//! The command line.

mod ci;
mod compare;
mod gate;
mod goals;
mod report;
mod run;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

use crate::scenario;

/// Drives daemons that speak the guest HTTP contract, side by side, and says what their work costs.
#[derive(Parser)]
#[command(name = "ringbench", version)]
struct Line {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measures targets in turn and writes the results.
    Run(Box<run::Arguments>),
    Compare(compare::Compare),
    Gate(gate::Gate),
    Report(report::Arguments),
    /// Compares the working tree's ringd with that of the base commit, in about five minutes
    ///
    /// The exit status is 0 when no main figure is worse, 1 when one is or a scenario failed, 2 when there is nothing
    /// to compare, 130 when it was interrupted.
    Ci(Box<ci::Arguments>),
    /// Prints what was promised about speed and memory, and what a run shows of it
    ///
    /// The exit status is 1 when a promise is not kept. What was not measured is not judged.
    Goals(goals::Arguments),
    /// Prints the names of the scenarios and what happens in them.
    List,
}

/// Does what the command line says. The status is 0, or 1 when something failed that was measured or compared.
pub(crate) fn dispatch() -> Result<ExitCode> {
    match Line::parse().command {
        Command::Run(arguments) => run::run(*arguments),
        Command::Compare(compare) => Ok(compare.run()),
        Command::Gate(gate) => gate.run(),
        Command::Report(arguments) => report::run(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Ci(arguments) => ci::run(&arguments),
        Command::Goals(arguments) => goals::run(&arguments),
        Command::List => {
            for scenario in scenario::all() {
                println!("{:<16} {}", scenario.name, scenario.title);
            }
            Ok(ExitCode::SUCCESS)
        }
    }
}
