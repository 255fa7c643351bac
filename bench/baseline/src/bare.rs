//! The floor: plain loops around the system calls, with just enough HTTP for the same client to drive them.
//!
//! GET /v1/fs/file sends as many bytes as the file has, all from one hot buffer. PUT /v1/fs/file receives and writes.
//! POST /v1/spawn?path=PROGRAM&count=N spawns and waits N times and answers with the latencies in nanoseconds.
//! POST /v1/spawn-many?path=PROGRAM&count=N&width=W keeps W of them running and answers with the nanoseconds of it all.
//! POST /v1/capture?path=small&count=N runs a program that writes N zeros and reads them from a pipe of 1 MiB.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use rustix::process::WaitOptions;

const BUFFER_BYTES: usize = 256 << 10;
const PIPE_BYTES: usize = 1 << 20;
const LARGE_BYTES: u64 = 64 << 10;
const MAX_HEAD_BYTES: usize = 16 << 10;

/// How the loops are started.
#[derive(clap::Args)]
pub(crate) struct Config {
    /// Port on 127.0.0.1; 0 lets the system choose
    #[arg(long, value_name = "N", default_value_t = 0)]
    port: u16,
}

/// Serves until the process is ended. Prints `listening tcp://ADDRESS` first.
pub(crate) fn serve(config: &Config) -> Result<()> {
    let listener = TcpListener::bind(("127.0.0.1", config.port))?;
    println!("listening tcp://{}", listener.local_addr()?);
    for stream in listener.incoming() {
        let stream = stream?;
        std::thread::spawn(move || {
            if let Err(error) = converse(stream) {
                eprintln!("bare: {error:#}");
            }
        });
    }
    Ok(())
}

struct Request {
    method: String,
    path: String,
    count: usize,
    width: usize,
    length: u64,
    route: String,
}

fn converse(mut stream: TcpStream) -> Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = vec![0x5a; BUFFER_BYTES];
    let mut early = Vec::new();
    while let Some(request) = read_request(&mut stream, &mut early)? {
        match (request.method.as_str(), request.route.as_str()) {
            ("GET", "/v1/health") => respond(&mut stream, b"{}")?,
            ("GET", "/v1/fs/file") => send_hot(
                &mut stream,
                &buffer,
                std::fs::metadata(&request.path)?.len(),
            )?,
            ("PUT", "/v1/fs/file") => {
                receive(
                    &mut stream,
                    &mut buffer,
                    &std::mem::take(&mut early),
                    &request,
                )?;
                stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n")?;
            }
            ("POST", "/v1/spawn") => respond(
                &mut stream,
                &serde_json::to_vec(&spawn_times(&request.path, request.count)?)?,
            )?,
            ("POST", "/v1/spawn-many") => respond(
                &mut stream,
                spawn_many(&request.path, request.count, request.width)?
                    .to_string()
                    .as_bytes(),
            )?,
            ("POST", "/v1/capture") => respond(
                &mut stream,
                capture(&mut buffer, &request.path, request.count as u64)?
                    .to_string()
                    .as_bytes(),
            )?,
            (method, route) => bail!("no such route: {method} {route}"),
        }
    }
    Ok(())
}

/// Reads one head. Body bytes that came with it are left in `early`.
fn read_request(stream: &mut TcpStream, early: &mut Vec<u8>) -> Result<Option<Request>> {
    let mut chunk = [0; 4096];
    let end = loop {
        if let Some(end) = early.windows(4).position(|four| four == b"\r\n\r\n") {
            break end;
        }
        let count = stream.read(&mut chunk)?;
        if count == 0 || early.len() > MAX_HEAD_BYTES {
            return Ok(None);
        }
        early.extend_from_slice(&chunk[..count]);
    };
    let head = String::from_utf8(early[..end].to_vec())?;
    early.drain(..end + 4);
    parse_request(&head).map(Some)
}

fn parse_request(head: &str) -> Result<Request> {
    let mut lines = head.split("\r\n");
    let mut first = lines.next().unwrap_or_default().split(' ');
    let method = first.next().context("no method")?.to_owned();
    let target = first.next().context("no target")?;
    let (route, query) = target.split_once('?').unwrap_or((target, ""));
    let lookup = |key: &str| {
        query
            .split('&')
            .find_map(|pair| pair.strip_prefix(key)?.strip_prefix('='))
    };
    let length = lines
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    Ok(Request {
        method,
        path: lookup("path").unwrap_or_default().to_owned(),
        count: lookup("count").map_or(Ok(1), str::parse)?,
        width: lookup("width").map_or(Ok(1), str::parse)?,
        length: length.map_or(Ok(0), |(_, value)| value.trim().parse())?,
        route: route.to_owned(),
    })
}

