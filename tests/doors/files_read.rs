//! Reading a file: whole, in byte ranges and in windows of lines (contract section 5.1, D13, D16).

use std::fs;
use std::os::unix::fs::symlink;

use crate::client::Broken;
use crate::daemon::Daemon;
use crate::driver::Driver;
use crate::reply::Reply;
use crate::request::{Request, file_at};
use crate::scratch::noise;

both![
    a_whole_file_comes_with_length_and_validators,
    what_is_not_a_readable_file_is_refused,
    a_file_that_has_no_size_is_read_to_its_end,
    a_device_is_read_until_the_client_leaves,
    a_fifo_and_a_socket_are_refused_at_once,
    a_byte_range_is_a_part,
    a_range_outside_the_file_is_not_satisfiable,
    a_range_that_is_none_is_ignored,
    a_range_of_another_version_is_the_whole_file,
    a_window_of_lines_is_byte_exact,
    lines_end_at_newlines_and_nothing_else,
    a_window_over_huge_lines_is_exact,
    a_window_that_is_none_is_refused,
    a_window_is_judged_before_the_file_is_touched,
    a_window_has_no_range,
    a_validator_changes_with_the_content,
    a_file_of_many_megabytes_arrives_whole,
    a_file_that_shrinks_while_it_is_read_ends_the_connection,
    a_reader_that_leaves_costs_nothing,
    a_reader_that_does_not_read_delays_nobody,
];

fn a_whole_file_comes_with_length_and_validators(driver: Driver) {
    let daemon = Daemon::ready(driver);
    for content in [&b""[..], b"x", b"l1\nl2\n", b"\0\x01\xff"] {
        let reply = read(&daemon, content, "").is(200);
        assert_eq!(reply.body, content);
        assert_eq!(
            reply.field("content-type"),
            Some("application/octet-stream")
        );
        assert_eq!(
            reply.field("content-length"),
            Some(content.len().to_string().as_str())
        );
        assert_eq!(reply.field("accept-ranges"), Some("bytes"));
        let etag = reply.field("etag").expect("a validator");
        assert!(
            etag.starts_with('"') && etag.ends_with('"') && etag.len() > 2,
            "{etag} is not strong"
        );
        let modified = reply.field("last-modified").expect("a date");
        assert!(modified.ends_with(" GMT"), "{modified}");
    }
}

fn what_is_not_a_readable_file_is_refused(driver: Driver) {
    let daemon = Daemon::ready(driver);
    fs::write(daemon.path("f"), "content").expect("the scratch directory is ours");
    symlink("f", daemon.path("link")).expect("the scratch directory is ours");
    symlink("nowhere", daemon.path("dangling")).expect("the scratch directory is ours");
    symlink("loop", daemon.path("loop")).expect("the scratch directory is ours");
    let rows = [
        ("absent".to_owned(), 404),
        ("dangling".to_owned(), 404),
        ("absent/f".to_owned(), 404),
        // The working directory itself.
        ("".to_owned(), 400),
        ("f/x".to_owned(), 500),
        ("loop".to_owned(), 500),
        ("x".repeat(300), 500),
        ("nul\0x".to_owned(), 500),
    ];
    for (name, status) in rows {
        let reply = daemon.get(file_at(daemon.path(&name)));
        assert_eq!(reply.status, status, "{name:?}: {reply:?}");
        reply.explains(status);
    }
    daemon.get("/v1/fs/file?path=").explains(404);
    daemon.get("/v1/fs/file").explains(400);
    daemon.get(file_at("/")).explains(400);
    assert_eq!(
        daemon.get(file_at(daemon.path("link"))).is(200).text(),
        "content"
    );
    assert_eq!(daemon.get(file_at("f")).is(200).text(), "content");
    assert_eq!(daemon.get(file_at("./../work/f")).is(200).text(), "content");
}

