//! What passes between the daemon and a supervisor such as systemd: reports, signs of life, sockets that are handed over.

use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::Signal;
use serde_json::json;

use crate::daemon::{Address, Setup};
use crate::driver::Driver;
use crate::process::{PATIENCE, comes_true};
use crate::request::TOKEN;

both![
    the_supervisor_hears_of_start_and_end,
    an_abstract_socket_is_reported_to,
    signs_of_life_come_again_and_again,
    a_watchdog_for_another_process_is_none_of_ours,
    a_supervisor_that_does_not_read_holds_nobody,
    a_report_that_cannot_be_sent_is_a_warning,
    what_the_supervisor_says_is_not_handed_on,
    a_socket_that_is_handed_over_replaces_the_default,
    a_socket_that_is_handed_over_is_served_beside_others,
    sockets_for_another_process_are_left_alone,
    sockets_that_are_not_understood_stop_the_start,
    sockets_of_the_real_tool_are_served,
];

fn the_supervisor_hears_of_start_and_end(driver: Driver) {
    let (setup, reports) = reporting(driver);
    let mut daemon = setup.start();
    let ready = reports.next();
    assert!(ready.contains(&"READY=1".to_owned()), "{ready:?}");
    let Address::Tcp(address) = &daemon.addresses()[0] else {
        panic!("a TCP listener");
    };
    let status = ready.iter().find(|line| line.starts_with("STATUS="));
    assert!(
        status.is_some_and(|line| line.contains(&address.to_string())),
        "{ready:?}"
    );
    daemon.health();
    daemon.signal(Signal::TERM);
    let stopping = reports.next();
    assert!(stopping.contains(&"STOPPING=1".to_owned()), "{stopping:?}");
    assert_eq!(daemon.wait().code(), Some(0));
    assert_eq!(reports.rest(), Vec::<Vec<String>>::new());
}

fn an_abstract_socket_is_reported_to(driver: Driver) {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = format!("ringd-test-{}-{number}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).expect("a short name");
    let socket = UnixDatagram::bind_addr(&address).expect("a name of our own");
    let reports = Reports::of(socket);
    let daemon = Setup::new(driver)
        .env("NOTIFY_SOCKET", format!("@{name}"))
        .start();
    assert!(reports.next().contains(&"READY=1".to_owned()));
    daemon.health();
}

fn signs_of_life_come_again_and_again(driver: Driver) {
    let (setup, reports) = reporting(driver);
    let daemon = setup.env("WATCHDOG_USEC", "100000").start();
    let mut alive = 0;
    while alive < 5 {
        alive += usize::from(reports.next() == ["WATCHDOG=1"]);
    }
    daemon.health();
}

fn a_watchdog_for_another_process_is_none_of_ours(driver: Driver) {
    let (setup, reports) = reporting(driver);
    let mut daemon = setup
        .env("WATCHDOG_USEC", "1000")
        .env("WATCHDOG_PID", "1")
        .start();
    daemon.health();
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.wait().code(), Some(0));
    let all = reports.rest();
    assert_eq!(all.len(), 2, "{all:?}");
}

fn a_supervisor_that_does_not_read_holds_nobody(driver: Driver) {
    let (setup, reports) = reporting(driver);
    let mut daemon = setup.env("WATCHDOG_USEC", "200").ready();
    let unread = || {
        daemon
            .stderr()
            .iter()
            .any(|line| line.contains("does not read"))
    };
    assert!(comes_true(unread), "the queue of a socket is short");
    assert_eq!(daemon.script("echo served")["stdout"], "served\n");
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.wait().code(), Some(0));
    drop(reports);
}

fn a_report_that_cannot_be_sent_is_a_warning(driver: Driver) {
    for (name, value) in [
        ("NOTIFY_SOCKET", "relative"),
        ("NOTIFY_SOCKET", "vsock:2:1234"),
        ("WATCHDOG_USEC", "soon"),
    ] {
        let daemon = Setup::new(driver).env(name, value).start();
        daemon.health();
        let told = daemon.logged(name, 1);
        assert_eq!(told[0]["level"], "WARN", "{told:?}");
    }
    let gone = Setup::new(driver)
        .env("NOTIFY_SOCKET", "/no/such/socket")
        .start();
    gone.health();
}

fn what_the_supervisor_says_is_not_handed_on(driver: Driver) {
    let (setup, reports) = reporting(driver);
    let daemon = handing(setup, a_socket(), "LISTEN_FDNAMES=api LISTEN_PIDFDID=7")
        .listen("127.0.0.1:0")
        .env("IMAGE", "yes")
        .env("WATCHDOG_USEC", "60000000")
        .start_with(2);
    daemon.bootstrap(TOKEN, &json!({})).bare(200);
    let env = daemon.output(&json!({"command": ["env"], "inherit_image_env": true}));
    assert!(env.contains("IMAGE=yes"), "{env}");
    for name in ["NOTIFY_", "LISTEN_", "WATCHDOG_"] {
        assert!(!env.contains(name), "{env}");
    }
    drop(reports);
}

fn a_socket_that_is_handed_over_replaces_the_default(driver: Driver) {
    let socket = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = socket.local_addr().expect("it is bound");
    let setup = handing(Setup::new(driver), socket.into(), "");
    let daemon = setup.env("LISTEN_FDNAMES", "api").start();
    assert_eq!(daemon.addresses(), [Address::Other("fd://3".into())]);
    let through = Address::Tcp(address);
    through
        .connect()
        .expect("the daemon accepts connections")
        .is_usable();
    let told = daemon.logged("\"listening\"", 1);
    assert_eq!(told[0]["fields"]["socket"], "api", "{told:?}");
}

