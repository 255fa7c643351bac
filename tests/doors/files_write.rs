//! Writing a file: paths, modes, what is not a regular file, and the disk reserve (contract section 5.2).

use std::fs;
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::thread;

use serde_json::json;

use crate::daemon::{Daemon, Setup};
use crate::driver::Driver;
use crate::process::{is_root, status};
use crate::request::{Request, file_at};
use crate::scratch::{mode, names, tree};

both![
    a_new_file_and_its_parents_are_made,
    any_content_type_and_framing_is_taken,
    a_mode_is_octal,
    a_mode_that_is_none_is_refused_and_leaves_nothing,
    a_mode_is_kept_unless_given,
    the_umask_shapes_new_files_and_directories,
    what_cannot_be_a_file_is_refused,
    a_symlink_is_followed,
    a_device_is_written_in_place,
    a_file_of_the_kernel_is_written_in_place,
    a_setting_of_the_kernel_is_written_as_by_echo,
    the_daemon_writes_about_itself,
    what_a_link_of_the_kernel_leads_to_is_written,
    a_fifo_with_a_reader_is_written,
    a_reader_of_a_fifo_gets_what_has_come,
    a_fifo_without_a_reader_is_refused,
    below_the_reserve_nothing_is_written,
    a_filesystem_that_reports_no_space_is_below_any_reserve,
    a_disk_that_fills_up_leaves_the_old_file,
    a_reserve_that_is_reached_on_the_way_leaves_the_old_file,
];

fn a_new_file_and_its_parents_are_made(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let reply = daemon
        .put(file_at(daemon.path("a/b/c.txt")), "hello")
        .bare(204);
    assert_eq!(reply.field("content-length"), None);
    assert_eq!(
        fs::read_to_string(daemon.path("a/b/c.txt")).expect("it was written"),
        "hello"
    );
    assert_eq!(names(&daemon.path("a/b")), ["c.txt"]);
    daemon.put(file_at("relative.txt"), "rel").bare(204);
    assert_eq!(
        fs::read_to_string(daemon.path("relative.txt")).expect("it was written"),
        "rel"
    );
    daemon
        .put(file_at(daemon.path("q/../dots.txt")), "x")
        .bare(204);
    assert!(daemon.path("dots.txt").exists());
    daemon.put(file_at(daemon.path("empty")), "").bare(204);
    assert_eq!(
        fs::metadata(daemon.path("empty"))
            .expect("it was written")
            .len(),
        0
    );
    let without_body = Request::put(file_at(daemon.path("empty2"))).bearer();
    daemon.call(&without_body).bare(204);
    assert_eq!(
        fs::metadata(daemon.path("empty2"))
            .expect("it was written")
            .len(),
        0
    );
}

fn any_content_type_and_framing_is_taken(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let put = Request::put(file_at(daemon.path("f"))).bearer();
    let requests = [
        put.clone().body("abcde"),
        put.clone().field("content-type", "text/html").body("abcde"),
        put.clone()
            .field("content-type", "application/json")
            .body("abcde"),
        put.clone().chunks(["abc", "de"]),
        put.clone().chunks(["a", "b", "c", "d", "e"]),
        put.field("content-type", "nonsense").chunks(["abcde"]),
    ];
    for request in requests {
        daemon.call(&request).bare(204);
        assert_eq!(
            fs::read_to_string(daemon.path("f")).expect("it was written"),
            "abcde"
        );
        fs::remove_file(daemon.path("f")).expect("it was written");
    }
}

fn a_mode_is_octal(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let rows = [
        ("0644", 0o644),
        ("644", 0o644),
        ("0o600", 0o600),
        ("0O600", 0o600),
        ("0o0o644", 0o644),
        ("7777", 0o7777),
        ("4755", 0o4755),
        ("0", 0),
        ("%2B644", 0o644),
        ("%20644", 0o644),
        ("644%20", 0o644),
        ("666", 0o666),
        ("000000755", 0o755),
    ];
    for (text, expected) in rows {
        let target = format!("{}&mode={text}", file_at(daemon.path("f")));
        daemon.put(target, "x").bare(204);
        assert_eq!(mode(&daemon.path("f")), expected, "{text}");
        fs::remove_file(daemon.path("f")).expect("it was written");
    }
}

fn a_mode_that_is_none_is_refused_and_leaves_nothing(driver: Driver) {
    let daemon = Daemon::ready(driver);
    for text in [
        "17777",
        "100644",
        "888",
        "",
        "-1",
        "rw",
        "0x1ff",
        "6%2044",
        "u%2Bx",
        "99999999999999999999",
    ] {
        let target = format!("{}&mode={text}", file_at(daemon.path("new/f")));
        let reply = daemon.put(target, "x");
        assert_eq!(reply.status, 400, "{text}: {reply:?}");
        reply.explains(400);
        assert!(names(&daemon.path("")).is_empty(), "{text}");
    }
    let twice = format!("{}&mode=644&mode=644", file_at(daemon.path("new/f")));
    daemon.put(twice, "x").is(400);
}

