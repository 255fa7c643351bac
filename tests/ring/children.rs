//! Children: what they inherit, how their start fails, whose exit is whose.

use super::*;

#[test]
fn a_child_inherits_three_descriptors_and_nothing_else() {
    on_both(|| async {
        let leak = rustix::pipe::pipe().expect("pipes without close-on-exec");
        let (out, write) =
            rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).expect("a pipe");
        let null = std::fs::File::open("/dev/null").expect("the null device");
        let text = |text: &str| std::ffi::CString::new(text).expect("no NUL");
        let image = child::Image {
            candidates: vec![text("/nonexistent"), text("/bin/ls")],
            argv: vec![text("ls"), text("/proc/self/fd")],
            envp: Vec::new(),
            cwd: Some(text("/")),
            gid: None,
            uid: None,
            groups: None,
            oom_score: None,
            descriptors: None,
            timer_slack: None,
            stdio: [null.into(), write.try_clone().expect("a descriptor"), write],
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
            sleep(Duration::ZERO).await;
        }
        drop(leak);
    });
}

#[test]
fn a_child_of_a_slow_filesystem_is_started_by_a_helper_and_its_exit_is_not_lost() {
    on_both(|| async {
        let text = |text: &str| std::ffi::CString::new(text).expect("no NUL");
        let null = std::fs::File::open("/dev/null").expect("the null device");
        // Nothing is known of proc at first, so the directory makes this start a helper's job.
        let image = child::Image {
            candidates: vec![text("/bin/true")],
            argv: vec![text("true")],
            envp: Vec::new(),
            cwd: Some(text("/proc/self")),
            gid: None,
            uid: None,
            groups: None,
            oom_score: None,
            descriptors: None,
            timer_slack: None,
            stdio: [(); 3].map(|()| null.try_clone().expect("a descriptor").into()),
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
    on_both(|| async {
        let null = std::fs::File::open("/dev/null").expect("the null device");
        let text = |text: &str| std::ffi::CString::new(text).expect("no NUL");
        let image = child::Image {
            candidates: vec![text("/bin/true")],
            argv: vec![text("true")],
            envp: Vec::new(),
            cwd: None,
            gid: Some(65534),
            uid: Some(65534),
            groups: Some(Vec::new()),
            oom_score: None,
            descriptors: None,
            timer_slack: None,
            stdio: [(); 3].map(|()| null.try_clone().expect("a descriptor").into()),
        };
        let before = rustix::process::dumpable_behavior().expect("known");
        child::Child::start(image).await.expect("true starts");
        assert_eq!(rustix::process::dumpable_behavior().expect("known"), before);
    });
}

#[test]
fn a_child_that_cannot_start_says_why() {
    on_both(|| async {
        let null = std::fs::File::open("/dev/null").expect("the null device");
        let text = |text: &str| std::ffi::CString::new(text).expect("no NUL");
        let start = async |candidates: &[&str], cwd: Option<&str>| {
            let image = child::Image {
                candidates: candidates.iter().map(|path| text(path)).collect(),
                argv: vec![text("x")],
                envp: Vec::new(),
                cwd: cwd.map(text),
                gid: None,
                uid: None,
                groups: None,
                oom_score: None,
                descriptors: None,
                timer_slack: None,
                stdio: [(); 3].map(|()| null.try_clone().expect("a descriptor").into()),
            };
            child::Child::start(image)
                .await
                .map(drop)
                .map_err(|error| error.raw_os_error())
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
