//! Trees that reach into other filesystems, when only one of them is wanted.

use std::fs;

use serde_json::{Value, json};

use crate::archive::entries;
use crate::daemon::{Daemon, Setup};
use crate::driver::Driver;
use crate::manifest::manifest;
use crate::process::is_root;
use crate::request::Request;

both![
    archives_and_manifests_agree_on_what_is_mounted,
    a_listed_name_behind_a_mount_point_is_told_or_skipped,
    an_overlay_is_one_filesystem,
];

fn archives_and_manifests_agree_on_what_is_mounted(driver: Driver) {
    if !is_root("mounting") {
        return;
    }
    for (kind, point) in [
        ("-t tmpfs none", "t/m"),
        ("--bind elsewhere", "t/m"),
        ("--bind elsewhere/f", "t/f"),
    ] {
        let setup = planted(driver);
        let kind = kind.replace("elsewhere", &setup.path("elsewhere").display().to_string());
        let mount = format!("{kind} {}", setup.path(point).display());
        let daemon = setup.with_mount(&mount).ready();
        let expected = match point {
            "t/m" => ". f g m",
            _ => ". g m m/f",
        };
        check_one(&daemon, expected);
    }
}

fn a_listed_name_behind_a_mount_point_is_told_or_skipped(driver: Driver) {
    if !is_root("mounting") {
        return;
    }
    let setup = planted(driver);
    let kind = format!("--bind {}", setup.path("elsewhere").display());
    let mount = format!("{kind} {}", setup.path("t/m").display());
    let daemon = setup.with_mount(&mount).ready();
    let ask = |names: &[&str], missing: &str| {
        let mut body = one(&daemon);
        body["names"] = json!(names);
        body["missing"] = json!(missing);
        daemon.call(&Request::post("/v1/fs/tar").bearer().json(&body))
    };
    for names in [&["m/f"][..], &["m", "m/f"], &["g", "m/f"]] {
        let refused = ask(names, "error").is(404);
        assert!(refused.text().contains("m/f"), "{}", refused.text());
    }
    assert_eq!(packed(&ask(&["m/f"], "skip").is(200).body), "");
    assert_eq!(packed(&ask(&["m", "m/f"], "skip").is(200).body), "m");
    assert_eq!(packed(&ask(&["g", "m"], "error").is(200).body), "g m");
}

fn an_overlay_is_one_filesystem(driver: Driver) {
    if !is_root("mounting") {
        return;
    }
    let setup = planted(driver);
    let [up, low, t] = ["up", "elsewhere", "t"].map(|name| setup.path(name).display().to_string());
    fs::create_dir(&up).expect("the scratch directory is ours");
    // Its layers are on two devices, and files tell that of theirs.
    let mount = format!(
        "-t tmpfs none {up} && mkdir {up}/u {up}/w && mount -t overlay none \
         -o xino=off,lowerdir={low},upperdir={up}/u,workdir={up}/w {t}"
    );
    let daemon = setup.with_mount(&mount).ready();
    check_one(&daemon, ". f");
}

/// A daemon to be, with files in two trees.
fn planted(driver: Driver) -> Setup {
    let setup = Setup::new(driver);
    for name in ["t/m", "elsewhere"] {
        fs::create_dir_all(setup.path(name)).expect("the scratch directory is ours");
    }
    for name in ["elsewhere/f", "t/f", "t/g", "t/m/f"] {
        fs::write(setup.path(name), name).expect("the scratch directory is ours");
    }
    setup
}

/// Asks for what of the tree is on its own filesystem.
fn one(daemon: &Daemon) -> Value {
    json!({"path": daemon.path("t"), "one_file_system": true})
}

#[track_caller]
fn check_one(daemon: &Daemon, expected: &str) {
    let query = crate::request::tar_at(daemon.path("t"));
    let get = daemon.call(&Request::get(format!("{query}&one_file_system=1")).bearer());
    assert_eq!(packed(&get.is(200).body), expected, "the archive");
    let told = manifest(daemon, &one(daemon));
    let name = |line: &Value| match line["path"].as_str() {
        Some("") => ".".to_owned(),
        name => name.expect("each line has a path").to_owned(),
    };
    let told: Vec<_> = told.iter().map(name).collect();
    assert_eq!(told.join(" "), expected, "the manifest");
}

fn packed(archive: &[u8]) -> String {
    let packed = entries(archive);
    let names: Vec<_> = packed.iter().map(|entry| entry.name.as_str()).collect();
    names.join(" ")
}
