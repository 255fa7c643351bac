//! From an address to an open tunnel: connect, become a WebSocket, prove the keys.

use std::error::Error as _;
use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

use rustix::rand::{GetRandomFlags, getrandom};

use super::ending::Ending;
use super::frames::{Masks, frame, sealed_frame};
use super::incoming::{Fault, Incoming};
use super::options::Options;
use super::upgrade::{Answer, MOST_BODY, Upgrade, refusal};
use super::url::{Place, Url};
use crate::error::Error;
use crate::ring::clock::within;
use crate::ring::socket::Socket;
use crate::ring::{connect, pool};
use crate::tunnel::secure::{HostKeys, Initiator, Protocol, READY, Session};
use crate::wire::http::head::Step;
use crate::wire::websocket::client::Opcode;

/// An open tunnel without anything at its near end.
pub(super) struct Opened {
    pub(super) remote: Socket,
    pub(super) incoming: Incoming,
    pub(super) session: Option<Session>,
}

/// Opens one tunnel.
///
/// # Errors
/// A sentence for the user: who does not answer, who refuses, and why.
pub(super) async fn open(options: &Options) -> Result<Opened, String> {
    let url = &options.url;
    let remote = reach(url).await?;
    let mut incoming = match within(ANSWER, upgrade(&remote, options)).await {
        Some(upgraded) => upgraded?,
        None => return Err(format!("the daemon at {url} does not answer")),
    };
    let session = match &options.verified {
        None => None,
        Some((keys, protocol)) => {
            let verified = verify(&remote, &mut incoming, keys, *protocol, options.port());
            match within(ANSWER, verified).await {
                Some(session) => Some(session?),
                None => return Err("the guest does not answer the identity handshake".into()),
            }
        }
    };
    Ok(Opened {
        remote,
        incoming,
        session,
    })
}

/// Connects to the daemon; of a host with several addresses each is tried in turn.
async fn reach(url: &Url) -> Result<Socket, String> {
    let connected = match &url.place {
        Place::Unix(path) => within(CONNECT, connect::unix(path, FOREVER)).await,
        Place::Tcp(host, port) => {
            let mut last = None;
            for address in resolve(host, *port).await? {
                last = within(CONNECT, connect::tcp(address, FOREVER)).await;
                if matches!(last, Some(Ok(_))) {
                    break;
                }
            }
            last
        }
    };
    match connected {
        Some(Ok(socket)) => {
            // A daemon that vanished without a word must be noticed; Unix sockets need it not, and refuse it.
            let _ = rustix::net::sockopt::set_socket_keepalive(&socket, true);
            Ok(socket)
        }
        Some(Err(error)) => Err(format!("cannot connect to {url}: {}", cause(&error))),
        None => Err(format!("cannot connect to {url}: it does not answer")),
    }
}

/// The addresses of a host; a name may have to be asked for over the network.
async fn resolve(host: &str, port: u16) -> Result<Vec<SocketAddr>, String> {
    let place = (host.to_owned(), port);
    let found = pool::run(move || place.to_socket_addrs().map(Vec::from_iter)).await;
    match found {
        Ok(Ok(addresses)) if !addresses.is_empty() => Ok(addresses),
        Ok(Ok(_)) => Err(format!("{host} has no address")),
        Ok(Err(error)) => Err(format!("{host} has no address: {error}")),
        Err(error) => Err(error.sentence().to_owned()),
    }
}

/// Makes the connection a WebSocket.
async fn upgrade(remote: &Socket, options: &Options) -> Result<Incoming, String> {
    let mut random = [0; 16];
    getrandom(&mut random, GetRandomFlags::empty())
        .map_err(|error| format!("there is no randomness: {error}"))?;
    let route = options.route();
    let (upgrade, request) = Upgrade::new(random, &options.url.host, &route, &options.token);
    remote
        .send_all(request.as_bytes(), false)
        .await
        .map_err(|error| cause(&error))?;
    let mut bytes = Vec::new();
    loop {
        more(remote, &mut bytes).await?;
        match upgrade.judge(&bytes) {
            Ok(Step::More) => {}
            Ok(Step::Done(Answer::Open, used)) => {
                return Ok(Incoming::behind(&bytes[used..], options.verified.is_some()));
            }
            Ok(Step::Done(Answer::Refused { status, length }, used)) => {
                bytes.drain(..used);
                let length = length.min(MOST_BODY);
                while bytes.len() < length && more(remote, &mut bytes).await.is_ok() {}
                bytes.truncate(length);
                return Err(refusal(status, &bytes));
            }
            Err(why) => return Err(format!("{} is no daemon: {why}", options.url)),
        }
    }
}

async fn more(remote: &Socket, bytes: &mut Vec<u8>) -> Result<(), String> {
    bytes.reserve(4096);
    match remote.recv(bytes).await {
        Ok(0) => Err("the daemon closed the connection instead of answering".into()),
        Ok(_) => Ok(()),
        Err(error) => Err(cause(&error)),
    }
}

/// Proves our key and sees the guest's proved.
async fn verify(
    remote: &Socket,
    incoming: &mut Incoming,
    keys: &HostKeys,
    protocol: Protocol,
    port: u16,
) -> Result<Session, String> {
    let mut masks = Masks::new();
    let told = |error: Error| error.sentence().to_owned();
    let (initiator, first) = Initiator::new(keys, protocol, port).map_err(told)?;
    let first = frame(Opcode::Binary, &first, &mut masks);
    // A daemon that has closed already says why in what it sent before.
    let _ = remote.send_all(&first, false).await;
    let answer = match incoming.message(remote).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(Ending::Broken(why))) => return Err(why),
        Ok(Err(_)) | Err(Fault::Gone) => {
            return Err("the daemon closed the tunnel instead of proving the guest's key".into());
        }
        Err(Fault::Garbled(_, why)) => {
            return Err(format!("the daemon breaks the protocol: {why}"));
        }
    };
    let mut session = initiator.finish(&answer).map_err(|_| {
        "the other side does not have the private key that belongs to --guest-key".to_owned()
    })?;
    if session.expects_ready() {
        let ready = sealed_frame(&mut session, READY, &mut masks).map_err(told)?;
        remote
            .send_all(&ready, false)
            .await
            .map_err(|error| cause(&error))?;
    }
    Ok(session)
}

/// What the system said, or else what the error says.
fn cause(error: &Error) -> String {
    match error.source() {
        Some(cause) => cause.to_string(),
        None => error.sentence().to_owned(),
    }
}

/// How long one address may take to accept a connection.
const CONNECT: Duration = Duration::from_secs(10);
/// How long the daemon may take for the answer to the upgrade, and then for that to the handshake.
const ANSWER: Duration = Duration::from_secs(10);
/// Whoever reads slowly is waited for: a tunnel may stand still for as long as its ends like.
const FOREVER: Duration = Duration::MAX;
