//! Tests of uploads.

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::time::Duration;

use rustix::fs::CWD;

use super::super::testing::{Broken, Dir, listing, run};
use super::*;
use crate::ring::flow::Ready;

pub(super) fn upload(path: PathBuf) -> Upload {
    Upload {
        path,
        mode: None,
        owner: Owner::default(),
        mtime: None,
        in_place: false,
        sparse: false,
        sync: false,
        condition: Condition::default(),
        reserve: 0,
        spool_dir: std::env::temp_dir(),
    }
}

fn put(upload: Upload, body: &[u8]) -> std::result::Result<(), (Kind, String)> {
    put_from(upload, Ready::new(body.to_vec()))
}

fn put_from(
    upload: Upload,
    mut body: impl Inflow + Send,
) -> std::result::Result<(), (Kind, String)> {
    let outcome = run(async || write(upload, &mut body).await);
    let told = |error: Error| (error.kind(), error.sentence().to_owned());
    outcome.map(drop).map_err(told)
}

fn cannot_write() -> std::result::Result<(), (Kind, String)> {
    Err((Kind::Internal, "cannot write file".into()))
}

#[test]
fn a_file_appears_with_the_directories_above_it() {
    let dir = Dir::new();
    put(upload(dir.path().join("a/b/f")), b"hello").expect("it is written");
    put(upload(dir.path().join("empty")), b"").expect("it is written");
    assert_eq!(
        listing(dir.path()),
        [
            "a d 755",
            "a/b d 755",
            "a/b/f f 644 hello n1",
            "empty f 644  n1"
        ]
    );
}

#[test]
fn sizes_around_the_buffer_are_written_whole() {
    for size in [
        buffers::LEASE - 1,
        buffers::LEASE,
        buffers::LEASE + 1,
        3 * buffers::LEASE,
    ] {
        let dir = Dir::new();
        let bytes: Vec<u8> = (0..size)
            .map(|index| u8::try_from(index % 251).unwrap_or(0))
            .collect();
        put(upload(dir.path().join("f")), &bytes).expect("it is written");
        assert!(
            std::fs::read(dir.path().join("f")).expect("it is there") == bytes,
            "{size}"
        );
    }
}

#[test]
fn a_replaced_file_keeps_its_mode_and_its_partners_their_bytes() {
    let dir = Dir::new();
    let path = dir.path().join("f");
    std::fs::write(&path, "a longer text").expect("it is fresh");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o4710)).expect("it is ours");
    std::fs::hard_link(&path, dir.path().join("partner")).expect("it is fresh");
    put(upload(path.clone()), b"new").expect("it is written");
    assert_eq!(
        listing(dir.path()),
        ["f f 4710 new n1", "partner f 4710 a longer text n1"]
    );
    put(
        Upload {
            mode: Some(0o666),
            ..upload(path)
        },
        b"mode",
    )
    .expect("it is written");
    assert_eq!(listing(dir.path())[0], "f f 666 mode n1");
}

#[test]
fn a_replaced_file_keeps_its_owner_when_we_may_give_it() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let dir = Dir::new();
    let path = dir.path().join("f");
    std::fs::write(&path, "x").expect("it is fresh");
    std::os::unix::fs::chown(&path, Some(1234), Some(2345)).expect("we are root");
    put(upload(path.clone()), b"new").expect("it is written");
    let meta = path.metadata().expect("it is there");
    assert_eq!((meta.uid(), meta.gid()), (1234, 2345));
}

#[test]
fn links_are_followed_and_stay() {
    let dir = Dir::new();
    std::fs::create_dir(dir.path().join("d")).expect("it is fresh");
    std::fs::write(dir.path().join("d/f"), "old").expect("it is fresh");
    symlink("d/to", dir.path().join("s")).expect("it is fresh");
    symlink("f", dir.path().join("d/to")).expect("it is fresh");
    symlink(dir.path().join("d/new"), dir.path().join("dangling")).expect("it is fresh");
    put(upload(dir.path().join("s")), b"new").expect("it is written");
    put(upload(dir.path().join("dangling")), b"x").expect("it is written");
    let link = format!("dangling l {}", dir.path().join("d/new").display());
    let tree = [
        "d d 755",
        "d/f f 644 new n1",
        "d/new f 644 x n1",
        "d/to l f",
        link.as_str(),
        "s l d/to",
    ];
    let mut tree = tree.map(str::to_owned);
    tree.sort();
    assert_eq!(listing(dir.path()), tree);
}

