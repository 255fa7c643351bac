//! nginx as a peer, by the script and by `baseline nginx`.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::client::noise;
use crate::peer::Peer;

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("nginx.sh")
}

fn is_installed() -> bool {
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    let found = std::env::split_paths(&path).any(|dir| dir.join("nginx").is_file());
    if !found {
        println!("nginx is not installed: it is not tested");
    }
    found
}

fn free_port() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener
        .local_addr()
        .expect("an address")
        .port()
        .to_string()
}

/// Names in a directory, without what the test put there.
fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).expect("a directory");
    let mut names: Vec<String> = entries
        .map(|entry| {
            entry
                .expect("an entry")
                .file_name()
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    names.sort();
    names
}

fn files_come_back_and_nothing_stays(command: Command, root: &Path) {
    let peer = Peer::start(command);
    let mut client = peer.client();
    let bytes = noise(3_000_000);
    assert_eq!(client.ask("PUT", "/new/file", "", &bytes).status, 201);
    assert!(std::fs::read(root.join("new/file")).expect("a file") == bytes);
    assert!(client.bytes("/new/file") == bytes);
    let part = client.ask("GET", "/new/file", "range: bytes=5-10\r\n", b"");
    assert_eq!((part.status, &*part.body), (206, &bytes[5..=10]));
    assert_eq!(client.get("/absent").status, 404);
    assert_eq!(client.get("/v1/health").json()["bootstrapped"], true);
    assert_eq!(names(root).len(), 2, "the files and nginx's own directory");
    // Its output ends when everything that it started has ended.
    let (_, status) = peer.end();
    assert!(status.success(), "{status}");
    assert_eq!(names(root), ["new"]);
}

#[test]
fn the_script_serves_files_and_leaves_nothing() {
    if is_installed() {
        let root = tempfile::tempdir().expect("a directory");
        let mut command = Command::new(script());
        command.arg(free_port()).arg(root.path());
        files_come_back_and_nothing_stays(command, root.path());
    }
}

#[test]
fn the_subcommand_does_the_same() {
    if is_installed() {
        let root = tempfile::tempdir().expect("a directory");
        let mut command = Command::new(env!("CARGO_BIN_EXE_baseline"));
        command.args(["nginx", "--port", &free_port(), "--root"]);
        command.arg(root.path());
        files_come_back_and_nothing_stays(command, root.path());
    }
}

#[test]
fn a_second_one_on_the_same_port_leaves_nothing_either() {
    if is_installed() {
        let root = tempfile::tempdir().expect("a directory");
        let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = taken.local_addr().expect("an address").port().to_string();
        let mut command = Command::new(script());
        let output = command.arg(port).arg(root.path()).output();
        let output = output.expect("it can be started");
        assert!(!output.status.success());
        assert!(!String::from_utf8_lossy(&output.stdout).contains("listening"));
        assert_eq!(names(root.path()), [""; 0]);
    }
}

#[test]
fn wrong_arguments_are_named() {
    let root = tempfile::tempdir().expect("a directory");
    let odd = root.path().join("a b");
    std::fs::create_dir(&odd).expect("a directory");
    let odd = odd.display().to_string();
    for (arguments, named) in [
        (&["80"][..], "usage"),
        (&["x80", "/tmp"], "x80"),
        (&["0", "/tmp"], "'0'"),
        (&["65536", "/tmp"], "65536"),
        (&["8000", "/nowhere"], "/nowhere"),
        (&["8000", "/tmp", "/nowhere"], "/nowhere"),
        (&["8000", &odd], &odd),
    ] {
        let output = Command::new(script()).args(arguments).output();
        let output = output.expect("it can be started");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains(named), "{said}");
    }
}
