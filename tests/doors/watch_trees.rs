//! Trees that are watched (`GET /v1/fs/watch?recursive=1`): nothing in them is missed, or that is said.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::thread;

use crate::daemon::{Daemon, Setup};
use crate::driver::Driver;
use crate::process::wait_until;
use crate::watcher::{Watcher, watch_at};

both![
    without_recursive_what_is_below_is_not_told,
    directories_below_are_watched_too,
    new_directories_are_watched_and_what_is_in_them_is_told,
    nothing_in_a_tree_that_grows_is_missed,
    directories_that_are_moved_keep_being_told_under_their_new_names,
    directories_that_leave_are_told_no_more,
    a_directory_that_leaves_and_comes_back_is_still_told,
    directories_below_one_that_left_are_let_go_under_any_name,
    a_directory_that_leaves_unseen_is_told_no_more,
    a_watch_that_cannot_follow_its_tree_says_so,
    a_reader_that_stalls_is_told_that_changes_are_missing,
];

fn without_recursive_what_is_below_is_not_told(driver: Driver) {
    let daemon = Daemon::ready(driver);
    fs::create_dir(daemon.path("d")).expect("ours");
    let mut watcher = Watcher::start(&daemon, daemon.path(""), "&events=created");
    fs::write(daemon.path("d/f"), "").expect("ours");
    watcher.is_silent(&daemon.path("mark"));
}

fn directories_below_are_watched_too(driver: Driver) {
    let daemon = Daemon::ready(driver);
    fs::create_dir_all(daemon.path("t/a/b/c")).expect("ours");
    let mut watcher = Watcher::start(
        &daemon,
        "t",
        "&recursive=1&events=created,deleted,attributes",
    );
    fs::write(daemon.path("t/a/b/c/f"), "").expect("ours");
    fs::write(daemon.path("t/a/f"), "").expect("ours");
    watcher.tells(&["created a/b/c/f", "created a/f"]);
    fs::set_permissions(daemon.path("t/a/b"), fs::Permissions::from_mode(0o700)).expect("ours");
    watcher.tells(&["attributes a/b/"]);
    fs::remove_dir_all(daemon.path("t/a/b")).expect("ours");
    watcher.tells(&["deleted a/b/c/f", "deleted a/b/c/", "deleted a/b/"]);
    watcher.is_silent(&daemon.path("t/mark"));
}

fn new_directories_are_watched_and_what_is_in_them_is_told(driver: Driver) {
    let daemon = Daemon::ready(driver);
    fs::create_dir(daemon.path("t")).expect("ours");
    fs::create_dir_all(daemon.path("outside/x/y")).expect("ours");
    fs::write(daemon.path("outside/x/y/f"), "").expect("ours");
    let mut watcher = Watcher::start(&daemon, "t", "&recursive=1&events=created,moved_to");
    // What comes in as a whole is told with all that is in it.
    fs::rename(daemon.path("outside"), daemon.path("t/in")).expect("ours");
    watcher.tells(&[
        "moved_to in/",
        "created in/x/",
        "created in/x/y/",
        "created in/x/y/f",
    ]);
    fs::write(daemon.path("t/in/x/y/g"), "").expect("ours");
    watcher.tells(&["created in/x/y/g"]);
    fs::create_dir(daemon.path("t/new")).expect("ours");
    watcher.tells(&["created new/"]);
    wait_until("the new directory is watched", || {
        fs::write(daemon.path("t/new/f"), "").expect("ours");
        watcher.change() == "created new/f"
    });
}

