//! Directories made and entries moved (`POST /v1/fs/mkdir`, `POST /v1/fs/move`): whole or not at all.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, Mode, Timespec, Timestamps, XattrFlags};
use serde_json::json;

use crate::daemon::{Daemon, Setup};
use crate::driver::Driver;
use crate::paths::{mkdir, page, rename};
use crate::process::is_root;
use crate::request::{Request, file_at};
use crate::scratch::{inode, mode, names, noise, tree, tree_is};

both![
    a_directory_is_made,
    a_directory_gets_exactly_the_mode_that_is_asked_for,
    directories_above_are_made_on_request,
    a_name_that_is_taken_is_not_made_again,
    what_was_made_goes_again_when_the_rest_fails,
    a_refused_directory_changes_nothing,
    below_the_reserve_nothing_is_made,
    an_entry_gets_another_name,
    a_name_that_is_taken_is_kept_unless_it_may_be_replaced,
    a_directory_replaces_only_an_empty_one,
    a_directory_is_not_moved_into_itself,
    two_names_of_one_file_become_one,
    directories_above_the_new_name_are_made_on_request,
    a_refused_move_changes_nothing,
    a_file_moves_to_another_mount_with_all_that_it_has,
    links_move_to_another_mount_and_directories_do_not,
    what_is_replaced_on_another_mount_stays_until_the_move_is_whole,
    a_move_that_does_not_fit_leaves_everything_as_it_was,
    a_source_that_cannot_be_removed_is_not_moved,
    a_source_that_turns_out_to_stay_puts_everything_back,
    rights_are_not_moved_to_another_owner,
    a_move_that_would_touch_the_reserve_copies_nothing,
    moves_at_once_to_one_name_have_one_winner,
];

fn a_directory_is_made(driver: Driver) {
    let daemon = Daemon::ready(driver);
    mkdir(&daemon, daemon.path("d"), "").bare(201);
    mkdir(&daemon, "relative", "").bare(201);
    mkdir(&daemon, daemon.path("with slash/"), "").bare(201);
    mkdir(&daemon, daemon.path("odd\n\"ü"), "").bare(201);
    assert_eq!(
        names(&daemon.path("")),
        ["d", "odd\n\"ü", "relative", "with slash"]
    );
}

fn a_directory_gets_exactly_the_mode_that_is_asked_for(driver: Driver) {
    let daemon = Daemon::ready(driver);
    for (text, expected) in [
        ("700", 0o700),
        ("1777", 0o1777),
        ("0o2770", 0o2770),
        ("0", 0),
    ] {
        mkdir(&daemon, text, &format!("&mode={text}")).bare(201);
        assert_eq!(mode(&daemon.path(text)), expected, "{text}");
    }
    mkdir(&daemon, "a/b", "&parents=1&mode=711").bare(201);
    assert_eq!(mode(&daemon.path("a/b")), 0o711);
    assert_ne!(mode(&daemon.path("a")), 0o711);
    mkdir(&daemon, "a/b", "&parents=1&mode=700").bare(204);
    assert_eq!(
        mode(&daemon.path("a/b")),
        0o711,
        "what is there stays as it is"
    );
}

fn directories_above_are_made_on_request(driver: Driver) {
    let daemon = Daemon::ready(driver);
    mkdir(&daemon, daemon.path("a/b/c"), "").refuses(404, "not_found");
    tree_is(&daemon.path(""), &[]);
    mkdir(&daemon, daemon.path("a/b/c"), "&parents=1").bare(201);
    mkdir(&daemon, daemon.path("a/b/c"), "&parents=1").bare(204);
    mkdir(&daemon, daemon.path("a/b/d"), "&parents=true").bare(201);
    assert!(daemon.path("a/b/c").is_dir() && daemon.path("a/b/d").is_dir());
    symlink("a", daemon.path("l")).expect("ours");
    mkdir(&daemon, daemon.path("l"), "&parents=1").bare(204);
    mkdir(&daemon, daemon.path("l/e"), "&parents=1").bare(201);
    assert!(daemon.path("a/e").is_dir());
    mkdir(&daemon, "/", "&parents=1").bare(204);
}

