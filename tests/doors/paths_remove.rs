//! Entries removed (`DELETE /v1/fs/path`): what was asked for, and nothing else.

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rustix::fs::{CWD, Mode, OFlags, RenameFlags};

use crate::daemon::{Daemon, Setup};
use crate::driver::Driver;
use crate::paths::{odd, remove};
use crate::process::is_root;
use crate::request::Request;
use crate::scratch::{names, noise, tree, tree_is};

both![
    a_file_goes_and_nothing_else,
    a_link_goes_and_what_it_leads_to_stays,
    a_directory_goes_when_it_is_empty,
    a_tree_goes_when_that_is_asked_for,
    what_is_missing_is_fine_on_request,
    links_in_a_tree_are_not_followed,
    a_mount_point_is_never_removed_or_crossed,
    what_the_daemon_needs_stays,
    what_is_no_question_is_refused,
    a_very_deep_tree_goes,
    a_wide_tree_goes,
    a_removal_goes_on_when_its_client_leaves,
    what_cannot_be_removed_is_told_with_what_is_gone,
    directories_that_are_swapped_for_links_lead_nowhere,
    directories_that_are_moved_away_lead_nowhere,
];

fn removed(reply: crate::reply::Reply) -> u64 {
    let told = reply.is(200).json();
    assert_eq!(told.as_object().map(serde_json::Map::len), Some(1));
    told["removed"].as_u64().expect("a number")
}

fn a_file_goes_and_nothing_else(driver: Driver) {
    let daemon = Daemon::ready(driver);
    for name in ["f", "g", "a b\n\"ü", "h"] {
        fs::write(daemon.path(name), "").expect("ours");
    }
    assert_eq!(removed(remove(&daemon, daemon.path("f"), "")), 1);
    assert_eq!(
        removed(remove(&daemon, daemon.path("a b\n\"ü"), "&recursive=1")),
        1
    );
    assert_eq!(removed(remove(&daemon, "h", "&missing=ok")), 1);
    assert_eq!(names(&daemon.path("")), ["g"]);
}

fn a_link_goes_and_what_it_leads_to_stays(driver: Driver) {
    let daemon = Daemon::ready(driver);
    fs::create_dir(daemon.path("d")).expect("ours");
    fs::write(daemon.path("d/f"), "").expect("ours");
    for (name, more) in [("l", ""), ("l", "&recursive=1"), ("l/", "&recursive=1")] {
        symlink("d", daemon.path("l")).expect("ours");
        assert_eq!(removed(remove(&daemon, daemon.path(name), more)), 1);
    }
    symlink("d", daemon.path("l")).expect("ours");
    assert_eq!(
        removed(remove(&daemon, daemon.path("l/f"), "")),
        1,
        "links on the way are followed"
    );
    assert_eq!(names(&daemon.path("")), ["d", "l"]);
    assert_eq!(names(&daemon.path("d")), [""; 0]);
}

fn a_directory_goes_when_it_is_empty(driver: Driver) {
    let daemon = Daemon::ready(driver);
    fs::create_dir_all(daemon.path("d/e")).expect("ours");
    for more in ["", "&recursive=0", "&missing=ok"] {
        remove(&daemon, "d", more).refuses(409, "not_empty");
    }
    assert!(daemon.path("d/e").is_dir());
    assert_eq!(removed(remove(&daemon, "d/e", "")), 1);
    assert_eq!(removed(remove(&daemon, "d/", "")), 1);
    tree_is(&daemon.path(""), &[]);
}

fn a_tree_goes_when_that_is_asked_for(driver: Driver) {
    let daemon = Daemon::ready(driver);
    fs::create_dir_all(daemon.path("t/a/b/c")).expect("ours");
    fs::create_dir_all(daemon.path("t/d")).expect("ours");
    for name in ["t/f", "t/a/g", "t/a/b/c/h"] {
        fs::write(daemon.path(name), noise(100)).expect("ours");
    }
    fs::write(odd(&daemon.path("t"), b"\xff\n"), "").expect("ours");
    fs::set_permissions(daemon.path("t/d"), fs::Permissions::from_mode(0o500)).expect("ours");
    fs::create_dir(daemon.path("stays")).expect("ours");
    assert_eq!(removed(remove(&daemon, "t", "&recursive=1")), 9);
    assert_eq!(names(&daemon.path("")), ["stays"]);
}

