//! Tests of extraction: each archive is extracted with a spool and without, in memory and on disk.

use std::os::unix::fs::{MetadataExt, symlink};

use super::super::testing::{Broken, Dir, listing, run};
use super::*;
use crate::ring::flow::Ready;
use crate::wire::tar::Type;
use crate::wire::tar::write::{self, Head};

fn limits(spool: &Path, memory: u64) -> Limits {
    Limits {
        members: 1000,
        bytes: 1 << 20,
        reserve: 0,
        spool_dir: spool.into(),
        spool_memory: memory,
    }
}

#[derive(Clone, Copy)]
struct One<'a> {
    kind: Type,
    path: &'a str,
    /// Data of a file, target of a link.
    text: &'a str,
    mode: u32,
}

fn file<'a>(path: &'a str, text: &'a str) -> One<'a> {
    One {
        kind: Type::File,
        path,
        text,
        mode: 0o644,
    }
}

fn dir(path: &str) -> One<'_> {
    One {
        kind: Type::Directory,
        path,
        text: "",
        mode: 0o755,
    }
}

fn link<'a>(path: &'a str, text: &'a str) -> One<'a> {
    One {
        kind: Type::Symlink,
        path,
        text,
        mode: 0o777,
    }
}

fn hard<'a>(path: &'a str, text: &'a str) -> One<'a> {
    One {
        kind: Type::HardLink,
        path,
        text,
        mode: 0o644,
    }
}

