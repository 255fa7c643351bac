//! Downloading a tree: names, order, length, limits (contract section 5.4, D15).

use std::fs::{self, FileTimes, Permissions};

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::time::{Duration, UNIX_EPOCH};

use crate::archive::{archive, entries, entry, file};
use crate::client::Broken;
use crate::daemon::{Daemon, Setup};
use crate::driver::Driver;
use crate::process::wait_until;
use crate::request::{Request, tar_at};
use crate::scratch::{noise, tree};

both![
    a_tree_is_packed_with_what_it_is,
    the_length_is_exact,
    what_is_not_a_directory_is_refused,
    head_tells_the_length,
    an_empty_directory_is_one_member,
    entries_stand_in_byte_order,
    the_same_tree_gives_the_same_bytes,
    hard_links_are_packed_once,
    a_link_partner_outside_the_tree_does_not_count,
    long_names_are_packed_whole,
    names_that_are_not_utf8_are_packed,
    sockets_are_skipped_and_fifos_packed,
    sizes_around_the_block_are_exact,
    a_packed_tree_can_be_put_back,
    a_hole_is_packed_with_its_content,
    a_tree_of_thousands_of_files_is_packed,
    too_many_members_or_bytes_are_refused,
    the_root_may_be_a_link_or_relative,
    a_link_is_packed_and_not_followed,
    http_1_0_gets_the_tree_too,
];

fn a_tree_is_packed_with_what_it_is(driver: Driver) {
    let daemon = Daemon::ready(driver);
    fs::create_dir_all(daemon.path("t/sub/empty")).expect("the scratch directory is ours");
    write(&daemon, "t/f", b"hello", 0o755);
    write(&daemon, "t/sub/g", b"", 0o600);
    symlink("f", daemon.path("t/l")).expect("the scratch directory is ours");
    symlink("/etc/passwd", daemon.path("t/sub/absolute")).expect("the scratch directory is ours");
    set_mode(&daemon, "t", 0o755);
    set_mode(&daemon, "t/sub", 0o700);
    set_mode(&daemon, "t/sub/empty", 0o755);
    let reply = daemon.get(tar_at(daemon.path("t"))).is(200);
    assert_eq!(reply.field("content-type"), Some("application/x-tar"));
    let expected = [
        entry(".", b'5', 0o755, None, b""),
        entry("f", b'0', 0o755, None, b"hello"),
        entry("l", b'2', 0o777, Some("f"), b""),
        entry("sub", b'5', 0o700, None, b""),
        entry("sub/absolute", b'2', 0o777, Some("/etc/passwd"), b""),
        entry("sub/empty", b'5', 0o755, None, b""),
        entry("sub/g", b'0', 0o600, None, b""),
    ];
    assert_eq!(entries(&reply.body), expected);
    let mut packed = tar::Archive::new(&*reply.body);
    let file = packed
        .entries()
        .expect("an archive")
        .nth(1)
        .expect("f")
        .expect("a header");
    let found = fs::metadata(daemon.path("t/f")).expect("it is there");
    assert_eq!(file.header().uid().ok(), Some(u64::from(found.uid())));
    assert_eq!(file.header().gid().ok(), Some(u64::from(found.gid())));
    assert_eq!(
        file.header().mtime().ok(),
        u64::try_from(found.mtime()).ok()
    );
}

fn the_length_is_exact(driver: Driver) {
    let daemon = Daemon::ready(driver);
    fs::create_dir(daemon.path("t")).expect("the scratch directory is ours");
    let mut connection = daemon.connect();
    for number in 0..10 {
        write(
            &daemon,
            &format!("t/{number}-{}", "n".repeat(number * 15)),
            &noise(number * 300),
            0o644,
        );
        let reply = connection
            .call(&Request::get(tar_at(daemon.path("t"))).bearer())
            .is(200);
        assert_eq!(
            reply.field("content-length"),
            Some(reply.body.len().to_string().as_str())
        );
        assert_eq!(reply.body.len() % 512, 0);
        assert!(reply.body.ends_with(&[0; 1024]));
        assert_eq!(&reply.body[..3], b"./\0");
        assert_eq!(&reply.body[257..262], b"ustar");
        connection.is_usable();
    }
}

