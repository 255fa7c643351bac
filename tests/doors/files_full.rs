//! A disk that is full: what does not fit leaves no part of itself and nothing else changed.

use std::path::Path;

use crate::archive::{archive, file};
use crate::daemon::{Daemon, Setup};
use crate::disk::{SIZE, with_disk};
use crate::driver::Driver;
use crate::request::{Request, file_at, tar_at};
use crate::scratch::noise;

both![
    a_file_that_does_not_fit_leaves_the_old_one_and_no_name,
    a_file_in_place_that_does_not_fit_is_told,
    a_sparse_file_fits_where_its_data_does,
    what_is_given_up_gives_its_space_back,
    an_archive_that_does_not_fit_leaves_what_was_there,
    the_reserve_is_looked_at_while_a_file_is_written,
];

fn a_file_that_does_not_fit_leaves_the_old_one_and_no_name(driver: Driver) {
    let Some(daemon) = on_a_disk(driver, "0") else {
        return;
    };
    let target = file_at(daemon.disk("f"));
    daemon.put(&*target, "old").bare(204);
    let before = daemon.get(&*target).is(200);
    for query in ["", "&sparse=1", "&fsync=1", "&mode=600&mtime=1&owner=0:0"] {
        for name in ["f", "new", "dir/new"] {
            let path = daemon.disk(name);
            let put = Request::put(format!("{}{query}", file_at(&path))).bearer();
            let body = noise(20 << 20);
            let pieces: Vec<Vec<u8>> = body.chunks(1 << 20).map(<[u8]>::to_vec).collect();
            for request in [put.clone().body(body), put.chunks(pieces)] {
                let reply = daemon.call(&request).explains(507);
                tells_space(&reply.text(), &path);
                assert_eq!(daemon.on_disk(), ["f"], "{name}{query}");
            }
        }
    }
    let after = daemon.get(&*target).is(200);
    assert_eq!(after.body, before.body);
    assert_eq!(after.field("etag"), before.field("etag"));
}

fn a_file_in_place_that_does_not_fit_is_told(driver: Driver) {
    let Some(daemon) = on_a_disk(driver, "0") else {
        return;
    };
    for query in ["", "&sparse=1", "&fsync=1"] {
        let path = daemon.disk("new");
        let target = format!("{}&replace=in_place{query}", file_at(&path));
        let reply = daemon.put(target, noise(20 << 20)).explains(507);
        tells_space(&reply.text(), &path);
        // What was made for it goes again.
        assert_eq!(daemon.on_disk(), [""; 0], "{query}");
    }
    // What was there is written over by request, and is what was asked for again as soon as there is room.
    let target = format!("{}&replace=in_place", file_at(daemon.disk("f")));
    daemon.put(&*target, "old").bare(204);
    daemon.put(&*target, noise(20 << 20)).explains(507);
    assert_eq!(daemon.on_disk(), ["f"]);
    daemon.put(&*target, "new").bare(204);
    assert_eq!(daemon.get(file_at(daemon.disk("f"))).is(200).text(), "new");
}

fn a_sparse_file_fits_where_its_data_does(driver: Driver) {
    let Some(daemon) = on_a_disk(driver, "0") else {
        return;
    };
    let mut content = vec![0; 40 << 20];
    content[30 << 20..][..100_000].copy_from_slice(&noise(100_000));
    let target = file_at(daemon.disk("f"));
    daemon.put(&*target, content.clone()).explains(507);
    assert_eq!(daemon.on_disk(), [""; 0]);
    for query in ["", "&replace=in_place"] {
        daemon
            .put(format!("{target}&sparse=1{query}"), content.clone())
            .bare(204);
        assert!(daemon.get(&*target).is(200).body == content);
    }
}

fn what_is_given_up_gives_its_space_back(driver: Driver) {
    let Some(daemon) = on_a_disk(driver, "0") else {
        return;
    };
    // Twice as much as fits would be there if one of them left something.
    for number in 0..4 {
        let target = file_at(daemon.disk(&format!("f{number}")));
        daemon.put(&*target, noise(20 << 20)).explains(507);
        let fits = file_at(daemon.disk("fits"));
        daemon.put(&*fits, noise(8 << 20)).bare(204);
        let script = daemon.script("rm disk/fits");
        assert_eq!(script["stderr"], "");
    }
    assert_eq!(daemon.on_disk(), [""; 0]);
}

fn an_archive_that_does_not_fit_leaves_what_was_there(driver: Driver) {
    // The least reserve: what does not fit is then known before anything is written, unless nobody waits for the whole.
    let Some(daemon) = on_a_disk(driver, "1") else {
        return;
    };
    let root = daemon.disk("root");
    daemon.put(file_at(root.join("old")), "old").bare(204);
    let body = archive([file("fits", noise(1000)), file("big", noise(20 << 20))]);
    for (spool, left) in [
        ("on", &["root", "root/old"][..]),
        ("off", &["root", "root/fits", "root/old"][..]),
    ] {
        let target = format!("{}&spool={spool}", tar_at(&root));
        let reply = daemon.put(target, body.clone()).explains(507);
        let text = reply.text();
        assert!(
            text.contains(" bytes available on the target filesystem"),
            "{text}"
        );
        let kept = daemon.get(file_at(root.join("old"))).is(200);
        assert_eq!(kept.text(), "old");
        let found = daemon.on_disk();
        assert_eq!(found, left, "{spool}");
    }
}

fn the_reserve_is_looked_at_while_a_file_is_written(driver: Driver) {
    // Room for a look after 8 MiB, and then not for the rest.
    let Some(daemon) = on_a_disk(driver, "6000000") else {
        return;
    };
    let target = file_at(daemon.disk("f"));
    daemon.put(&*target, "old").bare(204);
    for query in ["", "&sparse=1"] {
        let reply = daemon
            .put(format!("{target}{query}"), noise(9 << 20))
            .explains(507);
        assert!(
            reply.text().contains("below the 6000000 byte reserve"),
            "{reply:?}"
        );
        assert_eq!(daemon.on_disk(), ["f"]);
        assert_eq!(daemon.get(&*target).is(200).text(), "old");
    }
}

/// A daemon with a disk of its own, of which so many bytes are to stay free.
fn on_a_disk(driver: Driver, reserve: &str) -> Option<Daemon> {
    let setup = with_disk(Setup::new(driver))?;
    Some(setup.flag("--disk-reserve-bytes", reserve).ready())
}

/// Checks that a sentence names the file, and how much of what there is is left.
#[track_caller]
fn tells_space(text: &str, path: &Path) {
    assert!(text.contains(path.to_str().expect("ASCII")), "{text}");
    let numbers = text.split(|letter: char| !letter.is_ascii_digit());
    let numbers: Vec<u64> = numbers.filter_map(|number| number.parse().ok()).collect();
    let [.., available, total] = numbers[..] else {
        panic!("no numbers: {text}");
    };
    assert!(
        available < total && total < SIZE && total > SIZE / 2,
        "{text}"
    );
}
