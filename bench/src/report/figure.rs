//! Numbers as text: three significant digits, in a unit that suits their size.

/// Shown where there is no figure.
pub(crate) const NOT_MEASURED: &str = "not measured";

/// Three significant digits; whole numbers under 1000 as they are.
pub(crate) fn digits(value: f64) -> String {
    if !value.is_finite() {
        return NOT_MEASURED.to_owned();
    }
    if value.fract() == 0.0 && value.abs() < 1000.0 {
        return format!("{:.0}", value + 0.0);
    }
    let (rounded, exponent) = rounded(value);
    if !PLAIN.contains(&exponent) {
        return format!("{value:.2e}");
    }
    let decimals = usize::try_from(2 - exponent).unwrap_or(0);
    grouped(&format!("{rounded:.decimals$}"))
}

/// The shortest text of a round number, for an axis.
pub(crate) fn tick(value: f64) -> String {
    let text = digits(value);
    if !text.contains('.') || text.contains('e') {
        return text;
    }
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// What a value in the unit of a file is multiplied by to be shown, and the name of the unit then.
pub(crate) struct Unit {
    pub(crate) factor: f64,
    pub(crate) name: String,
}

impl Unit {
    /// The unit as the file has it.
    pub(crate) fn plain(name: &str) -> Self {
        Self {
            factor: 1.0,
            name: name
                .strip_prefix("us")
                .filter(|rest| rest.is_empty() || rest.starts_with('/'))
                .map_or_else(|| name.to_owned(), |rest| format!("µs{rest}")),
        }
    }

    /// Whether it is one of time or size, of which there are larger and smaller ones.
    pub(crate) fn is_known(name: &str) -> bool {
        chain_of(name).is_some()
    }

    /// The unit in which a value of this size has few digits.
    pub(crate) fn for_size(name: &str, size: f64) -> Self {
        let (counted, per) = match name.split_once('/') {
            Some((counted, per)) => (counted, format!("/{per}")),
            None => (name, String::new()),
        };
        let (Some(chain), true) = (chain_of(counted), size.is_finite() && size > 0.0) else {
            return Self::plain(name);
        };
        let own = chain.iter().find(|(unit, _)| *unit == counted);
        let own = own.map_or(1.0, |(_, factor)| *factor);
        let fits = |(_, factor): &&(&str, f64)| size * own >= *factor;
        let (unit, factor) = chain.iter().rev().find(fits).unwrap_or(&chain[0]);
        Self {
            factor: own / factor,
            name: Self::plain(&format!("{unit}{per}")).name,
        }
    }

    /// The value in this unit, without its name.
    pub(crate) fn digits(&self, value: f64) -> String {
        digits(value * self.factor)
    }
}

/// One value with its unit.
pub(crate) fn measure(value: f64, unit: &str) -> String {
    if !value.is_finite() {
        return NOT_MEASURED.to_owned();
    }
    let unit = Unit::for_size(unit, value.abs());
    format!("{} {}", unit.digits(value), unit.name)
}

/// The same for a round number.
pub(crate) fn tick_measure(value: f64, unit: &str) -> String {
    let unit = Unit::for_size(unit, value.abs());
    format!("{} {}", tick(value * unit.factor), unit.name)
}

const TIMES: &[(&str, f64)] = &[("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)];
const BYTES: &[(&str, f64)] = &[
    ("B", 1.0),
    ("KiB", 1024.0),
    ("MiB", 1024.0 * 1024.0),
    ("GiB", 1024.0 * 1024.0 * 1024.0),
];

fn chain_of(name: &str) -> Option<&'static [(&'static str, f64)]> {
    let mut chains = [TIMES, BYTES].into_iter();
    chains.find(|chain| chain.iter().any(|(unit, _)| *unit == name))
}

/// Exponents of ten for which no exponent is written.
const PLAIN: std::ops::RangeInclusive<i32> = -6..=11;

/// The value with three significant digits, and the power of ten of the first of them.
fn rounded(value: f64) -> (f64, i32) {
    let text = format!("{value:.2e}");
    let exponent = text
        .split_once('e')
        .and_then(|(_, exponent)| exponent.parse().ok());
    (text.parse().unwrap_or(value), exponent.unwrap_or(0))
}

/// Commas between thousands, from five digits on.
fn grouped(text: &str) -> String {
    let (sign, number) = match text.strip_prefix('-') {
        Some(number) => ("-", number),
        None => ("", text),
    };
    if number.contains('.') || number.len() < 5 {
        return text.to_owned();
    }
    let mut out = sign.to_owned();
    for (at, digit) in number.chars().enumerate() {
        if at > 0 && (number.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_are_significant() {
        let shown = |value| digits(value);
        assert_eq!(shown(0.083_672), "0.0837");
        assert_eq!(shown(0.99999), "1.00");
        assert_eq!(shown(7912.3), "7910");
        assert_eq!(shown(47_368.1), "47,400");
        assert_eq!(shown(1_234_567.0), "1,230,000");
        assert_eq!(shown(-12.345), "-12.3");
        assert_eq!(shown(0.0), "0");
        assert_eq!(shown(-0.0), "0");
        assert_eq!(shown(1.5e-9), "1.50e-9");
        assert_eq!(shown(1e300), "1.00e300");
    }

    #[test]
    fn no_figure_is_said_in_words() {
        assert_eq!(digits(f64::NAN), NOT_MEASURED);
        assert_eq!(digits(f64::INFINITY), NOT_MEASURED);
        assert_eq!(measure(f64::NAN, "us"), NOT_MEASURED);
    }

    #[test]
    fn a_unit_suits_the_size() {
        assert_eq!(measure(12_300.0, "us"), "12.3 ms");
        assert_eq!(measure(0.0341, "ms/file"), "34.1 µs/file");
        assert_eq!(measure(0.25, "GiB/s"), "256 MiB/s");
        assert_eq!(measure(0.0837, "CPU-s/GiB"), "0.0837 CPU-s/GiB");
        assert_eq!(measure(0.0, "us"), "0 µs");
        assert_eq!(tick_measure(0.5, "ms"), "500 µs");
        assert_eq!(tick(2.50), "2.5");
    }
}
