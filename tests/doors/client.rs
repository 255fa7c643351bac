//! A raw HTTP client: bytes out, responses in, nothing hidden.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::thread::{self, JoinHandle};

use crate::documented;
use crate::process::PATIENCE;
use crate::reply::{Length, Reply};
use crate::request::Request;

/// A connection to the daemon.
pub(crate) struct Connection {
    stream: Stream,
    held: Vec<u8>,
}

/// Why no response came.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    /// The peer closed in an orderly way before the first byte.
    Closed,
    /// The peer reset the connection before the first byte.
    Reset,
    /// The connection ended inside a response; this many bytes of the body had come.
    Cut(usize),
    /// Nothing came for as long as a test waits.
    Silent,
    /// What came is not a response that the daemon may send.
    Garbled(String),
}

enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Connection {
    pub(crate) fn tcp(stream: TcpStream) -> Self {
        stream
            .set_read_timeout(Some(PATIENCE))
            .expect("a socket takes a timeout");
        stream
            .set_write_timeout(Some(PATIENCE))
            .expect("a socket takes a timeout");
        stream.set_nodelay(true).expect("a TCP socket");
        Self::over(Stream::Tcp(stream))
    }

    pub(crate) fn unix(stream: UnixStream) -> Self {
        stream
            .set_read_timeout(Some(PATIENCE))
            .expect("a socket takes a timeout");
        stream
            .set_write_timeout(Some(PATIENCE))
            .expect("a socket takes a timeout");
        Self::over(Stream::Unix(stream))
    }

    /// Sends bytes as they are.
    #[track_caller]
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.try_send(bytes).expect("the daemon takes what is sent");
    }

    /// Sends bytes that the daemon may refuse to take.
    pub(crate) fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.stream.write_all(bytes.as_ref())
    }

    /// Sends bytes from a thread of its own, for what is larger than the sockets hold.
    pub(crate) fn send_aside(&self, bytes: Vec<u8>) -> JoinHandle<io::Result<()>> {
        let mut stream = self.stream.copy().expect("a socket can be duplicated");
        thread::spawn(move || stream.write_all(&bytes))
    }

    /// A way to send from another thread.
    pub(crate) fn writer(&self) -> impl Write + Send + 'static {
        self.stream.copy().expect("a socket can be duplicated")
    }

    /// Sends a request and reads its response.
    #[track_caller]
    pub(crate) fn call(&mut self, request: &Request) -> Reply {
        // A refusal may come, and the socket close, before the body is out.
        let sent = self.try_send(request.bytes());
        match self.reply_to(&request.method) {
            Ok(reply) => {
                documented::check(request, &reply);
                reply
            }
            Err(broken) => panic!("no response to {} ({sent:?}): {broken:?}", request.method),
        }
    }

    /// Reads the response to anything but HEAD.
    #[track_caller]
    pub(crate) fn reply(&mut self) -> Reply {
        match self.reply_to("GET") {
            Ok(reply) => reply,
            Err(broken) => panic!("no response: {broken:?}"),
        }
    }

    /// Reads the response to a request with this method, past any 1xx.
    pub(crate) fn reply_to(&mut self, method: &str) -> Result<Reply, Broken> {
        loop {
            let mut reply = self.head()?;
            if reply.status < 200 {
                continue;
            }
            let length = reply
                .check(method)
                .map_err(|what| Broken::Garbled(format!("{what}: {reply:?}")))?;
            self.body(length, &mut reply.body)?;
            return Ok(reply);
        }
    }

    /// Reads one head, of an interim response too, and leaves its body unread.
    pub(crate) fn head(&mut self) -> Result<Reply, Broken> {
        loop {
            if let Some(end) = find(&self.held, b"\r\n\r\n") {
                let head: Vec<u8> = self.held.drain(..end + 4).collect();
                return Reply::parse(&head).map_err(Broken::Garbled);
            }
            let fresh = self.held.is_empty();
            match self.fill() {
                Ok(0) if fresh => return Err(Broken::Closed),
                Ok(0) => {
                    return Err(Broken::Garbled(format!(
                        "an unfinished head: {:?}",
                        self.shown()
                    )));
                }
                Ok(_) => {}
                Err(error) if is_reset(&error) && fresh => return Err(Broken::Reset),
                Err(error) if is_reset(&error) => return Err(Broken::Cut(0)),
                Err(_) => return Err(Broken::Silent),
            }
        }
    }

    /// Reads exactly this many bytes, whatever they are.
    pub(crate) fn take(&mut self, count: usize) -> Result<Vec<u8>, Broken> {
        while self.held.len() < count {
            self.more(0)?;
        }
        Ok(self.held.drain(..count).collect())
    }

    /// Reads to the end; the second value is true when the end was orderly.
    #[track_caller]
    pub(crate) fn rest(&mut self) -> (Vec<u8>, bool) {
        loop {
            match self.fill() {
                Ok(0) => return (std::mem::take(&mut self.held), true),
                Ok(_) => {}
                Err(error) if is_reset(&error) => return (std::mem::take(&mut self.held), false),
                Err(error) => panic!(
                    "the daemon does not close: {error}, after {:?}",
                    self.shown()
                ),
            }
        }
    }

    /// Checks that the daemon closes without a further byte and without a reset.
    #[track_caller]
    pub(crate) fn is_closed(&mut self) {
        let (rest, orderly) = self.rest();
        assert!(
            rest.is_empty(),
            "more bytes: {:?}",
            String::from_utf8_lossy(&rest)
        );
        assert!(orderly, "the connection was reset");
    }

    /// Checks that a further request on this connection is served.
    #[track_caller]
    pub(crate) fn is_usable(&mut self) {
        let reply = self.call(&Request::get("/v1/health"));
        assert_eq!(reply.status, 200, "{reply:?}");
    }

    /// Says that nothing more will be sent.
    pub(crate) fn finish(&mut self) {
        self.stream
            .shutdown(Shutdown::Write)
            .expect("the socket is connected");
    }

    /// Ends the connection with a reset, as a client that crashes may.
    pub(crate) fn reset(self) {
        if let Stream::Tcp(stream) = &self.stream {
            rustix::net::sockopt::set_socket_linger(stream, Some(std::time::Duration::ZERO))
                .expect("a TCP socket takes a linger time");
        }
    }

    /// Reads one chunk of a chunked body of which `got` bytes have come; `None` behind the last.
    pub(crate) fn chunk(&mut self, got: usize) -> Result<Option<Vec<u8>>, Broken> {
        let line = self.line(got)?;
        let size = std::str::from_utf8(&line)
            .ok()
            .and_then(|text| usize::from_str_radix(text, 16).ok());
        let size = size.ok_or_else(|| Broken::Garbled(format!("a chunk size {line:?}")))?;
        while self.held.len() < size + 2 {
            self.more(got + self.held.len())?;
        }
        let rest = self.held.split_off(size + 2);
        let mut chunk = std::mem::replace(&mut self.held, rest);
        let end = chunk.split_off(size);
        if end != b"\r\n" {
            return Err(Broken::Garbled(format!("a chunk that ends in {end:?}")));
        }
        Ok((size > 0).then_some(chunk))
    }

    fn over(stream: Stream) -> Self {
        Self {
            stream,
            held: Vec::new(),
        }
    }

    fn body(&mut self, length: Length, body: &mut Vec<u8>) -> Result<(), Broken> {
        match length {
            Length::Known(count) => {
                while self.held.len() < count {
                    let got = self.held.len();
                    self.more(got)?;
                }
                body.extend(self.held.drain(..count));
            }
            Length::ToTheEnd => {
                loop {
                    match self.fill() {
                        Ok(0) => break,
                        Ok(_) => {}
                        Err(error) if is_reset(&error) => return Err(Broken::Cut(self.held.len())),
                        Err(_) => return Err(Broken::Silent),
                    }
                }
                body.append(&mut self.held);
            }
            Length::Chunked => {
                while let Some(mut chunk) = self.chunk(body.len())? {
                    body.append(&mut chunk);
                }
            }
        }
        Ok(())
    }

    fn line(&mut self, got: usize) -> Result<Vec<u8>, Broken> {
        loop {
            if let Some(end) = find(&self.held, b"\r\n") {
                let mut line: Vec<u8> = self.held.drain(..end + 2).collect();
                line.truncate(end);
                return Ok(line);
            }
            self.more(got)?;
        }
    }

    /// Reads more of a response that has begun.
    fn more(&mut self, got: usize) -> Result<(), Broken> {
        match self.fill() {
            Ok(0) => Err(Broken::Cut(got)),
            Ok(_) => Ok(()),
            Err(error) if is_reset(&error) => Err(Broken::Cut(got)),
            Err(_) => Err(Broken::Silent),
        }
    }

    fn fill(&mut self) -> io::Result<usize> {
        let mut buffer = [0; 65536];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(count) => {
                    self.held.extend_from_slice(&buffer[..count]);
                    return Ok(count);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn shown(&self) -> String {
        String::from_utf8_lossy(&self.held)
            .chars()
            .take(300)
            .collect()
    }
}

impl Stream {
    fn copy(&self) -> io::Result<Self> {
        match self {
            Self::Tcp(stream) => stream.try_clone().map(Self::Tcp),
            Self::Unix(stream) => stream.try_clone().map(Self::Unix),
        }
    }

    fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.shutdown(how),
            Self::Unix(stream) => stream.shutdown(how),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(buffer),
            Self::Unix(stream) => stream.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(bytes),
            Self::Unix(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn is_reset(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe
    )
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}