fn a_socket_that_is_handed_over_is_served_beside_others(driver: Driver) {
    let socket = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = socket.local_addr().expect("it is bound");
    let daemon = handing(Setup::new(driver), socket.into(), "")
        .listen("127.0.0.1:0")
        .start_with(2);
    daemon.connect_to(0).is_usable();
    let through = Address::Tcp(address);
    through
        .connect()
        .expect("the daemon accepts connections")
        .is_usable();
    // Who names it, too, does not get it twice.
    let daemon = handing(Setup::new(driver), a_socket(), "")
        .listen("fd://3")
        .start();
    assert_eq!(daemon.addresses(), [Address::Other("fd://3".into())]);
}

fn sockets_for_another_process_are_left_alone(driver: Driver) {
    let mut daemon = handing(Setup::new(driver), a_socket(), "LISTEN_PID=1")
        .listen("127.0.0.1:0")
        .start();
    daemon.health();
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.wait().code(), Some(0));
    assert_eq!(daemon.more_stdout(), Vec::<String>::new());
}

fn sockets_that_are_not_understood_stop_the_start(driver: Driver) {
    for (extra, code, said) in [
        ("LISTEN_PID=me", 2, "LISTEN_PID"),
        ("LISTEN_FDS=many", 2, "LISTEN_FDS"),
        ("LISTEN_FDNAMES=a:b", 2, "LISTEN_FDNAMES"),
        ("LISTEN_FDS=40", 1, "fd://4"),
    ] {
        let refusal = handing(Setup::new(driver), a_socket(), extra).run_to_its_end();
        assert_eq!(refusal.code, Some(code), "{extra}: {refusal:?}");
        assert!(refusal.stderr.contains(said), "{extra}: {refusal:?}");
    }
    let file = std::fs::File::open("/dev/null").expect("a device");
    let refusal = handing(Setup::new(driver), file.into(), "").run_to_its_end();
    assert_eq!(refusal.code, Some(1), "{refusal:?}");
    assert!(refusal.stderr.contains("fd://3"), "{refusal:?}");
}

fn sockets_of_the_real_tool_are_served(driver: Driver) {
    if Command::new("systemd-socket-activate")
        .arg("--version")
        .output()
        .is_err()
    {
        eprintln!("no systemd-socket-activate: only what is documented is checked");
        return;
    }
    let setup = Setup::new(driver);
    let paths: [PathBuf; 2] = ["a", "b"].map(|name| setup.path(name));
    let [a, b] = paths.each_ref().map(|path| path.display().to_string());
    let tool = "/usr/bin/systemd-socket-activate";
    let setup = setup
        .under(&[tool, "-l", &a, "-l", &b, "--fdname=api:debug"])
        .env("LISTEN_FDS", "0");
    // It starts the daemon when somebody calls.
    let caller = {
        let path = paths[0].clone();
        std::thread::spawn(move || {
            let mut stream = None;
            comes_true(|| {
                stream = UnixStream::connect(&path).ok();
                stream.is_some()
            });
            stream
        })
    };
    let daemon = setup.start_with(2);
    let names = ["fd://3", "fd://4"].map(|name| Address::Other(name.into()));
    assert_eq!(daemon.addresses(), names);
    for path in paths {
        let through = Address::Unix(path);
        through
            .connect()
            .expect("the daemon accepts connections")
            .is_usable();
    }
    let stream = caller.join().expect("no panic").expect("it has called");
    crate::client::Connection::unix(stream).is_usable();
    daemon.logged("\"socket\":\"debug\"", 1);
}

/// The reports of a daemon.
struct Reports(UnixDatagram);

impl Reports {
    fn of(socket: UnixDatagram) -> Self {
        socket.set_read_timeout(Some(PATIENCE)).expect("a socket");
        Self(socket)
    }

    /// The lines of the next one.
    #[track_caller]
    fn next(&self) -> Vec<String> {
        let mut bytes = [0; 4096];
        let length = self.0.recv(&mut bytes).expect("a report comes");
        lines(&bytes[..length])
    }

    /// Those that have come already.
    fn rest(&self) -> Vec<Vec<String>> {
        self.0.set_nonblocking(true).expect("a socket");
        let mut bytes = [0; 4096];
        std::iter::from_fn(|| {
            self.0
                .recv(&mut bytes)
                .ok()
                .map(|length| lines(&bytes[..length]))
        })
        .collect()
    }
}

fn lines(report: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(report);
    text.lines().map(str::to_owned).collect()
}

fn reporting(driver: Driver) -> (Setup, Reports) {
    let setup = Setup::new(driver);
    let path = setup.path("reports");
    let socket = UnixDatagram::bind(&path).expect("the scratch directory is ours");
    let setup = setup.env("NOTIFY_SOCKET", path.display().to_string());
    (setup, Reports::of(socket))
}

/// Hands `socket` over as the first descriptor; `extra` is set after the usual variables.
fn handing(setup: Setup, socket: OwnedFd, extra: &str) -> Setup {
    let script =
        format!("exec 3<&0 </dev/null; export LISTEN_PID=$$ LISTEN_FDS=1 {extra}; exec \"$@\"");
    setup
        .stdin(socket)
        .env("LISTEN_FDS", "1")
        .under(&["/bin/sh", "-c", &script, "sh"])
}

fn a_socket() -> OwnedFd {
    TcpListener::bind("127.0.0.1:0")
        .expect("a free port")
        .into()
}
