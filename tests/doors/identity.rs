//! The identity that a guest shares with its siblings, and its repair at the winning run: contract section 1, D21.
//!
//! Every daemon here lives in mount and UTS namespaces of its own, with an /etc, a /run and a /var/lib of its own, and
//! gets no run hook before that is certain: the identity of this machine is nobody's to change.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::daemon::{Daemon, Setup};
use crate::driver::Driver;
use crate::process::{children, is_root};
use crate::request::TOKEN;
use crate::scratch::{mode, names};

both![
    the_winning_run_repairs_the_identity,
    a_replay_changes_nothing,
    what_the_snapshot_lacks_is_not_applicable,
    a_step_that_fails_is_told_and_stops_nobody,
    a_machine_id_that_is_mounted_over_is_replaced,
    nothing_is_repaired_unless_it_is_asked_for,
    the_first_process_of_a_guest_repairs_by_default,
    a_second_daemon_of_a_guest_repairs_again,
    the_handler_of_run_meets_the_repaired_guest,
];

const STEPS: [&str; 5] = [
    "machine-id",
    "hostname",
    "boot-id",
    "random-seed",
    "cached-credential",
];
const SHARED: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\n";

fn the_winning_run_repairs_the_identity(driver: Driver) {
    let Some(guest) = Guest::start(driver, &["--repair-identity", "on"], "") else {
        return;
    };
    let before = guest.daemon.health();
    assert_eq!(before["identity_repaired"], false);
    assert_eq!(before["identity_steps"], json!([]));
    assert_eq!(
        guest.read("etc/machine-id"),
        SHARED,
        "nothing before the run"
    );

    let health = guest.run();
    assert_eq!(health["identity_repaired"], true, "{health}");
    assert_eq!(health["identity_degraded"], false, "{health}");
    let expected = STEPS.map(|name| json!({"name": name, "outcome": "repaired"}));
    assert_eq!(health["identity_steps"], json!(expected));

    let machine = guest.read("etc/machine-id");
    assert_ne!(machine, SHARED);
    let (id, end) = machine.split_at(32);
    assert!(
        id.bytes().all(|byte| b"0123456789abcdef".contains(&byte)),
        "{id}"
    );
    assert_eq!(end, "\n");
    assert_eq!(mode(&guest.file("etc/machine-id")), 0o444);
    assert_eq!(guest.hostname(), format!("microvm-{}", &id[..12]));
    let boot = guest.boot_id();
    let groups: Vec<usize> = boot.trim_end().split('-').map(str::len).collect();
    assert_eq!(groups, [8, 4, 4, 4, 12], "{boot}");
    assert_eq!(guest.read("run/agentd-boot-id"), boot);
    for gone in ["var/lib/systemd/random-seed", "var/lib/dbus/machine-id"] {
        assert!(!guest.file(gone).exists(), "{gone}");
    }
    guest.left_nothing();
    guest.spared_the_host();
}

fn a_replay_changes_nothing(driver: Driver) {
    let Some(guest) = Guest::start(driver, &["--repair-identity", "on"], "") else {
        return;
    };
    guest.run();
    let first = (
        guest.read("etc/machine-id"),
        guest.boot_id(),
        guest.hostname(),
    );
    guest.daemon.bootstrap("another", &json!({})).is(409);
    guest.run();
    let second = (
        guest.read("etc/machine-id"),
        guest.boot_id(),
        guest.hostname(),
    );
    assert_eq!(first, second);
}

fn what_the_snapshot_lacks_is_not_applicable(driver: Driver) {
    let prepare = "rm -r /var/lib/systemd /var/lib/dbus /etc/machine-id";
    let Some(guest) = Guest::start(driver, &["--repair-identity", "on"], prepare) else {
        return;
    };
    let health = guest.run();
    assert_eq!(health["identity_degraded"], false, "{health}");
    let outcome = |step: &Value| step["outcome"].as_str().map(String::from);
    let steps = health["identity_steps"].as_array().expect("a list");
    let outcomes: Vec<_> = steps.iter().filter_map(outcome).collect();
    let (done, none) = ("repaired", "not_applicable");
    assert_eq!(outcomes, [done, done, done, none, none]);
    assert_eq!(guest.read("etc/machine-id").len(), 33);
}

fn a_step_that_fails_is_told_and_stops_nobody(driver: Driver) {
    let prepare = "mount -o remount,bind,ro /etc";
    let Some(guest) = Guest::start(driver, &["--repair-identity", "on"], prepare) else {
        return;
    };
    let health = guest.run();
    assert_eq!(health["identity_repaired"], true, "{health}");
    assert_eq!(health["identity_degraded"], true, "{health}");
    let steps = health["identity_steps"].as_array().expect("a list");
    assert_eq!(steps[0]["outcome"], "failed", "{health}");
    let error = steps[0]["error"].as_str().expect("a reason");
    assert!(
        error.contains("/etc/machine-id") && error.contains("Read-only"),
        "{error}"
    );
    for step in &steps[1..] {
        assert_eq!(step["outcome"], "repaired", "{step}");
        assert_eq!(step["error"], Value::Null, "{step}");
    }
    assert_eq!(guest.read("etc/machine-id"), SHARED);
    assert_eq!(guest.daemon.script("echo served")["stdout"], "served\n");
}

