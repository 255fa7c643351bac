//! The colours of both themes, for the page and for charts that stand alone.

use std::fmt::Write;

/// Colour-blind-safe hues: name of the CSS variable, light, dark. Targets have the first eight, in their order.
const PALETTE: &[(&str, &str, &str)] = &[
    ("s0", "#0b66c3", "#58a6ff"),
    ("s1", "#c2500a", "#f0883e"),
    ("s2", "#00795c", "#2fbf9a"),
    ("s3", "#a83e86", "#e08bc3"),
    ("s4", "#7a6200", "#d8b53a"),
    ("s5", "#5a4fcf", "#a79dff"),
    ("s6", "#5b6570", "#9aa5b1"),
    ("s7", "#8a3b2e", "#d98c7d"),
    ("paper", "#ffffff", "#11161d"),
    ("card", "#ffffff", "#171d26"),
    ("ground", "#f5f6f8", "#0c1016"),
    ("ink", "#1b222b", "#e4e9ef"),
    ("soft", "#5a6572", "#9aa6b4"),
    ("line", "#d7dce2", "#2e3844"),
    ("grid", "#e8ebef", "#242d38"),
    ("link", "#0b57a8", "#79b8ff"),
    ("alarm", "#a4161a", "#ff8f8f"),
    ("alarm-ground", "#fdecec", "#3a1719"),
    ("warn-ground", "#fff5d9", "#352b10"),
    ("ours4", "#8fbdf0", "#1c5fa8"),
    ("ours3", "#b3d2f5", "#1a4c84"),
    ("ours2", "#d0e3f9", "#183c64"),
    ("ours1", "#e6f0fb", "#172f4b"),
    ("peer1", "#fcefe2", "#3b2a18"),
    ("peer2", "#fadfc4", "#523519"),
    ("peer3", "#f6c99c", "#6f431a"),
    ("peer4", "#f0b072", "#8f511a"),
];

/// Targets beyond these share colours; their names still tell them apart.
pub(crate) const HUES: usize = 8;

/// What charts look like, with `var(--name)` for colours.
pub(crate) const CHART: &str = include_str!("chart.css");

/// Declarations of all colours of one theme.
pub(crate) fn variables(is_dark: bool) -> String {
    let mut out = String::new();
    for (name, light, dark) in PALETTE {
        let _ = write!(out, "--{name}:{};", if is_dark { dark } else { light });
    }
    out
}

/// The style of a chart on its own, without variables, which many viewers of SVG do not know.
pub(crate) fn standalone() -> String {
    format!(
        "{}@media (prefers-color-scheme:dark){{{}}}",
        resolved(false),
        resolved(true)
    )
}

fn resolved(is_dark: bool) -> String {
    let mut css = CHART.to_owned();
    for (name, light, dark) in PALETTE {
        css = css.replace(
            &format!("var(--{name})"),
            if is_dark { dark } else { light },
        );
    }
    css
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chart_alone_needs_no_variable() {
        assert!(CHART.contains("var(--s0)"));
        assert!(!standalone().contains("var("));
    }
}
