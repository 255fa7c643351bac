//! Bytes to values and back: no I/O, no clock, no async, no unsafe.

pub mod base64;
pub mod coding;
pub mod digest;
pub mod http;
pub mod json;
pub mod output;
pub mod prometheus;
pub mod sse;
pub mod tar;
