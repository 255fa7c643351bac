//! The example of the documentation: a tree of more than a thousand files, built inside and fetched.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use crate::driver::Driver;
use crate::scratch::{Scratch, names};

both![
    the_example_builds_a_tree_and_fetches_the_artifact,
    the_example_says_what_went_wrong,
];

fn the_example_builds_a_tree_and_fetches_the_artifact(driver: Driver) {
    let scratch = Scratch::new();
    let output = run(driver, scratch.path(), &[]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{output:?}");
    for step in [
        "files to build",
        "uploaded",
        "built",
        "the artifact runs",
        "came back as it was",
        "downloaded the built tree",
        "done",
    ] {
        assert!(said.contains(step), "{step} is missing: {said}");
    }
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    let count = said
        .split(" files to build")
        .next()
        .and_then(|text| text.rsplit(' ').next());
    let count: usize = count.and_then(|text| text.parse().ok()).expect("a count");
    assert!(count > 1000, "{count} files are not a tree of a real size");
    // It takes everything away that it has brought.
    assert!(
        names(scratch.path()).is_empty(),
        "{:?}",
        names(scratch.path())
    );
}

fn the_example_says_what_went_wrong(driver: Driver) {
    let scratch = Scratch::new();
    let source = Scratch::new();
    std::fs::write(source.path().join("f"), "x").expect("the scratch directory is ours");
    let tree = source.path().to_str().expect("ASCII");
    for (arguments, said) in [
        (&["/no/such/tree"][..], "/no/such/tree is not a directory"),
        (&[tree, "echo \"why\" >&2; exit 3"], "why"),
        (&[tree, "true", "no/such/artifact"], "404"),
    ] {
        let output = run(driver, scratch.path(), arguments);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(errors.contains(said), "{errors}");
        assert!(
            names(scratch.path()).is_empty(),
            "{:?}",
            names(scratch.path())
        );
    }
}

/// Runs the example where nothing can be fetched, so that it makes its tree itself.
///
/// It may take longer than anything else here: it calls a compiler.
fn run(driver: Driver, temporary: &Path, arguments: &[&str]) -> Output {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/examples/remote-build.sh");
    let tools = Scratch::new();
    let fetch = tools.path().join("apt-get");
    std::fs::write(&fetch, "#!/bin/sh\nexit 1\n").expect("the scratch directory is ours");
    let executable = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&fetch, executable).expect("the file is ours");
    let path = std::env::var("PATH").unwrap_or_default();
    Command::new("timeout")
        .args(["300", "/bin/sh", script])
        .args(arguments)
        .env("RINGD", env!("CARGO_BIN_EXE_ringd"))
        .env("RINGD_DRIVER", driver.flag())
        .env("TMPDIR", temporary)
        .env("PATH", format!("{}:{path}", tools.path().display()))
        .output()
        .expect("timeout is part of every system that builds this")
}
