//! The error of a daemon that does not offer what is asked for.

/// What it lacks. A scenario leaves such a target out and goes on with the others.
#[derive(Debug)]
pub(crate) struct Unsupported(pub(crate) String);

impl std::fmt::Display for Unsupported {
    fn fmt(&self, out: &mut std::fmt::Formatter) -> std::fmt::Result {
        out.write_str(&self.0)
    }
}

impl std::error::Error for Unsupported {}

/// Statuses by which a daemon says that it has no such route or method.
pub(super) const STATUSES: [u16; 3] = [404, 405, 501];
