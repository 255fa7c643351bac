//! One keep-alive connection whose responses are taken as they arrive.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};

use anyhow::{Context, Result, bail, ensure};

use super::head::Head;
use super::incoming::Incoming;
use super::{Manner, PATIENCE, request_head};

pub(crate) struct Connection {
    stream: TcpStream,
    token: String,
    incoming: Incoming,
    is_whole: bool,
    delays_acks: bool,
}

impl Connection {
    pub(crate) fn connect(address: SocketAddr, token: &str, manner: Manner) -> Result<Self> {
        let stream =
            TcpStream::connect(address).with_context(|| format!("cannot connect to {address}"))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_nonblocking(manner == Manner::Spin)?;
        Ok(Self {
            stream,
            token: token.to_owned(),
            incoming: Incoming::new(),
            is_whole: true,
            delays_acks: false,
        })
    }

    /// From now on the kernel may hold acknowledgements back, as it does for many clients (TCP_QUICKACK in tcp(7)).
    pub(crate) fn delay_acks(&mut self) {
        self.delays_acks = true;
    }

    /// Sends a small request. `accept` may be empty.
    pub(crate) fn ask(
        &mut self,
        method: &str,
        target: &str,
        accept: &str,
        body: &[u8],
    ) -> Result<()> {
        ensure!(self.is_whole, "the last response is not read yet");
        self.incoming = Incoming::new();
        self.is_whole = false;
        let mut request = request_head(method, target, &self.token, body.len() as u64);
        if !accept.is_empty() {
            request.truncate(request.len() - 2);
            request += &format!("accept: {accept}\r\n\r\n");
        }
        let request = [request.as_bytes(), body].concat();
        // The buffer of an idle connection takes a small request at once.
        self.stream.write_all(&request).context("cannot send")
    }

    /// One receive; a spinning connection returns at once when nothing is there.
    pub(crate) fn receive(
        &mut self,
        scratch: &mut [u8],
        mut sink: impl FnMut(&Head, &[u8]) -> Result<()>,
    ) -> Result<()> {
        if self.delays_acks {
            rustix::net::sockopt::set_tcp_quickack(&self.stream, false)?;
        }
        match self.stream.read(scratch) {
            Ok(0) => {
                self.incoming.close()?;
                self.is_whole = true;
            }
            Ok(count) => {
                ensure!(!self.is_whole, "more came than was asked for");
                self.is_whole = self.incoming.take(&scratch[..count], &mut sink)?;
            }
            Err(error) => match error.kind() {
                ErrorKind::Interrupted => {}
                ErrorKind::WouldBlock if is_nonblocking(&self.stream)? => {}
                ErrorKind::WouldBlock => bail!("the server was silent for {PATIENCE:?}"),
                _ => return Err(error).context("cannot receive"),
            },
        }
        Ok(())
    }

    /// Reads one whole answer and gathers its body.
    pub(crate) fn answer(&mut self, scratch: &mut [u8]) -> Result<(u16, Vec<u8>)> {
        let mut body = Vec::new();
        while !self.is_whole {
            self.receive(scratch, |_, bytes| {
                body.extend_from_slice(bytes);
                Ok(())
            })?;
        }
        let head = self.head().context("an answer has no head")?;
        Ok((head.status, body))
    }

    /// The head of the present response, once it is there.
    pub(crate) fn head(&self) -> Option<&Head> {
        self.incoming.head()
    }

    /// Nothing more is to come.
    pub(crate) fn is_whole(&self) -> bool {
        self.is_whole
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

fn is_nonblocking(stream: &TcpStream) -> Result<bool> {
    Ok(rustix::fs::fcntl_getfl(stream)?.contains(rustix::fs::OFlags::NONBLOCK))
}
