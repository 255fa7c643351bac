//! What goes through a tunnel: every byte, in order, at the pace of whoever takes it.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::daemon::{Daemon, Setup};
use crate::driver::Driver;
use crate::process::{comes_true, wait_until};
use crate::scratch::noise;
use crate::websocket::{
    BINARY, CLOSE, CONTINUATION, FINAL, Guest, PING, PONG, TEXT, WebSocket, echo, frame, head,
    masked, read, read_to_end,
};

both![
    every_frame_size_comes_back,
    a_fragmented_message_with_control_frames_between_is_relayed,
    text_is_relayed_as_bytes,
    frames_are_relayed_wherever_they_are_cut,
    a_large_frame_is_relayed_as_it_arrives,
    many_small_frames_in_one_piece_are_relayed,
    both_directions_flow_at_once,
    a_message_to_the_client_has_64_kib_at_most,
    a_ping_is_answered_while_the_guest_is_silent,
    a_ping_is_answered_between_two_messages,
    a_guest_that_does_not_read_holds_the_client_back,
    a_client_that_does_not_read_holds_the_guest_back,
    tunnels_do_not_disturb_each_other,
    an_idle_timeout_does_not_end_a_tunnel,
];

fn every_frame_size_comes_back(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let guest = Guest::new();
    let mut socket = WebSocket::to(&daemon, guest.port());
    echo(guest.accept());
    for size in [
        0,
        1,
        2,
        125,
        126,
        127,
        128,
        65_535,
        65_536,
        65_537,
        262_144,
        262_145,
        1 << 20,
    ] {
        let sent = noise(size);
        socket.send(&sent);
        assert!(socket.take(size) == sent, "{size} bytes");
    }
}

fn a_fragmented_message_with_control_frames_between_is_relayed(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let guest = Guest::new();
    let mut socket = WebSocket::to(&daemon, guest.port());
    let mut service = guest.accept();
    let frames = [
        frame(BINARY, b"one "),
        frame(FINAL | PING, b"there?"),
        frame(CONTINUATION, b""),
        frame(FINAL | PONG, b"nobody asked"),
        frame(CONTINUATION, b"message "),
        frame(FINAL | CONTINUATION, b"in parts"),
        frame(FINAL | BINARY, b", one whole"),
    ];
    socket.connection.send(frames.concat());
    assert_eq!(read(&mut service, 31), b"one message in parts, one whole");
    assert_eq!(socket.frame(), Ok((PONG, b"there?".to_vec())));
}

fn text_is_relayed_as_bytes(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let guest = Guest::new();
    let mut socket = WebSocket::to(&daemon, guest.port());
    let mut service = guest.accept();
    socket
        .connection
        .send(frame(FINAL | TEXT, "grüß".as_bytes()));
    socket.connection.send(frame(FINAL | TEXT, b"\xff\xfe\x00"));
    assert_eq!(read(&mut service, 9), b"gr\xc3\xbc\xc3\x9f\xff\xfe\x00");
    // What the guest says is binary whatever it is.
    service.write_all(b"text").expect("the daemon reads");
    assert_eq!(socket.message(), b"text");
}

fn frames_are_relayed_wherever_they_are_cut(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let guest = Guest::new();
    let mut socket = WebSocket::to(&daemon, guest.port());
    let mut service = guest.accept();
    let stream = [
        frame(FINAL | BINARY, b"abc"),
        frame(FINAL | PING, b"p"),
        frame(BINARY, &[b'd'; 130]),
        frame(FINAL | CONTINUATION, b"e"),
        frame(FINAL | CLOSE, b"\x03\xe8"),
    ];
    for byte in stream.concat() {
        socket.connection.send([byte]);
    }
    let got = read_to_end(&mut service).expect("an end in order");
    assert_eq!(got, [&b"abc"[..], &[b'd'; 130], b"e"].concat());
    drop(service);
    assert_eq!(socket.frame(), Ok((PONG, b"p".to_vec())));
    socket.parts(1000, "");
}

