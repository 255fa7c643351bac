//! HTTP/1.1 (RFC 9112) as values.

pub mod chunked;
pub mod date;
pub mod dictionary;
pub mod head;
pub mod query;
pub mod reply;
