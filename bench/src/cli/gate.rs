//! `ringbench gate`: counts the instructions of ringd's pure parts and holds them against a baseline.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;

use crate::gate::{Counts, compare};

/// Counts the instructions of ringd's pure parts and holds them against a baseline
///
/// The exit status is 0 when no part takes over 3 % more, 1 when one does or has gone, and 2 when nothing was counted.
#[derive(clap::Args)]
pub(crate) struct Gate {
    /// The program whose rounds are counted (`cargo build --release -p ringmicro`)
    #[arg(long, value_name = "PATH", default_value = "target/release/ringmicro")]
    program: PathBuf,
    /// The counts that are held to
    #[arg(
        long,
        value_name = "PATH",
        default_value = "bench/micro/instructions.json"
    )]
    baseline: PathBuf,
    /// Writes what was counted as the new baseline, whatever the old one says
    #[arg(long)]
    bless: bool,
}

impl Gate {
    /// Counts and judges.
    pub(crate) fn run(&self) -> Result<ExitCode> {
        let counted = Counts::of(&self.program)?;
        if self.bless {
            // There may be none yet, or one of another form.
            if let Ok(before) = Counts::read(&self.baseline) {
                print!("{}", compare(&before, &counted));
            }
            counted.write(&self.baseline)?;
            println!("{} has these counts now", self.baseline.display());
            return Ok(ExitCode::SUCCESS);
        }
        let comparison = compare(&Counts::read(&self.baseline)?, &counted);
        print!("{comparison}");
        let failed = comparison.failed();
        if failed.is_empty() {
            return Ok(ExitCode::SUCCESS);
        }
        println!("Not allowed: {}", failed.join(", "));
        Ok(ExitCode::FAILURE)
    }
}
