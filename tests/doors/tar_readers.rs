//! Archives that we pack, extracted by GNU tar, bsdtar and Python, and the bytes that they consist of.

use std::ffi::OsStr;
use std::fs::{self, FileTimes};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, UNIX_EPOCH};

use rustix::fs::XattrFlags;

use crate::archive::{Member, archive, dir, file, hard_link};
use crate::daemon::Daemon;
use crate::driver::Driver;
use crate::process::is_root;
use crate::request::tar_at;
use crate::scratch::{Scratch, Tree, noise, tree};

both![
    other_programs_extract_the_same_tree,
    attributes_are_restored_by_those_who_can,
    an_archive_is_these_bytes,
];

/// The programs, and how they extract `archive.tar` into `out`.
const PROGRAMS: [(&str, &[&str]); 3] = [
    (
        "tar",
        &[
            "--xattrs",
            "--xattrs-include=*",
            "--acls",
            "-xpf",
            "archive.tar",
            "-C",
            "out",
        ],
    ),
    (
        "bsdtar",
        &["--xattrs", "--acls", "-xpf", "archive.tar", "-C", "out"],
    ),
    (
        "python3",
        &[
            "-c",
            "import tarfile; tarfile.open('archive.tar').extractall('out', filter='fully_trusted')",
        ],
    ),
];

fn other_programs_extract_the_same_tree(driver: Driver) {
    let daemon = Daemon::ready(driver);
    odd_tree(&daemon.path("t"));
    let root = is_root("owners that are kept");
    for query in [
        "",
        "precise=1",
        "xattrs=1&precise=1",
        "include=*&exclude=none",
    ] {
        let target = format!("{}&{query}", tar_at(daemon.path("t")));
        let packed = daemon.get(target).is(200).body;
        for (program, arguments) in PROGRAMS {
            let Some(scratch) = extracted(&packed, program, arguments) else {
                continue;
            };
            let out = scratch.path().join("out");
            assert_eq!(tree(&out), tree(&daemon.path("t")), "{program}, {query}");
            let exact = query.contains("precise") && program != "python3";
            let mut expected = picture(&daemon.path("t"), root, exact);
            let mut found = picture(&out, root, exact);
            // One leaves the time of the directory that it extracts into, the other those of symbolic links.
            let unset: &[&str] = match program {
                "bsdtar" => &[""],
                "python3" => &["far", "soft"],
                _ => &[],
            };
            for name in unset {
                expected.remove(*name);
                found.remove(*name);
            }
            assert_eq!(found, expected, "{program}, {query}");
            let sparse = fs::metadata(out.join("sparse")).expect("it is there");
            assert!(sparse.blocks() * 512 < 1 << 20, "{program} keeps the holes");
        }
    }
}

