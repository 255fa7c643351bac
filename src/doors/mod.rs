//! How it is asked: the doors to the one table of operations.

pub mod http;
