//! The tunnel of `baseline axum`: a port of this machine through a WebSocket.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread::JoinHandle;

use tungstenite::client::IntoClientRequest;
use tungstenite::{Message, WebSocket};

use crate::client::noise;
use crate::peer::{Peer, TOKEN};

/// Takes one connection and hands it to `talk`.
pub(crate) fn listen(talk: impl FnOnce(TcpStream) + Send + 'static) -> (u16, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let thread = std::thread::spawn(move || talk(listener.accept().expect("a connection").0));
    (port, thread)
}

/// Sends everything back until the peer has ended, then ends too.
pub(crate) fn echo(mut stream: TcpStream) {
    let mut buffer = [0; 5000];
    while let Ok(count @ 1..) = stream.read(&mut buffer) {
        if stream.write_all(&buffer[..count]).is_err() {
            return;
        }
    }
    // The peer may be gone.
    let _ = stream.shutdown(Shutdown::Both);
}

fn open(peer: &Peer, port: u16) -> WebSocket<TcpStream> {
    let url = format!("ws://{}/v1/tcp?port={port}", peer.address);
    let mut request = url.into_client_request().expect("a request");
    let credential = format!("Bearer {TOKEN}").parse().expect("a value");
    request.headers_mut().insert("authorization", credential);
    let stream = peer.client().stream.into_inner();
    tungstenite::client(request, stream)
        .expect("it is upgraded")
        .0
}

fn read_binary(socket: &mut WebSocket<TcpStream>, length: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while bytes.len() < length {
        match socket.read().expect("a frame") {
            Message::Binary(more) => bytes.extend_from_slice(&more),
            other => panic!("{other:?} after {} bytes", bytes.len()),
        }
    }
    bytes
}

fn close_code(socket: &mut WebSocket<TcpStream>) -> (u16, String) {
    match socket.read().expect("a frame") {
        Message::Close(Some(frame)) => (frame.code.into(), frame.reason.to_string()),
        other => panic!("{other:?} instead of a close"),
    }
}

#[test]
fn bytes_go_both_ways_through_the_tunnel() {
    let (port, server) = listen(echo);
    let peer = Peer::axum();
    let mut socket = open(&peer, port);
    for length in [1, 3000, 100_000] {
        let bytes = noise(length);
        socket
            .send(Message::binary(bytes.clone()))
            .expect("a frame");
        assert!(
            read_binary(&mut socket, length) == bytes,
            "{length} bytes differ"
        );
    }
    socket.close(None).expect("a close");
    server.join().expect("the server saw the end");
}

#[test]
fn both_directions_move_while_nobody_reads_first() {
    let length = 8 << 20;
    let (port, server) = listen(move |mut stream| {
        // Neither side reads before it has written more than sockets hold.
        stream.write_all(&noise(length)).expect("a write");
        let mut bytes = vec![0; length];
        stream.read_exact(&mut bytes).expect("a read");
        assert!(bytes == noise(length));
    });
    let peer = Peer::axum();
    let mut socket = open(&peer, port);
    let stream = socket.get_ref().try_clone().expect("a socket");
    let mut writer = WebSocket::from_raw_socket(stream, tungstenite::protocol::Role::Client, None);
    let sending = std::thread::spawn(move || {
        for part in noise(length).chunks(64 << 10) {
            writer
                .send(Message::binary(part.to_vec()))
                .expect("a frame");
        }
    });
    assert!(read_binary(&mut socket, length) == noise(length));
    sending.join().expect("all was sent");
    server.join().expect("all was received");
    assert_eq!(close_code(&mut socket), (1000, String::new()));
}

#[test]
fn an_end_of_the_server_closes_the_tunnel() {
    let (port, server) = listen(|mut stream| stream.write_all(b"bye").expect("a write"));
    let peer = Peer::axum();
    let mut socket = open(&peer, port);
    assert_eq!(read_binary(&mut socket, 3), b"bye");
    assert_eq!(close_code(&mut socket), (1000, String::new()));
    server.join().expect("it has ended");
}

#[test]
fn a_port_that_cannot_be_dialled_is_told_as_a_close() {
    let peer = Peer::axum();
    assert_eq!(close_code(&mut open(&peer, 0)).0, 4400);
    let free = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = free.local_addr().expect("an address").port();
    drop(free);
    let (code, reason) = close_code(&mut open(&peer, port));
    assert_eq!(code, 4502);
    assert!(reason.contains(&port.to_string()), "{reason}");
}
