//! Text of a file made harmless: for HTML and SVG, for Markdown, and for the eyes of others.

use crate::results::without_tokens;

/// Text for HTML and XML, between tags and in quoted attributes.
pub(crate) fn markup(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' | '\t' => out.push(' '),
            // XML has no place for these, not even as references.
            '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            letter if letter.is_control() => out.push('\u{fffd}'),
            letter => out.push(letter),
        }
    }
    out
}

/// A sentence for HTML; what stands between backticks becomes code.
pub(crate) fn prose(text: &str) -> String {
    let pieces = spans(text).into_iter().map(|(piece, is_code)| {
        let piece = markup(piece);
        if is_code {
            format!("<code>{piece}</code>")
        } else {
            piece
        }
    });
    pieces.collect()
}

/// Text for one line or one table cell of Markdown.
pub(crate) fn markdown(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\\' | '|' | '*' | '_' | '[' | ']' | '`' | '~' => out.extend(['\\', letter]),
            letter if letter.is_control() => out.push(' '),
            letter => out.push(letter),
        }
    }
    out
}

/// A sentence for Markdown; what stands between backticks stays code.
pub(crate) fn markdown_prose(text: &str) -> String {
    let pieces = spans(text).into_iter().map(|(piece, is_code)| {
        if is_code {
            format!("`{}`", piece.replace(char::is_control, " "))
        } else {
            markdown(piece)
        }
    });
    pieces.collect()
}

/// A command line as it may be shown: the tokens of targets are left out.
pub(crate) fn command_line(words: &[String]) -> String {
    let words = without_tokens(words).into_iter().map(|word| {
        let is_quoted = word.is_empty() || word.contains(char::is_whitespace);
        if is_quoted { format!("'{word}'") } else { word }
    });
    words.collect::<Vec<_>>().join(" ")
}

/// A name for a file: small letters, digits, dots and single dashes.
pub(crate) fn file_stem(name: &str) -> String {
    let mut stem = String::new();
    for letter in name.chars() {
        if letter.is_ascii_alphanumeric() || letter == '.' && !stem.is_empty() {
            stem.push(letter.to_ascii_lowercase());
        } else if !stem.is_empty() && !stem.ends_with('-') {
            stem.push('-');
        }
    }
    let stem = stem.trim_end_matches(['-', '.']);
    if stem.is_empty() { "unnamed" } else { stem }.to_owned()
}

/// The pieces between backticks, and whether each is code; all is text when a backtick has no partner.
fn spans(text: &str) -> Vec<(&str, bool)> {
    let pieces: Vec<&str> = text.split('`').collect();
    if pieces.len().is_multiple_of(2) {
        return vec![(text, false)];
    }
    let numbered = pieces.into_iter().enumerate();
    numbered.map(|(at, piece)| (piece, at % 2 == 1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_stays_text() {
        assert_eq!(
            markup("<script>'&\"\u{1}"),
            "&lt;script&gt;&#39;&amp;&quot;\u{fffd}"
        );
        assert_eq!(prose("`a<b` and <i>"), "<code>a&lt;b</code> and &lt;i&gt;");
        assert_eq!(prose("one ` alone"), "one ` alone");
    }

    #[test]
    fn a_cell_of_markdown_stays_one_cell() {
        assert_eq!(markdown("a|b\n<c> d_e"), "a\\|b &lt;c&gt; d\\_e");
        assert_eq!(markdown_prose("`dd bs=64K` a*b"), "`dd bs=64K` a\\*b");
        assert_eq!(markdown_prose("one ` a*b"), "one \\` a\\*b");
    }

    #[test]
    fn tokens_are_not_shown() {
        let words = [
            "run",
            "--target",
            "a=http://[::1]:80,s3cret",
            "--token",
            "s3cret",
            "--token=s3cret",
            "--spawn",
            "b=b --token s3cret -v",
            "--scenario",
            "get-1g,put-1g",
        ];
        assert_eq!(
            command_line(&words.map(str::to_owned)),
            "run --target a=http://[::1]:80,*** --token *** --token=*** --spawn 'b=b --token *** -v' --scenario get-1g,put-1g"
        );
    }

    #[test]
    fn a_file_name_stays_in_its_directory() {
        assert_eq!(file_stem("get-1g"), "get-1g");
        assert_eq!(file_stem("../../etc/Pass wd"), "etc-pass-wd");
        assert_eq!(file_stem("..."), "unnamed");
    }
}