fn a_large_frame_is_relayed_as_it_arrives(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let guest = Guest::new();
    let mut socket = WebSocket::to(&daemon, guest.port());
    let mut service = guest.accept();
    let payload = noise(100_000);
    // Announced is more than anybody could keep.
    socket.connection.send(head(FINAL | BINARY, 1 << 40));
    let hidden = masked(&payload);
    for (part, plain) in hidden.chunks(33_333).zip(payload.chunks(33_333)) {
        socket.connection.send(part);
        assert!(read(&mut service, part.len()) == plain);
    }
}

fn many_small_frames_in_one_piece_are_relayed(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let guest = Guest::new();
    let socket = WebSocket::to(&daemon, guest.port());
    let mut service = guest.accept();
    let content = noise(30_000);
    let stream: Vec<u8> = content
        .chunks(3)
        .flat_map(|part| frame(FINAL | BINARY, part))
        .collect();
    let sending = socket.connection.send_aside(stream);
    assert!(read(&mut service, content.len()) == content);
    sending.join().expect("no panic").expect("all is taken");
}

fn both_directions_flow_at_once(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let guest = Guest::new();
    let mut socket = WebSocket::to(&daemon, guest.port());
    let service = guest.accept();
    let content = noise(24 << 20);
    let mut writer = service.try_clone().expect("a socket can be duplicated");
    let outward = content.clone();
    let writing = thread::spawn(move || writer.write_all(&outward));
    let reading = thread::spawn(move || {
        let mut service = service;
        read(&mut service, 24 << 20)
    });
    // Frames of many sizes, so that receives end anywhere in them.
    let mut stream = Vec::new();
    let mut rest = &content[..];
    let mut size = 1;
    while !rest.is_empty() {
        let (part, others) = rest.split_at(size.min(rest.len()));
        stream.extend(frame(FINAL | BINARY, part));
        rest = others;
        size = if size > 300_000 { 1 } else { size * 3 + 1 };
    }
    let sending = socket.connection.send_aside(stream);
    assert!(socket.take(content.len()) == content, "out of the guest");
    assert!(
        reading.join().expect("no panic") == content,
        "into the guest"
    );
    sending.join().expect("no panic").expect("all is taken");
    writing.join().expect("no panic").expect("all is taken");
}

fn a_message_to_the_client_has_64_kib_at_most(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let guest = Guest::new();
    let mut socket = WebSocket::to(&daemon, guest.port());
    let mut service = guest.accept();
    let content = noise(3_000_001);
    let outward = content.clone();
    let writing = thread::spawn(move || service.write_all(&outward));
    let mut got = Vec::new();
    while got.len() < content.len() {
        let message = socket.message();
        assert!(message.len() <= 65_536, "{} bytes", message.len());
        assert!(!message.is_empty(), "an empty message");
        got.extend(message);
    }
    assert!(got == content);
    writing.join().expect("no panic").expect("all is taken");
}

fn a_ping_is_answered_while_the_guest_is_silent(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let guest = Guest::new();
    let mut socket = WebSocket::to(&daemon, guest.port());
    let _service = guest.accept();
    for payload in [&b""[..], b"x", &[7; 125]] {
        socket.connection.send(frame(FINAL | PING, payload));
        assert_eq!(socket.frame(), Ok((PONG, payload.to_vec())));
    }
    // Of several at once only the last must be answered.
    let flood: Vec<u8> = (0..100u8).flat_map(|n| frame(FINAL | PING, &[n])).collect();
    socket.connection.send(flood);
    loop {
        let (opcode, payload) = socket.frame().expect("a pong");
        assert_eq!(opcode, PONG);
        if payload == [99] {
            return;
        }
    }
}

