//! Uploads in a content coding: undone on the way, bounded, refused as a whole when they are not whole.

use std::fs;

use ringd::wire::coding::{Coding, Encoder, Then};

use crate::archive::{archive, dir, file};
use crate::daemon::{Daemon, Setup};
use crate::driver::Driver;
use crate::process::wait_until;
use crate::request::{Request, file_at, tar_at};
use crate::scratch::{names, noise, tree, tree_is};

both![
    a_coded_body_is_stored_as_it_was,
    codings_of_codings_are_undone_in_turn,
    what_other_tools_have_coded_is_understood,
    a_coded_archive_is_extracted,
    a_body_that_is_not_in_its_coding_changes_nothing,
    a_body_that_decodes_to_too_much_changes_nothing,
    an_archive_that_decodes_to_too_much_changes_nothing,
    a_body_may_decode_to_exactly_the_limit,
    a_coding_is_judged_before_the_body,
    a_coded_upload_that_breaks_off_leaves_nothing,
    a_window_that_is_too_large_is_refused,
    codings_do_not_hinder_each_other,
    codings_share_a_bound_on_memory,
    a_window_counts_as_large_as_its_frame_says,
];

/// `plain` in `coding`.
pub(crate) fn coded(coding: Coding, plain: &[u8]) -> Vec<u8> {
    let mut encoder = Encoder::new(coding).expect("there is memory");
    let mut bytes = Vec::new();
    encoder
        .feed(plain, &mut bytes, Then::End)
        .expect("everything can be encoded");
    bytes
}

fn put(daemon: &Daemon, name: &str, coding: &str) -> Request {
    Request::put(file_at(daemon.path(name)))
        .bearer()
        .field("content-encoding", coding)
}

fn put_tar(daemon: &Daemon, query: &str, coding: &str) -> Request {
    Request::put(format!("{}{query}", tar_at(daemon.path("root"))))
        .bearer()
        .field("content-encoding", coding)
}

/// Bytes of which half compress well and half do not.
fn mixed(length: usize) -> Vec<u8> {
    let mut bytes = noise(length / 2);
    bytes.resize(length, b'x');
    bytes
}

fn a_coded_body_is_stored_as_it_was(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let mut connection = daemon.connect();
    for (coding, name) in [
        (Coding::Zstd, "zstd"),
        (Coding::Zstd, "ZSTD"),
        (Coding::Gzip, "gzip"),
        (Coding::Gzip, "x-gzip"),
        (Coding::Gzip, "identity, Gzip ,"),
    ] {
        for size in [0, 1, 3000, 600_000, 3_000_000] {
            let plain = mixed(size);
            let bytes = coded(coding, &plain);
            let halves = [bytes[..7].to_vec(), bytes[7..].to_vec()];
            let request = put(&daemon, "f", name);
            for request in [request.clone().body(bytes), request.chunks(halves)] {
                connection.call(&request).bare(204);
                let stored = fs::read(daemon.path("f")).expect("it was written");
                assert!(stored == plain, "{size} bytes in {name}");
                fs::remove_file(daemon.path("f")).expect("it was written");
            }
        }
    }
    connection
        .call(&put(&daemon, "f", "").body("as it is"))
        .bare(204);
    connection
        .call(&put(&daemon, "f", "identity").body("as it is"))
        .bare(204);
}

fn codings_of_codings_are_undone_in_turn(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let plain = mixed(500_000);
    let bytes = coded(Coding::Zstd, &coded(Coding::Gzip, &plain));
    let target = file_at(daemon.path("f"));
    let two_lines = Request::put(target)
        .bearer()
        .field("content-encoding", "gzip")
        .field("content-encoding", "zstd")
        .body(bytes.clone());
    for request in [
        put(&daemon, "f", "gzip, zstd").body(bytes.clone()),
        two_lines,
    ] {
        daemon.call(&request).bare(204);
        assert!(fs::read(daemon.path("f")).expect("it was written") == plain);
        fs::remove_file(daemon.path("f")).expect("it was written");
    }
    let reply = daemon.call(&put(&daemon, "f", "zstd, gzip").body(bytes));
    let said = reply.explains(400).text();
    assert!(said.starts_with("malformed gzip body at byte "), "{said}");
    assert!(names(&daemon.path("")).is_empty());
}

