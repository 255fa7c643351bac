//! Command lines as they may stand in a file that others read.

/// The words without the tokens of targets, which stand in `NAME=URL,token` and behind `--token`.
pub(crate) fn without_tokens(words: &[String]) -> Vec<String> {
    let mut is_secret = false;
    let mut told = Vec::new();
    for word in words {
        let mut pieces: Vec<String> = Vec::new();
        // A word may be a command line itself.
        for piece in word.split_whitespace() {
            pieces.push(if is_secret {
                HIDDEN.to_owned()
            } else {
                without_token(piece)
            });
            is_secret = piece == TOKEN_OPTION;
        }
        told.push(pieces.join(" "));
    }
    told
}

/// `NAME=URL,token` and `--token=token` without the token.
fn without_token(word: &str) -> String {
    if word.starts_with("--token=") {
        return format!("{TOKEN_OPTION}={HIDDEN}");
    }
    match word.split_once("://") {
        Some((scheme, rest)) => match rest.split_once(',') {
            Some((place, token)) if !token.is_empty() => format!("{scheme}://{place},{HIDDEN}"),
            _ => word.to_owned(),
        },
        None => word.to_owned(),
    }
}

/// Shown in place of a token.
const HIDDEN: &str = "***";
const TOKEN_OPTION: &str = "--token";
