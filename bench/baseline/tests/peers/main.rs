//! The peers over real sockets: what they serve, what they refuse, and that they end what they started.

mod axum;
mod bare;
mod client;
mod execs;
mod nginx;
mod peer;
mod tunnel;
