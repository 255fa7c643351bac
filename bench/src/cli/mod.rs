//! The commands: one file each, which says what its words are and what it does with them.

mod gate;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "ringbench")]
struct Line {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Gate(gate::Gate),
}

/// Does what the command line says. The status is 0, or 1 when something failed that was counted.
pub(crate) fn dispatch() -> Result<ExitCode> {
    match Line::parse().command {
        Command::Gate(gate) => gate.run(),
    }
}
