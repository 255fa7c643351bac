//! Uploading a tree: what is extracted, and how (contract section 5.3, D14).

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use crate::archive::{
    BLOCK, Member, archive, dir, file, gnu_long, hard_link, pax, symlink as link, unended,
};
use crate::daemon::{Daemon, Setup};
use crate::driver::Driver;
use crate::process::is_root;
use crate::reply::Reply;
use crate::request::{Request, tar_at};
use crate::scratch::{inode, mode, noise, tree};

both![
    a_tree_is_extracted_below_its_root,
    names_are_read_lexically,
    an_archive_may_end_in_every_usual_way,
    an_empty_archive_makes_the_root,
    long_names_of_every_format_are_understood,
    the_usual_types_are_files,
    a_global_header_is_no_file,
    pax_records_are_understood,
    modes_lose_what_a_stranger_may_not_give,
    modes_are_applied_after_the_content,
    the_owner_is_never_taken_from_the_archive,
    modification_times_are_applied,
    implied_parents_follow_the_umask,
    links_inside_the_tree_are_made,
    the_last_of_two_members_wins,
    what_exists_is_replaced_or_reused,
    uploading_a_tree_twice_changes_nothing,
    the_root_may_be_a_link_or_have_dots,
    the_body_may_be_framed_in_every_way,
    a_tree_of_thousands_of_files_is_extracted,
    a_large_file_in_an_archive_is_exact,
    the_spool_leaves_nothing_behind,
    one_pass_without_a_spool_makes_the_same_tree,
];

fn a_tree_is_extracted_below_its_root(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let members = [
        dir("src"),
        file("src/main.c", "int main;").mode(0o644),
        file("run.sh", "#!/bin/sh").mode(0o755),
        dir("src/deep"),
        file("src/deep/empty", ""),
        link("link", "src/main.c"),
    ];
    put(&daemon, "new/root", archive(members)).is_empty(204);
    let expected = [
        ("link", "link src/main.c"),
        ("run.sh", "file 755 #!/bin/sh"),
        ("src", "dir 755"),
        ("src/deep", "dir 755"),
        ("src/deep/empty", "file 644 "),
        ("src/main.c", "file 644 int main;"),
    ];
    has(&daemon, "new/root", &expected);
}

fn names_are_read_lexically(driver: Driver) {
    let rows: [(&[Member], &[(&str, &str)]); 8] = [
        (&[dir("./"), dir("./d"), file("./d/f", "1")], &[("d", "dir 755"), ("d/f", "file 644 1")]),
        (&[dir("."), file("f", "1")], &[("f", "file 644 1")]),
        (&[file("a/../b", "1")], &[("b", "file 644 1")]),
        (&[dir("d"), dir("d/..")], &[("d", "dir 755")]),
        (&[file("a//b", "1")], &[("a", "dir 755"), ("a/b", "file 644 1")]),
        (&[file("a/./b", "1")], &[("a", "dir 755"), ("a/b", "file 644 1")]),
        (&[dir("d/"), dir("e//")], &[("d", "dir 755"), ("e", "dir 755")]),
        (&[file("a b\\c", "1"), file("...", "2")], &[("...", "file 644 2"), ("a b\\c", "file 644 1")]),
    ];
    for (members, expected) in rows {
        let daemon = Daemon::ready(driver);
        put(&daemon, "root", archive(members.to_vec())).is_empty(204);
        has(&daemon, "root", expected);
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
        let reply = put(&daemon, "root", body);
        assert_eq!(reply.status, 204, "row {number}: {reply:?}");
        has(&daemon, "root", &[("f", "file 644 1")]);
    }
}

fn an_empty_archive_makes_the_root(driver: Driver) {
    let daemon = Daemon::ready(driver);
    for (number, length) in [0, BLOCK, 2 * BLOCK, 20 * BLOCK].into_iter().enumerate() {
        let root = format!("a/b/root-{number}");
        put(&daemon, &root, vec![0; length]).is_empty(204);
        assert!(daemon.path(&root).is_dir(), "{length} zeroes");
        has(&daemon, &root, &[]);
    }
}

