//! A file is whole or absent: aborted uploads, readers in between, every size (D12, wishes 14 to 19).

use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::daemon::{Daemon, Setup};
use crate::driver::Driver;
use crate::process::{self, is_root, wait_until};
use crate::request::{Request, file_at};
use crate::scratch::{inode, mode, names, noise, tree};

both![
    the_old_file_is_there_until_the_new_one_is_whole,
    an_aborted_upload_leaves_everything_as_it_was,
    a_reader_never_sees_a_mixture,
    a_reader_that_has_begun_gets_the_file_it_began_with,
    a_shorter_file_leaves_no_tail_of_the_longer_one,
    a_hard_link_keeps_the_old_content,
    replacing_in_place_keeps_the_inode,
    a_file_in_a_directory_that_may_not_be_written_stays_until_the_new_one_is_whole,
    a_spool_that_is_full_is_told_by_its_own_name,
    a_replacement_in_place_is_as_short_as_its_body,
    another_way_to_replace_is_refused,
    uploads_of_one_file_at_once_leave_one_of_them,
    fifty_uploads_of_one_file_at_once_leave_one_of_them_whole,
    a_reader_outside_goes_on_with_the_file_it_has_open,
    a_daemon_that_is_killed_during_an_upload_leaves_the_old_file,
    a_small_body_that_comes_in_pieces_is_written_whole,
    every_size_makes_the_round_trip,
    memory_does_not_grow_with_the_file,
    a_file_that_is_being_executed_can_be_replaced,
];

fn the_old_file_is_there_until_the_new_one_is_whole(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let target = file_at(daemon.path("f"));
    let mut connection = daemon.connect();
    let bytes = Request::put(&*target).bearer().body(noise(300_000)).bytes();
    let (most, last) = bytes.split_at(bytes.len() - 1);
    connection.send(most);
    daemon.get(&*target).is(404);
    connection.send(last);
    connection.reply().is(204);
    assert!(daemon.get(&*target).is(200).body == noise(300_000));
    let bytes = Request::put(&*target)
        .bearer()
        .chunks([noise(10), noise(200_000)])
        .bytes();
    let (most, last) = bytes.split_at(bytes.len() - 1);
    connection.send(most);
    assert!(daemon.get(&*target).is(200).body == noise(300_000));
    connection.send(last);
    connection.reply().is(204);
    assert_eq!(daemon.get(&*target).is(200).body.len(), 200_010);
    assert_eq!(names(&daemon.path("")), ["f"]);
}

fn an_aborted_upload_leaves_everything_as_it_was(driver: Driver) {
    let daemon = Daemon::ready(driver);
    fs::write(daemon.path("old"), "old").expect("the scratch directory is ours");
    fs::set_permissions(daemon.path("old"), fs::Permissions::from_mode(0o4711)).expect("ours");
    let before = (
        tree(&daemon.path("")),
        inode(&daemon.path("old")),
        daemon.at_rest(),
    );
    for name in ["old", "new"] {
        let put = Request::put(format!("{}&mode=600", file_at(daemon.path(name)))).bearer();
        for request in [
            put.clone().body(noise(500_000)),
            put.chunks([noise(250_000), noise(250_000)]),
        ] {
            let bytes = request.bytes();
            for (sent, reset) in [
                (bytes.len() - 1, false),
                (bytes.len() - 1, true),
                (bytes.len() / 2, true),
                (400, false),
            ] {
                let mut connection = daemon.connect();
                connection.send(&bytes[..sent]);
                if reset {
                    connection.reset();
                }
            }
        }
    }
    daemon.holds_at_most(before.2);
    wait_until("nothing is left", || tree(&daemon.path("")) == before.0);
    assert_eq!(inode(&daemon.path("old")), before.1);
}

fn a_reader_never_sees_a_mixture(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let target = file_at(daemon.path("f"));
    let path = daemon.path("f");
    let versions: Vec<Vec<u8>> = (0..4)
        .map(|number| vec![b'a' + number; 150_000 * (usize::from(number) + 1)])
        .collect();
    daemon.put(&*target, versions[0].clone()).is(204);
    let stop = Arc::new(AtomicBool::new(false));
    let looker = thread::spawn({
        let stop = Arc::clone(&stop);
        let versions = versions.clone();
        move || {
            while !stop.load(Ordering::Relaxed) {
                let content = fs::read(&path).expect("the file is always there");
                assert!(
                    versions.contains(&content),
                    "a mixture of {} bytes",
                    content.len()
                );
            }
        }
    });
    let mut reader = daemon.connect();
    for round in 0..40 {
        daemon.put(&*target, versions[round % 4].clone()).is(204);
        let content = reader.call(&Request::get(&*target).bearer()).is(200).body;
        assert!(content == versions[round % 4], "round {round}");
    }
    stop.store(true, Ordering::Relaxed);
    looker.join().expect("every look was whole");
}

