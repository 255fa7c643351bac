//! The examples of how to deploy the daemon: what they tell it is understood, and the tools they are for take them.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::daemon::Setup;
use crate::driver::Driver;
use crate::scratch::Scratch;

#[test]
fn the_command_line_of_the_unit_is_understood() {
    let unit = example("ringd.service");
    let command = values(&unit, "ExecStart")[0].clone();
    let words: Vec<&str> = command.split_whitespace().collect();
    assert_eq!(words[..2], ["/usr/local/bin/ringd", "serve"]);
    check(&words[2..], &[]);
    // What the options of the unit rest on.
    for (key, value) in [
        ("Type", "notify"),
        ("KillMode", "mixed"),
        ("Delegate", "yes"),
    ] {
        assert_eq!(values(&unit, key), [value], "{key}");
    }
    let stop: u64 = values(&unit, "TimeoutStopSec")[0].parse().expect("seconds");
    let drain = default_of("drain-timeout");
    assert!(
        stop > drain,
        "{stop} s leave no time for a drain of {drain} s"
    );
}

#[test]
fn the_units_are_taken_by_systemd() {
    let tool = "systemd-analyze";
    if Command::new(tool).arg("--version").output().is_err() {
        eprintln!("no {tool}: the units are not verified");
        return;
    }
    let scratch = Scratch::new();
    // The verifier wants the program to be there.
    let service =
        example("ringd.service").replace("/usr/local/bin/ringd", env!("CARGO_BIN_EXE_ringd"));
    let path = scratch.path().join("ringd.service");
    fs::write(&path, service).expect("the scratch directory is ours");
    let socket = scratch.path().join("ringd.socket");
    fs::write(&socket, example("ringd.socket")).expect("the scratch directory is ours");
    let output = Command::new("timeout")
        .args(["60", tool, "verify", "--man=no", "--recursive-errors=no"])
        .args([&path, &socket])
        .output()
        .expect("timeout is part of every system that builds this");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    // It also speaks of units that this machine has.
    let ours: Vec<&str> = said.lines().filter(|line| line.contains("ringd")).collect();
    assert!(ours.is_empty(), "{said}");
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn the_unit_protects_what_it_says() {
    let tool = "systemd-analyze";
    let scratch = Scratch::new();
    let path = scratch.path().join("ringd.service");
    fs::write(&path, example("ringd.service")).expect("the scratch directory is ours");
    let output = Command::new("timeout")
        .args(["60", tool, "security", "--offline=true", "--no-pager"])
        .args(["--json=short".as_ref(), path.as_os_str()])
        .output()
        .expect("timeout is part of every system that builds this");
    let Ok(Value::Array(rows)) = serde_json::from_slice(&output.stdout) else {
        eprintln!("no {tool} that judges files: the protection is not checked");
        return;
    };
    let is_set = |name: &str| {
        let named = |row: &&Value| row["json_field"] == name || row["name"] == name;
        let row = rows.iter().find(named);
        row.unwrap_or_else(|| panic!("{name} is not judged"))["set"] == true
    };
    for name in [
        "NoNewPrivileges=",
        "RestrictSUIDSGID=",
        "ProtectKernelTunables=",
        "ProtectKernelModules=",
        "ProtectKernelLogs=",
        "LockPersonality=",
        "SystemCallArchitectures=",
        "SystemCallFilter=~@module",
        "SystemCallFilter=~@reboot",
        "CapabilityBoundingSet=~CAP_SYS_ADMIN",
        "CapabilityBoundingSet=~CAP_SYS_MODULE",
    ] {
        assert!(is_set(name), "{name} is not in force");
    }
}

#[test]
fn what_the_container_tells_the_daemon_is_understood() {
    let file = example("container/Dockerfile");
    let list = |word: &str| -> Vec<String> {
        let line = file.lines().find_map(|line| line.strip_prefix(word));
        serde_json::from_str(line.expect(word)).expect("a list of words")
    };
    assert_eq!(list("ENTRYPOINT "), ["/usr/local/bin/ringd", "serve"]);
    let environment = file.lines().find_map(|line| line.strip_prefix("ENV "));
    let variables = environment.expect("an environment").split_whitespace();
    let mut variables: Vec<(&str, String)> = variables
        .filter_map(|pair| pair.split_once('='))
        .map(|(name, value)| (name, value.to_owned()))
        .collect();
    let compose = example("container/compose.yaml");
    variables.extend(
        compose
            .lines()
            .filter_map(|line| line.trim().split_once(": "))
            .filter(|(name, _)| name.starts_with("RINGD_"))
            .map(|(name, value)| (name, value.trim_matches('"').to_owned())),
    );
    assert!(variables.len() >= 4, "{variables:?}");
    let flags = list("CMD ");
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    check(&flags, &variables);
}

#[test]
fn the_profile_of_the_container_leaves_the_daemon_what_it_needs() {
    let profile: Value = serde_json::from_str(&example("container/seccomp.json")).expect("JSON");
    assert_eq!(profile["defaultAction"], "SCMP_ACT_ALLOW");
    let denied = profile["syscalls"][0]["names"].as_array().expect("a list");
    let denied: Vec<&str> = denied.iter().filter_map(Value::as_str).collect();
    assert!(denied.is_sorted() && denied.len() > 30, "{denied:?}");
    for needed in [
        "io_uring_setup",
        "io_uring_enter",
        "io_uring_register",
        "clone",
        "clone3",
        "openat2",
        "pidfd_open",
        "prlimit64",
        "statx",
        "close_range",
    ] {
        assert!(!denied.contains(&needed), "{needed}");
    }
}

/// Checks that the daemon takes these flags and variables, and that each of them changes or confirms a setting.
#[track_caller]
fn check(flags: &[&str], variables: &[(&str, String)]) {
    let mut setup = Setup::new(Driver::Auto).switch("--print-config");
    for pair in flags.chunks(2) {
        setup = setup.flag(pair[0], pair[1]);
    }
    for (name, value) in variables {
        setup = setup.env(name, value);
    }
    let printed = setup.run_to_its_end();
    assert_eq!(printed.code, Some(0), "{printed:?}");
    for pair in flags.chunks(2) {
        let told = format!("{} = {} (flag)", pair[0].trim_start_matches("--"), pair[1]);
        assert!(printed.stdout.contains(&told), "{told}: {printed:?}");
    }
    for (name, _) in variables {
        let told = format!("({name})");
        assert!(printed.stdout.contains(&told), "{told}: {printed:?}");
    }
}

/// The values of a key of a unit.
fn values(unit: &str, key: &str) -> Vec<String> {
    let lines = unit.lines().filter_map(|line| line.split_once('='));
    let ours = lines.filter(|(name, _)| *name == key);
    ours.map(|(_, value)| value.to_owned()).collect()
}

/// The default of a setting that is a whole number.
fn default_of(name: &str) -> u64 {
    let setting = ringd::config::SETTINGS
        .iter()
        .find(|setting| setting.name == name);
    setting
        .and_then(|setting| setting.default.parse().ok())
        .expect("a number")
}

fn example(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("docs/examples")
        .join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
