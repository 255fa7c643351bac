//! The command line: one file a command.

mod compare;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "ringbench")]
struct Line {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Compare(compare::Compare),
}

/// Runs the command that the arguments name.
pub(crate) fn run() -> ExitCode {
    match Line::parse().command {
        Command::Compare(compare) => compare.run(),
    }
}
