//! How a tunnel ends: every row of the table of close codes, and what either side still gets (contract, section 8).

use std::io::{Read, Write};
use std::net::Shutdown;
use std::time::Duration;

use rustix::process::Signal;

use crate::daemon::{Daemon, Setup};
use crate::driver::Driver;
use crate::process::wait_until;
use crate::scratch::noise;
use crate::websocket::{
    BINARY, CLOSE, CONTINUATION, FINAL, Guest, PING, TEXT, WebSocket, echo, frame, read,
    read_to_end,
};

both![
    port_zero_is_4400,
    a_guest_without_keys_is_4401,
    a_port_without_a_service_is_4502,
    a_service_that_does_not_accept_is_4502,
    a_guest_that_resets_is_4500,
    a_guest_that_ends_is_1000_behind_its_last_byte,
    a_guest_that_has_said_all_still_gets_what_is_under_way,
    a_client_that_closes_is_answered_1000,
    a_close_frame_without_a_code_is_answered_1000,
    a_client_that_closes_still_gets_the_answer,
    a_guest_that_ignores_the_end_is_let_go,
    what_a_client_must_not_send_is_a_protocol_error,
    a_reason_that_is_no_text_is_1007,
    what_came_before_a_violation_is_relayed,
    a_client_that_vanishes_ends_the_guests_connection,
    a_client_that_only_stops_sending_has_vanished,
    what_a_client_sent_before_it_vanished_arrives_at_a_guest_that_talks_on,
    a_guest_that_takes_nothing_for_too_long_is_4500,
    a_client_that_takes_nothing_for_too_long_is_let_go,
    a_drain_ends_an_idle_tunnel_with_1001,
    a_drain_lets_a_tunnel_that_is_in_use_go_on_for_its_time,
    a_drain_that_has_time_ends_an_idle_tunnel_early,
];

fn port_zero_is_4400(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let reason = "port 0 cannot be dialled; name the guest port to relay to";
    WebSocket::to(&daemon, 0).parts(4400, reason);
    WebSocket::open(&daemon, "/v1/tcp?port=0&identity=1").parts(4400, reason);
}

fn a_guest_without_keys_is_4401(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let guest = Guest::new();
    for yes in ["1", "true"] {
        let target = format!("/v1/tcp?port={}&identity={yes}", guest.port());
        WebSocket::open(&daemon, target).parts(4401, "launched without an identity seed");
    }
    guest.was_not_dialled();
    for no in ["0", "false"] {
        let target = format!("/v1/tcp?port={}&identity={no}", guest.port());
        let mut socket = WebSocket::open(&daemon, target);
        socket.send("plain");
        assert_eq!(read(&mut guest.accept(), 5), b"plain");
    }
}

fn a_port_without_a_service_is_4502(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let guest = Guest::new();
    let port = guest.port();
    drop(guest);
    let mut socket = WebSocket::to(&daemon, port);
    // What is sent meanwhile does not keep the reason from arriving.
    socket.send(noise(100_000));
    let reason = format!("nothing is listening on 127.0.0.1:{port} in the guest");
    let parting = socket.parting();
    assert_eq!((parting.code, parting.reason), (4502, reason));
    socket.close(1000);
    socket.connection.is_closed();
}

fn a_service_that_does_not_accept_is_4502(driver: Driver) {
    let daemon = Daemon::ready(driver);
    // A socket that listens with a backlog of nothing, and somebody who waits in it, drops every further call.
    let listener = rustix::net::socket(
        rustix::net::AddressFamily::INET,
        rustix::net::SocketType::STREAM,
        None,
    )
    .expect("a socket");
    let any = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
    rustix::net::bind(&listener, &any).expect("a free port");
    rustix::net::listen(&listener, 0).expect("it is bound");
    let bound = rustix::net::getsockname(&listener).expect("it is bound");
    let bound = std::net::SocketAddr::try_from(bound).expect("an address");
    let brief = Duration::from_millis(200);
    let waiting = |_| std::net::TcpStream::connect_timeout(&bound, brief).ok();
    let _held: Vec<_> = (0..3).map_while(waiting).collect();
    WebSocket::to(&daemon, bound.port()).parts(4502, &bound.port().to_string());
}

fn a_guest_that_resets_is_4500(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let guest = Guest::new();
    let socket = WebSocket::to(&daemon, guest.port());
    let service = guest.accept();
    rustix::net::sockopt::set_socket_linger(&service, Some(Duration::ZERO)).expect("a TCP socket");
    drop(service);
    let data = socket.parts(4500, "the guest connection failed mid-relay");
    assert!(data.is_empty());
    // However early it does so: it was there.
    for _ in 0..50 {
        let socket = WebSocket::to(&daemon, guest.port());
        let service = guest.accept();
        rustix::net::sockopt::set_socket_linger(&service, Some(Duration::ZERO)).expect("TCP");
        drop(service);
        socket.parts(4500, "the guest connection failed mid-relay");
    }
}

