//! Tests of packing: what we pack, our scanner, GNU tar and Python read.

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use super::super::filter::Filter;
use super::super::testing::{Dir, Sink, run};
use super::*;
use crate::wire::tar::{Event, Member, Moment, Scanner};

const WIDE: Limits = Limits {
    members: 10_000,
    bytes: 1 << 30,
};

fn packed(path: &Path, limits: Limits) -> std::result::Result<Vec<u8>, (Kind, String)> {
    chosen(path, Options::whole(limits))
}

fn chosen(path: &Path, options: Options) -> std::result::Result<Vec<u8>, (Kind, String)> {
    let outcome = run(async || {
        let pack = plan(path, options).await?;
        let length = pack.length();
        let mut sink = Sink::default();
        pack.send(&mut sink).await?;
        assert_eq!(sink.0.len() as u64, length, "the length was exact");
        Ok::<_, Error>(sink.0)
    });
    outcome.map_err(|error| (error.kind(), error.sentence().to_owned()))
}

fn members(archive: &[u8]) -> Vec<(Member, Vec<u8>)> {
    let mut scanner = Scanner::default();
    let mut found: Vec<(Member, Vec<u8>)> = Vec::new();
    let mut bytes = archive;
    loop {
        match scanner.feed(&mut bytes).expect("we wrote it") {
            Event::Member(member) => found.push((member, Vec::new())),
            Event::Data(piece) => found
                .last_mut()
                .expect("a member came")
                .1
                .extend_from_slice(piece),
            Event::More | Event::End => break,
        }
    }
    scanner.finish().expect("we wrote it");
    found
}

fn names(archive: &[u8]) -> Vec<String> {
    members(archive)
        .into_iter()
        .map(|(member, _)| String::from_utf8_lossy(&member.path).into_owned())
        .collect()
}

fn make(root: &Path, names: &[&str]) {
    for name in names {
        let path = root.join(name);
        match name.strip_suffix('/') {
            Some(_) => std::fs::create_dir_all(path).expect("it is fresh"),
            None => std::fs::write(path, name).expect("it is fresh"),
        }
    }
}

#[test]
fn names_come_in_byte_order_after_the_root() {
    let dir = Dir::new();
    make(
        dir.path(),
        &[
            "a/", "a/b", "a-b/", "a-b/c", "a.txt", "Z", "a/!", "a0", "~", "a/b.c/", "a/b.c/d",
            "a/b-c",
        ],
    );
    let names = names(&packed(dir.path(), WIDE).expect("it can be packed"));
    assert_eq!(names[0], "./");
    let mut sorted = names[1..].to_vec();
    sorted.sort();
    assert_eq!(names[1..], sorted);
    assert_eq!(names.len(), 13);
}

#[test]
fn the_same_tree_gives_the_same_bytes() {
    let dir = Dir::new();
    make(dir.path(), &["a/", "a/b", "c", "d/", "d/e"]);
    assert!(packed(dir.path(), WIDE) == packed(dir.path(), WIDE));
}

#[test]
fn attributes_and_links_are_told() {
    let dir = Dir::new();
    make(dir.path(), &["d/", "d/f", "g"]);
    std::fs::set_permissions(
        dir.path().join("d/f"),
        std::fs::Permissions::from_mode(0o4751),
    )
    .expect("it is ours");
    std::fs::hard_link(dir.path().join("d/f"), dir.path().join("h")).expect("it is fresh");
    symlink("/etc/passwd", dir.path().join("s")).expect("it is fresh");
    let fifo = dir.path().join("p");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &fifo,
        FileType::Fifo,
        Mode::from_raw_mode(0o600),
        0,
    )
    .expect("it is fresh");
    let _socket =
        std::os::unix::net::UnixListener::bind(dir.path().join("sock")).expect("it is fresh");
    let found = members(&packed(dir.path(), WIDE).expect("it can be packed"));
    let told: Vec<_> = found
        .iter()
        .map(|(member, data)| {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            (
                text(&member.path),
                member.kind,
                member.mode,
                text(&member.link),
                text(data),
            )
        })
        .collect();
    let of = |name: &str, kind, mode, link: &str, data: &str| {
        (name.into(), kind, mode, link.into(), data.into())
    };
    assert_eq!(
        told,
        [
            of("./", Type::Directory, 0o755, "", ""),
            of("d", Type::Directory, 0o755, "", ""),
            of("d/f", Type::File, 0o4751, "", "d/f"),
            of("g", Type::File, 0o644, "", "g"),
            of("h", Type::HardLink, 0o4751, "d/f", ""),
            of("p", Type::Fifo, 0o600, "", ""),
            of("s", Type::Symlink, 0o777, "/etc/passwd", ""),
        ]
    );
    let mtime = dir
        .path()
        .join("g")
        .metadata()
        .expect("it is there")
        .mtime();
    assert_eq!(found[3].0.mtime.secs, mtime);
}