fn a_file_that_has_no_size_is_read_to_its_end(driver: Driver) {
    let daemon = Daemon::ready(driver);
    for path in [
        "/proc/version",
        "/proc/self/status",
        "/proc/cpuinfo",
        "/dev/null",
    ] {
        let reply = daemon.get(file_at(path)).is(200);
        assert_eq!(reply.field("content-length"), None, "{path}: {reply:?}");
        assert_eq!(
            reply.field("transfer-encoding"),
            Some("chunked"),
            "{path}: {reply:?}"
        );
    }
    let version = fs::read("/proc/version").expect("proc is mounted");
    assert_eq!(daemon.get(file_at("/proc/version")).body, version);
    let reply = daemon.get(format!(
        "{}&start_line=1&end_line=1",
        file_at("/proc/cpuinfo")
    ));
    assert_eq!(reply.is(200).text().lines().count(), 1);
    let maps = daemon
        .get(file_at(format!("/proc/{}/maps", daemon.pid())))
        .is(200)
        .text();
    assert!(maps.ends_with('\n') && maps.contains("ringd"), "{maps}");
}

fn a_device_is_read_until_the_client_leaves(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let before = daemon.at_rest();
    let mut connection = daemon.connect();
    connection.send(Request::get(file_at("/dev/zero")).bearer().bytes());
    assert_eq!(connection.head().expect("a response").status, 200);
    connection.take(5_000_000).expect("zeroes without end");
    daemon.health();
    drop(connection);
    daemon.holds_at_most(before);
}

fn a_fifo_and_a_socket_are_refused_at_once(driver: Driver) {
    let daemon = Daemon::ready(driver);
    make_fifo(&daemon, "fifo");
    let _socket = std::os::unix::net::UnixListener::bind(daemon.path("socket")).expect("a socket");
    daemon.get(file_at(daemon.path("fifo"))).explains(400);
    daemon
        .get(format!("{}&start_line=1", file_at(daemon.path("fifo"))))
        .explains(400);
    let reply = daemon.get(file_at(daemon.path("socket")));
    assert!(reply.status == 400 || reply.status == 500, "{reply:?}");
}

fn a_byte_range_is_a_part(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let rows = [
        ("bytes=0-0", "0", "bytes 0-0/10"),
        ("bytes=0-9", "0123456789", "bytes 0-9/10"),
        ("bytes=3-5", "345", "bytes 3-5/10"),
        ("bytes=9-9", "9", "bytes 9-9/10"),
        ("bytes=5-", "56789", "bytes 5-9/10"),
        ("bytes=0-", "0123456789", "bytes 0-9/10"),
        ("bytes=5-1000", "56789", "bytes 5-9/10"),
        ("bytes=-3", "789", "bytes 7-9/10"),
        ("bytes=-10", "0123456789", "bytes 0-9/10"),
        ("bytes=-1000", "0123456789", "bytes 0-9/10"),
        ("bytes=0-18446744073709551615", "0123456789", "bytes 0-9/10"),
    ];
    for (range, part, described) in rows {
        let reply = ranged(&daemon, range);
        assert_eq!(reply.status, 206, "{range}: {reply:?}");
        assert_eq!(reply.text(), part, "{range}");
        assert_eq!(reply.field("content-range"), Some(described), "{range}");
        assert_eq!(
            reply.field("content-length"),
            Some(part.len().to_string().as_str()),
            "{range}"
        );
        assert!(reply.field("etag").is_some(), "{range}: {reply:?}");
    }
    let head = Request::new("HEAD", file_at(daemon.path("f"))).bearer();
    let head = daemon.call(&head).is(200);
    assert_eq!(head.field("content-length"), Some("10"));
    assert_eq!(head.field("accept-ranges"), Some("bytes"));
}

fn a_range_outside_the_file_is_not_satisfiable(driver: Driver) {
    let daemon = Daemon::ready(driver);
    for range in ["bytes=10-", "bytes=10-20", "bytes=1000-2000", "bytes=-0"] {
        let reply = ranged(&daemon, range);
        assert_eq!(reply.status, 416, "{range}: {reply:?}");
        assert_eq!(
            reply.field("content-range"),
            Some("bytes */10"),
            "{range}: {reply:?}"
        );
    }
}