#[test]
fn links_in_a_circle_are_an_error() {
    let dir = Dir::new();
    symlink("b", dir.path().join("a")).expect("it is fresh");
    symlink("a", dir.path().join("b")).expect("it is fresh");
    assert_eq!(put(upload(dir.path().join("a")), b"x"), cannot_write());
}

#[test]
fn what_can_only_be_a_directory_is_an_error() {
    let dir = Dir::new();
    std::fs::create_dir(dir.path().join("d")).expect("it is fresh");
    for name in ["d", "d/", "new/", "d/.", "d/.."] {
        assert_eq!(
            put(upload(dir.path().join(name)), b"x"),
            cannot_write(),
            "{name}"
        );
    }
    assert_eq!(put(upload(PathBuf::new()), b"x"), cannot_write());
    assert_eq!(put(upload(dir.path().join("n\0l")), b"x"), cannot_write());
    std::fs::write(dir.path().join("f"), "x").expect("it is fresh");
    let outcome = put(upload(dir.path().join("f/x")), b"x");
    assert_eq!(
        outcome,
        Err((Kind::Internal, "cannot create parent".into()))
    );
}

#[test]
fn a_body_that_breaks_off_leaves_the_old_file() {
    for length in [Some(1_000_000), Some(300_010), None] {
        let dir = Dir::new();
        let path = dir.path().join("f");
        std::fs::write(&path, "old").expect("it is fresh");
        for (name, bytes) in [("f", 300_000), ("new", 10)] {
            let body = Broken {
                bytes: vec![1; bytes],
                length,
                kind: Some(Kind::ClientGone),
            };
            let outcome = put_from(upload(dir.path().join(name)), body);
            assert_eq!(outcome.map_err(|(kind, _)| kind), Err(Kind::ClientGone));
            assert_eq!(listing(dir.path()), ["f f 644 old n1"]);
        }
    }
}

/// Makes a file that everybody may write in a directory that only root may, and a spool for everybody.
fn shut_off() -> (Dir, Upload) {
    let dir = Dir::new();
    let allow = |name: &str, mode| {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(dir.path().join(name), mode).expect("it is ours");
    };
    for name in ["shut", "spool"] {
        std::fs::create_dir(dir.path().join(name)).expect("it is fresh");
    }
    std::fs::write(dir.path().join("shut/f"), "a longer text").expect("it is fresh");
    allow("shut/f", 0o666);
    allow("spool", 0o777);
    let asked = Upload {
        spool_dir: dir.path().join("spool"),
        ..upload(dir.path().join("shut/f"))
    };
    (dir, asked)
}

/// Does something as a user with no rights; helper threads inherit them from this one.
fn as_nobody<T: Send>(job: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let nobody = rustix::process::Uid::from_raw(65534);
            rustix::thread::set_thread_res_uid(nobody, nobody, nobody).expect("we are root");
            job()
        });
        thread.join().expect("the test does not panic")
    })
}

