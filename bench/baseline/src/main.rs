//! What ringd is measured against: an axum server of the usual shape, nginx, and bare loops around the system calls.

mod axum;
mod bare;
mod nginx;
mod range;

use clap::{Parser, Subcommand};

/// Peers for a measurement. Each prints `listening tcp://ADDRESS` once it can be reached, and ends on SIGTERM.
#[derive(Parser)]
#[command(name = "baseline")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// The usual shape of such a service: axum on tokio, the libraries' defaults
    Axum(axum::Config),
    /// Plain loops around the system calls: the limit of this machine
    Bare(bare::Config),
    /// The installed nginx, for GET and PUT of files
    Nginx(nginx::Config),
}

fn main() -> anyhow::Result<()> {
    match Arguments::parse().command {
        Command::Axum(config) => axum::serve(config),
        Command::Bare(config) => bare::serve(&config),
        Command::Nginx(config) => nginx::serve(config),
    }
}
