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

/// The error of an answer that was not wanted: [`Unsupported`] for a status that says that there is no such route or
/// method.
pub(super) fn refusal(status: u16, sentence: String) -> anyhow::Error {
    match status {
        404 | 405 | 501 => Unsupported(sentence).into(),
        _ => anyhow::Error::msg(sentence),
    }
}
