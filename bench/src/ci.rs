//! What a gate compares: a program of the base commit and one of the working tree, and what it measures of them.

mod build;
mod checkout;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::bench::Sizes;
use checkout::Repository;

/// A program under comparison, and where it comes from, in words.
pub(crate) struct Program {
    pub(crate) path: PathBuf,
    pub(crate) origin: String,
}

impl Program {
    /// One that is there already.
    pub(crate) fn at(path: &Path) -> Result<Self> {
        let is_program = std::fs::metadata(path)
            .with_context(|| format!("{} is not there", path.display()))?
            .is_file();
        ensure!(is_program, "{} is not a program", path.display());
        Ok(Self {
            path: std::path::absolute(path)?,
            origin: path.display().to_string(),
        })
    }

    /// The one of the working tree around the current directory, built now.
    pub(crate) fn of_working_tree() -> Result<Self> {
        let repository = Repository::around_here()
            .context("--new-binary names a program when there is no working tree to build")?;
        eprintln!("building the working tree {}", repository.root.display());
        let path = build::program(&repository.root, None)
            .with_context(|| format!("cannot build {}", repository.root.display()))?;
        Ok(Self {
            path,
            origin: format!("the working tree {}", repository.root.display()),
        })
    }

    /// The one of a commit, built now in a checkout of its own; without a name the commit is looked for.
    pub(crate) fn of_base(named: Option<&str>) -> Result<Self> {
        let repository = Repository::around_here()
            .context("--base-binary names a program when there is no commit to build")?;
        let base = repository.base(named)?;
        eprintln!("building the base, {}", base.told);
        let target_dir = build::target_dir(&repository.root)?.join("ringbench-base");
        let checkout = repository.check_out(&base.commit)?;
        let path = build::program(checkout.path(), Some(&target_dir))
            .with_context(|| format!("cannot build {}", base.told))?;
        Ok(Self {
            path,
            origin: base.told,
        })
    }
}

/// One scenario of each kind that matters and is steady, for a gate of five minutes.
pub(crate) const GATE: &[&str] = &[
    "get-4k",
    "get-64k-c16",
    "get-1g",
    "put-1g",
    "tar-get-20k",
    "tar-put-20k",
    "exec-poll",
    "exec-storm",
    "fanout-50",
    "health",
    "start-up",
];

/// Their sizes: small, since many short rounds say more than few long ones.
pub(crate) const GATE_SIZES: Sizes = Sizes {
    large_mib: 256,
    files: 4000,
    entries: 20_000,
    requests: 3000,
    execs: 500,
    fanout_mib: 4,
    followers: 500,
    connections: 200,
    rate: 2000,
};

/// The sizes that show whether it works, and nothing else.
pub(crate) const SMOKE_SIZES: Sizes = Sizes {
    large_mib: 2,
    files: 200,
    entries: 500,
    requests: 100,
    execs: 40,
    fanout_mib: 1,
    followers: 20,
    connections: 50,
    rate: 500,
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gate_names_scenarios_that_there_are() {
        let chosen = crate::scenario::chosen(GATE).expect("they are there");
        assert_eq!(chosen.len(), GATE.len());
    }
}
