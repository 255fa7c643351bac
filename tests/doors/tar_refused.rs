//! Archives that are refused, and that nothing on disk has changed then (contract section 5.3, D6, D14).

use std::fs;
use std::os::unix::fs::symlink;

use crate::archive::{
    BLOCK, Member, archive, dir, file, gnu_long, hard_link, pax, symlink as link, unended,
};
use crate::client::Broken;
use crate::daemon::{Daemon, Setup};
use crate::driver::Driver;
use crate::process::wait_until;
use crate::request::{Request, tar_at};
use crate::scratch::{noise, tree};
use crate::trees::exact;

both![
    a_root_that_is_none_is_refused,
    a_member_outside_the_root_is_refused,
    a_link_out_of_the_root_is_refused,
    a_member_that_is_no_file_is_refused,
    a_path_through_a_link_of_the_archive_is_refused,
    a_path_through_a_link_on_disk_is_refused,
    a_link_that_cannot_be_made_is_a_failure,
    a_type_that_contradicts_the_disk_is_a_failure,
    a_broken_archive_is_refused_with_the_place,
    a_checksum_that_is_wrong_is_named_by_offset,
    an_archive_cut_anywhere_is_refused_or_whole,
    an_archive_with_too_many_members_is_refused,
    an_archive_with_too_many_bytes_is_refused,
    a_size_without_end_is_refused,
    a_long_name_without_end_is_refused,
    below_the_reserve_nothing_is_extracted,
    an_upload_that_is_aborted_makes_no_root,
    a_spool_that_fills_up_changes_nothing,
];

fn a_root_that_is_none_is_refused(driver: Driver) {
    let daemon = Daemon::ready(driver);
    fs::write(daemon.path("file"), "old").expect("the scratch directory is ours");
    let before = exact(&daemon.path(""));
    let body = archive([file("f", "1")]);
    for target in [
        "/v1/fs/tar",
        "/v1/fs/tar?path=",
        "/v1/fs/tar?path=relative/x",
        "/v1/fs/tar?path=./x",
    ] {
        daemon.put(target, body.clone()).explains(400);
    }
    daemon
        .put(tar_at(daemon.path("file")), body.clone())
        .explains(500);
    daemon
        .put(tar_at(daemon.path("file/x")), body.clone())
        .explains(500);
    daemon.put(tar_at("/proc/no-such-dir"), body).explains(507);
    assert_eq!(exact(&daemon.path("")), before);
}

fn a_member_outside_the_root_is_refused(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let rows = [
        ("../escape", file("../escape", "x")),
        ("a/../../escape", file("a/../../escape", "x")),
        ("/abs", file("/abs", "x")),
        ("//abs", file("//abs", "x")),
        ("../d", dir("../d")),
        ("../s", link("../s", "t")),
        ("../h", hard_link("../h", "ok")),
        ("", file("", "x")),
        (".", file(".", "x")),
        ("./", link("./", "t")),
        (".", hard_link(".", "ok")),
        ("d/..", file("d/..", "x")),
    ];
    for (name, member) in rows {
        refused(
            &daemon,
            [file("ok", "1"), member.clone(), file("later", "2")],
            name,
        );
        refused(&daemon, [member], name);
    }
    let long = format!("../{}", "x".repeat(200));
    refused(
        &daemon,
        [gnu_long(b'L', &long), file("short", "x").gnu()],
        &long,
    );
    refused(
        &daemon,
        [pax(b'x', &[("path", "/etc/escape")]), file("short", "x")],
        "/etc/escape",
    );
    refused(&daemon, [file("escape", "x").prefix("..")], "../escape");
}