fn a_name_that_is_taken_is_not_made_again(driver: Driver) {
    let daemon = Daemon::ready(driver);
    fs::create_dir(daemon.path("d")).expect("ours");
    fs::write(daemon.path("f"), "x").expect("ours");
    symlink("none", daemon.path("l")).expect("ours");
    let before = tree(&daemon.path(""));
    for (name, more) in [
        ("d", ""),
        ("f", ""),
        ("l", ""),
        ("f", "&parents=1"),
        ("l", "&parents=1"),
        ("f/x", ""),
        ("f/x", "&parents=1"),
        ("", ""),
    ] {
        mkdir(&daemon, daemon.path(name), more).refuses(409, "already_exists");
    }
    assert_eq!(tree(&daemon.path("")), before);
}

fn what_was_made_goes_again_when_the_rest_fails(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let long = format!("a/b/{}", "x".repeat(256));
    mkdir(&daemon, daemon.path(&long), "&parents=1").refuses(400, "malformed_request");
    tree_is(&daemon.path(""), &[]);
}

fn a_refused_directory_changes_nothing(driver: Driver) {
    let daemon = Daemon::ready(driver);
    for more in [
        "&mode=8",
        "&mode=",
        "&mode=17777",
        "&parents=2",
        "&mode=700&mode=700",
    ] {
        mkdir(&daemon, "d", more).refuses(400, "malformed_request");
    }
    daemon
        .post("/v1/fs/mkdir")
        .refuses(400, "malformed_request");
    daemon.call(&Request::post("/v1/fs/mkdir?path=d")).bare(401);
    mkdir(&daemon, "/proc/d", "").refuses(404, "not_found");
    tree_is(&daemon.path(""), &[]);
}

fn below_the_reserve_nothing_is_made(driver: Driver) {
    let setup = Setup::new(driver).flag("--disk-reserve-bytes", u64::MAX.to_string());
    let daemon = setup.ready();
    mkdir(&daemon, "a/b", "&parents=1").refuses(507, "disk_full");
    tree_is(&daemon.path(""), &[]);
}

fn an_entry_gets_another_name(driver: Driver) {
    let daemon = Daemon::ready(driver);
    fs::write(daemon.path("f"), "x").expect("ours");
    fs::create_dir_all(daemon.path("d/sub")).expect("ours");
    symlink("f", daemon.path("l")).expect("ours");
    let before = inode(&daemon.path("f"));
    rename(
        &daemon,
        daemon.path("f"),
        daemon.path("d/new\nname"),
        &json!({}),
    )
    .bare(204);
    assert_eq!(inode(&daemon.path("d/new\nname")), before);
    rename(&daemon, "l", "l2", &json!({"replace": true})).bare(204);
    rename(
        &daemon,
        daemon.path("d/"),
        daemon.path("e/"),
        &json!({"unknown": 1}),
    )
    .bare(204);
    let mask = mode(&daemon.path("e")) & 0o777;
    let dir = format!("dir {mask:o}");
    let file = format!("file {:o} x", mode(&daemon.path("e/new\nname")));
    tree_is(
        &daemon.path(""),
        &[
            ("e", &dir),
            ("e/new\nname", &file),
            ("e/sub", &dir),
            ("l2", "link f"),
        ],
    );
}

fn a_name_that_is_taken_is_kept_unless_it_may_be_replaced(driver: Driver) {
    let daemon = Daemon::ready(driver);
    fs::write(daemon.path("a"), "a").expect("ours");
    fs::write(daemon.path("b"), "b").expect("ours");
    symlink("none", daemon.path("l")).expect("ours");
    let before = tree(&daemon.path(""));
    for (to, more) in [
        ("b", json!({})),
        ("b", json!({"replace": false})),
        ("l", json!({})),
        ("a", json!({})),
    ] {
        rename(&daemon, "a", to, &more).refuses(409, "already_exists");
    }
    assert_eq!(tree(&daemon.path("")), before);
    rename(&daemon, "a", "l", &json!({"replace": true})).bare(204);
    rename(&daemon, "l", "b", &json!({"replace": true})).bare(204);
    rename(&daemon, "b", "b", &json!({"replace": true})).bare(204);
    assert_eq!(fs::read(daemon.path("b")).expect("ours"), b"a");
    assert_eq!(names(&daemon.path("")), ["b"]);
}