fn what_other_tools_have_coded_is_understood(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let plain = "hello from afar\nhello from afar\n";
    // `gzip -9n`, Python's GzipFile with a name and a time, `zstd -19`.
    for (coding, hex) in [
        (
            "gzip",
            "1f8b0800000000000203cb48cdc9c957482bcacf55484c4b2ce2ca40e30300ebf2b9bf20000000",
        ),
        (
            "gzip",
            "1f8b08080500000002ff6e616d652e74787400cb48cdc9c957482bcacf55484c4b2ce2ca40e30300ebf2b9bf\
             20000000",
        ),
        (
            "zstd",
            "28b52ffd0468b500008068656c6c6f2066726f6d20616661720a010006994b5d3ffc23",
        ),
    ] {
        let digits: Vec<char> = hex.chars().collect();
        let bytes = digits.chunks(2).map(|pair| {
            let pair: String = pair.iter().collect();
            u8::from_str_radix(&pair, 16).expect("hexadecimal")
        });
        let request = put(&daemon, "f", coding).body(bytes.collect::<Vec<u8>>());
        daemon.call(&request).bare(204);
        assert_eq!(
            fs::read_to_string(daemon.path("f")).ok().as_deref(),
            Some(plain)
        );
    }
}

fn a_coded_archive_is_extracted(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let members = [
        dir("d"),
        file("d/large", mixed(1_500_000)),
        file("small", "content"),
    ];
    let bytes = archive(members);
    for coding in [Coding::Zstd, Coding::Gzip] {
        for query in ["", "&spool=off"] {
            let request = put_tar(&daemon, query, coding.name()).body(coded(coding, &bytes));
            daemon.call(&request).bare(204);
            assert!(
                fs::read(daemon.path("root/d/large")).expect("it was extracted")
                    == mixed(1_500_000)
            );
            assert_eq!(names(&daemon.path("root")), ["d", "small"]);
            fs::remove_dir_all(daemon.path("root")).expect("it was extracted");
        }
    }
}

fn a_body_that_is_not_in_its_coding_changes_nothing(driver: Driver) {
    let daemon = Daemon::ready(driver);
    fs::write(daemon.path("old"), "old").expect("the scratch directory is ours");
    let before = tree(&daemon.path(""));
    let bytes = archive([file("f", mixed(1_200_000))]);
    let mut connection = daemon.connect();
    for coding in [Coding::Zstd, Coding::Gzip] {
        let whole = coded(coding, &bytes);
        let middle = whole.len() / 2;
        let mut corrupt = whole.clone();
        corrupt[middle] ^= 0x10;
        let wrong: [(&str, Vec<u8>); 7] = [
            ("empty", Vec::new()),
            ("plain", bytes.clone()),
            ("without its last byte", whole[..whole.len() - 1].to_vec()),
            ("half of it", whole[..middle].to_vec()),
            ("a byte is another", corrupt),
            ("with garbage behind it", [&whole[..], b"garbage"].concat()),
            (
                "with half a frame behind it",
                [&whole[..], &whole[..9]].concat(),
            ),
        ];
        for (what, body) in wrong {
            let name = coding.name();
            for request in [
                put(&daemon, "old", name),
                put(&daemon, "new", name),
                put_tar(&daemon, "", name),
            ] {
                let pieces = body.chunks(100_000).map(<[u8]>::to_vec);
                let chunked = request.clone().chunks(pieces);
                for request in [request.body(body.clone()), chunked] {
                    let reply = connection.call(&request).explains(400);
                    let said = reply.text();
                    let start = format!("malformed {name} body at byte ");
                    assert!(said.starts_with(&start), "{what}: {said}");
                    assert_eq!(tree(&daemon.path("")), before, "{what}");
                    if reply.field("connection").is_some() {
                        connection = daemon.connect();
                    }
                }
            }
        }
    }
    let cut = coded(Coding::Gzip, &mixed(50_000));
    let cut = &cut[..cut.len() - 3];
    let said = daemon.call(&put(&daemon, "new", "gzip").body(cut)).text();
    let expected = format!(
        "malformed gzip body at byte {}: it ends too early",
        cut.len()
    );
    assert_eq!(said, expected);
}

