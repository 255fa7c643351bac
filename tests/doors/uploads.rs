//! Resumable uploads: begun, interrupted, asked for, carried on, complete.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use serde_json::json;

use crate::daemon::Daemon;
use crate::driver::Driver;
use crate::process::{is_root, wait_until};
use crate::request::{Request, file_at, with_path};
use crate::resumable::{append, ask, began, begin, creation, digest, list, offset, patch, status};
use crate::scratch::{inode, mode, names, noise};

both![
    an_upload_is_begun_interrupted_asked_for_and_completed,
    a_put_that_says_it_is_not_all_begins_an_upload,
    a_put_that_breaks_off_can_go_on_where_the_client_was_told_how,
    a_put_that_brings_all_is_a_put_for_those_who_do_not_speak_the_draft,
    bytes_may_come_in_chunks_and_the_end_without_any,
    a_file_of_nothing_can_be_uploaded,
    asking_ends_the_request_that_appends,
    a_request_that_comes_later_takes_over,
    the_new_file_is_as_a_put_would_have_made_it,
    a_target_that_changes_meanwhile_is_replaced_as_it_then_is,
    a_condition_is_judged_at_the_beginning_and_at_the_end,
    whatever_a_put_can_ask_for_an_upload_can,
    the_end_is_told_again_to_those_who_missed_it,
    what_the_whole_is_to_be_is_checked_before_it_is_published,
    a_part_that_is_not_what_its_digest_says_counts_for_nothing,
    uploads_are_listed_for_operators,
    python_uploads_as_its_users_expect,
];

fn an_upload_is_begun_interrupted_asked_for_and_completed(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let bytes = noise(3_000_000);
    let before = daemon.at_rest();
    let upload = begin(&daemon, "deep/f", Some(bytes.len()));
    assert_eq!(offset(&daemon, &upload), 0);
    append(&daemon, &upload, 0, false, &bytes[..1_000_000]).is(204);
    // The client goes away in the middle of a part.
    let mut connection = daemon.connect();
    let request = patch(&upload, 1_000_000, "?1")
        .body(&bytes[1_000_000..])
        .bytes();
    let cut = request.len() - 600_000;
    connection.send(&request[..cut]);
    drop(connection);
    wait_until("the request has ended", || {
        list(&daemon)[0]["requests"] == 0
    });
    let arrived = bytes.len() - 600_000;
    let reply = ask(&daemon, &upload).bare(204);
    assert_eq!(reply.field("upload-offset"), Some(&*arrived.to_string()));
    assert_eq!(reply.field("upload-length"), Some("3000000"));
    assert_eq!(
        reply.field("upload-limit"),
        Some("max-append-size=536870912, max-age=86400")
    );
    assert_eq!(names(&daemon.path("deep")), [""; 0]);
    daemon.get(file_at(daemon.path("deep/f"))).is(404);
    let reply = append(&daemon, &upload, arrived, true, &bytes[arrived..]).bare(204);
    assert_eq!(reply.field("upload-complete"), Some("?1"));
    assert_eq!(names(&daemon.path("deep")), ["f"]);
    assert!(fs::read(daemon.path("deep/f")).expect("it is there") == bytes);
    let reply = ask(&daemon, &upload).bare(204);
    assert_eq!(reply.field("upload-complete"), Some("?1"));
    assert_eq!(reply.field("upload-offset"), Some("3000000"));
    assert!(list(&daemon).is_empty());
    daemon.holds_at_most(before);
}

fn a_put_that_says_it_is_not_all_begins_an_upload(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let bytes = noise(700_000);
    let put = Request::put(file_at(daemon.path("f"))).bearer();
    let put = put.field("upload-complete", "?0").body(&bytes[..600_000]);
    let reply = daemon.call(&put);
    assert_eq!(reply.field("upload-offset"), Some("600000"));
    let upload = began(&reply);
    assert_eq!(names(&daemon.path("")), [""; 0]);
    append(&daemon, &upload, 600_000, true, &bytes[600_000..]).is(204);
    assert!(fs::read(daemon.path("f")).expect("it is there") == bytes);
}

