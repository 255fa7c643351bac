//! Digests of a manifest: of one version of each file, or none.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rustix::fs::Advice;
use serde_json::{Value, json};

use crate::daemon::Daemon;
use crate::driver::Driver;
use crate::manifest::{ask, line, lines, manifest, plant, sha256};
use crate::process::wait_until;
use crate::request::Request;
use crate::scratch::noise;

both![
    files_have_the_digest_that_is_asked_for,
    files_that_are_not_cached_have_their_digest_too,
    a_file_that_changes_has_no_digest,
    what_the_kernel_makes_up_has_no_digest,
];

fn files_have_the_digest_that_is_asked_for(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let root = daemon.path("t");
    let sizes = [
        0, 1, 32_767, 32_768, 32_769, 131_072, 131_073, 1_000_000, 20_000_000,
    ];
    for size in sizes {
        plant(&root, &[(&format!("f{size}"), &noise(size))]);
    }
    for number in 0..300 {
        plant(&root, &[(&format!("many/{number}"), &noise(number * 200))]);
    }
    let blake3 = |bytes: &[u8]| blake3::hash(bytes).to_hex().to_string();
    let as_query = format!("/v1/fs/manifest?digest={}", "blake3");
    let in_query = Request::post(as_query)
        .bearer()
        .json(&json!({"path": root}));
    let (in_query, _) = lines(&daemon.call(&in_query).is(200).text());
    for (lines, key, digest) in [
        (
            manifest(&daemon, &json!({"path": root, "digest": "sha-256"})),
            "sha-256",
            &sha256 as &dyn Fn(&[u8]) -> String,
        ),
        (
            manifest(&daemon, &json!({"path": root, "digest": 1})),
            "sha-256",
            &sha256,
        ),
        (
            manifest(&daemon, &json!({"path": root, "digest": "blake3"})),
            "blake3",
            &blake3,
        ),
        (in_query, "blake3", &blake3),
    ] {
        for size in sizes {
            assert_eq!(
                line(&lines, &format!("f{size}"))[key],
                digest(&noise(size)),
                "{size}"
            );
        }
        for number in 0..300 {
            let expected = digest(&noise(number * 200));
            assert_eq!(line(&lines, &format!("many/{number}"))[key], expected);
        }
        assert_eq!(lines.len(), 1 + sizes.len() + 1 + 300);
        assert!(lines.iter().all(|line| line.get("error").is_none()));
    }
    for none in [json!(false), json!(0)] {
        let lines = manifest(&daemon, &json!({"path": root, "digest": none}));
        assert!(lines.iter().all(|line| line.get("sha-256").is_none()));
    }
}

fn files_that_are_not_cached_have_their_digest_too(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let root = daemon.path("t");
    let sizes = [10, 5000, 40_000, 3_000_000, 9_000_000];
    for size in sizes {
        plant(&root, &[(&format!("f{size}"), &noise(size))]);
    }
    let forget = || {
        for size in sizes {
            let file = File::open(root.join(format!("f{size}"))).expect("ours");
            file.sync_all().expect("ours");
            rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).expect("a file takes advice");
        }
    };
    for algorithm in ["sha-256", "blake3"] {
        forget();
        let lines = manifest(&daemon, &json!({"path": root, "digest": algorithm}));
        for size in sizes {
            let expected = match algorithm {
                "blake3" => blake3::hash(&noise(size)).to_hex().to_string(),
                _ => sha256(&noise(size)),
            };
            assert_eq!(line(&lines, &format!("f{size}"))[algorithm], expected);
        }
    }
}

/// Stops another thread, also when a check fails.
struct Stopped<'a>(&'a AtomicBool);

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn a_file_that_changes_has_no_digest(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let root = daemon.path("t");
    plant(&root, &[("busy", &noise(30_000_000)), ("quiet", b"text")]);
    let busy = File::options()
        .write(true)
        .open(root.join("busy"))
        .expect("ours");
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let stopped = Stopped(&stop);
        scope.spawn(|| {
            for round in 0_u64.. {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                busy.write_all_at(&round.to_le_bytes(), round % 1000 * 30_000)
                    .expect("ours");
            }
        });
        wait_until("the change is seen", || {
            let (lines, last) = lines(&ask(&daemon, &json!({"path": root, "digest": 1})).text());
            assert_eq!(line(&lines, "quiet")["sha-256"], sha256(b"text"));
            let busy = line(&lines, "busy");
            let has_changed = busy.get("error").is_some();
            assert_eq!(has_changed, busy.get("sha-256").is_none());
            assert_eq!(last["errors"], u64::from(has_changed));
            if has_changed {
                assert_eq!(busy["error"], "the file changed while it was read");
            }
            has_changed
        });
        drop(stopped);
    });
    let lines = manifest(&daemon, &json!({"path": root, "digest": 1}));
    let content = fs::read(root.join("busy")).expect("ours");
    assert_eq!(line(&lines, "busy")["sha-256"], sha256(&content));
}

fn what_the_kernel_makes_up_has_no_digest(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let (lines, last) = lines(
        &ask(
            &daemon,
            &json!({"path": "/proc/self/net/stat", "digest": 1}),
        )
        .text(),
    );
    let files: Vec<&Value> = lines.iter().filter(|line| line["type"] == "file").collect();
    assert!(!files.is_empty());
    for file in &files {
        assert!(
            file.get("sha-256").is_none() && file.get("error").is_some(),
            "{file}"
        );
    }
    assert_eq!(last["errors"], files.len());
}
