//! Verified tunnels: who is let in, when the guest is dialled, and what reaches it (contract, section 8.1).

use std::io::Write;
use std::net::TcpStream;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ringd::tunnel::secure::{
    HostKeys, Initiator, MOST_MESSAGE, MOST_PLAIN, Protocol, READY, Session, TAG, public_key,
};
use serde_json::json;

use crate::daemon::{Daemon, Setup};
use crate::driver::Driver;
use crate::request::{Request, TOKEN};
use crate::scratch::noise;
use crate::websocket::{
    BINARY, CLOSE, CONTINUATION, FINAL, Guest, PING, PONG, TEXT, WebSocket, frame, read,
    read_to_end,
};

both![
    both_generations_are_relayed,
    much_goes_both_ways_at_once,
    a_wrong_caller_is_4403_and_causes_no_dial,
    a_first_frame_that_is_no_handshake_is_4403_and_causes_no_dial,
    a_caller_that_says_nothing_is_4403_and_causes_no_dial,
    a_handshake_for_another_port_is_refused,
    a_handshake_without_ready_causes_no_dial,
    a_port_without_a_service_is_4502_behind_the_handshake,
    a_message_may_come_in_several_frames,
    a_ping_is_answered_at_any_time,
    a_forged_message_ends_the_tunnel_and_reaches_nobody,
    a_replayed_message_ends_the_tunnel_and_reaches_nobody,
    text_ends_the_tunnel_and_reaches_nobody,
    a_message_that_is_too_long_ends_the_tunnel,
    the_end_of_the_stream_is_told_to_the_guest_and_its_answer_comes,
    the_end_of_the_guest_is_told_before_the_close_frame,
    a_close_frame_without_the_promised_end_resets_the_guest,
    a_caller_that_vanishes_without_the_promised_end_resets_the_guest,
    a_caller_that_vanishes_behind_its_end_does_not_reset_the_guest,
    the_keys_are_told_to_nobody,
];

const GUEST_SEED: [u8; 32] = [7; 32];
const HOST_PRIVATE: [u8; 32] = [9; 32];

/// A daemon that was launched with keys.
fn launched(setup: Setup) -> Daemon {
    let daemon = setup.start();
    let host = public_key(&HOST_PRIVATE).expect("a key");
    let payload = json!({
        "agent_token": TOKEN,
        "identity_seed": STANDARD.encode(GUEST_SEED),
        "identity_host_public_key": STANDARD.encode(host),
    });
    let request = Request::post("/aws/lambda-microvms/runtime/v1/run");
    let envelope = json!({"runHookPayload": payload.to_string()});
    daemon.call(&request.json(&envelope)).is(200);
    daemon
}

fn keys() -> HostKeys {
    HostKeys {
        private_key: HOST_PRIVATE,
        guest_public_key: public_key(&GUEST_SEED).expect("a key"),
    }
}

/// A tunnel whose ends know each other.
struct Verified {
    socket: WebSocket,
    session: Session,
}

fn begin(daemon: &Daemon, port: u16) -> WebSocket {
    WebSocket::open(daemon, format!("/v1/tcp?port={port}&identity=true"))
}

impl Verified {
    fn open(daemon: &Daemon, port: u16, protocol: Protocol) -> Self {
        let mut verified = Self::greeted(daemon, port, protocol);
        if verified.session.expects_ready() {
            verified.send(READY);
        }
        verified
    }

    /// The same before anything was sent behind the handshake.
    fn greeted(daemon: &Daemon, port: u16, protocol: Protocol) -> Self {
        let mut socket = begin(daemon, port);
        let (initiator, first) = Initiator::new(&keys(), protocol, port).expect("it can be built");
        socket.send(first);
        let session = initiator
            .finish(&socket.message())
            .expect("the guest is the right one");
        Self { socket, session }
    }

    fn seal(&mut self, plain: &[u8]) -> Vec<u8> {
        let mut sealed = vec![0; plain.len() + TAG];
        let length = self.session.seal(plain, &mut sealed).expect("it fits");
        sealed.truncate(length);
        sealed
    }

    fn send(&mut self, plain: &[u8]) {
        let sealed = self.seal(plain);
        self.socket.send(sealed);
    }

    /// Opens the next message; nothing at the end of the stream.
    fn message(&mut self) -> Vec<u8> {
        let sealed = self.socket.message();
        assert!(sealed.len() <= MOST_PLAIN + TAG, "{} bytes", sealed.len());
        let mut plain = vec![0; sealed.len()];
        let length = self
            .session
            .open(&sealed, &mut plain)
            .expect("it is the next message");
        plain.truncate(length);
        plain
    }

