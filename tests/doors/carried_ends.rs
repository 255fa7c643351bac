//! How tunnels of `ringd tunnel` end when something is wrong: what the local client sees, and what the user is told.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use rustix::net::sockopt::set_socket_linger;
use rustix::process::Signal;

use crate::carrier::{Carrier, GUEST, HOST, Plan, bootstrap_with_keys, url};
use crate::daemon::{Daemon, Setup};
use crate::driver::Driver;
use crate::process;
use crate::service::Service;

both![
    a_wrong_token_is_told,
    a_guest_without_a_token_is_told,
    nothing_listening_is_told,
    no_daemon_is_told,
    something_else_than_a_daemon_is_told,
    a_guest_without_keys_is_told,
    a_wrong_caller_never_reaches_the_service,
    a_wrong_guest_is_not_talked_to,
    a_refused_tunnel_is_never_opened_without_proof,
    a_guest_that_breaks_off_is_a_reset,
    a_daemon_that_dies_is_a_reset,
    a_client_that_breaks_off_is_a_reset_in_the_guest,
    a_stop_ends_everything,
    a_failed_tunnel_of_standard_input_ends_with_1,
    a_closed_standard_output_ends_the_tunnel,
    a_standard_input_that_fails_ends_with_1,
];

/// Connects, and checks that the connection is reset without a byte.
#[track_caller]
fn is_reset(carrier: &Carrier) {
    ends_in_a_reset(&mut carrier.connect());
}

#[track_caller]
fn ends_in_a_reset(stream: &mut TcpStream) {
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        other => panic!("no reset but {other:?} after {bytes:?}"),
    }
}

fn a_wrong_token_is_told(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let service = Service::echo();
    let plan = Plan::blank(driver).option("--url", &url(&daemon));
    let plan = plan
        .option("--token", "wrong")
        .option("--port", &service.port().to_string());
    let carrier = plan.start();
    is_reset(&carrier);
    carrier.says("401");
    carrier.says("token");
    assert_eq!(service.met(), 0);
}

fn a_guest_without_a_token_is_told(driver: Driver) {
    let daemon = Daemon::start(driver);
    let carrier = Plan::to(&daemon, driver, 1).start();
    is_reset(&carrier);
    carrier.says("503");
}

fn nothing_listening_is_told(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let port = unused_port();
    let carrier = Plan::to(&daemon, driver, port).start();
    is_reset(&carrier);
    carrier.says(&format!("listening on 127.0.0.1:{port}"));
    carrier.says("4502");
}

fn no_daemon_is_told(driver: Driver) {
    let url = format!("http://127.0.0.1:{}", unused_port());
    let plan = Plan::blank(driver)
        .option("--url", &url)
        .option("--token", "t");
    let carrier = plan.option("--port", "5432").start();
    is_reset(&carrier);
    carrier.says(&format!("cannot connect to {url}"));
    carrier.says("refused");
}

fn something_else_than_a_daemon_is_told(driver: Driver) {
    let stranger = Service::new(|mut stream| {
        let _ = stream.write_all(b"SSH-2.0-OpenSSH_9.9\r\n\r\n");
        let _ = stream.read(&mut [0; 1000]);
    });
    let url = format!("http://127.0.0.1:{}", stranger.port());
    let plan = Plan::blank(driver)
        .option("--url", &url)
        .option("--token", "t");
    let carrier = plan.option("--port", "5432").start();
    is_reset(&carrier);
    carrier.says("is no daemon");
}

fn a_guest_without_keys_is_told(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let service = Service::echo();
    let plan = Plan::to(&daemon, driver, service.port()).verified(HOST[0], GUEST[1]);
    let carrier = plan.start();
    is_reset(&carrier);
    carrier.says("4401");
    assert_eq!(service.met(), 0);
}

/// A guest with keys, a service in it, and a carrier with the keys that it is given.
#[track_caller]
fn refused(driver: Driver, host: &str, guest: &str, protocol: &str) -> (Carrier, Service, Daemon) {
    let daemon = Daemon::start(driver);
    bootstrap_with_keys(&daemon);
    let service = Service::echo();
    let plan = Plan::to(&daemon, driver, service.port()).verified(host, guest);
    let carrier = plan.option("--protocol", protocol).start();
    is_reset(&carrier);
    assert_eq!(service.met(), 0, "a refused caller causes no dial");
    (carrier, service, daemon)
}

fn a_wrong_caller_never_reaches_the_service(driver: Driver) {
    for protocol in ["1", "2"] {
        let (carrier, ..) = refused(driver, GUEST[0], GUEST[1], protocol);
        carrier.says("handshake");
        carrier.says("4403");
    }
}

fn a_wrong_guest_is_not_talked_to(driver: Driver) {
    for protocol in ["1", "2"] {
        let (carrier, ..) = refused(driver, HOST[0], HOST[1], protocol);
        carrier.says("--guest-key");
    }
}

