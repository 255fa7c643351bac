//! What a written file is given besides its bytes: owner, time, holes, and a place on the disk.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;

use crate::daemon::{Daemon, Setup};
use crate::disk::with_disk;
use crate::driver::Driver;
use crate::process::is_root;
use crate::request::{Request, file_at};
use crate::scratch::{mode, names, noise, tree};

both![
    an_owner_is_set_by_number_and_by_name,
    an_owner_that_is_none_is_refused_and_leaves_nothing,
    an_owner_that_may_not_be_set_is_refused_before_the_body,
    a_file_whose_owner_is_not_ours_to_give_lends_no_rights,
    a_time_is_set,
    a_time_that_is_none_is_refused_and_leaves_nothing,
    blocks_of_zeros_become_holes,
    holes_are_kept_whatever_way_the_file_is_written,
    a_synced_file_is_on_the_disk,
    a_file_that_cannot_be_synced_is_an_error,
    what_is_for_regular_files_is_refused_for_others,
    a_flag_is_yes_or_no,
    a_coded_body_becomes_a_sparse_file_of_its_content,
];

fn an_owner_is_set_by_number_and_by_name(driver: Driver) {
    if !is_root("an owner") {
        return;
    }
    let daemon = Daemon::ready(driver);
    for replace in ["", "&replace=in_place"] {
        // Each row goes on from the one before.
        for (owner, expected) in [
            ("", (0, 0)),
            ("&owner=1234:2345", (1234, 2345)),
            ("", (1234, 2345)),
            ("&owner=7", (7, 2345)),
            ("&owner=8:", (8, 2345)),
            ("&owner=:9", (8, 9)),
            ("&owner=root", (0, 9)),
            ("&owner=:root", (0, 0)),
            ("&owner=65534:nogroup", (65534, 65534)),
            ("&owner=0:0", (0, 0)),
        ] {
            let target = format!("{}{owner}{replace}", file_at(daemon.path("f")));
            for body in [noise(10), noise(700_000)] {
                daemon.put(&*target, body).bare(204);
                let found = fs::metadata(daemon.path("f")).expect("it was written");
                assert_eq!((found.uid(), found.gid()), expected, "{owner}{replace}");
            }
        }
        fs::remove_file(daemon.path("f")).expect("it is ours");
        let target = format!("{}&owner=5:6{replace}", file_at(daemon.path("f")));
        daemon.put(target, "x").bare(204);
        let found = fs::metadata(daemon.path("f")).expect("it was written");
        assert_eq!((found.uid(), found.gid()), (5, 6), "{replace}");
        fs::remove_file(daemon.path("f")).expect("it is ours");
    }
    // The rights that a file lends are its owner's: another owner gets them only when they are asked for.
    let target = file_at(daemon.path("f"));
    daemon.put(format!("{target}&mode=6755"), "x").bare(204);
    daemon.put(format!("{target}&owner=5"), "x").bare(204);
    assert_eq!(mode(&daemon.path("f")), 0o2755);
    daemon.put(format!("{target}&owner=:6"), "x").bare(204);
    assert_eq!(mode(&daemon.path("f")), 0o755);
    let both = format!("{target}&owner=7:8&mode=6711");
    daemon.put(both, "x").bare(204);
    assert_eq!(mode(&daemon.path("f")), 0o6711);
}

fn an_owner_that_is_none_is_refused_and_leaves_nothing(driver: Driver) {
    let daemon = Daemon::ready(driver);
    for owner in [
        "",
        ":",
        "1:2:3",
        "no-such-user",
        "0:no-such-group",
        "-1",
        "4294967295",
        "4294967296",
        "0:4294967295",
        "0x1",
        "%200",
    ] {
        let target = format!("{}&owner={owner}", file_at(daemon.path("new/f")));
        let reply = daemon.put(target, "x");
        assert_eq!(reply.status, 400, "{owner}: {reply:?}");
        reply.explains(400);
        assert!(names(&daemon.path("")).is_empty(), "{owner}");
    }
}

