//! The end of the daemon: signals, the terminate hook, what is finished and what is let go (section 1, D5).

use std::net::TcpStream;

use rustix::process::Signal;

use crate::client::Connection;
use crate::daemon::{Address, Daemon, Setup};
use crate::driver::Driver;
use crate::process::{is_alive, signal, wait_until};
use crate::request::{Request, file_at};
use crate::scratch::noise;

both![
    an_idle_daemon_ends_at_once_on_a_signal,
    the_terminate_hook_ends_the_daemon_after_its_answer,
    a_request_in_flight_is_finished,
    a_download_in_flight_is_finished,
    idle_connections_are_closed_at_once,
    nobody_new_is_served_during_the_drain,
    a_request_that_does_not_end_is_cut_at_the_deadline,
    a_half_sent_head_does_not_hold_the_daemon,
    running_children_are_left_alone,
    a_kill_in_flight_is_finished,
    a_unix_socket_ends_with_its_daemon,
    a_full_listener_drains_too,
    several_listeners_drain_together,
    a_second_signal_hurries_the_drain,
];

fn an_idle_daemon_ends_at_once_on_a_signal(driver: Driver) {
    for number in [Signal::TERM, Signal::INT] {
        let mut daemon = Daemon::start(driver);
        daemon.health();
        daemon.signal(number);
        assert_eq!(daemon.wait().code(), Some(0));
    }
}

fn the_terminate_hook_ends_the_daemon_after_its_answer(driver: Driver) {
    let terminate = Request::post("/aws/lambda-microvms/runtime/v1/terminate");
    let mut daemon = Daemon::start(driver);
    daemon.call(&terminate).bare(200);
    assert_eq!(daemon.wait().code(), Some(0));
    let mut daemon = Setup::new(driver).flag("--terminate-hook", "drain").ready();
    let (mut upload, rest) = half_an_upload(&daemon);
    daemon.call(&terminate).bare(200);
    is_draining(&daemon);
    upload.send(rest);
    upload.reply().is(204);
    assert_eq!(daemon.wait().code(), Some(0));
}

fn a_request_in_flight_is_finished(driver: Driver) {
    let mut daemon = Daemon::ready(driver);
    let (mut upload, rest) = half_an_upload(&daemon);
    daemon.signal(Signal::TERM);
    is_draining(&daemon);
    upload.send(rest);
    upload.reply().is(204);
    let (after, _) = upload.rest();
    assert!(after.is_empty());
    assert_eq!(daemon.wait().code(), Some(0));
    assert!(std::fs::read(daemon.path("f")).expect("it was written") == noise(200_000));
}

fn a_download_in_flight_is_finished(driver: Driver) {
    let mut daemon = Daemon::ready(driver);
    let content = noise(40_000_000);
    std::fs::write(daemon.path("f"), &content).expect("the scratch directory is ours");
    let mut download = daemon.connect();
    download.send(Request::get(file_at(daemon.path("f"))).bearer().bytes());
    download.head().expect("a response");
    daemon.signal(Signal::TERM);
    is_draining(&daemon);
    assert!(download.take(content.len()).expect("all of it") == content);
    download.is_closed();
    assert_eq!(daemon.wait().code(), Some(0));
}

fn idle_connections_are_closed_at_once(driver: Driver) {
    let mut daemon = Daemon::ready(driver);
    let (mut upload, rest) = half_an_upload(&daemon);
    let mut idle: Vec<Connection> = (0..10).map(|_| daemon.connect()).collect();
    for connection in idle.iter_mut().skip(1) {
        connection.is_usable();
    }
    daemon.signal(Signal::TERM);
    for connection in &mut idle {
        connection.is_closed();
    }
    upload.send(rest);
    upload.reply().is(204);
    assert_eq!(daemon.wait().code(), Some(0));
}

fn nobody_new_is_served_during_the_drain(driver: Driver) {
    let mut daemon = Daemon::ready(driver);
    let (mut upload, rest) = half_an_upload(&daemon);
    daemon.signal(Signal::TERM);
    is_draining(&daemon);
    for _ in 0..5 {
        let Address::Tcp(address) = &daemon.addresses()[0] else {
            panic!("a TCP listener");
        };
        assert!(TcpStream::connect(address).is_err());
    }
    // A request behind the one in flight is not begun.
    let mut bytes = rest;
    bytes.extend(Request::get("/v1/health").bytes());
    upload.send(bytes);
    upload.reply().is(204);
    let (after, _) = upload.rest();
    assert!(after.is_empty(), "{}", String::from_utf8_lossy(&after));
    assert_eq!(daemon.wait().code(), Some(0));
}