#[test]
fn a_file_in_a_directory_that_may_not_be_written_keeps_its_content_until_the_body_is_whole() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    for (bytes, length) in [(300_000, Some(1_000_000)), (300_000, None), (9, Some(10))] {
        let (dir, upload) = shut_off();
        let body = Broken {
            bytes: vec![1; bytes],
            length,
            kind: Some(Kind::ClientGone),
        };
        let outcome = as_nobody(|| put_from(upload, body));
        assert_eq!(outcome.map_err(|(kind, _)| kind), Err(Kind::ClientGone));
        let tree = ["shut d 755", "shut/f f 666 a longer text n1", "spool d 777"];
        assert_eq!(listing(dir.path()), tree);
    }
    for size in [0, 3, 300_000] {
        let (dir, upload) = shut_off();
        let path = upload.path.clone();
        as_nobody(|| put(upload, &vec![b'x'; size])).expect("it is written");
        assert!(std::fs::read(path).expect("it is there") == vec![b'x'; size]);
        assert_eq!(listing(&dir.path().join("spool")), [""; 0]);
    }
    let (_dir, asked) = shut_off();
    let path = asked.path.clone();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).expect("it is ours");
    assert_eq!(as_nobody(|| put(asked, b"x")), cannot_write());
    assert_eq!(std::fs::read(path).expect("it is there"), b"a longer text");
}

#[test]
fn a_write_in_place_keeps_the_inode_and_leaves_no_stale_tail() {
    let dir = Dir::new();
    let path = dir.path().join("f");
    std::fs::write(&path, "a longer text").expect("it is fresh");
    std::fs::hard_link(&path, dir.path().join("partner")).expect("it is fresh");
    let in_place = |name: &str| Upload {
        in_place: true,
        ..upload(dir.path().join(name))
    };
    put(in_place("f"), b"new").expect("it is written");
    put(
        Upload {
            mode: Some(0o666),
            ..in_place("g")
        },
        b"x",
    )
    .expect("it is written");
    assert_eq!(
        listing(dir.path()),
        ["f f 644 new n2", "g f 666 x n1", "partner f 644 new n2"]
    );
    let body = Broken {
        bytes: vec![1; 10],
        length: None,
        kind: Some(Kind::TooLarge),
    };
    assert!(put_from(in_place("made"), body).is_err());
    assert!(!dir.path().join("made").exists(), "what we made goes again");
}

/// A body during which somebody else gives the name to another file, before it breaks off.
struct Overtaken(PathBuf);

impl Inflow for Overtaken {
    fn remaining(&self) -> Option<u64> {
        None
    }

    fn read<'a>(&'a mut self, _: &'a mut Vec<u8>) -> Step<'a, usize> {
        std::fs::write(self.0.with_extension("new"), "theirs").expect("it is fresh");
        std::fs::rename(self.0.with_extension("new"), &self.0).expect("it is ours");
        Box::pin(async { Err(Kind::ClientGone.told("gone")) })
    }
}

#[test]
fn a_write_in_place_that_breaks_off_removes_no_file_of_somebody_else() {
    let dir = Dir::new();
    let path = dir.path().join("f");
    let asked = Upload {
        in_place: true,
        ..upload(path.clone())
    };
    let outcome = put_from(asked, Overtaken(path));
    assert_eq!(outcome.map_err(|(kind, _)| kind), Err(Kind::ClientGone));
    assert_eq!(listing(dir.path()), ["f f 644 theirs n1"]);
}

#[test]
fn a_body_that_breaks_off_leaves_no_directory_that_was_made_for_it() {
    for (in_place, length) in [(false, Some(1_000_000)), (false, None), (true, None)] {
        let dir = Dir::new();
        std::fs::create_dir(dir.path().join("was")).expect("it is fresh");
        let body = Broken {
            bytes: vec![1; 300_000],
            length,
            kind: Some(Kind::ClientGone),
        };
        let asked = Upload {
            in_place,
            ..upload(dir.path().join("was/a/b/f"))
        };
        let outcome = put_from(asked, body);
        assert_eq!(outcome.map_err(|(kind, _)| kind), Err(Kind::ClientGone));
        assert_eq!(listing(dir.path()), ["was d 755"]);
    }
}

