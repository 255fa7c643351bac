//! schemathesis asks a daemon whatever its OpenAPI document allows, and more, where it can harm nothing.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::{OLD, python};

#[test]
fn every_answer_to_a_fuzzer_is_published() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("not root: a daemon cannot be confined, so none is fuzzed");
        return;
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let directory = std::env::temp_dir().join(format!("ringd-fuzzed-{}", std::process::id()));
    let inside = directory.join("root");
    let sentinel = directory.join("sentinel");
    fs::create_dir_all(&inside).expect("a fresh directory");
    fs::write(&sentinel, "as it was").expect("the directory is ours");
    let fuzzed = Command::new(root.join("tests/client/confined.sh"))
        .arg(env!("CARGO_BIN_EXE_ringd"))
        .arg(&inside)
        .arg(python(OLD))
        .arg(root.join("tests/client/fuzz.py"))
        .arg(&sentinel)
        .output()
        .expect("sh is there");
    let kept = fs::read_to_string(&sentinel);
    let log = fs::read_to_string(directory.join("root.log")).unwrap_or_default();
    let _ = fs::remove_dir_all(&directory);
    let lines: Vec<&str> = log.lines().collect();
    let last = lines[lines.len().saturating_sub(20)..].join("\n");
    assert!(
        fuzzed.status.success(),
        "{}{}\nthe daemon's last words:\n{last}",
        String::from_utf8_lossy(&fuzzed.stdout),
        String::from_utf8_lossy(&fuzzed.stderr)
    );
    assert_eq!(kept.ok().as_deref(), Some("as it was"));
}