fn long_names_of_every_format_are_understood(driver: Driver) {
    let long = format!("{}/{}", "d".repeat(120), "n".repeat(180));
    let target = "t".repeat(200);
    let dot = "x".repeat(100);
    let rows = [
        (vec![gnu_long(b'L', &long), file("short", "1").gnu()], long.as_str()),
        (vec![pax(b'x', &[("path", &long)]), file("short", "1")], long.as_str()),
        (vec![file("n".repeat(100), "1").prefix(&"p".repeat(90))], &*format!("{}/{}", "p".repeat(90), "n".repeat(100))),
        (vec![file(&dot, "1")], dot.as_str()),
        (vec![pax(b'x', &[("path", "ü/€")]), file("x", "1")], "ü/€"),
        (vec![gnu_long(b'L', &long), pax(b'x', &[("mtime", "1.5")]), file("short", "1").gnu()], long.as_str()),
    ];
    for (members, name) in rows {
        let daemon = Daemon::ready(driver);
        put(&daemon, "root", archive(members)).is_empty(204);
        let found = fs::read_to_string(daemon.path("root").join(name));
        assert_eq!(found.ok().as_deref(), Some("1"), "{name}");
    }
    for long_link in [gnu_long(b'K', &target), pax(b'x', &[("linkpath", &target)])] {
        let daemon = Daemon::ready(driver);
        put(&daemon, "root", archive([long_link, link("s", "short").gnu()])).is_empty(204);
        let found = fs::read_link(daemon.path("root/s")).expect("a link");
        assert_eq!(found.to_str(), Some(target.as_str()));
    }
    let daemon = Daemon::ready(driver);
    put(&daemon, "root", archive([file(b"caf\xe9", "1")])).is_empty(204);
    use std::os::unix::ffi::OsStrExt;
    let name = std::ffi::OsStr::from_bytes(b"caf\xe9");
    assert!(daemon.path("root").join(name).exists(), "a name that is not UTF-8");
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
    put(&daemon, "root", archive(members)).is_empty(204);
    let mut found = tree(&daemon.path("root"));
    // The reference makes a file of it, CPython a directory; both drop the slash.
    let olddir = found.remove("olddir").expect("something of that name");
    assert!(olddir == "file 644 " || olddir.starts_with("dir"), "{olddir}");
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
    let global = pax(b'g', &[("comment", "0123456789012345678901234567890123456789")]);
    let members = [global.clone(), file("a", "1"), global, file("b", "2")];
    put(&daemon, "root", archive(members)).is_empty(204);
    has(&daemon, "root", &[("a", "file 644 1"), ("b", "file 644 2")]);
}

fn pax_records_are_understood(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let members = [
        // The size of the record is stronger than that of the header.
        pax(b'x', &[("size", "5")]),
        file("sized", "12345").size(0),
        pax(b'x', &[("path", "renamed"), ("mtime", "1000000000.25"), ("uid", "1234"), ("uname", "nobody")]),
        file("original", "x"),
        pax(b'x', &[("SCHILY.xattr.user.test", "value"), ("VENDOR.unknown", "anything"), ("comment", "a=b\nc")]),
        file("annotated", "y"),
        // A record is for one member only.
        file("after", "z"),
        pax(b'x', &[("linkpath", "after")]),
        link("link", "wrong"),
    ];
    put(&daemon, "root", archive(members)).is_empty(204);
    let expected = [
        ("after", "file 644 z"),
        ("annotated", "file 644 y"),
        ("link", "link after"),
        ("renamed", "file 644 x"),
        ("sized", "file 644 12345"),
    ];
    has(&daemon, "root", &expected);
    let renamed = fs::metadata(daemon.path("root/renamed")).expect("it is there");
    assert_eq!((renamed.mtime(), renamed.mtime_nsec()), (1_000_000_000, 250_000_000));
}

fn modes_lose_what_a_stranger_may_not_give(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let rows = [
        (0o644, 0o644),
        (0o755, 0o755),
        (0o777, 0o755),
        (0o666, 0o644),
        (0o4755, 0o755),
        (0o2755, 0o755),
        (0o1777, 0o755),
        (0o600, 0o600),
        (0o000, 0o000),
        (0o100_755, 0o755),
    ];
    for (given, kept) in rows {
        let members = [dir("d").mode(given), file("f", "1").mode(given)];
        put(&daemon, &format!("root-{given:o}"), archive(members)).is_empty(204);
        let root = daemon.path(&format!("root-{given:o}"));
        assert_eq!(mode(&root.join("f")), kept, "{given:o}");
        assert_eq!(mode(&root.join("d")), kept, "{given:o}");
    }
}