fn a_put_that_breaks_off_can_go_on_where_the_client_was_told_how(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let bytes = noise(900_000);
    for reset in [false, true] {
        let put = Request::put(file_at(daemon.path("f"))).bearer();
        let put = put
            .field("upload-complete", "?1")
            .field("upload-draft-interop-version", "7")
            .body(&*bytes);
        let mut connection = daemon.connect();
        connection.send(put.head());
        let told = connection.head().expect("an interim response");
        assert_eq!(told.status, 104, "{told:?}");
        assert_eq!(told.field("upload-draft-interop-version"), Some("7"));
        assert!(told.field("upload-limit").is_some(), "{told:?}");
        let upload = told.field("location").expect("a place to go on").to_owned();
        connection.send(&bytes[..500_000]);
        if reset {
            connection.reset();
        } else {
            drop(connection);
        }
        wait_until("the request has ended", || {
            list(&daemon)[0]["requests"] == 0
        });
        let arrived = offset(&daemon, &upload);
        assert!(
            arrived == 500_000 || (reset && arrived < 500_000),
            "{arrived}"
        );
        // The length was said by the first request, so another one is refused.
        append(&daemon, &upload, arrived, true, &bytes[arrived..899_999]).is(400);
        append(&daemon, &upload, arrived, true, &bytes[arrived..]).is(204);
        assert!(fs::read(daemon.path("f")).expect("it is there") == bytes);
        fs::remove_file(daemon.path("f")).expect("ours");
        // Without an interruption the answer is that of a PUT.
        let mut connection = daemon.connect();
        connection.send(put.bytes());
        assert_eq!(connection.head().expect("an interim response").status, 104);
        let reply = connection.reply().bare(204);
        assert_eq!(reply.field("upload-complete"), Some("?1"));
        connection.is_usable();
        assert!(fs::read(daemon.path("f")).expect("it is there") == bytes);
    }
}

fn a_put_that_brings_all_is_a_put_for_those_who_do_not_speak_the_draft(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let before = daemon.at_rest();
    let put = Request::put(file_at(daemon.path("f"))).bearer();
    let put = put.field("upload-complete", "?1").body(noise(400_000));
    let mut connection = daemon.connect();
    connection.send(put.bytes());
    let head = connection.head().expect("a response");
    assert_eq!(head.status, 204, "no interim response: {head:?}");
    // A value that is none is as good as no field.
    let odd = Request::put(file_at(daemon.path("f"))).bearer();
    daemon
        .call(&odd.field("upload-complete", "0").body("x"))
        .bare(204);
    // What nobody could go on with is not kept.
    for begun in [
        put,
        Request::put(file_at(daemon.path("f")))
            .bearer()
            .field("upload-complete", "?0")
            .body(noise(400_000)),
    ] {
        let bytes = begun.bytes();
        let mut connection = daemon.connect();
        connection.send(&bytes[..bytes.len() - 1]);
        drop(connection);
    }
    drop(connection);
    daemon.holds_at_most(before);
    assert!(list(&daemon).is_empty());
    assert_eq!(fs::read(daemon.path("f")).expect("it is there"), b"x");
}

fn bytes_may_come_in_chunks_and_the_end_without_any(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let bytes = noise(1_300_000);
    let upload = begin(&daemon, "f", None);
    let mut at = 0;
    for size in [1, 99_999, 0, 600_000, 600_000] {
        let pieces: Vec<_> = bytes[at..at + size]
            .chunks(70_001)
            .map(<[u8]>::to_vec)
            .collect();
        let reply = daemon
            .call(&patch(&upload, at, "?0").chunks(pieces))
            .bare(204);
        assert_eq!(reply.field("upload-complete"), Some("?0"));
        at += size;
        assert_eq!(offset(&daemon, &upload), at);
        assert_eq!(ask(&daemon, &upload).field("upload-length"), None);
    }
    append(&daemon, &upload, at, true, &[]).is(204);
    assert!(fs::read(daemon.path("f")).expect("it is there") == bytes);
    // The end may be said at a route of its own, too.
    let upload = begin(&daemon, "g", None);
    append(&daemon, &upload, 0, false, b"text").is(204);
    daemon.post(format!("{upload}/finish")).bare(204);
    assert_eq!(fs::read(daemon.path("g")).expect("it is there"), b"text");
}

