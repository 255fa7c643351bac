//! Digests of uploads: checked before anything changes (RFC 9530).

use std::fs;

use ringd::wire::base64;
use ringd::wire::coding::Coding;
use ringd::wire::digest::Hasher;
use sha2::{Digest, Sha512};

use crate::archive::{archive, file};
use crate::codings::coded;
use crate::daemon::Daemon;
use crate::driver::Driver;
use crate::request::{Request, file_at, tar_at};
use crate::scratch::{noise, tree};

both![
    a_body_that_has_its_digest_is_taken,
    a_body_that_has_another_digest_changes_nothing,
    every_digest_that_is_told_must_fit,
    a_coded_body_has_two_digests,
    a_field_that_is_no_digest_is_refused_before_the_body,
    an_archive_that_has_another_digest_is_not_extracted,
];

fn sha256(bytes: &[u8]) -> String {
    let mut hasher = Hasher::default();
    hasher.update(bytes);
    told("sha-256", &hasher.finish())
}

fn sha512(bytes: &[u8]) -> String {
    told("sha-512", &Sha512::digest(bytes))
}

fn told(name: &str, digest: &[u8]) -> String {
    let mut text = format!("{name}=:").into_bytes();
    base64::append(&mut text, digest);
    text.push(b':');
    String::from_utf8(text).expect("base64 is text")
}

fn put(daemon: &Daemon, name: &str) -> Request {
    Request::put(file_at(daemon.path(name))).bearer()
}

/// The request with its body, once with a length and once in chunks.
fn both_ways(request: &Request, body: &[u8]) -> [Request; 2] {
    let middle = body.len() / 2;
    let parts = [&body[..middle], &body[middle..]];
    let parts = parts.into_iter().filter(|part| !part.is_empty());
    [request.clone().body(body), request.clone().chunks(parts)]
}

fn a_body_that_has_its_digest_is_taken(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let mut connection = daemon.connect();
    for size in [0, 1, 16_384, 16_385, 524_288, 524_289, 2_000_000] {
        let body = noise(size);
        for field in ["content-digest", "repr-digest", "Content-Digest"] {
            for value in [
                sha256(&body),
                sha512(&body),
                format!("{}, {}", sha256(&body), sha512(&body)),
                format!("md5=:AAAA:, {};x=1, unixsum=5", sha256(&body)),
                "md5=:AAAA:".into(),
                String::new(),
            ] {
                let request = put(&daemon, "f").field(field, &*value);
                for request in both_ways(&request, &body) {
                    connection.call(&request).bare(204);
                    let stored = fs::read(daemon.path("f")).expect("it was written");
                    assert!(stored == body, "{size} bytes with {field}: {value}");
                    fs::remove_file(daemon.path("f")).expect("it was written");
                }
            }
        }
    }
}

fn a_body_that_has_another_digest_changes_nothing(driver: Driver) {
    let daemon = Daemon::ready(driver);
    fs::write(daemon.path("old"), "old").expect("the scratch directory is ours");
    let before = tree(&daemon.path(""));
    let mut connection = daemon.connect();
    for size in [0, 1, 16_385, 524_288, 2_000_000] {
        let body = noise(size);
        let other = [&body[..], b"x"].concat();
        for field in ["content-digest", "repr-digest"] {
            for value in [sha256(&other), sha512(&other)] {
                for name in ["old", "new"] {
                    let request = put(&daemon, name).field(field, &*value);
                    for request in both_ways(&request, &body) {
                        let said = connection.call(&request).explains(400).text();
                        assert_eq!(said, format!("the body is not what {field} says"));
                        assert_eq!(tree(&daemon.path("")), before, "{size} bytes");
                    }
                }
            }
        }
    }
    connection.is_usable();
}

