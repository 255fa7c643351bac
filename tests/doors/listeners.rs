//! Where the daemon listens: TCP, Unix sockets, vsock, inherited descriptors (D23).

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixListener;

use rustix::process::Signal;

use crate::client::{Broken, Connection};
use crate::daemon::{Address, Daemon, Setup};
use crate::driver::Driver;
use crate::process::wait_until;
use crate::request::{Request, file_at};
use crate::scratch::{mode, noise};

both![
    every_way_to_name_a_tcp_address_is_taken,
    several_listeners_serve_the_same_daemon,
    a_unix_socket_serves_everything,
    a_unix_socket_has_the_mode_that_is_asked_for,
    a_stale_socket_is_replaced,
    a_socket_that_another_daemon_answers_is_left_alone,
    a_file_that_is_no_socket_is_left_alone,
    a_port_that_is_taken_is_refused,
    a_daemon_that_follows_another_at_once_has_its_addresses,
    an_address_that_is_none_is_refused,
    a_listening_descriptor_may_be_inherited,
    a_descriptor_that_does_not_listen_is_refused,
    a_vsock_address_is_listened_on_or_refused_by_name,
    the_port_of_the_reference_binds_every_address,
    running_out_of_descriptors_does_not_end_the_listener,
    a_bound_on_connections_lets_the_served_ones_live,
];

fn every_way_to_name_a_tcp_address_is_taken(driver: Driver) {
    for name in ["127.0.0.1:0", "tcp://127.0.0.1:0"] {
        let daemon = Setup::new(driver).listen(name).start();
        assert_ne!(daemon.addresses()[0].port(), 0);
        daemon.health();
        let daemon = Setup::new(driver).env("RINGD_LISTEN", name).start();
        daemon.health();
    }
    if TcpListener::bind("[::1]:0").is_ok() {
        let daemon = Setup::new(driver).listen("tcp://[::1]:0").start();
        daemon.health();
    }
}

fn several_listeners_serve_the_same_daemon(driver: Driver) {
    let setup = Setup::new(driver);
    let socket = setup.path("socket");
    let daemon = setup
        .listen("127.0.0.1:0")
        .listen("tcp://127.0.0.1:0")
        .listen(format!("unix://{}", socket.display()))
        .start();
    daemon.bootstrap("t", &serde_json::json!({})).is(200);
    assert_eq!(daemon.addresses().len(), 3);
    assert_ne!(daemon.addresses()[0], daemon.addresses()[1]);
    for listener in 0..3 {
        let reply = daemon
            .connect_to(listener)
            .call(&Request::get("/v1/health"))
            .is(200);
        assert_eq!(reply.json()["bootstrapped"], true);
    }
    let both = format!("127.0.0.1:0,unix://{}", daemon.path("second").display());
    let daemon = Setup::new(driver).listen(both.clone()).start_with(2);
    daemon.connect_to(1).is_usable();
    drop(daemon);
    let setup = Setup::new(driver);
    let both = format!("127.0.0.1:0,unix://{}", setup.path("second").display());
    let daemon = setup.env("RINGD_LISTEN", both).start_with(2);
    daemon.connect_to(0).is_usable();
    daemon.connect_to(1).is_usable();
}

fn a_unix_socket_serves_everything(driver: Driver) {
    let daemon = on_a_socket(driver, &[]);
    daemon
        .bootstrap(crate::request::TOKEN, &serde_json::json!({}))
        .is(200);
    let mut connection = daemon.connect();
    for length in [0, 1000, 3_000_000] {
        let target = file_at(daemon.path("f"));
        let sender =
            connection.send_aside(Request::put(&*target).bearer().body(noise(length)).bytes());
        connection.reply().is(204);
        sender
            .join()
            .expect("no panic")
            .expect("everything is taken");
        assert!(
            connection
                .call(&Request::get(&*target).bearer())
                .is(200)
                .body
                == noise(length)
        );
    }
    assert_eq!(daemon.script("echo hello")["stdout"], "hello\n");
    connection.finish();
    connection.is_closed();
}