fn a_file_of_nothing_can_be_uploaded(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let upload = begin(&daemon, "f", None);
    append(&daemon, &upload, 0, true, &[]).is(204);
    assert_eq!(fs::read(daemon.path("f")).expect("it is there"), b"");
    let all = creation(&daemon, "g", Some(0)).field("upload-complete", "?1");
    daemon.call(&all).bare(204);
    assert_eq!(fs::read(daemon.path("g")).expect("it is there"), b"");
}

fn asking_ends_the_request_that_appends(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let bytes = noise(800_000);
    let upload = begin(&daemon, "f", Some(bytes.len()));
    let mut stalled = daemon.connect();
    let request = patch(&upload, 0, "?1").body(&*bytes).bytes();
    stalled.send(&request[..request.len() - 100_000]);
    wait_until("bytes have arrived", || list(&daemon)[0]["received"] != 0);
    let arrived = offset(&daemon, &upload);
    let refused = stalled.reply().is(409);
    assert_eq!(refused.json()["error"], "in_use");
    stalled.is_closed();
    assert_eq!(
        offset(&daemon, &upload),
        arrived,
        "what was told stays true"
    );
    append(&daemon, &upload, arrived, true, &bytes[arrived..]).is(204);
    assert!(fs::read(daemon.path("f")).expect("it is there") == bytes);
}

fn a_request_that_comes_later_takes_over(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let bytes = noise(800_000);
    let upload = begin(&daemon, "f", Some(bytes.len()));
    let mut stalled = daemon.connect();
    let request = patch(&upload, 0, "?1").body(&*bytes).bytes();
    stalled.send(&request[..request.len() - 100_000]);
    wait_until("it is under way", || list(&daemon)[0]["requests"] == 1);
    // Where the old one had come to is not known to the new one: it is told, and the old one has ended.
    let reply = append(&daemon, &upload, 0, true, &bytes);
    let arrived = match reply.status {
        204 => bytes.len(),
        _ => {
            let reply = reply.is(409);
            let document = json_of(&reply);
            assert_eq!(document["error"], "upload_offset");
            assert_eq!(document["provided-offset"], 0);
            let told = reply.field("upload-offset").expect("the right offset");
            assert_eq!(document["expected-offset"].to_string(), told);
            told.parse().expect("a number")
        }
    };
    stalled.reply().is(409);
    if arrived < bytes.len() {
        append(&daemon, &upload, arrived, true, &bytes[arrived..]).is(204);
    }
    assert!(fs::read(daemon.path("f")).expect("it is there") == bytes);
}

fn the_new_file_is_as_a_put_would_have_made_it(driver: Driver) {
    let daemon = Daemon::ready(driver);
    fs::write(daemon.path("old"), "old").expect("the scratch directory is ours");
    fs::set_permissions(daemon.path("old"), fs::Permissions::from_mode(0o751)).expect("ours");
    let may_own = is_root("owners of files");
    if may_own {
        std::os::unix::fs::chown(daemon.path("old"), Some(1234), Some(4321)).expect("root may");
    }
    fs::hard_link(daemon.path("old"), daemon.path("other")).expect("ours");
    std::os::unix::fs::symlink("old", daemon.path("link")).expect("ours");
    let before = inode(&daemon.path("old"));
    let upload = begin(&daemon, "link", None);
    append(&daemon, &upload, 0, true, b"new").is(204);
    assert_eq!(fs::read(daemon.path("old")).expect("it is there"), b"new");
    assert_eq!(fs::read(daemon.path("other")).expect("it is there"), b"old");
    assert_ne!(inode(&daemon.path("old")), before);
    assert_eq!(mode(&daemon.path("old")), 0o751);
    if may_own {
        let made = fs::metadata(daemon.path("old")).expect("it is there");
        assert_eq!((made.uid(), made.gid()), (1234, 4321));
    }
    let target = format!("{}&mode=4640", with_path("/v1/uploads", daemon.path("m")));
    let upload = began(&daemon.call(&Request::post(target).bearer()));
    append(&daemon, &upload, 0, true, b"new").is(204);
    assert_eq!(mode(&daemon.path("m")), 0o4640);
    daemon.put(file_at(daemon.path("put")), "new").is(204);
    let upload = begin(&daemon, "plain", None);
    append(&daemon, &upload, 0, true, b"new").is(204);
    assert_eq!(mode(&daemon.path("plain")), mode(&daemon.path("put")));
}