fn a_mode_is_kept_unless_given(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let target = file_at(daemon.path("f"));
    daemon.put(format!("{target}&mode=4751"), "x").bare(204);
    for content in ["yy", "z"] {
        daemon.put(&*target, content).bare(204);
        assert_eq!(mode(&daemon.path("f")), 0o4751);
        assert_eq!(
            fs::read_to_string(daemon.path("f")).expect("it was written"),
            content
        );
    }
    daemon.put(format!("{target}&mode=600"), "w").bare(204);
    assert_eq!(mode(&daemon.path("f")), 0o600);
}

fn the_umask_shapes_new_files_and_directories(driver: Driver) {
    for (umask, file, dir) in [
        ("022", 0o644, 0o755),
        ("077", 0o600, 0o700),
        ("000", 0o666, 0o777),
    ] {
        let wrapper = ["/bin/sh", "-c", "umask $0; exec \"$@\"", umask];
        let daemon = Setup::new(driver).under(&wrapper).ready();
        assert_eq!(
            status(daemon.pid(), "Umask").trim_start_matches('0'),
            umask.trim_start_matches('0')
        );
        daemon.put(file_at(daemon.path("d/f")), "x").bare(204);
        assert_eq!(mode(&daemon.path("d")), dir, "{umask}");
        assert_eq!(mode(&daemon.path("d/f")), file, "{umask}");
        // A mode that is asked for is not shaped.
        daemon
            .put(format!("{}&mode=666", file_at(daemon.path("d/g"))), "x")
            .bare(204);
        assert_eq!(mode(&daemon.path("d/g")), 0o666, "{umask}");
    }
}

fn what_cannot_be_a_file_is_refused(driver: Driver) {
    let daemon = Daemon::ready(driver);
    fs::create_dir(daemon.path("dir")).expect("the scratch directory is ours");
    fs::write(daemon.path("file"), "old").expect("the scratch directory is ours");
    symlink("loop", daemon.path("loop")).expect("the scratch directory is ours");
    let before = tree(&daemon.path(""));
    let long = "x".repeat(300);
    for name in [
        "dir", "dir/", "dir/.", "dir/..", "newdir/", "file/x", "file/", "nul\0x", "loop", &long,
    ] {
        let reply = daemon.put(file_at(daemon.path(name)), "x");
        assert_eq!(reply.status, 500, "{name:?}: {reply:?}");
        reply.explains(500);
        let mut after = tree(&daemon.path(""));
        // Parents may have been made by then.
        after.remove("newdir");
        assert_eq!(after, before, "{name:?}");
    }
    daemon.put("/v1/fs/file?path=", "x").explains(500);
    daemon.put("/v1/fs/file", "x").explains(400);
    assert_eq!(tree(&daemon.path(""))["file"], before["file"]);
}

fn a_symlink_is_followed(driver: Driver) {
    let daemon = Daemon::ready(driver);
    fs::create_dir(daemon.path("elsewhere")).expect("the scratch directory is ours");
    fs::write(daemon.path("elsewhere/target"), "old").expect("the scratch directory is ours");
    let target_mode = fs::Permissions::from_mode(0o640);
    fs::set_permissions(daemon.path("elsewhere/target"), target_mode).expect("the file is ours");
    symlink("elsewhere/target", daemon.path("link")).expect("the scratch directory is ours");
    symlink(daemon.path("link"), daemon.path("second")).expect("the scratch directory is ours");
    symlink("elsewhere/made", daemon.path("dangling")).expect("the scratch directory is ours");
    symlink("elsewhere", daemon.path("dirlink")).expect("the scratch directory is ours");
    for (name, content) in [
        ("link", "one"),
        ("second", "two"),
        ("dirlink/target", "three"),
    ] {
        daemon.put(file_at(daemon.path(name)), content).bare(204);
        let found = fs::read_to_string(daemon.path("elsewhere/target")).expect("it was there");
        assert_eq!(found, content, "{name}");
        assert_eq!(mode(&daemon.path("elsewhere/target")), 0o640, "{name}");
    }
    daemon
        .put(file_at(daemon.path("dangling")), "via")
        .bare(204);
    assert_eq!(
        fs::read_to_string(daemon.path("elsewhere/made")).expect("it was made"),
        "via"
    );
    for link in ["link", "second", "dangling", "dirlink"] {
        assert!(
            fs::symlink_metadata(daemon.path(link))
                .expect("it is there")
                .is_symlink(),
            "{link}"
        );
    }
    assert_eq!(names(&daemon.path("elsewhere")), ["made", "target"]);
}