fn a_machine_id_that_is_mounted_over_is_replaced(driver: Driver) {
    let prepare = "cp /etc/machine-id /run/own; mount --bind /run/own /etc/machine-id";
    let Some(guest) = Guest::start(driver, &["--repair-identity", "on"], prepare) else {
        return;
    };
    let health = guest.run();
    assert_eq!(
        health["identity_steps"][0]["outcome"], "repaired",
        "{health}"
    );
    let inside = guest.inside("etc/machine-id");
    let machine = fs::read_to_string(inside).expect("it is there");
    assert_ne!(machine, SHARED);
    assert_eq!(machine.len(), 33);
    guest.left_nothing();
}

fn nothing_is_repaired_unless_it_is_asked_for(driver: Driver) {
    for flags in [
        &[][..],
        &["--repair-identity", "auto"],
        &["--repair-identity", "off"],
    ] {
        let Some(guest) = Guest::start(driver, flags, "") else {
            return;
        };
        let (hostname, boot) = (guest.hostname(), guest.boot_id());
        let health = guest.run();
        assert_eq!(health["identity_repaired"], false, "{flags:?}: {health}");
        assert_eq!(health["identity_degraded"], false, "{flags:?}: {health}");
        assert_eq!(health["identity_steps"], json!([]));
        assert_eq!(guest.read("etc/machine-id"), SHARED);
        assert_eq!((guest.hostname(), guest.boot_id()), (hostname, boot));
        assert!(guest.file("var/lib/systemd/random-seed").exists());
    }
    for (value, flags, expected) in [
        ("1", &[][..], true),
        ("true", &[], true),
        ("0", &[], false),
        ("1", &["--repair-identity", "off"], false),
    ] {
        let asked = |setup: Setup| setup.env("AGENTD_REPAIR_IDENTITY", value);
        let Some(guest) = Guest::start_as(driver, flags, "", asked) else {
            return;
        };
        assert_eq!(
            guest.run()["identity_repaired"],
            expected,
            "{value} {flags:?}"
        );
    }
}

fn the_first_process_of_a_guest_repairs_by_default(driver: Driver) {
    let alone = ["--pid", "--fork", "--kill-child", "--mount-proc"];
    let Some(guest) = Guest::begin(driver, &alone, &[], "", |setup| setup) else {
        return;
    };
    let health = guest.run();
    assert_eq!(health["identity_repaired"], true, "{health}");
    assert_eq!(health["identity_degraded"], false, "{health}");
    assert_ne!(guest.read("etc/machine-id"), SHARED);
    guest.spared_the_host();
}

fn a_second_daemon_of_a_guest_repairs_again(driver: Driver) {
    let Some(guest) = Guest::start(driver, &["--repair-identity", "on"], "") else {
        return;
    };
    guest.run();
    let first = (guest.read("etc/machine-id"), guest.boot_id());
    let target = guest.pid.to_string();
    let second = Setup::new(driver)
        .flag("--repair-identity", "on")
        .under(&["nsenter", "--target", &target, "--mount", "--uts"])
        .start();
    is_apart(second.pid(), guest.root());
    second.bootstrap(TOKEN, &json!({})).bare(200);
    assert_eq!(second.health()["identity_degraded"], false);
    let again = (guest.read("etc/machine-id"), guest.boot_id());
    assert!(
        first.0 != again.0 && first.1 != again.1,
        "{first:?} {again:?}"
    );
    let mounts = fs::read_to_string(format!("/proc/{target}/mounts")).expect("it runs");
    let over = mounts
        .lines()
        .filter(|line| line.contains("/boot_id "))
        .count();
    assert_eq!(over, 1, "mounts do not pile up: {mounts}");
}

fn the_handler_of_run_meets_the_repaired_guest(driver: Driver) {
    let script =
        "printf '#!/bin/sh\\ncat /etc/machine-id > /run/seen\\n' > /run/run; chmod 755 /run/run";
    let flags = ["--repair-identity", "on", "--hooks-dir", "/run"];
    let Some(guest) = Guest::start(driver, &flags, script) else {
        return;
    };
    guest.run();
    assert_eq!(guest.read("run/seen"), guest.read("etc/machine-id"));
}

/// A daemon in a guest of its own.
struct Guest {
    daemon: Daemon,
    /// The daemon's process, which is not the one that was started when that has forked.
    pid: i32,
    /// What this machine is called, and by which ids.
    host: [String; 3],
}

impl Guest {
    /// Starts a daemon with these flags, after `prepare` was run in its guest; `None` without root.
    fn start(driver: Driver, flags: &[&str], prepare: &str) -> Option<Self> {
        Self::start_as(driver, flags, prepare, |setup| setup)
    }

    fn start_as(
        driver: Driver,
        flags: &[&str],
        prepare: &str,
        with: impl FnOnce(Setup) -> Setup,
    ) -> Option<Self> {
        Self::begin(driver, &[], flags, prepare, with)
    }

