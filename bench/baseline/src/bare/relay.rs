//! A relay to a TCP port of this machine: `splice` moves the bytes both ways, and no byte is copied to us.

use std::io::Write;
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};

const PIPE_BYTES: usize = 1 << 20;
const DIAL_PATIENCE: Duration = Duration::from_secs(2);

/// Dials what `CONNECT 127.0.0.1:PORT` names. No other host, and no name.
pub(super) fn dial(authority: &str) -> Result<TcpStream> {
    let port = authority
        .strip_prefix("127.0.0.1:")
        .and_then(|port| port.parse().ok())
        .with_context(|| format!("CONNECT takes 127.0.0.1:PORT, not {authority:?}"))?;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let stream = TcpStream::connect_timeout(&address, DIAL_PATIENCE)
        .with_context(|| format!("nothing is listening on {address}"))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Answers 200, then moves bytes until both directions have ended. `early` came behind the head.
pub(super) fn run(mut client: TcpStream, mut port: TcpStream, early: &[u8]) -> Result<()> {
    client.write_all(b"HTTP/1.1 200 OK\r\n\r\n")?;
    port.write_all(early)?;
    std::thread::scope(|scope| {
        let inward = scope.spawn(|| carry(&client, &port));
        let outward = carry(&port, &client);
        inward.join().expect("it does not panic").and(outward)
    })
}

/// Moves bytes until `from` ends, and passes that on. A failure ends both directions.
fn carry(from: &TcpStream, to: &TcpStream) -> Result<()> {
    let carried = carry_all(from, to);
    if carried.is_err() {
        // They may be gone already.
        let _ = from.shutdown(Shutdown::Both);
        let _ = to.shutdown(Shutdown::Both);
    }
    carried
}

fn carry_all(from: &TcpStream, to: &TcpStream) -> Result<()> {
    let (out, into) = pipe_with(PipeFlags::CLOEXEC)?;
    // Past a user's share of pipe pages it stays as small as it is, and works (pipe(7)).
    let _ = fcntl_setpipe_size(&into, PIPE_BYTES);
    loop {
        let mut held = splice(from, None, &into, None, PIPE_BYTES, SpliceFlags::MOVE)?;
        if held == 0 {
            return Ok(to.shutdown(Shutdown::Write)?);
        }
        while held > 0 {
            held -= splice(&out, None, to, None, held, SpliceFlags::MOVE)?;
        }
    }
}