fn an_owner_that_may_not_be_set_is_refused_before_the_body(driver: Driver) {
    let Some(daemon) = as_nobody(driver) else {
        return;
    };
    for (name, content) in [("theirs", "old"), ("shut/f", "old")] {
        fs::create_dir_all(daemon.path(name).parent().expect("it has one")).expect("ours");
        fs::write(daemon.path(name), content).expect("the scratch directory is ours");
        allow(&daemon.path(name), 0o666);
    }
    let before = tree(&daemon.path(""));
    for name in ["theirs", "new", "made/new"] {
        for query in ["&owner=0", "&owner=:0", "&owner=0:0&replace=in_place"] {
            let target = format!("{}{query}", file_at(daemon.path(name)));
            let put = Request::put(target).bearer().body(noise(700_000));
            let mut connection = daemon.connect();
            connection.send(put.head());
            let head = connection.head().expect("a response");
            assert_eq!(head.status, 403, "{name}{query}: {head:?}");
            let mut after = tree(&daemon.path(""));
            after.remove("made");
            assert_eq!(after, before, "{name}{query}");
        }
    }
    // What is ours already may be asked for.
    let target = format!("{}&owner=65534:65534", file_at(daemon.path("new")));
    daemon.put(target, "x").bare(204);
    // Where the file is overwritten because its directory may not be written, its owner stays its own.
    for query in ["&owner=0", "&mtime=1"] {
        let target = format!("{}{query}", file_at(daemon.path("shut/f")));
        daemon.put(target, "new").explains(403);
        assert_eq!(
            fs::read(daemon.path("shut/f")).expect("it is there"),
            b"old"
        );
    }
    let times = |name: &str| {
        fs::metadata(daemon.path(name))
            .expect("it is there")
            .mtime()
    };
    let target = format!(
        "{}&mtime=1&replace=in_place",
        file_at(daemon.path("theirs"))
    );
    daemon.put(target, "new").explains(403);
    assert_eq!(
        fs::read(daemon.path("theirs")).expect("it is there"),
        b"old"
    );
    assert!(times("theirs") > 1);
}

fn a_file_whose_owner_is_not_ours_to_give_lends_no_rights(driver: Driver) {
    let Some(daemon) = as_nobody(driver) else {
        return;
    };
    fs::write(daemon.path("f"), "old").expect("the scratch directory is ours");
    allow(&daemon.path("f"), 0o6755);
    daemon.put(file_at(daemon.path("f")), "new").bare(204);
    let found = fs::metadata(daemon.path("f")).expect("it was written");
    assert_eq!((found.uid(), found.gid()), (65534, 65534));
    assert_eq!(mode(&daemon.path("f")), 0o755);
}

fn a_time_is_set(driver: Driver) {
    let daemon = Daemon::ready(driver);
    for replace in ["", "&replace=in_place"] {
        for (text, seconds, nanos) in [
            ("1700000000", 1_700_000_000, 0),
            ("1700000000.5", 1_700_000_000, 500_000_000),
            ("1700000000.123456789", 1_700_000_000, 123_456_789),
            ("0", 0, 0),
            ("-1.5", -2, 500_000_000),
        ] {
            for body in [noise(0), noise(10), noise(700_000)] {
                let target = format!("{}&mtime={text}{replace}", file_at(daemon.path("f")));
                daemon.put(target, body).bare(204);
                let found = fs::metadata(daemon.path("f")).expect("it was written");
                assert_eq!(
                    (found.mtime(), found.mtime_nsec()),
                    (seconds, nanos),
                    "{text}"
                );
            }
        }
    }
    daemon.put(file_at(daemon.path("f")), "x").bare(204);
    let found = fs::metadata(daemon.path("f")).expect("it was written");
    assert!(found.mtime() > 1_700_000_000, "without one it is now");
}

fn a_time_that_is_none_is_refused_and_leaves_nothing(driver: Driver) {
    let daemon = Daemon::ready(driver);
    for text in [
        "",
        "now",
        "1e9",
        "1.",
        "1.0000000001",
        "%2B1",
        "99999999999999999999",
    ] {
        let target = format!("{}&mtime={text}", file_at(daemon.path("new/f")));
        let reply = daemon.put(target, "x");
        assert_eq!(reply.status, 400, "{text}: {reply:?}");
        reply.explains(400);
        assert!(names(&daemon.path("")).is_empty(), "{text}");
    }
}

