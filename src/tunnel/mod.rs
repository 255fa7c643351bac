//! A byte path into the guest.

pub mod secure;