fn what_is_not_a_directory_is_refused(driver: Driver) {
    let daemon = Daemon::ready(driver);
    fs::write(daemon.path("f"), "x").expect("the scratch directory is ours");
    symlink("nowhere", daemon.path("dangling")).expect("the scratch directory is ours");
    let rows = [
        ("absent", 404),
        ("dangling", 404),
        ("f", 400),
        ("f/x", 500),
        ("nul\0x", 500),
    ];
    for (name, status) in rows {
        let reply = daemon.get(tar_at(daemon.path(name)));
        assert_eq!(reply.status, status, "{name:?}: {reply:?}");
        reply.explains(status);
    }
    daemon
        .get(tar_at(daemon.path(&"x".repeat(300))))
        .explains(500);
    daemon.get("/v1/fs/tar?path=").explains(404);
    daemon.get("/v1/fs/tar").explains(400);
    daemon.get(tar_at("/dev/null")).explains(400);
}

fn head_tells_the_length(driver: Driver) {
    let daemon = Daemon::ready(driver);
    fs::create_dir(daemon.path("t")).expect("the scratch directory is ours");
    write(&daemon, "t/f", &noise(5000), 0o644);
    let whole = daemon.get(tar_at(daemon.path("t"))).is(200);
    let head = daemon
        .call(&Request::new("HEAD", tar_at(daemon.path("t"))).bearer())
        .is(200);
    assert_eq!(
        head.field("content-length"),
        Some(whole.body.len().to_string().as_str())
    );
    assert_eq!(head.field("content-type"), Some("application/x-tar"));
    daemon
        .call(&Request::new("HEAD", tar_at(daemon.path("absent"))).bearer())
        .is(404);
}

fn an_empty_directory_is_one_member(driver: Driver) {
    let daemon = Daemon::ready(driver);
    fs::create_dir(daemon.path("t")).expect("the scratch directory is ours");
    let reply = daemon.get(tar_at(daemon.path("t"))).is(200);
    assert_eq!(reply.body.len(), 1536);
    let packed = entries(&reply.body);
    assert_eq!(packed.len(), 1);
    assert_eq!(packed[0].name, ".");
}

fn entries_stand_in_byte_order(driver: Driver) {
    let daemon = Daemon::ready(driver);
    fs::create_dir(daemon.path("t")).expect("the scratch directory is ours");
    for name in ["b", "a", "Z", "10", "9", "ü", "_", "~", "aa", "B"] {
        write(&daemon, &format!("t/{name}"), b"x", 0o644);
    }
    for name in ["q", "p"] {
        fs::create_dir(daemon.path("t").join(name)).expect("the scratch directory is ours");
        write(&daemon, &format!("t/{name}/2"), b"x", 0o644);
        write(&daemon, &format!("t/{name}/1"), b"x", 0o644);
    }
    let reply = daemon.get(tar_at(daemon.path("t"))).is(200);
    let packed = entries(&reply.body);
    let packed: Vec<&str> = packed.iter().map(|entry| entry.name.as_str()).collect();
    let expected = [
        ".", "10", "9", "B", "Z", "_", "a", "aa", "b", "p", "p/1", "p/2", "q", "q/1", "q/2", "~",
        "ü",
    ];
    assert_eq!(packed, expected);
}

fn the_same_tree_gives_the_same_bytes(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let names = ["z", "a/x", "a/y", "m", "b/c/d"];
    let make = |root: &str, order: &mut dyn Iterator<Item = &&str>| {
        for name in order {
            let path = daemon.path(root).join(name);
            fs::create_dir_all(path.parent().expect("below the root"))
                .expect("the scratch directory is ours");
            fs::write(&path, name).expect("the scratch directory is ours");
        }
        for name in ["z", "a/x", "a/y", "m", "b/c/d", "b/c", "a", "b", ""] {
            let path = daemon.path(root).join(name);
            let time = UNIX_EPOCH + Duration::from_secs(1_000_000_000);
            let opened = fs::File::open(&path).expect("it is there");
            opened
                .set_times(FileTimes::new().set_modified(time))
                .expect("it is ours");
        }
        daemon.get(tar_at(daemon.path(root))).is(200).body
    };
    let forth = make("one", &mut names.iter());
    let back = make("two", &mut names.iter().rev());
    assert!(forth == back, "another order of creation gives other bytes");
    assert!(daemon.get(tar_at(daemon.path("one"))).body == forth);
}

