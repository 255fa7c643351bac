//! Measures daemons that speak the guest HTTP contract: alternating rounds, pinned servers, checked bytes.

mod bench;
mod ci;
mod cli;
mod compare;
mod cpu;
mod fixture;
mod gate;
mod goals;
mod load;
mod memory;
mod pace;
mod progress;
mod report;
mod results;
mod run;
mod scenario;
mod stop;
mod target;

use std::process::ExitCode;

fn main() -> ExitCode {
    match cli::dispatch() {
        Ok(status) => status,
        Err(error) => {
            eprintln!("ringbench: {error:#}");
            ExitCode::from(2)
        }
    }
}
