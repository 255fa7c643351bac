//! Archives in content codings, and archives that are none because somebody compressed them.

use std::fs;
use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::archive::{archive, dir, file, symlink as link};
use crate::daemon::{Daemon, Setup};
use crate::driver::Driver;
use crate::request::{Request, tar_at};
use crate::scratch::{noise, tree};
use crate::trees::{exact, same};

both![
    an_archive_in_a_coding_makes_the_same_tree,
    a_coded_archive_that_is_broken_changes_nothing,
    a_bomb_ends_at_the_bound_and_changes_nothing,
    a_bomb_of_nothing_is_an_empty_archive,
    an_archive_with_another_digest_changes_nothing,
    a_compressed_archive_without_its_coding_is_told_what_it_looks_like,
    what_is_no_tar_archive_is_named,
];

fn an_archive_in_a_coding_makes_the_same_tree(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let body = archive([
        dir("d"),
        file("d/small", "text"),
        file("large", noise(3 << 20)),
        file("zeros", vec![0; 5 << 20]),
        link("s", "large"),
    ]);
    daemon
        .put(tar_at(daemon.path("plain")), body.clone())
        .bare(204);
    let plain = tree(&daemon.path("plain"));
    for (coding, coded) in [
        ("gzip", gzip(&body)),
        ("x-gzip", gzip(&body)),
        ("zstd", zstd(&body)),
        ("identity", body.clone()),
        ("gzip, zstd", zstd(&gzip(&body))),
    ] {
        for way in ["", "&spool=off"] {
            let root = daemon.path("coded");
            let request = coded_request(&daemon, "coded", way, coding);
            daemon.call(&request.clone().body(coded.clone())).bare(204);
            assert_eq!(tree(&root), plain, "{coding}{way}");
            fs::remove_dir_all(&root).expect("ours");
            let pieces: Vec<_> = coded.chunks(10_007).map(<[u8]>::to_vec).collect();
            daemon.call(&request.chunks(pieces)).bare(204);
            assert_eq!(tree(&root), plain, "{coding}{way}, chunked");
            fs::remove_dir_all(&root).expect("ours");
        }
    }
    let request = coded_request(&daemon, "coded", "", "br");
    daemon.call(&request.body(body)).explains(415);
    assert!(!daemon.path("coded").exists());
}

fn a_coded_archive_that_is_broken_changes_nothing(driver: Driver) {
    let daemon = Daemon::ready(driver);
    daemon
        .put(tar_at(daemon.path("root")), archive([file("f", "old")]))
        .bare(204);
    let before = exact(&daemon.path(""));
    let body = archive([file("f", noise(2 << 20)), file("g", "2")]);
    for (coding, coded) in [("gzip", gzip(&body)), ("zstd", zstd(&body))] {
        let mut wrong = coded.clone();
        let middle = wrong.len() / 2;
        wrong[middle..middle + 100].fill(0x55);
        let cut = coded[..coded.len() - 1].to_vec();
        let behind = [coded.as_slice(), b"garbage"].concat();
        for (what, body) in [
            ("changed", wrong),
            ("cut", cut),
            ("more", behind),
            ("plain", body.clone()),
        ] {
            let request = coded_request(&daemon, "root", "", coding);
            let reply = daemon.call(&request.body(body));
            assert_eq!(reply.status, 400, "{coding} {what}: {reply:?}");
            same(what, &exact(&daemon.path("")), &before);
        }
    }
}

fn a_bomb_ends_at_the_bound_and_changes_nothing(driver: Driver) {
    let daemon = Setup::new(driver)
        .flag("--max-tar-bytes", "4000000")
        .flag("--max-tar-members", "100")
        .flag("--spool-memory-bytes", "0")
        .ready();
    let open = daemon.at_rest();
    let before = exact(&daemon.path(""));
    // One member over the bound, many that are over it together, and nothing without end.
    let one = archive([file("f", vec![0; 16 << 20])]);
    let many = archive((0..10).map(|number| file(format!("f{number}"), vec![0; 1 << 20])));
    let mut garbage = archive([file("f", "1")]);
    garbage.resize(16 << 20, 0);
    for body in [one, many, garbage] {
        for (coding, coded) in [("gzip", gzip(&body)), ("zstd", zstd(&body))] {
            let request = coded_request(&daemon, "root", "", coding);
            daemon.call(&request.body(coded)).explains(413);
            same(coding, &exact(&daemon.path("")), &before);
        }
    }
    daemon.holds_at_most(open);
    assert!(tree(&daemon.temporary()).is_empty());
    // Without a spool what came before the bound stays, and no more.
    let body = archive([file("a", "1"), file("f", vec![0; 16 << 20])]);
    let request = coded_request(&daemon, "off", "&spool=off", "zstd");
    daemon.call(&request.body(zstd(&body))).explains(413);
    assert_eq!(tree(&daemon.path("off")).len(), 1);
}

