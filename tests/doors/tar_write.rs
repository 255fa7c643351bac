//! Uploading a tree: what is extracted, and how (contract section 5.3, D14).

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use crate::archive::{archive, dir, file, hard_link, symlink as link, upload};
use crate::daemon::{Daemon, Setup};
use crate::driver::Driver;
use crate::process::{is_root, wait_until};
use crate::request::{Request, tar_at};
use crate::scratch::{inode, mode, noise, tree, tree_is};

both![
    a_tree_is_extracted_below_its_root,
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
    a_tree_of_thousands_of_files_is_extracted,
    a_large_file_in_an_archive_is_exact,
    the_spool_leaves_nothing_behind,
    one_pass_without_a_spool_makes_the_same_tree,
    one_pass_that_is_refused_leaves_what_came_before_as_it_is_to_be,
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
    upload(&daemon, "new/root", archive(members)).bare(204);
    let expected = [
        ("link", "link src/main.c"),
        ("run.sh", "file 755 #!/bin/sh"),
        ("src", "dir 755"),
        ("src/deep", "dir 755"),
        ("src/deep/empty", "file 644 "),
        ("src/main.c", "file 644 int main;"),
    ];
    tree_is(&daemon.path("new/root"), &expected);
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
        upload(&daemon, &format!("root-{given:o}"), archive(members)).bare(204);
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
    upload(&daemon, "root", archive(members)).bare(204);
    assert_eq!(mode(&daemon.path("root/ro")), 0o500);
    assert_eq!(mode(&daemon.path("root/ro/sub")), 0o100);
    for name in ["ro/sub", "ro"] {
        let open = fs::Permissions::from_mode(0o700);
        fs::set_permissions(daemon.path("root").join(name), open).expect("ours");
    }
    assert_eq!(
        fs::read_to_string(daemon.path("root/ro/sub/child")).expect("it is there"),
        "2"
    );
}

fn the_owner_is_never_taken_from_the_archive(driver: Driver) {
    if !is_root("the owner of what is extracted") {
        return;
    }
    let daemon = Daemon::ready(driver);
    let members = [
        dir("d").owner(1234),
        file("f", "1").owner(1234),
        link("l", "f").owner(1234),
    ];
    upload(&daemon, "root", archive(members)).bare(204);
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
    upload(&daemon, "root", archive(members)).bare(204);
    for (name, time) in [
        ("d", 1_111_111_111),
        ("d/f", 1_222_222_222),
        ("old", 1),
        ("future", 4_000_000_000),
    ] {
        let found = fs::metadata(daemon.path("root").join(name)).expect("it is there");
        assert_eq!(found.mtime(), time, "{name}");
    }
}

fn implied_parents_follow_the_umask(driver: Driver) {
    let wrapper = ["/bin/sh", "-c", "umask 027; exec \"$@\"", "sh"];
    let daemon = Setup::new(driver).under(&wrapper).ready();
    upload(&daemon, "root", archive([file("a/b/c", "1").mode(0o644)])).bare(204);
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
    upload(&daemon, "root", archive(members)).bare(204);
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
    tree_is(&daemon.path("root"), &expected);
    let target = inode(&daemon.path("root/t"));
    for name in ["root/h", "root/d/h", "root/made/h"] {
        assert_eq!(inode(&daemon.path(name)), target, "{name}");
    }
    assert_eq!(
        inode(&daemon.path("root/h-of-s")),
        inode(&daemon.path("root/s"))
    );
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
    upload(&daemon, "root", archive(members)).bare(204);
    let expected = [
        ("became-a-link", "link f"),
        ("d", "dir 755"),
        ("f", "file 600 second"),
        ("l", "link second"),
    ];
    tree_is(&daemon.path("root"), &expected);
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
    upload(&daemon, "root", archive(members)).bare(204);
    let expected = [
        ("dir", "dir 755"),
        ("dir/new", "file 644 1"),
        ("dir/untouched", "file 644 old"),
        ("f", "file 644 new"),
        ("s", "link f"),
        ("was-a-file", "link f"),
    ];
    tree_is(&daemon.path("root"), &expected);
}

fn uploading_a_tree_twice_changes_nothing(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let body = archive([
        dir("d"),
        file("d/f", "1"),
        link("s", "d/f"),
        hard_link("h", "d/f"),
    ]);
    upload(&daemon, "root", body.clone()).bare(204);
    let first = tree(&daemon.path("root"));
    upload(&daemon, "root", body).bare(204);
    assert_eq!(tree(&daemon.path("root")), first);
    assert_eq!(
        inode(&daemon.path("root/h")),
        inode(&daemon.path("root/d/f"))
    );
}