fn a_link_out_of_the_root_is_refused(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let rows = [
        (link("s", "/etc/passwd"), "/etc/passwd"),
        (link("s", "../x"), "../x"),
        (link("d/s", "../../x"), "../../x"),
        (link("s", "a/../../x"), "a/../../x"),
        (link("s", ""), "s"),
        (hard_link("h", "/etc/passwd"), "/etc/passwd"),
        (hard_link("h", "../x"), "../x"),
        // The target of a hard link is named from the root, not from where the link is.
        (hard_link("d/h", "../t"), "../t"),
        (hard_link("h", ""), "h"),
    ];
    for (member, named) in rows {
        refused(&daemon, [file("t", "1"), member], named);
    }
    let long = format!("../{}", "x".repeat(200));
    refused(
        &daemon,
        [gnu_long(b'K', &long), link("s", "short").gnu()],
        &long,
    );
    refused(
        &daemon,
        [
            pax(b'x', &[("linkpath", "/etc/passwd")]),
            link("s", "short"),
        ],
        "/etc/passwd",
    );
}

fn a_member_that_is_no_file_is_refused(driver: Driver) {
    let daemon = Daemon::ready(driver);
    for kind in [
        b'3', b'4', b'6', b'Z', b'D', b'V', b'M', b'N', b'A', b'9', 0xff,
    ] {
        refused(
            &daemon,
            [file("ok", "1"), Member::new(kind, "strange")],
            "strange",
        );
    }
    refused(
        &daemon,
        [Member::new(b'Z', "with-data").data("abc")],
        "with-data",
    );
}

fn a_path_through_a_link_of_the_archive_is_refused(driver: Driver) {
    let rows: [&[Member]; 5] = [
        &[dir("real"), link("ln", "real"), file("ln/f", "x")],
        &[file("t", "1"), link("s", "t"), file("s", "x")],
        &[dir("t"), link("s", "t"), dir("s/")],
        &[dir("d"), link("d/up", ".."), file("d/up/f", "x")],
        &[link("self", "."), file("self/f", "x")],
    ];
    for members in rows {
        let daemon = Daemon::ready(driver);
        let reply = daemon.put(tar_at(daemon.path("root")), archive(members.to_vec()));
        assert_eq!(reply.status, 400, "{reply:?}");
        reply.explains(400);
        assert!(!daemon.path("root").exists());
    }
}

fn a_path_through_a_link_on_disk_is_refused(driver: Driver) {
    let daemon = Daemon::ready(driver);
    fs::create_dir_all(daemon.path("outside")).expect("the scratch directory is ours");
    fs::create_dir(daemon.path("root")).expect("the scratch directory is ours");
    fs::write(daemon.path("victim"), "old").expect("the scratch directory is ours");
    symlink(daemon.path("victim"), daemon.path("root/f")).expect("the scratch directory is ours");
    symlink(daemon.path("outside"), daemon.path("root/d")).expect("the scratch directory is ours");
    symlink("../outside", daemon.path("root/r")).expect("the scratch directory is ours");
    let before = exact(&daemon.path(""));
    for member in [
        file("f", "x"),
        file("d/f", "x"),
        file("r/f", "x"),
        dir("d"),
        link("d/s", "t"),
        hard_link("d/h", "f"),
        file("d/a/b", "x"),
    ] {
        for spool in ["", "&spool=off"] {
            let target = format!("{}{spool}", tar_at(daemon.path("root")));
            daemon.put(target, archive([member.clone()])).explains(400);
            assert_eq!(exact(&daemon.path("")), before);
        }
    }
}

fn a_link_that_cannot_be_made_is_a_failure(driver: Driver) {
    let rows: [&[Member]; 3] = [
        &[hard_link("h", "later"), file("later", "x")],
        &[dir("d"), hard_link("h", "d")],
        &[hard_link("h", "h")],
    ];
    for members in rows {
        let daemon = Daemon::ready(driver);
        let before = exact(&daemon.path(""));
        daemon
            .put(tar_at(daemon.path("root")), archive(members.to_vec()))
            .explains(500);
        assert_eq!(exact(&daemon.path("")), before);
    }
}