fn what_is_missing_is_fine_on_request(driver: Driver) {
    let daemon = Daemon::ready(driver);
    fs::write(daemon.path("f"), "").expect("ours");
    for name in ["none", "none/x", "f/x"] {
        for more in ["", "&recursive=1"] {
            remove(&daemon, daemon.path(name), more).refuses(404, "not_found");
            let more = format!("{more}&missing=ok");
            assert_eq!(removed(remove(&daemon, daemon.path(name), &more)), 0);
        }
    }
    assert_eq!(names(&daemon.path("")), ["f"]);
}

fn links_in_a_tree_are_not_followed(driver: Driver) {
    let daemon = Daemon::ready(driver);
    fs::create_dir_all(daemon.path("outside/x")).expect("ours");
    fs::write(daemon.path("outside/f"), "kept").expect("ours");
    fs::create_dir(daemon.path("t")).expect("ours");
    symlink("../outside", daemon.path("t/relative")).expect("ours");
    symlink(daemon.path("outside"), daemon.path("t/absolute")).expect("ours");
    symlink(".", daemon.path("t/self")).expect("ours");
    let before = tree(&daemon.path("outside"));
    assert_eq!(removed(remove(&daemon, "t", "&recursive=1")), 4);
    assert_eq!(tree(&daemon.path("outside")), before);
}

fn a_mount_point_is_never_removed_or_crossed(driver: Driver) {
    if !is_root("a mount of the daemon's own") {
        return;
    }
    let setup = Setup::new(driver);
    fs::create_dir_all(setup.path("t/z/a mount")).expect("ours");
    fs::create_dir_all(setup.path("t/a/b")).expect("ours");
    fs::write(setup.path("t/file"), "").expect("ours");
    fs::write(setup.path("t/a/f"), "").expect("ours");
    let place = setup.path("t/z/a mount").display().to_string();
    let script = format!(
        "-t tmpfs tmpfs '{place}' && touch '{place}/inside' && mount --bind /dev/null {}",
        setup.path("t/file").display()
    );
    let daemon = setup.with_mount(&script).ready();
    let before = tree(&daemon.path("t"));
    for name in ["t", "t/z", "t/z/a mount", "t/file"] {
        let reply = remove(&daemon, name, "&recursive=1").refuses(409, "in_use");
        let detail = reply.json()["detail"].as_str().expect("text").to_owned();
        assert!(
            detail.contains("t/z/a mount") || detail.contains("t/file"),
            "{detail}"
        );
    }
    remove(&daemon, "t/z/a mount", "").refuses(409, "in_use");
    remove(&daemon, "t/file", "").refuses(409, "in_use");
    assert_eq!(tree(&daemon.path("t")), before);
    let (inside, _) = crate::paths::page(&daemon, "t/z/a mount", "");
    assert_eq!(inside, ["inside"]);
    assert_eq!(removed(remove(&daemon, "t/z/a mount/inside", "")), 1);
    assert_eq!(removed(remove(&daemon, "t/a", "&recursive=1")), 3);
}

fn what_the_daemon_needs_stays(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let work = daemon.path("");
    let above = work.parent().expect("a directory above").to_owned();
    for path in [work.as_path(), above.as_path(), &daemon.temporary()] {
        for more in ["", "&recursive=1"] {
            let reply = remove(&daemon, path, more).refuses(409, "in_use");
            assert!(reply.text().contains("the daemon works in"), "{reply:?}");
        }
    }
    // Never with recursive where a defect would reach this machine.
    for path in ["/", "/..", "//", "/./."] {
        remove(&daemon, path, "").refuses(400, "malformed_request");
    }
    for path in [".", "..", "", "x/..", "x/."] {
        remove(&daemon, path, "&recursive=1").refuses(400, "malformed_request");
    }
    assert!(work.is_dir() && daemon.temporary().is_dir());
    // Through a link it is the same directory, but the link is not.
    symlink(&above, daemon.path("up")).expect("ours");
    remove(&daemon, daemon.path("up/work"), "&recursive=1").refuses(409, "in_use");
    assert_eq!(
        removed(remove(&daemon, daemon.path("up"), "&recursive=1")),
        1
    );
}