fn a_reader_that_has_begun_gets_the_file_it_began_with(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let target = file_at(daemon.path("f"));
    let old = noise(16 << 20);
    fs::write(daemon.path("f"), &old).expect("the scratch directory is ours");
    let mut reader = daemon.connect();
    reader.send(Request::get(&*target).bearer().bytes());
    reader.head().expect("a response");
    daemon.put(&*target, "new").is(204);
    assert!(reader.take(old.len()).expect("the whole old file") == old);
    reader.is_usable();
}

fn a_shorter_file_leaves_no_tail_of_the_longer_one(driver: Driver) {
    let daemon = Daemon::ready(driver);
    for replace in ["", "&replace=in_place"] {
        let target = format!("{}{replace}", file_at(daemon.path("f")));
        for length in [100_000, 5000, 70_000, 1, 0, 3] {
            daemon.put(&*target, noise(length)).is(204);
            assert!(
                fs::read(daemon.path("f")).expect("it was written") == noise(length),
                "{length}"
            );
        }
    }
}

fn a_hard_link_keeps_the_old_content(driver: Driver) {
    let daemon = Daemon::ready(driver);
    fs::write(daemon.path("f"), "old").expect("the scratch directory is ours");
    fs::hard_link(daemon.path("f"), daemon.path("partner")).expect("the scratch directory is ours");
    daemon.put(file_at(daemon.path("f")), "new").is(204);
    assert_eq!(
        fs::read_to_string(daemon.path("f")).expect("it is there"),
        "new"
    );
    assert_eq!(
        fs::read_to_string(daemon.path("partner")).expect("it is there"),
        "old"
    );
}

fn replacing_in_place_keeps_the_inode(driver: Driver) {
    let daemon = Daemon::ready(driver);
    fs::write(daemon.path("f"), "old").expect("the scratch directory is ours");
    fs::hard_link(daemon.path("f"), daemon.path("partner")).expect("the scratch directory is ours");
    let before = inode(&daemon.path("f"));
    daemon
        .put(
            format!("{}&replace=in_place", file_at(daemon.path("f"))),
            "new",
        )
        .is(204);
    assert_eq!(inode(&daemon.path("f")), before);
    assert_eq!(
        fs::read_to_string(daemon.path("partner")).expect("it is there"),
        "new"
    );
    daemon
        .put(
            format!("{}&replace=in_place&mode=640", file_at(daemon.path("f"))),
            "newer",
        )
        .is(204);
    assert_eq!(inode(&daemon.path("f")), before);
    assert_eq!(mode(&daemon.path("f")), 0o640);
    daemon
        .put(
            format!("{}&replace=in_place", file_at(daemon.path("made"))),
            "new",
        )
        .is(204);
    assert_eq!(
        fs::read_to_string(daemon.path("made")).expect("it was made"),
        "new"
    );
}

fn a_file_in_a_directory_that_may_not_be_written_stays_until_the_new_one_is_whole(driver: Driver) {
    if !is_root("a daemon without rights") || !Path::new(SETPRIV).exists() {
        return;
    }
    let setup = Setup::new(driver);
    fs::set_permissions(setup.path("../tmp"), fs::Permissions::from_mode(0o777)).expect("ours");
    let nobody = ["--reuid=65534", "--regid=65534", "--clear-groups"];
    let daemon = setup.under(&[&[SETPRIV][..], &nobody].concat()).ready();
    fs::write(daemon.path("f"), "old").expect("the scratch directory is ours");
    fs::set_permissions(daemon.path("f"), fs::Permissions::from_mode(0o666)).expect("ours");
    let (before, target) = (inode(&daemon.path("f")), file_at(daemon.path("f")));
    for put in [
        Request::put(&*target).bearer().body(noise(300_000)),
        Request::put(&*target)
            .bearer()
            .chunks([noise(10), noise(300_000)]),
    ] {
        let bytes = put.bytes();
        let mut connection = daemon.connect();
        connection.send(&bytes[..bytes.len() - 1]);
        daemon.get(&*target).is(200);
        connection.reset();
        wait_until("the spool is let go", || {
            let targets = daemon.descriptor_targets();
            !targets.iter().any(|target| target.contains("/tmp/#"))
        });
        assert_eq!(fs::read(daemon.path("f")).expect("it is there"), b"old");
    }
    daemon.put(&*target, noise(300_000)).bare(204);
    assert!(fs::read(daemon.path("f")).expect("it is there") == noise(300_000));
    daemon.put(&*target, "short").bare(204);
    assert_eq!(fs::read(daemon.path("f")).expect("it is there"), b"short");
    assert_eq!(inode(&daemon.path("f")), before);
    assert_eq!(names(&daemon.temporary()), [""; 0]);
    daemon.put(file_at(daemon.path("new")), "x").explains(500);
}

