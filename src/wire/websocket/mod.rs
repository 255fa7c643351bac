//! WebSocket (RFC 6455) on the server's side: the opening handshake, the frames of a client, and frames of ours.

mod decoder;
mod encode;
pub mod handshake;
mod mask;

pub use decoder::{Data, Decoder, Grain, Piece, Violation};
pub use encode::{Head, close, ping, pong};
