//! The command line: one file a command.

mod report;

use anyhow::Result;
use clap::{Parser, Subcommand};

/// The benchmark of daemons that speak the guest HTTP contract.
#[derive(Parser)]
#[command(name = "ringbench")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Report(report::Arguments),
}

/// Does what the words of this process ask for.
pub(crate) fn run() -> Result<()> {
    match Cli::parse().command {
        Command::Report(arguments) => report::run(&arguments),
    }
}
