//! Archives of other programs: extracted, they are what GNU tar makes of them (D14).

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use crate::archive::{Member, archive, dir, file, gnu_long, hard_link, pax, pax_record};
use crate::daemon::Daemon;
use crate::driver::Driver;
use crate::request::tar_at;
use crate::scratch::noise;
use crate::trees::{Exact, exact, same};

both![
    archives_of_gnu_tar_are_what_gnu_tar_makes_of_them,
    sparse_archives_of_gnu_tar_are_what_gnu_tar_makes_of_them,
    archives_of_bsdtar_are_what_gnu_tar_makes_of_them,
    archives_of_python_are_what_gnu_tar_makes_of_them,
    archives_of_go_are_what_gnu_tar_makes_of_them,
    stripped_archives_are_what_gnu_tar_makes_of_them,
    an_archive_of_git_is_what_gnu_tar_makes_of_it,
    a_cpio_archive_is_refused,
];

fn archives_of_gnu_tar_are_what_gnu_tar_makes_of_them(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let (plain, rich) = trees(&daemon);
    for (format, tree) in [
        ("v7", &plain),
        ("oldgnu", &rich),
        ("gnu", &rich),
        ("ustar", &plain),
        ("posix", &rich),
    ] {
        let format = format!("--format={format}");
        compare(
            &daemon,
            &format,
            &made(tree, "tar", &[&format, "-cf", "-", "."]),
        );
        compare(
            &daemon,
            &format,
            &made(tree, "tar", &[&format, "-b1", "-cf", "-", "d", "f"]),
        );
    }
    let options = "--pax-option=exthdr.name=%d/PaxHeaders/%f,delete=atime,delete=ctime";
    compare(
        &daemon,
        options,
        &made(&rich, "tar", &["--format=posix", options, "-cf", "-", "."]),
    );
}

fn sparse_archives_of_gnu_tar_are_what_gnu_tar_makes_of_them(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let tree = daemon.path("sparse");
    fs::create_dir(&tree).expect("ours");
    for (name, size, data) in [
        ("end", 1 << 20, vec![0]),
        ("begin", 1 << 20, vec![(1 << 20) - 4096]),
        (
            "many",
            8 << 20,
            (0..100).map(|number| number * 81_920).collect(),
        ),
        ("wide", 70 << 20, vec![0, (70 << 20) - 8192]),
        ("empty", 1 << 20, vec![]),
    ] {
        let made = fs::File::create(tree.join(name)).expect("ours");
        made.set_len(size).expect("ours");
        for offset in data {
            made.write_all_at(&noise(4096), offset).expect("ours");
        }
    }
    fs::write(tree.join("after"), "text").expect("ours");
    for format in [
        &["--format=gnu"][..],
        &["--format=oldgnu"],
        &["--format=posix", "--sparse-version=0.0"],
        &["--format=posix", "--sparse-version=0.1"],
        &["--format=posix", "--sparse-version=1.0"],
    ] {
        let words = [format, &["--sparse", "-cf", "-", "."]].concat();
        compare(&daemon, &format.join(" "), &made(&tree, "tar", &words));
    }
    compare(
        &daemon,
        "bsdtar",
        &made(&tree, "bsdtar", &["--format=pax", "-cf", "-", "."]),
    );
}

fn archives_of_bsdtar_are_what_gnu_tar_makes_of_them(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let (plain, rich) = trees(&daemon);
    for (format, tree) in [
        ("pax", &rich),
        ("ustar", &plain),
        ("gnutar", &rich),
        ("v7", &plain),
        ("paxr", &rich),
    ] {
        compare(
            &daemon,
            format,
            &made(tree, "bsdtar", &["--format", format, "-cf", "-", "."]),
        );
    }
}

fn archives_of_python_are_what_gnu_tar_makes_of_them(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let (plain, rich) = trees(&daemon);
    let script = "import sys, tarfile\n\
        t = tarfile.open(fileobj=sys.stdout.buffer, mode='w|', format=getattr(tarfile, sys.argv[1]))\n\
        t.add('.')\n\
        t.close()\n";
    for (format, tree) in [
        ("USTAR_FORMAT", &plain),
        ("GNU_FORMAT", &rich),
        ("PAX_FORMAT", &rich),
    ] {
        compare(
            &daemon,
            format,
            &made(tree, "python3", &["-c", script, format]),
        );
    }
}

