//! What a tree holds, line by line: everything a client needs to send and fetch only what differs.

use std::ffi::OsStr;
use std::fs::{self, File, hard_link};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;

use ringd::wire::base64;
use ringd::wire::coding::{Coding, Decoder};
use rustix::fs::{CWD, FileType, Mode, OFlags};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::daemon::{Daemon, Setup};
use crate::driver::Driver;
use crate::process::{is_root, status, wait_until};
use crate::reply::{Reply, keys};
use crate::request::Request;
use crate::scratch::tree;

both![
    every_entry_is_told_in_the_order_of_its_name,
    a_line_has_its_keys_in_order,
    what_is_not_a_file_is_told_as_it_is,
    names_that_are_no_text_have_a_second_form,
    names_of_one_file_are_told_apart_from_others,
    names_are_chosen_by_patterns,
    hidden_names_are_left_out_on_request,
    another_filesystem_is_not_entered_on_request,
    a_request_that_is_none_is_refused,
    a_manifest_comes_in_a_coding_that_the_client_likes,
    what_cannot_be_told_is_not_passed_over,
    equal_trees_have_equal_manifests,
    memory_does_not_grow_with_the_tree,
    a_client_that_leaves_ends_its_manifest,
];

pub(crate) fn request(body: &Value) -> Request {
    Request::post("/v1/fs/manifest").bearer().json(body)
}

pub(crate) fn ask(daemon: &Daemon, body: &Value) -> Reply {
    daemon.call(&request(body)).is(200)
}

/// The lines, the last one apart.
pub(crate) fn lines(text: &str) -> (Vec<Value>, Value) {
    assert!(text.ends_with('\n'), "the last line is cut: {text:?}");
    let lines = text
        .lines()
        .map(|line| serde_json::from_str(line).expect(line));
    let mut lines: Vec<Value> = lines.collect();
    let last = lines.pop().expect("there is a last line");
    (lines, last)
}

/// The manifest of a complete tree.
pub(crate) fn manifest(daemon: &Daemon, body: &Value) -> Vec<Value> {
    let reply = ask(daemon, body);
    assert_eq!(reply.field("content-type"), Some("application/x-ndjson"));
    let (lines, last) = lines(&reply.text());
    assert_eq!(last["complete"], true, "{last}");
    assert_eq!(last["entries"], lines.len(), "{last}");
    lines
}

fn paths(lines: &[Value]) -> Vec<&str> {
    let paths = lines.iter().map(|line| line["path"].as_str());
    paths
        .map(|path| path.expect("every line has a path"))
        .collect()
}

pub(crate) fn line<'a>(lines: &'a [Value], path: &str) -> &'a Value {
    let found = lines.iter().find(|line| line["path"] == path);
    found.unwrap_or_else(|| panic!("{path} is not in {lines:?}"))
}

pub(crate) fn plant(root: &Path, files: &[(&str, &[u8])]) {
    for (name, content) in files {
        let path = root.join(name);
        fs::create_dir_all(path.parent().expect("it has one")).expect("ours");
        fs::write(path, content).expect("ours");
    }
}

pub(crate) fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

fn every_entry_is_told_in_the_order_of_its_name(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let root = daemon.path("t");
    plant(
        &root,
        &[
            ("a/x", b"1"),
            ("a/y/z", b"22"),
            ("a-b", b"333"),
            ("a.c", b""),
            ("a0", b""),
            ("B", b""),
            ("!", b""),
        ],
    );
    fs::create_dir(root.join("empty")).expect("ours");
    let before = tree(&root);
    let reply = ask(&daemon, &json!({"path": root}));
    let (lines, last) = lines(&reply.text());
    // The root comes first; what is in `a` comes where `a/` stands among the other names.
    let expected = [
        "", "!", "B", "a", "a-b", "a.c", "a/x", "a/y", "a/y/z", "a0", "empty",
    ];
    assert_eq!(paths(&lines), expected);
    let whole = json!({"complete": true, "entries": 11, "bytes": 6, "errors": 0});
    assert_eq!(last, whole);
    for line in &lines {
        let path = root.join(line["path"].as_str().expect("text"));
        let about = fs::symlink_metadata(&path).expect("it is there");
        let is_dir = about.is_dir();
        let mut expected = json!({
            "path": line["path"],
            "type": if is_dir { "directory" } else { "file" },
            "mode": format!("{:04o}", about.permissions().mode() & 0o7777),
            "uid": about.uid(), "gid": about.gid(),
            "mtime": about.mtime(), "mtime_nanos": about.mtime_nsec(),
        });
        if !is_dir {
            expected["size"] = about.len().into();
        }
        assert_eq!(line, &expected);
    }
    assert_eq!(tree(&root), before);
}