fn blocks_of_zeros_become_holes(driver: Driver) {
    let daemon = Daemon::ready(driver);
    // Where the data is, in blocks of 4 KiB, in a file of how many bytes.
    let rows: [(&[usize], usize); 8] = [
        (&[], 0),
        (&[], 1),
        (&[], 3 << 20),
        (&[0], 3 << 20),
        (&[767], 3 << 20),
        (&[100, 101, 127, 128, 500], (3 << 20) + 5),
        (&[3], 40_960),
        (&[9], 40_959),
    ];
    for (blocks, length) in rows {
        let mut content = vec![0; length];
        for block in blocks {
            let end = length.min((block + 1) * 4096);
            content[block * 4096..end].copy_from_slice(&noise(end - block * 4096));
        }
        let pieces: Vec<Vec<u8>> = content.chunks(99_999).map(<[u8]>::to_vec).collect();
        let put = Request::put(format!("{}&sparse=1", file_at(daemon.path("f")))).bearer();
        for request in [put.clone().body(content.clone()), put.chunks(pieces)] {
            daemon.call(&request).bare(204);
            assert!(fs::read(daemon.path("f")).expect("it was written") == content);
            let held = fs::metadata(daemon.path("f"))
                .expect("it was written")
                .blocks()
                * 512;
            let most = u64::try_from(blocks.len()).expect("few") * 4096;
            assert!(held <= most, "{held} bytes for {blocks:?} of {length}");
        }
        daemon
            .put(file_at(daemon.path("f")), content.clone())
            .bare(204);
        assert!(fs::read(daemon.path("f")).expect("it was written") == content);
    }
    let held = || {
        fs::metadata(daemon.path("f"))
            .expect("it was written")
            .blocks()
            * 512
    };
    daemon
        .put(file_at(daemon.path("f")), vec![0; 1 << 20])
        .bare(204);
    assert!(held() >= 1 << 20, "without the option zeros are bytes");
}

fn holes_are_kept_whatever_way_the_file_is_written(driver: Driver) {
    let Some(daemon) = as_nobody(driver) else {
        return;
    };
    let mut content = vec![0; 2 << 20];
    content[1 << 20..][..4096].copy_from_slice(&noise(4096));
    for (name, query) in [("f", ""), ("f", "&replace=in_place"), ("shut/f", "")] {
        fs::create_dir_all(daemon.path("shut")).expect("the scratch directory is ours");
        let mut old = noise(3 << 20);
        fs::write(daemon.path(name), &old).expect("the scratch directory is ours");
        allow(&daemon.path(name), 0o666);
        let target = format!("{}&sparse=1{query}", file_at(daemon.path(name)));
        for _ in 0..2 {
            daemon.put(&*target, content.clone()).bare(204);
            assert!(fs::read(daemon.path(name)).expect("it was written") == content);
            let held = fs::metadata(daemon.path(name))
                .expect("it was written")
                .blocks()
                * 512;
            assert!(held <= 8192, "{held} bytes of {name}{query}");
            // What is written over in place leaves nothing of what it was.
            old.truncate(100_000);
            fs::OpenOptions::new()
                .write(true)
                .open(daemon.path(name))
                .and_then(|file| file.write_all_at(&old, 0))
                .expect("the file is ours");
        }
    }
}

fn a_synced_file_is_on_the_disk(driver: Driver) {
    let Some(setup) = with_disk(Setup::new(driver)) else {
        return;
    };
    let daemon = setup.flag("--disk-reserve-bytes", "0").ready();
    for (number, query) in ["", "&replace=in_place", "&mode=600&mtime=5"]
        .iter()
        .enumerate()
    {
        for length in [3000, 1_000_000] {
            let content = noise(length + number);
            let name = format!("made{number}/for-{length}");
            let target = format!("{}&fsync=1{query}", file_at(daemon.disk(&name)));
            daemon.put(&*target, content.clone()).bare(204);
            assert!(daemon.image_holds(&content[..3000]), "{query} {length}");
            assert!(daemon.image_names(&format!("made{number}")));
            assert!(daemon.image_names(&format!("for-{length}")));
            let again = noise(length + 100 + number);
            daemon.put(&*target, again.clone()).bare(204);
            assert!(daemon.image_holds(&again[..3000]), "{query} {length}");
        }
    }
}

fn a_file_that_cannot_be_synced_is_an_error(driver: Driver) {
    let Some(daemon) = as_nobody(driver) else {
        return;
    };
    // A directory that may be written but not read cannot be synced, which is known before the body is there.
    fs::create_dir(daemon.path("dark")).expect("the scratch directory is ours");
    fs::write(daemon.path("dark/f"), "old").expect("the scratch directory is ours");
    allow(&daemon.path("dark"), 0o733);
    allow(&daemon.path("dark/f"), 0o666);
    let target = file_at(daemon.path("dark/f"));
    let put = Request::put(format!("{target}&fsync=1")).bearer();
    let mut connection = daemon.connect();
    connection.send(put.body(noise(700_000)).head());
    let head = connection.head().expect("a response");
    assert_eq!(head.status, 500, "{head:?}");
    assert_eq!(
        fs::read(daemon.path("dark/f")).expect("it is there"),
        b"old"
    );
    daemon.put(target, "new").bare(204);
}

