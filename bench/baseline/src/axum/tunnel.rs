//! A TCP port of this machine through a WebSocket: binary frames both ways, over axum's own WebSocket (tungstenite).

use std::time::Duration;

use axum::body::Bytes;
use axum::extract::Query;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade};
use axum::response::Response;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use serde::Deserialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

const DIAL_PATIENCE: Duration = Duration::from_secs(2);
/// Bytes of the port's side that make one frame at most.
const FRAME_BYTES: usize = 64 << 10;

#[derive(Deserialize)]
pub(super) struct TunnelQuery {
    port: u16,
}

pub(super) async fn open(Query(query): Query<TunnelQuery>, upgrade: WebSocketUpgrade) -> Response {
    upgrade
        .protocols(["lambda-microvms"])
        .on_upgrade(move |socket| relay(socket, query.port))
}

async fn relay(mut socket: WebSocket, port: u16) {
    let ending = match dial(port).await {
        Ok(stream) => {
            let (port_in, port_out) = stream.into_split();
            let (mut frames_out, frames_in) = socket.split();
            // The first end ends both directions.
            let ending = tokio::select! {
                ending = inward(frames_in, port_out) => ending,
                ending = outward(port_in, &mut frames_out) => ending,
            };
            // Where the peer is gone nobody hears it.
            let _ = frames_out.send(Message::Close(Some(ending))).await;
            return;
        }
        Err(ending) => ending,
    };
    let _ = socket.send(Message::Close(Some(ending))).await;
}

async fn dial(port: u16) -> Result<TcpStream, CloseFrame> {
    if port == 0 {
        return Err(told(4400, "port 0 cannot be dialled".to_owned()));
    }
    let dialled =
        tokio::time::timeout(DIAL_PATIENCE, TcpStream::connect(("127.0.0.1", port))).await;
    match dialled {
        Ok(Ok(stream)) if stream.set_nodelay(true).is_ok() => Ok(stream),
        _ => Err(told(
            4502,
            format!("nothing is listening on 127.0.0.1:{port}"),
        )),
    }
}

async fn inward(mut frames: SplitStream<WebSocket>, mut port: OwnedWriteHalf) -> CloseFrame {
    while let Some(Ok(message)) = frames.next().await {
        let bytes = match message {
            Message::Binary(bytes) => bytes,
            Message::Text(text) => text.into(),
            Message::Ping(_) | Message::Pong(_) => continue,
            Message::Close(_) => break,
        };
        if port.write_all(&bytes).await.is_err() {
            break;
        }
    }
    told(1000, String::new())
}

async fn outward(
    mut port: OwnedReadHalf,
    frames: &mut SplitSink<WebSocket, Message>,
) -> CloseFrame {
    let mut buffer = vec![0; FRAME_BYTES];
    loop {
        let count = match port.read(&mut buffer).await {
            Ok(0) => return told(1000, String::new()),
            Ok(count) => count,
            Err(_) => return told(4500, "the connection failed mid-relay".to_owned()),
        };
        let bytes = Bytes::copy_from_slice(&buffer[..count]);
        if frames.send(Message::Binary(bytes)).await.is_err() {
            return told(1000, String::new());
        }
    }
}

fn told(code: u16, reason: String) -> CloseFrame {
    CloseFrame {
        code,
        reason: reason.into(),
    }
}
