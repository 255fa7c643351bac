//! Wishes 12, 13, 15, 20 and 21 for trees: what is asked for, whole or visibly broken, at the cost of what is moved.

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rustix::fs::inotify;

use crate::archive::entries;
use crate::client::Connection;
use crate::daemon::{Daemon, Setup};
use crate::driver::Driver;
use crate::process;
use crate::request::{Request, tar_at};
use crate::scratch::noise;

both![
    wish_12_thousands_of_small_files_are_one_archive,
    wish_13_what_lies_beside_is_not_looked_at,
    wish_15_memory_does_not_grow_with_the_tree,
    wish_20_no_link_leads_out_while_somebody_swaps_them,
    wish_21_a_tree_that_changes_never_gives_an_archive_that_looks_complete,
];

fn wish_12_thousands_of_small_files_are_one_archive(driver: Driver) {
    let daemon = Daemon::ready(driver);
    for dir in 0..30 {
        let dir = daemon.path(&format!("t/{dir:02}"));
        fs::create_dir_all(&dir).expect("the scratch directory is ours");
        for file in 0..200 {
            let content = noise((file * 37) % 5000);
            fs::write(dir.join(format!("{file:03}")), content)
                .expect("the scratch directory is ours");
        }
    }
    let before = daemon.at_rest();
    let packed = entries(&daemon.get(tar_at(daemon.path("t"))).is(200).body);
    assert_eq!(packed.len(), 1 + 30 + 30 * 200);
    for (index, entry) in packed.iter().filter(|entry| entry.kind == b'0').enumerate() {
        assert!(
            entry.data == noise((index % 200 * 37) % 5000),
            "{}",
            entry.name
        );
    }
    daemon.holds_at_most(before);
}

fn wish_13_what_lies_beside_is_not_looked_at(driver: Driver) {
    let daemon = Daemon::ready(driver);
    for dir in ["wanted/in", "beside/in", "wanted/left"] {
        let dir = daemon.path("t").join(dir);
        fs::create_dir_all(&dir).expect("the scratch directory is ours");
        fs::write(dir.join("f"), "content").expect("the scratch directory is ours");
    }
    let watch = inotify::init(inotify::CreateFlags::NONBLOCK).expect("an inotify instance");
    for dir in ["beside", "beside/in", "wanted/left"] {
        let flags = inotify::WatchFlags::OPEN;
        inotify::add_watch(&watch, daemon.path("t").join(dir), flags).expect("it is there");
    }
    let mut buffer = [std::mem::MaybeUninit::uninit(); 4096];
    let mut opened = || inotify::Reader::new(&watch, &mut buffer).next().is_ok();
    for query in [
        "include=/wanted/in/",
        "include=/wanted&exclude=left/",
        "exclude=left&exclude=/beside",
    ] {
        let target = format!("{}&{query}", tar_at(daemon.path("t")));
        let packed = entries(&daemon.get(target).is(200).body);
        assert_eq!(packed.last().map(|entry| &*entry.name), Some("wanted/in/f"));
        assert!(!opened(), "{query}");
    }
    let body = serde_json::json!({"path": daemon.path("t"), "names": ["wanted/in/f"]});
    daemon
        .call(&Request::post("/v1/fs/tar").bearer().json(&body))
        .is(200);
    assert!(!opened(), "a list");
    daemon.get(tar_at(daemon.path("t"))).is(200);
    assert!(opened(), "the whole tree is looked at");
}

fn wish_15_memory_does_not_grow_with_the_tree(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let dir = daemon.path("t/some-directory");
    fs::create_dir_all(&dir).expect("the scratch directory is ours");
    // A single directory is the worst case: all of it is held while it is put in order.
    for index in 0..ENTRIES - 1 {
        fs::File::create(dir.join(format!("a-file-{index}")))
            .expect("the scratch directory is ours");
    }
    daemon.get(tar_at(daemon.path("none"))).is(404);
    let peak = || {
        let text = process::status(daemon.pid(), "VmHWM");
        let number: String = text.chars().filter(char::is_ascii_digit).collect();
        number.parse::<usize>().expect("a number") / 1024
    };
    let before = peak();
    let target = tar_at(daemon.path("t"));
    let mut connection = daemon.connect();
    for target in [
        target.clone(),
        target.clone() + "&include=*-1*&exclude=*7&precise=1",
        target,
    ] {
        connection.send(Request::get(target).bearer().bytes());
        let head = connection.head().expect("a response");
        let length = head
            .field("content-length")
            .and_then(|text| text.parse().ok());
        let mut left: usize = length.expect("a length");
        while left > 0 {
            let piece = connection.take(left.min(1 << 20)).expect("the archive");
            left -= piece.len();
        }
    }
    let grown = peak() - before;
    assert!(grown < 24, "{grown} MiB more than {before}");
}