fn a_spool_that_is_full_is_told_by_its_own_name(driver: Driver) {
    if !is_root("a daemon without rights") || !Path::new(SETPRIV).exists() {
        return;
    }
    let setup = Setup::new(driver).flag("--disk-reserve-bytes", "0");
    fs::create_dir(setup.path("spool")).expect("ours");
    let place = setup.path("spool").display().to_string();
    let other = "exec setpriv --reuid 65534 --regid 65534 --clear-groups \"$@\"";
    let mount = format!("-t tmpfs -o mode=1777,size=64k tmpfs {place} && {other}");
    let daemon = setup
        .flag("--spool-dir", place.clone())
        .with_mount(&mount)
        .ready();
    fs::write(daemon.path("f"), "old").expect("the scratch directory is ours");
    fs::set_permissions(daemon.path("f"), fs::Permissions::from_mode(0o666)).expect("ours");
    for size in [100_000, 1_000_000] {
        let reply = daemon.put(file_at(daemon.path("f")), noise(size));
        let told = reply.explains(507).text();
        assert!(told.contains(&format!("cannot write {place}: ")), "{told}");
        assert!(told.contains(" of 65536"), "{told}");
        assert_eq!(fs::read(daemon.path("f")).expect("it is there"), b"old");
    }
}

fn a_replacement_in_place_is_as_short_as_its_body(driver: Driver) {
    let daemon = Daemon::ready(driver);
    fs::write(daemon.path("f"), noise(1000)).expect("the scratch directory is ours");
    let put = Request::put(format!("{}&replace=in_place", file_at(daemon.path("f")))).bearer();
    daemon.call(&put.chunks(["ab", "c"])).is(204);
    assert_eq!(
        fs::read_to_string(daemon.path("f")).expect("it is there"),
        "abc"
    );
}

fn another_way_to_replace_is_refused(driver: Driver) {
    let daemon = Daemon::ready(driver);
    for value in ["", "nonsense", "IN_PLACE"] {
        let target = format!("{}&replace={value}", file_at(daemon.path("f")));
        daemon.put(target, "x").explains(400);
        assert!(names(&daemon.path("")).is_empty());
    }
}

fn uploads_of_one_file_at_once_leave_one_of_them(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let target = file_at(daemon.path("f"));
    let bodies: Vec<Vec<u8>> = (0..8_u8)
        .map(|number| vec![b'a' + number; 200_000])
        .collect();
    let mut uploads: Vec<_> = bodies
        .iter()
        .map(|body| {
            (
                daemon.connect(),
                Request::put(&*target).bearer().body(body.clone()).bytes(),
            )
        })
        .collect();
    for (connection, bytes) in &mut uploads {
        connection.send(&bytes[..100_000]);
    }
    for (connection, bytes) in &mut uploads {
        connection.send(&bytes[100_000..]);
    }
    for (connection, _) in &mut uploads {
        connection.reply().is(204);
    }
    let content = fs::read(daemon.path("f")).expect("it was written");
    assert!(bodies.contains(&content));
    assert_eq!(names(&daemon.path("")), ["f"]);
}

fn fifty_uploads_of_one_file_at_once_leave_one_of_them_whole(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let target = file_at(daemon.path("f"));
    // Sizes on both sides of every way that a body can take.
    let body = |number: usize| {
        let size = [10, 60_000, 600_000][number % 3] + number;
        let name = u8::try_from(number).expect("below fifty");
        vec![b'0' + name; size]
    };
    let senders: Vec<_> = (0..50)
        .map(|number| {
            let mut connection = daemon.connect();
            let put = Request::put(&*target).bearer().body(body(number));
            thread::spawn(move || connection.call(&put).is(204))
        })
        .collect();
    for sender in senders {
        sender.join().expect("it was answered");
    }
    let content = fs::read(daemon.path("f")).expect("it was written");
    assert!((0..50).any(|number| content == body(number)));
    assert_eq!(names(&daemon.path("")), ["f"]);
}

