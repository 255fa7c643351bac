//! What the ring room promises on both drivers, and each defect of the runtime that it works around.

use std::cell::Cell;
use std::future::Future;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::time::Duration;

use ringd::ring::clock::{Deadline, sleep, within};
use ringd::ring::listener::Listener;
use ringd::ring::notify::{Event, Once};
use ringd::ring::socket::Socket;
use ringd::ring::{self, Choice, Fd, batch, child, copy, file, flow, pool};

/// Runs `main` on io_uring and on epoll, each on a thread of its own.
fn on_both<F: Future<Output = ()> + 'static>(main: fn() -> F) {
    for choice in [Choice::Uring, Choice::Epoll] {
        let run = move || {
            let outcome = ring::start(choice, async move {
                main().await;
                0
            });
            assert_eq!(outcome.expect("the driver starts"), 0);
        };
        let joined = std::thread::spawn(run).join();
        assert!(joined.is_ok(), "failed on {choice}");
    }
}

fn local() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, 0))
}

fn address(listener: &Listener) -> String {
    listener.name().trim_start_matches("tcp://").to_owned()
}

fn is_close_on_exec(fd: impl AsFd) -> bool {
    let flags = rustix::io::fcntl_getfd(fd).expect("an open descriptor");
    flags.contains(rustix::io::FdFlags::CLOEXEC)
}

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("proc").count()
}

const PATIENCE: Duration = Duration::from_secs(20);

#[test]
fn every_descriptor_of_ours_is_close_on_exec() {
    on_both(|| async {
        let listener = Listener::tcp(local()).expect("a listener");
        let client = TcpStream::connect(address(&listener)).expect("connects");
        let accepted = listener.accept().await.expect("accepts");
        assert!(is_close_on_exec(&accepted), "accepted");
        let plain = rustix::pipe::pipe().expect("a pipe without the flag").0;
        let fd = Fd::new(plain).expect("pollable");
        assert!(is_close_on_exec(&fd), "taken over");
        drop(client);
    });
}

#[test]
fn two_listeners_cannot_share_a_port() {
    on_both(|| async {
        let first = Listener::tcp(local()).expect("a listener");
        let taken: SocketAddr = address(&first).parse().expect("an address");
        assert!(
            Listener::tcp(taken).is_err(),
            "the port was shared silently"
        );
    });
}

#[test]
fn a_unix_listener_works_and_cleans_up() {
    on_both(|| async {
        let kind = std::thread::current().id();
        let path = std::env::temp_dir().join(format!("ringd-{}-{kind:?}", std::process::id()));
        let listener = Listener::unix(&path, 0o600).expect("a listener");
        let client = UnixStream::connect(&path).expect("connects");
        listener.accept().await.expect("accepts");
        assert!(
            Listener::unix(&path, 0o600).is_err(),
            "a second one took over a live socket"
        );
        drop((client, listener));
        assert!(!path.exists(), "the socket's file was left behind");
    });
}

#[test]
fn a_dropped_accept_loses_no_connection_and_leaks_no_descriptor() {
    on_both(|| async {
        let listener = Listener::tcp(local()).expect("a listener");
        for _ in 0..50 {
            // The wait is dropped at a random stage of the connection's arrival.
            let mut waiting = Box::pin(listener.accept());
            let _ = within(Duration::ZERO, waiting.as_mut()).await;
            let client = TcpStream::connect(address(&listener)).expect("connects");
            drop(waiting);
            let accepted = within(PATIENCE, listener.accept()).await;
            assert!(accepted.expect("in time").is_ok());
            drop(client);
        }
    });
}

#[test]
fn a_dropped_read_loses_no_byte() {
    on_both(|| async {
        let (near, far) = UnixStream::pair().expect("a pair");
        let socket = Socket::new(OwnedFd::from(near), PATIENCE).expect("a socket");
        let mut far = far;
        let mut seen = Vec::with_capacity(1000);
        for number in 0..100u8 {
            let mut scratch = Vec::with_capacity(10);
            let mut read = Box::pin(socket.recv(&mut scratch));
            let _ = within(Duration::ZERO, read.as_mut()).await;
            far.write_all(&[number]).expect("writes");
            drop(read);
            seen.extend_from_slice(&scratch);
            while seen.len() <= usize::from(number) {
                socket
                    .recv(&mut seen)
                    .await
                    .expect("the byte is still there");
            }
        }
        assert_eq!(seen, (0..100).collect::<Vec<u8>>());
    });
}