fn a_type_that_contradicts_the_disk_is_a_failure(driver: Driver) {
    let daemon = Daemon::ready(driver);
    fs::create_dir_all(daemon.path("root/dir")).expect("the scratch directory is ours");
    fs::write(daemon.path("root/file"), "old").expect("the scratch directory is ours");
    let before = exact(&daemon.path("root"));
    for member in [
        file("dir", "x"),
        link("dir", "t"),
        dir("file"),
        file("file/x", "x"),
    ] {
        daemon
            .put(tar_at(daemon.path("root")), archive([member]))
            .explains(500);
        assert_eq!(exact(&daemon.path("root")), before);
    }
}

fn a_broken_archive_is_refused_with_the_place(driver: Driver) {
    let whole = archive([file("f", noise(5000)), file("g", "2")]);
    let mut bad_size = file("f", "1").patch(124, b"zzzzzzzzzzz\0").bytes();
    bad_size.extend_from_slice(&[0; 2 * BLOCK]);
    let mut bad_pax = Member::new(b'x', "@PaxHeader")
        .data("nonsense without a length\n")
        .bytes();
    bad_pax.extend(archive([file("f", "1")]));
    let rows = [
        ("a truncated file", whole[..3000].to_vec()),
        ("a truncated header", whole[..6000].to_vec()),
        ("a hundred bytes of garbage", vec![b'x'; 100]),
        ("two blocks of garbage", vec![b'x'; 2 * BLOCK]),
        (
            "gzip",
            [&b"\x1f\x8b\x08\0\0\0\0\0\0\x03"[..], &noise(2000)].concat(),
        ),
        ("zip", [&b"PK\x03\x04"[..], &noise(2000)].concat()),
        ("text", b"this is not a tar archive\n".repeat(100)),
        ("noise", noise(10_240)),
        ("a size that is no number", bad_size),
        ("a pax record without a length", bad_pax),
        (
            "a pax header without a member",
            unended([pax(b'x', &[("path", "f")])]),
        ),
        (
            "a long name without a member",
            archive([gnu_long(b'L', "name")]),
        ),
    ];
    for (what, body) in rows {
        let daemon = Daemon::ready(driver);
        let before = exact(&daemon.path(""));
        let reply = daemon.put(tar_at(daemon.path("root")), body);
        assert_eq!(reply.status, 400, "{what}: {reply:?}");
        let text = reply.explains(400).text();
        assert!(
            text.contains(|letter: char| letter.is_ascii_digit()),
            "{what}: no offset in {text:?}"
        );
        assert_eq!(exact(&daemon.path("")), before, "{what}");
    }
}

fn a_checksum_that_is_wrong_is_named_by_offset(driver: Driver) {
    let daemon = Daemon::ready(driver);
    // The second header stands behind the first and its two blocks of data.
    for broken in [0, 3 * BLOCK] {
        let mut body = archive([file("f", noise(600)), file("g", "2")]);
        body[broken + 5] ^= 1;
        let text = daemon
            .put(tar_at(daemon.path("root")), body)
            .explains(400)
            .text();
        assert!(
            text.contains(&broken.to_string()),
            "{text:?} does not name {broken}"
        );
        assert!(!daemon.path("root").exists());
    }
}

fn an_archive_cut_anywhere_is_refused_or_whole(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let members = [
        dir("d"),
        gnu_long(b'L', "n".repeat(150)),
        file("x", noise(700)).gnu(),
        link("s", "d"),
    ];
    let body = unended(members);
    let mut connection = daemon.connect();
    for (number, cut) in (1..=body.len())
        .step_by(97)
        .chain((BLOCK..=body.len()).step_by(BLOCK))
        .enumerate()
    {
        let root = format!("root-{number}");
        let request = Request::put(tar_at(daemon.path(&root))).bearer();
        let reply = connection.call(&request.body(&body[..cut]));
        // A cut between two members is an end; the long name belongs to the member behind it.
        let whole = [512, 3072, 3584].contains(&cut);
        assert_eq!(
            reply.status,
            if whole { 204 } else { 400 },
            "cut at {cut}: {reply:?}"
        );
        assert_eq!(daemon.path(&root).exists(), whole, "cut at {cut}");
    }
}

