//! A WebSocket client and the guest's service behind it: frames out as they are asked for, frames in by the letter of RFC 6455.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::thread::{self, JoinHandle};

use crate::client::{Broken, Connection};
use crate::daemon::Daemon;
use crate::process::{PATIENCE, wait_until};
use crate::reply::Reply;
use crate::request::Request;

pub(crate) const FINAL: u8 = 0x80;
pub(crate) const CONTINUATION: u8 = 0;
pub(crate) const TEXT: u8 = 1;
pub(crate) const BINARY: u8 = 2;
pub(crate) const CLOSE: u8 = 8;
pub(crate) const PING: u8 = 9;
pub(crate) const PONG: u8 = 10;

/// The client's end of a tunnel.
pub(crate) struct WebSocket {
    pub(crate) connection: Connection,
}

/// How the daemon has ended a tunnel.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Parting {
    pub(crate) code: u16,
    pub(crate) reason: String,
    /// Payload of the binary messages before it.
    pub(crate) data: Vec<u8>,
}

/// A request that asks for a WebSocket as it should, with the token.
pub(crate) fn upgrade(target: impl Into<String>) -> Request {
    Request::get(target)
        .bearer()
        .field("connection", "Upgrade")
        .field("upgrade", "websocket")
        .field("sec-websocket-version", "13")
        .field("sec-websocket-key", KEY)
}

/// Checks a response that has become a WebSocket.
#[track_caller]
pub(crate) fn is_upgraded(reply: &Reply) {
    assert_eq!(reply.status, 101, "{reply:?}");
    assert_eq!(reply.field("connection"), Some("upgrade"));
    assert_eq!(reply.field("upgrade"), Some("websocket"));
    assert_eq!(reply.field("sec-websocket-accept"), Some(ACCEPT));
    assert_eq!(reply.field("sec-websocket-extensions"), None);
    assert_eq!(reply.field("content-length"), None);
    assert_eq!(
        reply.field("microvms-agentd-version"),
        Some(env!("CARGO_PKG_VERSION"))
    );
    assert!(reply.field("date").is_some(), "{reply:?}");
}

/// A client's frame; `first` is the opcode with the bits before it.
pub(crate) fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut out = head(first, payload.len());
    out.extend(masked(payload));
    out
}

/// The head of such a frame, with its mask.
pub(crate) fn head(first: u8, length: usize) -> Vec<u8> {
    let mut out = vec![first];
    match length {
        short @ ..126 => out.push(0x80 | u8::try_from(short).expect("it is short")),
        long @ ..65_536 => {
            out.push(0x80 | 126);
            out.extend(u16::try_from(long).expect("it fits").to_be_bytes());
        }
        huge => {
            out.push(0x80 | 127);
            out.extend((huge as u64).to_be_bytes());
        }
    }
    out.extend(MASK);
    out
}

/// The beginning of a payload as it is sent.
pub(crate) fn masked(payload: &[u8]) -> Vec<u8> {
    let pairs = payload.iter().zip(MASK.iter().cycle());
    pairs.map(|(byte, key)| byte ^ key).collect()
}

impl WebSocket {
    /// Opens a tunnel with the token.
    #[track_caller]
    pub(crate) fn open(daemon: &Daemon, target: impl Into<String>) -> Self {
        let mut connection = daemon.connect();
        connection.send(upgrade(target).bytes());
        is_upgraded(&connection.head().expect("a response"));
        Self { connection }
    }

    /// Opens a tunnel to a port.
    #[track_caller]
    pub(crate) fn to(daemon: &Daemon, port: u16) -> Self {
        Self::open(daemon, format!("/v1/tcp?port={port}"))
    }

    /// Sends one binary message.
    #[track_caller]
    pub(crate) fn send(&mut self, payload: impl AsRef<[u8]>) {
        self.connection
            .send(frame(FINAL | BINARY, payload.as_ref()));
    }

    /// Sends a close frame.
    #[track_caller]
    pub(crate) fn close(&mut self, code: u16) {
        self.connection
            .send(frame(FINAL | CLOSE, &code.to_be_bytes()));
    }

    /// Reads one frame: its opcode and its payload.
    pub(crate) fn frame(&mut self) -> Result<(u8, Vec<u8>), Broken> {
        let first = self.connection.take(2)?;
        assert_eq!(
            first[0] & 0xf0,
            FINAL,
            "a frame that is not whole: {first:?}"
        );
        assert_eq!(first[1] & 0x80, 0, "a masked frame");
        let length = match first[1] {
            126 => {
                let length = self.connection.take(2)?;
                let length = u16::from_be_bytes(length.try_into().expect("two bytes"));
                assert!(length >= 126, "a length that could be shorter");
                usize::from(length)
            }
            127 => {
                let length = self.connection.take(8)?;
                let length = u64::from_be_bytes(length.try_into().expect("eight bytes"));
                assert!(length >= 65_536, "a length that could be shorter");
                usize::try_from(length).expect("64 bits")
            }
            short => usize::from(short),
        };
        let payload = self.connection.take(length)?;
        Ok((first[0] & 0x0f, payload))
    }

