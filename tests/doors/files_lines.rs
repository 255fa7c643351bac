//! Windows of lines that cost what they are: the last ones, and those far into a file that is paged through.

use std::fs::{self, File, FileTimes};
use std::os::unix::fs::FileExt;

use crate::daemon::Daemon;
use crate::driver::Driver;
use crate::process::wait_until;
use crate::reply::Reply;
use crate::request::{Request, file_at};

both![
    the_last_lines_are_byte_exact,
    the_last_lines_come_with_their_length,
    a_count_that_is_none_is_refused,
    the_last_lines_of_a_huge_file_are_read_from_its_end,
    the_last_lines_of_huge_lines_are_exact,
    kernel_files_have_lines_too,
    a_device_without_lines_is_not_kept_in_memory,
    a_file_that_is_paged_through_is_not_read_again_and_again,
    a_file_that_changed_is_searched_anew,
    a_window_under_a_condition_is_of_one_version,
];

fn the_last_lines_are_byte_exact(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let rows: [(&[u8], u64, &[u8]); 14] = [
        (b"a\nb\nc\n", 1, b"c\n"),
        (b"a\nb\nc\n", 2, b"b\nc\n"),
        (b"a\nb\nc\n", 3, b"a\nb\nc\n"),
        (b"a\nb\nc\n", 4, b"a\nb\nc\n"),
        (b"a\nb\nc\n", u64::MAX, b"a\nb\nc\n"),
        (b"a\nb\nc\n", 0, b""),
        (b"a\nb\nc", 1, b"c"),
        (b"a\nb\nc", 2, b"b\nc"),
        (b"", 5, b""),
        (b"a", 5, b"a"),
        (b"\n\n\n", 2, b"\n\n"),
        (b"a\r\nb\r\n", 1, b"b\r\n"),
        (b"a\rb\n\0\xff", 1, b"\0\xff"),
        (b"a\n\0b\n\xff\xfe\n", 2, b"\0b\n\xff\xfe\n"),
    ];
    for (content, count, window) in rows {
        fs::write(daemon.path("f"), content).expect("the scratch directory is ours");
        let reply = last(&daemon, "f", count).is(200);
        let shown = String::from_utf8_lossy(content);
        assert_eq!(reply.body, window, "{shown:?} {count}");
    }
}

fn the_last_lines_come_with_their_length(driver: Driver) {
    let daemon = Daemon::ready(driver);
    fs::write(daemon.path("f"), "l1\nl2\nl3\n").expect("the scratch directory is ours");
    let target = format!("{}&last_lines=2", file_at(daemon.path("f")));
    for method in ["GET", "HEAD"] {
        let request = Request::new(method, &*target).bearer();
        let reply = daemon.call(&request.field("range", "bytes=0-0")).is(200);
        assert_eq!(reply.field("content-length"), Some("6"), "{reply:?}");
        assert_eq!(reply.field("accept-ranges"), None, "{reply:?}");
        assert_eq!(
            reply.field("content-type"),
            Some("application/octet-stream")
        );
    }
}

fn a_count_that_is_none_is_refused(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let absent = file_at(daemon.path("absent"));
    for query in [
        "last_lines=",
        "last_lines=x",
        "last_lines=-1",
        "last_lines=1.5",
        "last_lines=18446744073709551616",
        "last_lines=1&last_lines=1",
        "last_lines=1&start_line=1",
        "last_lines=1&end_line=1",
        "last_lines=1&start_line=0",
    ] {
        // The window is judged before the file is touched.
        daemon.get(format!("{absent}&{query}")).explains(400);
    }
    daemon.get(format!("{absent}&last_lines=1")).explains(404);
}

fn the_last_lines_of_a_huge_file_are_read_from_its_end(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let file = File::create(daemon.path("f")).expect("the scratch directory is ours");
    let text: String = (1..=100).map(|line| format!("line {line}\n")).collect();
    file.write_all_at(text.as_bytes(), 1 << 30)
        .expect("a sparse file");
    daemon.at_rest();
    let before = read_by(&daemon);
    let reply = last(&daemon, "f", 10).is(200);
    let expected: String = (91..=100).map(|line| format!("line {line}\n")).collect();
    assert_eq!(reply.text(), expected);
    let read = read_by(&daemon) - before;
    assert!(read < 1 << 20, "{read} bytes were read");
}

fn the_last_lines_of_huge_lines_are_exact(driver: Driver) {
    let daemon = Daemon::ready(driver);
    for size in [65_536, 524_288, 1_048_576] {
        for length in [size - 2, size - 1, size, size + 1] {
            let huge = |letter: u8| [vec![letter; length], b"\n".to_vec()].concat();
            let lines = [
                huge(b'a'),
                b"b\n".to_vec(),
                huge(b'c'),
                b"\n".to_vec(),
                huge(b'd'),
            ];
            fs::write(daemon.path("f"), lines.concat()).expect("the scratch directory is ours");
            for count in 1..=lines.len() {
                let reply = last(&daemon, "f", count as u64).is(200);
                let expected = lines[lines.len() - count..].concat();
                assert!(reply.body == expected, "{length}: the last {count}");
            }
        }
    }
}