fn a_line_has_its_keys_in_order(driver: Driver) {
    let daemon = Daemon::ready(driver);
    plant(&daemon.path("t"), &[("f", b"text")]);
    let text = ask(&daemon, &json!({"path": daemon.path("t"), "digest": true})).text();
    let lines: Vec<&str> = text.lines().collect();
    let expected = [
        "path",
        "type",
        "size",
        "mode",
        "uid",
        "gid",
        "mtime",
        "mtime_nanos",
        "sha-256",
    ];
    assert_eq!(keys(lines[1]), expected);
    assert_eq!(keys(lines[2]), ["complete", "entries", "bytes", "errors"]);
}

fn what_is_not_a_file_is_told_as_it_is(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let root = daemon.path("t");
    plant(&root, &[("file", b"x")]);
    symlink("file", root.join("link")).expect("ours");
    symlink("no/where", root.join("dangling")).expect("ours");
    symlink(OsStr::from_bytes(b"\xff\n"), root.join("odd")).expect("ours");
    symlink("..", root.join("up")).expect("ours");
    let mode = Mode::from_raw_mode(0o640);
    rustix::fs::mknodat(CWD, root.join("fifo"), FileType::Fifo, mode, 0).expect("ours");
    let _socket = UnixListener::bind(root.join("socket")).expect("ours");
    if is_root("a device node") {
        let device = rustix::fs::makedev(1, 3);
        let made = rustix::fs::mknodat(
            CWD,
            root.join("null"),
            FileType::CharacterDevice,
            mode,
            device,
        );
        if made.is_ok() {
            let lines = manifest(&daemon, &json!({"path": root, "digest": true}));
            let null = line(&lines, "null");
            assert_eq!(
                (&null["type"], &null["rdev"]),
                (&json!("char_device"), &json!("1:3"))
            );
        }
    }
    let lines = manifest(&daemon, &json!({"path": root, "digest": true}));
    for (path, target) in [("link", "file"), ("dangling", "no/where"), ("up", "..")] {
        let link = line(&lines, path);
        assert_eq!(link["type"], "symlink");
        assert_eq!(link["target"], target);
        assert!(link.get("size").is_none() && link.get("sha-256").is_none());
    }
    let odd = line(&lines, "odd");
    assert_eq!(odd["target"], "\u{fffd}\n");
    assert_eq!(odd["target_b64"], "/wo=");
    assert_eq!(line(&lines, "fifo")["type"], "fifo");
    assert_eq!(line(&lines, "socket")["type"], "socket");
}

fn names_that_are_no_text_have_a_second_form(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let root = daemon.path("t");
    let names: [&[u8]; 6] = [
        b"\xff",
        b"a\xc3\x28",
        b"line\nbreak",
        b"quote\"\\",
        "\u{e9}\u{1f600}".as_bytes(),
        b"a\x7f",
    ];
    for name in names {
        plant(&root, &[]);
        fs::create_dir_all(&root).expect("ours");
        fs::write(root.join(OsStr::from_bytes(name)), name).expect("ours");
    }
    let lines = manifest(&daemon, &json!({"path": root, "digest": 1}));
    let mut sorted = names;
    sorted.sort_unstable();
    for (line, name) in lines[1..].iter().zip(sorted) {
        assert_eq!(line["path"], *String::from_utf8_lossy(name));
        let exact = line
            .get("path_b64")
            .map(|text| base64::decode(text.as_str().expect("text")).expect("it is base64"));
        let is_text = std::str::from_utf8(name).is_ok();
        assert_eq!(exact.as_deref(), (!is_text).then_some(name));
        assert_eq!(line["sha-256"], sha256(name));
    }
}