fn an_archive_with_too_many_members_is_refused(driver: Driver) {
    let daemon = Setup::new(driver).flag("--max-tar-members", "3").ready();
    let three = [dir("./"), file("a", "1"), link("b", "a")];
    daemon
        .put(tar_at(daemon.path("fits")), archive(three))
        .bare(204);
    let before = exact(&daemon.path(""));
    let rows: [&[Member]; 3] = [
        &[
            file("a", "1"),
            file("b", "2"),
            file("c", "3"),
            file("d", "4"),
        ],
        &[dir("./"), dir("."), dir("./"), file("d", "4")],
        &[
            file("a", "1"),
            file("a", "2"),
            file("a", "3"),
            file("a", "4"),
        ],
    ];
    for members in rows {
        daemon
            .put(tar_at(daemon.path("root")), archive(members.to_vec()))
            .explains(413);
        assert_eq!(exact(&daemon.path("")), before);
    }
    // A long name is no member.
    let long = "n".repeat(150);
    let members = [
        gnu_long(b'L', &long),
        file("x", "1").gnu(),
        pax(b'x', &[("path", "y")]),
        file("z", "2"),
    ];
    daemon
        .put(tar_at(daemon.path("long")), archive(members))
        .bare(204);
}

fn an_archive_with_too_many_bytes_is_refused(driver: Driver) {
    let daemon = Setup::new(driver).flag("--max-tar-bytes", "1000").ready();
    daemon
        .put(
            tar_at(daemon.path("fits")),
            archive([file("a", noise(400)), file("b", noise(600))]),
        )
        .bare(204);
    let before = exact(&daemon.path(""));
    for members in [
        vec![file("a", noise(1001))],
        vec![file("a", noise(400)), file("b", noise(601))],
        vec![file("a", noise(400)), file("a", noise(601))],
        // The size is believed before its data has come.
        vec![Member::new(b'0', "a").size(1 << 30)],
    ] {
        daemon
            .put(tar_at(daemon.path("root")), archive(members))
            .explains(413);
        assert_eq!(exact(&daemon.path("")), before);
    }
}

fn a_size_without_end_is_refused(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let mut sizes = vec![
        file("f", "1").patch(124, b"77777777777\0"),
        file("f", "1").patch(124, b"777777777777"),
    ];
    // Base 256: the largest that fits, and a negative one.
    sizes.push(file("f", "1").gnu().patch(
        124,
        [
            0x80, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
        ],
    ));
    sizes.push(file("f", "1").gnu().patch(124, [0xff; 12]));
    sizes.push(file("f", "1").gnu().patch(
        124,
        [
            0x80, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
        ],
    ));
    for member in sizes {
        let reply = daemon.put(tar_at(daemon.path("root")), archive([member]));
        assert!(reply.status == 400 || reply.status == 413, "{reply:?}");
        assert!(!daemon.path("root").exists());
    }
    let reply = daemon.put(
        tar_at(daemon.path("root")),
        archive([
            pax(b'x', &[("size", "18446744073709551615")]),
            file("f", "1"),
        ]),
    );
    assert!(reply.status == 400 || reply.status == 413, "{reply:?}");
    assert!(!daemon.path("root").exists());
}

fn a_long_name_without_end_is_refused(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let endless = "n".repeat(20_000_000);
    for members in [
        vec![gnu_long(b'L', &endless), file("x", "1").gnu()],
        vec![gnu_long(b'K', &endless), link("x", "1").gnu()],
        vec![pax(b'x', &[("path", &endless)]), file("x", "1")],
    ] {
        let reply = daemon.put(tar_at(daemon.path("root")), archive(members));
        assert!(reply.status == 400 || reply.status == 413, "{reply:?}");
        assert!(!daemon.path("root").exists());
    }
}