fn a_device_is_written_in_place(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let before = fs::metadata("/dev/null").expect("a device").ino();
    daemon
        .put(file_at("/dev/null"), vec![b'x'; 300_000])
        .bare(204);
    let after = fs::metadata("/dev/null").expect("a device");
    assert!(after.file_type().is_char_device());
    assert_eq!(after.ino(), before);
    let reply = daemon.put(file_at("/dev/full"), "xxxxxxxxxx");
    assert!(reply.status == 500 || reply.status == 507, "{reply:?}");
    assert!(
        fs::metadata("/dev/full")
            .expect("a device")
            .file_type()
            .is_char_device()
    );
}

fn a_file_of_the_kernel_is_written_in_place(driver: Driver) {
    let daemon = Setup::new(driver).flag("--disk-reserve-bytes", "0").ready();
    daemon.begin_script("e", "echo $$ > up; exec sleep 1000");
    let pid = daemon.pid_in("up");
    daemon
        .put(file_at(format!("/proc/{pid}/oom_score_adj")), "123")
        .bare(204);
    let score = fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).expect("it runs");
    assert_eq!(score, "123\n");
    daemon
        .put(file_at(format!("/proc/{pid}/oom_score_adj")), "nonsense")
        .explains(500);
    daemon
        .put(file_at(format!("/proc/{pid}/no-such-file")), "x")
        .explains(500);
}

fn a_setting_of_the_kernel_is_written_as_by_echo(driver: Driver) {
    if !is_root("a setting of the kernel") {
        return;
    }
    // A host name of its own.
    let daemon = Setup::new(driver).under(&["unshare", "--uts"]).ready();
    let target = file_at("/proc/sys/kernel/hostname");
    for (written, read) in [("guest-1", "guest-1\n"), ("guest-22\n", "guest-22\n")] {
        for query in ["", "&replace=in_place"] {
            daemon.put(format!("{target}{query}"), written).bare(204);
            assert_eq!(daemon.get(&*target).is(200).text(), read);
            assert_eq!(daemon.output(&json!({"command": ["hostname"]})), read);
        }
    }
    // What the kernel does not take is an error, and what was there stays.
    daemon
        .put(file_at("/proc/sys/kernel/osrelease"), "9.9")
        .explains(500);
    daemon
        .put(format!("{target}&mode=666"), "guest-3")
        .explains(500);
}

fn the_daemon_writes_about_itself(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let comm = || fs::read_to_string(format!("/proc/{}/comm", daemon.pid())).expect("it runs");
    for (name, pieces) in [("one", 1), ("three", 3)] {
        let put = Request::put(file_at("/proc/self/comm")).bearer();
        // Pieces of a body are one write: the kernel takes each for a value of its own.
        let chunks = name.as_bytes().chunks(name.len().div_ceil(pieces));
        daemon.call(&put.chunks(chunks)).bare(204);
        assert_eq!(comm(), format!("{name}\n"));
    }
}

fn what_a_link_of_the_kernel_leads_to_is_written(driver: Driver) {
    // Standard input is a pipe whose other end is here.
    let (reader, writer) = std::io::pipe().expect("a pipe");
    let daemon = Setup::new(driver).stdin(writer.into()).ready();
    daemon.put(file_at("/proc/self/fd/0"), "through").bare(204);
    daemon.put(file_at("/dev/stdin"), " a link").bare(204);
    drop(daemon);
    let mut content = String::new();
    let mut reader = reader;
    reader.read_to_string(&mut content).expect("it can be read");
    assert_eq!(content, "through a link");
}

fn a_fifo_with_a_reader_is_written(driver: Driver) {
    let daemon = Daemon::ready(driver);
    make_fifo(&daemon, "fifo");
    let path = daemon.path("fifo");
    let reader = thread::spawn(move || {
        let mut content = Vec::new();
        let mut file = fs::File::open(path).expect("the fifo is there");
        file.read_to_end(&mut content).expect("it can be read");
        content
    });
    // More than the pipe holds, so that the writer must wait for the reader.
    let content = crate::scratch::noise(300_000);
    daemon
        .put(file_at(daemon.path("fifo")), content.clone())
        .bare(204);
    assert!(reader.join().expect("no panic") == content);
    assert!(
        fs::symlink_metadata(daemon.path("fifo"))
            .expect("it is there")
            .file_type()
            .is_fifo()
    );
}