fn hard_links_are_packed_once(driver: Driver) {
    let daemon = Daemon::ready(driver);
    fs::create_dir_all(daemon.path("t/d")).expect("the scratch directory is ours");
    write(&daemon, "t/b", &noise(10_000), 0o644);
    fs::hard_link(daemon.path("t/b"), daemon.path("t/d/c")).expect("the scratch directory is ours");
    fs::hard_link(daemon.path("t/b"), daemon.path("t/a")).expect("the scratch directory is ours");
    let reply = daemon.get(tar_at(daemon.path("t"))).is(200);
    let packed = entries(&reply.body);
    let shown: Vec<(&str, u8, Option<&str>, usize)> = packed
        .iter()
        .map(|e| (&*e.name, e.kind, e.link.as_deref(), e.data.len()))
        .collect();
    let expected = [
        (".", b'5', None, 0),
        ("a", b'0', None, 10_000),
        ("b", b'1', Some("a"), 0),
        ("d", b'5', None, 0),
        ("d/c", b'1', Some("a"), 0),
    ];
    assert_eq!(shown, expected);
}

fn a_link_partner_outside_the_tree_does_not_count(driver: Driver) {
    let daemon = Daemon::ready(driver);
    fs::create_dir(daemon.path("t")).expect("the scratch directory is ours");
    write(&daemon, "outside", b"content", 0o644);
    fs::hard_link(daemon.path("outside"), daemon.path("t/f"))
        .expect("the scratch directory is ours");
    let packed = entries(&daemon.get(tar_at(daemon.path("t"))).is(200).body);
    assert_eq!(packed[1], entry("f", b'0', 0o644, None, b"content"));
}

fn long_names_are_packed_whole(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let deep = format!("{}/{}", "d".repeat(150), "e".repeat(200));
    fs::create_dir_all(daemon.path("t").join(&deep)).expect("the scratch directory is ours");
    let target = "t".repeat(300);
    for length in [99, 100, 101, 155, 255] {
        write(&daemon, &format!("t/{}", "f".repeat(length)), b"x", 0o644);
    }
    fs::write(daemon.path("t").join(&deep).join("leaf"), "leaf")
        .expect("the scratch directory is ours");
    symlink(&target, daemon.path("t/link")).expect("the scratch directory is ours");
    fs::hard_link(
        daemon.path("t").join(&deep).join("leaf"),
        daemon.path("t/zz"),
    )
    .expect("ours");
    let reply = daemon.get(tar_at(daemon.path("t"))).is(200);
    let packed = entries(&reply.body);
    for length in [99, 100, 101, 155, 255] {
        let name = "f".repeat(length);
        assert!(packed.iter().any(|entry| entry.name == name), "{length}");
    }
    let leaf = format!("{deep}/leaf");
    assert!(
        packed
            .iter()
            .any(|entry| entry.name == leaf && entry.data == b"leaf")
    );
    assert!(
        packed
            .iter()
            .any(|entry| entry.name == "link" && entry.link.as_deref() == Some(&*target))
    );
    assert!(
        packed
            .iter()
            .any(|entry| entry.name == "zz" && entry.link.as_deref() == Some(&*leaf))
    );
}

fn names_that_are_not_utf8_are_packed(driver: Driver) {
    use std::os::unix::ffi::OsStrExt;
    let daemon = Daemon::ready(driver);
    fs::create_dir(daemon.path("t")).expect("the scratch directory is ours");
    let name = std::ffi::OsStr::from_bytes(b"caf\xe9");
    fs::write(daemon.path("t").join(name), "x").expect("the scratch directory is ours");
    let body = daemon.get(tar_at(daemon.path("t"))).is(200).body;
    assert!(body[512..].starts_with(b"caf\xe9\0"));
}