fn names_of_one_file_are_told_apart_from_others(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let root = daemon.path("t");
    plant(
        &root,
        &[("d/one", b"same"), ("alone", b"same"), ("z", b"other")],
    );
    hard_link(root.join("d/one"), root.join("two")).expect("ours");
    hard_link(root.join("z"), daemon.path("outside")).expect("ours");
    let lines = manifest(&daemon, &json!({"path": root}));
    let about = fs::metadata(root.join("two")).expect("ours");
    let (one, two) = (line(&lines, "d/one"), line(&lines, "two"));
    for key in ["device", "inode", "links"] {
        assert_eq!(one[key], two[key]);
        assert!(line(&lines, "alone").get(key).is_none());
        assert!(line(&lines, "d").get(key).is_none());
    }
    assert_eq!(one["links"], 2);
    assert_eq!(one["inode"], about.ino());
    let device = format!(
        "{}:{}",
        rustix::fs::major(about.dev()),
        rustix::fs::minor(about.dev())
    );
    assert_eq!(one["device"], device);
    assert_ne!(line(&lines, "z")["inode"], one["inode"]);
}

fn names_are_chosen_by_patterns(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let root = daemon.path("t");
    plant(
        &root,
        &[
            ("src/a.rs", b""),
            ("src/b.o", b""),
            ("src/deep/c.rs", b""),
            ("target/x.rs", b""),
            ("README", b""),
        ],
    );
    for (body, expected) in [
        (
            json!({"path": root, "exclude": ["target", "*.o"]}),
            vec!["", "README", "src", "src/a.rs", "src/deep", "src/deep/c.rs"],
        ),
        (
            json!({"path": root, "include": ["*.rs"]}),
            vec!["src/a.rs", "src/deep/c.rs", "target/x.rs"],
        ),
        (
            json!({"path": root, "include": ["src/"], "exclude": ["deep"]}),
            vec!["src", "src/a.rs", "src/b.o"],
        ),
        (json!({"path": root, "include": ["nothing"]}), vec![]),
    ] {
        assert_eq!(paths(&manifest(&daemon, &body)), expected, "{body}");
    }
}

fn hidden_names_are_left_out_on_request(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let root = daemon.path("t");
    plant(
        &root,
        &[
            (".git/config", b""),
            ("a/.b", b""),
            ("a/c", b""),
            (".d", b""),
        ],
    );
    let all = manifest(&daemon, &json!({"path": root}));
    assert_eq!(
        paths(&all),
        ["", ".d", ".git", ".git/config", "a", "a/.b", "a/c"]
    );
    let shown = manifest(&daemon, &json!({"path": root, "hidden": false}));
    assert_eq!(paths(&shown), ["", "a", "a/c"]);
}

fn another_filesystem_is_not_entered_on_request(driver: Driver) {
    if !is_root("a mount") {
        return;
    }
    let setup = Setup::new(driver);
    let root = setup.path("t");
    plant(&root, &[("here/f", b""), ("zoo", b"")]);
    let mount = format!("-t tmpfs none {}", root.join("here").display());
    let daemon = setup.with_mount(&mount).ready();
    let all = manifest(&daemon, &json!({"path": root}));
    assert_eq!(paths(&all), ["", "here", "zoo"]);
    daemon
        .put(crate::request::file_at(root.join("here/there")), "x")
        .bare(204);
    let all = manifest(&daemon, &json!({"path": root}));
    assert_eq!(paths(&all), ["", "here", "here/there", "zoo"]);
    let one = manifest(&daemon, &json!({"path": root, "one_file_system": true}));
    assert_eq!(paths(&one), ["", "here", "zoo"]);
}

