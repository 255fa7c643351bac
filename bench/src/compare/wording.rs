//! The sentences and numbers that a terminal and a pull request both show.

use super::bootstrap::SEED;
use super::{Comparison, Form, Lack, Row, Unpaired, Verdict};

/// The outcome in one line.
pub(super) fn headline(comparison: &Comparison) -> String {
    let gated: Vec<&Row> = comparison.rows.iter().filter(|row| row.is_gated).collect();
    let counts: Vec<String> = [
        Verdict::Worse,
        Verdict::Better,
        Verdict::Same,
        Verdict::TooNoisy,
        Verdict::LoadBound,
    ]
    .into_iter()
    .map(|verdict| {
        let count = gated.iter().filter(|row| row.verdict() == verdict).count();
        (count, verdict)
    })
    .filter(|(count, _)| *count > 0)
    .map(|(count, verdict)| format!("{count} {verdict}"))
    .collect();
    let lost = comparison.unpaired.iter().filter(|one| one.fails).count();
    let mut words = vec![outcome(comparison, &gated).to_owned()];
    if lost > 0 {
        words.push(format!("{lost} failed or missing"));
    }
    if !gated.is_empty() {
        let kind = kind(comparison);
        let of = format!("{} {kind}{}", gated.len(), plural(gated.len()));
        words.push(format!("of {of} {}", counts.join(", ")));
    }
    let rest = words.split_off(1).join("; ");
    format!("{}: {rest}", words[0])
}

fn outcome(comparison: &Comparison, gated: &[&Row]) -> &'static str {
    if comparison.rows.iter().any(Row::fails) {
        return "Worse";
    }
    if comparison.fails() {
        return "Failed";
    }
    let is_decided = |row: &&Row| matches!(row.verdict(), Verdict::Same | Verdict::Better);
    if gated.iter().any(is_decided) {
        "Not worse"
    } else {
        "Undecided"
    }
}

/// How the verdicts came about.
pub(super) fn method(comparison: &Comparison) -> Vec<String> {
    let rules = &comparison.rules;
    let form = match comparison.form {
        Form::Paired => {
            "One run of both targets: a ratio is the median of the ratios of the rounds, so what hits both alike in a round falls out."
        }
        Form::Independent => {
            "Two runs: their rounds are not paired, so a ratio is that of the medians, and what the machine did differently in between is in it."
        }
    };
    let together = match comparison.gated {
        0 | 1 => format!("Intervals have {}.", percent(rules.confidence)),
        gated => format!(
            "Intervals of the {gated} {}s have {} each, so that all together have {} (Bonferroni){}.",
            kind(comparison),
            percent(comparison.gate_confidence()),
            percent(rules.confidence),
            if rules.gate_all {
                ""
            } else {
                "; those of the others have the latter each, and the others do not fail"
            }
        ),
    };
    let margin = percent(rules.margin);
    vec![
        form.to_owned(),
        format!("{together} {} resamples, seed {SEED}.", rules.resamples),
        format!(
            "Worse or better: the interval leaves out 1 and the ratio is beyond {margin}. Same: the whole interval is within {margin}. Too noisy: neither."
        ),
    ]
}

fn kind(comparison: &Comparison) -> &'static str {
    if comparison.rules.gate_all {
        "figure"
    } else {
        "main figure"
    }
}

fn plural(count: usize) -> &'static str {
    if count == 1 { "" } else { "s" }
}

/// What became of something that one side lacks.
pub(super) fn lack(unpaired: &Unpaired) -> String {
    let what = match unpaired.lack {
        Lack::Failed => "failed",
        Lack::Missing => "missing in NEW",
        Lack::Added => "new in NEW",
    };
    let place: Vec<&str> = [
        Some(unpaired.scenario.as_str()),
        unpaired.target.as_deref(),
        unpaired.metric.as_deref(),
    ]
    .into_iter()
    .flatten()
    .collect();
    format!("{what}: {}: {}", place.join(" / "), unpaired.why)
}

/// `1.021 (0.998..1.043)`
pub(super) fn ratio(row: &Row) -> String {
    let Some(estimate) = row.judgement.estimate else {
        return "-".to_owned();
    };
    match estimate.interval {
        Some(interval) => format!(
            "{} ({}..{})",
            factor(estimate.ratio),
            factor(interval.low),
            factor(interval.high)
        ),
        None => factor(estimate.ratio),
    }
}

/// The verdict, and why where there is more to say.
pub(super) fn verdict(row: &Row) -> String {
    match &row.judgement.note {
        Some(note) => format!("{} ({note})", row.verdict()),
        None => row.verdict().to_string(),
    }
}

fn factor(ratio: f64) -> String {
    if ratio.is_infinite() {
        return "∞".to_owned();
    }
    format!("{ratio:.3}")
}

/// About four digits that say something.
pub(super) fn figure(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if size >= 1000.0 => format!("{value:.0}"),
        size if size >= 100.0 => format!("{value:.1}"),
        size if size >= 10.0 => format!("{value:.2}"),
        size if size >= 1.0 => format!("{value:.3}"),
        size if size >= 0.1 => format!("{value:.4}"),
        size if size >= 1e-4 => format!("{value:.6}"),
        _ => format!("{value:.3e}"),
    }
}

/// `99.58 %`
pub(super) fn percent(share: f64) -> String {
    let digits = format!("{:.3}", share * 100.0);
    let digits = digits.trim_end_matches('0').trim_end_matches('.');
    format!("{digits} %")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_the_digits_that_say_something() {
        for (value, text) in [
            (0.0, "0"),
            (1_073_741_824.0, "1073741824"),
            (12.345_6, "12.35"),
            (1.02, "1.020"),
            (0.199_64, "0.1996"),
            (0.001_234, "0.001234"),
            (0.000_001_234, "1.234e-6"),
        ] {
            assert_eq!(figure(value), text);
        }
    }

    #[test]
    fn percentages_end_with_a_digit_that_counts() {
        assert_eq!(percent(0.95), "95 %");
        assert_eq!(percent(1.0 - 0.05 / 12.0), "99.583 %");
        assert_eq!(percent(0.1), "10 %");
    }
}
