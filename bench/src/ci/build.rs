//! Release builds of ringd by cargo.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// Builds ringd in the working tree `root` and tells where the program is.
///
/// cargo's own output goes to standard error.
pub(super) fn program(root: &Path, target_dir: Option<&Path>) -> Result<PathBuf> {
    let mut command = cargo(root);
    command.args(["build", "--release", "-p", PACKAGE]);
    command.arg("--message-format=json-render-diagnostics");
    if let Some(dir) = target_dir {
        command.arg("--target-dir").arg(dir);
    }
    let output = run(command, "cargo build --release -p ringd")?;
    let printed = String::from_utf8_lossy(&output.stdout);
    let messages = printed
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut programs = messages.filter_map(|message| {
        let is_ours = message["target"]["name"] == PACKAGE;
        let path = message["executable"].as_str().filter(|_| is_ours)?;
        Some(PathBuf::from(path))
    });
    programs
        .next()
        .context("cargo built no program that is called ringd")
}

/// Where cargo puts what it builds in the working tree `root`.
pub(super) fn target_dir(root: &Path) -> Result<PathBuf> {
    let mut command = cargo(root);
    command.args(["metadata", "--no-deps", "--format-version", "1"]);
    let output = run(command, "cargo metadata")?;
    let metadata: Value =
        serde_json::from_slice(&output.stdout).context("cargo metadata printed no JSON")?;
    let dir = metadata["target_directory"].as_str();
    Ok(dir
        .context("cargo metadata names no target directory")?
        .into())
}

fn cargo(root: &Path) -> Command {
    // cargo names itself to the programs that it runs.
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut command = Command::new(cargo);
    command.current_dir(root).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::inherit());
    command
}

fn run(mut command: Command, shown: &str) -> Result<Output> {
    let child = command.spawn().context("cannot run cargo")?;
    let output = child.wait_with_output()?;
    ensure!(
        output.status.success(),
        "`{shown}` failed: {}",
        output.status
    );
    Ok(output)
}

const PACKAGE: &str = "ringd";
