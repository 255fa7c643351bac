//! What a caller may ask of an extraction beyond the members themselves: strip, owner, xattrs.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::archive::{Member, archive, dir, file, hard_link, pax, pax_record, symlink as link};
use crate::daemon::{Daemon, Setup};
use crate::driver::Driver;
use crate::process::is_root;
use crate::reply::Reply;
use crate::request::tar_at;
use crate::scratch::{inode, mode, noise, tree, tree_is};
use crate::trees::{exact, same};

both![
    leading_components_are_stripped,
    targets_of_hard_links_are_stripped_too,
    confinement_is_judged_after_stripping,
    what_is_stripped_away_still_counts,
    an_option_that_is_none_is_refused,
    owners_are_kept_when_root_is_asked_to,
    an_owner_that_no_system_has_is_refused,
    a_daemon_without_the_right_refuses_to_keep_owners,
    attributes_are_set_when_asked_for,
    an_attribute_that_cannot_be_set_is_a_failure,
    a_mode_in_the_query_is_ignored,
];

const WAYS: [&str; 2] = ["", "&spool=off"];

fn leading_components_are_stripped(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let members = [
        dir("top/"),
        file("top/a", "1"),
        dir("top/d"),
        file("top/d/large", noise(2 << 20)),
        link("top/d/s", "../a"),
        file("beside", "is left out"),
        file("other//b", "2"),
        file("./c", "3"),
    ];
    for way in WAYS {
        let root = daemon.path(&format!("one{}", way.len()));
        put(&daemon, &root, &format!("&strip=1{way}"), members.to_vec()).bare(204);
        let found = tree(&root);
        let names: Vec<&str> = found.keys().map(String::as_str).collect();
        assert_eq!(names, ["a", "b", "c", "d", "d/large", "d/s"]);
        assert!(fs::read(root.join("d/large")).expect("it is there") == noise(2 << 20));
    }
    let root = daemon.path("two");
    // Only what is left is judged: the target of the link is that of a member at the root now.
    put(&daemon, &root, "&strip=2", members[..4].to_vec()).bare(204);
    assert_eq!(tree(&root).len(), 1);
    put(&daemon, &root, "&strip=2", members.to_vec()).explains(400);
    let root = daemon.path("all");
    put(&daemon, &root, "&strip=2048", members.to_vec()).bare(204);
    tree_is(&root, &[]);
    let root = daemon.path("none");
    put(&daemon, &root, "&strip=0", members.to_vec()).bare(204);
    assert!(root.join("top/d/large").exists() && root.join("beside").exists());
}

fn targets_of_hard_links_are_stripped_too(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let members = [file("top/d/f", "1"), hard_link("top/h", "top/d/f")];
    for way in WAYS {
        let root = daemon.path(&format!("root{}", way.len()));
        put(&daemon, &root, &format!("&strip=1{way}"), members.to_vec()).bare(204);
        assert_eq!(inode(&root.join("h")), inode(&root.join("d/f")));
    }
    let before = exact(&daemon.path(""));
    let members = [file("t", "1"), file("top/f", "2"), hard_link("top/h", "t")];
    let reply = put(&daemon, &daemon.path("x"), "&strip=1", members.to_vec()).explains(400);
    assert!(reply.text().contains("top/h"), "{reply:?}");
    same("a target that is gone", &exact(&daemon.path("")), &before);
}

fn confinement_is_judged_after_stripping(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let fits = [
        file("../a", "1"),
        file("/b/c", "2"),
        Member::new(b'6', "fifo"),
    ];
    let root = daemon.path("root");
    put(&daemon, &root, "&strip=1", fits.to_vec()).bare(204);
    tree_is(&root, &[("a", "file 644 1"), ("c", "file 644 2")]);
    let before = exact(&daemon.path(""));
    for member in [
        file("a/../b", "1"),
        file("a/../../b", "1"),
        link("top/s", "../x"),
        hard_link("top/h", "top/../x"),
        link("top/s", "/etc"),
        Member::new(b'6', "top/fifo"),
    ] {
        put(&daemon, &root, "&strip=1", vec![member]).explains(400);
        same("a refusal", &exact(&daemon.path("")), &before);
    }
}

fn what_is_stripped_away_still_counts(driver: Driver) {
    let daemon = Setup::new(driver)
        .flag("--max-tar-members", "2")
        .flag("--max-tar-bytes", "100")
        .ready();
    let root = daemon.path("root");
    let members = [file("a", "1"), file("b", "2"), file("d/c", "3")];
    put(&daemon, &root, "&strip=1", members.to_vec()).explains(413);
    put(&daemon, &root, "&strip=1", vec![file("a", noise(101))]).explains(413);
    put(&daemon, &root, "&strip=1", members[1..].to_vec()).bare(204);
    tree_is(&root, &[("c", "file 644 3")]);
}

