//! One keep-alive connection: a request at a time, its response taken as it arrives.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::net::{RecvFlags, SendFlags};
use tokio::io::unix::AsyncFd;
use tokio::io::{Interest, Ready};
use tokio_uring::buf::{BoundedBuf, BoundedBufMut};
use tokio_uring::net::TcpStream;

use super::head::Head;
use super::incoming::Incoming;
use super::registered::{self, STEP_BYTES};
use super::unsupported::refusal;
use super::{Endpoint, Manner, Request};

/// A connection to a daemon.
pub(crate) struct Connection {
    stream: TcpStream,
    /// The same socket for readiness and for calls that never wait.
    ready: AsyncFd<OwnedFd>,
    endpoint: Endpoint,
    manner: Manner,
    incoming: Incoming,
    is_whole: bool,
    delays_acks: bool,
    /// Looks of a spinning connection, and how many of them found nothing.
    looks: u64,
    vain: u64,
}

/// A whole response.
pub(crate) struct Answer {
    pub(crate) head: Head,
    pub(crate) body: Vec<u8>,
}

impl Connection {
    pub(crate) fn open(endpoint: &Endpoint, manner: Manner) -> Result<Self> {
        let address = endpoint.address;
        let failed = || format!("cannot connect to {address}");
        let stream = std::net::TcpStream::connect(address).with_context(failed)?;
        Self::over(stream, endpoint, manner)
    }

    /// Takes a socket that is connected, and blocking.
    pub(super) fn over(
        stream: std::net::TcpStream,
        endpoint: &Endpoint,
        manner: Manner,
    ) -> Result<Self> {
        stream.set_nodelay(true)?;
        let socket = OwnedFd::from(stream.try_clone()?);
        // The ring's socket stays a blocking one: on others a receive ends at once instead of waiting.
        let stream = TcpStream::from_std(stream);
        Ok(Self {
            ready: watch(socket)?,
            stream,
            endpoint: endpoint.clone(),
            manner,
            incoming: Incoming::new(),
            is_whole: true,
            delays_acks: false,
            looks: 0,
            vain: 0,
        })
    }

    /// From now on the kernel may hold acknowledgements back, as it does for many clients (TCP_QUICKACK in tcp(7)).
    pub(crate) fn delay_acks(&mut self) {
        self.delays_acks = true;
    }

    /// Sends a request with its small body and reads the whole answer.
    pub(crate) async fn ask(&mut self, request: Request<'_>) -> Result<Answer> {
        self.send(request).await?;
        self.answer().await
    }

    /// The same when only one status will do; another is an error that quotes the answer, [`super::Unsupported`] for
    /// those that say that there is no such route.
    pub(crate) async fn demand(&mut self, request: Request<'_>, status: u16) -> Result<Answer> {
        let answer = self.ask(request).await?;
        if answer.head.status == status {
            return Ok(answer);
        }
        let shown = &answer.body[..answer.body.len().min(SHOWN_BYTES)];
        let sentence = format!(
            "{} {} answered {}: {}",
            request.method,
            request.target,
            answer.head.status,
            String::from_utf8_lossy(shown)
        );
        Err(refusal(answer.head.status, sentence))
    }

    /// Sends a request with its small body.
    pub(crate) async fn send(&mut self, request: Request<'_>) -> Result<()> {
        let mut bytes = request
            .head(&self.endpoint, request.body.len() as u64)
            .into_bytes();
        bytes.extend_from_slice(request.body);
        self.begin()?;
        self.send_bytes(&bytes).await
    }

    /// Sends a head that announces `length` bytes; they follow by [`Self::send_bytes`] or [`Self::send_repeated`].
    pub(crate) async fn send_head(&mut self, request: Request<'_>, length: u64) -> Result<()> {
        let head = request.head(&self.endpoint, length);
        self.begin()?;
        self.send_bytes(head.as_bytes()).await
    }

    fn begin(&mut self) -> Result<()> {
        ensure!(self.is_whole, "the last response is not read yet");
        self.incoming = Incoming::new();
        self.is_whole = false;
        Ok(())
    }

    /// Sends bytes as they are, uncopied by us.
    pub(crate) async fn send_bytes(&mut self, mut bytes: &[u8]) -> Result<()> {
        let start = Instant::now();
        while !bytes.is_empty() {
            let step = &bytes[..bytes.len().min(STEP_BYTES)];
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match rustix::net::send(self.ready.get_ref(), step, flags).map_err(Into::into) {
                Ok(0) => bail!("the server stopped reading"),
                Ok(sent) => bytes = &bytes[sent..],
                Err(error) => self.wait(error, Interest::WRITABLE, start).await?,
            }
        }
        Ok(())
    }