fn a_request_that_is_none_is_refused(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let root = daemon.path("t");
    plant(&root, &[("f", b"")]);
    let before = tree(&daemon.path(""));
    for (body, status, slug) in [
        (json!({"path": root.join("absent")}), 404, "not_found"),
        (json!({"path": root.join("f")}), 400, "malformed_request"),
        (json!({"path": ""}), 400, "malformed_request"),
        (json!({"path": "a\0b"}), 400, "malformed_request"),
        (json!({}), 400, "malformed_request"),
        (json!([]), 400, "malformed_request"),
        (json!([root]), 400, "malformed_request"),
        (
            json!([root, false, [], [], false, true]),
            400,
            "malformed_request",
        ),
        (
            json!({"path": root, "digest": "md5"}),
            400,
            "malformed_request",
        ),
        (json!({"path": root, "digest": 2}), 400, "malformed_request"),
        (
            json!({"path": root, "excludes": ["x"]}),
            400,
            "malformed_request",
        ),
        (
            json!({"path": root, "exclude": "x"}),
            400,
            "malformed_request",
        ),
        (
            json!({"path": root, "include": ["a//b"]}),
            400,
            "malformed_request",
        ),
    ] {
        daemon.call(&request(&body)).refuses(status, slug);
    }
    let whole = json!({"path": root}).to_string();
    let untyped = Request::post("/v1/fs/manifest")
        .bearer()
        .body(whole.clone());
    daemon.call(&untyped).refuses(400, "malformed_request");
    let query = Request::post("/v1/fs/manifest?digest=crc")
        .bearer()
        .json_text(whole.clone());
    daemon.call(&query).refuses(400, "malformed_request");
    let unknown = Request::post("/v1/fs/manifest").json_text(whole);
    daemon.call(&unknown).bare(401);
    assert_eq!(tree(&daemon.path("")), before);
}

/// What a body of this coding decodes to.
fn decoded(coding: Coding, mut coded: &[u8]) -> Vec<u8> {
    let mut decoder = Decoder::new(coding).expect("there is memory");
    let mut plain = Vec::new();
    while !coded.is_empty() || decoder.holds_back() {
        plain.reserve(65_536);
        decoder.feed(&mut coded, &mut plain).expect("it is whole");
    }
    decoder.finish().expect("it is whole");
    plain
}

fn a_manifest_comes_in_a_coding_that_the_client_likes(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let root = daemon.path("t");
    for number in 0..3000 {
        plant(&root, &[(&format!("{}/{number}", number % 7), b"")]);
    }
    let small = daemon.path("small");
    plant(&small, &[("f", b"")]);
    for root in [root, small] {
        let ask = request(&json!({"path": root}));
        let plain = daemon.call(&ask).is(200);
        assert_eq!(plain.field("vary"), Some("accept-encoding"));
        for (accept, expected) in [
            ("zstd", Some(Coding::Zstd)),
            ("gzip", Some(Coding::Gzip)),
            ("gzip, deflate, br, zstd", Some(Coding::Zstd)),
            ("gzip;q=1, zstd;q=0.9", Some(Coding::Gzip)),
            ("x-gzip", Some(Coding::Gzip)),
            ("*;q=0.5, identity;q=0", Some(Coding::Zstd)),
            ("identity", None),
            ("br", None),
            ("*", None),
            ("zstd;q=0, gzip;q=0", None),
            ("gzip;q=0.5, identity", None),
            ("zstd;q=nonsense", None),
            ("", None),
        ] {
            let reply = daemon
                .call(&ask.clone().field("accept-encoding", accept))
                .is(200);
            let coding = reply.field("content-encoding");
            assert_eq!(coding, expected.map(Coding::name), "{accept}");
            assert_eq!(reply.field("vary"), Some("accept-encoding"));
            let body = match expected {
                Some(coding) => decoded(coding, &reply.body),
                None => reply.body.clone(),
            };
            assert!(body == plain.body, "{accept}");
        }
    }
}