#[test]
fn a_directory_that_somebody_else_takes_away_again_is_made_again() {
    let dir = Dir::new();
    let path = dir.path().join("a/f");
    let one = Place::prepare(&upload(dir.path().join("a/g"))).map(Place::into_draft);
    let asked = Upload {
        condition: Condition::new(|_| Ok(())),
        ..upload(path.clone())
    };
    for asked in [upload(path.clone()), asked] {
        let other = Place::prepare(&asked).map(Place::into_draft);
        let (Ok(Ok(one)), Ok(Ok(other))) = (&one, other) else {
            panic!("both can be begun");
        };
        assert!(one.file().metadata().is_ok());
        std::fs::remove_dir(dir.path().join("a")).expect("it is empty");
        other.publish(&asked).expect("it is published");
        assert_eq!(listing(dir.path()), ["a d 755", "a/f f 644  n1"]);
        std::fs::remove_file(&path).expect("ours");
    }
}

#[test]
fn two_who_pour_into_one_file_do_not_mix_their_bytes() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let (_dir, upload) = shut_off();
    let upload = Upload {
        sparse: true,
        ..upload
    };
    let size = 8 << 20;
    for _ in 0..4 {
        std::thread::scope(|scope| {
            for byte in [b'1', b'2'] {
                let upload = upload.clone();
                scope.spawn(move || as_nobody(|| put(upload, &vec![byte; size])));
            }
        });
        let bytes = std::fs::read(&upload.path).expect("it is there");
        assert!(bytes.len() == size && bytes.iter().all(|byte| *byte == bytes[0]));
    }
}

#[test]
fn free_space_is_asked_first() {
    let dir = Dir::new();
    let outcome = put(
        Upload {
            reserve: u64::MAX,
            ..upload(dir.path().join("a/f"))
        },
        b"x",
    );
    let (kind, text) = outcome.expect_err("nothing has so much");
    assert_eq!(kind, Kind::DiskFull);
    assert!(
        text.starts_with(&format!(
            "refusing to write {}",
            dir.path().join("a/f").display()
        )),
        "{text}"
    );
    assert!(!dir.path().join("a").exists());
}

#[test]
fn devices_and_kernel_files_are_written_in_place() {
    put(
        Upload {
            reserve: u64::MAX,
            ..upload("/dev/null".into())
        },
        b"x",
    )
    .expect("it takes everything");
    let outcome = put(
        Upload {
            reserve: 1,
            ..upload("/proc/new".into())
        },
        b"x",
    );
    assert_eq!(outcome.map_err(|(kind, _)| kind), Err(Kind::DiskFull));
    put(
        Upload {
            reserve: 1,
            ..upload("/proc/self/comm".into())
        },
        b"renamed",
    )
    .expect("it may be written");
    let full = put(upload("/dev/full".into()), b"x");
    assert_eq!(full.map_err(|(kind, _)| kind), Err(Kind::DiskFull));
}

#[test]
fn a_fifo_without_a_reader_is_refused_and_one_with_gets_the_bytes() {
    let dir = Dir::new();
    let path = dir.path().join("p");
    rustix::fs::mknodat(CWD, &path, FileType::Fifo, Mode::from_raw_mode(0o600), 0)
        .expect("it is fresh");
    let started = std::time::Instant::now();
    let outcome = put(upload(path.clone()), b"x");
    assert_eq!(outcome.map_err(|(kind, _)| kind), Err(Kind::Malformed));
    assert!(started.elapsed() < Duration::from_secs(3));
    let bytes = vec![7; 200_000];
    let reader = std::thread::spawn({
        let path = path.clone();
        move || std::fs::read(path).expect("it can be read")
    });
    put(upload(path), &bytes).expect("it is written");
    assert!(reader.join().expect("it does not panic") == bytes);
}

#[test]
fn a_file_that_runs_is_replaced() {
    let dir = Dir::new();
    let path = dir.path().join("sleep");
    std::fs::copy("/bin/sleep", &path).expect("it is there");
    let mut child = std::process::Command::new(&path)
        .arg("60")
        .spawn()
        .expect("it runs");
    let outcome = put(upload(path.clone()), b"new");
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    outcome.expect("a name can be given to another file");
    assert_eq!(std::fs::read(&path).expect("it is there"), b"new");
    assert_eq!(path.metadata().expect("it is there").mode() & 0o777, 0o755);
}
