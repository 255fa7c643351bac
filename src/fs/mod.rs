//! Files of the guest: read, replaced, packed into an archive, extracted from one.

mod check;
mod confine;
pub mod extract;
pub mod file;
pub mod filter;
mod lent;
pub mod lines;
pub mod manifest;
mod member;
mod mount;
pub mod pack;
pub mod range;
mod space;
mod spool;
mod target;
mod unpack;
pub mod upload;
mod walk;

#[cfg(test)]
mod testing;