fn a_request_that_does_not_end_is_cut_at_the_deadline(driver: Driver) {
    let mut daemon = Setup::new(driver).flag("--drain-timeout", "0.3").ready();
    std::fs::write(daemon.path("old"), "old").expect("the scratch directory is ours");
    let (mut upload, _) = half_an_upload(&daemon);
    let mut download = daemon.connect();
    download.send(Request::get(file_at("/dev/zero")).bearer().bytes());
    download.head().expect("a response");
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.wait().code(), Some(0));
    upload.rest();
    assert_eq!(crate::scratch::names(&daemon.path("")), ["old"]);
}

fn a_half_sent_head_does_not_hold_the_daemon(driver: Driver) {
    let mut daemon = Setup::new(driver).flag("--drain-timeout", "0.3").start();
    let mut connection = daemon.connect();
    connection.send("GET /v1/health HTTP/1.1\r\nhost:");
    daemon.health();
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.wait().code(), Some(0));
}

fn running_children_are_left_alone(driver: Driver) {
    let mut daemon = Daemon::ready(driver);
    daemon.begin_script("e", "echo $$ > child; exec sleep 1000 >/dev/null 2>&1");
    let child = daemon.pid_in("child");
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.wait().code(), Some(0));
    assert!(is_alive(child));
    signal(child, Signal::KILL);
}

fn a_kill_in_flight_is_finished(driver: Driver) {
    let mut daemon = Setup::new(driver).flag("--kill-grace", "0.5").ready();
    daemon.begin_script(
        "k",
        "trap 'echo term > heard' TERM; echo $$ > up; while :; do sleep 0.01; done",
    );
    let child = daemon.pid_in("up");
    let mut killing = daemon.connect();
    killing.send(Request::post("/v1/exec/k/kill").bearer().bytes());
    wait_until("the signal has arrived", || daemon.path("heard").exists());
    daemon.signal(Signal::TERM);
    let reply = killing.reply().is(200);
    assert_eq!(reply.text(), r#"{"exec_id":"k","killed":true}"#);
    assert!(!is_alive(child));
    assert_eq!(daemon.wait().code(), Some(0));
}

fn a_unix_socket_ends_with_its_daemon(driver: Driver) {
    let setup = Setup::new(driver);
    let path = setup.path("socket");
    let mut daemon = setup.listen(format!("unix://{}", path.display())).start();
    daemon.health();
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.wait().code(), Some(0));
    assert!(Address::Unix(path).connect().is_err());
}

/// An upload to `f` that has been accepted and is half sent, and the bytes that are missing.
#[track_caller]
fn half_an_upload(daemon: &Daemon) -> (Connection, Vec<u8>) {
    let request = Request::put(file_at(daemon.path("f")))
        .bearer()
        .body(noise(200_000));
    let mut connection = daemon.connect();
    connection.send(request.clone().field("expect", "100-continue").head());
    assert_eq!(connection.head().expect("the body is wanted").status, 100);
    let payload = request.payload();
    connection.send(&payload[..100_000]);
    (connection, payload[100_000..].to_vec())
}

/// Waits until nobody new is accepted.
#[track_caller]
fn is_draining(daemon: &Daemon) {
    wait_until("the listener is closed", || {
        daemon.addresses()[0].connect().is_err()
    });
}

/// A listener that waits for a free slot must hear of the drain as one that waits for a connection does.
fn a_full_listener_drains_too(driver: Driver) {
    let mut daemon = Setup::new(driver)
        .flag("--max-connections", "1")
        .flag("--drain-timeout", "60")
        .start();
    let mut first = daemon.connect();
    first.call(&Request::get("/v1/health")).is(200);
    let waiting = daemon.connect();
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.wait().code(), Some(0));
    drop(waiting);
}

fn several_listeners_drain_together(driver: Driver) {
    let mut daemon = Setup::new(driver)
        .listen("127.0.0.1:0")
        .listen("127.0.0.1:0")
        .start_with(2);
    daemon
        .connect_to(1)
        .call(&Request::get("/v1/health"))
        .is(200);
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.wait().code(), Some(0));
}

fn a_second_signal_hurries_the_drain(driver: Driver) {
    let mut daemon = Setup::new(driver).flag("--drain-timeout", "600").ready();
    let (upload, _) = half_an_upload(&daemon);
    daemon.signal(Signal::TERM);
    is_draining(&daemon);
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.wait().code(), Some(0));
    drop(upload);
}
