//! Large members: received where they belong, and put in place when the whole archive has been checked (D14).

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use crate::archive::{Member, archive, dir, file, hard_link, pax, symlink as link, upload};
use crate::daemon::{Daemon, Setup};
use crate::driver::Driver;
use crate::process::is_root;
use crate::request::{Request, tar_at};
use crate::scratch::{inode, mode, noise};
use crate::trees::{exact, same};

both![
    large_members_are_exact_wherever_they_stand,
    a_large_member_is_written_once_and_never_to_the_spool,
    a_large_member_has_its_mode_and_time,
    a_large_member_over_a_file_keeps_the_partners_of_that_file,
    links_to_a_large_member_are_made,
    the_last_of_two_large_members_wins,
    a_refusal_after_large_members_changes_nothing,
    an_upload_that_breaks_off_in_a_large_member_changes_nothing,
    a_large_member_goes_to_the_filesystem_of_its_place,
    a_large_member_inherits_from_its_directory,
    what_has_no_room_is_refused_before_anything_is_written,
];

const LARGE: usize = 3 << 20;

fn large_members_are_exact_wherever_they_stand(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let sizes = [
        1 << 20,
        (2 << 20) + 1,
        (3 << 20) - 1,
        (4 << 20) + 511,
        5 << 20,
        100,
        6 << 20,
        1 << 20,
        0,
        7 << 20,
    ];
    let members = sizes
        .iter()
        .enumerate()
        .map(|(number, size)| file(format!("d{}/f{number}", number % 3), noise(*size)));
    let body = archive(members);
    for (root, way) in [("on", ""), ("off", "&spool=off")] {
        daemon
            .put(format!("{}{way}", tar_at(daemon.path(root))), body.clone())
            .bare(204);
        for (number, size) in sizes.into_iter().enumerate() {
            let path = daemon.path(root).join(format!("d{}/f{number}", number % 3));
            assert!(
                fs::read(path).expect("it is there") == noise(size),
                "{size}"
            );
        }
    }
    same(
        "on",
        &with_no_times(&daemon.path("on")),
        &with_no_times(&daemon.path("off")),
    );
    assert!(
        fs::read_dir(daemon.temporary())
            .expect("ours")
            .next()
            .is_none()
    );
}

fn a_large_member_is_written_once_and_never_to_the_spool(driver: Driver) {
    if !is_root("a spool that is too small for a member") {
        return;
    }
    let setup = Setup::new(driver);
    fs::create_dir(setup.path("spool")).expect("ours");
    let spool = setup.path("spool").to_str().expect("ASCII").to_owned();
    let daemon = setup
        .with_mount("-t tmpfs -o size=1m tmpfs spool")
        .flag("--spool-dir", spool)
        .flag("--spool-memory-bytes", "0")
        .flag("--disk-reserve-bytes", "0")
        .ready();
    upload(
        &daemon,
        "new/root",
        archive([file("a", noise(LARGE)), file("b", "2")]),
    )
    .bare(204);
    upload(&daemon, "new/root", archive([file("c/d", noise(LARGE))])).bare(204);
    for name in ["a", "c/d"] {
        let found = fs::read(daemon.path("new/root").join(name)).expect("it is there");
        assert!(found == noise(LARGE), "{name}");
    }
}

fn a_large_member_has_its_mode_and_time(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let large =
        |name: &str, mode: u32| file(name, noise(2 * LARGE)).mode(mode).mtime(1_234_567_890);
    let members = [
        pax(b'x', &[("mtime", "1234567890.123456789")]),
        large("fine", 0o644),
        large("read-only", 0o444),
        large("nothing", 0),
        large("special", 0o6777),
    ];
    upload(&daemon, "root", archive(members)).bare(204);
    for (name, expected) in [
        ("fine", 0o644),
        ("read-only", 0o444),
        ("nothing", 0),
        ("special", 0o755),
    ] {
        let path = daemon.path("root").join(name);
        assert_eq!(mode(&path), expected, "{name}");
        let found = fs::symlink_metadata(&path).expect("it is there");
        assert_eq!((found.mtime(), found.nlink()), (1_234_567_890, 1), "{name}");
    }
    let fine = fs::metadata(daemon.path("root/fine")).expect("it is there");
    assert_eq!(fine.mtime_nsec(), 123_456_789);
}