fn nothing_in_a_tree_that_grows_is_missed(driver: Driver) {
    let daemon = Daemon::ready(driver);
    fs::create_dir(daemon.path("t")).expect("ours");
    let mut watcher = Watcher::start(&daemon, "t", "&recursive=1&events=created,moved_to");
    let top = daemon.path("t");
    let grower = thread::spawn(move || {
        for number in 0..200 {
            // Deeper faster than anybody can add watches.
            let dir = top.join(format!("{number}/a/b/c"));
            fs::create_dir_all(&dir).expect("ours");
            fs::write(dir.join("f"), "").expect("ours");
            if number % 10 == 0 {
                fs::rename(
                    top.join(format!("{number}")),
                    top.join(format!("{number}x")),
                )
                .expect("ours");
                fs::create_dir_all(top.join(format!("{number}/a"))).expect("ours");
            }
        }
        fs::write(top.join("last"), "").expect("ours");
    });
    let mut expected = BTreeSet::new();
    for number in 0..200 {
        let name = if number % 10 == 0 {
            format!("{number}x")
        } else {
            number.to_string()
        };
        expected.insert(format!("{name}/a/b/c/f"));
    }
    let mut told = BTreeSet::new();
    loop {
        let (name, data) = watcher.next().expect("a change");
        assert_eq!(name, "change", "{data}");
        let path = data["path"].as_str().expect("text").to_owned();
        if path == "last" {
            break;
        }
        told.insert(path);
    }
    grower.join().expect("it ends");
    // Of a directory that was renamed meanwhile, what is in it may have been told under the old name.
    for name in &expected {
        let old = name.replacen('x', "", 1);
        assert!(
            told.contains(name) || told.contains(&old),
            "{name} was missed"
        );
    }
    // And each of them is watched under the name that it has now.
    for name in &expected {
        let dir = daemon.path("t").join(name.trim_end_matches("/f"));
        fs::write(dir.join("more"), "").expect("ours");
        let expected = format!("created {}", name.trim_end_matches('f').to_owned() + "more");
        while watcher.change() != expected {}
    }
}

fn directories_that_are_moved_keep_being_told_under_their_new_names(driver: Driver) {
    let daemon = Daemon::ready(driver);
    fs::create_dir_all(daemon.path("t/a/b")).expect("ours");
    fs::create_dir(daemon.path("t/z")).expect("ours");
    let mut watcher = Watcher::start(
        &daemon,
        "t",
        "&recursive=1&events=created,moved_from,moved_to,deleted",
    );
    fs::rename(daemon.path("t/a"), daemon.path("t/z/c")).expect("ours");
    watcher.tells(&["moved_from a/", "moved_to z/c/"]);
    fs::write(daemon.path("t/z/c/b/f"), "").expect("ours");
    watcher.tells(&["created z/c/b/f"]);
    fs::create_dir(daemon.path("t/a")).expect("ours");
    watcher.tells(&["created a/"]);
    fs::rename(daemon.path("t/z"), daemon.path("t/y")).expect("ours");
    watcher.tells(&["moved_from z/", "moved_to y/"]);
    fs::remove_file(daemon.path("t/y/c/b/f")).expect("ours");
    watcher.tells(&["deleted y/c/b/f"]);
}

fn directories_that_leave_are_told_no_more(driver: Driver) {
    let setup = Setup::new(driver).flag("--max-watches", "3");
    let daemon = setup.ready();
    fs::create_dir_all(daemon.path("t/a/b")).expect("ours");
    let mut watcher = Watcher::start(&daemon, "t", "&recursive=1&events=created,moved_from");
    fs::rename(daemon.path("t/a"), daemon.path("a")).expect("ours");
    watcher.tells(&["moved_from a/"]);
    // Its watches are given back once nobody can say any more where it went.
    wait_until("two watches are free", || {
        let mut connection = daemon.connect();
        connection.send(watch_at(daemon.path("a"), "&recursive=1").bytes());
        connection.head().expect("a response").status == 200
    });
    fs::write(daemon.path("a/b/f"), "").expect("ours");
    watcher.is_silent(&daemon.path("t/mark"));
}

fn a_directory_that_leaves_and_comes_back_is_still_told(driver: Driver) {
    let setup = Setup::new(driver).flag("--max-watches", "4");
    let daemon = setup.ready();
    fs::create_dir_all(daemon.path("t/d/b")).expect("ours");
    fs::create_dir(daemon.path("t/e")).expect("ours");
    let mut watcher = Watcher::start(
        &daemon,
        "t",
        "&recursive=1&events=created,moved_from,moved_to",
    );
    fs::rename(daemon.path("t/d"), daemon.path("d")).expect("ours");
    fs::rename(daemon.path("d"), daemon.path("t/d")).expect("ours");
    fs::rename(daemon.path("t/e"), daemon.path("e")).expect("ours");
    watcher.tells(&["moved_from d/", "moved_to d/", "moved_from e/"]);
    // Once the one that left last is let go, so are all that left before.
    wait_until("a watch is free", || is_watchable(&daemon, "e"));
    fs::write(daemon.path("t/d/f"), "").expect("ours");
    fs::write(daemon.path("t/d/b/f"), "").expect("ours");
    fs::write(daemon.path("t/mark"), "").expect("ours");
    watcher.tells(&["created d/f", "created d/b/f", "created mark"]);
}

