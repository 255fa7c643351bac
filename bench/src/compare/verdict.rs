//! What is said of one figure: worse, better, same, or that it cannot be said.

use std::fmt;

use super::estimate::{Estimate, Form, LEAST_ROUNDS};
use crate::results::{Better, Series, median};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    Worse,
    Better,
    /// A change beyond the margin is ruled out.
    Same,
    /// Neither a change nor its absence is shown.
    TooNoisy,
    /// The load side was the limit, so the figure says little about the target.
    LoadBound,
}

impl fmt::Display for Verdict {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(match self {
            Self::Worse => "worse",
            Self::Better => "better",
            Self::Same => "same",
            Self::TooNoisy => "too noisy",
            Self::LoadBound => "load was the limit",
        })
    }
}

/// The verdict on one figure and what it rests on.
#[derive(Clone, Debug)]
pub(crate) struct Judgement {
    pub(crate) verdict: Verdict,
    /// Nothing where a ratio would say nothing: from or to 0, or of negative values.
    pub(crate) estimate: Option<Estimate>,
    /// Why, where the ratio does not show it.
    pub(crate) note: Option<String>,
}

/// The rules for one figure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Judge {
    pub(crate) form: Form,
    /// 0.05 bears 1/1.05 to 1.05, so that a swap of BASE and NEW swaps better and worse.
    pub(crate) margin: f64,
    pub(crate) confidence: f64,
    pub(crate) resamples: usize,
}

impl Judge {
    /// Both must have values.
    pub(crate) fn judge(&self, base: &Series, new: &Series) -> Judgement {
        let mut judgement = self.judge_values(&base.values, &new.values, base.better);
        if is_load_bound(base) || is_load_bound(new) {
            judgement.verdict = Verdict::LoadBound;
        }
        judgement
    }

    fn judge_values(&self, base: &[f64], new: &[f64], better: Better) -> Judgement {
        if base.iter().chain(new).any(|value| *value < 0.0) {
            return without_ratio(Verdict::TooNoisy, "negative values have no ratio");
        }
        if let Some(judgement) = judge_zeros(base, new, better) {
            return judgement;
        }
        let estimate = Estimate::of(self.form, base, new, self.confidence, self.resamples);
        let note = estimate.interval.is_none().then(|| {
            let rounds = base.len().min(new.len());
            format!("{rounds} of the {LEAST_ROUNDS} rounds that a verdict needs")
        });
        Judgement {
            verdict: self.weigh(&estimate, better),
            estimate: Some(estimate),
            note,
        }
    }

    fn weigh(&self, estimate: &Estimate, better: Better) -> Verdict {
        let Some(interval) = estimate.interval else {
            return Verdict::TooNoisy;
        };
        let (least, most) = (1.0 / (1.0 + self.margin), 1.0 + self.margin);
        if interval.low > 1.0 && estimate.ratio > most {
            return more(better);
        }
        if interval.high < 1.0 && estimate.ratio < least {
            return less(better);
        }
        if interval.low >= least && interval.high <= most {
            return Verdict::Same;
        }
        Verdict::TooNoisy
    }
}

/// Decides where one side is 0 in all rounds: a count of zombies or of leaks has no ratio then.
fn judge_zeros(base: &[f64], new: &[f64], better: Better) -> Option<Judgement> {
    let some = |values: &[f64]| values.iter().filter(|value| **value > 0.0).count();
    let (some_base, some_new) = (some(base), some(new));
    let (verdict, values, count, side) = match (some_base, some_new) {
        (0, 0) => return Some(without_ratio(Verdict::Same, "0 in all rounds of both")),
        (0, count) => (more(better), new, count, "new"),
        (count, 0) => (less(better), base, count, "base"),
        _ => return None,
    };
    let other = if side == "new" { "base" } else { "new" };
    let rounds = values.len();
    let note = format!(
        "{other} is 0 in all rounds, {side} in {} of {rounds}",
        rounds - count
    );
    let is_usual = median(values.to_vec()) > 0.0;
    let verdict = if is_usual { verdict } else { Verdict::TooNoisy };
    Some(without_ratio(verdict, note))
}

fn without_ratio(verdict: Verdict, note: impl Into<String>) -> Judgement {
    Judgement {
        verdict,
        estimate: None,
        note: Some(note.into()),
    }
}

/// In more than half of the rounds.
fn is_load_bound(series: &Series) -> bool {
    series.load_bound_rounds * 2 > series.values.len()
}

/// What a higher value is.
fn more(better: Better) -> Verdict {
    match better {
        Better::Low => Verdict::Worse,
        Better::High => Verdict::Better,
    }
}

