//! The house rules that a machine can keep.

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

const CODE: &[&str] = &["src", "bench/src", "bench/baseline/src", "bench/micro"];
const TESTS: &[&str] = &["tests", "bench/tests", "bench/baseline/tests"];

/// Every Rust file below `folder`, as a path relative to the root and its text.
fn sources(folder: &str) -> Vec<(String, String)> {
    fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).expect("a folder of the project") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                walk(&path, found);
            } else if path.extension().is_some_and(|end| end == "rs") {
                found.push(path);
            }
        }
    }
    let mut found = Vec::new();
    walk(&root().join(folder), &mut found);
    found.sort();
    let read = |path: PathBuf| {
        let name = path.strip_prefix(root()).expect("below the root");
        let text = fs::read_to_string(&path).expect("a text file");
        (name.display().to_string(), text)
    };
    found.into_iter().map(read).collect()
}

/// The first component of a path below `src/`: the room, or the file without its ending.
fn room(file: &str) -> &str {
    let inside = file.trim_start_matches("src/");
    let first = inside.split('/').next().unwrap_or_default();
    first.trim_end_matches(".rs")
}

/// The rooms that a text names by `crate::room`, outside comments.
fn imports(text: &str) -> Vec<String> {
    let code = text
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"));
    let mut found = Vec::new();
    for line in code {
        for part in line.split("crate::").skip(1) {
            let names = part.strip_prefix('{').map_or(part, |list| list);
            let ends = |letter: char| !(letter.is_ascii_lowercase() || letter == '_');
            let name: String = names.chars().take_while(|letter| !ends(*letter)).collect();
            found.push(name);
        }
    }
    found.retain(|name| !name.is_empty());
    found
}

const ROOMS: &[&str] = &[
    "exec", "fs", "tunnel", "image", "pod", "boot", "health", "hooks", "identity", "procs",
];

fn may_import(from: &str, to: &str) -> bool {
    let below = ["error", "wire", "ring"];
    match from {
        "error" => false,
        "wire" => ["error", "wire"].contains(&to),
        "ring" => ["error", "ring"].contains(&to),
        "log" => false,
        "config" => below.contains(&to) || ["log", "config"].contains(&to),
        room if ROOMS.contains(&room) => below.contains(&to) || to == room,
        "app" => below.contains(&to) || ROOMS.contains(&to) || to == "config",
        "api" => !["doors", "cli"].contains(&to),
        "doors" => below.contains(&to) || ["api", "app", "config", "doors"].contains(&to),
        "cli" | "lib" | "main" => true,
        _ => false,
    }
}

#[test]
fn imports_point_down() {
    for (file, text) in sources("src") {
        let from = room(&file);
        for to in imports(&text) {
            assert!(may_import(from, &to), "{file} must not import crate::{to}");
        }
    }
}

#[test]
fn unsafe_code_lives_in_the_ring() {
    for (file, text) in sources("src") {
        let lifted = text.contains("expect(unsafe_code");
        assert!(
            !lifted || file.starts_with("src/ring/"),
            "{file} lifts the lint on unsafe code"
        );
    }
}

#[test]
fn a_file_is_a_room() {
    for folder in CODE.iter().chain(TESTS) {
        for (file, text) in sources(folder) {
            let lines = text.lines().count();
            assert!(lines <= 600, "{file} has outgrown a room: {lines} lines");
        }
    }
}

#[test]
fn every_module_says_what_it_owns() {
    for folder in CODE.iter().chain(TESTS) {
        for (file, text) in sources(folder) {
            assert!(
                text.starts_with("//! "),
                "{file} does not open with a sentence"
            );
        }
    }
}

#[test]
fn lints_are_silenced_with_a_reason_only() {
    for folder in CODE.iter().chain(TESTS) {
        for (file, text) in sources(folder) {
            let silenced = ["#[al", "#![al"].map(|start| format!("{start}low("));
            let found = silenced.iter().any(|form| text.contains(form.as_str()));
            assert!(!found, "{file} silences a lint without saying why");
        }
    }
}

#[test]
fn nothing_is_left_for_later() {
    for folder in CODE {
        for (file, text) in sources(folder) {
            for mark in ["todo!(", "unimplemented!(", "FIXME", "TODO", "dbg!("] {
                assert!(!text.contains(mark), "{file} contains {mark}");
            }
        }
    }
}

#[test]
fn tests_wait_for_events_instead_of_sleeping() {
    for (file, text) in TESTS.iter().flat_map(|folder| sources(folder)) {
        let calls = text.matches(concat!("thread::sl", "eep(")).count();
        // The one poll of state that has no event may rest between two looks.
        let allowed = usize::from(file == "tests/doors/process.rs");
        assert!(calls <= allowed, "{file} sleeps {calls} times");
    }
}

#[test]
fn the_readme_lists_every_setting() {
    let readme = fs::read_to_string(root().join("README.md")).expect("the README");
    for setting in ringd::config::SETTINGS {
        let row = format!("| `--{}` |", setting.name);
        let line = readme.lines().find(|line| line.starts_with(&row));
        let line = line.unwrap_or_else(|| panic!("the README's table lacks --{}", setting.name));
        if !setting.default.is_empty() {
            let default = format!("`{}`", setting.default);
            assert!(
                line.contains(&default),
                "the README tells another default of --{}",
                setting.name
            );
        }
        if let Some(variable) = setting.agentd {
            assert!(
                line.contains(variable),
                "the README does not tell {variable}"
            );
        }
    }
}

#[test]
fn the_protocol_describes_every_row() {
    let text = fs::read_to_string(root().join("docs/PROTOCOL.md")).expect("the protocol");
    for row in ringd::api::rows() {
        let method = format!("{:?}", row.method).to_uppercase();
        let path = row
            .path
            .trim_start_matches("/aws/lambda-microvms/runtime/v1/");
        assert!(
            text.contains(path),
            "{method} {path} ({}) is not described",
            row.about
        );
    }
}

#[test]
fn the_top_level_holds_what_a_newcomer_expects() {
    let known = [
        ".ci",
        ".git",
        ".gitignore",
        "Cargo.lock",
        "Cargo.toml",
        "CHANGELOG.md",
        "LICENSE-APACHE",
        "LICENSE-MIT",
        "README.md",
        "bench",
        "deny.toml",
        "docs",
        "src",
        "target",
        "tests",
    ];
    for entry in fs::read_dir(root()).expect("the root") {
        let name = entry.expect("an entry").file_name();
        let name = name.to_string_lossy().into_owned();
        assert!(
            known.contains(&name.as_str()),
            "{name} does not belong at the top"
        );
    }
}