fn a_refused_tunnel_is_never_opened_without_proof(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let service = Service::echo();
    let plan = Plan::to(&daemon, driver, service.port()).verified(HOST[0], GUEST[1]);
    let carrier = plan.start();
    for _ in 0..3 {
        is_reset(&carrier);
    }
    assert_eq!(service.met(), 0);
}

fn a_guest_that_breaks_off_is_a_reset(driver: Driver) {
    let daemon = Daemon::start(driver);
    bootstrap_with_keys(&daemon);
    let service = Service::new(|mut stream| {
        let _ = stream.read_exact(&mut [0; 5]);
        set_socket_linger(&stream, Some(Duration::ZERO)).expect("a TCP socket");
    });
    let plain = Plan::to(&daemon, driver, service.port());
    let verified = Plan::to(&daemon, driver, service.port()).verified(HOST[0], GUEST[1]);
    for plan in [plain, verified] {
        let carrier = plan.start();
        let mut stream = carrier.connect();
        stream.write_all(b"hello").expect("it is carried");
        ends_in_a_reset(&mut stream);
        carrier.says("4500");
    }
}

fn a_daemon_that_dies_is_a_reset(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let service = Service::echo();
    let carrier = Plan::to(&daemon, driver, service.port()).start();
    let mut stream = carrier.connect();
    stream.write_all(b"x").expect("it is carried");
    stream.read_exact(&mut [0]).expect("it is open");
    process::signal(daemon.pid(), Signal::KILL);
    ends_in_a_reset(&mut stream);
    carrier.says("the connection to the daemon ended");
}

fn a_client_that_breaks_off_is_a_reset_in_the_guest(driver: Driver) {
    let daemon = Daemon::start(driver);
    bootstrap_with_keys(&daemon);
    let (sender, ends) = std::sync::mpsc::channel();
    let service = Service::new(move |mut stream| {
        let mut bytes = Vec::new();
        let ended = stream.read_to_end(&mut bytes);
        let _ = sender.send(ended.map_err(|error| error.kind()));
    });
    let plan = Plan::to(&daemon, driver, service.port()).verified(HOST[0], GUEST[1]);
    let carrier = plan.start();
    let mut stream = carrier.connect();
    stream.write_all(b"half of it").expect("it is carried");
    service.meets(1);
    set_socket_linger(&stream, Some(Duration::ZERO)).expect("a TCP socket");
    drop(stream);
    let ended = ends
        .recv_timeout(process::PATIENCE)
        .expect("the service sees an end");
    assert_eq!(ended, Err(ErrorKind::ConnectionReset));
}

fn a_stop_ends_everything(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let before = daemon.at_rest();
    let service = Service::echo();
    for signal in [Signal::TERM, Signal::INT] {
        let plan = Plan::to(&daemon, driver, service.port());
        let path = plan.path("local.sock");
        let unix = plan.clone().start_at(&format!("unix://{}", path.display()));
        let mut carrier = plan.start();
        let mut stream = carrier.connect();
        stream.write_all(b"x").expect("it is carried");
        stream.read_exact(&mut [0]).expect("it is open");
        assert_eq!(carrier.stop(signal).code(), Some(0));
        ends_in_a_reset(&mut stream);
        let mut unix = unix;
        assert_eq!(unix.stop(signal).code(), Some(0));
        assert!(!path.exists(), "the socket is left behind");
    }
    daemon.holds_at_most(before);
}

fn a_failed_tunnel_of_standard_input_ends_with_1(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let port = unused_port();
    let output = Plan::to(&daemon, driver, port)
        .option("--local", "-")
        .run(b"hello");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_eq!(output.stdout, b"");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(
        told.starts_with("ringd: tunnel: ") && told.contains("4502"),
        "{told}"
    );
}

fn a_closed_standard_output_ends_the_tunnel(driver: Driver) {
    let setup = Setup::new(driver);
    let daemon = setup.ready();
    let service = Service::new(|mut stream| while stream.write_all(&[b'y'; 4096]).is_ok() {});
    let plan = Plan::to(&daemon, driver, service.port()).option("--local", "-");
    // A full device takes nothing.
    let output = plan.run_between("/dev/null".as_ref(), "/dev/full".as_ref());
    assert_eq!(output.status.code(), Some(1), "{output:?}");
}

fn a_standard_input_that_fails_ends_with_1(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let service = Service::answer_at_the_end();
    let plan = Plan::to(&daemon, driver, service.port()).option("--local", "-");
    // A directory can be opened, but not read.
    let output = plan.run_between("/".as_ref(), "/dev/null".as_ref());
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("standard input cannot be read"), "{told}");
}

/// A port on which nobody listens.
fn unused_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    listener.local_addr().expect("it is bound").port()
}