fn a_reader_outside_goes_on_with_the_file_it_has_open(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let (path, old) = (daemon.path("f"), noise(300_000));
    fs::write(&path, &old).expect("the scratch directory is ours");
    let mut reader = fs::File::open(&path).expect("it is there");
    let mut content = vec![0; 100_000];
    reader.read_exact(&mut content).expect("it is long enough");
    for body in [noise(10), noise(1_000_000)] {
        daemon.put(file_at(&path), body.clone()).is(204);
        assert!(fs::read(&path).expect("it is there") == body);
    }
    reader.read_to_end(&mut content).expect("it can be read");
    assert!(content == old);
}

fn a_daemon_that_is_killed_during_an_upload_leaves_the_old_file(driver: Driver) {
    for (name, length) in [("f", 100_000), ("f", 5_000_000), ("new", 5_000_000)] {
        let mut daemon = Daemon::ready(driver);
        fs::write(daemon.path("f"), "old").expect("the scratch directory is ours");
        let before = (tree(&daemon.path("")), inode(&daemon.path("f")));
        let put = Request::put(file_at(daemon.path(name))).bearer();
        let bytes = put.body(noise(length)).bytes();
        let mut connection = daemon.connect();
        connection.send(&bytes[..bytes.len() - 1]);
        let work = daemon.path("").to_string_lossy().into_owned();
        wait_until("the file is open", || {
            let targets = daemon.descriptor_targets();
            targets
                .iter()
                .any(|target| target.starts_with(&format!("{work}#")))
        });
        daemon.signal(rustix::process::Signal::KILL);
        daemon.wait();
        assert_eq!(tree(&daemon.path("")), before.0, "{name} {length}");
        assert_eq!(inode(&daemon.path("f")), before.1);
    }
}

fn a_small_body_that_comes_in_pieces_is_written_whole(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let target = file_at(daemon.path("f"));
    let put = Request::put(&*target).bearer().body(noise(20_000));
    let next = Request::get("/v1/health");
    let head = put.head().len();
    for cut in [1, head - 1, head, head + 1, head + 5000, head + 19_999] {
        let mut connection = daemon.connect();
        let bytes = put.bytes();
        connection.send(&bytes[..cut]);
        daemon.health();
        // What follows the body belongs to the next request.
        connection.send([&bytes[cut..], &next.bytes()].concat());
        connection.reply().is(204);
        connection.reply().is(200);
        assert!(fs::read(daemon.path("f")).expect("it was written") == noise(20_000));
        fs::remove_file(daemon.path("f")).expect("it is ours");
    }
}

fn every_size_makes_the_round_trip(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let mut connection = daemon.connect();
    let target = file_at(daemon.path("f"));
    for power in 0..=22 {
        let size = 1_usize << power;
        for length in [size - 1, size, size + 1] {
            let content = noise(length);
            let put = Request::put(&*target).bearer();
            let pieces: Vec<Vec<u8>> = content.chunks(100_000).map(<[u8]>::to_vec).collect();
            for request in [put.clone().body(content.clone()), put.chunks(pieces)] {
                connection.call(&request).is(204);
                let reply = connection.call(&Request::get(&*target).bearer()).is(200);
                assert!(reply.body == content, "{length}");
            }
        }
    }
}

fn memory_does_not_grow_with_the_file(driver: Driver) {
    let daemon = Setup::new(driver).ready();
    let target = file_at(daemon.path("f"));
    let peak = || {
        let text = process::status(daemon.pid(), "VmHWM");
        text.trim_end_matches(" kB")
            .parse::<u64>()
            .expect("kibibytes")
    };
    daemon.put(&*target, noise(1 << 20)).is(204);
    daemon.get(&*target).is(200);
    let before = peak();
    let content = vec![7; 64 << 20];
    daemon.put(&*target, content.clone()).is(204);
    assert!(daemon.get(&*target).is(200).body == content);
    let grown = peak() - before;
    assert!(grown < 16 * 1024, "the peak has grown by {grown} KiB");
}

fn a_file_that_is_being_executed_can_be_replaced(driver: Driver) {
    let daemon = Daemon::ready(driver);
    fs::copy("/bin/sleep", daemon.path("program")).expect("a program");
    daemon.begin("e", &serde_json::json!({"command": ["./program", "1000"]}));
    daemon
        .put(
            file_at(daemon.path("program")),
            "#!/bin/sh\necho replaced\n",
        )
        .is(204);
    assert_eq!(
        daemon.output(&serde_json::json!({"command": ["./program"]})),
        "replaced\n"
    );
}

/// Starts a program as another user (util-linux).
const SETPRIV: &str = "/usr/bin/setpriv";