fn archive(members: &[One<'_>]) -> Vec<u8> {
    let mut out = Vec::new();
    for one in members {
        let is_file = one.kind == Type::File;
        let head = Head {
            path: one.path.as_bytes(),
            link: if is_file { b"" } else { one.text.as_bytes() },
            kind: one.kind,
            mode: one.mode,
            uid: 1234,
            gid: 1234,
            mtime: 1_000_000_000,
            size: if is_file { one.text.len() as u64 } else { 0 },
            device: (1, 3),
            runs: None,
        };
        head.write(&mut out);
        if is_file {
            out.extend_from_slice(one.text.as_bytes());
            write::pad(one.text.len() as u64, &mut out);
        }
    }
    out.extend_from_slice(&write::END);
    out
}

fn put(
    root: &Path,
    body: Vec<u8>,
    limits: &Limits,
    spool: bool,
) -> std::result::Result<(), (Kind, String)> {
    let outcome = run(async || {
        let mut body = Ready::new(body);
        match spool {
            true => spooled(root, &mut body, limits, Terms::default()).await,
            false => streamed(root, &mut body, limits, Terms::default()).await,
        }
    });
    outcome.map_err(|error| (error.kind(), error.sentence().to_owned()))
}

/// Extracts over what `before` prepares, in each way; `expected` is what is there afterwards, or the refusal.
fn check_over(
    before: impl Fn(&Path),
    members: &[One<'_>],
    expected: std::result::Result<&[&str], (Kind, &str)>,
) {
    for (memory, spool) in [(1 << 20, true), (0, true), (0, false)] {
        let dir = Dir::new();
        let root = dir.path().join("root");
        before(&root);
        let was = root.exists().then(|| listing(&root));
        let outcome = put(&root, archive(members), &limits(dir.path(), memory), spool);
        match expected {
            Ok(tree) => {
                assert_eq!(outcome, Ok(()));
                assert_eq!(listing(&root), tree);
            }
            Err((kind, text)) => {
                assert_eq!(outcome, Err((kind, text.to_owned())));
                if spool {
                    assert_eq!(
                        root.exists().then(|| listing(&root)),
                        was,
                        "a refused archive changes nothing"
                    );
                }
            }
        }
        let names = listing(dir.path())
            .into_iter()
            .filter(|line| !line.starts_with("root"))
            .collect::<Vec<_>>();
        assert!(names.is_empty(), "beside the root: {names:?}");
    }
}

fn check(members: &[One<'_>], expected: std::result::Result<&[&str], (Kind, &str)>) {
    check_over(|_| {}, members, expected);
}

fn malformed(text: &str) -> std::result::Result<&'static [&'static str], (Kind, &str)> {
    Err((Kind::Malformed, text))
}

fn internal(text: &str) -> std::result::Result<&'static [&'static str], (Kind, &str)> {
    Err((Kind::Internal, text))
}

#[test]
fn files_directories_and_links_are_made() {
    check(
        &[
            dir("./"),
            file("a/b/c", "text"),
            link("a/s", "../d"),
            dir("d"),
            hard("h", "a/b/c"),
            link("self", "."),
        ],
        Ok(&[
            "a d 755",
            "a/b d 755",
            "a/b/c f 644 text n2",
            "a/s l ../d",
            "d d 755",
            "h f 644 text n2",
            "self l .",
        ]),
    );
}

#[test]
fn modes_lose_what_is_not_0755_and_come_last() {
    let with = |mode, one: One<'static>| One { mode, ..one };
    check(
        &[
            with(0o500, dir("ro")),
            file("ro/child", "x"),
            with(0o7777, file("s", "x")),
            with(0o660, file("g", "x")),
            with(0, file("zero", "x")),
            with(0o500, dir("z")),
            file("z/f", "x"),
            with(0o400, file("twice", "one")),
            with(0o600, file("twice", "two")),
        ],
        Ok(&[
            "g f 640 x n1",
            "ro d 500",
            "ro/child f 644 x n1",
            "s f 755 x n1",
            "twice f 600 two n1",
            "z d 500",
            "z/f f 644 x n1",
            "zero f 0 x n1",
        ]),
    );
}

#[test]
fn times_are_set_on_files_links_and_directories() {
    let dir_ = Dir::new();
    let root = dir_.path().join("root");
    put(
        &root,
        archive(&[
            dir("d"),
            file("d/f", "x"),
            link("d/l", "f"),
            file("d/g", "x"),
        ]),
        &limits(dir_.path(), 0),
        true,
    )
    .expect("it is sound");
    for name in ["d", "d/f", "d/l"] {
        let meta = root.join(name).symlink_metadata().expect("it is there");
        assert_eq!(meta.mtime(), 1_000_000_000, "{name}");
    }
    assert_eq!(
        root.join("d/f").metadata().expect("it is there").uid(),
        rustix::process::geteuid().as_raw()
    );
}

#[test]
fn names_that_leave_the_root_change_nothing() {
    check(
        &[file("ok", "x"), file("../x", "x")],
        malformed("refused tar member ../x: path escapes the extraction root"),
    );
    check(
        &[file("ok", "x"), link("s", "/x")],
        malformed("refused tar member s: absolute link target /x"),
    );
}

#[test]
fn nothing_is_written_through_a_link_of_the_archive() {
    let on_the_way = "a symbolic link on the way there, which extraction refuses to follow";
    let told = |name: &str, under: &str| {
        format!("refused tar member {name}: cannot create under {under}: {on_the_way}")
    };
    check(
        &[dir("real"), link("ln", "real"), file("ln/f", "x")],
        malformed(&told("ln/f", "ln")),
    );
    check(
        &[dir("a"), link("a/ln", "."), dir("a/ln/b/c")],
        malformed(&told("a/ln/b/c", "a/ln")),
    );
    check(
        &[link("s", "t"), file("s", "x")],
        malformed(&told("s", "s")),
    );
    check(
        &[dir("t"), link("s", "t"), dir("s/")],
        malformed(&told("s/", "s")),
    );
}

#[test]
fn nothing_is_written_through_a_link_that_was_there() {
    let before = |root: &Path| {
        std::fs::create_dir_all(root.join("d")).expect("it is fresh");
        symlink("/tmp", root.join("out")).expect("it is fresh");
        symlink("/tmp/victim", root.join("f")).expect("it is fresh");
    };
    let on_the_way = "a symbolic link on the way there, which extraction refuses to follow";
    let told = |name: &str, under: &str| {
        format!("refused tar member {name}: cannot create under {under}: {on_the_way}")
    };
    check_over(
        before,
        &[file("new", "x"), file("out/f", "x")],
        malformed(&told("out/f", "out")),
    );
    check_over(
        before,
        &[file("new", "x"), file("f", "x")],
        malformed(&told("f", "f")),
    );
}

#[test]
fn hard_links_need_a_file_that_came_before() {
    let told = |why: &str| format!("tar operation failed: h: {why}");
    check_spooled(
        &[hard("h", "t"), file("t", "x")],
        &told("the target of the hard link is not there"),
    );
    check_spooled(
        &[dir("d"), hard("h", "d")],
        &told("a hard link to a directory"),
    );
    check_spooled(
        &[hard("h", "a/b")],
        &told("the target of the hard link is not there"),
    );
    check_spooled(&[hard("h", ".")], &told("a hard link to a directory"));
    check(&[hard("h", "h")], internal(&told("a hard link to itself")));
    check(&[link("s", "t"), hard("h", "s")], Ok(&["h l t", "s l t"]));
}

/// Without a spool the kernel tells, in fewer words.
fn check_spooled(members: &[One<'_>], told: &str) {
    let dir = Dir::new();
    let root = dir.path().join("root");
    let outcome = put(&root, archive(members), &limits(dir.path(), 1 << 20), true);
    assert_eq!(outcome, Err((Kind::Internal, told.to_owned())));
    assert!(!root.exists());
    let outcome = put(&root, archive(members), &limits(dir.path(), 1 << 20), false);
    assert_eq!(outcome.map_err(|(kind, _)| kind), Err(Kind::Internal));
}

#[test]
fn the_last_of_several_members_of_a_name_wins() {
    check(
        &[file("f", "a longer text"), file("f", "x")],
        Ok(&["f f 644 x n1"]),
    );
    check(&[file("s", "x"), link("s", "t")], Ok(&["s l t"]));
    check(
        &[
            file("t", "t"),
            file("h", "x"),
            hard("h", "t"),
            hard("h", "t"),
        ],
        Ok(&["h f 644 t n2", "t f 644 t n2"]),
    );
    check_spooled_as(
        &[dir("s"), link("s", "t")],
        "s: a directory of that name is there",
    );
    check_spooled_as(
        &[dir("s"), file("s", "t")],
        "s: a directory of that name is there",
    );
    check_spooled_as(
        &[file("s", "t"), dir("s")],
        "s: something else of that name is there",
    );
    check_spooled_as(
        &[file("s", "t"), file("s/x", "t")],
        "s/x: a component of its name is no directory",
    );
}

fn check_spooled_as(members: &[One<'_>], told: &str) {
    check_spooled(members, &format!("tar operation failed: {told}"));
}

#[test]
fn what_was_there_is_kept_or_replaced() {
    let before = |root: &Path| {
        std::fs::create_dir_all(root.join("d")).expect("it is fresh");
        std::fs::write(root.join("d/old"), "old").expect("it is fresh");
        std::fs::write(root.join("f"), "a longer text").expect("it is fresh");
        std::fs::hard_link(root.join("f"), root.join("partner")).expect("it is fresh");
        symlink("nowhere", root.join("l")).expect("it is fresh");
    };
    check_over(
        before,
        &[dir("d"), file("f", "x"), link("l", "f"), hard("d/old", "f")],
        Ok(&[
            "d d 755",
            "d/old f 644 x n3",
            "f f 644 x n3",
            "l l f",
            "partner f 644 x n3",
        ]),
    );
}

#[test]
fn the_same_tree_can_be_uploaded_again() {
    let tree = [file("t", "x"), hard("h", "t"), link("s", "t"), dir("d")];
    let dir = Dir::new();
    let root = dir.path().join("root");
    for _ in 0..3 {
        put(&root, archive(&tree), &limits(dir.path(), 0), true).expect("it is sound");
        assert_eq!(
            listing(&root),
            ["d d 755", "h f 644 x n2", "s l t", "t f 644 x n2"]
        );
    }
}

#[test]
fn counts_and_sizes_are_bounded() {
    let dir = Dir::new();
    let root = dir.path().join("root");
    let few = Limits {
        members: 2,
        ..limits(dir.path(), 0)
    };
    let told = (Kind::TooLarge, "archive has more than 2 members".to_owned());
    assert_eq!(
        put(
            &root,
            archive(&[file("a", ""), link("l", "a"), file("b", "")]),
            &few,
            true
        ),
        Err(told)
    );
    let small = Limits {
        bytes: 4,
        ..limits(dir.path(), 0)
    };
    let told = (
        Kind::TooLarge,
        "archive exceeds 4 uncompressed bytes".to_owned(),
    );
    assert_eq!(
        put(
            &root,
            archive(&[file("a", "abc"), file("b", "ab")]),
            &small,
            true
        ),
        Err(told)
    );
    assert!(!root.exists());
}

#[test]
fn a_full_disk_is_told_before_anything_is_written() {
    let dir = Dir::new();
    let root = dir.path().join("root");
    let full = Limits {
        reserve: u64::MAX,
        ..limits(dir.path(), 0)
    };
    let outcome = put(&root, archive(&[file("a", "")]), &full, true);
    assert_eq!(outcome.map_err(|(kind, _)| kind), Err(Kind::DiskFull));
    assert!(!root.exists());
}

#[test]
fn a_body_that_breaks_off_leaves_nothing() {
    let dir = Dir::new();
    let root = dir.path().join("root");
    let bytes = archive(&[file("a", "x")]);
    let error = run(async || {
        let mut body = Broken {
            bytes,
            length: None,
            kind: Some(Kind::ClientGone),
        };
        spooled(&root, &mut body, &limits(dir.path(), 0), Terms::default()).await
    });
    assert_eq!(error.expect_err("it broke off").kind(), Kind::ClientGone);
    assert!(listing(dir.path()).is_empty());
}

#[test]
fn a_truncated_archive_is_refused_with_its_offset() {
    let dir = Dir::new();
    let root = dir.path().join("root");
    let bytes = archive(&[file("a", "x"), file("b", "x")])[..1100].to_vec();
    let told = "malformed tar archive at byte 1100: it ends inside a header".to_owned();
    assert_eq!(
        put(&root, bytes, &limits(dir.path(), 0), true),
        Err((Kind::Malformed, told))
    );
    assert!(!root.exists());
}

#[test]
fn an_empty_archive_makes_the_root() {
    for bytes in [Vec::new(), vec![0; 512], vec![0; 10_240]] {
        let dir = Dir::new();
        let root = dir.path().join("x/y/root");
        put(&root, bytes, &limits(dir.path(), 0), true).expect("it is sound");
        assert!(root.is_dir());
    }
}

#[test]
fn a_root_that_is_a_file_is_an_error_and_one_that_is_a_link_is_followed() {
    let dir = Dir::new();
    let root = dir.path().join("root");
    std::fs::write(&root, "x").expect("it is fresh");
    let outcome = put(
        &root,
        archive(&[file("a", "")]),
        &limits(dir.path(), 0),
        true,
    );
    assert_eq!(outcome.map_err(|(kind, _)| kind), Err(Kind::Internal));
    std::fs::create_dir(dir.path().join("real")).expect("it is fresh");
    let link = dir.path().join("link");
    symlink("real", &link).expect("it is fresh");
    put(
        &link.join("../link/sub"),
        archive(&[file("a", "x")]),
        &limits(dir.path(), 0),
        true,
    )
    .expect("it is sound");
    assert_eq!(
        listing(&dir.path().join("real")),
        ["sub d 755", "sub/a f 644 x n1"]
    );
}

#[test]
fn a_sparse_file_stays_sparse() {
    use crate::wire::tar::Segment;
    let runs = [
        Segment {
            offset: 0,
            length: 3,
        },
        Segment {
            offset: 500_000,
            length: 2,
        },
    ];
    let mut bytes = Vec::new();
    let one = One {
        kind: Type::File,
        path: "f",
        text: "",
        mode: 0o644,
    };
    let head = Head {
        path: one.path.as_bytes(),
        link: b"",
        kind: one.kind,
        mode: one.mode,
        uid: 0,
        gid: 0,
        mtime: 0,
        size: 1_000_000,
        device: (0, 0),
        runs: Some(&runs),
    };
    head.write(&mut bytes);
    bytes.extend_from_slice(b"abcde");
    write::pad(5, &mut bytes);
    for spool in [true, false] {
        let dir = Dir::new();
        let root = dir.path().join("root");
        put(&root, bytes.clone(), &limits(dir.path(), 0), spool).expect("it is sound");
        let data = std::fs::read(root.join("f")).expect("it is there");
        assert_eq!(data.len(), 1_000_000);
        assert_eq!(
            (&data[..4], &data[499_999..500_003]),
            (b"abc\0".as_slice(), b"\0de\0".as_slice())
        );
        assert!(root.join("f").metadata().expect("it is there").blocks() < 100);
    }
}