/// What a lower value is.
fn less(better: Better) -> Verdict {
    match better {
        Better::Low => Verdict::Better,
        Better::High => Verdict::Worse,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Metric;

    fn check(better: Better, base: &[f64], new: &[f64], verdict: Verdict) {
        for form in [Form::Paired, Form::Independent] {
            let judgement = judge(form, better, base, new);
            assert_eq!(judgement.verdict, verdict, "{judgement:?}");
            if let Some(estimate) = judgement.estimate {
                assert!(!estimate.ratio.is_nan());
                let is_number = |interval: super::super::estimate::Interval| {
                    interval.low <= estimate.ratio && estimate.ratio <= interval.high
                };
                assert!(estimate.interval.is_none_or(is_number), "{estimate:?}");
            }
        }
    }

    fn judge(form: Form, better: Better, base: &[f64], new: &[f64]) -> Judgement {
        let judge = Judge {
            form,
            margin: 0.05,
            confidence: 0.95,
            resamples: 500,
        };
        let series = |values: &[f64]| {
            let mut series = Series::new("ringd", Metric::low("cpu", "s"));
            series.better = better;
            series.values = values.to_vec();
            series
        };
        judge.judge(&series(base), &series(new))
    }

    const STEADY: [f64; 6] = [1.00, 1.01, 0.99, 1.00, 1.01, 0.99];

    #[test]
    fn a_change_beyond_the_margin_is_worse_or_better_by_its_side() {
        let higher = STEADY.map(|value| value * 1.2);
        check(Better::Low, &STEADY, &higher, Verdict::Worse);
        check(Better::High, &STEADY, &higher, Verdict::Better);
        check(Better::Low, &higher, &STEADY, Verdict::Better);
        check(Better::High, &higher, &STEADY, Verdict::Worse);
    }

    #[test]
    fn a_change_within_the_margin_is_none() {
        check(Better::Low, &STEADY, &STEADY, Verdict::Same);
        let higher = STEADY.map(|value| value * 1.02);
        check(Better::Low, &STEADY, &higher, Verdict::Same);
    }

    #[test]
    fn a_change_at_the_margin_is_left_open() {
        let mut higher = STEADY.map(|value| value * 1.049);
        higher.reverse();
        check(Better::Low, &STEADY, &higher, Verdict::TooNoisy);
    }

    #[test]
    fn few_rounds_decide_nothing() {
        check(Better::Low, &STEADY[..4], &[9.0; 4], Verdict::TooNoisy);
        let note = judge(Form::Paired, Better::Low, &STEADY[..4], &[9.0; 4]).note;
        assert_eq!(
            note.as_deref(),
            Some("4 of the 5 rounds that a verdict needs")
        );
    }

    #[test]
    fn a_leak_where_none_was_is_worse_even_in_one_round() {
        check(Better::Low, &[0.0], &[3.0], Verdict::Worse);
        check(Better::Low, &[3.0], &[0.0], Verdict::Better);
        check(Better::High, &[0.0; 6], &[3.0; 6], Verdict::Better);
        check(Better::High, &[3.0; 6], &[0.0; 6], Verdict::Worse);
        check(Better::Low, &[0.0], &[0.0], Verdict::Same);
    }

    #[test]
    fn a_leak_now_and_then_is_told_but_not_judged() {
        let leaks = [0.0, 0.0, 1.0, 0.0, 0.0];
        check(Better::Low, &[0.0; 5], &leaks, Verdict::TooNoisy);
        let note = judge(Form::Paired, Better::Low, &[0.0; 5], &leaks).note;
        assert_eq!(
            note.as_deref(),
            Some("base is 0 in all rounds, new in 4 of 5")
        );
    }

    #[test]
    fn zeros_among_other_values_give_numbers_still() {
        let some = [0.0, 0.0, 1.0, 0.0, 2.0];
        check(
            Better::Low,
            &some,
            &[0.0, 1.0, 0.0, 2.0, 0.0],
            Verdict::TooNoisy,
        );
        check(
            Better::Low,
            &[0.0, 0.0, 0.0, 1.0, 1.0],
            &some,
            Verdict::TooNoisy,
        );
        let mut long = [0.0; 12];
        long[3] = 1.0;
        check(Better::Low, &long, &[5.0; 12], Verdict::Worse);
    }

    #[test]
    fn negative_values_are_not_divided() {
        check(Better::Low, &[-1.0; 6], &[9.0; 6], Verdict::TooNoisy);
    }

    #[test]
    fn a_figure_that_the_load_bounds_is_not_judged() {
        let judge = Judge {
            form: Form::Paired,
            margin: 0.05,
            confidence: 0.95,
            resamples: 500,
        };
        let mut base = Series::new("ringd", Metric::low("cpu", "s"));
        base.values = STEADY.to_vec();
        let mut new = base.clone();
        new.values = STEADY.map(|value| value * 2.0).to_vec();
        new.load_bound_rounds = 3;
        assert_eq!(judge.judge(&base, &new).verdict, Verdict::Worse);
        new.load_bound_rounds = 4;
        assert_eq!(judge.judge(&base, &new).verdict, Verdict::LoadBound);
        assert_eq!(judge.judge(&new, &base).verdict, Verdict::LoadBound);
    }
}