fn sockets_are_skipped_and_fifos_packed(driver: Driver) {
    let daemon = Daemon::ready(driver);
    fs::create_dir(daemon.path("t")).expect("the scratch directory is ours");
    write(&daemon, "t/a", b"x", 0o644);
    let _socket =
        std::os::unix::net::UnixListener::bind(daemon.path("t/the-socket")).expect("a socket");
    let mode = rustix::fs::Mode::from_raw_mode(0o640);
    rustix::fs::mkfifoat(rustix::fs::CWD, daemon.path("t/fifo"), mode).expect("ours");
    write(&daemon, "t/z", b"y", 0o644);
    let packed = entries(&daemon.get(tar_at(daemon.path("t"))).is(200).body);
    let shown: Vec<(&str, u8)> = packed
        .iter()
        .map(|entry| (&*entry.name, entry.kind))
        .collect();
    assert_eq!(
        shown,
        [(".", b'5'), ("a", b'0'), ("fifo", b'6'), ("z", b'0')]
    );
    wait_until("the socket is in the log", || {
        daemon
            .stderr()
            .iter()
            .any(|line| line.contains("the-socket"))
    });
}

fn sizes_around_the_block_are_exact(driver: Driver) {
    let daemon = Daemon::ready(driver);
    fs::create_dir(daemon.path("t")).expect("the scratch directory is ours");
    let sizes = [
        0, 1, 511, 512, 513, 4095, 4097, 65_535, 65_537, 262_143, 262_144, 262_145, 1_048_577,
        9_000_000,
    ];
    for size in sizes {
        write(&daemon, &format!("t/f{size}"), &noise(size), 0o644);
    }
    let packed = entries(&daemon.get(tar_at(daemon.path("t"))).is(200).body);
    for size in sizes {
        let name = format!("f{size}");
        let found = packed
            .iter()
            .find(|entry| entry.name == name)
            .expect("it was packed");
        assert!(found.data == noise(size), "{size}");
    }
}

fn a_packed_tree_can_be_put_back(driver: Driver) {
    let daemon = Daemon::ready(driver);
    fs::create_dir_all(daemon.path("t/sub/deep")).expect("the scratch directory is ours");
    write(&daemon, "t/f", &noise(100_000), 0o755);
    write(
        &daemon,
        &format!("t/sub/{}", "n".repeat(200)),
        b"long",
        0o600,
    );
    fs::hard_link(daemon.path("t/f"), daemon.path("t/sub/h"))
        .expect("the scratch directory is ours");
    symlink("../f", daemon.path("t/sub/l")).expect("the scratch directory is ours");
    let body = daemon.get(tar_at(daemon.path("t"))).is(200).body;
    daemon.put(tar_at(daemon.path("u")), body.clone()).bare(204);
    assert_eq!(tree(&daemon.path("u")), tree(&daemon.path("t")));
    let before = fs::metadata(daemon.path("t/f"))
        .expect("it is there")
        .mtime();
    assert_eq!(
        fs::metadata(daemon.path("u/f"))
            .expect("it is there")
            .mtime(),
        before
    );
    assert_eq!(
        fs::metadata(daemon.path("u/f"))
            .expect("it is there")
            .nlink(),
        2
    );
    // An absolute link is packed, and such an archive is refused on the way back.
    symlink("/etc/passwd", daemon.path("t/absolute")).expect("the scratch directory is ours");
    let body = daemon.get(tar_at(daemon.path("t"))).is(200).body;
    daemon.put(tar_at(daemon.path("v")), body).explains(400);
    assert!(!daemon.path("v").exists());
}

fn a_hole_is_packed_with_its_content(driver: Driver) {
    let daemon = Daemon::ready(driver);
    fs::create_dir(daemon.path("t")).expect("the scratch directory is ours");
    let sparse = fs::File::create(daemon.path("t/sparse")).expect("the scratch directory is ours");
    sparse.set_len(3 << 20).expect("a sparse file");
    std::os::unix::fs::FileExt::write_all_at(&sparse, b"middle", 2_000_000).expect("ours");
    write(&daemon, "t/z", b"after", 0o644);
    let body = daemon.get(tar_at(daemon.path("t"))).is(200).body;
    daemon.put(tar_at(daemon.path("u")), body).bare(204);
    let (one, two) = (
        fs::read(daemon.path("t/sparse")),
        fs::read(daemon.path("u/sparse")),
    );
    assert!(one.expect("it is there") == two.expect("it was put back"));
    assert_eq!(
        fs::read(daemon.path("u/z")).expect("it was put back"),
        b"after"
    );
}