fn a_unix_socket_has_the_mode_that_is_asked_for(driver: Driver) {
    for (text, expected) in [("600", 0o600), ("0660", 0o660), ("666", 0o666)] {
        let daemon = on_a_socket(driver, &["--unix-mode", text]);
        assert_eq!(mode(&daemon.path("socket")), expected, "{text}");
        daemon.health();
    }
    let refusal = Setup::new(driver).flag("--unix-mode", "nonsense").refused();
    assert_eq!(refusal.code, Some(2), "{refusal:?}");
    assert!(refusal.stderr.contains("unix-mode"), "{refusal:?}");
}

fn a_stale_socket_is_replaced(driver: Driver) {
    let setup = Setup::new(driver);
    let path = setup.path("socket");
    // A listener that is gone leaves its name behind.
    drop(UnixListener::bind(&path).expect("the scratch directory is ours"));
    assert!(
        fs::symlink_metadata(&path)
            .expect("it is left")
            .file_type()
            .is_socket()
    );
    let daemon = setup.listen(format!("unix://{}", path.display())).start();
    daemon.health();
}

fn a_socket_that_another_daemon_answers_is_left_alone(driver: Driver) {
    let first = on_a_socket(driver, &[]);
    let path = first.path("socket");
    let refusal = Setup::new(driver)
        .listen(format!("unix://{}", path.display()))
        .refused();
    assert_ne!(refusal.code, Some(0), "{refusal:?}");
    assert!(
        refusal.stderr.contains(&path.display().to_string()),
        "{refusal:?}"
    );
    first.health();
}

fn a_file_that_is_no_socket_is_left_alone(driver: Driver) {
    let keeper = Daemon::start(driver);
    fs::write(keeper.path("precious"), "precious").expect("the scratch directory is ours");
    let listen = format!("unix://{}", keeper.path("precious").display());
    let refusal = Setup::new(driver).listen(listen).refused();
    assert_ne!(refusal.code, Some(0), "{refusal:?}");
    assert!(refusal.stderr.contains("precious"), "{refusal:?}");
    assert_eq!(
        fs::read_to_string(keeper.path("precious")).expect("it is there"),
        "precious"
    );
}

fn a_port_that_is_taken_is_refused(driver: Driver) {
    let first = Daemon::start(driver);
    let taken = format!("127.0.0.1:{}", first.addresses()[0].port());
    let refusal = Setup::new(driver).listen(taken.clone()).refused();
    assert_ne!(refusal.code, Some(0), "{refusal:?}");
    assert!(refusal.code.is_some(), "{refusal:?}");
    assert!(refusal.stderr.contains(&taken), "{refusal:?}");
    first.health();
}

fn a_daemon_that_follows_another_at_once_has_its_addresses(driver: Driver) {
    let home = Setup::new(driver);
    let socket = format!("unix://{}", home.path("s").display());
    let mut daemon = home.listen("127.0.0.1:0").listen(socket.clone()).start();
    let port = format!("127.0.0.1:{}", daemon.addresses()[0].port());
    let mut before = Vec::new();
    for _ in 0..10 {
        daemon.signal(Signal::KILL);
        daemon.wait();
        // The directory of the first is kept: the socket is in it.
        before.push(daemon);
        let next = Setup::new(driver);
        daemon = next.listen(port.clone()).listen(socket.clone()).start();
        daemon.health();
    }
}

