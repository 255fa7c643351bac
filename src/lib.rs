//! ringd: a service that runs inside a microVM or sandbox and does what its host asks.
//!
//! A request passes few hands: a door ([`doors`]) reads it and finds its row in the table ([`api`]), the row's
//! handler introduces the rooms ([`exec`], [`fs`], …), and the rooms use codecs ([`wire`]) and the kernel ([`ring`]).

pub mod api;
pub mod app;
pub mod boot;
pub mod cli;
pub mod config;
pub mod doors;
pub mod error;
pub mod exec;
pub mod fs;
pub mod health;
pub mod hooks;
pub mod identity;
pub mod log;
pub mod ring;
pub mod tunnel;
pub mod wire;