/// As Go's archive/tar writes them: a header of POSIX with what fits, records for the rest.
fn archives_of_go_are_what_gnu_tar_makes_of_them(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let long = format!("{}/{}", "directory".repeat(20), "name".repeat(50));
    let target = "t".repeat(220);
    let records = |records: &[(&str, &str)]| pax(b'x', records);
    let mut raw = pax_record("path", b"caf\xc3\xa9/\xff\n");
    raw.extend(pax_record("GNU.unknown", b"1"));
    let members = [
        records(&[("path", &long), ("mtime", "1600000000.000000001")]),
        file("short", noise(700)),
        records(&[("linkpath", &target)]),
        Member::new(b'2', "link").link("short"),
        records(&[("mtime", "-1.5")]),
        file("before-1970", "1").mtime(0),
        records(&[("mtime", "-86400")]),
        dir("d/"),
        records(&[
            ("uid", "2147483647"),
            ("gid", "2097152"),
            ("uname", "nobody"),
        ]),
        file("d/owned", "2"),
        records(&[("size", "1500")]),
        file("sized", noise(1500)).size(0),
        Member::new(b'x', "PaxHeaders.0/raw").data(raw),
        file("raw", "3"),
        // What GNU programs do, in the same archive.
        gnu_long(b'K', &long),
        gnu_long(b'L', "e/".repeat(90)),
        hard_link("x", "y").gnu(),
        file("base256-time", "4").gnu().patch(
            136,
            [
                0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xfe, 0,
            ],
        ),
        file("base256-size", "5")
            .gnu()
            .patch(124, [0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]),
        pax(b'g', &[("comment", "1234")]),
        file("last", ""),
    ];
    compare(&daemon, "Go", &archive(members));
}

fn stripped_archives_are_what_gnu_tar_makes_of_them(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let (_, rich) = trees(&daemon);
    // Closer to the root this link would lead out of it, which is refused here.
    fs::remove_file(rich.join("d/up")).expect("ours");
    let pack = ["--format=posix", "-cf", "-", "d", "f"];
    let whole = made(&rich, "tar", &pack);
    let dotted = made(&rich, "bsdtar", &["--format", "pax", "-cf", "-", "./d"]);
    for strip in 0..4 {
        compare_stripped(&daemon, "names with a dot", &dotted, strip);
        // Further than that nothing is left of the target of a hard link.
        if strip < 2 {
            compare_stripped(&daemon, "names", &whole, strip);
        }
    }
}

fn an_archive_of_git_is_what_gnu_tar_makes_of_it(driver: Driver) {
    let daemon = Daemon::ready(driver);
    // `git archive` begins with a global header that names the commit.
    let members = [
        pax(
            b'g',
            &[("comment", "0123456789012345678901234567890123456789")],
        ),
        dir("project-1.0/").mode(0o775),
        file("project-1.0/README", "text").mode(0o664),
        Member::new(b'2', "project-1.0/link")
            .link("README")
            .mode(0o777),
    ];
    for strip in 0..2 {
        compare_stripped(&daemon, "git", &archive(members.clone()), strip);
    }
}

fn a_cpio_archive_is_refused(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let (plain, _) = trees(&daemon);
    for format in ["cpio", "newc"] {
        let body = made(&plain, "bsdtar", &["--format", format, "-cf", "-", "."]);
        let reply = daemon.put(tar_at(daemon.path("root")), body).explains(400);
        assert!(reply.text().contains("cpio"), "{reply:?}");
        assert!(!daemon.path("root").exists());
    }
}