#[test]
fn files_of_every_size_are_packed_whole() {
    let dir = Dir::new();
    let mut sizes = vec![
        0,
        1,
        511,
        512,
        513,
        4096,
        LARGE - 1,
        LARGE,
        LARGE + 1,
        3 * LARGE + 7,
    ];
    sizes.extend(std::iter::repeat_n(100_000, 40));
    for (index, size) in sizes.iter().enumerate() {
        let byte = u8::try_from(index).expect("few");
        std::fs::write(dir.path().join(format!("{index:03}")), vec![byte; *size])
            .expect("it is fresh");
    }
    let found = members(&packed(dir.path(), WIDE).expect("it can be packed"));
    for (index, size) in sizes.iter().enumerate() {
        let byte = u8::try_from(index).expect("few");
        assert!(found[index + 1].1 == vec![byte; *size], "{index}");
    }
}

#[test]
fn cold_files_are_packed_whole() {
    let dir = Dir::new();
    for index in 0..200u8 {
        let path = dir.path().join(format!("{index:03}"));
        std::fs::write(&path, vec![index; 5000]).expect("it is fresh");
        let file = File::open(&path).expect("it is there");
        file.sync_all().expect("the disk takes it");
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).expect("it is a file");
    }
    let found = members(&packed(dir.path(), WIDE).expect("it can be packed"));
    for index in 0..200u8 {
        assert!(
            found[usize::from(index) + 1].1 == vec![index; 5000],
            "{index}"
        );
    }
}

/// Packs the tree as if what `is_far` picks were on a filesystem that may ask a server.
fn packed_far(path: &Path, is_far: fn(usize) -> bool) -> Vec<u8> {
    run(async || {
        let mut pack = plan(path, Options::whole(WIDE))
            .await
            .expect("it can be walked");
        let here = pack.plan.items[0].local;
        for (index, item) in pack.plan.items.iter_mut().enumerate() {
            let judged = matches!(item.kind, Type::File | Type::Directory);
            assert_eq!(item.local, judged && here, "{item:?} is where the root is");
            item.local &= !is_far(index);
        }
        let mut sink = Sink::default();
        pack.send(&mut sink).await.expect("it can be packed");
        sink.0
    })
}

#[test]
fn what_lies_elsewhere_is_packed_the_same() {
    let dir = Dir::new();
    make(dir.path(), &["a/", "a/b", "a/c/", "a/c/d", "e", "f"]);
    symlink("a", dir.path().join("s")).expect("it is fresh");
    for (name, size) in [
        ("large", LARGE + 9),
        ("larger", 3 * LARGE),
        ("a/c/z", LARGE),
    ] {
        std::fs::write(dir.path().join(name), vec![7; size]).expect("it is fresh");
    }
    for index in 0..100 {
        let path = dir.path().join(format!("a/{index}"));
        std::fs::write(path, vec![index; 3000]).expect("it is fresh");
    }
    let holed = File::create(dir.path().join("holed")).expect("it is fresh");
    holed.write_all_at(b"x", 1 << 20).expect("it is ours");
    let near = packed(dir.path(), WIDE).expect("it can be packed");
    for is_far in [|_| true, |index| index % 2 == 0, |index| index % 3 == 0] {
        assert!(packed_far(dir.path(), is_far) == near);
    }
}

#[test]
fn holes_are_not_packed() {
    use std::os::unix::fs::FileExt;
    let dir = Dir::new();
    let file = File::create(dir.path().join("sparse")).expect("it is fresh");
    for run in 0..30 {
        file.write_all_at(b"data", run * 1_000_000)
            .expect("the disk takes it");
    }
    file.set_len(100_000_000).expect("the disk takes it");
    File::create(dir.path().join("hole"))
        .and_then(|file| file.set_len(1 << 20))
        .expect("it is fresh");
    let archive = packed(dir.path(), WIDE).expect("it can be packed");
    assert!(archive.len() < 1_000_000, "{}", archive.len());
    let found = members(&archive);
    assert_eq!(found[2].0.size, 100_000_000);
    assert_eq!(found[1].0.size, 1 << 20);
    check_others(dir.path(), &archive);
}

#[test]
fn bounds_are_told() {
    let dir = Dir::new();
    make(dir.path(), &["a/", "a/b", "c"]);
    let told = dir.path().display();
    let few = packed(dir.path(), Limits { members: 2, ..WIDE });
    assert_eq!(
        few,
        Err((
            Kind::TooLarge,
            format!("tree under {told} has more than 2 members")
        ))
    );
    assert!(packed(dir.path(), Limits { members: 3, ..WIDE }).is_ok());
    let small = packed(dir.path(), Limits { bytes: 3, ..WIDE });
    assert_eq!(
        small,
        Err((Kind::TooLarge, format!("tree under {told} exceeds 3 bytes")))
    );
}

