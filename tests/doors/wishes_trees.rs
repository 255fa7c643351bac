//! Wishes 12, 14, 15, 20 and 22 for trees: an archive is one request, is whole or absent, and needs no program.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use crate::archive::{archive, dir, file, hard_link, symlink as link};
use crate::daemon::{Daemon, Setup};
use crate::driver::Driver;
use crate::request::{Request, tar_at};
use crate::scratch::{inode, noise, tree};
use crate::trees::{Exact, exact, same};

both![
    wish_12_thousands_of_small_files_are_one_request,
    wish_14_an_archive_that_breaks_off_leaves_things_as_they_were,
    wish_15_memory_does_not_grow_with_an_archive,
    wish_20_holes_and_links_come_back_as_they_went,
    wish_22_no_program_and_no_path_to_one_is_needed,
    a_tree_that_is_fetched_and_sent_back_is_the_same_tree,
];

fn wish_12_thousands_of_small_files_are_one_request(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let members = (0..5000).map(|number| file(format!("d{}/f{number}", number % 100), "small"));
    let body = archive(members);
    for (root, way) in [("on", ""), ("off", "&spool=off")] {
        let mut connection = daemon.connect();
        let target = format!("{}{way}", tar_at(daemon.path(root)));
        connection
            .call(&Request::put(target).bearer().body(body.clone()))
            .bare(204);
        assert_eq!(tree(&daemon.path(root)).len(), 5100);
        let packed = connection
            .call(&Request::get(tar_at(daemon.path(root))).bearer())
            .is(200);
        assert_eq!(crate::archive::entries(&packed.body).len(), 5101);
        connection.is_usable();
    }
}

fn wish_14_an_archive_that_breaks_off_leaves_things_as_they_were(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let old = [
        dir("d"),
        file("d/f", "old"),
        link("s", "d/f"),
        hard_link("h", "d/f"),
    ];
    daemon
        .put(tar_at(daemon.path("root")), archive(old))
        .bare(204);
    let open = daemon.at_rest();
    let before = exact(&daemon.path(""));
    let new = archive([
        file("d/f", noise(3 << 20)),
        file("d/g", noise(100_000)),
        link("s", "d/g"),
        file("i", "new"),
    ]);
    let declared = Request::put(tar_at(daemon.path("root")))
        .bearer()
        .body(new.clone())
        .bytes();
    let pieces = new.chunks(64 << 10).map(<[u8]>::to_vec).collect::<Vec<_>>();
    let chunked = Request::put(tar_at(daemon.path("root")))
        .bearer()
        .chunks(pieces)
        .bytes();
    for bytes in [declared, chunked] {
        for part in [
            200,
            5_000,
            bytes.len() / 3,
            bytes.len() / 2,
            bytes.len() - 1,
        ] {
            let mut connection = daemon.connect();
            connection.send(&bytes[..part]);
            connection.reset();
            let mut connection = daemon.connect();
            connection.send(&bytes[..part]);
            connection.finish();
            if let Ok(reply) = connection.reply_to("PUT") {
                assert_eq!(reply.status, 400, "{reply:?}");
            }
        }
    }
    daemon.holds_at_most(open);
    same("a broken upload", &exact(&daemon.path("")), &before);
    daemon.put(tar_at(daemon.path("root")), new).bare(204);
    assert!(fs::read(daemon.path("root/d/f")).expect("it is there") == noise(3 << 20));
}

fn wish_15_memory_does_not_grow_with_an_archive(driver: Driver) {
    let daemon = Daemon::ready(driver);
    daemon.at_rest();
    let before = peak(&daemon);
    let large = archive([file("a", vec![1; 50 << 20]), file("b", vec![2; 30 << 20])]);
    let many = archive((0..10_000).map(|number| file(format!("directory/file-{number}"), "1")));
    for body in [large, many] {
        for way in ["", "&spool=off"] {
            let target = format!(
                "{}{way}",
                tar_at(daemon.path(&format!("root{}", body.len())))
            );
            daemon.put(target, body.clone()).bare(204);
        }
    }
    let grown = peak(&daemon) - before;
    assert!(grown < 24 << 10, "{grown} KiB");
}

fn wish_20_holes_and_links_come_back_as_they_went(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let from = daemon.path("from");
    fs::create_dir_all(from.join("d/e")).expect("ours");
    let sparse = fs::File::create(from.join("d/sparse")).expect("ours");
    sparse.set_len(40 << 20).expect("ours");
    for offset in [0, 8 << 20, (40 << 20) - 4096] {
        sparse.write_all_at(&noise(4096), offset).expect("ours");
    }
    fs::hard_link(from.join("d/sparse"), from.join("d/e/same")).expect("ours");
    symlink("../d/sparse", from.join("d/link")).expect("ours");
    symlink("nowhere", from.join("dangling")).expect("ours");
    let body = daemon.get(tar_at(&from)).is(200).body;
    assert!(
        body.len() < 1 << 20,
        "the holes are not sent: {}",
        body.len()
    );
    for way in ["", "&spool=off"] {
        let to = daemon.path(&format!("to{}", way.len()));
        daemon
            .put(format!("{}{way}", tar_at(&to)), body.clone())
            .bare(204);
        assert_eq!(inode(&to.join("d/sparse")), inode(&to.join("d/e/same")));
        let found = fs::metadata(to.join("d/sparse")).expect("it is there");
        assert_eq!(found.len(), 40 << 20);
        assert!(found.blocks() * 512 < 1 << 20, "{} blocks", found.blocks());
        assert!(
            fs::read(to.join("d/link")).expect("a link")
                == fs::read(from.join("d/sparse")).expect("ours")
        );
        assert_eq!(
            fs::read_link(to.join("dangling")).expect("a link"),
            Path::new("nowhere")
        );
        // Nobody follows the link that was sent, be it to a file or to a directory.
        for name in ["d/link", "d/link/x", "dangling/x"] {
            let before = exact(&to);
            daemon
                .put(tar_at(&to), archive([file(name, "x")]))
                .explains(400);
            same(name, &exact(&to), &before);
        }
    }
}

