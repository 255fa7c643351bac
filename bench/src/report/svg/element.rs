//! One element of SVG, written as text with everything escaped.

use std::fmt::{Display, Formatter};

use super::super::escape;

/// An element with its attributes and what it holds.
pub(crate) struct Element {
    name: &'static str,
    attributes: String,
    content: String,
}

impl Element {
    pub(crate) fn new(name: &'static str, class: &str) -> Self {
        let element = Self {
            name,
            attributes: String::new(),
            content: String::new(),
        };
        if class.is_empty() {
            element
        } else {
            element.with("class", class)
        }
    }

    pub(crate) fn with(mut self, key: &str, value: impl Display) -> Self {
        let value = escape::markup(&value.to_string());
        self.attributes.push_str(&format!(" {key}=\"{value}\""));
        self
    }

    /// Attributes that are lengths or places.
    pub(crate) fn at<const N: usize>(mut self, lengths: [(&str, f64); N]) -> Self {
        for (key, length) in lengths {
            self = self.with(key, px(length));
        }
        self
    }

    pub(crate) fn text(mut self, text: &str) -> Self {
        self.content.push_str(&escape::markup(text));
        self
    }

    pub(crate) fn holding(mut self, child: &Self) -> Self {
        self.content.push_str(&child.to_string());
        self
    }
}

impl Display for Element {
    fn fmt(&self, out: &mut Formatter<'_>) -> std::fmt::Result {
        let Self {
            name,
            attributes,
            content,
        } = self;
        if content.is_empty() {
            write!(out, "<{name}{attributes}/>")
        } else {
            write!(out, "<{name}{attributes}>{content}</{name}>")
        }
    }
}

/// A length with one decimal at most.
pub(crate) fn px(length: f64) -> String {
    let text = format!("{:.1}", length + 0.0);
    text.strip_suffix(".0").unwrap_or(&text).to_owned()
}

/// The text if it fits, else its beginning; letters have this share of the font size on average.
pub(crate) fn fitted(text: &str, width: f64, font_size: f64) -> String {
    let fits = |count: usize| f64_of(count) * font_size * LETTER <= width;
    if fits(text.chars().count()) {
        return text.to_owned();
    }
    let mut kept = String::new();
    for (at, letter) in text.chars().enumerate() {
        if !fits(at + 2) {
            break;
        }
        kept.push(letter);
    }
    kept + "…"
}

/// About how wide a text is.
pub(crate) fn width_of(text: &str, font_size: f64) -> f64 {
    f64_of(text.chars().count()) * font_size * LETTER
}

/// A small count as a number to compute with.
pub(crate) fn f64_of(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

const LETTER: f64 = 0.56;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_from_a_file_stay_text() {
        let element = Element::new("text", "")
            .with("data-series", "\"><script>")
            .text("</text>");
        assert_eq!(
            element.to_string(),
            "<text data-series=\"&quot;&gt;&lt;script&gt;\">&lt;/text&gt;</text>"
        );
    }

    #[test]
    fn a_long_name_is_shortened() {
        assert_eq!(fitted("ringd", 50.0, 10.0), "ringd");
        assert_eq!(fitted("a-very-long-name", 50.0, 10.0), "a-very-…");
    }
}