fn a_directory_replaces_only_an_empty_one(driver: Driver) {
    let daemon = Daemon::ready(driver);
    for name in ["from", "empty", "full/x"] {
        fs::create_dir_all(daemon.path(name)).expect("ours");
    }
    fs::write(daemon.path("f"), "x").expect("ours");
    let before = tree(&daemon.path(""));
    let replace = json!({"replace": true});
    rename(&daemon, "from", "full", &replace).refuses(409, "not_empty");
    rename(&daemon, "from", "f", &replace).refuses(409, "already_exists");
    rename(&daemon, "f", "empty", &replace).refuses(409, "already_exists");
    rename(&daemon, "from", "empty", &json!({})).refuses(409, "already_exists");
    assert_eq!(tree(&daemon.path("")), before);
    rename(&daemon, "from", "empty", &replace).bare(204);
    assert_eq!(names(&daemon.path("")), ["empty", "f", "full"]);
}

fn a_directory_is_not_moved_into_itself(driver: Driver) {
    let daemon = Daemon::ready(driver);
    fs::create_dir_all(daemon.path("d/e/f")).expect("ours");
    symlink("d/e", daemon.path("l")).expect("ours");
    let before = tree(&daemon.path(""));
    for to in ["d/x", "d/e/f/x", "l/x", "d/e/../x"] {
        for more in [json!({}), json!({"replace": true})] {
            rename(&daemon, "d", to, &more).refuses(400, "malformed_request");
        }
    }
    rename(&daemon, "d", "d/new/x", &json!({"parents": true})).refuses(400, "malformed_request");
    assert_eq!(tree(&daemon.path("")), before);
}

fn two_names_of_one_file_become_one(driver: Driver) {
    let daemon = Daemon::ready(driver);
    fs::write(daemon.path("a"), "x").expect("ours");
    fs::hard_link(daemon.path("a"), daemon.path("b")).expect("ours");
    rename(&daemon, "a", "b", &json!({})).refuses(409, "already_exists");
    assert_eq!(names(&daemon.path("")), ["a", "b"]);
    rename(&daemon, "a", "b", &json!({"replace": true})).bare(204);
    assert_eq!(names(&daemon.path("")), ["b"]);
}

fn directories_above_the_new_name_are_made_on_request(driver: Driver) {
    let daemon = Daemon::ready(driver);
    fs::write(daemon.path("f"), "x").expect("ours");
    rename(&daemon, "f", "a/b/f", &json!({})).refuses(404, "not_found");
    rename(&daemon, "none", "a/b/f", &json!({"parents": true})).refuses(404, "not_found");
    assert_eq!(names(&daemon.path("")), ["f"]);
    rename(&daemon, "f", "a/b/f", &json!({"parents": true})).bare(204);
    assert_eq!(names(&daemon.path("a/b")), ["f"]);
}

