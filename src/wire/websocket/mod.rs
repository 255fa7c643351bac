//! WebSocket (RFC 6455): the opening handshake, the frames of a peer, and frames of ours; what only clients do is in
//! [`client`].

pub mod client;
mod decoder;
mod encode;
pub mod handshake;
mod mask;

pub use decoder::{Data, Decoder, Grain, Piece, Violation};
pub use encode::{Head, close, ping, pong};
