//! `ringbench ci` from outside: what it builds, measures and writes, and what it leaves behind.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

use super::desk::said;
use super::stand_in::{Journal, Nature, StandIn};

/// A repository of a package `ringd`, whose program says where one of our servers listens.
struct Project {
    dir: TempDir,
}

impl Project {
    fn new() -> Self {
        let project = Self {
            dir: tempfile::tempdir().expect("there is room"),
        };
        let manifest = "[package]\nname = \"ringd\"\nedition = \"2024\"\n[workspace]\n";
        project.write("Cargo.toml", manifest);
        project.write(".gitignore", "/target\nCargo.lock\n");
        project.git(&["init", "--quiet", "--initial-branch=main"]);
        project
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().expect("it is below the root"))
            .and_then(|()| std::fs::write(path, text))
            .expect("there is room");
    }

    /// From now on the program of the working tree is that server's.
    fn serve(&self, server: &StandIn) {
        let code = format!(
            "fn main() {{
                println!(\"listening tcp://{}\");
                std::thread::park_timeout(std::time::Duration::from_secs(600));
            }}",
            server.address
        );
        self.write("src/main.rs", &code);
    }

    fn commit(&self) {
        self.git(&["add", "."]);
        self.git(&["commit", "--quiet", "--message", "a change"]);
    }

    fn git(&self, words: &[&str]) -> String {
        let mut command = Command::new("git");
        command.args(["-c", "user.name=a", "-c", "user.email=a@example.org"]);
        command.args(words).current_dir(self.dir.path());
        command.env("GIT_CONFIG_GLOBAL", "/dev/null");
        let output = command.output().expect("git is there");
        assert!(output.status.success(), "{words:?}: {}", said(&output));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    fn ci(&self, words: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ringbench"));
        command.arg("ci").args(words).current_dir(self.dir.path());
        // This package's own target directory is no place for them.
        command.env_remove("CARGO_TARGET_DIR");
        // A group of its own, as a shell gives it to a job: it may be interrupted, and we are not.
        command.process_group(0);
        command.output().expect("it was built")
    }

    fn results(&self) -> Value {
        let path = self.path("target/ringbench-ci/results.json");
        let text = std::fs::read(path).expect("it was written");
        serde_json::from_slice(&text).expect("it is JSON")
    }

    fn assert_no_checkout_is_left(&self) {
        let trees = self.git(&["worktree", "list", "--porcelain"]);
        assert_eq!(trees.matches("worktree ").count(), 1, "{trees}");
    }
}

const SMOKE: &[&str] = &["--smoke", "--scenario", "get-1g"];

fn smoke<'a>(words: &[&'a str]) -> Vec<&'a str> {
    [SMOKE, words].concat()
}

/// Two servers and what they were asked, in order.
fn servers() -> (StandIn, StandIn, Journal) {
    let journal = Journal::default();
    let server = |name| StandIn::noted(name, &journal);
    let (old, new) = (server("old"), server("new"));
    (old, new, journal)
}

/// A program that says where `server` listens.
fn program(dir: &Path, server: &StandIn) -> String {
    script(dir, server, "true")
}

/// The same after a command.
fn script(dir: &Path, server: &StandIn, first: &str) -> String {
    use std::os::unix::fs::PermissionsExt;
    let path = dir.join(server.name);
    let script = format!(
        "#!/bin/sh\n{first}\necho listening tcp://{}\nexec sleep 600\n",
        server.address
    );
    std::fs::write(&path, script).expect("there is room");
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).expect("it is ours");
    path.display().to_string()
}

#[test]
fn a_base_commit_is_built_aside_and_measured_beside_the_working_tree() {
    let (old, new, journal) = servers();
    let project = Project::new();
    project.serve(&old);
    project.commit();
    project.serve(&new);
    let output = project.ci(&smoke(&["--base", "HEAD"]));
    let told = said(&output);
    assert!(output.status.success(), "{told}");
    let commit = &project.git(&["rev-parse", "HEAD"])[..12];
    assert!(
        told.contains(&format!("{commit} (HEAD, as asked for)")),
        "{told}"
    );
    let results = project.results();
    let names = [
        &results["targets"][0]["name"],
        &results["targets"][1]["name"],
    ];
    assert_eq!(names, ["base", "new"]);
    let journal = journal.lock().expect("no test panicked");
    let downloads = journal
        .iter()
        .filter(|(_, asked)| asked.ends_with("large.bin"));
    let mut turns: Vec<&str> = downloads.map(|(name, _)| name.as_str()).collect();
    turns.dedup();
    assert_eq!(turns, ["old", "new", "old", "new"]);
    assert!(project.path("target/ringbench-base/release/ringd").exists());
    project.assert_no_checkout_is_left();
    assert_eq!(project.git(&["status", "--porcelain"]), "M src/main.rs");
}

/// The base is built first, and here that fails, which tells which commit it was.
fn check_base(project: &Project, words: &[&str], told: &[&str]) {
    let usual = ["--scenario", "get-1g", "--new-binary", "/bin/true"];
    let output = project.ci(&[&usual[..], words].concat());
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    for part in told {
        assert!(
            said(&output).contains(part),
            "{part:?} is missing: {}",
            said(&output)
        );
    }
    project.assert_no_checkout_is_left();
}

