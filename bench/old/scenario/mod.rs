//! What is measured. One row of `ALL` per scenario; each alternates its targets inside every round.

mod capture;
mod contender;
mod exec;
mod exec_stream;
mod fanout;
mod get;
mod get_cold;
mod health;
mod last_lines;
mod memory;
mod memory_large;
mod put;
mod ranges;
mod small_files;
mod storm;
mod tar_get;
mod tar_put;
mod tar_put_large;
mod transfer;

use anyhow::{Context, Result};

use crate::lab::Lab;
use crate::report::{Metric, ScenarioReport, Series};
use crate::target::Server;

pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) run: fn(&Lab) -> Result<ScenarioReport>,
}

pub(crate) const ALL: &[Scenario] = &[
    Scenario {
        name: get::NAME,
        run: get::run,
    },
    Scenario {
        name: get_cold::NAME,
        run: get_cold::run,
    },
    Scenario {
        name: put::NAME,
        run: put::run,
    },
    Scenario {
        name: tar_get::NAME,
        run: tar_get::run,
    },
    Scenario {
        name: tar_put::NAME,
        run: tar_put::run,
    },
    Scenario {
        name: tar_put_large::NAME,
        run: tar_put_large::run,
    },
    Scenario {
        name: small_files::NAME,
        run: small_files::run,
    },
    Scenario {
        name: last_lines::NAME,
        run: last_lines::run,
    },
    Scenario {
        name: ranges::NAME,
        run: ranges::run,
    },
    Scenario {
        name: exec::NAME,
        run: exec::run,
    },
    Scenario {
        name: exec_stream::NAME,
        run: exec_stream::run,
    },
    Scenario {
        name: storm::NAME,
        run: storm::run,
    },
    Scenario {
        name: capture::NAME,
        run: capture::run,
    },
    Scenario {
        name: fanout::NAME,
        run: fanout::run,
    },
    Scenario {
        name: health::NAME,
        run: health::run,
    },
    Scenario {
        name: memory::NAME,
        run: memory::run,
    },
    Scenario {
        name: memory_large::NAME,
        run: memory_large::run,
    },
];

pub(crate) mod names {
    //! Names that the goals look up.
    pub(crate) use super::capture::NAME as CAPTURE;
    pub(crate) use super::exec::NAME as EXEC;
    pub(crate) use super::exec_stream::NAME as EXEC_STREAM;
    pub(crate) use super::fanout::NAME as FANOUT;
    pub(crate) use super::get::NAME as GET;
    pub(crate) use super::get_cold::NAME as GET_COLD;
    pub(crate) use super::last_lines::NAME as LAST_LINES;
    pub(crate) use super::memory::NAME as MEMORY;
    pub(crate) use super::memory_large::NAME as MEMORY_LARGE;
    pub(crate) use super::put::NAME as PUT;
    pub(crate) use super::ranges::NAME as RANGES;
    pub(crate) use super::small_files::NAME as SMALL_FILES;
    pub(crate) use super::storm::NAME as STORM;
    pub(crate) use super::tar_get::NAME as TAR_GET;
    pub(crate) use super::tar_put::{NAME as TAR_PUT, STREAMED as TAR_PUT_STREAMED};
    pub(crate) use super::tar_put_large::NAME as TAR_PUT_LARGE;
}

pub(crate) mod metrics {
    //! Metrics that the goals look up.
    pub(crate) use super::capture::{RATE_LARGE, RATE_SMALL, RATE_SMALL_EVENTS, RATE_SMALL_FRAMES};
    pub(crate) use super::exec::{EXEC_P50, EXEC_P50_SPIN, TRIP_P50, TRIP_P50_SPIN};
    pub(crate) use super::exec_stream::{STALLS, STREAM_P50};
    pub(crate) use super::fanout::{CPU as FANOUT_CPU, DELAY as FANOUT_DELAY};
    pub(crate) use super::get_cold::{STALL_MAX, STOLEN};
    pub(crate) use super::last_lines::P99 as LAST_LINES_P99;
    pub(crate) use super::memory::{BINARY, GROWTHS, IDLE};
    pub(crate) use super::memory_large::GROWTHS as LARGE_GROWTHS;
    pub(crate) use super::ranges::RATIO as RANGES_RATIO;
    pub(crate) use super::small_files::RATE as SMALL_RATE;
    pub(crate) use super::storm::{DESCRIPTORS, RATE as STORM_RATE, ZOMBIES};
    pub(crate) use super::tar_get::{FIRST_BYTE_LATE, WALL_COLD};
    pub(crate) use super::tar_put::WALL as TAR_PUT_WALL;
    pub(crate) use super::tar_put_large::{SPOOLED, STREAMED};
    pub(crate) use super::transfer::{CPU_PER_FILE, CPU_PER_FILE_SPIN, CPU_SPIN, RATE_SPIN};
}

/// What one measurement of one target gave.
type Sample = Vec<(Metric, f64)>;

/// Someone who takes part in a scenario.
trait Entrant {
    fn name(&self) -> &'static str;
}

impl Entrant for Server {
    fn name(&self) -> &'static str {
        self.kind.name()
    }
}

/// Measures every entrant once per round, in order, and sorts the samples into series.
fn alternate<E: Entrant>(
    entrants: &[E],
    rounds: usize,
    mut measure: impl FnMut(&E) -> Result<Sample>,
) -> Result<Vec<Series>> {
    let mut series: Vec<Series> = Vec::new();
    for round in 1..=rounds {
        for entrant in entrants {
            let sample =
                measure(entrant).with_context(|| format!("{}, round {round}", entrant.name()))?;
            for (metric, value) in sample {
                let known = series.iter().position(|known| {
                    known.target == entrant.name() && known.metric == metric.name
                });
                let at = known.unwrap_or_else(|| {
                    series.push(Series::new(entrant.name(), metric));
                    series.len() - 1
                });
                series[at].values.push(value);
            }
        }
        eprintln!("  round {round} of {rounds}");
    }
    Ok(series)
}

/// The unmeasured round: every entrant does the work once and must do it right.
fn warm_up<E: Entrant>(entrants: &[E], mut check: impl FnMut(&E) -> Result<()>) -> Result<()> {
    for entrant in entrants {
        check(entrant).with_context(|| format!("{} failed the check", entrant.name()))?;
    }
    Ok(())
}