fn a_reader_of_a_fifo_gets_what_has_come(driver: Driver) {
    let daemon = Daemon::ready(driver);
    make_fifo(&daemon, "fifo");
    let path = daemon.path("fifo");
    let (told, hears) = std::sync::mpsc::channel();
    let reader = thread::spawn(move || {
        let mut file = fs::File::open(path).expect("the fifo is there");
        let mut first = [0; 5];
        file.read_exact(&mut first).expect("it can be read");
        told.send(first).expect("somebody waits");
        let mut rest = Vec::new();
        file.read_to_end(&mut rest).expect("it can be read");
        rest
    });
    let request = Request::put(file_at(daemon.path("fifo"))).bearer();
    let request = request.body("hello, and more");
    let mut connection = daemon.connect();
    connection.send(request.head());
    connection.send("hello");
    let patience = std::time::Duration::from_secs(20);
    assert_eq!(
        &hears.recv_timeout(patience).expect("it comes at once"),
        b"hello"
    );
    connection.send(", and more");
    connection.reply().bare(204);
    assert_eq!(reader.join().expect("no panic"), b", and more");
}

fn a_fifo_without_a_reader_is_refused(driver: Driver) {
    let daemon = Daemon::ready(driver);
    make_fifo(&daemon, "fifo");
    let mut waiting = daemon.connect();
    waiting.send(
        Request::put(file_at(daemon.path("fifo")))
            .bearer()
            .body("x")
            .bytes(),
    );
    daemon.health();
    waiting.reply().explains(400);
    assert!(
        fs::symlink_metadata(daemon.path("fifo"))
            .expect("it is there")
            .file_type()
            .is_fifo()
    );
}

fn below_the_reserve_nothing_is_written(driver: Driver) {
    let reserve = u64::MAX / 2;
    let daemon = Setup::new(driver)
        .flag("--disk-reserve-bytes", reserve.to_string())
        .ready();
    fs::write(daemon.path("old"), "old").expect("the scratch directory is ours");
    let before = tree(&daemon.path(""));
    for name in ["old", "new", "a/b/new"] {
        let reply = daemon.put(file_at(daemon.path(name)), "x").explains(507);
        assert!(reply.text().contains(&reserve.to_string()), "{reply:?}");
        assert_eq!(tree(&daemon.path("")), before, "{name}");
    }
    let reply = daemon.put(format!("{}&mode=888", file_at(daemon.path("new"))), "x");
    assert_eq!(
        reply.status, 400,
        "the mode comes before the disk: {reply:?}"
    );
    assert_eq!(
        daemon.get(file_at(daemon.path("old"))).is(200).text(),
        "old"
    );
}

fn a_filesystem_that_reports_no_space_is_below_any_reserve(driver: Driver) {
    let daemon = Daemon::ready(driver);
    daemon.put(file_at("/proc/no-such-file"), "x").explains(507);
}

fn a_disk_that_fills_up_leaves_the_old_file(driver: Driver) {
    let Some(daemon) = on_a_small_disk(driver, "1m", "0") else {
        return;
    };
    let target = file_at(daemon.path("disk/f"));
    daemon.put(&*target, "old").bare(204);
    for body in [vec![b'x'; 3_000_000], vec![b'x'; 1_500_000]] {
        let reply = daemon.put(&*target, body);
        assert!(reply.status == 500 || reply.status == 507, "{reply:?}");
        assert_eq!(daemon.get(&*target).is(200).text(), "old");
        assert_eq!(daemon.script("ls -A disk")["stdout"], "f\n");
    }
    // What was taken has been given back.
    daemon.put(&*target, vec![b'y'; 500_000]).bare(204);
}

fn a_reserve_that_is_reached_on_the_way_leaves_the_old_file(driver: Driver) {
    let Some(daemon) = on_a_small_disk(driver, "64m", "33554432") else {
        return;
    };
    let target = file_at(daemon.path("disk/f"));
    daemon.put(&*target, "old").bare(204);
    daemon.put(&*target, vec![b'x'; 50 << 20]).explains(507);
    assert_eq!(daemon.get(&*target).is(200).text(), "old");
    assert_eq!(daemon.script("ls -A disk")["stdout"], "f\n");
    daemon.put(&*target, vec![b'x'; 10 << 20]).bare(204);
}

/// A daemon that sees a small filesystem of its own at `disk`; `None` where none can be mounted.
fn on_a_small_disk(driver: Driver, size: &str, reserve: &str) -> Option<Daemon> {
    if !is_root("a disk that fills up") {
        return None;
    }
    let setup = Setup::new(driver);
    fs::create_dir(setup.path("disk")).expect("the scratch directory is ours");
    let mount = format!("-t tmpfs -o size={size} tmpfs disk");
    let daemon = setup
        .flag("--disk-reserve-bytes", reserve)
        .with_mount(&mount)
        .ready();
    let mounted = daemon.output(&json!({"command": ["stat", "-f", "-c", "%T", "disk"]}));
    assert_eq!(mounted, "tmpfs\n");
    Some(daemon)
}

pub(crate) fn make_fifo(daemon: &Daemon, name: &str) {
    let mode = rustix::fs::Mode::from_raw_mode(0o644);
    rustix::fs::mkfifoat(rustix::fs::CWD, daemon.path(name), mode)
        .expect("the scratch directory is ours");
}
