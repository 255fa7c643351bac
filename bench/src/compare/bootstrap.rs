//! Resampled medians: where the median could have been, had other rounds of the same kind been measured.

use super::estimate::{Interval, quotient};

/// Resamples for each figure.
pub(crate) const RESAMPLES: usize = 10_000;

/// Every figure starts from it, so a comparison says the same twice, whatever else is in the files.
pub(crate) const SEED: u64 = 2026;

/// The `SplitMix64` generator of Steele, Lea and Flood (2014).
pub(super) struct SplitMix(u64);

impl SplitMix {
    pub(super) fn from_seed(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, all as likely as one can tell.
    pub(super) fn below(&mut self, bound: usize) -> usize {
        let product = u128::from(self.next()) * bound as u128;
        usize::try_from(product >> 64).expect("it is below a usize")
    }
}

/// Medians of resampled ratios.
pub(super) fn paired(ratios: &[f64], confidence: f64, resamples: usize) -> Interval {
    let mut dice = SplitMix::from_seed(SEED);
    let mut ratios = Urn::of(ratios);
    middle(
        (0..resamples).map(|_| ratios.median(&mut dice)).collect(),
        confidence,
    )
}

/// Ratios of the medians of both sides, each resampled on its own.
pub(super) fn independent(
    base: &[f64],
    new: &[f64],
    confidence: f64,
    resamples: usize,
) -> Interval {
    let mut dice = SplitMix::from_seed(SEED);
    let (mut base, mut new) = (Urn::of(base), Urn::of(new));
    middle(
        (0..resamples)
            .map(|_| quotient(new.median(&mut dice), base.median(&mut dice)))
            .collect(),
        confidence,
    )
}

/// What is left when the same share is cut from both ends; never more than the share.
fn middle(mut medians: Vec<f64>, confidence: f64) -> Interval {
    medians.sort_by(f64::total_cmp);
    let cut_share = (1.0 - confidence) / 2.0 * medians.len() as f64;
    let cut = (1..medians.len() / 2)
        .take_while(|count| *count as f64 <= cut_share)
        .count();
    Interval {
        low: medians[cut],
        high: medians[medians.len() - 1 - cut],
    }
}

/// Values that are drawn from and put back.
struct Urn {
    sorted: Vec<f64>,
    /// How often each was drawn.
    drawn: Vec<usize>,
}

impl Urn {
    fn of(values: &[f64]) -> Self {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        Self {
            drawn: vec![0; sorted.len()],
            sorted,
        }
    }

    /// The median of as many draws as there are values.
    fn median(&mut self, dice: &mut SplitMix) -> f64 {
        let count = self.sorted.len();
        self.drawn.fill(0);
        for _ in 0..count {
            self.drawn[dice.below(count)] += 1;
        }
        let upper = self.at_rank(count / 2);
        if count.is_multiple_of(2) {
            f64::midpoint(self.at_rank(count / 2 - 1), upper)
        } else {
            upper
        }
    }

    fn at_rank(&self, rank: usize) -> f64 {
        let mut below = 0;
        for (value, drawn) in self.sorted.iter().zip(&self.drawn) {
            below += drawn;
            if below > rank {
                return *value;
            }
        }
        unreachable!("as many are drawn as there are values")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generator_gives_the_numbers_of_its_paper() {
        let mut dice = SplitMix::from_seed(1_234_567);
        assert_eq!(dice.next(), 6_457_827_717_110_365_317);
        assert_eq!(dice.next(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn a_comparison_says_the_same_twice() {
        let ratios = [0.9, 1.1, 1.0, 1.2, 0.95, 1.05, 1.3];
        let once = paired(&ratios, 0.95, RESAMPLES);
        assert_eq!(once, paired(&ratios, 0.95, RESAMPLES));
        assert!(once.low < 1.05 && once.high > 1.05, "{once:?}");
    }

    /// Of three values the median is the smallest in 7 of 27 resamples, the largest as often.
    #[test]
    fn resampled_medians_are_as_frequent_as_counting_says() {
        let mut dice = SplitMix::from_seed(SEED);
        let mut urn = Urn::of(&[3.0, 1.0, 2.0]);
        let medians: Vec<f64> = (0..27_000).map(|_| urn.median(&mut dice)).collect();
        let count = |value: f64| {
            medians
                .iter()
                .filter(|median| median.total_cmp(&value).is_eq())
                .count()
        };
        assert!(count(1.0).abs_diff(7_000) < 250, "{}", count(1.0));
        assert!(count(2.0).abs_diff(13_000) < 250, "{}", count(2.0));
        assert!(count(3.0).abs_diff(7_000) < 250, "{}", count(3.0));
    }

    #[test]
    fn an_even_number_of_rounds_has_its_median_between_two() {
        let interval = paired(&[1.0, 2.0], 0.2, RESAMPLES);
        assert_eq!((interval.low, interval.high), (1.5, 1.5));
    }
}