fn kernel_files_have_lines_too(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let path = format!("/proc/{}/limits", daemon.pid());
    let text = fs::read_to_string(&path).expect("the daemon runs");
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let target = file_at(&path);
    for count in [0, 1, 3, lines.len(), 1000] {
        let reply = daemon.get(format!("{target}&last_lines={count}")).is(200);
        let from = lines.len().saturating_sub(count);
        assert_eq!(reply.text(), lines[from..].concat(), "the last {count}");
    }
    for (first, end) in [(1, 1), (2, 5), (lines.len(), 1000)] {
        let query = format!("{target}&start_line={first}&end_line={end}");
        let expected = lines[first - 1..end.min(lines.len())].concat();
        assert_eq!(
            daemon.get(query).is(200).text(),
            expected,
            "{first} to {end}"
        );
    }
    let online = "/sys/devices/system/cpu/online";
    let text = fs::read_to_string(online).expect("sysfs is mounted");
    for query in ["last_lines=1", "start_line=1&end_line=1"] {
        let reply = daemon.get(format!("{}&{query}", file_at(online)));
        assert_eq!(reply.is(200).text(), text, "{query}");
    }
    let null = format!("{}&last_lines=3", file_at("/dev/null"));
    assert_eq!(daemon.get(null).is(200).text(), "");
}

fn a_device_without_lines_is_not_kept_in_memory(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let target = format!("{}&last_lines=1", file_at("/dev/zero"));
    daemon.get(target).explains(413);
    daemon.health();
}

fn a_file_that_is_paged_through_is_not_read_again_and_again(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let lines = 500_000;
    let text: String = (1..=lines).map(|line| format!("{line:063}\n")).collect();
    fs::write(daemon.path("f"), &text).expect("the scratch directory is ours");
    let page = |first: usize| {
        let end = first + 99;
        let target = file_at(daemon.path("f"));
        let before = read_by(&daemon);
        let reply = daemon
            .get(format!("{target}&start_line={first}&end_line={end}"))
            .is(200);
        let expected = &text[(first - 1) * 64..end.min(lines) * 64];
        assert!(reply.text() == expected, "from {first}");
        read_by(&daemon) - before
    };
    // Nothing is kept of a file that changed just now.
    wait_until("what a search has found is kept", || {
        page(480_001) < 3 << 20
    });
    for first in (480_001..481_000).step_by(100) {
        let read = page(first);
        assert!(
            read < 3 << 20,
            "{read} bytes were read for lines from {first}"
        );
    }
    for first in [1, 16_384, 16_385, 16_386, 250_000, lines - 50] {
        let read = page(first);
        assert!(
            read < 5 << 20,
            "{read} bytes were read for lines from {first}"
        );
    }
}

fn a_file_that_changed_is_searched_anew(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let path = daemon.path("f");
    let lines = |count: usize, width: usize| {
        let line = |number| format!("{number:0width$}\n");
        (1..=count).map(line).collect::<String>().into_bytes()
    };
    let (short, long) = (lines(100_000, 63), lines(50_000, 127));
    assert_eq!(short.len(), long.len());
    fs::write(&path, &short).expect("the scratch directory is ours");
    let modified = fs::metadata(&path).and_then(|known| known.modified());
    let modified = modified.expect("it was made");
    let target = format!("{}&start_line=49999&end_line=50000", file_at(&path));
    let read = || {
        let before = read_by(&daemon);
        let reply = daemon.get(&*target).is(200);
        (reply.body, read_by(&daemon) - before)
    };
    wait_until("what a search has found is kept", || {
        let (body, read) = read();
        assert!(body == short[49_998 * 64..50_000 * 64]);
        read < 3 << 20
    });
    // The same inode, the same size, and even the same time of modification.
    let file = File::options()
        .write(true)
        .open(&path)
        .expect("it was made");
    file.write_all_at(&long, 0).expect("there is room");
    file.set_times(FileTimes::new().set_modified(modified))
        .expect("the file is ours");
    wait_until("what was found in the new content is kept", || {
        let (body, read) = read();
        assert!(body == long[49_998 * 128..], "a line of the old content");
        read < 4 << 20
    });
}

fn a_window_under_a_condition_is_of_one_version(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let path = daemon.path("f");
    let text = "a line of some length\n".repeat(1 << 20);
    fs::write(&path, &text).expect("the scratch directory is ours");
    let target = format!("{}&start_line=1", file_at(&path));
    let etag = daemon.call(&Request::new("HEAD", &*target).bearer());
    let etag = etag.field("etag").expect("a validator").to_owned();
    for (condition, is_whole) in [
        ("*".to_owned(), false),
        (etag, false),
        (String::new(), true),
    ] {
        let mut connection = daemon.connect();
        let mut request = Request::get(&*target).bearer().field("connection", "close");
        if !condition.is_empty() {
            // A condition of an earlier round names a version that is gone.
            let now = daemon.call(&Request::new("HEAD", &*target).bearer());
            let now = now.field("etag").expect("a validator").to_owned();
            request = request.field("if-match", if condition == "*" { condition } else { now });
        }
        connection.send(request.bytes());
        connection.head().expect("a response");
        let file = File::options()
            .append(true)
            .open(&path)
            .expect("it was made");
        std::io::Write::write_all(&mut &file, b"x\n").expect("there is room");
        let (body, _) = connection.rest();
        assert_eq!(
            body.ends_with(b"0\r\n\r\n"),
            is_whole,
            "{:?}",
            request.head()
        );
    }
}

/// Reads the last lines of a file in the working directory.
#[track_caller]
fn last(daemon: &Daemon, name: &str, count: u64) -> Reply {
    daemon.get(format!("{}&last_lines={count}", file_at(daemon.path(name))))
}

/// Bytes that the daemon has read since it was started, as the kernel counts them.
#[track_caller]
pub(crate) fn read_by(daemon: &Daemon) -> u64 {
    let text =
        fs::read_to_string(format!("/proc/{}/io", daemon.pid())).expect("the daemon is ours");
    let count = text.lines().find_map(|line| line.strip_prefix("rchar: "));
    count
        .and_then(|count| count.parse().ok())
        .expect("the kernel counts")
}