fn a_body_that_decodes_to_too_much_changes_nothing(driver: Driver) {
    let daemon = Setup::new(driver)
        .flag("--max-body-bytes", "1000000")
        .ready();
    fs::write(daemon.path("old"), "old").expect("the scratch directory is ours");
    let before = tree(&daemon.path(""));
    let zeros = vec![0; 50_000_000];
    for coding in [Coding::Zstd, Coding::Gzip] {
        let name = coding.name();
        let bomb = coded(coding, &zeros);
        let twice = coded(coding, &bomb);
        for (body, name) in [(bomb, name.to_owned()), (twice, format!("{name}, {name}"))] {
            for path in ["old", "new"] {
                let reply = daemon.call(&put(&daemon, path, &name).body(body.clone()));
                let said = reply.explains(413).text();
                assert_eq!(said, "the body decodes to more than 1000000 bytes");
                wait_until("nothing is left", || tree(&daemon.path("")) == before);
            }
        }
    }
}

fn an_archive_that_decodes_to_too_much_changes_nothing(driver: Driver) {
    let daemon = Setup::new(driver)
        .flag("--max-tar-bytes", "1000000")
        .flag("--max-tar-members", "10")
        .ready();
    let large = archive([file("small", "x"), file("large", vec![0; 10_000_000])]);
    let mut padded = archive([file("small", "x")]);
    padded.resize(10_000_000, 0);
    for coding in [Coding::Zstd, Coding::Gzip] {
        let name = coding.name();
        let sent = put_tar(&daemon, "", name).body(coded(coding, &large));
        let said = daemon.call(&sent).explains(413).text();
        assert_eq!(said, "archive exceeds 1000000 uncompressed bytes");
        let sent = put_tar(&daemon, "", name).body(coded(coding, &padded));
        let said = daemon.call(&sent).explains(413).text();
        assert_eq!(said, "the body decodes to more than 1163840 bytes");
        assert!(tree(&daemon.path("")).is_empty());
        wait_until("the spool is empty", || {
            names(&daemon.temporary()).is_empty()
        });
    }
}

fn a_body_may_decode_to_exactly_the_limit(driver: Driver) {
    let daemon = Setup::new(driver).flag("--max-body-bytes", "1000").ready();
    for coding in [Coding::Zstd, Coding::Gzip] {
        let name = coding.name();
        let body = coded(coding, &[7; 1000]);
        daemon.call(&put(&daemon, "f", name).body(body)).bare(204);
        let body = coded(coding, &[8; 1001]);
        daemon
            .call(&put(&daemon, "f", name).body(body))
            .explains(413);
        assert_eq!(fs::read(daemon.path("f")).ok(), Some(vec![7; 1000]));
    }
}

fn a_coding_is_judged_before_the_body(driver: Driver) {
    let daemon = Daemon::ready(driver);
    for coding in [
        "br",
        "deflate",
        "gzip, br",
        "gzip;q=1",
        "gzip, gzip, gzip",
        "aws-chunked",
    ] {
        for request in [put(&daemon, "f", coding), put_tar(&daemon, "", coding)] {
            let mut connection = daemon.connect();
            connection.send(request.body(noise(200_000)).head());
            let reply = connection.reply().explains(415);
            assert_eq!(reply.field("accept-encoding"), Some("zstd, gzip, identity"));
        }
    }
    assert!(tree(&daemon.path("")).is_empty());
}

fn a_coded_upload_that_breaks_off_leaves_nothing(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let before = daemon.at_rest();
    let plain = mixed(4_000_000);
    for coding in [Coding::Zstd, Coding::Gzip] {
        for request in [
            put(&daemon, "f", coding.name()).body(coded(coding, &plain)),
            put_tar(&daemon, "", coding.name())
                .body(coded(coding, &archive([file("f", plain.clone())]))),
        ] {
            let bytes = request.bytes();
            for sent in [1000, bytes.len() / 2, bytes.len() - 1] {
                let mut connection = daemon.connect();
                connection.send(&bytes[..sent]);
                connection.reset();
            }
        }
    }
    daemon.holds_at_most(before);
    wait_until("nothing is left", || tree(&daemon.path("")).is_empty());
}