fn an_address_that_is_none_is_refused(driver: Driver) {
    for address in [
        "nonsense",
        "127.0.0.1",
        "127.0.0.1:99999",
        "127.0.0.1:x",
        "http://127.0.0.1:0",
        "unix://",
        "vsock://x:y",
        "vsock://3",
        "fd://x",
        "fd://-1",
        "",
    ] {
        let refusal = Setup::new(driver).listen(address).refused();
        assert_eq!(refusal.code, Some(2), "{address:?}: {refusal:?}");
        assert!(
            refusal.stderr.contains("listen"),
            "{address:?}: {refusal:?}"
        );
    }
    let refusal = Setup::new(driver)
        .env("RINGD_LISTEN", "nonsense")
        .run_to_its_end();
    assert_eq!(refusal.code, Some(2), "{refusal:?}");
    assert!(refusal.stderr.contains("RINGD_LISTEN"), "{refusal:?}");
}

fn a_listening_descriptor_may_be_inherited(driver: Driver) {
    // Whatever mode the socket is in, and whatever family.
    for nonblocking in [false, true] {
        let socket = TcpListener::bind("127.0.0.1:0").expect("a free port");
        socket.set_nonblocking(nonblocking).expect("a socket");
        let address = socket.local_addr().expect("it is bound");
        let daemon = inheriting(driver, socket.into());
        assert_eq!(daemon.addresses(), [Address::Other("fd://3".into())]);
        Address::Tcp(address)
            .connect()
            .expect("the daemon accepts connections")
            .is_usable();
    }
    let setup = Setup::new(driver);
    let path = setup.path("socket");
    let socket = UnixListener::bind(&path).expect("the scratch directory is ours");
    let daemon = passing(setup, socket.into()).listen("fd://3").start();
    Address::Unix(path)
        .connect()
        .expect("the daemon accepts connections")
        .is_usable();
    drop(daemon);
}

fn a_descriptor_that_does_not_listen_is_refused(driver: Driver) {
    let file = fs::File::open("/dev/null").expect("a device");
    for (fd, name) in [(Some(file), "fd://3"), (None, "fd://77")] {
        let mut setup = Setup::new(driver);
        if let Some(file) = fd {
            setup = passing(setup, file.into());
        }
        let refusal = setup.listen(name).refused();
        assert_ne!(refusal.code, Some(0), "{refusal:?}");
        assert!(refusal.code.is_some(), "{refusal:?}");
        assert!(refusal.stderr.contains(name), "{refusal:?}");
    }
}

fn a_vsock_address_is_listened_on_or_refused_by_name(driver: Driver) {
    // Any CID; a port above those that need a privilege.
    let name = "vsock://4294967295:34567";
    let family = rustix::net::AddressFamily::VSOCK;
    if rustix::net::socket(family, rustix::net::SocketType::STREAM, None).is_err() {
        eprintln!("no vsock here: only the refusal is checked");
        let refusal = Setup::new(driver).listen(name).refused();
        assert!(refusal.code.is_some_and(|code| code != 0), "{refusal:?}");
        assert!(refusal.stderr.contains("vsock"), "{refusal:?}");
        return;
    }
    // The two tests of this name share the port.
    static ONE_AT_A_TIME: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _turn = ONE_AT_A_TIME.lock();
    let daemon = Setup::new(driver)
        .listen("127.0.0.1:0")
        .listen(name)
        .start();
    let Address::Other(listening) = &daemon.addresses()[1] else {
        panic!("{:?}", daemon.addresses());
    };
    assert!(
        listening.starts_with("vsock://") && listening.ends_with(":34567"),
        "{listening}"
    );
    daemon.health();
}

fn the_port_of_the_reference_binds_every_address(driver: Driver) {
    let daemon = Setup::new(driver).env("AGENTD_PORT", "0").start();
    let Address::Tcp(address) = &daemon.addresses()[0] else {
        panic!("{:?}", daemon.addresses());
    };
    assert!(
        address.ip().is_unspecified() && address.is_ipv4(),
        "{address}"
    );
    let local = format!("127.0.0.1:{}", address.port())
        .parse()
        .expect("an address");
    Address::Tcp(local)
        .connect()
        .expect("the daemon accepts connections")
        .is_usable();
    // A listener that is named wins over it.
    let daemon = Setup::new(driver)
        .env("AGENTD_PORT", "0")
        .listen("127.0.0.1:0")
        .start();
    let Address::Tcp(address) = &daemon.addresses()[0] else {
        panic!("{:?}", daemon.addresses());
    };
    assert!(address.ip().is_loopback(), "{address}");
}