fn what_is_no_question_is_refused(driver: Driver) {
    let daemon = Daemon::ready(driver);
    fs::create_dir(daemon.path("d")).expect("ours");
    for more in [
        "&recursive=2",
        "&recursive=",
        "&missing=1",
        "&missing=",
        "&path=x",
        "&recursive=1&recursive=1",
    ] {
        remove(&daemon, "d", more).refuses(400, "malformed_request");
    }
    remove(&daemon, "d\0", "").refuses(400, "malformed_request");
    let delete = Request::new("DELETE", "/v1/fs/path");
    daemon
        .call(&delete.clone().bearer())
        .refuses(400, "malformed_request");
    daemon.call(&delete).bare(401);
    daemon.get("/v1/fs/path?path=d").bare(405);
    assert!(daemon.path("d").is_dir());
}

/// Makes a chain of directories far deeper than a path can tell.
fn chain(top: &Path, depth: usize) {
    fs::create_dir(top).expect("ours");
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut dir: OwnedFd = rustix::fs::openat(CWD, top, flags, Mode::empty()).expect("ours");
    for _ in 0..depth {
        rustix::fs::mkdirat(&dir, "d", Mode::RWXU).expect("ours");
        dir = rustix::fs::openat(&dir, "d", flags, Mode::empty()).expect("ours");
    }
    let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
    rustix::fs::openat(&dir, "bottom", flags, Mode::RUSR).expect("ours");
}

fn a_very_deep_tree_goes(driver: Driver) {
    let daemon = Daemon::ready(driver);
    chain(&daemon.path("t"), 20_000);
    let before = daemon.descriptors();
    assert_eq!(removed(remove(&daemon, "t", "&recursive=1")), 20_002);
    tree_is(&daemon.path(""), &[]);
    daemon.holds_at_most(before + 2);
}

fn a_wide_tree_goes(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let long = "n".repeat(240);
    for number in 0..6000 {
        // More names than are kept while one is entered.
        fs::create_dir_all(daemon.path(&format!("t/{number}-{long}/sub"))).expect("ours");
    }
    for number in 0..6000 {
        fs::write(daemon.path(&format!("t/{number}")), "").expect("ours");
    }
    assert_eq!(removed(remove(&daemon, "t", "&recursive=1")), 18_001);
    tree_is(&daemon.path(""), &[]);
}

fn a_removal_goes_on_when_its_client_leaves(driver: Driver) {
    let daemon = Daemon::ready(driver);
    for number in 0..5000 {
        fs::create_dir_all(daemon.path(&format!("t/{number}/x"))).expect("ours");
    }
    let mut connection = daemon.connect();
    let request = Request::new("DELETE", "/v1/fs/path?path=t&recursive=1").bearer();
    connection.send(request.bytes());
    crate::process::wait_until("it has begun", || {
        fs::read_dir(daemon.path("t")).map_or(0, Iterator::count) < 5000
    });
    connection.reset();
    crate::process::wait_until("it is at its end", || !daemon.path("t").exists());
}

