//! Files of the guest: read, replaced, packed into an archive, extracted from one.

mod attributes;
mod carry;
mod check;
mod confine;
mod entry;
pub mod extract;
pub mod file;
pub mod filter;
mod holes;
mod journal;
mod landing;
mod lent;
pub mod lines;
pub mod list;
mod listed;
pub mod make;
pub mod manifest;
mod member;
mod mount;
mod owners;
pub mod pack;
mod plan;
pub mod range;
pub mod remove;
pub mod rename;
pub mod resumable;
mod space;
mod spool;
mod stamp;
pub mod stat;
mod target;
mod tree;
mod unpack;
pub mod upload;
pub mod version;
pub mod visit;
mod walk;
pub mod watch;

#[cfg(test)]
mod testing;