fn attributes_are_restored_by_those_who_can(driver: Driver) {
    if !is_root("capabilities") {
        return;
    }
    let daemon = Daemon::ready(driver);
    fs::create_dir_all(daemon.path("t/d")).expect("the scratch directory is ours");
    for name in ["t/f", "t/d/g", "t/plain"] {
        fs::write(daemon.path(name), name).expect("the scratch directory is ours");
    }
    let set = |name: &str, key: &str, value: &[u8]| {
        rustix::fs::setxattr(daemon.path(name), key, value, XattrFlags::empty())
    };
    if set("t/f", "user.probe", b"").is_err() {
        println!("attributes are not supported below the temporary directory");
        return;
    }
    let large = noise(2000);
    for (name, key, value) in [
        ("t/f", "user.binary", b"\0\n=\xff" as &[u8]),
        ("t/f", "user.large", &large),
        ("t/d", "user.dir", b"of a directory"),
        ("t", "user.root", b"of the root"),
        ("t/d/g", "security.capability", CAPABILITY),
        ("t/d/g", "trusted.hidden", b"not told"),
    ] {
        set(name, key, value).expect(key);
    }
    let with_acl = set("t/f", "system.posix_acl_access", &acl()).is_ok()
        && set("t/d", "system.posix_acl_default", &acl()).is_ok();
    let plain = daemon.get(tar_at(daemon.path("t"))).is(200).body;
    assert!(!String::from_utf8_lossy(&plain).contains("SCHILY"));
    let packed = daemon
        .get(format!("{}&xattrs=1", tar_at(daemon.path("t"))))
        .is(200)
        .body;
    let text = String::from_utf8_lossy(&packed);
    assert!(!text.contains("trusted.hidden"));
    if with_acl {
        let told = "SCHILY.acl.access=user::rw-,user:1000:rwx,group::r--,mask::rwx,other::r--\n";
        assert!(text.contains(told));
        assert!(text.contains("SCHILY.acl.default=user::rw-"));
    }
    for (program, arguments) in &PROGRAMS[..2] {
        let Some(scratch) = extracted(&packed, program, arguments) else {
            continue;
        };
        let out = scratch.path().join("out");
        let same = |name: &str, key: &str| {
            let of = |root: &Path| {
                let mut value = vec![0; 4096];
                let length = rustix::fs::getxattr(root.join(name), key, &mut value[..]);
                length.map(|length| value[..length].to_vec()).ok()
            };
            let expected = of(&daemon.path("t"));
            assert!(expected.is_some(), "{name} {key}");
            assert_eq!(of(&out), expected, "{program}: {name} {key}");
        };
        for (name, key) in [
            ("f", "user.probe"),
            ("f", "user.binary"),
            ("f", "user.large"),
            ("d", "user.dir"),
            ("", "user.root"),
            ("d/g", "security.capability"),
        ] {
            same(name, key);
        }
        if with_acl {
            same("f", "system.posix_acl_access");
            same("d", "system.posix_acl_default");
        }
    }
}

fn an_archive_is_these_bytes(driver: Driver) {
    let daemon = Daemon::ready(driver);
    fs::create_dir_all(daemon.path("t/d")).expect("the scratch directory is ours");
    fs::write(daemon.path("t/d/f"), noise(1000)).expect("the scratch directory is ours");
    fs::hard_link(daemon.path("t/d/f"), daemon.path("t/h")).expect("the scratch directory is ours");
    symlink("d/f", daemon.path("t/s")).expect("the scratch directory is ours");
    for (name, mode) in [("d/f", 0o640), ("d", 0o750), ("", 0o755)] {
        let path = daemon.path("t").join(name);
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("ours");
        touch(&path, 1_000_000_000, 0);
    }
    let (owner, group) = fs::metadata(daemon.path("t"))
        .map(|meta| (meta.uid(), meta.gid()))
        .expect("it is there");
    let ours = |member: Member| {
        // The magic of GNU tar; the group has a field of its own.
        member
            .gnu()
            .owner(owner)
            .patch(116, format!("{group:07o}\0"))
    };
    let expected = archive([
        ours(dir("./").mode(0o755)),
        ours(dir("d").mode(0o750)),
        ours(file("d/f", noise(1000)).mode(0o640)),
        ours(hard_link("h", "d/f").mode(0o640)),
    ]);
    let packed = daemon
        .get(format!("{}&exclude=s", tar_at(daemon.path("t"))))
        .is(200)
        .body;
    let [packed, expected] = [packed, expected].map(without_checksums);
    let differ = packed.iter().zip(&expected).position(|(a, b)| a != b);
    assert_eq!((differ, packed.len()), (None, expected.len()));
}

/// Blanks the field that everybody fills in another way, in the headers of that archive.
fn without_checksums(mut bytes: Vec<u8>) -> Vec<u8> {
    for at in [0, 512, 1024, 2560] {
        bytes[at + 148..at + 156].fill(b' ');
    }
    bytes
}

/// The archive as a program extracts it; `None` when it is not installed.
fn extracted(packed: &[u8], program: &str, arguments: &[&str]) -> Option<Scratch> {
    let scratch = Scratch::new();
    fs::write(scratch.path().join("archive.tar"), packed).expect("the scratch directory is ours");
    fs::create_dir(scratch.path().join("out")).expect("the scratch directory is ours");
    let run = Command::new(program)
        .args(arguments)
        .env("LC_ALL", "C.UTF-8")
        .current_dir(scratch.path())
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{program}: {text}");
    Some(scratch)
}