fn what_cannot_be_removed_is_told_with_what_is_gone(driver: Driver) {
    if !is_root("a daemon of another user") {
        return;
    }
    let setup = Setup::new(driver);
    let open = |name: &str, mode| {
        fs::create_dir_all(setup.path(name)).expect("ours");
        fs::set_permissions(setup.path(name), fs::Permissions::from_mode(mode)).expect("ours");
    };
    open("w", 0o777);
    open("w/t", 0o777);
    open("w/t/closed", 0o755);
    fs::write(setup.path("w/t/closed/f"), "").expect("ours");
    open("top", 0o777);
    fs::write(setup.path("top/f"), "").expect("ours");
    open("sticky", 0o1777);
    fs::write(setup.path("sticky/f"), "").expect("ours");
    let other = [
        "setpriv",
        "--reuid",
        "65534",
        "--regid",
        "65534",
        "--clear-groups",
    ];
    let daemon = setup.under(&other).ready();
    let before = tree(&daemon.path(""));
    remove(&daemon, "sticky/f", "").refuses(403, "permission_denied");
    // A top that must stay is not emptied.
    let reply = remove(&daemon, "top", "&recursive=1").refuses(403, "permission_denied");
    assert_eq!(reply.field("removed"), Some("0"));
    assert_eq!(tree(&daemon.path("")), before);
    let reply = remove(&daemon, "w/t", "&recursive=1").refuses(403, "permission_denied");
    assert_eq!(reply.field("removed"), Some("0"));
    let detail = reply.json()["detail"].as_str().expect("text").to_owned();
    let path = daemon.path("w/t/closed/f");
    assert!(detail.contains(path.to_str().expect("text")), "{detail}");
    assert!(path.exists());
}

fn directories_that_are_swapped_for_links_lead_nowhere(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let outside = daemon.path("outside");
    fs::create_dir_all(outside.join("x/y")).expect("ours");
    fs::write(outside.join("x/f"), "kept").expect("ours");
    symlink(&outside, daemon.path("link")).expect("ours");
    let before = tree(&outside);
    let is_over = AtomicBool::new(false);
    let (link, top) = (daemon.path("link"), daemon.path("t"));
    thread::scope(|scope| {
        scope.spawn(|| {
            // Each of the directories becomes a link to what must stay, and a directory again.
            while !is_over.load(Ordering::Relaxed) {
                for number in 0..50 {
                    let victim = top.join(number.to_string()).join("x");
                    let _ =
                        rustix::fs::renameat_with(CWD, &link, CWD, &victim, RenameFlags::EXCHANGE);
                    let _ =
                        rustix::fs::renameat_with(CWD, &link, CWD, &victim, RenameFlags::EXCHANGE);
                    if !link.exists() {
                        let _ = symlink(&outside, &link);
                    }
                }
            }
        });
        for _ in 0..10 {
            for number in 0..50 {
                let dir = top.join(number.to_string()).join("x/y");
                let _ = fs::create_dir_all(&dir);
                let _ = fs::write(dir.join("f"), "");
            }
            let status = remove(&daemon, &top, "&recursive=1&missing=ok").status;
            assert!([200, 409].contains(&status), "{status}");
        }
        is_over.store(true, Ordering::Relaxed);
    });
    // The test itself may have made a directory through a link: what is more than before says nothing.
    let mut after = tree(&outside);
    after.retain(|name, _| before.contains_key(name));
    assert_eq!(after, before);
}

fn directories_that_are_moved_away_lead_nowhere(driver: Driver) {
    let daemon = Daemon::ready(driver);
    // Deeper than the way up is long: whoever followed it would still not leave the directory of this test.
    let outside = daemon.path("fence/fence/fence/fence/fence/fence/outside");
    fs::create_dir_all(outside.join("kept/x")).expect("ours");
    fs::write(outside.join("f"), "kept").expect("ours");
    for round in 0..5 {
        // Deep enough that the way back up leads through "..", from within what is moved.
        chain(&daemon.path("t"), 3000);
        let (from, to) = (
            daemon.path("t/d/d/d"),
            outside.join(format!("moved{round}")),
        );
        let mover =
            thread::spawn(move || while fs::rename(&from, &to).is_err() && from.exists() {});
        let status = remove(&daemon, "t", "&recursive=1").status;
        assert!([200, 409].contains(&status), "{status}");
        mover.join().expect("it ends");
        remove(&daemon, "t", "&recursive=1&missing=ok").is(200);
        remove(
            &daemon,
            outside.join(format!("moved{round}")),
            "&recursive=1&missing=ok",
        )
        .is(200);
    }
    assert_eq!(names(&outside), ["f", "kept"]);
    assert_eq!(names(&outside.join("kept")), ["x"]);
}