fn a_target_that_changes_meanwhile_is_replaced_as_it_then_is(driver: Driver) {
    let daemon = Daemon::ready(driver);
    // A file that came.
    let upload = begin(&daemon, "d/came", None);
    fs::write(daemon.path("d/came"), "old").expect("ours");
    fs::set_permissions(daemon.path("d/came"), fs::Permissions::from_mode(0o611)).expect("ours");
    append(&daemon, &upload, 0, true, b"new").is(204);
    assert_eq!(
        fs::read(daemon.path("d/came")).expect("it is there"),
        b"new"
    );
    assert_eq!(mode(&daemon.path("d/came")), 0o611);
    // A file that went, and its directory with it.
    fs::create_dir(daemon.path("e")).expect("ours");
    fs::write(daemon.path("e/went"), "old").expect("ours");
    fs::set_permissions(daemon.path("e/went"), fs::Permissions::from_mode(0o611)).expect("ours");
    let upload = begin(&daemon, "e/went", None);
    fs::remove_dir_all(daemon.path("e")).expect("ours");
    append(&daemon, &upload, 0, true, b"new").is(204);
    assert_eq!(
        fs::read(daemon.path("e/went")).expect("it is there"),
        b"new"
    );
    assert_eq!(mode(&daemon.path("e/went")), 0o611);
    // A directory in its place: the upload has failed, and says that it was complete.
    let upload = begin(&daemon, "dir", None);
    fs::create_dir(daemon.path("dir")).expect("ours");
    let reply = append(&daemon, &upload, 0, true, b"new").is(500);
    assert_eq!(reply.field("upload-complete"), Some("?1"), "{reply:?}");
    ask(&daemon, &upload).is(404);
    assert_eq!(names(&daemon.path("dir")), [""; 0]);
}

fn a_condition_is_judged_at_the_beginning_and_at_the_end(driver: Driver) {
    let daemon = Daemon::ready(driver);
    fs::write(daemon.path("f"), "old").expect("the scratch directory is ours");
    let fresh = |name: &str| creation(&daemon, name, None).field("if-none-match", "*");
    let refused = daemon.call(&fresh("f")).is(412);
    assert_eq!(refused.json()["error"], "precondition_failed");
    assert!(list(&daemon).is_empty());
    let upload = began(&daemon.call(&fresh("g")));
    append(&daemon, &upload, 0, true, b"new").is(204);
    let upload = began(&daemon.call(&fresh("h")));
    fs::write(daemon.path("h"), "faster").expect("ours");
    let refused = append(&daemon, &upload, 0, true, b"new").is(412);
    assert_eq!(refused.field("upload-complete"), Some("?1"));
    ask(&daemon, &upload).is(404);
    let etag = |name: &str| {
        let reply = daemon.get(file_at(daemon.path(name))).is(200);
        reply.field("etag").expect("a validator").to_owned()
    };
    for is_changed in [false, true] {
        let same = creation(&daemon, "f", None).field("if-match", etag("f"));
        let upload = began(&daemon.call(&same));
        append(&daemon, &upload, 0, false, b"new").is(204);
        if is_changed {
            daemon.put(file_at(daemon.path("f")), "changed").is(204);
        }
        let end = daemon.post(format!("{upload}/finish"));
        if is_changed {
            end.is(412);
        } else {
            let told = end.bare(204).field("etag").map(str::to_owned);
            assert_eq!(told, Some(etag("f")));
        }
    }
    for (name, content) in [("f", "changed"), ("g", "new"), ("h", "faster")] {
        let found = fs::read_to_string(daemon.path(name)).expect("it is there");
        assert_eq!(found, content, "{name}");
    }
    assert_eq!(names(&daemon.path("")), ["f", "g", "h"]);
}

