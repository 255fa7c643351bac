//! The `ringd` binary: everything is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    ringd::cli::run(&arguments)
}