fn an_option_that_is_none_is_refused(driver: Driver) {
    let daemon = Daemon::ready(driver);
    for query in [
        "&strip=",
        "&strip=-1",
        "&strip=x",
        "&strip=2049",
        "&strip=1&strip=1",
        "&owner=root",
        "&owner=",
        "&xattrs=yes",
        "&spool=maybe",
    ] {
        put(&daemon, &daemon.path("root"), query, vec![file("a/b", "1")]).explains(400);
        assert!(!daemon.path("root").exists(), "{query}");
    }
    put(
        &daemon,
        &daemon.path("root"),
        "&owner=drop&xattrs=0&strip=0&spool=on",
        vec![file("a", "1")],
    )
    .bare(204);
}

fn owners_are_kept_when_root_is_asked_to(driver: Driver) {
    if !is_root("keeping owners") {
        return;
    }
    let daemon = Daemon::ready(driver);
    let members = [
        dir("d").owner(1234).mode(0o700),
        file("d/f", "1").owner(1235).mode(0o4755),
        file("d/large", noise(2 << 20)).owner(1236).mode(0o400),
        link("d/s", "f").owner(1237),
        hard_link("d/h", "d/f").owner(99),
        file("implied/f", "1").owner(1238).mode(0),
        pax(b'x', &[("uid", "3000000"), ("gid", "4000000")]),
        file("big", "1").owner(7),
        file("base256", "1")
            .gnu()
            .patch(108, [0x80, 0, 0, 0, 0, 0x20, 0, 1]),
    ];
    for way in WAYS {
        let root = daemon.path(&format!("root{}", way.len()));
        put(
            &daemon,
            &root,
            &format!("&owner=keep{way}"),
            members.to_vec(),
        )
        .bare(204);
        for (name, owner, bits) in [
            ("d", (1234, 1234), 0o700),
            ("d/f", (1235, 1235), 0o755),
            ("d/large", (1236, 1236), 0o400),
            ("d/s", (1237, 1237), 0o777),
            ("d/h", (1235, 1235), 0o755),
            ("implied", (0, 0), 0o755),
            ("implied/f", (1238, 1238), 0),
            ("big", (3_000_000, 4_000_000), 0o644),
            ("base256", (0x20_0001, 0), 0o644),
        ] {
            let found = fs::symlink_metadata(root.join(name)).expect("it is there");
            assert_eq!((found.uid(), found.gid()), owner, "{name}{way}");
            assert_eq!(mode(&root.join(name)), bits, "{name}{way}");
        }
    }
    // The time of a file is that of its member, whatever was set after its content.
    let found = fs::metadata(daemon.path("root0/d/f")).expect("it is there");
    assert_eq!(found.mtime(), 1_000_000_000);
}

fn an_owner_that_no_system_has_is_refused(driver: Driver) {
    if !is_root("keeping owners") {
        return;
    }
    let daemon = Daemon::ready(driver);
    for member in [
        vec![file("f", "1").patch(108, b"nobody\0\0")],
        vec![file("f", "1").gnu().patch(108, [0xff; 8])],
        vec![
            file("f", "1")
                .gnu()
                .patch(116, [0x80, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]),
        ],
        vec![pax(b'x', &[("gid", "4294967296")]), file("f", "1")],
        vec![pax(b'x', &[("uid", "me")]), file("f", "1")],
    ] {
        let root = daemon.path("root");
        let reply = put(&daemon, &root, "&owner=keep", member.clone()).explains(400);
        assert!(reply.text().contains("owner"), "{reply:?}");
        assert!(!root.exists());
        // Who does not ask for owners does not hear of them.
        put(&daemon, &root, "", member).bare(204);
        fs::remove_dir_all(root).expect("ours");
    }
}

fn a_daemon_without_the_right_refuses_to_keep_owners(driver: Driver) {
    if !is_root("a daemon without rights") {
        return;
    }
    let setup = Setup::new(driver);
    fs::create_dir(setup.path("open")).expect("ours");
    std::os::unix::fs::chown(setup.path("open"), Some(65_534), Some(65_534)).expect("root may");
    let wrapper = [
        "setpriv",
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
    ];
    let daemon = setup.under(&wrapper).ready();
    let root = daemon.path("open/root");
    put(
        &daemon,
        &root,
        "&owner=keep",
        vec![file("f", "1").owner(1234)],
    )
    .explains(403);
    assert!(!root.exists());
    put(
        &daemon,
        &root,
        "&owner=drop",
        vec![file("f", "1").owner(1234)],
    )
    .bare(204);
    let found = fs::metadata(root.join("f")).expect("it is there");
    assert_eq!((found.uid(), found.gid()), (65_534, 65_534));
}

