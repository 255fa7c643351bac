//! The repository around the current directory, and checkouts of its commits beside it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;

/// A git repository with a working tree.
pub(super) struct Repository {
    pub(super) root: PathBuf,
}

/// A commit to compare with.
#[derive(Debug, PartialEq)]
pub(super) struct Base {
    pub(super) commit: String,
    /// Which one it is and why, for a reader.
    pub(super) told: String,
}

impl Repository {
    pub(super) fn around_here() -> Result<Self> {
        let root = git(Path::new("."), &["rev-parse", "--show-toplevel"])?;
        Ok(Self { root: root.into() })
    }

    /// The commit that is named. Without a name: where HEAD left the main branch; its parent when it has not left it.
    pub(super) fn base(&self, named: Option<&str>) -> Result<Base> {
        if let Some(name) = named {
            return self.commit(name, &format!("{name}, as asked for"));
        }
        let merge_base = self.git(&["merge-base", "HEAD", MAIN]);
        let head = self.git(&["rev-parse", "HEAD"])?;
        // With changes that are not committed, HEAD itself is what they are compared with.
        let is_left = match &merge_base {
            Ok(commit) => *commit != head || !self.git(&["status", "--porcelain"])?.is_empty(),
            Err(_) => false,
        };
        match merge_base {
            Ok(commit) if is_left => {
                self.commit(&commit, &format!("the merge base of HEAD and {MAIN}"))
            }
            Ok(_) => self.commit("HEAD~1", &format!("HEAD~1, since HEAD is part of {MAIN}")),
            Err(_) => self.commit("HEAD~1", &format!("HEAD~1, since there is no {MAIN}")),
        }
        .context("the base is not known; --base names one, and a shallow clone lacks it")
    }

    fn commit(&self, name: &str, why: &str) -> Result<Base> {
        let peeled = format!("{name}^{{commit}}");
        let commit = self.git(&["rev-parse", "--verify", "--end-of-options", &peeled])?;
        let short = &commit[..commit.len().min(SHORT)];
        Ok(Base {
            told: format!("{short} ({why})"),
            commit,
        })
    }

    /// Checks a commit out into a directory that is gone when the checkout is dropped.
    pub(super) fn check_out(&self, commit: &str) -> Result<Checkout<'_>> {
        let dir = tempfile::Builder::new()
            .prefix("ringbench-base-")
            .tempdir()?;
        let checkout = Checkout {
            repository: self,
            tree: dir.path().join("tree"),
            _dir: dir,
        };
        let tree = checkout.tree.to_string_lossy();
        // Hooks are for people's checkouts.
        let words = ["-c", "core.hooksPath=/dev/null", "worktree", "add"];
        let rest = ["--quiet", "--detach", &tree, commit];
        self.git(&[&words[..], &rest].concat())?;
        Ok(checkout)
    }

    fn git(&self, words: &[&str]) -> Result<String> {
        git(&self.root, words)
    }
}

/// A working tree of one commit.
pub(super) struct Checkout<'a> {
    repository: &'a Repository,
    tree: PathBuf,
    _dir: TempDir,
}

impl Checkout<'_> {
    pub(super) fn path(&self) -> &Path {
        &self.tree
    }
}

impl Drop for Checkout<'_> {
    fn drop(&mut self) {
        if !self.tree.exists() {
            return;
        }
        let tree = self.tree.to_string_lossy();
        let words = ["worktree", "remove", "--force", &tree];
        if let Err(error) = self.repository.git(&words) {
            eprintln!("{error:#}; `git worktree prune` forgets it");
        }
    }
}

/// What git prints, without the line end.
fn git(dir: &Path, words: &[&str]) -> Result<String> {
    let mut command = Command::new("git");
    command.arg("-C").arg(dir).args(words).stdin(Stdio::null());
    let output = command.output().context("cannot run git")?;
    let told = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        bail!("git {}: {}", words.join(" "), told.trim());
    }
    let printed = String::from_utf8(output.stdout);
    let printed = printed.with_context(|| format!("git {}", words.join(" ")))?;
    ensure!(!printed.contains('\0'), "git {}: a NUL", words.join(" "));
    Ok(printed.trim_end().to_owned())
}

/// The branch that pull requests go to.
const MAIN: &str = "origin/main";
/// So many digits of a commit are shown.
const SHORT: usize = 12;