/// Everything that an archive can hold.
fn odd_tree(root: &Path) {
    fs::create_dir_all(root.join("d/empty")).expect("the scratch directory is ours");
    let long = format!("{}/{}", "long".repeat(40), "n".repeat(200));
    fs::create_dir_all(root.join(&long)).expect("the scratch directory is ours");
    for (index, name) in ["f", "d/g", "d/\u{fc}ber", "d/with space", "d/-dash", "zero"]
        .iter()
        .enumerate()
    {
        fs::write(root.join(name), noise(index * 700)).expect("the scratch directory is ours");
    }
    fs::write(root.join(&long).join("leaf"), "leaf").expect("the scratch directory is ours");
    fs::write(root.join("d").join(OsStr::from_bytes(b"caf\xe9")), "latin").expect("ours");
    for (name, mode) in [("f", 0o4751), ("d/g", 0o400), ("d", 0o2750), ("zero", 0o0)] {
        fs::set_permissions(root.join(name), fs::Permissions::from_mode(mode)).expect("ours");
    }
    fs::hard_link(root.join("f"), root.join("hard")).expect("the scratch directory is ours");
    symlink("d/g", root.join("soft")).expect("the scratch directory is ours");
    symlink("t".repeat(300), root.join("far")).expect("the scratch directory is ours");
    let mode = rustix::fs::Mode::from_raw_mode(0o640);
    rustix::fs::mkfifoat(rustix::fs::CWD, root.join("fifo"), mode).expect("ours");
    for name in ["sparse", "d/sparse-\u{fc}"] {
        let sparse = fs::File::create(root.join(name)).expect("the scratch directory is ours");
        for at in 0..8 {
            sparse
                .write_all_at(&noise(3000), at << 20)
                .expect("it is ours");
        }
        sparse.set_len(20 << 20).expect("it is ours");
    }
    let hole = fs::File::create(root.join("hole")).expect("the scratch directory is ours");
    hole.set_len(1 << 20).expect("it is ours");
    for (index, name) in ["f", "d/g", "sparse", "hole", "d/empty", "d", ""]
        .iter()
        .enumerate()
    {
        touch(&root.join(name), 1_000_000_000 + index as u64, 123_456_700);
    }
}

fn touch(path: &Path, seconds: u64, nanos: u32) {
    let time = UNIX_EPOCH + Duration::new(seconds, nanos);
    let times = FileTimes::new().set_modified(time);
    let file = fs::File::open(path).expect("it is there");
    file.set_times(times).expect("it is ours");
}

/// Times, owners and numbers of links.
fn picture(root: &Path, owners: bool, exact: bool) -> Tree {
    let mut seen = Tree::new();
    for name in tree(root).into_keys().chain([String::new()]) {
        // Some names are no UTF-8, and their pictures show only that.
        let Ok(meta) = fs::symlink_metadata(root.join(&name)) else {
            continue;
        };
        let owner = if owners {
            (meta.uid(), meta.gid())
        } else {
            (0, 0)
        };
        let nanos = if exact { meta.mtime_nsec() } else { 0 };
        let links = if meta.is_dir() { 0 } else { meta.nlink() };
        let about = format!("{}.{nanos} {owner:?} {links} links", meta.mtime());
        seen.insert(name, about);
    }
    seen
}

/// `cap_net_bind_service=ep` as the kernel keeps it (version 2).
const CAPABILITY: &[u8] = &[1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// `u::rw-,u:1000:rwx,g::r--,m::rwx,o::r--` as the kernel keeps it.
fn acl() -> Vec<u8> {
    let mut value = 2u32.to_le_bytes().to_vec();
    for (tag, bits, id) in [
        (1u16, 6u16, u32::MAX),
        (2, 7, 1000),
        (4, 4, u32::MAX),
        (0x10, 7, u32::MAX),
        (0x20, 4, u32::MAX),
    ] {
        value.extend(tag.to_le_bytes());
        value.extend(bits.to_le_bytes());
        value.extend(id.to_le_bytes());
    }
    value
}
