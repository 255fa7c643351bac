//! Files of the guest: read, replaced, packed into an archive, extracted from one.

mod carry;
mod check;
mod confine;
mod entry;
pub mod extract;
pub mod file;
pub mod filter;
mod lent;
pub mod lines;
pub mod list;
pub mod make;
mod member;
mod mount;
mod owners;
pub mod pack;
pub mod range;
pub mod remove;
pub mod rename;
mod space;
mod spool;
pub mod stat;
mod target;
mod unpack;
pub mod upload;
mod walk;
pub mod watch;

#[cfg(test)]
mod testing;