fn a_refused_move_changes_nothing(driver: Driver) {
    let daemon = Daemon::ready(driver);
    fs::write(daemon.path("f"), "x").expect("ours");
    let before = tree(&daemon.path(""));
    rename(&daemon, "none", "g", &json!({})).refuses(404, "not_found");
    rename(&daemon, "f/x", "g", &json!({})).refuses(404, "not_found");
    rename(&daemon, "f", "f/g", &json!({})).refuses(409, "already_exists");
    for (from, to) in [
        ("f", "/"),
        ("/", "g"),
        (".", "g"),
        ("f", ".."),
        ("", "g"),
        ("f", "a\0b"),
    ] {
        rename(&daemon, from, to, &json!({})).refuses(400, "malformed_request");
    }
    let post = Request::post("/v1/fs/move").bearer();
    for text in [
        "",
        "[]",
        "{}",
        r#"{"from":"f"}"#,
        r#"["f","g"]"#,
        r#"["f","g",false,false]"#,
        r#"{"from":1,"to":"g"}"#,
        r#"{"from":"f","to":"g","replace":1}"#,
    ] {
        let reply = daemon.call(&post.clone().json_text(text));
        reply.refuses(400, "malformed_request");
    }
    let reply = daemon.call(&post.body(r#"{"from":"f","to":"g"}"#));
    reply.refuses(400, "malformed_request");
    assert_eq!(tree(&daemon.path("")), before);
}

/// A daemon with a file system of its own at `m`, seen from here by the path that is answered.
fn with_mount(driver: Driver, size: &str) -> Option<(Daemon, std::path::PathBuf)> {
    if !is_root("a mount of the daemon's own") {
        return None;
    }
    let setup = Setup::new(driver).flag("--disk-reserve-bytes", "0");
    fs::create_dir(setup.path("m")).expect("ours");
    let mount = format!(
        "-t tmpfs -o size={size} tmpfs {}",
        setup.path("m").display()
    );
    let daemon = setup.with_mount(&mount).ready();
    let seen = Path::new(&format!("/proc/{}/root", daemon.pid())).join(
        daemon
            .path("m")
            .strip_prefix("/")
            .expect("an absolute path"),
    );
    Some((daemon, seen))
}

fn a_file_moves_to_another_mount_with_all_that_it_has(driver: Driver) {
    let Some((daemon, mount)) = with_mount(driver, "64m") else {
        return;
    };
    let path = daemon.path("f");
    let content = noise(3_000_000);
    fs::write(&path, &content).expect("ours");
    fs::File::options()
        .write(true)
        .open(&path)
        .expect("ours")
        .set_len(20 << 20)
        .expect("ours");
    rustix::fs::setxattr(&path, "user.note", b"kept", XattrFlags::empty()).expect("ours");
    std::os::unix::fs::chown(&path, Some(1234), Some(4321)).expect("we are root");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o4750)).expect("ours");
    let time = Timespec {
        tv_sec: 1_000_000_000,
        tv_nsec: 5,
    };
    let times = Timestamps {
        last_access: time,
        last_modification: time,
    };
    rustix::fs::utimensat(CWD, &path, &times, AtFlags::empty()).expect("ours");
    rename(
        &daemon,
        &path,
        daemon.path("m/a/g"),
        &json!({"parents": true}),
    )
    .bare(204);
    assert!(!path.exists());
    assert_eq!(names(&mount.join("a")), ["g"]);
    let there = mount.join("a/g");
    let meta = fs::metadata(&there).expect("it has moved");
    assert_eq!(
        (meta.uid(), meta.gid(), meta.mode() & 0o7777),
        (1234, 4321, 0o4750)
    );
    assert_eq!((meta.mtime(), meta.mtime_nsec()), (1_000_000_000, 5));
    assert_eq!(meta.len(), 20 << 20);
    assert!(meta.blocks() * 512 < 8 << 20, "holes stay holes");
    let moved = fs::read(&there).expect("ours");
    assert!(
        moved[..content.len()] == content && moved[content.len()..].iter().all(|byte| *byte == 0)
    );
    let mut value = [0; 16];
    let length = rustix::fs::getxattr(&there, "user.note", &mut value[..]).unwrap_or(0);
    assert_eq!(&value[..length], b"kept");
    // And back, over something else.
    fs::write(&path, "old").expect("ours");
    rename(
        &daemon,
        daemon.path("m/a/g"),
        &path,
        &json!({"replace": true}),
    )
    .bare(204);
    assert_eq!(fs::read(&path).expect("ours").len(), 20 << 20);
    assert_eq!(names(&mount.join("a")), [""; 0]);
    assert_eq!(names(&daemon.path("")), ["f", "m"]);
}