fn the_root_may_be_a_link_or_have_dots(driver: Driver) {
    let daemon = Daemon::ready(driver);
    fs::create_dir(daemon.path("real")).expect("the scratch directory is ours");
    symlink("real", daemon.path("link")).expect("the scratch directory is ours");
    upload(&daemon, "link", archive([file("f", "1")])).bare(204);
    tree_is(&daemon.path("real"), &[("f", "file 644 1")]);
    upload(&daemon, "real/../dots", archive([file("f", "2")])).bare(204);
    tree_is(&daemon.path("dots"), &[("f", "file 644 2")]);
    upload(&daemon, "link/sub", archive([file("f", "3")])).bare(204);
    tree_is(&daemon.path("real/sub"), &[("f", "file 644 3")]);
    upload(&daemon, "trailing/", archive([file("f", "4")])).bare(204);
    tree_is(&daemon.path("trailing"), &[("f", "file 644 4")]);
}

fn a_tree_of_thousands_of_files_is_extracted(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let members = (0..2000).map(|number| {
        file(
            format!("d{}/f{number}", number % 50),
            format!("content {number}"),
        )
    });
    upload(&daemon, "root", archive(members)).bare(204);
    for number in 0..2000 {
        let path = daemon.path(&format!("root/d{}/f{number}", number % 50));
        assert_eq!(
            fs::read_to_string(path).expect("it is there"),
            format!("content {number}")
        );
    }
}

fn a_large_file_in_an_archive_is_exact(driver: Driver) {
    let daemon = Daemon::ready(driver);
    for length in [511, 512, 513, 65_536, 1_048_575, 1_048_577, 20_000_000] {
        let members = [
            file("before", "1"),
            file("large", noise(length)),
            file("after", "2"),
        ];
        upload(&daemon, "root", archive(members)).bare(204);
        assert!(
            fs::read(daemon.path("root/large")).expect("it is there") == noise(length),
            "{length}"
        );
        assert_eq!(
            fs::read_to_string(daemon.path("root/after")).expect("it is there"),
            "2"
        );
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
        upload(&daemon, "root", body.clone()).bare(204);
        assert!(fs::read(daemon.path("root/a")).expect("it is there") == noise(1_000_000));
        // One that is refused at its end, and one that is not sent to its end.
        upload(
            &daemon,
            "refused",
            archive([file("a", noise(1_000_000)), file("../b", "2")]),
        )
        .explains(400);
        let mut connection = daemon.connect();
        let bytes = Request::put(tar_at(daemon.path("aborted")))
            .bearer()
            .body(body)
            .bytes();
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
    upload(&daemon, "spooled", body.clone()).bare(204);
    let target = format!("{}&spool=off", tar_at(daemon.path("direct")));
    daemon.put(target, body).bare(204);
    assert_eq!(tree(&daemon.path("direct")), tree(&daemon.path("spooled")));
    let found = fs::metadata(daemon.path("direct/d/f")).expect("it is there");
    assert_eq!(found.mtime(), 1_234_567_890);
    // Without a spool a refusal leaves what came before it.
    let target = format!("{}&spool=off", tar_at(daemon.path("half")));
    let reply = daemon.put(
        target,
        archive([
            file("first", "1"),
            file("../escape", "2"),
            file("third", "3"),
        ]),
    );
    reply.explains(400);
    assert!(!daemon.path("escape").exists() && !daemon.path("half/third").exists());
    assert_eq!(
        fs::read_to_string(daemon.path("half/first")).expect("it stays"),
        "1"
    );
}

fn one_pass_that_is_refused_leaves_what_came_before_as_it_is_to_be(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let before = [
        dir("d").mode(0o500).mtime(1_000_000),
        file("d/f", "1").mode(0o400).mtime(2_000_000),
        file("d/g", "2").mode(0o700).mtime(3_000_000),
    ];
    let whole = archive(before.clone());
    let refused = archive(before.clone().into_iter().chain([file("../escape", "3")]));
    let last = 512 * 5 + 1;
    for (name, body) in [("refused", refused), ("cut", whole[..last].to_vec())] {
        let target = format!("{}&spool=off", tar_at(daemon.path(name)));
        daemon.put(target, body).explains(400);
        let is = |member: &str, expected: (u32, i64)| {
            let path = daemon.path(name).join(member);
            let found = fs::metadata(&path).expect("it was extracted");
            assert_eq!((mode(&path), found.mtime()), expected, "{name}: {member}");
        };
        is("d", (0o500, 1_000_000));
        is("d/f", (0o400, 2_000_000));
        is("d/g", (0o700, 3_000_000));
    }
    let mut connection = daemon.connect();
    let target = format!("{}&spool=off", tar_at(daemon.path("gone")));
    let long = archive(before.into_iter().chain([file("long", noise(900_000))]));
    let bytes = Request::put(target).bearer().body(long).bytes();
    connection.send(&bytes[..bytes.len() - 1]);
    // A reset also takes away what the daemon has not received.
    wait_until("the first members are extracted", || {
        daemon.path("gone/d/g").exists()
    });
    connection.reset();
    wait_until("a client that is gone leaves no less", || {
        fs::metadata(daemon.path("gone/d")).is_ok_and(|found| found.mtime() == 1_000_000)
    });
}
