//! Byte ranges as download tools use them: many at once, resumed, and never of two versions.

use std::fs::{self, File};
use std::io::Write;
use std::thread;

use crate::client::Connection;
use crate::daemon::Daemon;
use crate::driver::Driver;
use crate::files_lines::read_by;
use crate::request::{Request, file_at};
use crate::scratch::noise;

both![
    sixteen_connections_fetch_one_file_in_pieces,
    a_range_costs_what_it_is,
    a_range_under_a_condition_is_of_one_version,
    a_file_that_grows_is_sent_as_long_as_it_was,
    a_range_is_never_coded,
];

fn sixteen_connections_fetch_one_file_in_pieces(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let content = noise(64_000_001);
    fs::write(daemon.path("f"), &content).expect("the scratch directory is ours");
    let target = file_at(daemon.path("f"));
    let head = daemon
        .call(&Request::new("HEAD", &*target).bearer())
        .is(200);
    assert_eq!(head.field("accept-ranges"), Some("bytes"));
    let size: usize = head
        .field("content-length")
        .and_then(|text| text.parse().ok())
        .expect("a size");
    let etag = head.field("etag").expect("a validator").to_owned();
    let before = read_by(&daemon);
    // Each connection takes every sixteenth piece, as tools do that split a file into small pieces.
    let piece = 1 << 20;
    let parts = thread::scope(|scope| {
        let workers: Vec<_> = (0..16)
            .map(|worker| {
                let mut connection = daemon.connect();
                let (target, etag) = (&target, &etag);
                scope.spawn(move || {
                    let starts = (worker * piece..size).step_by(16 * piece);
                    starts
                        .map(|first| {
                            let end = size.min(first + piece);
                            let request =
                                Request::get(&**target).bearer().field("if-range", &**etag);
                            let range = format!("bytes={first}-{}", end - 1);
                            let reply = connection.call(&request.field("range", range)).is(206);
                            (first, reply.body)
                        })
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        let mut parts = Vec::new();
        for worker in workers {
            parts.extend(worker.join().expect("a worker does not panic"));
        }
        parts
    });
    let mut whole = vec![0; size];
    for (first, part) in parts {
        whole[first..first + part.len()].copy_from_slice(&part);
    }
    assert!(whole == content);
    // All together have read the file once, and little else.
    let read = read_by(&daemon) - before;
    assert!(
        read < size as u64 + (2 << 20),
        "{read} bytes were read for {size}"
    );
}

fn a_range_costs_what_it_is(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let file = File::create(daemon.path("f")).expect("the scratch directory is ours");
    file.set_len(1 << 40).expect("a sparse file");
    daemon.at_rest();
    let mut connection = daemon.connect();
    let before = read_by(&daemon);
    for range in [
        "bytes=0-99",
        "bytes=549755813888-549755813987",
        "bytes=-100",
    ] {
        let request = Request::get(file_at(daemon.path("f"))).bearer();
        let reply = connection.call(&request.field("range", range)).is(206);
        assert_eq!(reply.body, [0; 100], "{range}");
    }
    let read = read_by(&daemon) - before;
    assert!(read < 1 << 20, "{read} bytes were read");
}

fn a_range_under_a_condition_is_of_one_version(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let file = File::create(daemon.path("f")).expect("the scratch directory is ours");
    file.set_len(256 << 20).expect("a sparse file");
    let target = file_at(daemon.path("f"));
    for condition in ["if-range", "if-match"] {
        let head = daemon.call(&Request::new("HEAD", &*target).bearer());
        let etag = head.field("etag").expect("a validator").to_owned();
        let request = Request::get(&*target).bearer().field(condition, &*etag);
        let mut connection = begun(&daemon, request.field("range", "bytes=1-"), 206);
        (&file).write_all(b"another").expect("there is room");
        let (rest, _) = connection.rest();
        let length = (256 << 20) - 1;
        assert!(rest.len() < length, "{condition}: the range came whole");
        // Whoever resumes now gets the new version from its start.
        let resumed = Request::get(&*target).bearer().field("range", "bytes=0-0");
        let reply = daemon.call(&resumed.clone().field("if-match", &*etag));
        assert_eq!(reply.status, 412, "{reply:?}");
        let mut connection = begun(&daemon, resumed.field("if-range", &*etag), 200);
        assert_eq!(connection.take(7).expect("the beginning"), b"another");
    }
}

fn a_file_that_grows_is_sent_as_long_as_it_was(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let mut file = File::create(daemon.path("f")).expect("the scratch directory is ours");
    for _ in 0..64 {
        file.write_all(&[b'x'; 1 << 20]).expect("there is room");
    }
    let size = 64 << 20;
    for (range, status, expected) in [(None, 200, size), (Some("bytes=5-"), 206, size - 5)] {
        let request = Request::get(file_at(daemon.path("f"))).bearer();
        let request = match range {
            Some(range) => request.field("range", range),
            None => request,
        };
        file.set_len(size as u64).expect("the file is ours");
        let mut connection = begun(&daemon, request, status);
        file.write_all(b"one more line of a log")
            .expect("there is room");
        let (rest, is_orderly) = connection.rest();
        assert!(
            rest == vec![b'x'; expected] && is_orderly,
            "{range:?}: {}",
            rest.len()
        );
    }
}

fn a_range_is_never_coded(driver: Driver) {
    let daemon = Daemon::ready(driver);
    fs::write(daemon.path("f"), "0123456789".repeat(1000)).expect("the scratch directory is ours");
    let coded = || {
        Request::get(file_at(daemon.path("f")))
            .bearer()
            .field("accept-encoding", "gzip")
    };
    let whole = daemon.call(&coded()).is(200);
    assert_eq!(whole.field("content-encoding"), Some("gzip"));
    let etag = whole.field("etag").expect("a validator").to_owned();
    let part = || coded().field("range", "bytes=2-4");
    let reply = daemon.call(&part()).is(206);
    assert_eq!(reply.field("content-encoding"), None, "{reply:?}");
    assert_eq!(reply.text(), "234");
    assert_ne!(
        reply.field("etag"),
        Some(&*etag),
        "two codings have one validator"
    );
    // What was held of the coded bytes goes with no part of the plain ones.
    let reply = daemon.call(&part().field("if-range", etag)).is(200);
    assert_eq!(reply.field("content-encoding"), None, "{reply:?}");
    assert_eq!(reply.body.len(), 10_000);
}

/// A connection on which the answer to `request` has begun.
#[track_caller]
fn begun(daemon: &Daemon, request: Request, status: u16) -> Connection {
    let mut connection = daemon.connect();
    connection.send(request.field("connection", "close").bytes());
    let head = connection.head().expect("a response");
    assert_eq!(head.status, status, "{head:?}");
    connection
}