#[test]
fn a_root_that_is_no_directory_is_refused() {
    let dir = Dir::new();
    make(dir.path(), &["f", "d/"]);
    symlink("d", dir.path().join("link")).expect("it is fresh");
    let told = |name: &str| packed(&dir.path().join(name), WIDE);
    assert_eq!(
        told("none"),
        Err((Kind::NotFound, "no such directory".into()))
    );
    assert_eq!(
        packed(Path::new(""), WIDE),
        Err((Kind::NotFound, "no such directory".into()))
    );
    assert_eq!(
        told("f"),
        Err((
            Kind::Malformed,
            "path is not a directory; use /v1/fs/file".into()
        ))
    );
    assert_eq!(
        told("f/x"),
        Err((Kind::Internal, "cannot read directory".into()))
    );
    assert_eq!(told("link").map(|bytes| bytes.len()), Ok(1536));
}

#[test]
fn a_file_that_shrinks_or_vanishes_breaks_the_archive_off() {
    for size in [5000, LARGE + 5] {
        for gone in [true, false] {
            let dir = Dir::new();
            let path = dir.path().join("f");
            std::fs::write(&path, vec![1; size]).expect("it is fresh");
            let error = run(async || {
                let pack = plan(dir.path(), Options::whole(WIDE))
                    .await
                    .expect("it can be packed");
                match gone {
                    true => std::fs::remove_file(&path).expect("it is there"),
                    false => std::fs::write(&path, vec![1; size - 1]).expect("it is there"),
                }
                pack.send(&mut Sink::default()).await.err()
            });
            assert_eq!(
                error.map(|error| error.kind()),
                Some(Kind::Internal),
                "{size} {gone}"
            );
        }
    }
}

#[test]
fn a_file_that_grows_is_cut() {
    for size in [5000, LARGE + 5] {
        let dir = Dir::new();
        let path = dir.path().join("f");
        std::fs::write(&path, vec![1; size]).expect("it is fresh");
        let archive = run(async || {
            let pack = plan(dir.path(), Options::whole(WIDE))
                .await
                .expect("it can be packed");
            std::fs::write(&path, vec![2; size + 10_000]).expect("it is there");
            let mut sink = Sink::default();
            pack.send(&mut sink).await.expect("it is long enough");
            sink.0
        });
        assert!(members(&archive)[1].1 == vec![2; size]);
    }
}

#[test]
fn deep_trees_and_long_names_are_packed() {
    let dir = Dir::new();
    let deep = vec!["directory"; 60].join("/");
    std::fs::create_dir_all(dir.path().join(&deep)).expect("it is fresh");
    let long = "n".repeat(255);
    std::fs::write(dir.path().join(&deep).join(&long), "deep").expect("it is fresh");
    symlink("t".repeat(300), dir.path().join("s")).expect("it is fresh");
    let archive = packed(dir.path(), WIDE).expect("it can be packed");
    assert_eq!(names(&archive)[61], format!("{deep}/{long}"));
    check_others(dir.path(), &archive);
}

#[test]
fn other_programs_read_what_we_pack() {
    use std::os::unix::ffi::OsStrExt;
    let dir = Dir::new();
    make(dir.path(), &["a/", "a/b", "a-b", "empty/", "\u{fc}"]);
    std::fs::write(
        dir.path().join(std::ffi::OsStr::from_bytes(b"caf\xe9")),
        "x",
    )
    .expect("it is fresh");
    std::fs::hard_link(dir.path().join("a/b"), dir.path().join("h")).expect("it is fresh");
    symlink("a/b", dir.path().join("s")).expect("it is fresh");
    check_others(
        dir.path(),
        &packed(dir.path(), WIDE).expect("it can be packed"),
    );
}

/// GNU tar, bsdtar and Python, as far as they are installed, extract the archive to the tree it was made from.
fn check_others(tree: &Path, archive: &[u8]) {
    let dir = Dir::new();
    let file = dir.path().join("archive.tar");
    std::fs::write(&file, archive).expect("it is fresh");
    for (program, arguments) in [
        ("tar", ["-xf", "archive.tar", "-C", "out"].as_slice()),
        ("bsdtar", &["-xf", "archive.tar", "-C", "out"]),
        (
            "python3",
            &[
                "-c",
                "import tarfile; tarfile.open('archive.tar').extractall('out')",
            ],
        ),
    ] {
        let out = dir.path().join("out");
        std::fs::create_dir(&out).expect("it is fresh");
        let Ok(run) = Command::new(program)
            .args(arguments)
            .current_dir(dir.path())
            .output()
        else {
            std::fs::remove_dir(&out).expect("it is empty");
            continue;
        };
        assert!(
            run.status.success(),
            "{program}: {}",
            String::from_utf8_lossy(&run.stderr)
        );
        let differ = Command::new("diff")
            .arg("-r")
            .arg("--no-dereference")
            .arg(tree)
            .arg(&out)
            .output();
        let differ = differ.expect("diff is installed");
        assert!(
            differ.status.success(),
            "{program}: {}",
            String::from_utf8_lossy(&differ.stdout)
        );
        std::fs::remove_dir_all(&out).expect("it is ours");
    }
}