fn modes_are_applied_after_the_content(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let members = [
        dir("ro").mode(0o500),
        file("ro/child", "1"),
        dir("ro/sub").mode(0o100),
        file("ro/sub/child", "2"),
    ];
    put(&daemon, "root", archive(members)).is_empty(204);
    assert_eq!(mode(&daemon.path("root/ro")), 0o500);
    assert_eq!(mode(&daemon.path("root/ro/sub")), 0o100);
    for name in ["ro/sub", "ro"] {
        let open = fs::Permissions::from_mode(0o700);
        fs::set_permissions(daemon.path("root").join(name), open).expect("ours");
    }
    assert_eq!(fs::read_to_string(daemon.path("root/ro/sub/child")).expect("it is there"), "2");
}

fn the_owner_is_never_taken_from_the_archive(driver: Driver) {
    if !is_root("the owner of what is extracted") {
        return;
    }
    let daemon = Daemon::ready(driver);
    let members = [dir("d").owner(1234), file("f", "1").owner(1234), link("l", "f").owner(1234)];
    put(&daemon, "root", archive(members)).is_empty(204);
    for name in ["d", "f", "l"] {
        let found = fs::symlink_metadata(daemon.path("root").join(name)).expect("it is there");
        assert_eq!((found.uid(), found.gid()), (0, 0), "{name}");
    }
}

fn modification_times_are_applied(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let members = [
        dir("d").mtime(1_111_111_111),
        file("d/f", "1").mtime(1_222_222_222),
        file("old", "1").mtime(1),
        file("future", "1").mtime(4_000_000_000),
    ];
    put(&daemon, "root", archive(members)).is_empty(204);
    for (name, time) in [("d", 1_111_111_111), ("d/f", 1_222_222_222), ("old", 1), ("future", 4_000_000_000)] {
        let found = fs::metadata(daemon.path("root").join(name)).expect("it is there");
        assert_eq!(found.mtime(), time, "{name}");
    }
}

fn implied_parents_follow_the_umask(driver: Driver) {
    let wrapper = ["/bin/sh", "-c", "umask 027; exec \"$@\"", "sh"];
    let daemon = Setup::new(driver).under(&wrapper).ready();
    put(&daemon, "root", archive([file("a/b/c", "1").mode(0o644)])).is_empty(204);
    for name in ["root", "root/a", "root/a/b"] {
        assert_eq!(mode(&daemon.path(name)), 0o750, "{name}");
    }
    assert_eq!(mode(&daemon.path("root/a/b/c")), 0o644);
}

fn links_inside_the_tree_are_made(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let members = [
        file("t", "content"),
        dir("d"),
        link("s", "t"),
        link("d/up", "../t"),
        link("d/to-root", ".."),
        link("dangling", "nothere"),
        link("self", "."),
        link("dots", "d/../t"),
        hard_link("h", "t"),
        hard_link("d/h", "t"),
        hard_link("h-of-s", "s"),
        hard_link("made/h", "./d/../t"),
    ];
    put(&daemon, "root", archive(members)).is_empty(204);
    let expected = [
        ("d", "dir 755"),
        ("d/h", "file 644 content"),
        ("d/to-root", "link .."),
        ("d/up", "link ../t"),
        ("dangling", "link nothere"),
        ("dots", "link d/../t"),
        ("h", "file 644 content"),
        ("h-of-s", "link t"),
        ("made", "dir 755"),
        ("made/h", "file 644 content"),
        ("s", "link t"),
        ("self", "link ."),
        ("t", "file 644 content"),
    ];
    has(&daemon, "root", &expected);
    let target = inode(&daemon.path("root/t"));
    for name in ["root/h", "root/d/h", "root/made/h"] {
        assert_eq!(inode(&daemon.path(name)), target, "{name}");
    }
    assert_eq!(inode(&daemon.path("root/h-of-s")), inode(&daemon.path("root/s")));
}

