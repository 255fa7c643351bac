//! GNU tar and bsdtar: the same work without a server, on the servers' CPU.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Result;

use super::super::turns::skip;
use crate::bench::Bench;
use crate::fixture::Tree;
use crate::results::ScenarioResults;
use crate::target::{Spent, run_program, which};

/// A program that packs and extracts.
pub(super) struct Program {
    pub(super) name: &'static str,
    path: PathBuf,
}

/// Name, word, and what it calls itself: `tar` is not GNU's everywhere.
type Known = (&'static str, &'static str, &'static str);
pub(super) const GNU_TAR: Known = ("gnu-tar", "tar", "GNU tar");
pub(super) const BSDTAR: Known = ("bsdtar", "bsdtar", "bsdtar");

impl Program {
    /// Those that are installed; the others are left out.
    pub(super) fn installed(
        bench: &Bench,
        out: &mut ScenarioResults,
        known: &[Known],
    ) -> Vec<Self> {
        let mut found = Vec::new();
        for (name, word, own_name) in known {
            match which(word).filter(|path| calls_itself(path, own_name)) {
                Some(path) => found.push(Self { name, path }),
                None => skip(bench, out, name, "it is not installed"),
            }
        }
        found
    }

    /// Packs a tree into a pipe whose content is read and dropped. Into /dev/null GNU tar would read no file.
    pub(super) fn pack(&self, bench: &Bench, tree: &Tree) -> Result<Spent> {
        let mut command = Command::new(&self.path);
        command.args(["-cf", "-", "-C"]).arg(&tree.root).arg(".");
        run_program(command, Stdio::piped(), &bench.dir().join("program.log"))
    }

    /// Extracts the archive of a tree from a local file into `root`, which is made.
    pub(super) fn extract(&self, bench: &Bench, tree: &Tree, root: &Path) -> Result<Spent> {
        std::fs::create_dir(root)?;
        let mut command = Command::new(&self.path);
        command.arg("-xf").arg(&tree.archive).arg("-C").arg(root);
        run_program(command, Stdio::null(), &bench.dir().join("program.log"))
    }
}

fn calls_itself(path: &Path, name: &str) -> bool {
    let output = Command::new(path).arg("--version").output();
    output.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains(name))
}