fn a_window_that_is_too_large_is_refused(driver: Driver) {
    let daemon = Daemon::ready(driver);
    // A frame with a window of 16 MiB that holds nothing.
    let frame = [0x28, 0xb5, 0x2f, 0xfd, 0, (24 - 10) << 3, 1, 0, 0];
    let reply = daemon.call(&put(&daemon, "f", "zstd").body(frame));
    let said = reply.explains(400).text();
    assert!(said.ends_with("its window is larger than 8 MiB"), "{said}");
    assert!(tree(&daemon.path("")).is_empty());
}

fn codings_do_not_hinder_each_other(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let plain = mixed(1_000_000);
    let mut connections = Vec::new();
    for number in 0..16 {
        let coding = [Coding::Zstd, Coding::Gzip][number % 2];
        let request = put(&daemon, &format!("f{number}"), coding.name());
        let bytes = request.body(coded(coding, &plain)).bytes();
        let mut connection = daemon.connect();
        let (first, second) = bytes.split_at(bytes.len() / 2);
        connection.send(first);
        connections.push((connection, second.to_vec()));
    }
    tree_is(&daemon.path(""), &[]);
    for (connection, rest) in connections.iter_mut().rev() {
        connection.send(rest);
        connection.reply().bare(204);
    }
    for number in 0..16 {
        let stored = fs::read(daemon.path(&format!("f{number}")));
        assert!(stored.expect("it was written") == plain);
    }
}

fn codings_share_a_bound_on_memory(driver: Driver) {
    // Room for one body in gzip.
    let daemon = Setup::new(driver)
        .flag("--max-coding-memory", "100000")
        .ready();
    let plain = mixed(5000);
    let bytes = coded(Coding::Gzip, &plain);
    let request = put(&daemon, "f", "gzip");
    let mut first = daemon.connect();
    first.send(
        request
            .clone()
            .body(bytes.clone())
            .field("expect", "100-continue")
            .head(),
    );
    assert_eq!(first.head().expect("it is invited").status, 100);
    let refused = put(&daemon, "g", "gzip").body(bytes.clone());
    let reply = daemon.call(&refused).is(503);
    assert_eq!(reply.field("retry-after"), Some("1"));
    // What needs no memory goes on, and an answer can do without its coding.
    daemon.put(file_at(daemon.path("plain")), &*plain).bare(204);
    let get = Request::get(file_at(daemon.path("plain"))).bearer();
    let reply = daemon.call(&get.field("accept-encoding", "gzip")).is(200);
    assert_eq!(reply.field("content-encoding"), None);
    assert!(reply.body == plain);
    first.send(&bytes);
    first.reply().bare(204);
    assert_eq!(names(&daemon.path("")), ["f", "plain"]);
    daemon.call(&refused).bare(204);
    assert!(fs::read(daemon.path("g")).expect("it was written") == plain);
}

fn a_window_counts_as_large_as_its_frame_says(driver: Driver) {
    let daemon = Setup::new(driver)
        .flag("--max-coding-memory", "4000000")
        .ready();
    // A frame of one raw block, whose window has 8 MiB (RFC 8878, section 3.1.1), and one that fits.
    let frame = |window: u8| {
        [
            &[0x28, 0xb5, 0x2f, 0xfd, 0, window][..],
            &[1 | 5 << 3, 0, 0],
            b"hello",
        ]
        .concat()
    };
    let reply = daemon
        .call(&put(&daemon, "f", "zstd").body(frame(13 << 3)))
        .is(503);
    assert_eq!(reply.field("retry-after"), Some("1"));
    assert_eq!(names(&daemon.path("")), [""; 0]);
    daemon
        .call(&put(&daemon, "f", "zstd").body(frame(10 << 3)))
        .bare(204);
    assert_eq!(
        fs::read(daemon.path("f")).expect("it was written"),
        b"hello"
    );
}