#[test]
fn a_busy_task_starves_neither_timers_nor_the_others() {
    on_both(|| async {
        let (near, far) = UnixStream::pair().expect("a pair");
        let socket = Rc::new(Socket::new(OwnedFd::from(near), PATIENCE).expect("a socket"));
        far.set_nonblocking(true).expect("a socket");
        let stop = Rc::new(Cell::new(false));
        let (busy, told) = (Rc::clone(&socket), Rc::clone(&stop));
        let mut drained = far.try_clone().expect("a descriptor");
        ring::spawn("busy", async move {
            let mut scratch = [0; 4096];
            while !told.get() {
                // Always ready: it yields only through the driver.
                busy.send_all(&[0; 512], false).await.expect("sends");
                let _ = drained.read(&mut scratch);
                Fd::new(
                    rustix::event::eventfd(1, rustix::event::EventfdFlags::CLOEXEC)
                        .expect("an eventfd"),
                )
                .expect("pollable")
                .readable()
                .await
                .expect("readable at once");
            }
        });
        sleep(Duration::from_millis(30)).await;
        stop.set(true);
    });
}

#[test]
fn a_sender_whose_peer_always_reads_gives_way() {
    on_both(|| async {
        let (near, mut far) = UnixStream::pair().expect("a pair");
        let socket = Socket::new(OwnedFd::from(near), PATIENCE).expect("a socket");
        let reader = std::thread::spawn(move || {
            let mut scratch = vec![0; 1 << 20];
            while far.read(&mut scratch).is_ok_and(|count| count > 0) {}
        });
        let stop = Rc::new(Cell::new(false));
        let (told, ended) = (Rc::clone(&stop), Rc::new(Once::default()));
        let over = Rc::clone(&ended);
        ring::spawn("sender", async move {
            let source = temporary(&vec![1; 8 << 20]);
            let bytes = vec![2; 1 << 20];
            while !told.get() {
                socket.send_file(&source, 0, 8 << 20).await.expect("sent");
                socket.send_all(&bytes, false).await.expect("sent");
            }
            over.set(());
        });
        for _ in 0..5 {
            sleep(Duration::from_millis(2)).await;
        }
        stop.set(true);
        ended.wait().await;
        pool::run(move || reader.join())
            .await
            .expect("a result")
            .expect("no panic");
    });
}

#[test]
fn giving_way_lets_everyone_run() {
    on_both(|| async {
        let turns = Rc::new(Cell::new([0u32; 3]));
        let done = Rc::new(Event::default());
        for index in 0..3 {
            let (turns, done) = (Rc::clone(&turns), Rc::clone(&done));
            ring::spawn("taker", async move {
                for _ in 0..100 {
                    let mut seen = turns.get();
                    seen[index] += 1;
                    turns.set(seen);
                    let most = seen.iter().max().expect("three");
                    let least = seen.iter().min().expect("three");
                    assert!(most - least <= 2, "somebody was passed over: {seen:?}");
                    ring::turn().await;
                }
                done.happen();
            });
        }
        let all = async {
            while done.count() < 3 {
                done.after(done.count()).await;
            }
        };
        assert!(within(PATIENCE, all).await.is_some());
    });
}

#[test]
fn an_event_keeps_nothing_of_a_dropped_wait() {
    on_both(|| async {
        let event = Event::default();
        for _ in 0..1000 {
            let _ = within(Duration::ZERO, event.next()).await;
        }
        assert_eq!(event.waiting(), 0);
    });
}

#[test]
fn a_low_water_mark_above_the_tail_does_not_hang_at_the_end() {
    on_both(|| async {
        let listener = Listener::tcp(local()).expect("a listener");
        let mut client = TcpStream::connect(address(&listener)).expect("connects");
        let fd = listener.accept().await.expect("accepts");
        let socket = Socket::new(fd, PATIENCE).expect("a socket");
        socket.set_low_water(1 << 16);
        client.write_all(b"tail").expect("writes");
        drop(client);
        let mut seen = Vec::with_capacity(16);
        socket
            .recv(&mut seen)
            .await
            .expect("the end of the stream wakes the reader");
        assert_eq!(seen, b"tail");
    });
}