fn what_cannot_be_told_is_not_passed_over(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let root = daemon.path("t");
    plant(&root, &[("z", b"text")]);
    // Deeper than any path may be, so that its end cannot be told.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut dir = rustix::fs::open(&root, flags, Mode::empty()).expect("ours");
    let name = "d".repeat(100);
    for _ in 0..45 {
        rustix::fs::mkdirat(&dir, name.as_str(), Mode::from_raw_mode(0o755)).expect("ours");
        dir = rustix::fs::openat(&dir, name.as_str(), flags, Mode::empty()).expect("ours");
    }
    let (lines, last) = lines(&ask(&daemon, &json!({"path": root, "digest": 1})).text());
    assert_eq!(last["complete"], false, "{last}");
    assert_eq!(last["errors"], 1);
    let failed: Vec<&Value> = lines
        .iter()
        .filter(|line| line.get("error").is_some())
        .collect();
    assert_eq!(failed.len(), 1);
    let told = failed[0]["error"].as_str().expect("text");
    assert!(told.starts_with("cannot read directory: "), "{told}");
    assert!(failed[0].get("type").is_none());
    assert_eq!(
        lines.last().expect("there are some")["sha-256"],
        sha256(b"text")
    );
    // The deepest directories are removed by hand: their path is too long for anybody else.
    let mut shell = std::process::Command::new("rm");
    assert!(
        shell
            .arg("-rf")
            .arg(&root)
            .status()
            .expect("rm runs")
            .success()
    );
}

fn equal_trees_have_equal_manifests(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let texts = ["one", "two"].map(|name| {
        let root = daemon.path(name);
        let mut files: Vec<String> = (0..400)
            .map(|number| format!("{}/{number}", number % 5))
            .collect();
        if name == "two" {
            files.reverse();
        }
        for file in &files {
            plant(&root, &[(file, file.as_bytes())]);
            let stamped = File::open(root.join(file)).expect("ours");
            let time = std::time::UNIX_EPOCH + std::time::Duration::new(1_700_000_000, 123_456_789);
            stamped.set_modified(time).expect("ours");
        }
        for dir in ["0", "1", "2", "3", "4", ""] {
            let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_600_000_000);
            let dir = File::open(root.join(dir)).expect("ours");
            dir.set_modified(time).expect("ours");
        }
        ask(&daemon, &json!({"path": root, "digest": "blake3"})).text()
    });
    assert!(texts[0].contains(r#""mtime":1700000000,"mtime_nanos":123456789,"#));
    assert_eq!(texts[0], texts[1]);
}

fn memory_does_not_grow_with_the_tree(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let root = daemon.path("t");
    plant(&root, &[("first", b"")]);
    for number in 0..30_000 {
        let path = match number % 2 {
            0 => root.join(format!("a file with a name that is rather long {number}")),
            _ => root.join(format!("{}/f{number}", number % 250)),
        };
        if number < 1000 {
            fs::create_dir_all(path.parent().expect("it has one")).expect("ours");
        }
        File::create(path)
            .and_then(|mut file| file.write_all(b"x"))
            .expect("ours");
    }
    let peak = || {
        let text = status(daemon.pid(), "VmHWM");
        let number = text
            .split_whitespace()
            .next()
            .and_then(|kib| kib.parse::<u64>().ok());
        number.expect("a size in KiB")
    };
    assert_eq!(
        manifest(&daemon, &json!({"path": daemon.path("t/1"), "digest": 1})).len(),
        121
    );
    let before = peak();
    let lines = manifest(&daemon, &json!({"path": root, "digest": 1}));
    assert_eq!(lines.len(), 30_000 + 1 + 1 + 125);
    let grown = peak() - before;
    assert!(grown < 24 * 1024, "{grown} KiB");
}

fn a_client_that_leaves_ends_its_manifest(driver: Driver) {
    let daemon = Setup::new(driver).flag("--sse-keepalive", "0.2").ready();
    let root = daemon.path("t");
    plant(&root, &[("f", b"")]);
    let large = File::create(root.join("large")).expect("ours");
    // Zeros without end, as far as this test can tell.
    large.set_len(1 << 40).expect("a file may have holes");
    let before = daemon.at_rest();
    for finish in [true, false] {
        let mut connection = daemon.connect();
        connection.send(request(&json!({"path": root, "digest": 1})).bytes());
        let reply = connection.head().expect("the head comes before the digest");
        assert_eq!(reply.status, 200);
        if finish {
            drop(connection);
        } else {
            connection.reset();
        }
    }
    daemon.holds_at_most(before);
    wait_until("nobody reads the file any more", || {
        !daemon
            .descriptor_targets()
            .iter()
            .any(|target| target.contains("large"))
    });
}
