//! Wishes 12 to 22: files that are whole or absent, and transfers that cost what they move.

use std::fs::{self, File, FileTimes};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};

use ringd::api::digest::{Hasher, field};

use crate::daemon::Daemon;
use crate::driver::Driver;
use crate::request::{Request, file_at};
use crate::scratch::{mode, names, noise};

both![
    wish_14_an_interrupted_upload_leaves_the_old_file,
    wish_14_a_short_upload_is_never_taken_for_a_whole_one,
    wish_16_a_resumed_download_is_of_one_version,
    wish_17_a_write_leaves_no_stale_tail_of_the_longer_old_file,
    wish_18_files_of_every_size_are_read,
    wish_18_files_of_every_size_are_written,
    wish_19_a_replacement_keeps_mode_and_links,
    wish_20_a_sparse_file_stays_sparse,
];

fn wish_14_an_interrupted_upload_leaves_the_old_file(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let target = file_at(daemon.path("f"));
    daemon.put(&*target, "old").is(204);
    let before = daemon.get(&*target).is(200);
    for query in ["", "&sparse=1", "&fsync=1", "&mode=600&mtime=1"] {
        for length in [2, 5000, 100_000, 1_500_000] {
            let put = Request::put(format!("{target}{query}")).bearer();
            let halves = [noise(length / 2), noise(length - length / 2)];
            for put in [put.clone().body(noise(length)), put.chunks(halves)] {
                let bytes = put.bytes();
                let mut connection = daemon.connect();
                connection.send(&bytes[..bytes.len() - 1]);
                connection.finish();
                connection.reply().explains(400);
                let after = daemon.get(&*target).is(200);
                assert_eq!(after.text(), "old", "{query} {length}");
                assert_eq!(after.field("etag"), before.field("etag"));
                assert_eq!(names(&daemon.path("")), ["f"]);
            }
        }
    }
}

fn wish_14_a_short_upload_is_never_taken_for_a_whole_one(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let target = file_at(daemon.path("f"));
    daemon.put(&*target, "old").is(204);
    let whole = noise(700_000);
    let mut hasher = Hasher::default();
    hasher.update(&whole);
    let digest = field(&hasher.finish());
    // A sender that lost the end of the file before it counted its bytes.
    for name in ["content-digest", "repr-digest"] {
        for length in [0, 1, 600_000, 699_999] {
            let put = Request::put(&*target).bearer().field(name, &*digest);
            let reply = daemon.call(&put.body(&whole[..length]));
            assert_eq!(reply.status, 400, "{name} {length}: {reply:?}");
            assert_eq!(daemon.get(&*target).is(200).text(), "old");
        }
        let put = Request::put(&*target).bearer().field(name, &*digest);
        daemon.call(&put.body(&*whole)).is(204);
        assert!(daemon.get(&*target).is(200).body == whole);
        daemon.put(&*target, "old").is(204);
    }
    assert_eq!(names(&daemon.path("")), ["f"]);
}