fn wish_20_no_link_leads_out_while_somebody_swaps_them(driver: Driver) {
    let daemon = Daemon::ready(driver);
    for dir in ["t/a/deep", "outside/deep"] {
        fs::create_dir_all(daemon.path(dir)).expect("the scratch directory is ours");
        for file in 0..20 {
            let content = if dir.starts_with("t/") {
                "ours"
            } else {
                "secret"
            };
            let path = daemon.path(dir).join(format!("f{file}"));
            fs::write(path, content).expect("the scratch directory is ours");
        }
    }
    symlink(daemon.path("outside"), daemon.path("t/b")).expect("the scratch directory is ours");
    symlink("../outside", daemon.path("t/c")).expect("the scratch directory is ours");
    let done = AtomicBool::new(false);
    let root = daemon.path("");
    thread::scope(|scope| {
        scope.spawn(|| {
            let swap = |one: &str, other: &str| {
                let here = rustix::fs::CWD;
                let flags = rustix::fs::RenameFlags::EXCHANGE;
                let (one, other) = (root.join(one), root.join(other));
                rustix::fs::renameat_with(here, one, here, other, flags).expect("both are there");
            };
            while !done.load(Ordering::Relaxed) {
                swap("t/a", "t/b");
                swap("t/a", "t/c");
            }
        });
        let mut whole = 0;
        for round in 0..60 {
            let follow = if round % 2 == 0 { "" } else { "&follow=1" };
            let mut connection = daemon.connect();
            let target = tar_at(daemon.path("t")) + follow;
            connection.send(Request::get(target).bearer().bytes());
            let (body, complete) = match connection.head() {
                Ok(head) if head.status == 200 => received(&head, &mut connection),
                // The walk itself met the change.
                _ => continue,
            };
            assert!(
                !body.windows(6).any(|bytes| bytes == b"secret"),
                "round {round}"
            );
            whole += usize::from(complete);
        }
        done.store(true, Ordering::Relaxed);
        assert!(whole > 0, "some are complete");
    });
}

fn wish_21_a_tree_that_changes_never_gives_an_archive_that_looks_complete(driver: Driver) {
    let setup = Setup::new(driver);
    let daemon = setup.ready();
    // Larger than all buffers on the way, and of no use to a coding.
    let large = noise(32 << 20);
    type Change = fn(&std::path::Path);
    let changes: [(&str, bool, Change); 5] = [
        ("grows", true, |path| {
            fs::write(path, noise(9000)).expect("it is ours")
        }),
        ("shrinks", false, |path| {
            fs::write(path, "short").expect("it is ours")
        }),
        ("vanishes", false, |path| {
            fs::remove_file(path).expect("it is ours")
        }),
        ("becomes a link", false, |path| {
            fs::remove_file(path).expect("it is ours");
            symlink("a", path).expect("it is ours");
        }),
        ("becomes a directory", false, |path| {
            fs::remove_file(path).expect("it is ours");
            fs::create_dir(path).expect("it is ours");
        }),
    ];
    for (coding, changes) in [("identity", &changes[..]), ("zstd", &changes[..2])] {
        for (how, stays_whole, change) in changes {
            fs::create_dir(daemon.path("t")).expect("the scratch directory is ours");
            fs::write(daemon.path("t/a"), &large).expect("the scratch directory is ours");
            fs::write(daemon.path("t/last"), noise(1000)).expect("the scratch directory is ours");
            let request = Request::get(tar_at(daemon.path("t"))).bearer();
            let request = request.field("accept-encoding", coding);
            let mut connection = daemon.connect();
            connection.send(request.bytes());
            let head = connection.head().expect("a response").is(200);
            change(&daemon.path("t/last"));
            let (body, complete) = received(&head, &mut connection);
            assert_eq!(complete, *stays_whole, "{coding}: {how}");
            if complete && coding == "identity" {
                let packed = entries(&body);
                assert_eq!(packed[2].data.len(), 1000, "it is cut at its planned size");
            }
            fs::remove_dir_all(daemon.path("t")).expect("it is ours");
        }
    }
    daemon.health();
}

/// The body as it comes, and whether it came to its end.
fn received(head: &crate::reply::Reply, connection: &mut Connection) -> (Vec<u8>, bool) {
    if let Some(length) = head.field("content-length") {
        let length: usize = length.parse().expect("a number");
        return match connection.take(length) {
            Ok(body) => (body, true),
            Err(_) => (Vec::new(), false),
        };
    }
    let mut body = Vec::new();
    loop {
        match connection.chunk(body.len()) {
            Ok(Some(piece)) => body.extend(piece),
            Ok(None) => return (body, true),
            Err(_) => return (body, false),
        }
    }
}

/// The default of `--max-tar-members`.
const ENTRIES: usize = 100_000;