    fn take(&mut self, count: usize) -> Vec<u8> {
        let mut taken = Vec::new();
        while taken.len() < count {
            let message = self.message();
            assert!(
                !message.is_empty(),
                "the stream ended after {} bytes",
                taken.len()
            );
            taken.extend(message);
        }
        taken
    }
}

const GENERATIONS: [Protocol; 2] = [Protocol::First, Protocol::Second];

fn both_generations_are_relayed(driver: Driver) {
    let daemon = launched(Setup::new(driver));
    let guest = Guest::new();
    for protocol in GENERATIONS {
        let mut verified = Verified::open(&daemon, guest.port(), protocol);
        let mut service = guest.accept();
        for size in [1, 2, 100, 32_768, MOST_MESSAGE - TAG] {
            let plain = noise(size);
            verified.send(&plain);
            assert!(read(&mut service, size) == plain, "{size} bytes");
            service.write_all(&plain).expect("the daemon reads");
            assert!(verified.take(size) == plain, "{size} bytes back");
        }
    }
}

fn much_goes_both_ways_at_once(driver: Driver) {
    let daemon = launched(Setup::new(driver));
    let guest = Guest::new();
    let content = noise(4 << 20);
    let mut verified = Verified::open(&daemon, guest.port(), Protocol::Second);
    let service = guest.accept();
    let mut writer = service.try_clone().expect("a socket can be duplicated");
    let outward = content.clone();
    let writing = std::thread::spawn(move || writer.write_all(&outward));
    let reading = std::thread::spawn(move || {
        let mut service = service;
        read(&mut service, 4 << 20)
    });
    let mut stream = Vec::new();
    for part in content.chunks(50_000) {
        stream.extend(frame(FINAL | BINARY, &verified.seal(part)));
    }
    let sending = verified.socket.connection.send_aside(stream);
    assert!(verified.take(content.len()) == content);
    assert!(reading.join().expect("no panic") == content);
    sending.join().expect("no panic").expect("all is taken");
    writing.join().expect("no panic").expect("all is taken");
}

const REFUSED: &str = "identity handshake refused: wrong pin or wrong caller";

fn a_wrong_caller_is_4403_and_causes_no_dial(driver: Driver) {
    let daemon = launched(Setup::new(driver));
    let guest = Guest::new();
    let wrong_caller = HostKeys {
        private_key: [8; 32],
        ..keys()
    };
    let wrong_pin = HostKeys {
        guest_public_key: public_key(&[6; 32]).expect("a key"),
        ..keys()
    };
    for keys in [wrong_caller, wrong_pin] {
        for protocol in GENERATIONS {
            let made = Initiator::new(&keys, protocol, guest.port());
            let (_, first) = made.expect("it can be built");
            let mut socket = begin(&daemon, guest.port());
            socket.send(first);
            socket.parts(4403, REFUSED);
        }
    }
    guest.was_not_dialled();
}

fn a_first_frame_that_is_no_handshake_is_4403_and_causes_no_dial(driver: Driver) {
    let daemon = launched(Setup::new(driver));
    let guest = Guest::new();
    let made = Initiator::new(&keys(), Protocol::First, guest.port());
    let (_, first) = made.expect("it can be built");
    for bytes in [
        frame(FINAL | BINARY, b""),
        frame(FINAL | BINARY, b"GET / HTTP/1.1\r\n\r\n"),
        frame(FINAL | BINARY, &noise(60_000)),
        frame(FINAL | BINARY, &first[..first.len() - 1]),
        frame(FINAL | TEXT, &first),
        frame(FINAL | CLOSE, b""),
    ] {
        let mut socket = begin(&daemon, guest.port());
        socket.connection.send(bytes);
        socket.parts(4403, REFUSED);
    }
    // A caller that vanishes instead is not waited for.
    drop(begin(&daemon, guest.port()));
    guest.was_not_dialled();
}

fn a_caller_that_says_nothing_is_4403_and_causes_no_dial(driver: Driver) {
    let daemon = launched(Setup::new(driver).flag("--head-timeout", "0.5"));
    let guest = Guest::new();
    let mut socket = begin(&daemon, guest.port());
    socket.connection.send(frame(BINARY, b"half a mess"));
    socket.parts(4403, REFUSED);
    guest.was_not_dialled();
}

fn a_handshake_for_another_port_is_refused(driver: Driver) {
    let daemon = launched(Setup::new(driver));
    let guest = Guest::new();
    let other = guest.port() ^ 1;
    let made = Initiator::new(&keys(), Protocol::Second, other);
    let (_, first) = made.expect("it can be built");
    let mut socket = begin(&daemon, guest.port());
    socket.send(first);
    socket.parts(4403, REFUSED);
    guest.was_not_dialled();
}