fn whatever_a_put_can_ask_for_an_upload_can(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let owner = match is_root("an owner that is asked for") {
        true => "&owner=1234:4321",
        false => "",
    };
    let target = with_path("/v1/uploads", daemon.path("a/b/f"));
    let target = format!("{target}&mtime=1700000000.5&fsync=1&sparse=1{owner}");
    let upload = began(&daemon.call(&Request::post(target).bearer()));
    let bytes = [noise(5000), vec![0; 4_000_000], noise(5000)].concat();
    append(&daemon, &upload, 0, false, &bytes[..3_000_001]).is(204);
    let last = append(&daemon, &upload, 3_000_001, true, &bytes[3_000_001..]).is(204);
    assert_eq!(
        last.field("last-modified"),
        Some("Tue, 14 Nov 2023 22:13:20 GMT")
    );
    assert!(fs::read(daemon.path("a/b/f")).expect("it is there") == bytes);
    let made = fs::metadata(daemon.path("a/b/f")).expect("it is there");
    assert_eq!(
        (made.mtime(), made.mtime_nsec()),
        (1_700_000_000, 500_000_000)
    );
    assert!(made.blocks() * 512 < 100_000, "{} blocks", made.blocks());
    if !owner.is_empty() {
        assert_eq!((made.uid(), made.gid()), (1234, 4321));
    }
}

fn the_end_is_told_again_to_those_who_missed_it(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let upload = begin(&daemon, "f", None);
    let first = append(&daemon, &upload, 0, true, b"text").bare(204);
    fs::write(daemon.path("f"), "changed since").expect("ours");
    for _ in 0..2 {
        let again = append(&daemon, &upload, 4, true, &[]).bare(204);
        let finish = daemon.post(format!("{upload}/finish")).bare(204);
        for name in ["upload-complete", "upload-offset"] {
            assert_eq!(again.field(name), first.field(name));
            assert_eq!(finish.field(name), first.field(name));
        }
    }
    assert_eq!(
        status(&daemon, &upload),
        json!({"id": upload.rsplit('/').next(), "complete": true, "offset": 4, "length": 4})
    );
    // But nothing can be added.
    let reply = append(&daemon, &upload, 4, true, b"more").is(400);
    assert_eq!(json_of(&reply)["error"], "inconsistent_length");
    let reply = append(&daemon, &upload, 4, false, &[]).is(400);
    let document = json_of(&reply);
    assert_eq!(document["error"], "upload_completed");
    assert_eq!(
        document["type"],
        "https://iana.org/assignments/http-problem-types#completed-upload"
    );
    assert_eq!(fs::read(daemon.path("f")).expect("ours"), b"changed since");
    daemon
        .call(&Request::new("DELETE", &*upload).bearer())
        .bare(204);
    ask(&daemon, &upload).is(404);
    assert_eq!(fs::read(daemon.path("f")).expect("ours"), b"changed since");
}

fn what_the_whole_is_to_be_is_checked_before_it_is_published(driver: Driver) {
    let daemon = Daemon::ready(driver);
    fs::write(daemon.path("f"), "old").expect("the scratch directory is ours");
    let bytes = noise(2_000_000);
    let (head, tail) = bytes.split_at(1_500_000);
    for (said, at_the_end, is_good) in [
        (&bytes, false, true),
        (&bytes, true, true),
        (&noise(1_999_999), false, false),
        (&noise(1_999_999), true, false),
    ] {
        let mut request = creation(&daemon, "f", None);
        if !at_the_end {
            request = request.field("repr-digest", digest(said));
        }
        let upload = began(&daemon.call(&request));
        append(&daemon, &upload, 0, false, head).is(204);
        let mut last = patch(&upload, head.len(), "?1").body(tail);
        if at_the_end {
            last = last.field("repr-digest", digest(said));
        }
        let reply = daemon.call(&last);
        if is_good {
            reply.bare(204);
            assert!(fs::read(daemon.path("f")).expect("it is there") == bytes);
            fs::write(daemon.path("f"), "old").expect("ours");
            continue;
        }
        assert_eq!(reply.field("upload-complete"), Some("?1"), "{reply:?}");
        assert_eq!(reply.is(400).json()["error"], "malformed_request");
        assert_eq!(fs::read(daemon.path("f")).expect("it is there"), b"old");
        ask(&daemon, &upload).is(404);
    }
    assert_eq!(names(&daemon.path("")), ["f"]);
}