/// A tree that every format can hold, and one that only the newer ones can.
fn trees(daemon: &Daemon) -> (std::path::PathBuf, std::path::PathBuf) {
    let plain = daemon.path("plain");
    fs::create_dir_all(plain.join("d/e")).expect("ours");
    fs::create_dir(plain.join("empty")).expect("ours");
    for (name, size, mode) in [
        ("f", 1000, 0o644),
        ("d/program", 512, 0o755),
        ("d/e/none", 0, 0o600),
        ("d/large", 2 << 20, 0o444),
        ("d/e/block", 1024, 0o640),
    ] {
        fs::write(plain.join(name), noise(size)).expect("ours");
        fs::set_permissions(plain.join(name), fs::Permissions::from_mode(mode)).expect("ours");
        touch(
            &plain.join(name),
            1_000_000_000 + i64::try_from(size).expect("small"),
            0,
        );
    }
    symlink("d/e/none", plain.join("link")).expect("ours");
    symlink("../f", plain.join("d/up")).expect("ours");
    fs::hard_link(plain.join("f"), plain.join("d/e/same")).expect("ours");
    for (name, time) in [("link", 5), ("d/e", 6), ("d", 7), ("empty", 8)] {
        touch(&plain.join(name), time, 0);
    }
    let rich = daemon.path("rich");
    let copied = Command::new("cp").arg("-a").args([&plain, &rich]).status();
    assert!(copied.expect("cp runs").success());
    let long = "n".repeat(200);
    fs::create_dir_all(rich.join(&long).join(&long)).expect("ours");
    for name in [
        OsStr::new("d/with\nnewline"),
        OsStr::new("d/\u{fc}mlaut \u{20ac}"),
        OsStr::from_bytes(b"d/caf\xe9"),
        OsStr::new("d/ blanks "),
        OsStr::new("d/back\\slash\""),
        OsStr::new(&format!("{long}/{long}/{long}")),
        OsStr::new(&format!("{}/x", &long)),
        OsStr::new(&"x".repeat(100)),
        OsStr::new(&"x".repeat(101)),
        OsStr::new(&"x".repeat(255)),
    ] {
        fs::write(rich.join(name), name.as_bytes()).expect("ours");
        touch(&rich.join(name), -86_400, 123_456_789);
    }
    symlink(format!("{long}/{long}"), rich.join("to")).expect("ours");
    fs::hard_link(
        rich.join(format!("{long}/{long}/{long}")),
        rich.join("hard"),
    )
    .expect("ours");
    (plain, rich)
}

fn touch(path: &Path, secs: i64, nanos: i64) {
    let time = rustix::fs::Timespec {
        tv_sec: secs,
        tv_nsec: nanos,
    };
    let times = rustix::fs::Timestamps {
        last_access: time,
        last_modification: time,
    };
    let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
    rustix::fs::utimensat(rustix::fs::CWD, path, &times, flags).expect("ours");
}

/// What a program writes that packs in a directory.
#[track_caller]
fn made(dir: &Path, program: &str, words: &[&str]) -> Vec<u8> {
    let output = Command::new(program)
        .args(words)
        .current_dir(dir)
        .env("LC_ALL", "C.UTF-8")
        .output()
        .unwrap_or_else(|error| panic!("{program}: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {words:?}: {said}");
    output.stdout
}

#[track_caller]
fn compare(daemon: &Daemon, what: &str, body: &[u8]) {
    compare_stripped(daemon, what, body, 0);
}

#[track_caller]
fn compare_stripped(daemon: &Daemon, what: &str, body: &[u8], strip: u32) {
    let expected = daemon.path("expected");
    fs::create_dir(&expected).expect("ours");
    let packed = daemon.path("packed");
    fs::write(&packed, body).expect("ours");
    let tar = Command::new("tar")
        .arg(format!("--strip-components={strip}"))
        .args(["--no-same-owner", "--warning=none", "-pxf"])
        .args([&packed, Path::new("-C"), &expected])
        .output();
    let tar = tar.expect("tar runs");
    let said = String::from_utf8_lossy(&tar.stderr);
    assert!(tar.status.success(), "{what}: {said}");
    let wanted = judged(&expected);
    for way in ["", "&spool=off"] {
        let root = daemon.path("found");
        let target = format!("{}&strip={strip}{way}", tar_at(&root));
        let reply = daemon.put(target, body);
        assert_eq!(reply.status, 204, "{what}{way}: {reply:?}");
        let mut found = judged(&root);
        for (name, about) in &mut found {
            // GNU tar forgets the time of a directory whose content comes later than that of its neighbours.
            let forgotten = wanted
                .get(name)
                .is_some_and(|wanted| wanted.mtime == (0, 0));
            if about.kind == 'd' && forgotten {
                about.mtime = (0, 0);
            }
        }
        same(&format!("{what}, strip={strip}{way}"), &found, &wanted);
        fs::remove_dir_all(&root).expect("ours");
    }
    fs::remove_dir_all(&expected).expect("ours");
}

/// A tree as it is to be under the rules of modes; times of directories that no member names are not compared.
fn judged(root: &Path) -> Exact {
    let mut seen = exact(root);
    for (name, about) in &mut seen {
        if about.kind != 'l' {
            about.mode &= 0o755;
        }
        let now = about.mtime.0 > 1_700_000_000;
        if name.as_os_str().is_empty() || (about.kind == 'd' && now) {
            about.mtime = (0, 0);
        }
    }
    seen
}