fn a_guest_that_ends_is_1000_behind_its_last_byte(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let guest = Guest::new();
    let socket = WebSocket::to(&daemon, guest.port());
    let mut service = guest.accept();
    let content = noise(5_000_000);
    let outward = content.clone();
    let writing = std::thread::spawn(move || service.write_all(&outward));
    assert!(socket.parts(1000, "") == content);
    writing.join().expect("no panic").expect("all is taken");
}

fn a_guest_that_has_said_all_still_gets_what_is_under_way(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let guest = Guest::new();
    let mut socket = WebSocket::to(&daemon, guest.port());
    let mut service = guest.accept();
    service.write_all(b"that is all").expect("the daemon reads");
    service.shutdown(Shutdown::Write).expect("it is connected");
    let parting = socket.parting();
    assert_eq!(
        (parting.code, &parting.data[..]),
        (1000, &b"that is all"[..])
    );
    // Sent before the client has read the close frame, as far as anybody can tell.
    socket.send("but this");
    socket.close(1000);
    assert_eq!(read_to_end(&mut service), Ok(b"but this".to_vec()));
    socket.connection.is_closed();
}

fn a_client_that_closes_is_answered_1000(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let guest = Guest::new();
    for code in [1000, 1001, 3000, 4999] {
        let mut socket = WebSocket::to(&daemon, guest.port());
        let mut service = guest.accept();
        socket.send("the last");
        socket.close(code);
        assert_eq!(read_to_end(&mut service), Ok(b"the last".to_vec()));
        drop(service);
        let parting = socket.parting();
        assert_eq!((parting.code, parting.reason.as_str()), (1000, ""));
        socket.connection.is_closed();
    }
}

fn a_close_frame_without_a_code_is_answered_1000(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let guest = Guest::new();
    let mut socket = WebSocket::to(&daemon, guest.port());
    echo(guest.accept());
    socket.connection.send(frame(FINAL | CLOSE, b""));
    socket.parts(1000, "");
}

fn a_client_that_closes_still_gets_the_answer(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let guest = Guest::new();
    let mut socket = WebSocket::to(&daemon, guest.port());
    let mut service = guest.accept();
    socket.send("question");
    socket.close(1000);
    // The service answers when it has seen the end of the question.
    assert_eq!(read_to_end(&mut service), Ok(b"question".to_vec()));
    let answer = noise(2_000_000);
    let outward = answer.clone();
    let writing = std::thread::spawn(move || service.write_all(&outward));
    let parting = socket.parting();
    assert_eq!(parting.code, 1000);
    assert!(parting.data == answer);
    socket.connection.is_closed();
    writing.join().expect("no panic").expect("all is taken");
}

fn a_guest_that_ignores_the_end_is_let_go(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let guest = Guest::new();
    let mut socket = WebSocket::to(&daemon, guest.port());
    let mut service = guest.accept();
    socket.close(1000);
    assert_eq!(read_to_end(&mut service), Ok(Vec::new()));
    let parting = socket.parting();
    assert_eq!((parting.code, parting.reason.as_str()), (1000, ""));
    socket.connection.is_closed();
}

fn what_a_client_must_not_send_is_a_protocol_error(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let guest = Guest::new();
    let unmasked = vec![FINAL | BINARY, 1, b'x'];
    let inside = [frame(BINARY, b""), frame(FINAL | TEXT, b"x")].concat();
    for (what, bytes, reason) in [
        ("unmasked", unmasked, "masked"),
        (
            "reserved bit",
            frame(FINAL | 0x40 | BINARY, b"x"),
            "reserved bit",
        ),
        ("reserved opcode", frame(FINAL | 3, b"x"), "opcode"),
        ("reserved control", frame(FINAL | 0xb, b"x"), "opcode"),
        ("fragmented ping", frame(PING, b"x"), "fragmented"),
        ("long ping", frame(FINAL | PING, &[0; 126]), "125"),
        (
            "continuation of nothing",
            frame(FINAL | CONTINUATION, b"x"),
            "continued",
        ),
        ("message in a message", inside, "inside"),
        ("half a code", frame(FINAL | CLOSE, b"x"), "half"),
        (
            "code 1006",
            frame(FINAL | CLOSE, &1006u16.to_be_bytes()),
            "nobody",
        ),
    ] {
        let mut socket = WebSocket::to(&daemon, guest.port());
        let mut service = guest.accept();
        socket.connection.send(bytes);
        assert_eq!(read_to_end(&mut service), Ok(Vec::new()), "{what}");
        socket.parts(1002, reason);
    }
}

fn a_reason_that_is_no_text_is_1007(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let guest = Guest::new();
    let mut socket = WebSocket::to(&daemon, guest.port());
    let _service = guest.accept();
    socket
        .connection
        .send(frame(FINAL | CLOSE, b"\x03\xe8\xff\xff"));
    socket.parts(1007, "UTF-8");
}