fn a_handshake_without_ready_causes_no_dial(driver: Driver) {
    let daemon = launched(Setup::new(driver));
    let guest = Guest::new();
    let mut verified = Verified::greeted(&daemon, guest.port(), Protocol::Second);
    verified.send(b"not what was agreed");
    verified.socket.parts(4403, REFUSED);
    let mut verified = Verified::greeted(&daemon, guest.port(), Protocol::Second);
    verified.socket.send(noise(READY.len() + TAG));
    verified.socket.parts(4403, REFUSED);
    let mut verified = Verified::greeted(&daemon, guest.port(), Protocol::Second);
    verified.socket.close(1000);
    verified.socket.parts(4403, REFUSED);
    // A recorded handshake gets an answer that its thief cannot use, and nothing more.
    guest.was_not_dialled();
}

fn a_port_without_a_service_is_4502_behind_the_handshake(driver: Driver) {
    let daemon = launched(Setup::new(driver));
    let port = Guest::new().port();
    let verified = Verified::open(&daemon, port, Protocol::Second);
    let reason = format!("nothing is listening on 127.0.0.1:{port} in the guest");
    verified.socket.parts(4502, &reason);
}

fn a_message_may_come_in_several_frames(driver: Driver) {
    let daemon = launched(Setup::new(driver));
    let guest = Guest::new();
    let mut socket = begin(&daemon, guest.port());
    let made = Initiator::new(&keys(), Protocol::First, guest.port());
    let (initiator, first) = made.expect("it can be built");
    socket.connection.send(frame(BINARY, &first[..10]));
    socket
        .connection
        .send(frame(FINAL | CONTINUATION, &first[10..]));
    let session = initiator
        .finish(&socket.message())
        .expect("the guest is the right one");
    let mut verified = Verified { socket, session };
    let mut service = guest.accept();
    let plain = noise(60_000);
    let sealed = verified.seal(&plain);
    let (front, rest) = sealed.split_at(1);
    let (middle, back) = rest.split_at(40_000);
    for bytes in [
        frame(BINARY, front),
        frame(CONTINUATION, middle),
        frame(FINAL | PING, b"between"),
        frame(FINAL | CONTINUATION, back),
    ] {
        verified.socket.connection.send(bytes);
    }
    assert!(read(&mut service, plain.len()) == plain);
    assert_eq!(verified.socket.frame(), Ok((PONG, b"between".to_vec())));
}

fn a_ping_is_answered_at_any_time(driver: Driver) {
    let daemon = launched(Setup::new(driver));
    let guest = Guest::new();
    let mut socket = begin(&daemon, guest.port());
    socket.connection.send(frame(FINAL | PING, b"before"));
    assert_eq!(socket.frame(), Ok((PONG, b"before".to_vec())));
    let mut verified = Verified::open(&daemon, guest.port(), Protocol::Second);
    let _service = guest.accept();
    verified
        .socket
        .connection
        .send(frame(FINAL | PING, b"behind"));
    assert_eq!(verified.socket.frame(), Ok((PONG, b"behind".to_vec())));
}

/// A tunnel through which "good" has gone.
fn in_use(daemon: &Daemon, guest: &Guest) -> (Verified, TcpStream) {
    let mut verified = Verified::open(daemon, guest.port(), Protocol::Second);
    let mut service = guest.accept();
    verified.send(b"good");
    assert_eq!(read(&mut service, 4), b"good");
    (verified, service)
}

fn a_forged_message_ends_the_tunnel_and_reaches_nobody(driver: Driver) {
    let daemon = launched(Setup::new(driver));
    let guest = Guest::new();
    for at in [0, 5, 20] {
        let (mut verified, mut service) = in_use(&daemon, &guest);
        let mut sealed = verified.seal(b"bad");
        let last = sealed.len() - 1;
        sealed[at.min(last)] ^= 1;
        verified.socket.send(sealed);
        assert_eq!(read_to_end(&mut service), Err(Vec::new()), "byte {at}");
        verified.socket.parts(1008, "authenticate");
    }
    let (mut verified, mut service) = in_use(&daemon, &guest);
    verified.socket.send("plain");
    assert_eq!(read_to_end(&mut service), Err(Vec::new()));
    verified.socket.parts(1008, "authenticate");
}

fn a_replayed_message_ends_the_tunnel_and_reaches_nobody(driver: Driver) {
    let daemon = launched(Setup::new(driver));
    let guest = Guest::new();
    let (mut verified, mut service) = in_use(&daemon, &guest);
    let sealed = verified.seal(b"once");
    verified.socket.send(&sealed);
    assert_eq!(read(&mut service, 4), b"once");
    verified.socket.send(&sealed);
    assert_eq!(read_to_end(&mut service), Err(Vec::new()));
    verified.socket.parts(1008, "authenticate");
    // One that is left out is missed.
    let (mut verified, mut service) = in_use(&daemon, &guest);
    verified.seal(b"left out");
    verified.send(b"next");
    assert_eq!(read_to_end(&mut service), Err(Vec::new()));
    verified.socket.parts(1008, "authenticate");
}

