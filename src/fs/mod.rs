//! Files of the guest: read, replaced, packed into an archive, extracted from one.

mod check;
mod confine;
pub mod extract;
pub mod file;
pub mod filter;
mod journal;
mod landing;
mod lent;
pub mod lines;
mod member;
mod mount;
pub mod pack;
pub mod range;
mod space;
mod spool;
mod stamp;
mod target;
mod unpack;
pub mod upload;
pub mod version;
pub mod visit;
mod walk;

#[cfg(test)]
mod testing;