fn what_is_for_regular_files_is_refused_for_others(driver: Driver) {
    let daemon = Daemon::ready(driver);
    crate::files_write::make_fifo(&daemon, "fifo");
    for path in [
        "/dev/null".as_ref(),
        "/proc/self/comm".as_ref(),
        &*daemon.path("fifo"),
    ] {
        let before = fs::read_to_string(format!("/proc/{}/comm", daemon.pid())).expect("it runs");
        for query in ["sparse=1", "owner=0:0", "mtime=1", "fsync=1"] {
            let target = format!("{}&{query}", file_at(path));
            let put = Request::put(target).bearer().body(noise(700_000));
            let mut connection = daemon.connect();
            connection.send(put.head());
            let head = connection.head().expect("a response");
            assert_eq!(head.status, 400, "{} {query}: {head:?}", path.display());
        }
        let after = fs::read_to_string(format!("/proc/{}/comm", daemon.pid())).expect("it runs");
        assert_eq!(after, before);
    }
}

fn a_flag_is_yes_or_no(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let target = file_at(daemon.path("f"));
    for name in ["fsync", "sparse"] {
        for value in ["1", "true", "0", "false"] {
            daemon
                .put(format!("{target}&{name}={value}"), "x")
                .bare(204);
            fs::remove_file(daemon.path("f")).expect("it was written");
        }
        for value in ["", "yes", "2", "1&sparse=1&fsync=1"] {
            daemon
                .put(format!("{target}&{name}={value}"), "x")
                .explains(400);
            assert!(names(&daemon.path("")).is_empty());
        }
    }
}

fn a_coded_body_becomes_a_sparse_file_of_its_content(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let mut content = vec![0; 20 << 20];
    content[5 << 20..][..100].copy_from_slice(&noise(100));
    fs::write(daemon.path("plain"), &content).expect("the scratch directory is ours");
    daemon.script("gzip -1 plain");
    let coded = fs::read(daemon.path("plain.gz")).expect("gzip made it");
    let target = format!(
        "{}&sparse=1&fsync=1&mode=600&mtime=5",
        file_at(daemon.path("f"))
    );
    let put = Request::put(target)
        .bearer()
        .field("content-encoding", "gzip");
    daemon.call(&put.clone().body(coded.clone())).bare(204);
    let found = fs::metadata(daemon.path("f")).expect("it was written");
    assert_eq!((found.mtime(), found.mode() & 0o7777), (5, 0o600));
    assert!(found.blocks() * 512 <= 8192, "{} blocks", found.blocks());
    assert!(fs::read(daemon.path("f")).expect("it was written") == content);
    // A digest that does not fit is found out at the end, and the file is as it was.
    let wrong = put.field(
        "repr-digest",
        "sha-256=:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=:",
    );
    let before = crate::scratch::inode(&daemon.path("f"));
    daemon.call(&wrong.body(coded)).explains(400);
    assert_eq!(crate::scratch::inode(&daemon.path("f")), before);
    for length in [0, 3] {
        let put = Request::put(file_at(daemon.path("f"))).bearer();
        let put = put.field(
            "content-digest",
            "sha-256=:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=:",
        );
        daemon.call(&put.body(noise(length))).explains(400);
        assert_eq!(crate::scratch::inode(&daemon.path("f")), before, "{length}");
    }
}

/// A daemon without rights, in a directory that everybody may write; `None` where we cannot give rights away.
fn as_nobody(driver: Driver) -> Option<Daemon> {
    if !is_root("a daemon without rights") || !Path::new(SETPRIV).exists() {
        return None;
    }
    let setup = Setup::new(driver);
    allow(&setup.path("../tmp"), 0o777);
    allow(&setup.path(""), 0o777);
    let nobody = ["--reuid=65534", "--regid=65534", "--clear-groups"];
    Some(setup.under(&[&[SETPRIV][..], &nobody].concat()).ready())
}

fn allow(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("it is ours");
}

/// Starts a program as another user (util-linux).
const SETPRIV: &str = "/usr/bin/setpriv";
