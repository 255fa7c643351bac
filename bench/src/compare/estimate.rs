//! How large the ratio of NEW to BASE is, and how far from that it may be.

use super::{bootstrap, ranks, student};
use crate::results::median;

/// With fewer rounds nothing is decided: two kinds of rounds by turns, fast and slow, could look like a change.
pub(crate) const LEAST_ROUNDS: usize = 5;

/// How rounds of BASE and NEW relate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    /// Values at one index come from the same round of one run.
    Paired,
    /// Two runs at two times.
    Independent,
}

/// Where a ratio lies with some confidence.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Interval {
    pub(crate) low: f64,
    pub(crate) high: f64,
}

impl Interval {
    /// Nothing is known.
    pub(super) const ALL: Self = Self {
        low: 0.0,
        high: f64::INFINITY,
    };

    /// The smallest that holds both.
    fn hull(self, other: Self) -> Self {
        Self {
            low: self.low.min(other.low),
            high: self.high.max(other.high),
        }
    }
}

/// A ratio that was measured.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Estimate {
    /// Paired: the median of the rounds' ratios. Else: the ratio of the medians. Never not a number.
    pub(crate) ratio: f64,
    /// Nothing with fewer than [`LEAST_ROUNDS`].
    pub(crate) interval: Option<Interval>,
}

impl Estimate {
    /// From values that are neither negative nor missing.
    pub(super) fn of(
        form: Form,
        base: &[f64],
        new: &[f64],
        confidence: f64,
        resamples: usize,
    ) -> Self {
        match form {
            Form::Paired => paired(base, new, confidence, resamples),
            Form::Independent => independent(base, new, confidence, resamples),
        }
    }
}

fn paired(base: &[f64], new: &[f64], confidence: f64, resamples: usize) -> Estimate {
    let ratios: Vec<f64> = base
        .iter()
        .zip(new)
        .map(|(base, new)| quotient(*new, *base))
        .collect();
    let rounds = ratios.len();
    let interval = (rounds >= LEAST_ROUNDS).then(|| {
        let drawn = bootstrap::paired(&ratios, confidence, resamples);
        if rounds > ranks::EXACT_ROUNDS {
            return drawn;
        }
        let floor = ranks::paired(&ratios, confidence);
        drawn.hull(floor.unwrap_or_else(|| student::paired(&ratios, confidence)))
    });
    Estimate {
        ratio: median(ratios),
        interval,
    }
}

fn independent(base: &[f64], new: &[f64], confidence: f64, resamples: usize) -> Estimate {
    let rounds = base.len().min(new.len());
    let interval = (rounds >= LEAST_ROUNDS).then(|| {
        let drawn = bootstrap::independent(base, new, confidence, resamples);
        if base.len().max(new.len()) > ranks::EXACT_ROUNDS {
            return drawn;
        }
        let floor = ranks::independent(base, new, confidence);
        drawn.hull(floor.unwrap_or_else(|| student::independent(base, new, confidence)))
    });
    Estimate {
        ratio: quotient(median(new.to_vec()), median(base.to_vec())),
        interval,
    }
}

/// How many times `base` is in `new`: 1 when both are 0, infinity when only `base` is. Both must not be negative.
pub(super) fn quotient(new: f64, base: f64) -> f64 {
    if base > 0.0 {
        new / base
    } else if new > 0.0 {
        f64::INFINITY
    } else {
        1.0
    }
}
