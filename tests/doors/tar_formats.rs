//! The formats of archives that are understood: endings, names, types, pax records, framings (D14).

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;

use crate::archive::{
    BLOCK, Member, archive, dir, file, gnu_long, pax, symlink as link, unended, upload,
};
use crate::daemon::Daemon;
use crate::driver::Driver;
use crate::request::{Request, tar_at};
use crate::scratch::{noise, picture, tree, tree_is};

both![
    names_are_read_lexically,
    an_archive_may_end_in_every_usual_way,
    an_empty_archive_makes_the_root,
    long_names_of_every_format_are_understood,
    the_usual_types_are_files,
    a_global_header_is_no_file,
    pax_records_are_understood,
    the_body_may_be_framed_in_every_way,
];

/// Members, and the names and contents they make.
type Row<'a> = (&'a [Member], &'a [(&'a str, &'a str)]);

fn names_are_read_lexically(driver: Driver) {
    let rows: [Row; 8] = [
        (
            &[dir("./"), dir("./d"), file("./d/f", "1")],
            &[("d", "dir 755"), ("d/f", "file 644 1")],
        ),
        (&[dir("."), file("f", "1")], &[("f", "file 644 1")]),
        (&[file("a/../b", "1")], &[("b", "file 644 1")]),
        (&[dir("d"), dir("d/..")], &[("d", "dir 755")]),
        (
            &[file("a//b", "1")],
            &[("a", "dir 755"), ("a/b", "file 644 1")],
        ),
        (
            &[file("a/./b", "1")],
            &[("a", "dir 755"), ("a/b", "file 644 1")],
        ),
        (
            &[dir("d/"), dir("e//")],
            &[("d", "dir 755"), ("e", "dir 755")],
        ),
        (
            &[file("a b\\c", "1"), file("...", "2")],
            &[("...", "file 644 2"), ("a b\\c", "file 644 1")],
        ),
    ];
    for (members, expected) in rows {
        let daemon = Daemon::ready(driver);
        upload(&daemon, "root", archive(members.to_vec())).bare(204);
        tree_is(&daemon.path("root"), expected);
    }
}

fn an_archive_may_end_in_every_usual_way(driver: Driver) {
    let one = || unended([file("f", "1")]);
    let zeroes = |count: usize| vec![0; count * BLOCK];
    let rows = [
        one(),
        [one(), zeroes(1)].concat(),
        [one(), zeroes(2)].concat(),
        [one(), zeroes(20)].concat(),
        [one(), zeroes(2), b"trailing garbage".to_vec()].concat(),
        [one(), zeroes(2), unended([file("second", "2")])].concat(),
        [one(), zeroes(1), unended([file("second", "2")])].concat(),
        [one(), zeroes(2), vec![b'x'; 5_000_000]].concat(),
    ];
    for (number, body) in rows.into_iter().enumerate() {
        let daemon = Daemon::ready(driver);
        let reply = upload(&daemon, "root", body);
        assert_eq!(reply.status, 204, "row {number}: {reply:?}");
        tree_is(&daemon.path("root"), &[("f", "file 644 1")]);
    }
}

fn an_empty_archive_makes_the_root(driver: Driver) {
    let daemon = Daemon::ready(driver);
    for (number, length) in [0, BLOCK, 2 * BLOCK, 20 * BLOCK].into_iter().enumerate() {
        let root = format!("a/b/root-{number}");
        upload(&daemon, &root, vec![0; length]).bare(204);
        assert!(daemon.path(&root).is_dir(), "{length} zeroes");
        tree_is(&daemon.path(&root), &[]);
    }
}

fn long_names_of_every_format_are_understood(driver: Driver) {
    let long = format!("{}/{}", "d".repeat(120), "n".repeat(180));
    let target = "t".repeat(200);
    let dot = "x".repeat(100);
    let rows = [
        (
            vec![gnu_long(b'L', &long), file("short", "1").gnu()],
            long.as_str(),
        ),
        (
            vec![pax(b'x', &[("path", &long)]), file("short", "1")],
            long.as_str(),
        ),
        (
            vec![file("n".repeat(100), "1").prefix(&"p".repeat(90))],
            &*format!("{}/{}", "p".repeat(90), "n".repeat(100)),
        ),
        (vec![file(&dot, "1")], dot.as_str()),
        (vec![pax(b'x', &[("path", "ü/€")]), file("x", "1")], "ü/€"),
        (
            vec![
                gnu_long(b'L', &long),
                pax(b'x', &[("mtime", "1.5")]),
                file("short", "1").gnu(),
            ],
            long.as_str(),
        ),
    ];
    for (members, name) in rows {
        let daemon = Daemon::ready(driver);
        upload(&daemon, "root", archive(members)).bare(204);
        let found = fs::read_to_string(daemon.path("root").join(name));
        assert_eq!(found.ok().as_deref(), Some("1"), "{name}");
    }
    for long_link in [gnu_long(b'K', &target), pax(b'x', &[("linkpath", &target)])] {
        let daemon = Daemon::ready(driver);
        upload(
            &daemon,
            "root",
            archive([long_link, link("s", "short").gnu()]),
        )
        .bare(204);
        let found = fs::read_link(daemon.path("root/s")).expect("a link");
        assert_eq!(found.to_str(), Some(target.as_str()));
    }
    let daemon = Daemon::ready(driver);
    upload(&daemon, "root", archive([file(b"caf\xe9", "1")])).bare(204);
    let name = OsStr::from_bytes(b"caf\xe9");
    assert!(
        daemon.path("root").join(name).exists(),
        "a name that is not UTF-8"
    );
}

