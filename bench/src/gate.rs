//! Instruction counts held against a baseline: what became dearer, cheaper, is new, is gone.
//!
//! They do not depend on how busy the machine is. They do depend on the compiler, the target, the C library, and on
//! what valgrind tells programs of the processor: a baseline of another setting is compared with and fails nothing.

mod count;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// What the benches took, and where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Counts {
    pub(crate) setting: Setting,
    /// Instructions of one round, by bench.
    pub(crate) instructions: BTreeMap<String, u64>,
}

/// What counts depend on beside the source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Setting {
    /// As `rustc --version` says it.
    pub(crate) rustc: String,
    pub(crate) target: String,
    /// Name and version of the C library, whose allocator and copies are counted too.
    pub(crate) libc: String,
    pub(crate) valgrind: String,
    /// The abilities of the processor that programs see and choose their code by.
    pub(crate) processor: String,
}

impl Counts {
    /// Reads a baseline.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read the baseline {}", path.display()))?;
        serde_json::from_str(&text)
            .with_context(|| format!("{} is no baseline of instructions", path.display()))
    }

    /// Writes a baseline.
    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(self)? + "\n";
        std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
    }
}

impl Setting {
    /// The values in which `self` differs from `other`, both told.
    fn differences(&self, other: &Self) -> Vec<String> {
        let pairs = [
            (&self.rustc, &other.rustc),
            (&self.target, &other.target),
            (&self.libc, &other.libc),
            (&self.valgrind, &other.valgrind),
            (&self.processor, &other.processor),
        ];
        let differing = pairs.into_iter().filter(|(one, another)| one != another);
        differing
            .map(|(one, another)| format!("{one} instead of {another}"))
            .collect()
    }
}

/// Every bench of either side, and whether the two can be compared.
pub(crate) struct Comparison {
    rows: Vec<Row>,
    /// In what the settings differ.
    differences: Vec<String>,
}

struct Row {
    name: String,
    change: Change,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    /// Within the allowance, either way.
    Same {
        before: u64,
        now: u64,
    },
    Dearer {
        before: u64,
        now: u64,
    },
    Cheaper {
        before: u64,
        now: u64,
    },
    /// Not in the baseline.
    New {
        now: u64,
    },
    /// In the baseline only.
    Gone {
        before: u64,
    },
}

/// Holds `now` against `before`.
pub(crate) fn compare(before: &Counts, now: &Counts) -> Comparison {
    let names: BTreeSet<&String> = before
        .instructions
        .keys()
        .chain(now.instructions.keys())
        .collect();
    let rows = names.into_iter().filter_map(|name| {
        let counts = (before.instructions.get(name), now.instructions.get(name));
        let change = match counts {
            (Some(before), Some(now)) => Change::of(*before, *now),
            (None, Some(now)) => Change::New { now: *now },
            (Some(before), None) => Change::Gone { before: *before },
            (None, None) => return None,
        };
        let name = name.clone();
        Some(Row { name, change })
    });
    Comparison {
        rows: rows.collect(),
        differences: now.setting.differences(&before.setting),
    }
}

impl Change {
    fn of(before: u64, now: u64) -> Self {
        // In integers, so that the edge is where it is said to be.
        let [before_scaled, now_scaled] = [before, now].map(|count| u128::from(count) * 100);
        let [before_wide, now_wide] = [before, now].map(u128::from);
        if now_scaled > before_wide * (100 + ALLOWED_PERCENT) {
            Self::Dearer { before, now }
        } else if before_scaled > now_wide * (100 + ALLOWED_PERCENT) {
            Self::Cheaper { before, now }
        } else {
            Self::Same { before, now }
        }
    }
}

impl Comparison {
    /// The benches that fail the gate, each with why; none when the settings differ, unless benches have gone.
    pub(crate) fn failed(&self) -> Vec<String> {
        let comparable = self.differences.is_empty();
        let rows = self.rows.iter();
        rows.filter_map(|Row { name, change }| match *change {
            Change::Dearer { before, now } if comparable => {
                Some(format!("{name} ({})", percent(before, now)))
            }
            Change::Gone { .. } => Some(format!("{name} (gone)")),
            _ => None,
        })
        .collect()
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Row { name, change } in &self.rows {
            match *change {
                Change::Same { before, now } => {
                    writeln!(f, "{name:32} {now:>10} {:>9}", percent(before, now))
                }
                Change::Dearer { before, now } => writeln!(
                    f,
                    "{name:32} {now:>10} {:>9}  dearer: it was {before}",
                    percent(before, now)
                ),
                Change::Cheaper { before, now } => writeln!(
                    f,
                    "{name:32} {now:>10} {:>9}  cheaper: it was {before}",
                    percent(before, now)
                ),
                Change::New { now } => writeln!(f, "{name:32} {now:>10} {:>9}  new", ""),
                Change::Gone { before } => {
                    writeln!(f, "{name:32} {:>10} {:>9}  gone: it was {before}", "", "")
                }
            }?;
        }
        if !self.differences.is_empty() {
            let differences = self.differences.join(", ");
            writeln!(
                f,
                "The baseline is of another setting ({differences}), so no difference fails. {BLESS}"
            )?;
        } else if self.has_better() {
            writeln!(f, "What is cheaper or new is not held yet. {BLESS}")?;
        }
        Ok(())
    }
}

impl Comparison {
    fn has_better(&self) -> bool {
        let is_better =
            |row: &Row| matches!(row.change, Change::Cheaper { .. } | Change::New { .. });
        self.rows.iter().any(is_better)
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "the figure is told with two decimals"
)]
fn percent(before: u64, now: u64) -> String {
    let change = (now as f64 / before as f64 - 1.0) * 100.0;
    format!("{change:+.2} %")
}

/// What a count may be above its baseline.
const ALLOWED_PERCENT: u128 = 3;

/// How a baseline is renewed.
const BLESS: &str = "`ringbench gate --bless` makes these counts the baseline.";

#[cfg(test)]
#[path = "gate/tests.rs"]
mod tests;