fn wish_22_no_program_and_no_path_to_one_is_needed(driver: Driver) {
    let daemon = Setup::new(driver).env("PATH", "/nonexistent").ready();
    let members = [
        dir("d"),
        file("d/f", noise(5000)),
        file("large", noise(3 << 20)),
    ];
    let children = crate::process::children(daemon.pid()).len();
    daemon
        .put(tar_at(daemon.path("root")), archive(members))
        .bare(204);
    let body = daemon.get(tar_at(daemon.path("root"))).is(200).body;
    daemon
        .put(format!("{}&spool=off", tar_at(daemon.path("copy"))), body)
        .bare(204);
    same(
        "a copy",
        &exact(&daemon.path("copy/d")),
        &exact(&daemon.path("root/d")),
    );
    assert_eq!(crate::process::children(daemon.pid()).len(), children);
}

fn a_tree_that_is_fetched_and_sent_back_is_the_same_tree(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    for round in 0..30 {
        let from = daemon.path("from");
        fs::create_dir(&from).expect("ours");
        random.grow(&from);
        let expected = whole_seconds(&from);
        let body = daemon.get(tar_at(&from)).is(200).body;
        for way in ["", "&spool=off"] {
            let to = daemon.path("to");
            daemon
                .put(format!("{}{way}", tar_at(&to)), body.clone())
                .bare(204);
            same(
                &format!("round {round}{way}"),
                &whole_seconds(&to),
                &expected,
            );
            fs::remove_dir_all(&to).expect("ours");
        }
        fs::remove_dir_all(&from).expect("ours");
    }
}

/// A tree as an archive can hold it; the root itself is nobody's member.
fn whole_seconds(root: &Path) -> Exact {
    let mut seen = exact(root);
    seen.remove(Path::new(""));
    for about in seen.values_mut() {
        about.mtime.1 = 0;
    }
    seen
}

/// The most memory that the daemon had so far, in KiB.
fn peak(daemon: &Daemon) -> u64 {
    let text = crate::process::status(daemon.pid(), "VmHWM");
    let count = text.split_whitespace().next();
    count
        .and_then(|count| count.parse().ok())
        .expect("kibibytes")
}

/// Numbers that look random and are the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }

    fn size(&mut self, bound: u64) -> usize {
        usize::try_from(self.below(bound)).expect("small")
    }

    /// A name that few would choose.
    fn name(&mut self) -> Vec<u8> {
        let mut name = match self.below(12) {
            0 => b"caf\xe9".to_vec(),
            1 => b"new\nline".to_vec(),
            2 => "\u{fc}ml\u{e4}ut \u{1f980}".as_bytes().to_vec(),
            3 => b"n".repeat(101),
            4 => b"m".repeat(240),
            5 => b" ".to_vec(),
            6 => b"back\\slash*?[".to_vec(),
            7 => b"...".to_vec(),
            8 => b"-rf".to_vec(),
            9 => b"\x01\x7f\x80".to_vec(),
            _ => b"plain".to_vec(),
        };
        name.extend_from_slice(self.below(1000).to_string().as_bytes());
        name
    }

    /// Puts things into an empty directory.
    fn grow(&mut self, root: &Path) {
        let mut dirs = vec![PathBuf::new()];
        let mut files: Vec<PathBuf> = Vec::new();
        for _ in 0..self.below(30) {
            let parent = dirs[self.size(64) % dirs.len()].clone();
            let name = parent.join(std::ffi::OsStr::from_bytes(&self.name()));
            let path = root.join(&name);
            if path.as_os_str().len() > 3000 || fs::symlink_metadata(&path).is_ok() {
                continue;
            }
            match self.below(8) {
                0 | 1 => {
                    fs::create_dir(&path).expect("ours");
                    dirs.push(name);
                }
                2 => symlink("plain", &path).expect("ours"),
                3 if !files.is_empty() => {
                    let target = &files[self.size(64) % files.len()];
                    fs::hard_link(root.join(target), &path).expect("ours");
                }
                4 => {
                    let made = fs::File::create(&path).expect("ours");
                    made.set_len(1 << 20).expect("ours");
                    made.write_all_at(b"data", self.below(1 << 19))
                        .expect("ours");
                    files.push(name);
                }
                5 => {
                    let size = (1 << 20) + self.size(1 << 20);
                    fs::write(&path, noise(size)).expect("ours");
                    files.push(name);
                }
                _ => {
                    let size = self.size(3000);
                    fs::write(&path, noise(size)).expect("ours");
                    files.push(name);
                }
            }
        }
        for name in files.iter().chain(dirs.iter().skip(1)) {
            let is_dir = dirs.contains(name);
            let modes = match is_dir {
                true => [0o755, 0o700, 0o500, 0o750],
                false => [0o644, 0o600, 0o444, 0o755],
            };
            let mode = modes[self.size(4)];
            let path = root.join(name);
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("ours");
        }
        for name in files.iter().chain(dirs.iter().skip(1).rev()) {
            let secs = self.below(2_000_000_000);
            let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(secs);
            let opened = fs::File::open(root.join(name)).expect("ours");
            opened.set_modified(time).expect("ours");
        }
    }
}