    /// Reads one binary message.
    #[track_caller]
    pub(crate) fn message(&mut self) -> Vec<u8> {
        match self.frame() {
            Ok((BINARY, payload)) => payload,
            other => panic!("no binary message: {other:?}"),
        }
    }

    /// Reads this many bytes of binary messages.
    #[track_caller]
    pub(crate) fn take(&mut self, count: usize) -> Vec<u8> {
        let mut taken = Vec::with_capacity(count);
        while taken.len() < count {
            taken.extend(self.message());
        }
        assert_eq!(taken.len(), count, "more came");
        taken
    }

    /// Reads to the close frame, and leaves it unanswered.
    #[track_caller]
    pub(crate) fn parting(&mut self) -> Parting {
        let mut data = Vec::new();
        loop {
            match self.frame() {
                Ok((BINARY, payload)) => data.extend(payload),
                Ok((CLOSE, payload)) => {
                    let code = payload.first_chunk().expect("a code");
                    return Parting {
                        code: u16::from_be_bytes(*code),
                        reason: String::from_utf8(payload[2..].to_vec()).expect("a text"),
                        data,
                    };
                }
                Ok((PING | PONG, _)) => {}
                other => panic!("no close frame: {other:?}"),
            }
        }
    }

    /// Checks that the tunnel ends with this code and a reason that contains `reason`, answers, and sees the end.
    #[track_caller]
    pub(crate) fn parts(mut self, code: u16, reason: &str) -> Vec<u8> {
        let parting = self.parting();
        assert_eq!(parting.code, code, "{:?}", parting.reason);
        if reason.is_empty() {
            assert_eq!(parting.reason, "");
        }
        assert!(parting.reason.contains(reason), "{:?}", parting.reason);
        // The daemon may have closed already, if we have said before that we are done.
        let _ = self
            .connection
            .try_send(frame(FINAL | CLOSE, &code.to_be_bytes()));
        let (rest, _) = self.connection.rest();
        assert!(rest.is_empty(), "more behind the close frame: {rest:?}");
        parting.data
    }
}

/// A service of the guest.
pub(crate) struct Guest {
    listener: TcpListener,
}

impl Guest {
    pub(crate) fn new() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        Self { listener }
    }

    pub(crate) fn port(&self) -> u16 {
        self.listener.local_addr().expect("it is bound").port()
    }

    /// The next connection.
    #[track_caller]
    pub(crate) fn accept(&self) -> TcpStream {
        self.listener
            .set_nonblocking(true)
            .expect("a socket can wait or not");
        let mut accepted = None;
        wait_until("somebody connects to the guest's service", || {
            accepted = self.listener.accept().ok();
            accepted.is_some()
        });
        let (stream, _) = accepted.expect("it was just seen");
        stream.set_nonblocking(false).expect("it can wait");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream.set_write_timeout(Some(PATIENCE)).expect("a timeout");
        stream.set_nodelay(true).expect("a TCP socket");
        stream
    }

    /// Checks that nobody has connected.
    #[track_caller]
    pub(crate) fn was_not_dialled(&self) {
        self.listener
            .set_nonblocking(true)
            .expect("a socket can wait or not");
        let nobody = self.listener.accept().expect_err("somebody has connected");
        assert_eq!(nobody.kind(), ErrorKind::WouldBlock);
    }
}

/// Gives everything back to its sender, until that is done.
pub(crate) fn echo(mut stream: TcpStream) -> JoinHandle<()> {
    thread::spawn(move || {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(count @ 1..) = stream.read(&mut buffer) {
            if stream.write_all(&buffer[..count]).is_err() {
                return;
            }
        }
    })
}

/// Reads exactly so many bytes.
#[track_caller]
pub(crate) fn read(stream: &mut impl Read, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    stream.read_exact(&mut bytes).expect("so many bytes come");
    bytes
}

/// Reads to the end; `Err` when that is a reset.
pub(crate) fn read_to_end(stream: &mut impl Read) -> Result<Vec<u8>, Vec<u8>> {
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Ok(_) => Ok(bytes),
        Err(error) if error.kind() == ErrorKind::ConnectionReset => Err(bytes),
        Err(error) => panic!("neither an end nor a reset: {error}"),
    }
}

/// The example of RFC 6455, section 1.3, and its answer.
const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
const ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";
const MASK: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];