fn respond(stream: &mut TcpStream, body: &[u8]) -> Result<()> {
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
    stream.write_all(&[head.as_bytes(), body].concat())?;
    Ok(())
}

fn send_hot(stream: &mut TcpStream, buffer: &[u8], length: u64) -> Result<()> {
    stream.write_all(format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n").as_bytes())?;
    let mut left = length;
    while left > 0 {
        let step = usize::try_from(left)?.min(buffer.len());
        left -= stream.write(&buffer[..step])? as u64;
    }
    Ok(())
}

fn receive(
    stream: &mut TcpStream,
    buffer: &mut [u8],
    early: &[u8],
    request: &Request,
) -> Result<()> {
    let file = File::create(&request.path)?;
    file.write_all_at(early, 0)?;
    let mut offset = early.len() as u64;
    let mut mark = 1;
    while offset < request.length {
        let step = usize::try_from(request.length - offset)?.min(buffer.len());
        if step != mark {
            // A mark above what is still to come would never be reached.
            set_low_water(stream, step)?;
            mark = step;
        }
        let count = stream.read(&mut buffer[..step])?;
        if count == 0 {
            bail!("the body ended early");
        }
        file.write_all_at(&buffer[..count], offset)?;
        offset += count as u64;
    }
    set_low_water(stream, 1)
}

/// SO_RCVLOWAT: how many bytes must be there before a blocked receive is woken (socket(7)).
#[expect(unsafe_code, reason = "this socket option has no safe wrapper")]
fn set_low_water(stream: &TcpStream, bytes: usize) -> Result<()> {
    let value = libc::c_int::try_from(bytes)?;
    let size = libc::socklen_t::try_from(size_of_val(&value))?;
    // SAFETY: the descriptor is borrowed from a live stream; `value` is a live int and `size` is its size.
    let result = unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVLOWAT,
            (&raw const value).cast(),
            size,
        )
    };
    if result != 0 {
        return Err(std::io::Error::last_os_error()).context("cannot set SO_RCVLOWAT");
    }
    Ok(())
}

/// posix_spawn and wait, `count` times. Nanoseconds each.
fn spawn_times(program: &str, count: usize) -> Result<Vec<u64>> {
    let mut times = Vec::with_capacity(count);
    for _ in 0..count {
        let start = Instant::now();
        let status = Command::new(program)
            .env_clear()
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()?;
        times.push(u64::try_from(start.elapsed().as_nanos())?);
        if !status.success() {
            bail!("{program} failed: {status}");
        }
    }
    Ok(times)
}

/// posix_spawn `count` times with `width` children alive at once. Nanoseconds until the last was waited for.
fn spawn_many(program: &str, count: usize, width: usize) -> Result<u64> {
    let start = Instant::now();
    let mut alive = 0;
    for begun in 0..count + width {
        if begun < count {
            Command::new(program)
                .env_clear()
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()?;
            alive += 1;
        }
        if alive == 0 {
            break;
        }
        if alive < width && begun < count {
            continue;
        }
        let (_, status) = rustix::process::wait(WaitOptions::empty())?.context("no child ended")?;
        alive -= 1;
        if status.exit_status() != Some(0) {
            bail!("{program} failed: {status:?}");
        }
    }
    Ok(u64::try_from(start.elapsed().as_nanos())?)
}

/// Runs a writer of zeros and drops what it writes. Nanoseconds from before the spawn to after the wait.
fn capture(buffer: &mut [u8], writer: &str, bytes: u64) -> Result<u64> {
    let command = writer_command(writer, bytes)?;
    let start = Instant::now();
    let mut child = Command::new(&command[0])
        .args(&command[1..])
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut pipe = child.stdout.take().context("the child has no stdout")?;
    rustix::pipe::fcntl_setpipe_size(&pipe, PIPE_BYTES)?;
    let mut left = bytes;
    loop {
        let count = pipe.read(buffer)? as u64;
        if count == 0 {
            break;
        }
        left = left.checked_sub(count).context("too much was written")?;
    }
    if left > 0 || !child.wait()?.success() {
        bail!("{command:?} failed, {left} bytes are missing");
    }
    Ok(u64::try_from(start.elapsed().as_nanos())?)
}

/// `small` writes 8 KiB with one call, `large` 64 KiB.
fn writer_command(writer: &str, bytes: u64) -> Result<Vec<String>> {
    let words = match writer {
        "small" => format!("/usr/bin/head -c {bytes} /dev/zero"),
        "large" => format!(
            "/bin/dd if=/dev/zero bs={LARGE_BYTES} count={} status=none",
            bytes / LARGE_BYTES
        ),
        _ => bail!("no writer is called {writer:?}; there are small and large"),
    };
    Ok(words.split(' ').map(str::to_owned).collect())
}