fn links_move_to_another_mount_and_directories_do_not(driver: Driver) {
    let Some((daemon, mount)) = with_mount(driver, "1m") else {
        return;
    };
    symlink("no/where", daemon.path("l")).expect("ours");
    rename(&daemon, "l", "m/l", &json!({})).bare(204);
    assert_eq!(
        fs::read_link(mount.join("l")).expect("it has moved"),
        Path::new("no/where")
    );
    fs::create_dir_all(daemon.path("d/e")).expect("ours");
    rustix::fs::mknodat(CWD, daemon.path("p"), FileType::Fifo, Mode::RUSR, 0).expect("ours");
    let before = (tree(&daemon.path("")), tree(&mount));
    for name in ["d", "p"] {
        rename(
            &daemon,
            name,
            &*format!("m/x/{name}"),
            &json!({"parents": true}),
        )
        .refuses(400, "unsupported");
    }
    rename(&daemon, "m", "n", &json!({})).refuses(409, "in_use");
    rename(&daemon, "/proc/version", "version", &json!({})).refuses(400, "unsupported");
    assert_eq!((tree(&daemon.path("")), tree(&mount)), before);
}

fn what_is_replaced_on_another_mount_stays_until_the_move_is_whole(driver: Driver) {
    let Some((daemon, mount)) = with_mount(driver, "1m") else {
        return;
    };
    fs::write(daemon.path("f"), "new").expect("ours");
    fs::write(mount.join("f"), "old").expect("ours");
    fs::create_dir(mount.join("d")).expect("ours");
    let before = tree(&mount);
    rename(&daemon, "f", "m/f", &json!({})).refuses(409, "already_exists");
    for more in [json!({}), json!({"replace": true})] {
        rename(&daemon, "f", "m/d", &more).refuses(409, "already_exists");
    }
    assert_eq!(tree(&mount), before);
    rename(&daemon, "f", "m/f", &json!({"replace": true})).bare(204);
    assert_eq!(fs::read(mount.join("f")).expect("ours"), b"new");
    assert_eq!(names(&mount), ["d", "f"]);
    assert_eq!(names(&daemon.path("")), ["m"]);
}

fn a_move_that_does_not_fit_leaves_everything_as_it_was(driver: Driver) {
    if !is_root("a mount of the daemon's own") {
        return;
    }
    let setup = Setup::new(driver).flag("--disk-reserve-bytes", "0");
    fs::create_dir(setup.path("m")).expect("ours");
    let mount = format!("-t tmpfs -o size=1m tmpfs {}", setup.path("m").display());
    let daemon = setup.with_mount(&mount).ready();
    fs::write(daemon.path("f"), noise(3_000_000)).expect("ours");
    let before = tree(&daemon.path(""));
    let more = json!({"parents": true});
    rename(&daemon, "f", "m/a/f", &more).refuses(507, "disk_full");
    assert_eq!(tree(&daemon.path("")), before);
    let (left, _) = page(&daemon, "m", "");
    assert_eq!(left, [""; 0]);
}

fn a_move_that_would_touch_the_reserve_copies_nothing(driver: Driver) {
    if !is_root("a mount of the daemon's own") {
        return;
    }
    let setup = Setup::new(driver).flag("--disk-reserve-bytes", (24 << 20).to_string());
    fs::create_dir(setup.path("m")).expect("ours");
    let mount = format!("-t tmpfs -o size=32m tmpfs {}", setup.path("m").display());
    let daemon = setup.with_mount(&mount).ready();
    fs::write(daemon.path("f"), noise(16 << 20)).expect("ours");
    fs::write(daemon.path("small"), noise(4 << 20)).expect("ours");
    let before = tree(&daemon.path(""));
    rename(&daemon, "f", "m/f", &json!({})).refuses(507, "disk_full");
    assert_eq!(tree(&daemon.path("")), before);
    assert_eq!(page(&daemon, "m", "").0, [""; 0]);
    rename(&daemon, "small", "m/small", &json!({})).bare(204);
}

fn a_source_that_cannot_be_removed_is_not_moved(driver: Driver) {
    if !is_root("a mount of the daemon's own") {
        return;
    }
    let setup = Setup::new(driver);
    fs::create_dir(setup.path("m")).expect("ours");
    fs::create_dir(setup.path("there")).expect("ours");
    fs::write(setup.path("m/f"), "x").expect("ours");
    let place = setup.path("m").display().to_string();
    let mount = format!("--bind -o ro {place} {place}");
    let daemon = setup.with_mount(&mount).ready();
    let before = tree(&daemon.path(""));
    rename(&daemon, "m/f", "there/f", &json!({})).refuses(403, "permission_denied");
    mkdir(&daemon, "m/d", "").refuses(403, "permission_denied");
    assert_eq!(tree(&daemon.path("")), before);
}