fn the_last_of_two_members_wins(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let members = [
        file("f", "first and longer").mode(0o755),
        file("f", "second").mode(0o600),
        dir("d").mode(0o700),
        dir("d").mode(0o755),
        link("l", "first"),
        link("l", "second"),
        file("became-a-link", "x"),
        link("became-a-link", "f"),
    ];
    put(&daemon, "root", archive(members)).is_empty(204);
    let expected = [
        ("became-a-link", "link f"),
        ("d", "dir 755"),
        ("f", "file 600 second"),
        ("l", "link second"),
    ];
    has(&daemon, "root", &expected);
}

fn what_exists_is_replaced_or_reused(driver: Driver) {
    let daemon = Daemon::ready(driver);
    fs::create_dir_all(daemon.path("root/dir")).expect("the scratch directory is ours");
    fs::write(daemon.path("root/dir/untouched"), "old").expect("the scratch directory is ours");
    fs::write(daemon.path("root/f"), "old and longer").expect("the scratch directory is ours");
    fs::write(daemon.path("root/was-a-file"), "old").expect("the scratch directory is ours");
    symlink("old", daemon.path("root/s")).expect("the scratch directory is ours");
    let members = [
        dir("dir"),
        file("dir/new", "1"),
        file("f", "new"),
        link("s", "f"),
        link("was-a-file", "f"),
    ];
    put(&daemon, "root", archive(members)).is_empty(204);
    let expected = [
        ("dir", "dir 755"),
        ("dir/new", "file 644 1"),
        ("dir/untouched", "file 644 old"),
        ("f", "file 644 new"),
        ("s", "link f"),
        ("was-a-file", "link f"),
    ];
    has(&daemon, "root", &expected);
}

fn uploading_a_tree_twice_changes_nothing(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let body = archive([dir("d"), file("d/f", "1"), link("s", "d/f"), hard_link("h", "d/f")]);
    put(&daemon, "root", body.clone()).is_empty(204);
    let first = tree(&daemon.path("root"));
    put(&daemon, "root", body).is_empty(204);
    assert_eq!(tree(&daemon.path("root")), first);
    assert_eq!(inode(&daemon.path("root/h")), inode(&daemon.path("root/d/f")));
}

fn the_root_may_be_a_link_or_have_dots(driver: Driver) {
    let daemon = Daemon::ready(driver);
    fs::create_dir(daemon.path("real")).expect("the scratch directory is ours");
    symlink("real", daemon.path("link")).expect("the scratch directory is ours");
    put(&daemon, "link", archive([file("f", "1")])).is_empty(204);
    has(&daemon, "real", &[("f", "file 644 1")]);
    put(&daemon, "real/../dots", archive([file("f", "2")])).is_empty(204);
    has(&daemon, "dots", &[("f", "file 644 2")]);
    put(&daemon, "link/sub", archive([file("f", "3")])).is_empty(204);
    has(&daemon, "real/sub", &[("f", "file 644 3")]);
    put(&daemon, "trailing/", archive([file("f", "4")])).is_empty(204);
    has(&daemon, "trailing", &[("f", "file 644 4")]);
}

fn the_body_may_be_framed_in_every_way(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let body = archive([file("f", noise(100_000)), dir("d"), file("d/g", noise(777))]);
    let request = |number: usize| Request::put(tar_at(daemon.path(&format!("root-{number}")))).bearer();
    let pieces = |size: usize| body.chunks(size).map(<[u8]>::to_vec).collect::<Vec<_>>();
    let requests = [
        request(0).field("content-type", "application/x-tar").body(body.clone()),
        request(1).field("content-type", "text/plain").body(body.clone()),
        request(2).chunks(pieces(100_000)),
        request(3).chunks(pieces(512)),
        request(4).chunks(pieces(511)),
        request(5).chunks(pieces(1000)),
    ];
    for request in requests {
        daemon.call(&request).is_empty(204);
    }
    let first = tree(&daemon.path("root-0"));
    assert_eq!(first.len(), 3);
    for number in 1..6 {
        assert_eq!(tree(&daemon.path(&format!("root-{number}"))), first, "{number}");
    }
}