fn every_digest_that_is_told_must_fit(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let (right, wrong) = (sha256(b"body"), sha512(b"other"));
    for fields in [
        [("content-digest", &*right), ("repr-digest", &*wrong)],
        [("content-digest", &*wrong), ("repr-digest", &*right)],
        [("content-digest", &*right), ("content-digest", &*wrong)],
        [("repr-digest", &*wrong), ("repr-digest", &*right)],
    ] {
        let mut request = put(&daemon, "f");
        for (name, value) in fields {
            request = request.field(name, value);
        }
        daemon.call(&request.body("body")).explains(400);
    }
    let twice = put(&daemon, "f").field("content-digest", format!("{}, {right}", sha256(b"x")));
    assert!(tree(&daemon.path("")).is_empty());
    // Of two values of one key the last one counts (RFC 9651, section 3.2).
    daemon.call(&twice.body("body")).bare(204);
}

fn a_coded_body_has_two_digests(driver: Driver) {
    let daemon = Daemon::ready(driver);
    for coding in [Coding::Zstd, Coding::Gzip] {
        for size in [10, 1_000_000] {
            let plain = noise(size);
            let bytes = coded(coding, &plain);
            let (of_plain, of_bytes) = (sha256(&plain), sha256(&bytes));
            let request = put(&daemon, "f").field("content-encoding", coding.name());
            let neither = sha256(b"neither");
            for (content, repr, status) in [
                (Some(&of_bytes), None, 204),
                (None, Some(&of_plain), 204),
                (None, Some(&of_bytes), 204),
                (Some(&of_bytes), Some(&of_plain), 204),
                (Some(&of_plain), None, 400),
                (Some(&of_plain), Some(&of_plain), 400),
                (None, Some(&neither), 400),
                (Some(&of_bytes), Some(&neither), 400),
            ] {
                let mut request = request.clone();
                for (name, value) in [("content-digest", content), ("repr-digest", repr)] {
                    if let Some(value) = value {
                        request = request.field(name, value);
                    }
                }
                for request in both_ways(&request, &bytes) {
                    daemon.call(&request).is(status);
                    let stored = fs::read(daemon.path("f")).ok();
                    let expected = (status == 204).then_some(&plain);
                    assert!(stored.as_ref() == expected, "{content:?}, {repr:?}");
                    let _ = fs::remove_file(daemon.path("f"));
                }
            }
        }
    }
}

fn a_field_that_is_no_digest_is_refused_before_the_body(driver: Driver) {
    let daemon = Daemon::ready(driver);
    for field in ["content-digest", "repr-digest"] {
        for value in [
            "sha-256",
            "sha-256=abc",
            "sha-256=:AAAA:",
            "SHA-256=:AAAA:",
            "sha-256=:AA",
            ",",
        ] {
            for target in [file_at(daemon.path("f")), tar_at(daemon.path("root"))] {
                let request = Request::put(target).bearer().field(field, value);
                let mut connection = daemon.connect();
                connection.send(request.body(noise(200_000)).head());
                let said = connection.reply().explains(400).text();
                assert!(said.starts_with(&format!("{field} ")), "{value}: {said}");
            }
        }
    }
    assert!(tree(&daemon.path("")).is_empty());
}

fn an_archive_that_has_another_digest_is_not_extracted(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let body = archive([file("f", noise(700_000))]);
    let right = sha256(&body);
    let put = Request::put(tar_at(daemon.path("root"))).bearer();
    for field in ["content-digest", "repr-digest"] {
        let wrong = put.clone().field(field, sha256(b"other"));
        for request in both_ways(&wrong, &body) {
            daemon.call(&request).explains(400);
            assert!(tree(&daemon.path("")).is_empty());
        }
        for request in both_ways(&put.clone().field(field, &*right), &body) {
            daemon.call(&request).bare(204);
        }
        let once = Request::put(format!("{}&spool=off", tar_at(daemon.path("once")))).bearer();
        let once = once.field(field, sha256(b"other")).body(body.clone());
        daemon.call(&once).explains(400);
        fs::remove_dir_all(daemon.path("root")).expect("it was extracted");
        fs::remove_dir_all(daemon.path("once")).expect("one pass leaves what came before");
    }
}