fn attributes_are_set_when_asked_for(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let probe = daemon.path("probe");
    fs::write(&probe, "").expect("ours");
    if !sets_attributes(&probe) {
        eprintln!("skipped: no extended attributes here");
        return;
    }
    fs::remove_file(probe).expect("ours");
    let mut odd = pax_record("SCHILY.xattr.user.odd%3D%25", b"a\0b\n=");
    odd.extend(pax_record("SCHILY.xattr.trusted.secret", b"no"));
    odd.extend(pax_record("SCHILY.acl.access", b"user::rw-"));
    let records = |records: Vec<u8>| Member::new(b'x', "pax").data(records);
    let one = |value: &[u8]| records(pax_record("SCHILY.xattr.user.one", value));
    let members = [
        one(b"on a directory"),
        dir("d").mode(0o500),
        records(odd),
        file("d/f", "1").mode(0o400),
        one(b"large"),
        file("large", noise(2 << 20)),
        file("plain", "1"),
    ];
    for way in WAYS {
        let root = daemon.path(&format!("root{}", way.len()));
        put(&daemon, &root, &format!("&xattrs=1{way}"), members.to_vec()).bare(204);
        assert_eq!(
            attributes(&root.join("d")),
            [("user.one".into(), b"on a directory".to_vec())]
        );
        assert_eq!(
            attributes(&root.join("d/f")),
            [("user.odd=%".into(), b"a\0b\n=".to_vec())]
        );
        assert_eq!(
            attributes(&root.join("large")),
            [("user.one".into(), b"large".to_vec())]
        );
        assert_eq!(attributes(&root.join("plain")), []);
        assert_eq!(mode(&root.join("d/f")), 0o400);
    }
    put(&daemon, &daemon.path("none"), "", members.to_vec()).bare(204);
    assert_eq!(attributes(&daemon.path("none/large")), []);
    if is_root("capabilities of files") {
        // cap_net_raw, as setcap writes it.
        let value = [
            1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        ];
        let capable = [
            records(pax_record("SCHILY.xattr.security.capability", &value)),
            file("ping", "1").mode(0o755).owner(0),
        ];
        put(&daemon, &daemon.path("cap"), "&xattrs=1", capable.to_vec()).bare(204);
        assert_eq!(attributes(&daemon.path("cap/ping")), []);
        put(
            &daemon,
            &daemon.path("cap"),
            "&xattrs=1&owner=keep",
            capable.to_vec(),
        )
        .bare(204);
        assert_eq!(
            attributes(&daemon.path("cap/ping")),
            [("security.capability".into(), value.to_vec())]
        );
    }
}

fn an_attribute_that_cannot_be_set_is_a_failure(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let members = [
        Member::new(b'x', "pax").data(pax_record(
            &format!("SCHILY.xattr.user.{}", "n".repeat(300)),
            b"x",
        )),
        file("f", "1"),
    ];
    let reply = put(&daemon, &daemon.path("root"), "&xattrs=1", members.to_vec()).explains(500);
    assert!(
        reply.text().contains("f: the extended attribute"),
        "{reply:?}"
    );
    put(&daemon, &daemon.path("root"), "&xattrs=0", members.to_vec()).bare(204);
}

fn a_mode_in_the_query_is_ignored(driver: Driver) {
    let daemon = Daemon::ready(driver);
    put(
        &daemon,
        &daemon.path("root"),
        "&mode=0777",
        vec![file("f", "1").mode(0o640)],
    )
    .bare(204);
    assert_eq!(mode(&daemon.path("root/f")), 0o640);
}

#[track_caller]
fn put(daemon: &Daemon, root: &Path, query: &str, members: Vec<Member>) -> Reply {
    daemon.put(format!("{}{query}", tar_at(root)), archive(members))
}

/// The extended attributes of a file that a test can see, sorted.
fn attributes(path: &Path) -> Vec<(String, Vec<u8>)> {
    let mut names = [0; 4096];
    let count = rustix::fs::listxattr(path, &mut names[..]).expect("they can be listed");
    let names = names[..count].split(|byte| *byte == 0);
    let mut found: Vec<_> = names
        .filter(|name| !name.is_empty())
        .map(|name| {
            let mut value = [0; 4096];
            let count = rustix::fs::getxattr(path, name, &mut value[..]).expect("it was listed");
            let name = String::from_utf8_lossy(name).into_owned();
            (name, value[..count].to_vec())
        })
        .filter(|(name, _)| name != "security.selinux")
        .collect();
    found.sort();
    found
}

fn sets_attributes(path: &Path) -> bool {
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(path, "user.probe", b"1", flags).is_ok()
}