#[test]
fn blocking_jobs_come_back_and_their_panics_are_errors() {
    on_both(|| async {
        let jobs: Vec<_> = (0..20u64)
            .map(|number| pool::run(move || number * 2))
            .collect();
        for (number, job) in (0..).zip(jobs) {
            assert_eq!(job.await.expect("a result"), number * 2);
        }
        let lost: ringd::error::Result<()> = pool::run(|| panic!("on purpose")).await;
        assert!(lost.is_err());
        assert_eq!(pool::run(|| 7).await.expect("the pool lives on"), 7);
    });
}

#[test]
fn a_panicking_task_ends_alone() {
    on_both(|| async {
        let done = Rc::new(Once::default());
        let told = Rc::clone(&done);
        ring::spawn("doomed", async { panic!("on purpose") });
        ring::spawn("well", async move {
            told.set(());
        });
        assert!(within(PATIENCE, done.wait()).await.is_some());
    });
}

#[test]
fn an_event_wakes_everyone_once() {
    on_both(|| async {
        let event = Rc::new(Event::default());
        let woken = Rc::new(Cell::new(0));
        for _ in 0..10 {
            let (event, woken) = (Rc::clone(&event), Rc::clone(&woken));
            ring::spawn("waiter", async move {
                event.after(0).await;
                woken.set(woken.get() + 1);
            });
        }
        sleep(Duration::ZERO).await;
        event.happen();
        sleep(Duration::from_millis(2)).await;
        assert_eq!(woken.get(), 10);
    });
}

#[test]
fn a_deadline_too_far_away_never_comes() {
    assert!(!Deadline::after(Duration::MAX).has_passed());
    assert_eq!(Deadline::after(Duration::MAX), Deadline::NEVER);
    assert!(Deadline::after(Duration::ZERO).has_passed());
}

fn temporary(bytes: &[u8]) -> std::fs::File {
    let flags = rustix::fs::OFlags::TMPFILE | rustix::fs::OFlags::RDWR;
    let fd = rustix::fs::open(
        std::env::temp_dir(),
        flags,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
    );
    let mut file = std::fs::File::from(fd.expect("a temporary file"));
    file.write_all(bytes).expect("writes");
    file
}

#[test]
fn an_inflow_is_copied_whole_and_a_refusal_stops_it() {
    on_both(|| async {
        let bytes: Vec<u8> = (0..20_000_000u32)
            .map(|n| n.to_le_bytes()[0] ^ n.to_le_bytes()[1])
            .collect();
        let target = temporary(b"");
        let mut checks = 0;
        let mut source = flow::Ready::new(bytes.clone());
        let count = copy::to_file(&mut source, &target, async || {
            checks += 1;
            Ok(())
        })
        .await
        .expect("copied");
        assert_eq!(count, bytes.len() as u64);
        assert_eq!(checks, 2, "free space is asked for every eight MiB");
        let mut back = Vec::with_capacity(bytes.len());
        while let (Ok(1..), grown) =
            file::read_at(&target, std::mem::take(&mut back), back.len() as u64).await
        {
            back = grown;
            if back.len() == bytes.len() {
                break;
            }
        }
        assert!(back == bytes, "other bytes came back");
        let mut source = flow::Ready::new(bytes);
        let refused = copy::to_file(&mut source, &target, async || {
            Err(ringd::error::Kind::DiskFull.told("no"))
        });
        assert!(refused.await.is_err());
    });
}

#[test]
fn a_file_is_sent_whole_cached_or_not() {
    on_both(|| async {
        let bytes: Vec<u8> = (0..3_000_001u32).map(|n| n.to_le_bytes()[1]).collect();
        let source = temporary(&bytes);
        rustix::fs::fsync(&source).expect("syncs");
        rustix::fs::fadvise(&source, 0, None, rustix::fs::Advice::DontNeed)
            .expect("drops the cache");
        for _ in ["cold", "warm"] {
            let (near, mut far) = UnixStream::pair().expect("a pair");
            let socket = Socket::new(OwnedFd::from(near), PATIENCE).expect("a socket");
            let reader = std::thread::spawn(move || {
                let mut seen = Vec::new();
                far.read_to_end(&mut seen).map(|_| seen)
            });
            socket.send_file(&source, 1, 3_000_000).await.expect("sent");
            drop(socket);
            let seen = pool::run(move || reader.join()).await.expect("a result");
            let seen = seen.expect("no panic").expect("read");
            assert!(seen == bytes[1..], "other bytes arrived");
        }
    });
}