fn running_out_of_descriptors_does_not_end_the_listener(driver: Driver) {
    let daemon = Daemon::ready(driver);
    fs::write(daemon.path("f"), "content").expect("the scratch directory is ours");
    let mut first = daemon.connect();
    first.is_usable();
    let before = daemon.descriptors();
    daemon.limit_descriptors(before + 4);
    let mut crowd: Vec<Connection> = (0..40).map(|_| daemon.connect()).collect();
    for connection in &mut crowd {
        connection.send(Request::get("/v1/health").bytes());
    }
    // Those that were accepted are served, and so is what needs no descriptor.
    crowd[0].reply().is(200);
    first.is_usable();
    let start = serde_json::json!({"exec_id": "e", "command": ["true"]});
    let refused = first.call(&Request::post("/v1/exec/start").bearer().json(&start));
    assert!(
        refused.status == 500 || refused.status == 200,
        "{refused:?}"
    );
    let read = first.call(&Request::get(file_at(daemon.path("f"))).bearer());
    assert!(
        read.status == 500 || read.status == 503 || read.status == 200,
        "{read:?}"
    );
    // Whoever is served leaves, and makes room for the next.
    drop(crowd.remove(0));
    for mut connection in crowd {
        connection.reply().is(200);
    }
    drop(first);
    daemon.limit_descriptors(1024);
    wait_until("the daemon is as before", || daemon.descriptors() <= before);
    assert_eq!(
        daemon.get(file_at(daemon.path("f"))).is(200).text(),
        "content"
    );
    assert_eq!(daemon.script("echo again")["stdout"], "again\n");
}

fn a_bound_on_connections_lets_the_served_ones_live(driver: Driver) {
    let daemon = Setup::new(driver).flag("--max-connections", "4").start();
    let mut served: Vec<Connection> = (0..4).map(|_| daemon.connect()).collect();
    for connection in &mut served {
        connection.is_usable();
    }
    // The fifth waits or is turned away, and the four do not notice.
    let mut fifth = daemon.connect();
    let _ = fifth.try_send(Request::get("/v1/health").bytes());
    for connection in &mut served {
        connection.is_usable();
    }
    drop(served.pop());
    match fifth.reply_to("GET") {
        Ok(reply) => assert!(reply.status == 200 || reply.status == 503, "{reply:?}"),
        Err(broken) => assert!(
            matches!(broken, Broken::Closed | Broken::Reset),
            "{broken:?}"
        ),
    }
    drop(fifth);
    wait_until("there is room for another", || {
        let mut another = daemon.connect();
        let _ = another.try_send(Request::get("/v1/health").bytes());
        another
            .reply_to("GET")
            .is_ok_and(|reply| reply.status == 200)
    });
}

fn on_a_socket(driver: Driver, flags: &[&str]) -> Daemon {
    let mut setup = Setup::new(driver);
    for flag in flags {
        setup = setup.switch(flag);
    }
    let path = setup.path("socket");
    setup.listen(format!("unix://{}", path.display())).start()
}

fn inheriting(driver: Driver, socket: std::os::fd::OwnedFd) -> Daemon {
    passing(Setup::new(driver), socket).listen("fd://3").start()
}

/// Gives the daemon `fd` as its descriptor 3.
fn passing(setup: Setup, fd: std::os::fd::OwnedFd) -> Setup {
    setup
        .stdin(fd)
        .under(&["/bin/sh", "-c", "exec 3<&0 </dev/null; exec \"$@\"", "sh"])
}