fn a_bomb_of_nothing_is_an_empty_archive(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let request = coded_request(&daemon, "root", "", "zstd");
    daemon
        .call(&request.body(zstd(&vec![0; 32 << 20])))
        .bare(204);
    assert!(tree(&daemon.path("root")).is_empty() && daemon.path("root").is_dir());
}

fn an_archive_with_another_digest_changes_nothing(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let body = archive([file("f", noise(2 << 20))]);
    let wrong = "sha-256=:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=:";
    for field in ["content-digest", "repr-digest"] {
        let request = Request::put(tar_at(daemon.path("root"))).bearer();
        daemon
            .call(&request.field(field, wrong).body(body.clone()))
            .explains(400);
        assert!(!daemon.path("root").exists(), "{field}");
    }
}

fn a_compressed_archive_without_its_coding_is_told_what_it_looks_like(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let body = archive([file("f", "content")]);
    let long = archive([file("f", noise(100_000))]);
    for (what, coded) in [
        ("gzip", gzip(&body)),
        ("gzip", gzip(&long)),
        ("zstd", zstd(&body)),
        ("zstd", zstd(&long)),
    ] {
        for way in ["", "&spool=off"] {
            let target = format!("{}{way}", tar_at(daemon.path("root")));
            let reply = daemon.put(target, coded.clone()).explains(400);
            let text = reply.text();
            assert!(
                text.contains(&format!("content-encoding: {what}")),
                "{text:?}"
            );
        }
    }
    // Compressed once more than the request says.
    let request = coded_request(&daemon, "root", "", "gzip");
    let reply = daemon.call(&request.body(gzip(&gzip(&body)))).explains(400);
    assert!(reply.text().contains("gzip"), "{reply:?}");
    assert!(tree(&daemon.path("root")).is_empty());
}

fn what_is_no_tar_archive_is_named(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let starts: [(&str, &[u8]); 6] = [
        ("xz", b"\xfd7zXZ\0\0\x04"),
        ("bzip2", b"BZh91AY&SY"),
        ("zip", b"PK\x03\x04\x14\0"),
        ("cpio", b"070701000000"),
        ("lz4", b"\x04\x22\x4d\x18d@"),
        ("ar", b"!<arch>\ndebian-binary"),
    ];
    for (what, start) in starts {
        for length in [start.len(), 511, 512, 10_000] {
            let mut body = start.to_vec();
            body.extend(noise(length.saturating_sub(start.len())));
            let reply = daemon.put(tar_at(daemon.path("root")), body).explains(400);
            let text = reply.text();
            assert!(text.contains(&format!("looks like {what}")), "{text:?}");
            assert!(!daemon.path("root").exists());
        }
    }
    // A file whose name begins like that is a member like others.
    daemon
        .put(tar_at(daemon.path("root")), archive([file("BZh9", "1")]))
        .bare(204);
}

fn coded_request(daemon: &Daemon, root: &str, way: &str, coding: &str) -> Request {
    let target = format!("{}{way}", tar_at(daemon.path(root)));
    Request::put(target)
        .bearer()
        .field("content-encoding", coding)
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).expect("memory");
    encoder.finish().expect("memory")
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    let mut coded = Vec::with_capacity(zstd_safe::compress_bound(bytes.len()));
    let mut context = zstd_safe::CCtx::create();
    let checked = zstd_safe::CParameter::ChecksumFlag(true);
    context.set_parameter(checked).expect("a known parameter");
    context.compress2(&mut coded, bytes).expect("there is room");
    coded
}
