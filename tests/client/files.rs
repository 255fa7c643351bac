//! curl reads files as its users expect.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::Daemon;

/// A daemon, and a directory with a file `remote` to read and room for what is read.
struct Bench {
    daemon: Daemon,
    directory: PathBuf,
}

impl Bench {
    fn new(driver: &str) -> Self {
        let daemon = Daemon::start(driver);
        daemon.bootstrap();
        let directory = std::env::temp_dir().join(format!("ringd-curl-{}", daemon.child.id()));
        fs::create_dir(&directory).expect("a fresh directory");
        Self { daemon, directory }
    }

    fn write(&self, name: &str, content: &[u8]) {
        fs::write(self.directory.join(name), content).expect("the directory is ours");
    }

    #[track_caller]
    fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.directory.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// Runs curl in the directory and answers what it prints.
    #[track_caller]
    fn curl(&self, arguments: &[&str]) -> Vec<u8> {
        let path = self.directory.join("remote");
        let ran = Command::new("curl")
            .args([
                "-sS",
                "--fail",
                "--max-time",
                "20",
                "-H",
                "authorization: Bearer tok-1",
            ])
            .args(arguments)
            .arg(format!(
                "{}/v1/fs/file?path={}",
                self.daemon.url(),
                path.display()
            ))
            .current_dir(&self.directory)
            .output()
            .expect("curl runs");
        let said = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success(), "{arguments:?}: {} {said}", ran.status);
        ran.stdout
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

fn content(length: usize) -> Vec<u8> {
    (0..length)
        .map(|at| b"0123456789abcdefghijklmnopqrstu\n"[(at / 7 + at) % 32])
        .collect()
}

fn check(driver: &str) {
    let bench = Bench::new(driver);
    let remote = content(3_000_001);
    bench.write("remote", &remote);

    assert!(bench.curl(&[]) == remote, "a whole file");
    bench.curl(&["-o", "copy", "-R"]);
    assert!(bench.read("copy") == remote, "a file that is saved");

    for held in [0, 1, 1_000_000, 3_000_000] {
        bench.write("part", &remote[..held]);
        bench.curl(&["-C", "-", "-o", "part"]);
        assert!(bench.read("part") == remote, "resumed at {held}");
    }
    // Of what is complete curl is told that there is no more, and it is content.
    let resumed = ["-C", "-", "-o", "part", "-w", "%{http_code}", "--no-fail"];
    assert_eq!(bench.curl(&resumed), b"416");
    assert!(bench.read("part") == remote, "resumed at the end");

    for (range, expected) in [
        ("0-9", &remote[..10]),
        ("10-", &remote[10..]),
        ("-10", &remote[2_999_991..]),
        ("2999990-9999999", &remote[2_999_990..]),
    ] {
        assert!(bench.curl(&["-r", range]) == expected, "{range}");
    }

    // The copy has the time of the remote file.
    let code = ["-w", "%{http_code}", "-o", "fresh"];
    let newer = bench.curl(&[&["-z", "copy"][..], &code].concat());
    assert_eq!(newer, b"304");
    let newer = bench.curl(&[&["-z", "Sun, 06 Nov 1994 08:49:37 GMT"][..], &code].concat());
    assert_eq!(newer, b"200");
    assert!(bench.read("fresh") == remote, "a file that is newer");

    bench.curl(&["--etag-save", "tag", "-o", "copy"]);
    let tagged = bench.curl(&[&["--etag-compare", "tag"][..], &code].concat());
    assert_eq!(tagged, b"304");
    bench.write("remote", &remote[1..]);
    let tagged = bench.curl(&[&["--etag-compare", "tag"][..], &code].concat());
    assert_eq!(tagged, b"200");
    assert!(bench.read("fresh") == remote[1..], "another version");
    bench.write("remote", &remote);

    // Whatever curl was built with, and gzip alone.
    assert!(bench.curl(&["--compressed"]) == remote, "in a coding");
    let gzip = ["--compressed", "-H", "accept-encoding: gzip"];
    let size = ["-w", "%{size_download}", "-o", "copy"];
    let sent = bench.curl(&[&gzip[..], &size].concat());
    assert!(bench.read("copy") == remote, "in gzip");
    let sent: usize = String::from_utf8_lossy(&sent).parse().expect("a number");
    assert!(sent < remote.len() / 2, "{sent} bytes were sent");

    let head = String::from_utf8(bench.curl(&["-I"])).expect("a head is text");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(head.contains("content-length: 3000001\r\n"), "{head}");
    assert!(head.contains("accept-ranges: bytes\r\n"), "{head}");
}

#[test]
fn curl_reads_files_on_io_uring() {
    check("uring");
}

#[test]
fn curl_reads_files_on_epoll() {
    check("epoll");
}
