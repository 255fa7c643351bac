//! Verified tunnels and somebody who has the token and recordings of other tunnels: nothing of them reaches a service.

use std::io::Read;
use std::net::TcpStream;

use ringd::tunnel::secure::{HostKeys, Initiator, Protocol, READY, Session, TAG, public_key};

use crate::carrier::bootstrap_with_keys;
use crate::daemon::Daemon;
use crate::driver::Driver;
use crate::websocket::{Guest, WebSocket, read_to_end};

both![
    a_message_out_of_order_reaches_nobody,
    a_message_that_was_cut_reaches_nobody,
    a_message_of_another_tunnel_reaches_nobody,
    a_recorded_handshake_causes_no_dial,
    a_recorded_first_handshake_carries_nothing,
];

const BOTH: [Protocol; 2] = [Protocol::First, Protocol::Second];

/// A guest with keys, and a service in it.
struct Place {
    daemon: Daemon,
    guest: Guest,
}

/// A verified tunnel whose messages a test makes.
struct Tunnel {
    socket: WebSocket,
    session: Session,
    /// The messages that have opened it.
    sent: Vec<Vec<u8>>,
}

impl Place {
    fn new(driver: Driver) -> Self {
        let daemon = Daemon::start(driver);
        bootstrap_with_keys(&daemon);
        Self {
            daemon,
            guest: Guest::new(),
        }
    }

    #[track_caller]
    fn asked(&self) -> WebSocket {
        let port = self.guest.port();
        WebSocket::open(&self.daemon, format!("/v1/tcp?port={port}&identity=true"))
    }

    /// A tunnel that is open, and the service's end of it.
    #[track_caller]
    fn opened(&self, protocol: Protocol) -> (Tunnel, TcpStream) {
        let keys = HostKeys {
            private_key: [9; 32],
            guest_public_key: public_key(&[7; 32]).expect("X25519 is there"),
        };
        let (initiator, first) =
            Initiator::new(&keys, protocol, self.guest.port()).expect("it can be built");
        let mut socket = self.asked();
        socket.send(&first);
        let session = initiator
            .finish(&socket.message())
            .expect("it is the guest");
        let mut tunnel = Tunnel {
            socket,
            session,
            sent: vec![first],
        };
        if tunnel.session.expects_ready() {
            let ready = tunnel.sealed(READY);
            tunnel.socket.send(&ready);
            tunnel.sent.push(ready);
        }
        (tunnel, self.guest.accept())
    }
}

impl Tunnel {
    fn sealed(&mut self, plain: &[u8]) -> Vec<u8> {
        let mut message = vec![0; plain.len() + TAG];
        let length = self.session.seal(plain, &mut message).expect("it fits");
        message.truncate(length);
        message
    }
}

/// Sends a good message, then what `forge` makes and another good one: the service hears the first, and a break.
#[track_caller]
fn is_not_heard(driver: Driver, forge: impl Fn(&mut Tunnel) -> Vec<u8>) {
    let place = Place::new(driver);
    for protocol in BOTH {
        let (mut tunnel, mut service) = place.opened(protocol);
        for message in [Tunnel::sealed(&mut tunnel, b"good"), forge(&mut tunnel)] {
            tunnel.socket.send(message);
        }
        let behind = tunnel.sealed(b"behind it");
        tunnel.socket.send(behind);
        assert_eq!(read_to_end(&mut service), Err(b"good".to_vec()));
        tunnel.socket.parts(1008, "authenticate");
    }
}

fn a_message_out_of_order_reaches_nobody(driver: Driver) {
    is_not_heard(driver, |tunnel| {
        let _left_out = tunnel.sealed(b"first");
        tunnel.sealed(b"second")
    });
}

fn a_message_that_was_cut_reaches_nobody(driver: Driver) {
    is_not_heard(driver, |tunnel| {
        let mut message = tunnel.sealed(b"evil");
        message.pop();
        message
    });
    is_not_heard(driver, |_| Vec::new());
}

fn a_message_of_another_tunnel_reaches_nobody(driver: Driver) {
    let place = Place::new(driver);
    for protocol in BOTH {
        let (mut other, _others) = place.opened(protocol);
        let (mut tunnel, mut service) = place.opened(protocol);
        tunnel.socket.send(other.sealed(b"evil"));
        assert_eq!(read_to_end(&mut service), Err(Vec::new()));
        tunnel.socket.parts(1008, "authenticate");
    }
}

fn a_recorded_handshake_causes_no_dial(driver: Driver) {
    let place = Place::new(driver);
    let (tunnel, _service) = place.opened(Protocol::Second);
    let mut again = place.asked();
    for message in &tunnel.sent {
        again.send(message);
    }
    again.message();
    again.parts(4403, "handshake");
    place.guest.was_not_dialled();
}

fn a_recorded_first_handshake_carries_nothing(driver: Driver) {
    let place = Place::new(driver);
    let (mut tunnel, mut service) = place.opened(Protocol::First);
    let order = tunnel.sealed(b"pay 100");
    tunnel.socket.send(&order);
    let mut heard = [0; 7];
    service.read_exact(&mut heard).expect("it is carried");
    // This generation has no word that proves the caller is there, so the guest dials; but it hears nothing.
    let mut again = place.asked();
    again.send(&tunnel.sent[0]);
    again.message();
    again.send(&order);
    let mut service = place.guest.accept();
    assert_eq!(read_to_end(&mut service), Err(Vec::new()));
    again.parts(1008, "authenticate");
}