fn wish_16_a_resumed_download_is_of_one_version(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let path = daemon.path("f");
    let target = file_at(&path);
    let versions = [vec![b'a'; 100_000], vec![b'b'; 100_000]];
    let ways: [(&str, Change<'_>); 4] = [
        ("rewritten in place, with the time of before", &|content| {
            let modified = fs::metadata(&path).and_then(|known| known.modified());
            let file = File::options()
                .write(true)
                .open(&path)
                .expect("it was made");
            file.write_all_at(content, 0).expect("there is room");
            let times = FileTimes::new().set_modified(modified.expect("it was made"));
            file.set_times(times).expect("the file is ours");
        }),
        ("replaced, with the time of before", &|content| {
            let modified = fs::metadata(&path).and_then(|known| known.modified());
            let file = File::create(daemon.path("new")).expect("the directory is ours");
            file.write_all_at(content, 0).expect("there is room");
            let times = FileTimes::new().set_modified(modified.expect("it was made"));
            file.set_times(times).expect("the file is ours");
            fs::rename(daemon.path("new"), &path).expect("both are there");
        }),
        ("uploaded", &|content| {
            drop(daemon.put(&*target, content).is(204))
        }),
        ("uploaded in place", &|content| {
            drop(
                daemon
                    .put(format!("{target}&replace=in_place"), content)
                    .is(204),
            );
        }),
    ];
    for (how, change) in ways {
        fs::write(&path, &versions[0]).expect("the scratch directory is ours");
        let mut connection = daemon.connect();
        connection.send(Request::get(&*target).bearer().bytes());
        let head = connection.head().expect("a response");
        let held = connection.take(40_000).expect("the beginning");
        drop(connection);
        let etag = head.field("etag").expect("a validator");
        let rest = Request::get(&*target)
            .bearer()
            .field("range", "bytes=40000-");
        let by_etag = rest.clone().field("if-range", etag);
        let same = daemon.call(&by_etag).is(206);
        assert!([&*held, &*same.body].concat() == versions[0], "{how}");
        let by_date = head.field("last-modified").expect("a date");
        let by_date = rest.field("if-range", by_date);
        change(&versions[1]);
        for resumed in [by_etag, by_date] {
            assert!(daemon.call(&resumed).is(200).body == versions[1], "{how}");
        }
    }
}

/// A way in which somebody else gives a file another content.
type Change<'a> = &'a dyn Fn(&[u8]);

fn wish_17_a_write_leaves_no_stale_tail_of_the_longer_old_file(driver: Driver) {
    let daemon = Daemon::ready(driver);
    for query in [
        "",
        "&replace=in_place",
        "&sparse=1",
        "&sparse=1&replace=in_place",
    ] {
        let target = format!("{}{query}", file_at(daemon.path("f")));
        for length in [1_000_000, 700_000, 600_001, 5000, 4096, 1, 0, 3] {
            for content in [noise(length), vec![0; length]] {
                daemon.put(&*target, content.clone()).is(204);
                let found = fs::read(daemon.path("f")).expect("it was written");
                assert!(found == content, "{query} {length}");
            }
        }
    }
}

fn wish_18_files_of_every_size_are_read(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let path = daemon.path("f");
    let target = file_at(&path);
    let mut connection = daemon.connect();
    let mut call = |request: Request, status| connection.call(&request).is(status);
    let get = |query: &str| Request::get(format!("{target}{query}")).bearer();
    for power in [0, 1, 9, 10, 12, 15, 16, 17, 18, 19, 20, 21, 22] {
        for size in [(1 << power) - 1, 1 << power, (1 << power) + 1] {
            let content = noise(size);
            fs::write(&path, &content).expect("the scratch directory is ours");
            assert!(call(get(""), 200).body == content, "{size}");
            let wanted = get("").field("want-repr-digest", "sha-256=1");
            if size <= 1 << 20 {
                let mut hasher = Hasher::default();
                hasher.update(&content);
                let digest = field(&hasher.finish());
                assert_eq!(
                    call(wanted, 200).field("repr-digest"),
                    Some(&*digest),
                    "{size}"
                );
            }
            for first in [0, size / 2, size.saturating_sub(1)] {
                if first < size {
                    let part = get("").field("range", format!("bytes={first}-"));
                    assert!(
                        call(part, 206).body == content[first..],
                        "{size} from {first}"
                    );
                    let length = size - first;
                    let part = get("").field("range", format!("bytes=-{length}"));
                    assert!(
                        call(part, 206).body == content[first..],
                        "the last {length}"
                    );
                }
            }
            let lines = content.iter().filter(|byte| **byte == b'\n').count();
            assert!(call(get("&start_line=1"), 200).body == content, "{size}");
            let all = format!("&last_lines={}", lines + 1);
            assert!(call(get(&all), 200).body == content, "{size}");
            let half = lines / 2;
            let mut halves = Vec::new();
            if half > 0 {
                halves = call(get(&format!("&end_line={half}")), 200).body;
            }
            let rest = call(get(&format!("&start_line={}", half + 1)), 200).body;
            halves.extend_from_slice(&rest);
            assert!(halves == content, "{size}: {half} lines and the rest");
        }
    }
}

fn wish_18_files_of_every_size_are_written(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let mut connection = daemon.connect();
    for power in [0, 1, 9, 10, 12, 13, 15, 16, 17, 18, 19, 20, 21, 22] {
        for size in [(1 << power) - 1, 1 << power, (1 << power) + 1] {
            let content = noise(size);
            for query in ["", "&replace=in_place", "&sparse=1"] {
                let target = format!("{}{query}", file_at(daemon.path("f")));
                let put = Request::put(target).bearer();
                let chunked = put.clone().chunks(content.chunks(65_537));
                for put in [put.body(content.clone()), chunked] {
                    connection.call(&put).is(204);
                    let found = fs::read(daemon.path("f")).expect("it was written");
                    assert!(found == content, "{query} {size}");
                }
            }
        }
    }
}

fn wish_19_a_replacement_keeps_mode_and_links(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let path = |name: &str| daemon.path(name);
    fs::write(path("f"), "old").expect("the scratch directory is ours");
    fs::set_permissions(path("f"), fs::Permissions::from_mode(0o4741)).expect("it is ours");
    fs::hard_link(path("f"), path("partner")).expect("the scratch directory is ours");
    symlink("f", path("link")).expect("the scratch directory is ours");
    let content = |name: &str| fs::read_to_string(path(name)).expect("it is there");
    daemon.put(file_at(path("link")), "atomic").is(204);
    assert_eq!(mode(&path("f")), 0o4741);
    assert_eq!((&*content("f"), &*content("partner")), ("atomic", "old"));
    assert!(path("link").is_symlink());
    fs::remove_file(path("partner")).expect("it is ours");
    fs::hard_link(path("f"), path("partner")).expect("the scratch directory is ours");
    let in_place = format!("{}&replace=in_place", file_at(path("link")));
    daemon.put(in_place, "in place").is(204);
    assert_eq!(mode(&path("f")), 0o4741);
    assert_eq!(
        (&*content("f"), &*content("partner")),
        ("in place", "in place")
    );
    assert!(path("link").is_symlink());
}

fn wish_20_a_sparse_file_stays_sparse(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let mut content = vec![0; 64 << 20];
    content[40 << 20..][..10].copy_from_slice(&noise(10));
    for query in ["&sparse=1", "&sparse=1&replace=in_place"] {
        let target = format!("{}{query}", file_at(daemon.path("f")));
        daemon.put(target, content.clone()).is(204);
        let found = fs::metadata(daemon.path("f")).expect("it was written");
        assert_eq!(found.len(), 64 << 20);
        assert!(found.blocks() * 512 <= 8192, "{} blocks", found.blocks());
        assert!(fs::read(daemon.path("f")).expect("it was written") == content);
    }
}