    fn begin(
        driver: Driver,
        namespaces: &[&str],
        flags: &[&str],
        prepare: &str,
        with: impl FnOnce(Setup) -> Setup,
    ) -> Option<Self> {
        if !is_root("the repair of an identity") {
            return None;
        }
        let host = this_machine();
        let mut setup = with(Setup::new(driver));
        let root = setup.path("guest");
        plant(&root);
        // It ends before the daemon begins where a namespace or a mount is missing.
        let script = format!(
            "test \"$(readlink /proc/self/ns/mnt)\" != \"$1\"; \
             test \"$(readlink /proc/self/ns/uts)\" != \"$2\"; shift 2; \
             for name in etc run var/lib; do \
             mount --bind {root}/$name /$name; test -e /$name/private; done; \
             {prepare}\nexec \"$@\"",
            root = root.display()
        );
        let [mnt, uts] = ["mnt", "uts"].map(|name| namespace("self", name));
        let mut words = vec!["unshare", "--mount", "--uts", "--propagation", "private"];
        words.extend(namespaces);
        words.extend(["/bin/sh", "-ec", &script, "sh", &mnt, &uts]);
        setup = setup.under(&words);
        for pair in flags.chunks(2) {
            setup = setup.flag(pair[0], pair[1]);
        }
        let daemon = setup.start();
        let pid = match namespaces {
            [] => daemon.pid(),
            _ => children(daemon.pid())[0],
        };
        is_apart(pid, &root);
        Some(Self { daemon, pid, host })
    }

    /// Calls the run hook; answers what health says then.
    #[track_caller]
    fn run(&self) -> Value {
        is_apart(self.pid, self.root());
        self.daemon.bootstrap(TOKEN, &json!({})).bare(200);
        self.daemon.health()
    }

    fn root(&self) -> PathBuf {
        self.daemon.path("guest")
    }

    /// A file of the guest as this machine sees it, below its root.
    fn file(&self, name: &str) -> PathBuf {
        self.root().join(name)
    }

    /// The same through the mounts of the guest.
    fn inside(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root/{name}", self.pid))
    }

    #[track_caller]
    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.file(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    #[track_caller]
    fn boot_id(&self) -> String {
        let path = self.inside("proc/sys/kernel/random/boot_id");
        fs::read_to_string(path).expect("every kernel has one")
    }

    #[track_caller]
    fn hostname(&self) -> String {
        let pid = self.pid.to_string();
        let output = std::process::Command::new("nsenter")
            .args(["--target", &pid, "--uts", "uname", "-n"])
            .output()
            .expect("nsenter comes with unshare");
        String::from_utf8_lossy(&output.stdout)
            .trim_end()
            .to_owned()
    }

    /// Checks that no temporary file is left.
    #[track_caller]
    fn left_nothing(&self) {
        for name in ["etc", "run"] {
            let left = names(&self.file(name));
            assert!(!left.iter().any(|name| name.starts_with('.')), "{left:?}");
        }
    }

    /// Checks that this machine is what it was.
    #[track_caller]
    fn spared_the_host(&self) {
        assert_eq!(this_machine(), self.host);
    }
}

/// What a snapshot brings.
fn plant(root: &Path) {
    for name in ["etc", "run", "var/lib/systemd", "var/lib/dbus"] {
        fs::create_dir_all(root.join(name)).expect("the scratch directory is ours");
    }
    for (name, text) in [
        ("etc/private", ""),
        ("run/private", ""),
        ("var/lib/private", ""),
        ("etc/machine-id", SHARED),
        ("var/lib/systemd/random-seed", "seed"),
        ("var/lib/dbus/machine-id", SHARED),
    ] {
        fs::write(root.join(name), text).expect("the scratch directory is ours");
    }
}

/// Checks that a process cannot change anything of this machine's identity.
#[track_caller]
fn is_apart(pid: i32, root: impl AsRef<Path>) {
    let pid = pid.to_string();
    for name in ["mnt", "uts"] {
        assert_ne!(namespace(&pid, name), namespace("self", name), "{name}");
    }
    for name in ["etc", "run", "var/lib"] {
        let inside = fs::metadata(format!("/proc/{pid}/root/{name}")).expect("it runs");
        let ours = fs::metadata(root.as_ref().join(name)).expect("it is planted");
        use std::os::unix::fs::MetadataExt;
        assert_eq!(
            (inside.dev(), inside.ino()),
            (ours.dev(), ours.ino()),
            "{name}"
        );
    }
}

#[track_caller]
fn namespace(pid: &str, name: &str) -> String {
    let link = fs::read_link(format!("/proc/{pid}/ns/{name}")).expect("the process runs");
    link.to_string_lossy().into_owned()
}

fn this_machine() -> [String; 3] {
    let paths = [
        "/etc/machine-id",
        "/proc/sys/kernel/hostname",
        "/proc/sys/kernel/random/boot_id",
    ];
    paths.map(|path| fs::read_to_string(path).unwrap_or_default())
}