/// What is packed of some names, each with what is chosen of it; nothing below them.
fn picked(dir: &Dir, listed: &[&str], filter: Filter, newer_than: Option<Moment>) -> Vec<String> {
    let listed = listed.iter().map(|name| (*name).to_owned()).collect();
    let options = Options {
        listed: Some(Listed::new(listed, false, false).expect("the names are good")),
        filter,
        newer_than,
        ..Options::whole(WIDE)
    };
    names(&chosen(dir.path(), options).expect("it can be packed"))
}

#[test]
fn a_listed_directory_that_no_pattern_chooses_leaves_nothing_behind() {
    let dir = Dir::new();
    make(
        dir.path(),
        &["a/d/", "a/d-e/", "a/f.txt", "b/g/", "c/", "c/h.txt"],
    );
    let texts = || Filter::new(&["*.txt".to_owned()], &[]).expect("it is a pattern");
    let found = picked(&dir, &["a/d"], texts(), None);
    assert_eq!(found, [""; 0]);
    // What is found next takes the places that were left.
    let listed = ["a/d", "a/d-e", "b/g", "c/h.txt"];
    assert_eq!(picked(&dir, &listed, texts(), None), ["c/h.txt"]);
}

#[test]
fn a_listed_directory_that_is_too_old_leaves_nothing_behind() {
    let dir = Dir::new();
    make(dir.path(), &["a/d/", "b"]);
    let later = Moment {
        secs: i64::MAX,
        nanos: 0,
    };
    let found = picked(&dir, &["a/d"], Filter::default(), Some(later));
    assert_eq!(found, [""; 0]);
}

/// Calls `act` again and again for as long as `body` runs.
fn meanwhile<T>(act: impl Fn() + Sync, body: impl FnOnce() -> T) -> T {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                act();
            }
        });
        let outcome = body();
        is_over.store(true, Ordering::Relaxed);
        outcome
    })
}

#[test]
fn a_walk_ends_when_nobody_waits_for_it() {
    let dir = Dir::new();
    make(dir.path(), &["f"]);
    let root = || tree::open(dir.path()).expect("it is there");
    let options = Options {
        // What is left out does not count as a member, but it takes time.
        filter: Filter::new(&[], &["*".to_owned()]).expect("it is a pattern"),
        ..Options::whole(WIDE)
    };
    let asked = Asked::default();
    let is_given_up = Arc::clone(&asked.is_given_up);
    assert!(walk(root(), dir.path(), &options, &is_given_up).is_ok());
    drop(asked);
    let ended = walk(root(), dir.path(), &options, &is_given_up).err();
    assert_eq!(ended.map(|error| error.kind()), Some(Kind::ClientGone));
}

#[test]
fn files_may_vanish_before_their_attributes_are_read() {
    let dir = Dir::new();
    make(dir.path(), &["x"]);
    let (x, y) = (dir.path().join("x"), dir.path().join("y"));
    let churn = || {
        std::fs::rename(&x, &y).expect("it is ours");
        std::fs::rename(&y, &x).expect("it is ours");
    };
    let failed = meanwhile(churn, || {
        run(async || {
            let mut failed = 0;
            for _ in 0..2000 {
                let options = Options {
                    xattrs: true,
                    ..Options::whole(WIDE)
                };
                failed += usize::from(plan(dir.path(), options).await.is_err());
            }
            failed
        })
    });
    assert_eq!(failed, 0);
}

#[test]
fn links_are_followed_while_names_change() {
    let dir = Dir::new();
    make(dir.path(), &["a/", "f", "x"]);
    let root = tree::open(dir.path()).expect("it is there");
    let (x, y) = (dir.path().join("x"), dir.path().join("y"));
    let churn = || {
        std::fs::rename(&x, &y).expect("it is ours");
        std::fs::rename(&y, &x).expect("it is ours");
    };
    // The kernel gives up a way with `..` in it when anything is renamed meanwhile.
    let follow = |_| tree::follow(&root, b"a/../a/../f", OFlags::PATH).err();
    let failed: Vec<_> = meanwhile(churn, || (0..20_000).filter_map(follow).collect());
    assert_eq!(failed, []);
}
