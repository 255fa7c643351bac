//! Children: what they inherit, how their start fails, whose exit is whose.

use std::ffi::CString;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::*;

fn text(text: &str) -> CString {
    CString::new(text).expect("no NUL")
}

/// One test of children at a time: reaping takes the children of the whole process.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A program without arguments or environment, in our directory, as ourselves, on the null device.
fn image(program: &str) -> child::Image {
    let null = std::fs::File::open("/dev/null").expect("the null device");
    child::Image {
        candidates: vec![text(program)],
        argv: vec![text("program")],
        envp: Vec::new(),
        cwd: None,
        gid: None,
        uid: None,
        groups: None,
        oom_score: None,
        descriptors: None,
        timer_slack: None,
        bounds: child::Bounds::default(),
        stdio: [(); 3].map(|()| null.try_clone().expect("a descriptor").into()),
        terminal: false,
    }
}

#[test]
fn a_child_inherits_three_descriptors_and_nothing_else() {
    let _alone = alone();
    on_both(|| async {
        let leak = rustix::pipe::pipe().expect("pipes without close-on-exec");
        let (out, write) =
            rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).expect("a pipe");
        let [null, ..] = image("/bin/ls").stdio;
        let image = child::Image {
            candidates: vec![text("/nonexistent"), text("/bin/ls")],
            argv: vec![text("ls"), text("/proc/self/fd")],
            cwd: Some(text("/")),
            stdio: [null, write.try_clone().expect("a descriptor"), write],
            ..image("/bin/ls")
        };
        let started = child::Child::start(image).await.expect("ls starts");
        let seen = pool::run(move || {
            let mut seen = String::new();
            std::fs::File::from(out)
                .read_to_string(&mut seen)
                .map(|_| seen)
        });
        let seen = seen.await.expect("a result").expect("read");
        // The fourth is the directory that ls itself has opened.
        assert_eq!(seen, "0\n1\n2\n3\n");
        while started.exit().is_none() {
            child::reap();
            ring::turn().await;
        }
        drop(leak);
    });
}

#[test]
fn a_child_of_a_slow_filesystem_is_started_by_a_helper_and_its_exit_is_not_lost() {
    let _alone = alone();
    on_both(|| async {
        // Nothing is known of proc at first, so the directory makes this start a helper's job.
        let image = child::Image {
            cwd: Some(text("/proc/self")),
            ..image("/bin/true")
        };
        let reaping = Rc::new(Cell::new(true));
        let reaps = Rc::clone(&reaping);
        ring::spawn("reaper", async move {
            while reaps.get() {
                child::reap();
                ring::turn().await;
            }
        });
        let started = child::Child::start(image).await.expect("true starts");
        let exit = within(PATIENCE, started.exited()).await.expect("in time");
        reaping.set(false);
        assert_eq!(exit.code, Some(0));
    });
}

#[test]
fn a_child_under_another_user_leaves_our_memory_dumpable() {
    let _alone = alone();
    on_both(|| async {
        let image = child::Image {
            gid: Some(65534),
            uid: Some(65534),
            groups: Some(Vec::new()),
            ..image("/bin/true")
        };
        let before = rustix::process::dumpable_behavior().expect("known");
        child::Child::start(image).await.expect("true starts");
        assert_eq!(rustix::process::dumpable_behavior().expect("known"), before);
    });
}

#[test]
fn a_child_that_cannot_start_says_why() {
    let _alone = alone();
    on_both(|| async {
        let start = async |candidates: &[&str], cwd: Option<&str>| {
            let image = child::Image {
                candidates: candidates.iter().map(|path| text(path)).collect(),
                cwd: cwd.map(text),
                ..image("")
            };
            child::Child::start(image)
                .await
                .map(drop)
                .map_err(|refusal| refusal.error.raw_os_error())
        };
        assert_eq!(
            start(&["/nonexistent"], None).await,
            Err(Some(libc::ENOENT))
        );
        assert_eq!(start(&["/etc/passwd"], None).await, Err(Some(libc::EACCES)));
        assert_eq!(
            start(&["/etc/passwd", "/nonexistent"], None).await,
            Err(Some(libc::EACCES))
        );
        assert_eq!(
            start(&["/bin/true"], Some("/nonexistent")).await,
            Err(Some(libc::ENOENT))
        );
    });
}

#[test]
fn a_child_ignores_no_signal_though_we_do() {
    let _alone = alone();
    on_both(|| async {
        // The test's runtime ignores SIGPIPE; whoever runs it may have left SIGINT or SIGHUP ignored, too.
        let (out, write) =
            rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).expect("a pipe");
        let [null, _, stderr] = image("").stdio;
        let image = child::Image {
            argv: vec![text("grep"), text("SigIgn"), text("/proc/self/status")],
            stdio: [null, write, stderr],
            ..image("/bin/grep")
        };
        child::Child::start(image).await.expect("grep starts");
        let seen = pool::run(move || {
            let mut seen = String::new();
            std::fs::File::from(out)
                .read_to_string(&mut seen)
                .map(|_| seen)
        });
        let seen = seen.await.expect("a result").expect("read");
        let mask = seen.trim_start_matches("SigIgn:").trim();
        let ignored = u64::from_str_radix(mask, 16).expect("a mask");
        // 32 and 33 belong to the C library, which lets nobody change them.
        assert_eq!(ignored & !(0b11 << 31), 0, "{seen}");
    });
}

#[test]
fn a_child_that_may_not_be_held_to_a_bound_says_to_which() {
    let _alone = alone();
    on_both(|| async {
        let resource = |bound, limit| child::Resource {
            bound,
            soft: limit,
            hard: limit,
        };
        // No privilege takes the number of descriptors past the kernel's own bound.
        let bounds = child::Bounds {
            resources: vec![
                resource(child::Bound::FileSize, 1000),
                resource(child::Bound::Nofile, u64::MAX),
            ],
            nice: Some(19),
            ..child::Bounds::default()
        };
        let held = child::Image {
            bounds,
            ..image("/bin/true")
        };
        let refusal = child::Child::start(held).await.err().expect("refused");
        assert_eq!(refusal.bound, Some(child::Bound::Nofile));
        assert_eq!(refusal.error.raw_os_error(), Some(libc::EPERM));
        // What fails later is no matter of bounds.
        let bounds = child::Bounds {
            nice: Some(19),
            ..child::Bounds::default()
        };
        let absent = child::Image {
            bounds,
            ..image("/nonexistent")
        };
        let refusal = child::Child::start(absent).await.err().expect("no program");
        assert_eq!(refusal.bound, None);
    });
}
