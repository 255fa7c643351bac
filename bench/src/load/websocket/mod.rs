//! The client's side of a WebSocket (RFC 6455): binary messages, whose payloads are neither copied nor changed.

mod frame;

use std::hash::{BuildHasher, RandomState};

use anyhow::{Context, Result, bail, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha1::{Digest, Sha1};

use super::{Connection, Request, wanted};
use frame::{CLOSE, Inbox, MOST_HEADER_BYTES, PONG, sealed};

pub(crate) use frame::Frame;

/// An open one.
pub(crate) struct WebSocket {
    connection: Connection,
    inbox: Inbox,
}

impl WebSocket {
    /// Asks for `target` to be upgraded, and checks that the answer belongs to the key that was sent.
    pub(crate) async fn open(mut connection: Connection, target: &str) -> Result<Self> {
        let key = key();
        let fields = format!(
            "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: {key}\r\n"
        );
        let request = Request::get(target).with(&fields);
        connection.send(request).await?;
        let (head, early) = connection.head().await?;
        wanted(head.status, &[101], &format!("GET {target}"))?;
        ensure!(
            head.websocket_accept == accept(&key),
            "the answer to the handshake is not for our key: {:?}",
            head.websocket_accept
        );
        let mut inbox = Inbox::default();
        inbox.take(&early, &mut |_, _| {
            bail!("a message came before any was sent")
        })?;
        Ok(Self { connection, inbox })
    }

    /// Sends frames as they are.
    pub(crate) async fn send(&mut self, frame: &Frame) -> Result<()> {
        self.connection.send_bytes(frame.bytes()).await
    }

    /// One receive; shows what it holds of messages to `sink`, and answers pings.
    pub(crate) async fn receive(
        &mut self,
        mut sink: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        self.receive_parts(|part, _| sink(part)).await
    }

    /// The same; `sink` is told with each part whether a frame ends with it. An empty frame has no part.
    pub(crate) async fn receive_parts(
        &mut self,
        mut sink: impl FnMut(&[u8], bool) -> Result<()>,
    ) -> Result<()> {
        let inbox = &mut self.inbox;
        self.connection
            .receive(|_, bytes| inbox.take(bytes, &mut sink))
            .await?;
        ensure!(
            !self.connection.is_whole() && !self.inbox.is_closed(),
            "the server ended the tunnel: {}",
            self.inbox.reason()
        );
        self.answer_pings().await
    }

    /// Receives `bytes` bytes of messages and drops them uncopied, but for headers.
    pub(crate) async fn discard(&mut self, bytes: u64) -> Result<()> {
        let mut left = bytes;
        while left > 0 {
            let rest = self.inbox.payload_left();
            if rest > 0 {
                let count = self.connection.drop_some(rest).await?;
                self.inbox.skip(count);
                left = left.checked_sub(count).context("too much came")?;
                continue;
            }
            let mut room = [0; MOST_HEADER_BYTES];
            let count = self.connection.receive_raw(&mut room).await?;
            let mut told = 0;
            self.inbox.take(&room[..count], &mut |payload, _| {
                told += payload.len() as u64;
                Ok(())
            })?;
            ensure!(
                count > 0 && !self.inbox.is_closed(),
                "the server ended the tunnel: {}",
                self.inbox.reason()
            );
            left = left.checked_sub(told).context("too much came")?;
            self.answer_pings().await?;
        }
        Ok(())
    }

    /// Says that we are done, and waits for the server to say so, too. Tells its status (RFC 6455, section 7.4).
    pub(crate) async fn close(mut self) -> Result<Option<u16>> {
        let close = sealed(CLOSE, &NORMAL.to_be_bytes());
        self.connection.send_bytes(&close).await?;
        while !self.inbox.is_closed() && !self.connection.is_whole() {
            let inbox = &mut self.inbox;
            self.connection
                .receive(|_, bytes| inbox.take(bytes, &mut |_, _| Ok(())))
                .await?;
        }
        Ok(self.inbox.status())
    }

    async fn answer_pings(&mut self) -> Result<()> {
        for ping in self.inbox.pings() {
            let pong = sealed(PONG, &ping);
            self.connection.send_bytes(&pong).await?;
        }
        Ok(())
    }
}

/// 16 bytes that nobody can guess, in base64.
fn key() -> String {
    let random = || RandomState::new().hash_one(()).to_le_bytes();
    STANDARD.encode([random(), random()].concat())
}

/// What a server answers to a key (RFC 6455, section 4.2.2).
fn accept(key: &str) -> String {
    let digest = Sha1::new().chain_update(key).chain_update(GUID).finalize();
    STANDARD.encode(digest)
}

const GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// The status of a purpose fulfilled.
const NORMAL: u16 = 1000;

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use tungstenite::Message;

    use super::super::Unsupported;
    use super::*;
    use crate::load::{Endpoint, Manner, start};

    #[test]
    fn the_answer_to_a_key_is_that_of_the_standard() {
        // RFC 6455, section 1.3.
        let answer = accept("dGhlIHNhbXBsZSBub25jZQ==");
        assert_eq!(answer, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    /// Runs `client` against a server that pings, sends back every binary message, and is closed by the client.
    fn against_an_echo<T>(client: impl AsyncFnOnce(WebSocket) -> Result<T>) -> Result<T> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let endpoint = Endpoint {
            address: listener.local_addr()?,
            token: String::new(),
        };
        let server = std::thread::spawn(move || {
            let stream = listener.accept().expect("someone connects").0;
            let mut socket = tungstenite::accept(stream).expect("the handshake is right");
            let ping = Message::Ping("are you there".into());
            socket.send(ping).expect("it reads");
            let mut pongs = 0;
            while let Ok(message) = socket.read() {
                match message {
                    Message::Binary(bytes) => {
                        socket.send(Message::Binary(bytes)).expect("it reads");
                    }
                    Message::Pong(bytes) => {
                        assert_eq!(bytes, "are you there");
                        pongs += 1;
                    }
                    _ => {}
                }
            }
            pongs
        });
        let outcome = start(async {
            let connection = Connection::open(&endpoint, Manner::Ready)?;
            client(WebSocket::open(connection, "/v1/tcp?port=1").await?).await
        });
        assert_eq!(server.join().expect("the server is content"), 1);
        outcome
    }

    #[test]
    fn messages_come_back_as_they_were_sent_and_pings_are_answered() {
        let sent: Vec<u8> = (0..=255).cycle().take(70_000).collect();
        let (received, status) = against_an_echo(async |mut socket| {
            let mut received = Vec::new();
            for part in [&sent[..1], &sent[1..127], &sent[127..400], &sent[400..]] {
                socket.send(&Frame::of(part)).await?;
            }
            while received.len() < sent.len() {
                socket
                    .receive(|bytes| {
                        received.extend_from_slice(bytes);
                        Ok(())
                    })
                    .await?;
            }
            Ok((received, socket.close().await?))
        })
        .expect("nothing is wrong");
        assert!(received == sent);
        assert_eq!(status, Some(NORMAL));
    }

    #[test]
    fn what_is_dropped_is_counted() {
        against_an_echo(async |mut socket| {
            for length in [1, 5, 200, 70_000] {
                let frame = Frame::of(&vec![7; length]);
                socket.send(&frame).await?;
                socket.send(&frame).await?;
                socket.discard(2 * length as u64).await?;
            }
            socket.close().await
        })
        .expect("nothing is wrong");
    }

    #[test]
    fn a_refused_upgrade_is_no_support() {
        use std::io::Write;

        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let endpoint = Endpoint {
            address: listener.local_addr().expect("it is bound"),
            token: String::new(),
        };
        let server = std::thread::spawn(move || {
            let mut stream = listener.accept().expect("someone connects").0;
            stream
                .write_all(b"HTTP/1.1 501 Not Implemented\r\ncontent-length: 0\r\n\r\n")
                .expect("it reads");
        });
        let outcome = start(async {
            let connection = Connection::open(&endpoint, Manner::Ready)?;
            WebSocket::open(connection, "/").await.map(drop)
        });
        server.join().expect("the server is content");
        let error = outcome.expect_err("it was refused");
        assert!(error.is::<Unsupported>(), "{error:#}");
    }
}