#[test]
fn the_base_is_where_the_branch_left_the_main_one_or_the_commit_before() {
    let project = Project::new();
    let short = |name: &str| project.git(&["rev-parse", name])[..12].to_owned();
    project.write("src/main.rs", "this is not a program");
    project.commit();
    check_base(
        &project,
        &[],
        &["the base is not known; --base names one", "HEAD~1"],
    );
    project.write("src/main.rs", "nor is this");
    project.commit();
    let parent = short("HEAD~1");
    let why =
        format!("cannot build {parent} (HEAD~1, since there is no origin/main): `cargo build");
    check_base(&project, &[], &[&why]);
    project.git(&["update-ref", "refs/remotes/origin/main", "HEAD~1"]);
    let why = format!("cannot build {parent} (the merge base of HEAD and origin/main)");
    check_base(&project, &[], &[&why]);
    project.git(&["update-ref", "refs/remotes/origin/main", "HEAD"]);
    let why = format!("cannot build {parent} (HEAD~1, since HEAD is part of origin/main)");
    check_base(&project, &[], &[&why]);
    project.write("src/main.rs", "a change that is not committed");
    let why = format!("cannot build {} (the merge base of HEAD", short("HEAD"));
    check_base(&project, &[], &[&why]);
    check_base(&project, &["--base", "no-such-tag"], &["no-such-tag"]);
}

#[test]
fn ctrl_c_while_the_base_is_built_leaves_no_checkout() {
    let project = Project::new();
    // As a terminal does it: all of the group are told.
    let told = "fn main() { std::process::Command::new(\"kill\").args([\"-INT\", \"0\"]).status().unwrap(); }";
    project.write("build.rs", told);
    project.write("src/main.rs", "fn main() {}");
    project.commit();
    let usual = [
        "--base",
        "HEAD",
        "--new-binary",
        "/bin/true",
        "--scenario",
        "get-1g",
    ];
    let output = project.ci(&usual);
    assert_eq!(output.status.code(), Some(130), "{}", said(&output));
    project.assert_no_checkout_is_left();
}

#[test]
fn without_a_repository_both_programs_are_named() {
    let (old, new, _) = servers();
    let dir = tempfile::tempdir().expect("there is room");
    let (old, new) = (program(dir.path(), &old), program(dir.path(), &new));
    let run = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ringbench"));
        command.arg("ci").args(words).current_dir(dir.path());
        command.output().expect("it was built")
    };
    for (words, told) in [
        (["--new-binary", &new], "--base-binary names a program"),
        (["--base-binary", &old], "--new-binary names a program"),
    ] {
        let output = run(&words);
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
        assert!(said(&output).contains(told), "{}", said(&output));
    }
    let output = run(&smoke(&["--base-binary", &old, "--new-binary", &new]));
    assert!(output.status.success(), "{}", said(&output));
    let output = run(&["--base-binary", "missing", "--new-binary", &new]);
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(
        said(&output).contains("missing is not there"),
        "{}",
        said(&output)
    );
}

#[test]
fn a_smoke_run_tries_one_program_and_finds_a_wrong_byte() {
    let honest = StandIn::start("honest", Nature::default());
    let nature = Nature {
        lies: true,
        ..Nature::default()
    };
    let liar = StandIn::start("liar", nature);
    let project = Project::new();
    let (honest, liar) = (
        program(project.dir.path(), &honest),
        program(project.dir.path(), &liar),
    );
    // Of an earlier run, and not to be taken for this one's.
    project.write("target/ringbench-ci/comparison.md", "better");
    let output = project.ci(&smoke(&["--new-binary", &honest]));
    assert!(output.status.success(), "{}", said(&output));
    assert!(!project.path("target/ringbench-ci/comparison.md").exists());
    assert!(String::from_utf8_lossy(&output.stdout).contains("scenarios that work: 1"));
    let targets = &project.results()["targets"];
    assert_eq!(
        (&targets[0]["name"], targets.as_array().map(Vec::len)),
        (&Value::from("new"), Some(1))
    );
    let output = project.ci(&smoke(&["--new-binary", &liar, "--base-binary", &honest]));
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    for part in ["new failed the check: ", "a byte is wrong"] {
        assert!(said(&output).contains(part), "{}", said(&output));
    }
}

#[test]
fn a_planted_slowdown_fails_and_a_speedup_does_not() {
    let (old, new, _) = servers();
    let project = Project::new();
    let fast = script(project.dir.path(), &old, "true");
    let slow = script(project.dir.path(), &new, "sleep 0.05");
    let rounds = ["--rounds", "5", "--scenario", "start-up"];
    for (base, new, status, verdict) in [(&fast, &slow, 1, "worse"), (&slow, &fast, 0, "better")] {
        let words = ["--base-binary", base, "--new-binary", new];
        let output = project.ci(&[&rounds[..], &words].concat());
        let shown = String::from_utf8_lossy(&output.stdout);
        assert_eq!(
            output.status.code(),
            Some(status),
            "{shown}{}",
            said(&output)
        );
        let read = |name: &str| {
            let path = project.path("target/ringbench-ci").join(name);
            std::fs::read_to_string(path).expect("it was written")
        };
        for text in [&shown, &*read("comparison.md")] {
            let mut rows = text
                .lines()
                .filter(|line| line.contains("until it answers"));
            assert!(rows.any(|row| row.contains(verdict)), "{text}");
        }
        assert_eq!(read("junit.xml").contains("<failure"), status == 1);
        assert_eq!(project.results()["setting"]["rounds"], 5);
    }
}

#[test]
fn options_that_contradict_each_other_are_refused() {
    let project = Project::new();
    for words in [
        &["--base", "HEAD", "--base-binary", "/bin/true"][..],
        &["--minutes", "1", "--rounds", "5"],
        &["--rounds", "4"],
        &["--smoke", "--minutes", "1"],
        &["--fail-above", "5"],
        &["--scenario", "none-such"],
    ] {
        let output = project.ci(words);
        assert_eq!(
            output.status.code(),
            Some(2),
            "{words:?}: {}",
            said(&output)
        );
        assert!(
            said(&output).contains(words[0].trim_start_matches("--scenario")),
            "{words:?}: {}",
            said(&output)
        );
    }
}