fn a_ping_is_answered_between_two_messages(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let guest = Guest::new();
    let mut socket = WebSocket::to(&daemon, guest.port());
    let mut service = guest.accept();
    let content = noise(40 << 20);
    let outward = content.clone();
    let writing = thread::spawn(move || service.write_all(&outward));
    socket.connection.send(frame(FINAL | PING, b"now"));
    let mut got = Vec::new();
    let mut pongs = 0;
    while got.len() < content.len() {
        match socket.frame().expect("a frame") {
            (BINARY, payload) => got.extend(payload),
            (PONG, payload) => {
                assert_eq!(payload, b"now");
                pongs += 1;
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(got == content);
    assert_eq!(pongs, 1);
    writing.join().expect("no panic").expect("all is taken");
}

/// Waits until a count no longer grows, and tells it.
fn settled(count: &AtomicUsize) -> usize {
    let mut last = (0, 0);
    let at_rest = comes_true(|| {
        let now = count.load(Ordering::Relaxed);
        last = if now == last.0 {
            (now, last.1 + 1)
        } else {
            (now, 0)
        };
        last.1 == 300
    });
    assert!(at_rest, "it never stops");
    last.0
}

/// Writes in a thread of its own, piece by piece, and counts what was taken.
fn counted(mut to: impl Write + Send + 'static, bytes: Vec<u8>) -> Arc<AtomicUsize> {
    let count = Arc::new(AtomicUsize::new(0));
    let taken = Arc::clone(&count);
    thread::spawn(move || {
        for piece in bytes.chunks(64 * 1024) {
            if to.write_all(piece).is_err() {
                return;
            }
            taken.fetch_add(piece.len(), Ordering::Relaxed);
        }
    });
    count
}

/// More than two connections hold in their buffers, and much less than is sent.
const HELD: usize = 48 << 20;
const SENT: usize = 96 << 20;

fn a_guest_that_does_not_read_holds_the_client_back(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let guest = Guest::new();
    let socket = WebSocket::to(&daemon, guest.port());
    let mut service = guest.accept();
    let payload = vec![0x55; SENT];
    let stream = frame(FINAL | BINARY, &payload);
    let count = counted(socket.connection.writer(), stream);
    let taken = settled(&count);
    assert!(taken < HELD, "{taken} bytes were taken");
    assert!(read(&mut service, SENT) == payload, "all of it comes");
}

fn a_client_that_does_not_read_holds_the_guest_back(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let guest = Guest::new();
    let mut socket = WebSocket::to(&daemon, guest.port());
    let service = guest.accept();
    let count = counted(service, vec![0x55; SENT]);
    let taken = settled(&count);
    assert!(taken < HELD, "{taken} bytes were taken");
    let mut got = 0;
    while got < SENT {
        let message = socket.message();
        assert!(message.iter().all(|byte| *byte == 0x55));
        got += message.len();
    }
    assert_eq!(got, SENT);
    socket.parts(1000, "");
}

fn tunnels_do_not_disturb_each_other(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let guest = Guest::new();
    // One whose guest does not read, and one whose client does not.
    let deaf = WebSocket::to(&daemon, guest.port());
    let _unread = guest.accept();
    counted(
        deaf.connection.writer(),
        frame(FINAL | BINARY, &vec![1; 32 << 20]),
    );
    let _stalled = WebSocket::to(&daemon, guest.port());
    counted(guest.accept(), vec![2; 32 << 20]);
    let mut sockets: Vec<WebSocket> = Vec::new();
    for _ in 0..20 {
        sockets.push(WebSocket::to(&daemon, guest.port()));
        echo(guest.accept());
    }
    for (number, socket) in sockets.iter_mut().enumerate() {
        socket.send(format!("tunnel {number:03}"));
    }
    for (number, socket) in sockets.iter_mut().enumerate() {
        assert_eq!(socket.take(10), format!("tunnel {number:03}").as_bytes());
    }
    daemon.health();
}

fn an_idle_timeout_does_not_end_a_tunnel(driver: Driver) {
    let daemon = Setup::new(driver)
        .flag("--idle-timeout", "0.2")
        .flag("--body-timeout", "0.2")
        .flag("--head-timeout", "0.2")
        .ready();
    let guest = Guest::new();
    let mut socket = WebSocket::to(&daemon, guest.port());
    echo(guest.accept());
    // An idle connection that was opened later has been closed: the time has passed.
    let mut idle = daemon.connect();
    idle.is_closed();
    wait_until("an ordinary connection was closed twice over", || {
        daemon.connect().rest().0.is_empty()
    });
    socket.send("still there");
    assert_eq!(socket.take(11), b"still there");
}
