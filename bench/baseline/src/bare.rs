//! The floor: plain loops around the system calls, with just enough HTTP for the same client to drive them.

mod files;
mod programs;
mod relay;
mod request;

use std::io::{ErrorKind, Write};
use std::net::{TcpListener, TcpStream};

use anyhow::{Result, bail, ensure};

use files::{Download, Upload};
use request::Request;

const BUFFER_BYTES: usize = 256 << 10;

/// How the loops are started.
#[derive(clap::Args)]
pub(crate) struct Config {
    /// Port on 127.0.0.1; 0 lets the system choose
    #[arg(long, value_name = "N", default_value_t = 0)]
    port: u16,
}

/// Serves until a signal ends the process, one thread a connection. Prints `listening tcp://ADDRESS` first.
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

/// What a request comes to, when nothing has been sent yet.
enum Reply {
    Text(String),
    Download(Download),
    Upload(Upload),
    Relay(TcpStream),
}

fn converse(mut stream: TcpStream) -> Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = vec![0x5a; BUFFER_BYTES];
    let mut early = Vec::new();
    loop {
        let request = match Request::read(&mut stream, &mut early) {
            Ok(Some(request)) => request,
            Ok(None) => return Ok(()),
            Err(error) => return refuse(&mut stream, error),
        };
        match reply(&request, &mut buffer) {
            Ok(Reply::Text(text)) => respond(&mut stream, &text)?,
            Ok(Reply::Download(download)) => download.send(&mut stream, &buffer)?,
            Ok(Reply::Upload(upload)) => {
                upload.receive(&mut stream, &mut buffer, &std::mem::take(&mut early))?;
                stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n")?;
            }
            Ok(Reply::Relay(port)) => return relay::run(stream, port, &early),
            Err(error) => return refuse(&mut stream, error),
        }
    }
}

fn reply(request: &Request, buffer: &mut [u8]) -> Result<Reply> {
    if request.method != "PUT" {
        let length = request.length.unwrap_or(0);
        ensure!(length == 0, "{} takes no body", request.method);
    }
    let text = match (request.method.as_str(), request.route.as_str()) {
        ("GET", "/v1/health") => "{}".to_owned(),
        ("GET", "/v1/fs/file") => return Download::prepare(request).map(Reply::Download),
        ("PUT", "/v1/fs/file") => return Upload::prepare(request).map(Reply::Upload),
        ("POST", "/v1/spawn") => {
            let times = programs::spawn(&request.path, request.count)?;
            serde_json::to_string(&times)?
        }
        ("POST", "/v1/spawn-many") => {
            programs::spawn_many(&request.path, request.count, request.width)?.to_string()
        }
        ("POST", "/v1/capture") => {
            programs::capture(buffer, &request.path, request.count)?.to_string()
        }
        ("CONNECT", authority) => return relay::dial(authority).map(Reply::Relay),
        (method, route) => bail!("no such route: {method} {route}"),
    };
    Ok(Reply::Text(text))
}

fn respond(stream: &mut TcpStream, body: &str) -> Result<()> {
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
    stream.write_all([head.as_str(), body].concat().as_bytes())?;
    Ok(())
}

/// Says what was wrong, and ends the connection with it.
fn refuse(stream: &mut TcpStream, error: anyhow::Error) -> Result<()> {
    let kind = error
        .downcast_ref::<std::io::Error>()
        .map(std::io::Error::kind);
    let status = match kind {
        Some(ErrorKind::NotFound) => "404 Not Found",
        _ => "400 Bad Request",
    };
    let text = format!("{error:#}");
    let head = format!(
        "HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        text.len()
    );
    stream.write_all((head + &text).as_bytes())?;
    Err(error)
}
