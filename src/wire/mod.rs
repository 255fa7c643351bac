//! Bytes to values and back: no I/O, no clock, no async, no unsafe.

pub mod http;