fn a_part_that_is_not_what_its_digest_says_counts_for_nothing(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let bytes = noise(2_000_000);
    let (head, tail) = bytes.split_at(700_000);
    let upload = begin(&daemon, "f", None);
    let good = patch(&upload, 0, "?0").field("content-digest", digest(head));
    daemon.call(&good.body(head)).is(204);
    for complete in ["?0", "?1"] {
        let bad = patch(&upload, head.len(), complete).field("content-digest", digest(head));
        let reply = daemon.call(&bad.clone().body(tail)).is(400);
        assert_eq!(reply.json()["error"], "malformed_request");
        daemon.call(&bad.chunks([tail])).is(400);
        assert_eq!(offset(&daemon, &upload), head.len());
    }
    assert_eq!(names(&daemon.path("")), [""; 0]);
    // What comes next is shorter than what was refused, and nothing of that is left.
    append(&daemon, &upload, head.len(), true, b"end").is(204);
    let expected = [head, b"end"].concat();
    assert!(fs::read(daemon.path("f")).expect("it is there") == expected);
    let begun = creation(&daemon, "g", None).field("content-digest", digest(head));
    daemon.call(&begun.body(tail)).is(400);
    assert!(list(&daemon).is_empty());
}

fn uploads_are_listed_for_operators(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let first = begin(&daemon, "a", Some(10));
    let second = begin(&daemon, "b", None);
    append(&daemon, &first, 0, false, b"1234").is(204);
    let list = list(&daemon);
    assert_eq!(list.len(), 2);
    let id = |location: &str| location.trim_start_matches("/v1/uploads/").to_owned();
    for (entry, location, name, at, length) in [
        (&list[0], &first, "a", 4, json!(10)),
        (&list[1], &second, "b", 0, json!(null)),
    ] {
        assert_eq!(entry["id"], id(location));
        assert_eq!(entry["path"], daemon.path(name).to_string_lossy().as_ref());
        assert_eq!(entry["offset"], at);
        assert_eq!(entry["received"], at);
        assert_eq!(entry["length"], length);
        assert_eq!(entry["complete"], false);
        assert_eq!(entry["parallel"], false);
        assert_eq!(entry["requests"], 0);
        assert!(entry["age_seconds"].as_f64() >= entry["idle_seconds"].as_f64());
    }
    assert_eq!(
        status(&daemon, &first)["missing"],
        json!([{"first": 4, "last": 9}])
    );
    assert_eq!(status(&daemon, &second)["missing"], json!([]));
    // Whoever only looks ends nothing.
    let mut slow = daemon.connect();
    slow.send(&patch(&first, 4, "?1").body("567890").bytes()[..]);
    slow.reply().is(204);
    assert_eq!(crate::resumable::list(&daemon).len(), 1);
}

fn python_uploads_as_its_users_expect(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/doors/uploads_client.py");
    let ran = std::process::Command::new("python3")
        .arg(script)
        .arg(format!("http://127.0.0.1:{}", daemon.addresses()[0].port()))
        .arg(crate::request::TOKEN)
        .arg(daemon.path(""))
        .output();
    let ran = match ran {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            eprintln!("there is no python3: nothing is checked");
            return;
        }
        ran => ran.expect("python runs"),
    };
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{}: {said}", ran.status);
    assert_eq!(names(&daemon.path("")), ["parallel", "resumed"]);
}

#[track_caller]
fn json_of(reply: &crate::reply::Reply) -> serde_json::Value {
    assert_eq!(
        reply.field("content-type"),
        Some("application/problem+json"),
        "{reply:?}"
    );
    serde_json::from_slice(&reply.body).expect("a document")
}
