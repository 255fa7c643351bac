//! The error of a daemon that does not offer what is asked for.

use anyhow::Result;

/// What it lacks. A scenario leaves such a target out and goes on with the others.
#[derive(Debug)]
pub(crate) struct Unsupported(pub(crate) String);

impl std::fmt::Display for Unsupported {
    fn fmt(&self, out: &mut std::fmt::Formatter) -> std::fmt::Result {
        out.write_str(&self.0)
    }
}

impl std::error::Error for Unsupported {}

/// An error for any status but those that are wanted: [`Unsupported`] for one that says that there is no such route or
/// method, or too small a limit. `what` is the request.
pub(crate) fn wanted(status: u16, wanted: &[u16], what: &str) -> Result<()> {
    match wanted.contains(&status) {
        true => Ok(()),
        false => Err(refusal(status, format!("{what} answered {status}"))),
    }
}

/// The error of an answer that was not wanted.
pub(super) fn refusal(status: u16, sentence: String) -> anyhow::Error {
    match status {
        404 | 405 | 413 | 501 => Unsupported(sentence).into(),
        _ => anyhow::Error::msg(sentence),
    }
}