fn a_range_that_is_none_is_ignored(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let ranges = [
        "bytes",
        "bytes=",
        "bytes=a-b",
        "bytes=5-3",
        "bytes=-",
        "bytes=1",
        "lines=1-2",
        "bytes 0-1",
        "bytes=--1",
        "bytes=+1-2",
        "bytes=0x1-2",
        "bytes=18446744073709551616-",
    ];
    for range in ranges {
        let reply = ranged(&daemon, range);
        // A first position past the end is outside, however large it is.
        let outside = range.contains("18446744073709551616") && reply.status == 416;
        assert!(reply.status == 200 || outside, "{range}: {reply:?}");
        if !outside {
            assert_eq!(reply.text(), "0123456789", "{range}");
        }
    }
    // Several ranges may be answered with one part, all parts or the whole (RFC 9110, section 14.2).
    let reply = ranged(&daemon, "bytes=0-1,4-5");
    assert!(reply.status == 200 || reply.status == 206, "{reply:?}");
    // Only GET has ranges.
    let put = Request::put(file_at(daemon.path("g")))
        .bearer()
        .field("range", "bytes=0-0");
    daemon.call(&put.body("whole")).is(204);
    assert_eq!(
        fs::read_to_string(daemon.path("g")).expect("it was written"),
        "whole"
    );
}

fn a_range_of_another_version_is_the_whole_file(driver: Driver) {
    let daemon = Daemon::ready(driver);
    ranged(&daemon, "bytes=0-0");
    let request = Request::get(file_at(daemon.path("f")))
        .bearer()
        .field("range", "bytes=3-5");
    for other in [
        "\"another\"",
        "W/\"another\"",
        "Sat, 29 Oct 1994 19:43:31 GMT",
    ] {
        let reply = daemon.call(&request.clone().field("if-range", other));
        assert_eq!(reply.status, 200, "{other}: {reply:?}");
        assert_eq!(reply.text(), "0123456789", "{other}");
    }
    let etag = daemon
        .call(&request)
        .field("etag")
        .expect("a validator")
        .to_owned();
    let reply = daemon.call(&request.field("if-range", etag));
    assert_eq!(reply.is(206).text(), "345");
}

fn a_window_of_lines_is_byte_exact(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let rows = [
        ("start_line=2&end_line=4", "l2\nl3\nl4\n"),
        ("start_line=1&end_line=1", "l1\n"),
        ("start_line=5", "l5\n"),
        ("end_line=2", "l1\nl2\n"),
        ("start_line=4&end_line=1000", "l4\nl5\n"),
        ("start_line=1", "l1\nl2\nl3\nl4\nl5\n"),
        ("start_line=6", ""),
        ("start_line=100&end_line=200", ""),
        ("start_line=%2B2", "l2\nl3\nl4\nl5\n"),
        ("start_line=002&end_line=02", "l2\n"),
        ("start_line=18446744073709551615", ""),
        ("end_line=18446744073709551615", "l1\nl2\nl3\nl4\nl5\n"),
    ];
    for (query, window) in rows {
        let reply = read(&daemon, b"l1\nl2\nl3\nl4\nl5\n", query).is(200);
        assert_eq!(reply.text(), window, "{query}");
        assert_eq!(
            reply.field("content-type"),
            Some("application/octet-stream"),
            "{query}"
        );
    }
}

