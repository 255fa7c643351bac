//! Wishes 12 to 22: files that are whole or absent, and transfers that cost what they move.

use std::fs::{self, File, FileTimes};
use std::os::unix::fs::FileExt;

use ringd::api::digest::{Hasher, field};

use crate::daemon::Daemon;
use crate::driver::Driver;
use crate::request::{Request, file_at};
use crate::scratch::noise;

both![
    wish_16_a_resumed_download_is_of_one_version,
    wish_18_files_of_every_size_are_read,
];

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