fn the_usual_types_are_files(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let members = [
        Member::new(b'0', "plain").data("1"),
        Member::new(b'\0', "old").data("2"),
        Member::new(b'7', "contiguous").data("3"),
        // A v7 header: no magic, no version.
        Member::new(b'\0', "v7").data("4").patch(257, [0; 8]),
        Member::new(b'\0', "olddir/"),
    ];
    upload(&daemon, "root", archive(members)).bare(204);
    let mut found = tree(&daemon.path("root"));
    // The reference makes a file of it, CPython a directory; both drop the slash.
    let olddir = found.remove("olddir").expect("something of that name");
    assert!(
        olddir == "file 644 " || olddir.starts_with("dir"),
        "{olddir}"
    );
    let expected = [
        ("contiguous", "file 644 3"),
        ("old", "file 644 2"),
        ("plain", "file 644 1"),
        ("v7", "file 644 4"),
    ];
    assert_eq!(found, picture(&expected));
}

fn a_global_header_is_no_file(driver: Driver) {
    let daemon = Daemon::ready(driver);
    // As `git archive` writes it.
    let global = pax(
        b'g',
        &[("comment", "0123456789012345678901234567890123456789")],
    );
    let members = [global.clone(), file("a", "1"), global, file("b", "2")];
    upload(&daemon, "root", archive(members)).bare(204);
    tree_is(
        &daemon.path("root"),
        &[("a", "file 644 1"), ("b", "file 644 2")],
    );
}

fn pax_records_are_understood(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let members = [
        // The size of the record is stronger than that of the header.
        pax(b'x', &[("size", "5")]),
        file("sized", "12345").size(0),
        pax(
            b'x',
            &[
                ("path", "renamed"),
                ("mtime", "1000000000.25"),
                ("uid", "1234"),
                ("uname", "nobody"),
            ],
        ),
        file("original", "x"),
        pax(
            b'x',
            &[
                ("SCHILY.xattr.user.test", "value"),
                ("VENDOR.unknown", "anything"),
                ("comment", "a=b\nc"),
            ],
        ),
        file("annotated", "y"),
        // A record is for one member only.
        file("after", "z"),
        pax(b'x', &[("linkpath", "after")]),
        link("link", "wrong"),
    ];
    upload(&daemon, "root", archive(members)).bare(204);
    let expected = [
        ("after", "file 644 z"),
        ("annotated", "file 644 y"),
        ("link", "link after"),
        ("renamed", "file 644 x"),
        ("sized", "file 644 12345"),
    ];
    tree_is(&daemon.path("root"), &expected);
    let renamed = fs::metadata(daemon.path("root/renamed")).expect("it is there");
    assert_eq!(
        (renamed.mtime(), renamed.mtime_nsec()),
        (1_000_000_000, 250_000_000)
    );
}

fn the_body_may_be_framed_in_every_way(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let body = archive([file("f", noise(100_000)), dir("d"), file("d/g", noise(777))]);
    let request =
        |number: usize| Request::put(tar_at(daemon.path(&format!("root-{number}")))).bearer();
    let pieces = |size: usize| body.chunks(size).map(<[u8]>::to_vec).collect::<Vec<_>>();
    let requests = [
        request(0)
            .field("content-type", "application/x-tar")
            .body(body.clone()),
        request(1)
            .field("content-type", "text/plain")
            .body(body.clone()),
        request(2).chunks(pieces(100_000)),
        request(3).chunks(pieces(512)),
        request(4).chunks(pieces(511)),
        request(5).chunks(pieces(1000)),
    ];
    for request in requests {
        daemon.call(&request).bare(204);
    }
    let first = tree(&daemon.path("root-0"));
    assert_eq!(first.len(), 3);
    for number in 1..6 {
        assert_eq!(
            tree(&daemon.path(&format!("root-{number}"))),
            first,
            "{number}"
        );
    }
}