fn lines_end_at_newlines_and_nothing_else(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let rows: [(&[u8], &str, &[u8]); 13] = [
        (b"a\nb\nc", "start_line=3&end_line=3", b"c"),
        (b"a\nb\nc", "start_line=2", b"b\nc"),
        (b"a\nb\nc", "start_line=4", b""),
        (b"", "start_line=1&end_line=1", b""),
        (b"", "end_line=5", b""),
        (b"a", "start_line=1", b"a"),
        (b"a\r\nb\r\nc", "start_line=1&end_line=1", b"a\r\n"),
        (b"a\r\nb\r\nc", "start_line=2&end_line=2", b"b\r\n"),
        (b"a\rb\nc", "start_line=2", b"c"),
        (
            b"a\0\nb\0b\n\xff\xfe\n",
            "start_line=2&end_line=3",
            b"b\0b\n\xff\xfe\n",
        ),
        (b"\n\n\n", "start_line=2&end_line=2", b"\n"),
        (b"\n\n\n", "start_line=4", b""),
        (
            "a\u{2028}b\nc\x0bd\x0c\n".as_bytes(),
            "start_line=2",
            b"c\x0bd\x0c\n",
        ),
    ];
    for (content, query, window) in rows {
        let reply = read(&daemon, content, query).is(200);
        assert_eq!(
            reply.body,
            window,
            "{:?} {query}",
            String::from_utf8_lossy(content)
        );
    }
}

fn a_window_over_huge_lines_is_exact(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let line = |letter: u8, length: usize| {
        let mut line = vec![letter; length];
        line.push(b'\n');
        line
    };
    // Lines that end just before, at and after the sizes of buffers.
    for size in [4096, 65_536, 262_144, 1_048_576] {
        for length in [size - 2, size - 1, size, size + 1] {
            let lines = [
                line(b'a', length),
                line(b'b', 3),
                line(b'c', length),
                line(b'd', 0),
                b"end".to_vec(),
            ];
            fs::write(daemon.path("f"), lines.concat()).expect("the scratch directory is ours");
            for (first, last) in [(1, 1), (2, 2), (2, 3), (3, 5), (5, 5)] {
                let target = file_at(daemon.path("f"));
                let reply = daemon
                    .get(format!("{target}&start_line={first}&end_line={last}"))
                    .is(200);
                let expected = lines[first - 1..last].concat();
                assert!(reply.body == expected, "{length}: lines {first} to {last}");
            }
        }
    }
}

fn a_window_that_is_none_is_refused(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let queries = [
        "start_line=0",
        "start_line=0&end_line=0",
        "end_line=0",
        "start_line=3&end_line=2",
        "start_line=x",
        "end_line=1.5",
        "start_line=-1",
        "start_line=",
        "end_line=",
        "start_line=1e3",
        "start_line=18446744073709551616",
        "start_line=2&start_line=3",
        "end_line=2&end_line=2",
        "start_line=%202",
        "start_line=0x1",
    ];
    for query in queries {
        let reply = read(&daemon, b"l1\nl2\n", query);
        assert_eq!(reply.status, 400, "{query}: {reply:?}");
        reply.explains(400);
    }
}

fn a_window_is_judged_before_the_file_is_touched(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let absent = file_at(daemon.path("absent"));
    daemon.get(format!("{absent}&start_line=0")).explains(400);
    daemon.get(format!("{absent}&start_line=1")).explains(404);
    let reply = daemon.get("/v1/fs/file?start_line=x").explains(400);
    assert!(reply.text().contains("path"), "{reply:?}");
}

fn a_window_has_no_range(driver: Driver) {
    let daemon = Daemon::ready(driver);
    fs::write(daemon.path("f"), "l1\nl2\nl3\n").expect("the scratch directory is ours");
    let target = format!("{}&start_line=2", file_at(daemon.path("f")));
    let reply = daemon
        .call(&Request::get(target).bearer().field("range", "bytes=0-0"))
        .is(200);
    assert_eq!(reply.text(), "l2\nl3\n");
    assert_eq!(reply.field("content-range"), None);
    assert_ne!(reply.field("accept-ranges"), Some("bytes"));
}

