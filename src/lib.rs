//! ringd: a service that runs inside a microVM or sandbox and does what its host asks.

pub mod error;
pub mod ring;
