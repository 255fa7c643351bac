//! What tunnels leave behind: nothing, however they end.

use std::fs;
use std::io::Write;
use std::time::Duration;

use crate::daemon::{Daemon, Setup};
use crate::driver::Driver;
use crate::process::status;
use crate::websocket::{BINARY, CLOSE, FINAL, Guest, WebSocket, echo, frame, read_to_end};

both![
    tunnels_leave_no_descriptor_however_they_end,
    a_tunnel_counts_as_a_connection,
    a_daemon_without_descriptors_says_so,
    a_tunnel_that_moves_much_does_not_grow_the_daemon,
];

fn tunnels_leave_no_descriptor_however_they_end(driver: Driver) {
    let daemon = Setup::new(driver).flag("--body-timeout", "0.5").ready();
    let guest = Guest::new();
    let before = daemon.at_rest();
    let absent = Guest::new().port();
    for _ in 0..20 {
        // Refused, twice.
        WebSocket::to(&daemon, 0).parts(4400, "port 0");
        drop(WebSocket::to(&daemon, absent));
        // The guest ends; the guest resets.
        let socket = WebSocket::to(&daemon, guest.port());
        drop(guest.accept());
        socket.parts(1000, "");
        let socket = WebSocket::to(&daemon, guest.port());
        let service = guest.accept();
        rustix::net::sockopt::set_socket_linger(&service, Some(Duration::ZERO)).expect("TCP");
        drop(service);
        socket.parts(4500, "mid-relay");
        // The client closes, violates the protocol, vanishes in an orderly way, resets.
        let mut socket = WebSocket::to(&daemon, guest.port());
        echo(guest.accept());
        socket.close(1000);
        socket.parts(1000, "");
        let mut socket = WebSocket::to(&daemon, guest.port());
        let _held = guest.accept();
        socket.connection.send(frame(FINAL | 3, b""));
        drop(socket);
        drop(WebSocket::to(&daemon, guest.port()));
        assert_eq!(read_to_end(&mut guest.accept()), Ok(Vec::new()));
        WebSocket::to(&daemon, guest.port()).connection.reset();
        assert_eq!(read_to_end(&mut guest.accept()), Ok(Vec::new()));
    }
    // Neither reads.
    let deaf = WebSocket::to(&daemon, guest.port());
    let service = guest.accept();
    let filling = deaf
        .connection
        .send_aside(frame(FINAL | BINARY, &vec![0; 32 << 20]));
    let mut writer = service.try_clone().expect("a socket can be duplicated");
    assert!(
        writer.write_all(&vec![0; 32 << 20]).is_err(),
        "nobody reads it"
    );
    drop(deaf);
    let _ = filling.join();
    daemon.holds_at_most(before);
}

fn a_tunnel_counts_as_a_connection(driver: Driver) {
    let daemon = Setup::new(driver).flag("--max-connections", "1").ready();
    let guest = Guest::new();
    let mut socket = WebSocket::to(&daemon, guest.port());
    echo(guest.accept());
    let mut waiting = daemon.connect();
    waiting.send(crate::request::Request::get("/v1/health").bytes());
    socket.send("first");
    assert_eq!(socket.take(5), b"first");
    socket.connection.send(frame(FINAL | CLOSE, b""));
    socket.parts(1000, "");
    waiting.reply().is(200);
}

fn a_daemon_without_descriptors_says_so(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let guest = Guest::new();
    daemon.at_rest();
    let mut connection = daemon.connect();
    connection.is_usable();
    let held = |number: &usize| fs::read_link(format!("/proc/{}/fd/{number}", daemon.pid()));
    let free = (0..).find(|number| held(number).is_err());
    daemon.limit_descriptors(free.expect("numbers do not end"));
    let target = format!("/v1/tcp?port={}", guest.port());
    connection.send(crate::websocket::upgrade(target).bytes());
    crate::websocket::is_upgraded(&connection.head().expect("a response"));
    WebSocket { connection }.parts(4500, "mid-relay");
    guest.was_not_dialled();
    daemon.limit_descriptors(1024);
    let mut socket = WebSocket::to(&daemon, guest.port());
    echo(guest.accept());
    socket.send("again");
    assert_eq!(socket.take(5), b"again");
}

fn a_tunnel_that_moves_much_does_not_grow_the_daemon(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let guest = Guest::new();
    let mut socket = WebSocket::to(&daemon, guest.port());
    echo(guest.accept());
    let resident = || {
        let line = status(daemon.pid(), "VmRSS");
        let number = line
            .split_whitespace()
            .next()
            .and_then(|word| word.parse::<u64>().ok());
        number.expect("a number of KiB")
    };
    let block = vec![3; 4 << 20];
    let mut turn = || {
        let sending = socket.connection.send_aside(frame(FINAL | BINARY, &block));
        assert!(socket.take(block.len()) == block);
        sending.join().expect("no panic").expect("all is taken");
    };
    turn();
    let before = resident();
    for _ in 0..16 {
        turn();
    }
    let after = resident();
    assert!(after < before + 8 * 1024, "{before} KiB became {after} KiB");
}