    /// Sends a file as it is.
    pub(crate) async fn send_file(&mut self, path: &Path) -> Result<()> {
        let mut file =
            File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
        let mut block = vec![0; STEP_BYTES];
        loop {
            match file.read(&mut block)? {
                0 => return Ok(()),
                count => self.send_bytes(&block[..count]).await?,
            }
        }
    }

    /// Sends `length` bytes out of one hot buffer, again and again.
    pub(crate) async fn send_repeated(&mut self, buffer: &[u8], length: u64) -> Result<()> {
        if self.manner == Manner::Ring && buffer.len() <= STEP_BYTES {
            return self.send_registered(buffer, length).await;
        }
        let mut left = length;
        while left > 0 {
            let step = usize::try_from(left)
                .unwrap_or(usize::MAX)
                .min(buffer.len());
            self.send_bytes(&buffer[..step]).await?;
            left -= step as u64;
        }
        Ok(())
    }

    async fn send_registered(&mut self, buffer: &[u8], length: u64) -> Result<()> {
        let mut registered = registered::lease().await?;
        registered.put_slice(buffer);
        let mut left = length;
        while left > 0 {
            let step = usize::try_from(left)
                .unwrap_or(usize::MAX)
                .min(buffer.len());
            let (outcome, back) = self.stream.write_fixed_all(registered.slice(..step)).await;
            registered = back.into_inner();
            outcome.context("cannot send")?;
            left -= step as u64;
        }
        Ok(())
    }

    /// Reads one whole answer and gathers its body.
    pub(crate) async fn answer(&mut self) -> Result<Answer> {
        let mut body = Vec::new();
        self.body(|bytes| {
            body.extend_from_slice(bytes);
            Ok(())
        })
        .await?;
        let head = self.incoming.head().cloned();
        Ok(Answer {
            head: head.context("an answer has no head")?,
            body,
        })
    }

    /// Reads the response to its end and shows every byte of its body to `sink`. Tells the length of the body.
    pub(crate) async fn body(&mut self, mut sink: impl FnMut(&[u8]) -> Result<()>) -> Result<u64> {
        let mut total = 0;
        while !self.is_whole {
            self.receive(|_, bytes| {
                total += bytes.len() as u64;
                sink(bytes)
            })
            .await?;
        }
        Ok(total)
    }

    /// Reads the response to its end and drops its body; uncopied where its length is known, but for [`Manner::Ring`].
    /// Tells the length of the body.
    pub(crate) async fn discard(&mut self) -> Result<u64> {
        let mut total = 0;
        while !self.is_whole {
            match self.incoming.left().filter(|_| self.manner != Manner::Ring) {
                Some(left) => {
                    let count = self.drop_some(left).await?;
                    self.is_whole = self.incoming.skip(count);
                    total += count;
                }
                None => {
                    self.receive(|_, bytes| {
                        total += bytes.len() as u64;
                        Ok(())
                    })
                    .await?;
                }
            }
        }
        Ok(total)
    }

    /// Drops at most `left` bytes of the body, or of what follows an upgrade, in the kernel.
    pub(super) async fn drop_some(&mut self, left: u64) -> Result<u64> {
        let mut room = DISCARD.take();
        room.resize(DISCARD_BYTES, 0);
        let most = usize::try_from(left)
            .unwrap_or(usize::MAX)
            .min(DISCARD_BYTES);
        let outcome = self
            .receive_ready(&mut room[..most], RecvFlags::TRUNC)
            .await;
        DISCARD.set(room);
        let count = outcome?;
        ensure!(count > 0, "the body ended {left} bytes early");
        Ok(count as u64)
    }

    /// Receives what is there, of a body or of what follows an upgrade, as it came; 0 at the end.
    pub(super) async fn receive_raw(&mut self, room: &mut [u8]) -> Result<usize> {
        self.receive_ready(room, RecvFlags::empty()).await
    }

    /// Receives what is there, without the ring; waits for something.
    async fn receive_ready(&mut self, room: &mut [u8], flags: RecvFlags) -> Result<usize> {
        let start = Instant::now();
        loop {
            self.looks += 1;
            let flags = flags | RecvFlags::DONTWAIT;
            match rustix::net::recv(self.ready.get_ref(), &mut *room, flags) {
                Ok((count, _)) => return Ok(count),
                Err(errno) => self.wait(errno.into(), Interest::READABLE, start).await?,
            }
        }
    }

