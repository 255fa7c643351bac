//! The servers that ringd is measured against and that live in this program.

pub(crate) mod axum;
pub(crate) mod bare;