fn a_large_member_over_a_file_keeps_the_partners_of_that_file(driver: Driver) {
    let daemon = Daemon::ready(driver);
    fs::create_dir(daemon.path("root")).expect("ours");
    fs::write(daemon.path("root/f"), noise(2 * LARGE)).expect("ours");
    fs::hard_link(daemon.path("root/f"), daemon.path("partner")).expect("ours");
    let before = inode(&daemon.path("root/f"));
    upload(
        &daemon,
        "root",
        archive([file("f", noise(LARGE)).mode(0o755)]),
    )
    .bare(204);
    assert_eq!(inode(&daemon.path("root/f")), before);
    assert_eq!(mode(&daemon.path("partner")), 0o755);
    assert!(fs::read(daemon.path("partner")).expect("it is there") == noise(LARGE));
    // What is no file is not replaced.
    fs::create_dir(daemon.path("root/d")).expect("ours");
    std::os::unix::fs::symlink("f", daemon.path("root/s")).expect("ours");
    let before = exact(&daemon.path(""));
    upload(&daemon, "root", archive([file("d", noise(LARGE))])).explains(500);
    upload(&daemon, "root", archive([file("s", noise(LARGE))])).explains(400);
    upload(&daemon, "root", archive([file("s/x", noise(LARGE))])).explains(400);
    same("a refusal", &exact(&daemon.path("")), &before);
}

fn links_to_a_large_member_are_made(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let members = [
        dir("d"),
        file("d/f", noise(LARGE)),
        hard_link("h", "d/f"),
        link("s", "d/f"),
    ];
    upload(&daemon, "root", archive(members)).bare(204);
    assert_eq!(
        inode(&daemon.path("root/h")),
        inode(&daemon.path("root/d/f"))
    );
    assert!(fs::read(daemon.path("root/s")).expect("it is there") == noise(LARGE));
}

fn the_last_of_two_large_members_wins(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let members = [
        file("f", noise(2 * LARGE)),
        file("f", noise(LARGE)).mode(0o600),
        file("g", noise(2 * LARGE)),
        file("g", "short"),
        file("h", "short"),
        file("h", noise(4 * LARGE)),
    ];
    upload(&daemon, "root", archive(members)).bare(204);
    let is = |name: &str, content: Vec<u8>| {
        assert!(
            fs::read(daemon.path("root").join(name)).expect("it is there") == content,
            "{name}"
        );
    };
    is("f", noise(LARGE));
    is("g", b"short".to_vec());
    is("h", noise(4 * LARGE));
    assert_eq!(mode(&daemon.path("root/f")), 0o600);
}

fn a_refusal_after_large_members_changes_nothing(driver: Driver) {
    let daemon = Daemon::ready(driver);
    upload(
        &daemon,
        "root",
        archive([file("f", noise(LARGE)), dir("d")]),
    )
    .bare(204);
    let open = daemon.at_rest();
    let large = [
        file("f", noise(2 * LARGE)),
        file("d/new", noise(2 * LARGE)),
        file("e/new", noise(4 * LARGE)),
    ];
    let before = exact(&daemon.path(""));
    let refusals: [(u16, Vec<Member>); 4] = [
        (400, vec![file("../escape", "x")]),
        (400, vec![Member::new(b'6', "fifo")]),
        (500, vec![file("d", "x")]),
        (400, vec![link("s", "d"), file("s/f", "x")]),
    ];
    for root in ["root", "absent"] {
        for (status, more) in &refusals {
            if root == "absent" && *status == 500 {
                continue;
            }
            let body = archive(large.iter().chain(more).cloned());
            upload(&daemon, root, body).explains(*status);
            same("a refusal", &exact(&daemon.path("")), &before);
        }
    }
    daemon.holds_at_most(open);
}

fn an_upload_that_breaks_off_in_a_large_member_changes_nothing(driver: Driver) {
    let daemon = Daemon::ready(driver);
    upload(&daemon, "root", archive([file("f", "old")])).bare(204);
    let open = daemon.at_rest();
    let before = exact(&daemon.path(""));
    let request = Request::put(tar_at(daemon.path("root"))).bearer();
    let bytes = request
        .body(archive([
            file("f", noise(4 * LARGE)),
            file("g", noise(4 * LARGE)),
        ]))
        .bytes();
    for sent in [LARGE, 5 * LARGE, bytes.len() - 1] {
        let mut connection = daemon.connect();
        connection.send(&bytes[..sent]);
        connection.reset();
    }
    daemon.holds_at_most(open);
    same(
        "an upload that broke off",
        &exact(&daemon.path("")),
        &before,
    );
}