fn a_tree_of_thousands_of_files_is_packed(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let members = (0..2000).map(|number| {
        file(
            format!("d{}/f{number:04}", number % 30),
            format!("content {number}"),
        )
    });
    daemon
        .put(tar_at(daemon.path("t")), archive(members))
        .bare(204);
    let packed = entries(&daemon.get(tar_at(daemon.path("t"))).is(200).body);
    assert_eq!(packed.len(), 1 + 30 + 2000);
    for entry in packed.iter().filter(|entry| entry.kind == b'0') {
        let number: usize = entry.name[entry.name.len() - 4..]
            .parse()
            .expect("a number");
        assert_eq!(entry.data, format!("content {number}").into_bytes());
    }
}

fn too_many_members_or_bytes_are_refused(driver: Driver) {
    let daemon = Setup::new(driver)
        .flag("--max-tar-members", "5")
        .flag("--max-tar-bytes", "1000")
        .ready();
    fs::create_dir_all(daemon.path("t/d")).expect("the scratch directory is ours");
    write(&daemon, "t/a", &noise(400), 0o644);
    write(&daemon, "t/d/b", &noise(600), 0o644);
    daemon.get(tar_at(daemon.path("t"))).is(200);
    write(&daemon, "t/c", b"x", 0o644);
    daemon.get(tar_at(daemon.path("t"))).explains(413);
    write(&daemon, "t/c", b"", 0o644);
    daemon.get(tar_at(daemon.path("t"))).is(200);
    for name in ["t/e", "t/f"] {
        write(&daemon, name, b"", 0o644);
    }
    daemon.get(tar_at(daemon.path("t"))).explains(413);
    daemon
        .call(&Request::new("HEAD", tar_at(daemon.path("t"))).bearer())
        .is(413);
}

fn the_root_may_be_a_link_or_relative(driver: Driver) {
    let daemon = Daemon::ready(driver);
    fs::create_dir(daemon.path("t")).expect("the scratch directory is ours");
    write(&daemon, "t/f", b"x", 0o644);
    symlink("t", daemon.path("link")).expect("the scratch directory is ours");
    let whole = daemon.get(tar_at(daemon.path("t"))).is(200).body;
    for path in ["t", "./t", "t/", "link", "link/.", "../work/t"] {
        assert!(daemon.get(tar_at(path)).is(200).body == whole, "{path}");
    }
}

fn a_link_is_packed_and_not_followed(driver: Driver) {
    let daemon = Daemon::ready(driver);
    fs::create_dir_all(daemon.path("t")).expect("the scratch directory is ours");
    fs::create_dir_all(daemon.path("outside")).expect("the scratch directory is ours");
    write(&daemon, "outside/secret", b"secret", 0o644);
    symlink("../outside", daemon.path("t/dir")).expect("the scratch directory is ours");
    symlink("../outside/secret", daemon.path("t/file")).expect("the scratch directory is ours");
    symlink(".", daemon.path("t/self")).expect("the scratch directory is ours");
    let packed = entries(&daemon.get(tar_at(daemon.path("t"))).is(200).body);
    let kinds: Vec<u8> = packed.iter().map(|entry| entry.kind).collect();
    assert_eq!(kinds, [b'5', b'2', b'2', b'2']);
}

fn http_1_0_gets_the_tree_too(driver: Driver) {
    let daemon = Daemon::ready(driver);
    fs::create_dir(daemon.path("t")).expect("the scratch directory is ours");
    write(&daemon, "t/f", b"x", 0o644);
    let whole = daemon.get(tar_at(daemon.path("t"))).is(200).body;
    let head =
        String::from_utf8(Request::get(tar_at(daemon.path("t"))).bearer().head()).expect("ASCII");
    let mut connection = daemon.connect();
    connection.send(head.replace("HTTP/1.1", "HTTP/1.0"));
    assert!(connection.reply().is(200).body == whole);
    assert!(matches!(connection.reply_to("GET"), Err(Broken::Closed)));
}

fn write(daemon: &Daemon, name: &str, content: &[u8], mode: u32) {
    fs::write(daemon.path(name), content).expect("the scratch directory is ours");
    set_mode(daemon, name, mode);
}

fn set_mode(daemon: &Daemon, name: &str, mode: u32) {
    fs::set_permissions(daemon.path(name), Permissions::from_mode(mode)).expect("ours");
}