fn text_ends_the_tunnel_and_reaches_nobody(driver: Driver) {
    let daemon = launched(Setup::new(driver));
    let guest = Guest::new();
    let (mut verified, mut service) = in_use(&daemon, &guest);
    let sealed = verified.seal(b"as text");
    verified
        .socket
        .connection
        .send(frame(FINAL | TEXT, &sealed));
    assert_eq!(read_to_end(&mut service), Err(Vec::new()));
    verified.socket.parts(1003, "binary");
}

fn a_message_that_is_too_long_ends_the_tunnel(driver: Driver) {
    let daemon = launched(Setup::new(driver));
    let guest = Guest::new();
    let (mut verified, mut service) = in_use(&daemon, &guest);
    verified.socket.send(noise(MOST_MESSAGE + 1));
    assert_eq!(read_to_end(&mut service), Err(Vec::new()));
    verified.socket.parts(1009, "too long");
    let (mut verified, mut service) = in_use(&daemon, &guest);
    verified
        .socket
        .connection
        .send(frame(BINARY, &noise(40_000)));
    verified
        .socket
        .connection
        .send(frame(FINAL | CONTINUATION, &noise(40_000)));
    assert_eq!(read_to_end(&mut service), Err(Vec::new()));
    verified.socket.parts(1009, "too long");
}

fn the_end_of_the_stream_is_told_to_the_guest_and_its_answer_comes(driver: Driver) {
    let daemon = launched(Setup::new(driver));
    let guest = Guest::new();
    for protocol in GENERATIONS {
        let mut verified = Verified::open(&daemon, guest.port(), protocol);
        let mut service = guest.accept();
        // In one piece, so that the end must not overtake what stands before it.
        let mut bytes = frame(FINAL | BINARY, &verified.seal(b"question"));
        bytes.extend(frame(FINAL | BINARY, &verified.seal(b"")));
        verified.socket.connection.send(bytes);
        assert_eq!(read_to_end(&mut service), Ok(b"question".to_vec()));
        service.write_all(b"answer").expect("the daemon reads");
        assert_eq!(verified.take(6), b"answer");
        drop(service);
        assert!(verified.message().is_empty(), "the end of the stream");
        verified.socket.parts(1000, "");
    }
}

fn the_end_of_the_guest_is_told_before_the_close_frame(driver: Driver) {
    let daemon = launched(Setup::new(driver));
    let guest = Guest::new();
    let (mut verified, mut service) = in_use(&daemon, &guest);
    service.write_all(b"that is all").expect("the daemon reads");
    drop(service);
    assert_eq!(verified.take(11), b"that is all");
    assert!(verified.message().is_empty(), "the end of the stream");
    verified.socket.parts(1000, "");
}

fn a_close_frame_without_the_promised_end_resets_the_guest(driver: Driver) {
    let daemon = launched(Setup::new(driver));
    let guest = Guest::new();
    let (mut verified, mut service) = in_use(&daemon, &guest);
    verified.socket.close(1000);
    assert_eq!(read_to_end(&mut service), Err(Vec::new()));
    verified.socket.parts(1000, "");
}

fn a_caller_that_vanishes_without_the_promised_end_resets_the_guest(driver: Driver) {
    let daemon = launched(Setup::new(driver));
    let guest = Guest::new();
    let (verified, mut service) = in_use(&daemon, &guest);
    drop(verified);
    assert_eq!(read_to_end(&mut service), Err(Vec::new()));
}

fn a_caller_that_vanishes_behind_its_end_does_not_reset_the_guest(driver: Driver) {
    let daemon = launched(Setup::new(driver));
    let guest = Guest::new();
    let (mut verified, mut service) = in_use(&daemon, &guest);
    verified.send(b"");
    drop(verified);
    assert_eq!(read_to_end(&mut service), Ok(Vec::new()));
}

fn the_keys_are_told_to_nobody(driver: Driver) {
    let daemon = launched(Setup::new(driver).flag("--log", "trace"));
    let guest = Guest::new();
    drop(in_use(&daemon, &guest));
    let host = public_key(&HOST_PRIVATE).expect("a key");
    let said = [daemon.stderr().join("\n"), daemon.health().to_string()].concat();
    for key in [GUEST_SEED, host] {
        assert!(!said.contains(&STANDARD.encode(key)));
        assert!(!said.contains(&format!("{key:?}")));
    }
}
