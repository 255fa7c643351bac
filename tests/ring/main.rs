//! What the ring room promises on both drivers, and each defect of the runtime that it works around.

mod children;
mod files;

use std::cell::Cell;
use std::future::Future;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::time::Duration;

use ringd::ring::clock::{Deadline, sleep, until, within};
use ringd::ring::listener::Listener;
use ringd::ring::notify::{Event, Once};
use ringd::ring::socket::Socket;
use ringd::ring::{self, Choice, Fd, batch, child, copy, file, flow, pool};

/// Runs `main` on io_uring and on epoll, each on a thread of its own.
pub(crate) fn on_both<F: Future<Output = ()> + 'static>(main: fn() -> F) {
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

/// How many descriptors of this process lead to a file below `folder`.
fn open_below(folder: &std::path::Path) -> usize {
    let all = std::fs::read_dir("/proc/self/fd").expect("proc");
    all.filter_map(Result::ok)
        .filter_map(|entry| std::fs::read_link(entry.path()).ok())
        .filter(|target| target.starts_with(folder) && target != folder)
        .count()
}

const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) fn temporary(bytes: &[u8]) -> std::fs::File {
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
fn timers_come_while_many_tasks_give_way() {
    on_both(|| async {
        let stop = Rc::new(Cell::new(false));
        for _ in 0..60 {
            let stop = Rc::clone(&stop);
            ring::spawn("taker", async move {
                while !stop.get() {
                    ring::turn().await;
                }
            });
        }
        sleep(Duration::from_millis(20)).await;
        let bounded = within(Duration::from_millis(5), std::future::pending::<()>()).await;
        assert!(bounded.is_none());
        stop.set(true);
    });
}

#[test]
fn alarms_ring_in_order_and_leave_nothing_behind() {
    on_both(|| async {
        let rang = Rc::new(std::cell::RefCell::new(Vec::new()));
        let done = Rc::new(Event::default());
        for (span, deadline) in deadlines([30, 10, 20, 0]) {
            let (rang, done) = (Rc::clone(&rang), Rc::clone(&done));
            ring::spawn("sleeper", async move {
                let _ = until(deadline, std::future::pending::<()>()).await;
                assert!(deadline.has_passed());
                rang.borrow_mut().push(span);
                done.happen();
            });
        }
        for _ in 0..1000 {
            let _ = within(Duration::from_secs(60), async {}).await;
            let _ = within(Duration::ZERO, std::future::pending::<()>()).await;
        }
        while done.count() < 4 {
            done.after(done.count()).await;
        }
        assert_eq!(*rang.borrow(), [0, 10, 20, 30]);
    });
}

/// Deadlines so many milliseconds from one moment; taken again where the machine was away in between.
fn deadlines(spans: [u64; 4]) -> [(u64, Deadline); 4] {
    loop {
        let bound = Deadline::after(Duration::from_millis(5));
        let taken = spans.map(|span| (span, Deadline::after(Duration::from_millis(span))));
        if !bound.has_passed() {
            return taken;
        }
    }
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
        ring::turn().await;
        event.happen();
        ring::turn().await;
        assert_eq!(woken.get(), 10);
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
        assert!(
            within(PATIENCE, walk)
                .await
                .is_some_and(|seen| seen.is_ok())
        );
        assert!(
            within(PATIENCE, pool::run(|| 2))
                .await
                .is_some_and(|seen| seen.is_ok())
        );
        drop(gate);
    });
}
