//! Files of the guest: read, replaced, packed into an archive, extracted from one.

mod attributes;
mod check;
mod confine;
pub mod extract;
pub mod file;
pub mod filter;
mod holes;
mod journal;
mod landing;
mod lent;
pub mod lines;
mod listed;
pub mod manifest;
mod member;
mod mount;
pub mod pack;
mod plan;
pub mod range;
pub mod resumable;
mod space;
mod spool;
mod stamp;
mod target;
mod tree;
mod unpack;
pub mod upload;
pub mod version;
pub mod visit;
mod walk;

#[cfg(test)]
mod testing;