fn a_tree_of_thousands_of_files_is_extracted(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let members = (0..3000).map(|number| file(format!("d{}/f{number}", number % 50), format!("content {number}")));
    put(&daemon, "root", archive(members)).is_empty(204);
    for number in 0..3000 {
        let path = daemon.path(&format!("root/d{}/f{number}", number % 50));
        assert_eq!(fs::read_to_string(path).expect("it is there"), format!("content {number}"));
    }
}

fn a_large_file_in_an_archive_is_exact(driver: Driver) {
    let daemon = Daemon::ready(driver);
    for length in [511, 512, 513, 65_536, 1_048_575, 1_048_577, 20_000_000] {
        let members = [file("before", "1"), file("large", noise(length)), file("after", "2")];
        put(&daemon, "root", archive(members)).is_empty(204);
        assert!(fs::read(daemon.path("root/large")).expect("it is there") == noise(length), "{length}");
        assert_eq!(fs::read_to_string(daemon.path("root/after")).expect("it is there"), "2");
    }
}

fn the_spool_leaves_nothing_behind(driver: Driver) {
    for memory in ["0", "100000", "100000000"] {
        let setup = Setup::new(driver);
        let spool = setup.path("spool");
        fs::create_dir(&spool).expect("the scratch directory is ours");
        let daemon = setup
            .flag("--spool-dir", spool.to_str().expect("ASCII"))
            .flag("--spool-memory-bytes", memory)
            .ready();
        let before = daemon.at_rest();
        let body = archive([file("a", noise(1_000_000)), file("b", "2")]);
        put(&daemon, "root", body.clone()).is_empty(204);
        assert!(fs::read(daemon.path("root/a")).expect("it is there") == noise(1_000_000));
        // One that is refused at its end, and one that is not sent to its end.
        put(&daemon, "refused", archive([file("a", noise(1_000_000)), file("../b", "2")])).is_text(400);
        let mut connection = daemon.connect();
        let bytes = Request::put(tar_at(daemon.path("aborted"))).bearer().body(body).bytes();
        connection.send(&bytes[..bytes.len() - 1000]);
        drop(connection);
        daemon.holds_at_most(before);
        assert!(tree(&spool).is_empty() && tree(&daemon.temporary()).is_empty());
        assert!(!daemon.path("refused").exists() && !daemon.path("aborted").exists());
    }
}

fn one_pass_without_a_spool_makes_the_same_tree(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let body = archive([
        dir("d").mode(0o500),
        file("d/f", noise(300_000)).mtime(1_234_567_890),
        link("s", "d/f"),
        hard_link("h", "d/f"),
        file("e", ""),
    ]);
    put(&daemon, "spooled", body.clone()).is_empty(204);
    let target = format!("{}&spool=off", tar_at(daemon.path("direct")));
    daemon.put(target, body).is_empty(204);
    assert_eq!(tree(&daemon.path("direct")), tree(&daemon.path("spooled")));
    let found = fs::metadata(daemon.path("direct/d/f")).expect("it is there");
    assert_eq!(found.mtime(), 1_234_567_890);
    // Without a spool a refusal leaves what came before it.
    let target = format!("{}&spool=off", tar_at(daemon.path("half")));
    let reply = daemon.put(target, archive([file("first", "1"), file("../escape", "2"), file("third", "3")]));
    reply.is_text(400);
    assert!(!daemon.path("escape").exists() && !daemon.path("half/third").exists());
    assert_eq!(fs::read_to_string(daemon.path("half/first")).expect("it stays"), "1");
}

/// Uploads an archive to a root below the working directory.
#[track_caller]
fn put(daemon: &Daemon, root: &str, body: Vec<u8>) -> Reply {
    daemon.put(tar_at(daemon.path(root)), body)
}

#[track_caller]
fn has(daemon: &Daemon, root: &str, expected: &[(&str, &str)]) {
    assert_eq!(tree(&daemon.path(root)), picture(expected));
}

fn picture(rows: &[(&str, &str)]) -> crate::scratch::Tree {
    rows.iter().map(|(name, about)| ((*name).to_owned(), (*about).to_owned())).collect()
}