fn a_validator_changes_with_the_content(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let etag = |reply: Reply| reply.field("etag").expect("a validator").to_owned();
    let target = file_at(daemon.path("f"));
    let mut seen = Vec::new();
    for content in ["one", "two", "one", "three"] {
        daemon.put(&*target, content).is(204);
        let tag = etag(daemon.get(&*target).is(200));
        assert_eq!(etag(daemon.get(&*target).is(200)), tag);
        assert!(
            !seen.contains(&tag),
            "{tag} for {content} was seen: {seen:?}"
        );
        seen.push(tag);
    }
}

fn a_file_of_many_megabytes_arrives_whole(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let content = noise(20_000_001);
    fs::write(daemon.path("f"), &content).expect("the scratch directory is ours");
    let mut connection = daemon.connect();
    for _ in 0..2 {
        let reply = connection
            .call(&Request::get(file_at(daemon.path("f"))).bearer())
            .is(200);
        assert!(reply.body == content);
    }
    let part = Request::get(file_at(daemon.path("f")))
        .bearer()
        .field("range", "bytes=12345678-19999999");
    assert!(connection.call(&part).is(206).body == content[12_345_678..20_000_000]);
}

fn a_file_that_shrinks_while_it_is_read_ends_the_connection(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let path = daemon.path("f");
    let file = fs::File::create(&path).expect("the scratch directory is ours");
    file.set_len(256 << 20).expect("a sparse file");
    let mut connection = daemon.connect();
    connection.send(Request::get(file_at(&path)).bearer().bytes());
    let head = connection.head().expect("a response");
    assert_eq!(head.field("content-length"), Some("268435456"));
    file.set_len(1000).expect("the file is ours");
    let (rest, _) = connection.rest();
    assert!(rest.len() < 256 << 20, "the whole file came");
    daemon.health();
}

fn a_reader_that_leaves_costs_nothing(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let file = fs::File::create(daemon.path("f")).expect("the scratch directory is ours");
    file.set_len(256 << 20).expect("a sparse file");
    let before = daemon.at_rest();
    for round in 0..10 {
        let mut connection = daemon.connect();
        connection.send(Request::get(file_at(daemon.path("f"))).bearer().bytes());
        connection.take(100_000).expect("the beginning");
        if round % 2 == 0 {
            connection.reset();
        }
    }
    daemon.holds_at_most(before);
}

fn a_reader_that_does_not_read_delays_nobody(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let file = fs::File::create(daemon.path("f")).expect("the scratch directory is ours");
    file.set_len(256 << 20).expect("a sparse file");
    let mut idle: Vec<_> = (0..5).map(|_| daemon.connect()).collect();
    for connection in &mut idle {
        connection.send(Request::get(file_at(daemon.path("f"))).bearer().bytes());
        connection.head().expect("a response");
    }
    fs::write(daemon.path("small"), noise(100_000)).expect("the scratch directory is ours");
    for _ in 0..20 {
        assert_eq!(
            daemon.get(file_at(daemon.path("small"))).is(200).body.len(),
            100_000
        );
    }
    // And one that is let go for it is let go alone.
    assert!(!matches!(idle[0].take(1000), Err(Broken::Silent)));
}

/// Writes `content` and reads it with `query`.
#[track_caller]
fn read(daemon: &Daemon, content: &[u8], query: &str) -> Reply {
    fs::write(daemon.path("f"), content).expect("the scratch directory is ours");
    daemon.get(format!("{}&{query}", file_at(daemon.path("f"))))
}

/// Reads a file of ten bytes with this range.
#[track_caller]
fn ranged(daemon: &Daemon, range: &str) -> Reply {
    fs::write(daemon.path("f"), "0123456789").expect("the scratch directory is ours");
    let request = Request::get(file_at(daemon.path("f"))).bearer();
    daemon.call(&request.field("range", range))
}

fn make_fifo(daemon: &Daemon, name: &str) {
    let mode = rustix::fs::Mode::from_raw_mode(0o644);
    rustix::fs::mkfifoat(rustix::fs::CWD, daemon.path(name), mode)
        .expect("the scratch directory is ours");
}