    /// Waits until the socket may be ready again, or spins, after a call that failed.
    async fn wait(&mut self, error: io::Error, interest: Interest, start: Instant) -> Result<()> {
        match error.kind() {
            ErrorKind::Interrupted => return Ok(()),
            ErrorKind::WouldBlock => {}
            _ => return Err(error).context("the connection broke"),
        }
        self.vain += 1;
        if self.manner != Manner::Spin {
            let mut guard = self.ready.ready(interest).await?;
            guard.clear_ready_matching(match interest.is_readable() {
                true => Ready::READABLE,
                false => Ready::WRITABLE,
            });
            return Ok(());
        }
        let looks_at_clock = self.vain.is_multiple_of(CLOCK_EVERY);
        ensure!(
            !looks_at_clock || start.elapsed() < PATIENCE,
            "the server was silent for {PATIENCE:?}"
        );
        Ok(())
    }

    /// One receive of whatever is there; waits for something.
    pub(crate) async fn receive(
        &mut self,
        mut sink: impl FnMut(&Head, &[u8]) -> Result<()>,
    ) -> Result<()> {
        if self.delays_acks {
            rustix::net::sockopt::set_tcp_quickack(self.ready.get_ref(), false)?;
        }
        if self.manner == Manner::Ring {
            let (outcome, buffer) = self.stream.read_fixed(registered::lease().await?).await;
            let count = outcome.context("cannot receive")?;
            return self.take(&buffer[..count], &mut sink);
        }
        let mut scratch = SCRATCH.take();
        scratch.resize(STEP_BYTES, 0);
        let outcome = self.receive_ready(&mut scratch, RecvFlags::empty()).await;
        let outcome = outcome.and_then(|count| self.take(&scratch[..count], &mut sink));
        SCRATCH.set(scratch);
        outcome
    }

    /// Waits for the head of the response. Tells it, and what has come behind it.
    pub(super) async fn head(&mut self) -> Result<(Head, Vec<u8>)> {
        let mut early = Vec::new();
        loop {
            if let Some(head) = self.incoming.head() {
                return Ok((head.clone(), early));
            }
            self.receive(|_, bytes| {
                early.extend_from_slice(bytes);
                Ok(())
            })
            .await?;
        }
    }

    /// The head of the present response, once it is there.
    pub(crate) fn present_head(&self) -> Option<&Head> {
        self.incoming.head()
    }

    /// An error unless the response has one of `statuses`; of the same kinds as those of [`Self::demand`].
    pub(crate) fn expect(&self, statuses: &[u16], request: Request<'_>) -> Result<()> {
        let status = self.present_head().context("no answer is there")?.status;
        if statuses.contains(&status) {
            return Ok(());
        }
        let sentence = format!("{} {} answered {status}", request.method, request.target);
        Err(refusal(status, sentence))
    }

    /// Nothing more is to come.
    pub(crate) fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// Tells the server that no more requests come.
    pub(crate) fn shut_down(&self) -> Result<()> {
        self.stream
            .shutdown(Shutdown::Write)
            .context("cannot shut down")
    }

    /// The share of looks that found nothing: how idle a spinning connection was. Nothing for other manners.
    pub(crate) fn idle_share(&self) -> Option<f64> {
        (self.looks > 0).then(|| self.vain as f64 / self.looks as f64)
    }

    fn take(
        &mut self,
        bytes: &[u8],
        sink: &mut impl FnMut(&Head, &[u8]) -> Result<()>,
    ) -> Result<()> {
        if bytes.is_empty() {
            self.incoming.close()?;
            self.is_whole = true;
            return Ok(());
        }
        ensure!(!self.is_whole, "more came than was asked for");
        self.is_whole = self.incoming.take(bytes, sink)?;
        Ok(())
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ready.get_ref().as_fd()
    }
}

/// Lets the reactor tell when a descriptor is ready.
#[expect(unsafe_code, reason = "the safe way in was withdrawn from tokio")]
pub(super) fn watch(socket: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    let interest = Interest::READABLE | Interest::WRITABLE;
    // SAFETY: an owned descriptor stays open, and the same, until the registration is dropped with it.
    let watched = unsafe { AsyncFd::register_with_interest(socket, interest) };
    watched.map_err(Into::into)
}

thread_local! {
    /// What all connections of this thread receive into when they need not keep it.
    static SCRATCH: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
    /// Never written to: what MSG_TRUNC is given.
    static DISCARD: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// One discarding receive: no memory is touched, so it may be large.
const DISCARD_BYTES: usize = 4 << 20;
/// So much of a wrong answer is quoted.
const SHOWN_BYTES: usize = 300;
const PATIENCE: Duration = Duration::from_secs(60);
/// A spinning connection looks at the clock once in so many vain looks.
const CLOCK_EVERY: u64 = 4096;