#[test]
fn a_file_that_is_shorter_than_promised_is_an_error() {
    on_both(|| async {
        let source = temporary(b"short");
        let (near, _far) = UnixStream::pair().expect("a pair");
        let socket = Socket::new(OwnedFd::from(near), PATIENCE).expect("a socket");
        assert!(socket.send_file(&source, 0, 6).await.is_err());
    });
}

#[test]
fn a_batch_reads_small_files_and_tells_what_is_missing() {
    on_both(|| async {
        let kind = std::thread::current().id();
        let folder =
            std::env::temp_dir().join(format!("ringd-batch-{}-{kind:?}", std::process::id()));
        std::fs::create_dir(&folder).expect("a folder");
        for number in 0..200 {
            std::fs::write(folder.join(number.to_string()), vec![b'x'; number]).expect("a file");
        }
        std::os::unix::fs::symlink("1", folder.join("link")).expect("a link");
        let flags = rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC;
        let dir = rustix::fs::open(&folder, flags, rustix::fs::Mode::empty()).expect("opens");
        let dir = std::sync::Arc::new(dir);
        let wanted = |name: String, size| batch::Wanted {
            dir: std::sync::Arc::clone(&dir),
            name: std::ffi::CString::new(name).expect("no NUL"),
            size,
        };
        let before = open_descriptors();
        for start in [0, 64, 128] {
            let files = (start..start + 63).map(|n: usize| wanted(n.to_string(), n));
            let read = batch::read_files(files.collect()).await;
            for (number, bytes) in (start..).zip(read) {
                assert_eq!(bytes.expect("a file").len(), number);
            }
        }
        let odd = [
            wanted("absent".into(), 1),
            wanted("link".into(), 1),
            wanted("5".into(), 9),
            wanted("9".into(), 3),
        ];
        let read = batch::read_files(odd.into()).await;
        let told: Vec<_> = read
            .into_iter()
            .map(|bytes| bytes.map(|bytes| bytes.len()).ok())
            .collect();
        assert_eq!(told, [None, None, Some(5), Some(3)]);
        assert!(open_descriptors() <= before + 8, "descriptors were leaked");
        std::fs::remove_dir_all(&folder).expect("removed");
    });
}

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
fn a_detached_task_outlives_its_caller_and_tells_of_its_panic() {
    on_both(|| async {
        let done = Rc::new(Once::default());
        let told = Rc::clone(&done);
        drop(ring::detached("left", async move {
            ring::turn().await;
            told.set(());
        }));
        assert!(within(PATIENCE, done.wait()).await.is_some());
        assert_eq!(ring::detached("well", async { 7 }).await, Some(7));
        let lost: Option<()> = ring::detached("doomed", async {
            ring::turn().await;
            panic!("on purpose")
        })
        .await;
        assert_eq!(lost, None);
    });
}

#[test]
fn jobs_that_hang_stop_neither_others_nor_the_process_table() {
    on_both(|| async {
        let (gate, held) = std::sync::mpsc::channel::<()>();
        let held = std::sync::Arc::new(std::sync::Mutex::new(held));
        for _ in 0..6 {
            let held = std::sync::Arc::clone(&held);
            pool::detach(move || {
                let held = held.lock().expect("no panic");
                let _ = held.recv();
            });
        }
        let walk = pool::run_on(pool::Lane::Processes, || 1);
        assert!(within(PATIENCE, walk).await.is_some_and(|seen| seen.is_ok()));
        assert!(within(PATIENCE, pool::run(|| 2)).await.is_some_and(|seen| seen.is_ok()));
        drop(gate);
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
        assert_eq!(start(&["/nonexistent"], None).await, Err(Some(libc::ENOENT)));
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