fn a_source_that_turns_out_to_stay_puts_everything_back(driver: Driver) {
    if !is_root("a mount of the daemon's own") {
        return;
    }
    let setup = Setup::new(driver).flag("--disk-reserve-bytes", "0");
    fs::create_dir(setup.path("m")).expect("ours");
    fs::create_dir(setup.path("sticky")).expect("ours");
    fs::set_permissions(setup.path("sticky"), fs::Permissions::from_mode(0o1777)).expect("ours");
    fs::write(setup.path("sticky/f"), "ours").expect("ours");
    symlink("none", setup.path("sticky/l")).expect("ours");
    // Files of root in a sticky directory: everybody may write there, but only root may remove them.
    let other = "exec setpriv --reuid 65534 --regid 65534 --clear-groups \"$@\"";
    let place = setup.path("m").display().to_string();
    let mount = format!("-t tmpfs -o mode=1777 tmpfs {place} && {other}");
    let daemon = setup.with_mount(&mount).ready();
    daemon.put(file_at(daemon.path("m/there")), "old").is(204);
    let picture = || {
        let there = daemon.get(file_at(daemon.path("m/there"))).is(200).text();
        (tree(&daemon.path("sticky")), page(&daemon, "m", ""), there)
    };
    let before = picture();
    for name in ["sticky/f", "sticky/l"] {
        rename(&daemon, name, "m/new/f", &json!({"parents": true}))
            .refuses(403, "permission_denied");
        rename(&daemon, name, "m/f", &json!({"replace": true})).refuses(403, "permission_denied");
        rename(&daemon, name, "m/there", &json!({"replace": true}))
            .refuses(403, "permission_denied");
        assert_eq!(picture(), before, "{name}");
    }
}

fn rights_are_not_moved_to_another_owner(driver: Driver) {
    if !is_root("a mount of the daemon's own") {
        return;
    }
    let setup = Setup::new(driver).flag("--disk-reserve-bytes", "0");
    fs::create_dir(setup.path("m")).expect("ours");
    fs::create_dir(setup.path("open")).expect("ours");
    fs::set_permissions(setup.path("open"), fs::Permissions::from_mode(0o777)).expect("ours");
    fs::write(setup.path("open/f"), "x").expect("ours");
    fs::set_permissions(setup.path("open/f"), fs::Permissions::from_mode(0o6755)).expect("ours");
    let other = "exec setpriv --reuid 65534 --regid 65534 --clear-groups \"$@\"";
    let place = setup.path("m").display().to_string();
    let mount = format!("-t tmpfs -o mode=1777 tmpfs {place} && {other}");
    let daemon = setup.with_mount(&mount).ready();
    rename(&daemon, "open/f", "m/f", &json!({})).bare(204);
    let shown = daemon.script("stat -c '%u %a' m/f");
    assert_eq!(shown["stdout"], "65534 755\n");
}

fn moves_at_once_to_one_name_have_one_winner(driver: Driver) {
    let daemon = Daemon::ready(driver);
    for number in 0..16 {
        fs::write(daemon.path(&number.to_string()), "").expect("ours");
    }
    let mut connections: Vec<_> = (0..16).map(|_| daemon.connect()).collect();
    for (number, connection) in connections.iter_mut().enumerate() {
        let body = json!({"from": number.to_string(), "to": "one"});
        connection.send(Request::post("/v1/fs/move").bearer().json(&body).bytes());
    }
    let replies: Vec<_> = connections
        .iter_mut()
        .map(|connection| connection.reply().status)
        .collect();
    let count = |status: u16| replies.iter().filter(|one| **one == status).count();
    assert_eq!((count(204), count(409)), (1, 15), "{replies:?}");
    assert_eq!(names(&daemon.path("")).len(), 16);
}
