//! Tests of reading.

use super::super::testing::{Dir, Sink, run};
use super::*;
use crate::fs::lines::Window;
use crate::ring::{Frame, Step};

fn read(path: &Path) -> std::result::Result<(Option<u64>, Vec<u8>), (Kind, String)> {
    let outcome = run(async || {
        let opened = open(path).await?;
        let size = opened.size();
        let mut sink = Sink::default();
        match size {
            Some(size) => opened.send(0, size, &mut sink).await?,
            None => opened.send_all(&mut sink).await?,
        }
        Ok::<_, Error>((size, sink.0))
    });
    outcome.map_err(|error| (error.kind(), error.sentence().to_owned()))
}

fn check_error(path: impl AsRef<Path>, kind: Kind, text: &str) {
    assert_eq!(
        read(path.as_ref()),
        Err((kind, text.to_owned())),
        "{}",
        path.as_ref().display()
    );
}

#[test]
fn a_file_is_read_with_its_size() {
    let dir = Dir::new();
    for size in [0, 1, 1_000_000] {
        let path = dir.path().join("f");
        std::fs::write(&path, vec![7; size]).expect("it can be made");
        assert!(read(&path) == Ok((Some(size as u64), vec![7; size])));
    }
}

#[test]
fn kernel_files_are_read_to_their_end() {
    let (size, text) = read(Path::new("/proc/self/status")).expect("it is there");
    assert_eq!(size, None);
    assert!(text.starts_with(b"Name:"));
    let (size, text) = read(Path::new("/sys/kernel/mm/transparent_hugepage/enabled"))
        .unwrap_or((None, b"x".to_vec()));
    assert_eq!(size, None, "what sysfs calls a size is not one");
    assert!(!text.is_empty());
    assert_eq!(read(Path::new("/dev/null")), Ok((None, Vec::new())));
}

#[test]
fn what_cannot_be_read_is_told() {
    let dir = Dir::new();
    check_error(
        dir.path(),
        Kind::Malformed,
        "path is a directory; use /v1/fs/tar",
    );
    check_error(dir.path().join("none"), Kind::NotFound, "no such file");
    check_error("", Kind::NotFound, "no such file");
    check_error("n\0l", Kind::Internal, "cannot read file");
    check_error("x".repeat(300), Kind::Internal, "cannot read file");
    std::fs::write(dir.path().join("f"), "x").expect("it is fresh");
    check_error(dir.path().join("f/x"), Kind::Internal, "cannot read file");
    std::os::unix::fs::symlink("nowhere", dir.path().join("dangling")).expect("it is fresh");
    check_error(dir.path().join("dangling"), Kind::NotFound, "no such file");
}

#[test]
fn a_fifo_is_refused_at_once() {
    let dir = Dir::new();
    let path = dir.path().join("p");
    rustix::fs::mknodat(CWD, &path, FileType::Fifo, Mode::from_raw_mode(0o600), 0)
        .expect("it is fresh");
    check_error(
        path,
        Kind::Malformed,
        "path is a FIFO; it cannot be read as a file",
    );
}

#[test]
fn a_file_that_is_known_needs_no_helper() {
    let dir = Dir::new();
    let path = dir.path().join("f");
    std::fs::write(&path, "text").expect("it is fresh");
    open_now(&path).expect("it can be opened, and its filesystem is known then");
    let opened = open_cached(&path).expect("nothing has to be looked up");
    assert_eq!(opened.expect("it is there").size(), Some(4));
    assert!(open_cached(dir.path()).is_none());
    assert!(open_cached(&dir.path().join("none")).is_none());
}

#[test]
fn a_range_is_a_part() {
    let dir = Dir::new();
    let path = dir.path().join("f");
    std::fs::write(&path, "0123456789").expect("it is fresh");
    let bytes = run(async || {
        let opened = open(&path).await.expect("it is there");
        let mut sink = Sink::default();
        opened.send(2, 4, &mut sink).await.expect("it can be read");
        sink.0
    });
    assert_eq!(bytes, b"2345");
}

/// Takes bytes, and files whole, as a socket that sends them later does.
#[derive(Default)]
struct Queue {
    bytes: Vec<u8>,
    files: usize,
}

impl Outflow for Queue {
    fn write<'a>(&'a mut self, bytes: &'a [u8]) -> Step<'a, ()> {
        self.bytes.extend_from_slice(bytes);
        Box::pin(async { Ok(()) })
    }

    fn flush(&mut self) -> Step<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    fn offer(&mut self, _: &[Frame<'_>]) -> Result<usize> {
        Ok(0)
    }

    fn ready(&mut self) -> Step<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    fn send_file<'a>(&'a mut self, _: &'a File, _: u64, _: u64) -> Step<'a, ()> {
        self.files += 1;
        Box::pin(async { Ok(()) })
    }
}

#[test]
fn what_is_guarded_is_copied_before_it_is_sent() {
    let dir = Dir::new();
    let path = dir.path().join("f");
    let bytes = vec![7; 1_000_000];
    std::fs::write(&path, &bytes).expect("it is fresh");
    let sent = |is_guarded: bool| {
        run(async || {
            let mut opened = open(&path).await.expect("it is there");
            if is_guarded {
                opened.guard();
            }
            let mut queue = Queue::default();
            let sent = opened.send(1, 999_998, &mut queue).await;
            sent.expect("it can be read");
            queue
        })
    };
    let free = sent(false);
    assert_eq!((free.bytes.len(), free.files), (0, 1));
    // Pages that wait in a socket would change with the file, so none may.
    let guarded = sent(true);
    assert_eq!(guarded.files, 0);
    assert!(guarded.bytes == bytes[1..999_999]);
}

#[test]
fn lines_are_cut_from_any_kind_of_file() {
    let dir = Dir::new();
    let path = dir.path().join("f");
    // Longer than what is read on the main thread at once, so that helpers have their turn too.
    let text: String = (1..=500_000).map(|line| format!("line {line}\n")).collect();
    std::fs::write(&path, &text).expect("it is fresh");
    let window = |first: u64, last: u64, path: &Path| {
        let window = window_of(first, last);
        let bytes = run(async || {
            let opened = open(path).await.expect("it is there");
            let mut sink = Sink::default();
            opened
                .send_lines(window, &mut sink)
                .await
                .expect("it can be read");
            sink.0
        });
        String::from_utf8(bytes).expect("it is text")
    };
    assert_eq!(window(2, 3, &path), "line 2\nline 3\n");
    assert_eq!(
        window(499_999, 600_000, &path),
        "line 499999\nline 500000\n"
    );
    assert!(window(1, 500_000, &path) == text);
    assert!(window(1, 1, Path::new("/proc/self/status")).starts_with("Name:"));
}

fn window_of(first: u64, last: u64) -> Span {
    let window = Window::parse(Some(&first.to_string()), Some(&last.to_string()), None);
    match window {
        Ok(Some(Window::Span(span))) => span,
        other => panic!("{first} to {last}: {other:?}"),
    }
}

#[test]
fn a_validator_changes_with_the_file() {
    let dir = Dir::new();
    let path = dir.path().join("f");
    let tag = |text: &str| {
        std::fs::write(&path, text).expect("it can be made");
        run(async || {
            open(&path)
                .await
                .expect("it is there")
                .version()
                .expect("it has a size")
                .etag()
        })
    };
    let first = tag("one");
    assert!(first.starts_with('"') && first.ends_with('"'));
    assert_ne!(first, tag("three"));
    assert_eq!(
        read(Path::new("/proc/self/status")).map(|(size, _)| size),
        Ok(None)
    );
}