fn a_large_member_goes_to_the_filesystem_of_its_place(driver: Driver) {
    if !is_root("a filesystem below the root") {
        return;
    }
    let setup = Setup::new(driver);
    fs::create_dir_all(setup.path("root/mount")).expect("ours");
    let daemon = setup
        .with_mount("-t tmpfs -o size=40m tmpfs root/mount")
        .flag("--disk-reserve-bytes", "0")
        .ready();
    let members = [
        file("mount/f", noise(LARGE)),
        file("mount/new/f", noise(LARGE)),
        file("beside", noise(LARGE)),
    ];
    upload(&daemon, "root", archive(members)).bare(204);
    let script = "stat -c %d root/mount/f root/mount/new/f root/mount | uniq | wc -l; cmp root/mount/f root/beside && cmp root/mount/new/f root/beside && echo equal";
    assert_eq!(daemon.script(script)["stdout"], "1\nequal\n");
    assert!(fs::read(daemon.path("root/beside")).expect("it is there") == noise(LARGE));
}

fn a_large_member_inherits_from_its_directory(driver: Driver) {
    if !is_root("the group of a directory") {
        return;
    }
    let daemon = Daemon::ready(driver);
    for name in ["root", "root/shared", "root/plain"] {
        fs::create_dir(daemon.path(name)).expect("ours");
    }
    std::os::unix::fs::chown(daemon.path("root/shared"), None, Some(1234)).expect("root may");
    let shared = fs::Permissions::from_mode(0o2775);
    fs::set_permissions(daemon.path("root/shared"), shared).expect("ours");
    let members = [
        file("shared/f", noise(LARGE)),
        file("shared/a/b/f", noise(LARGE)),
        file("plain/f", noise(4 * LARGE)),
    ];
    upload(&daemon, "root", archive(members)).bare(204);
    for (name, group) in [("shared/f", 1234), ("shared/a/b/f", 1234), ("plain/f", 0)] {
        let found = fs::metadata(daemon.path("root").join(name)).expect("it is there");
        assert_eq!(found.gid(), group, "{name}");
    }
}

fn what_has_no_room_is_refused_before_anything_is_written(driver: Driver) {
    if !is_root("a small filesystem") {
        return;
    }
    let setup = Setup::new(driver);
    fs::create_dir(setup.path("small")).expect("ours");
    let daemon = setup
        .with_mount("-t tmpfs -o size=16m tmpfs small")
        .flag("--disk-reserve-bytes", "1000000")
        .ready();
    let ten = archive([file("f", noise(10 << 20))]);
    upload(&daemon, "small/root", ten).bare(204);
    assert_eq!(
        daemon.script("stat -c %s small/root/f")["stdout"],
        format!("{}\n", 10 << 20)
    );
    // A second one has no room, and that is found out before anything is written.
    let listing = "find small -printf '%p %T@ %s\\n' | sort";
    let before = daemon.script(listing)["stdout"].clone();
    let more = archive([file("small", "x"), file("g", noise(10 << 20))]);
    upload(&daemon, "small/root", more).explains(507);
    assert_eq!(daemon.script(listing)["stdout"], before);
    // Members that take room only after others have given it back.
    let other = [
        file("f", "short"),
        file("g", noise(10 << 20)),
        file("f", noise(2 << 20)),
    ];
    upload(&daemon, "small/root", archive(other)).bare(204);
    let sizes = daemon.script("stat -c %s small/root/f small/root/g");
    assert_eq!(sizes["stdout"], format!("{}\n{}\n", 2 << 20, 10 << 20));
    // In another order they do not fit.
    let before = daemon.script(listing)["stdout"].clone();
    let order = [file("h", noise(5 << 20)), file("g", "short")];
    upload(&daemon, "small/root", archive(order)).explains(507);
    assert_eq!(daemon.script(listing)["stdout"], before);
}

/// A tree without what differs from one extraction to the next: times of directories that no member names.
fn with_no_times(root: &Path) -> crate::trees::Exact {
    let mut seen = exact(root);
    for about in seen.values_mut().filter(|about| about.kind == 'd') {
        about.mtime = (0, 0);
    }
    seen
}
