//! Large members of an archive that is extracted while it arrives: written as files are, between small ones (D14).

use std::fs;
use std::os::unix::fs::MetadataExt;

use crate::archive::{Member, archive, dir, file, hard_link};
use crate::daemon::{Daemon, Setup};
use crate::driver::Driver;
use crate::process::{is_root, wait_until};
use crate::request::{Request, tar_at};
use crate::scratch::{inode, mode, noise};

both![
    a_large_member_between_small_ones_is_exact_however_it_is_cut,
    a_large_member_over_a_file_leaves_nothing_of_it,
    a_large_program_runs_as_soon_as_it_is_there,
    a_client_that_leaves_in_a_large_member_leaves_the_members_before_it,
    an_archive_that_ends_in_a_large_member_is_refused_without_it,
    a_large_member_that_has_no_room_leaves_the_members_before_it,
];

const LARGE: usize = (9 << 20) + 1234;

fn a_large_member_between_small_ones_is_exact_however_it_is_cut(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let sizes = [LARGE, (1 << 20) + (512 << 10), (1 << 20) + 511, 2 << 20];
    let members = sizes.iter().enumerate().flat_map(|(number, size)| {
        [
            file(format!("a{number}"), "before").mode(0o600).mtime(1111),
            file(format!("b{number}"), noise(*size))
                .mode(0o400)
                .mtime(2222),
            file(format!("c{number}"), "after").mode(0o755).mtime(3333),
            hard_link(format!("d{number}"), format!("b{number}")),
        ]
    });
    let body = archive(members);
    let put = Request::put(target(&daemon, "root")).bearer();
    let cut = |size| put.clone().chunks(body.chunks(size).map(<[u8]>::to_vec));
    for request in [put.clone().body(&*body), cut(99_991), cut((1 << 20) + 513)] {
        daemon.call(&request).bare(204);
        for (number, size) in sizes.into_iter().enumerate() {
            is(&daemon, &format!("a{number}"), b"before", (0o600, 1111));
            is(&daemon, &format!("b{number}"), &noise(size), (0o400, 2222));
            is(&daemon, &format!("c{number}"), b"after", (0o755, 3333));
            let path = |name| daemon.path("root").join(format!("{name}{number}"));
            assert_eq!(inode(&path('b')), inode(&path('d')));
        }
        fs::remove_dir_all(daemon.path("root")).expect("ours");
    }
}

fn a_large_member_over_a_file_leaves_nothing_of_it(driver: Driver) {
    let daemon = Daemon::ready(driver);
    fs::create_dir(daemon.path("root")).expect("ours");
    fs::write(daemon.path("root/f"), vec![b'x'; LARGE + 1]).expect("ours");
    let before = inode(&daemon.path("root/f"));
    let body = archive([file("f", noise(LARGE)).mode(0o640).mtime(1)]);
    daemon.put(target(&daemon, "root"), body).bare(204);
    is(&daemon, "f", &noise(LARGE), (0o640, 1));
    assert_eq!(inode(&daemon.path("root/f")), before);
}

fn a_large_program_runs_as_soon_as_it_is_there(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let mut program = b"#!/bin/sh\necho it runs\nexit\n".to_vec();
    program.resize(LARGE, b'#');
    let body = archive([file("run", program).mode(0o755)]);
    daemon.put(target(&daemon, "root"), body).bare(204);
    // Whoever had it open for writing yet would keep it from that.
    let ran = daemon.script("root/run");
    assert_eq!(ran["stdout"], "it runs\n", "{ran}");
}

fn a_client_that_leaves_in_a_large_member_leaves_the_members_before_it(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let open = daemon.at_rest();
    let request = Request::put(target(&daemon, "root")).bearer();
    let bytes = request.body(archive(before_and_large())).bytes();
    let mut connection = daemon.connect();
    connection.send(&bytes[..LARGE - 2_000_000]);
    // A reset also takes away what the daemon has not received.
    wait_until("the large member is half there", || {
        let found = fs::metadata(daemon.path("root/d/large"));
        found.is_ok_and(|found| found.size() > 5_000_000)
    });
    connection.reset();
    wait_until("the directory has its time", || {
        fs::metadata(daemon.path("root/d")).is_ok_and(|found| found.mtime() == 1111)
    });
    only_what_came_before_is_there(&daemon);
    daemon.holds_at_most(open);
}

fn an_archive_that_ends_in_a_large_member_is_refused_without_it(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let body = archive(before_and_large());
    for length in [2_000_000, 3 << 20, LARGE] {
        let reply = daemon.put(target(&daemon, "root"), &body[..length]);
        let told = format!("malformed tar archive at byte {length}: it ends inside a member");
        assert!(reply.explains(400).text().contains(&told));
        only_what_came_before_is_there(&daemon);
    }
}

fn a_large_member_that_has_no_room_leaves_the_members_before_it(driver: Driver) {
    if !is_root("a small filesystem") {
        return;
    }
    for (reserve, told) in [
        ("12000000", "below the 12000000 byte reserve"),
        ("0", "it does not fit; "),
    ] {
        let setup = Setup::new(driver);
        fs::create_dir(setup.path("small")).expect("ours");
        let daemon = setup
            .with_mount("-t tmpfs -o size=24m tmpfs small")
            .flag("--disk-reserve-bytes", reserve)
            .ready();
        let members = [
            dir("d").mode(0o500).mtime(1111),
            file("d/first", "1").mode(0o400).mtime(2222),
            file("d/large", noise(30 << 20)),
            file("d/last", "3"),
        ];
        let reply = daemon.put(target(&daemon, "small/root"), archive(members));
        let text = reply.explains(507).text();
        assert!(
            text.contains(told) && text.contains(" bytes available on the target filesystem"),
            "{text}"
        );
        let listed = daemon.script("find small/root -mindepth 1 -printf '%P %m %Ts\\n' | sort");
        assert_eq!(listed["stdout"], "d 500 1111\nd/first 400 2222\n");
        // The room that was taken has been given back.
        let body = archive([file("fits", noise(10 << 20))]);
        daemon.put(target(&daemon, "small/root"), body).bare(204);
    }
}

fn before_and_large() -> [Member; 4] {
    [
        dir("d").mode(0o500).mtime(1111),
        file("d/first", "1").mode(0o400).mtime(2222),
        file("d/large", noise(LARGE)).mode(0o444),
        file("d/last", "3"),
    ]
}

#[track_caller]
fn only_what_came_before_is_there(daemon: &Daemon) {
    assert_eq!(crate::scratch::names(&daemon.path("root/d")), ["first"]);
    is(daemon, "d/first", b"1", (0o400, 2222));
    assert_eq!(mode(&daemon.path("root/d")), 0o500);
}

/// Checks content, mode and time of a file below the root.
#[track_caller]
fn is(daemon: &Daemon, name: &str, content: &[u8], expected: (u32, i64)) {
    let path = daemon.path("root").join(name);
    assert!(fs::read(&path).expect("it is there") == content, "{name}");
    let mtime = fs::metadata(&path).expect("it is there").mtime();
    assert_eq!((mode(&path), mtime), expected, "{name}");
}

fn target(daemon: &Daemon, name: &str) -> String {
    format!("{}&spool=off", tar_at(daemon.path(name)))
}
