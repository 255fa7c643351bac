//! Programs in C that a daemon runs under, built once by the compiler that linked these tests.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

/// The path of the program that `tests/doors/NAME.c` is the source of.
pub(crate) fn built(name: &str) -> String {
    static BUILT: Mutex<BTreeMap<String, String>> = Mutex::new(BTreeMap::new());
    let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    let program = built.entry(name.to_owned()).or_insert_with(|| build(name));
    program.clone()
}

fn build(name: &str) -> String {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/doors/{name}.c"));
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let built = Command::new("cc")
        .arg("-o")
        .arg(&program)
        .arg(&source)
        .status();
    let is_built = built.is_ok_and(|status| status.success());
    assert!(is_built, "cc cannot build {}", source.display());
    let program = program.to_str();
    program.expect("the target directory is UTF-8").to_owned()
}
