//! The daemon as its clients meet it: the real binary over real sockets, every test on both drivers.

#[macro_use]
mod driver;

mod archive;
mod attacks;
mod client;
mod daemon;
mod execs;
mod process;
mod reply;
mod request;
mod scratch;
mod terminal;

mod access;
mod bodies;
mod bootstrap;
mod config;
mod connections;
mod drivers;
mod example;
mod exec_child;
mod exec_keep;
mod exec_kill;
mod exec_result;
mod exec_start;
mod exec_terminal;
mod files_atomic;
mod files_read;
mod files_write;
mod heads;
mod health;
mod hooks;
mod hostile;
mod listeners;
mod logs;
mod routing;
mod shutdown;
mod smuggling;
mod tar_changing;
mod tar_formats;
mod tar_read;
mod tar_refused;
mod tar_sparse;
mod tar_write;