fn below_the_reserve_nothing_is_extracted(driver: Driver) {
    let reserve = u64::MAX / 2;
    let daemon = Setup::new(driver)
        .flag("--disk-reserve-bytes", reserve.to_string())
        .ready();
    let before = exact(&daemon.path(""));
    let reply = daemon
        .put(tar_at(daemon.path("a/b")), archive([file("f", "1")]))
        .explains(507);
    assert!(reply.text().contains(&reserve.to_string()), "{reply:?}");
    assert_eq!(exact(&daemon.path("")), before);
}

fn an_upload_that_is_aborted_makes_no_root(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let open = daemon.at_rest();
    let before = exact(&daemon.path(""));
    let body = archive([file("f", noise(3_000_000)), file("g", "1")]);
    let request = Request::put(tar_at(daemon.path("root"))).bearer();
    let pieces: Vec<Vec<u8>> = body.chunks(100_000).map(<[u8]>::to_vec).collect();
    for request in [request.clone().body(body), request.chunks(pieces)] {
        let bytes = request.bytes();
        for sent in [300, 5000, bytes.len() / 2, bytes.len() - 1] {
            for reset in [false, true] {
                let mut connection = daemon.connect();
                connection.send(&bytes[..sent]);
                if reset {
                    connection.reset();
                }
            }
            let mut connection = daemon.connect();
            connection.send(&bytes[..sent]);
            connection.finish();
            match connection.reply_to("PUT") {
                Ok(reply) => assert_eq!(reply.status, 400, "{reply:?}"),
                Err(broken) => assert_eq!(broken, Broken::Closed),
            }
        }
    }
    daemon.holds_at_most(open);
    wait_until("nothing is left", || exact(&daemon.path("")) == before);
    assert!(tree(&daemon.temporary()).is_empty());
}

fn a_spool_that_fills_up_changes_nothing(driver: Driver) {
    if !crate::process::is_root("a spool that fills up") {
        return;
    }
    let setup = Setup::new(driver);
    fs::create_dir(setup.path("spool")).expect("the scratch directory is ours");
    let spool = setup.path("spool").to_str().expect("ASCII").to_owned();
    let daemon = setup
        .with_mount("-t tmpfs -o size=1m tmpfs spool")
        .flag("--spool-dir", spool)
        .flag("--spool-memory-bytes", "0")
        .flag("--disk-reserve-bytes", "0")
        .ready();
    let reply = daemon.put(
        tar_at(daemon.path("root")),
        archive((0..4).map(|number| file(format!("f{number}"), noise(900_000)))),
    );
    assert!(reply.status == 507 || reply.status == 500, "{reply:?}");
    assert!(!daemon.path("root").exists());
    daemon
        .put(
            tar_at(daemon.path("root")),
            archive([file("f", noise(500_000))]),
        )
        .bare(204);
    assert_eq!(daemon.script("ls -A spool")["stdout"], "");
}

/// Uploads an archive that must be refused by the name of what is wrong, and checks that nothing has changed.
#[track_caller]
fn refused(daemon: &Daemon, members: impl IntoIterator<Item = Member>, named: &str) {
    fs::create_dir_all(daemon.path("there")).expect("the scratch directory is ours");
    fs::write(daemon.path("there/old"), "old").expect("the scratch directory is ours");
    let before = exact(&daemon.path(""));
    let body = archive(members);
    for root in ["there", "absent/root"] {
        let reply = daemon.put(tar_at(daemon.path(root)), body.clone());
        assert_eq!(reply.status, 400, "{named:?}: {reply:?}");
        let text = reply.explains(400).text();
        assert!(text.contains(named), "{named:?} is not named: {text:?}");
        assert_eq!(exact(&daemon.path("")), before, "{named:?}");
    }
}