fn what_came_before_a_violation_is_relayed(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let guest = Guest::new();
    let mut socket = WebSocket::to(&daemon, guest.port());
    let mut service = guest.accept();
    let bytes = [frame(FINAL | BINARY, b"good"), frame(FINAL | 3, b"bad")];
    socket.connection.send(bytes.concat());
    assert_eq!(read_to_end(&mut service), Ok(b"good".to_vec()));
    socket.parts(1002, "opcode");
}

fn a_client_that_vanishes_ends_the_guests_connection(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let guest = Guest::new();
    let mut socket = WebSocket::to(&daemon, guest.port());
    let mut service = guest.accept();
    socket.send("last words");
    drop(socket);
    assert_eq!(read_to_end(&mut service), Ok(b"last words".to_vec()));
    let socket = WebSocket::to(&daemon, guest.port());
    let mut service = guest.accept();
    socket.connection.reset();
    assert_eq!(read_to_end(&mut service), Ok(Vec::new()));
}

fn a_client_that_only_stops_sending_has_vanished(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let guest = Guest::new();
    let mut socket = WebSocket::to(&daemon, guest.port());
    let mut service = guest.accept();
    socket.send("no close frame");
    socket.connection.finish();
    assert_eq!(read_to_end(&mut service), Ok(b"no close frame".to_vec()));
    socket.connection.is_closed();
}

fn what_a_client_sent_before_it_vanished_arrives_at_a_guest_that_talks_on(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let guest = Guest::new();
    let mut socket = WebSocket::to(&daemon, guest.port());
    let mut service = guest.accept();
    let mut talker = service.try_clone().expect("a descriptor");
    let talking = std::thread::spawn(move || while talker.write_all(&[0; 65536]).is_ok() {});
    let sent = noise(3_000_000);
    let sending = socket.connection.send_aside(frame(FINAL | BINARY, &sent));
    let mut received = read(&mut service, sent.len() / 2);
    sending.join().expect("it ends").expect("the daemon reads");
    socket.connection.finish();
    received.extend(read_to_end(&mut service).expect("an end, not a reset"));
    assert!(received == sent, "{} bytes have come", received.len());
    service.shutdown(Shutdown::Both).expect("it is open");
    talking.join().expect("it ends");
}

fn a_guest_that_takes_nothing_for_too_long_is_4500(driver: Driver) {
    let daemon = Setup::new(driver).flag("--body-timeout", "0.5").ready();
    let guest = Guest::new();
    let mut socket = WebSocket::to(&daemon, guest.port());
    let _service = guest.accept();
    let sending = socket
        .connection
        .send_aside(frame(FINAL | BINARY, &vec![1; 64 << 20]));
    let parting = socket.parting();
    assert_eq!(parting.code, 4500);
    drop(socket);
    let _ = sending.join();
}

fn a_client_that_takes_nothing_for_too_long_is_let_go(driver: Driver) {
    let daemon = Setup::new(driver).flag("--body-timeout", "0.5").ready();
    let guest = Guest::new();
    let _socket = WebSocket::to(&daemon, guest.port());
    let mut service = guest.accept();
    let refused = service.write_all(&vec![1; 64 << 20]);
    refused.expect_err("nobody reads it");
}

fn is_draining(daemon: &Daemon) {
    wait_until("the daemon drains", || {
        daemon.stderr().iter().any(|line| line.contains("draining"))
    });
}

fn a_drain_ends_an_idle_tunnel_with_1001(driver: Driver) {
    let mut daemon = Setup::new(driver).flag("--drain-timeout", "1").ready();
    let guest = Guest::new();
    let socket = WebSocket::to(&daemon, guest.port());
    let mut service = guest.accept();
    daemon.signal(Signal::TERM);
    socket.parts(1001, "shutting down");
    assert_eq!(read_to_end(&mut service), Ok(Vec::new()));
    assert_eq!(daemon.wait().code(), Some(0));
}

fn a_drain_lets_a_tunnel_that_is_in_use_go_on_for_its_time(driver: Driver) {
    let mut daemon = Setup::new(driver).flag("--drain-timeout", "3").ready();
    let guest = Guest::new();
    let mut socket = WebSocket::to(&daemon, guest.port());
    echo(guest.accept());
    daemon.signal(Signal::TERM);
    is_draining(&daemon);
    for _ in 0..100 {
        socket.send("still here");
        assert_eq!(socket.take(10), b"still here");
    }
    socket.parts(1001, "shutting down");
    assert_eq!(daemon.wait().code(), Some(0));
}

fn a_drain_that_has_time_ends_an_idle_tunnel_early(driver: Driver) {
    let mut daemon = Setup::new(driver).flag("--drain-timeout", "3600").ready();
    let guest = Guest::new();
    let socket = WebSocket::to(&daemon, guest.port());
    let mut service = guest.accept();
    daemon.signal(Signal::TERM);
    socket.parts(1001, "shutting down");
    let mut rest = Vec::new();
    assert_eq!(service.read_to_end(&mut rest).expect("an end"), 0);
    assert_eq!(daemon.wait().code(), Some(0));
}