fn directories_below_one_that_left_are_let_go_under_any_name(driver: Driver) {
    let setup = Setup::new(driver).flag("--max-watches", "3");
    let daemon = setup.ready();
    fs::create_dir_all(daemon.path("t/p/d")).expect("ours");
    let mut watcher = Watcher::start(
        &daemon,
        "t",
        "&recursive=1&events=created,moved_from,moved_to",
    );
    fs::rename(daemon.path("t/p/d"), daemon.path("d")).expect("ours");
    fs::rename(daemon.path("t/p"), daemon.path("t/q")).expect("ours");
    watcher.tells(&["moved_from p/d/", "moved_from p/", "moved_to q/"]);
    wait_until("a watch is free", || is_watchable(&daemon, "d"));
    fs::write(daemon.path("d/f"), "").expect("ours");
    watcher.is_silent(&daemon.path("t/q/mark"));
}

/// True when one more directory may be watched.
fn is_watchable(daemon: &Daemon, path: &str) -> bool {
    let mut connection = daemon.connect();
    connection.send(watch_at(daemon.path(path), "").bytes());
    connection.head().expect("a response").status == 200
}

fn a_directory_that_leaves_unseen_is_told_no_more(driver: Driver) {
    let setup = Setup::new(driver).flag("--max-watches", "3");
    let socket = setup.path("socket");
    let daemon = setup.listen(format!("unix://{}", socket.display())).ready();
    fs::create_dir_all(daemon.path("t/gone/deep")).expect("ours");
    let mut watcher = Watcher::start(
        &daemon,
        "t",
        "&recursive=1&events=created,moved_from,moved_to",
    );
    overflow(&daemon);
    fs::rename(daemon.path("t/gone"), daemon.path("gone")).expect("ours");
    watcher.overflows();
    wait_until("two watches are free", || {
        let mut connection = daemon.connect();
        connection.send(watch_at(daemon.path("gone"), "&recursive=1").bytes());
        connection.head().expect("a response").status == 200
    });
    fs::write(daemon.path("gone/f"), "").expect("ours");
    fs::write(daemon.path("gone/deep/f"), "").expect("ours");
    watcher.is_silent(&daemon.path("t/mark"));
}

fn a_watch_that_cannot_follow_its_tree_says_so(driver: Driver) {
    // Descriptors for nothing, for the root of the tree, and for what comes below it.
    for more in 0..3 {
        let daemon = Daemon::ready(driver);
        fs::create_dir(daemon.path("t")).expect("ours");
        let mut watcher = Watcher::start(&daemon, "t", "&recursive=1");
        leave_descriptors(&daemon, more);
        fs::create_dir(daemon.path("t/d")).expect("ours");
        watcher.is_gone_for("failed");
    }
}

fn a_reader_that_stalls_is_told_that_changes_are_missing(driver: Driver) {
    let setup = Setup::new(driver);
    // A Unix socket holds little back, so that the kernel's queue fills soon.
    let socket = setup.path("socket");
    let daemon = setup.listen(format!("unix://{}", socket.display())).ready();
    fs::create_dir(daemon.path("t")).expect("ours");
    let mut watcher = Watcher::start(
        &daemon,
        "t",
        "&recursive=1&events=created,moved_from,moved_to",
    );
    overflow(&daemon);
    // A directory that comes while nobody can be told of it.
    fs::create_dir_all(daemon.path("t/late/deep")).expect("ours");
    watcher.overflows();
    // Behind it all goes on, below what came meanwhile too.
    fs::write(daemon.path("t/late/deep/f"), "").expect("ours");
    while watcher.change() != "created late/deep/f" {}
}

/// Limits the daemon to the descriptors that it has, and so many `more`.
fn leave_descriptors(daemon: &Daemon, more: usize) {
    let held = |number: &usize| fs::read_link(format!("/proc/{}/fd/{number}", daemon.pid()));
    let mut free = (0..).filter(|number| held(number).is_err());
    daemon.limit_descriptors(free.nth(more).expect("numbers do not end"));
}

/// Changes more in the tree `t` than the kernel holds back for who takes nothing.
fn overflow(daemon: &Daemon) {
    let long = "n".repeat(250);
    let names = [
        daemon.path("t").join(format!("a{long}")),
        daemon.path("t").join(format!("b{long}")),
    ];
    fs::write(&names[0], "").expect("ours");
    for _ in 0..15_000 {
        fs::rename(&names[0], &names[1]).expect("ours");
        fs::rename(&names[1], &names[0]).expect("ours");
    }
}
