//! Intervals that count ranks only: they hold whatever the noise looks like, if there are enough rounds.

use super::estimate::{Interval, quotient};

/// Above so many rounds the resampled medians alone are fine enough.
pub(super) const EXACT_ROUNDS: usize = 50;

/// The smallest rank an end may have: an interval that ends at the most extreme value hangs on one round.
const LEAST_RANK: usize = 2;

/// Around the median of ratios: as many ratios lie below it as heads fall in tosses of a coin.
///
/// Nothing when there are too few rounds for the confidence.
pub(super) fn paired(ratios: &[f64], confidence: f64) -> Option<Interval> {
    let tail = (1.0 - confidence) / 2.0;
    let mut chance = 0.5_f64.powi(i32::try_from(ratios.len()).ok()?);
    let mut sum = 0.0;
    let mut rank = 0;
    for heads in 0..ratios.len() / 2 {
        sum += chance;
        if sum > tail {
            break;
        }
        rank = heads + 1;
        chance *= (ratios.len() - heads) as f64 / (heads + 1) as f64;
    }
    between(ratios.to_vec(), rank)
}

/// Around the factor between two samples of the same shape, by the statistic of Mann and Whitney:
/// all ratios of one round of NEW and one of BASE in order, cut at both ends.
///
/// Nothing when there are too few rounds for the confidence.
pub(super) fn independent(base: &[f64], new: &[f64], confidence: f64) -> Option<Interval> {
    let tail = (1.0 - confidence) / 2.0;
    let mut sum = 0.0;
    let rank = chances(base.len(), new.len())
        .iter()
        .take_while(|chance| {
            sum += **chance;
            sum <= tail
        })
        .count();
    let ratios = new
        .iter()
        .flat_map(|new| base.iter().map(|base| quotient(*new, *base)));
    between(ratios.collect(), rank)
}

/// From the value of this rank, counted from 1, to that of the same rank from above.
fn between(mut ratios: Vec<f64>, rank: usize) -> Option<Interval> {
    if rank < LEAST_RANK {
        return None;
    }
    ratios.sort_by(f64::total_cmp);
    Some(Interval {
        low: ratios[rank - 1],
        high: ratios[ratios.len() - rank],
    })
}

/// How likely each count of pairs is in which NEW is below BASE, when both are alike.
fn chances(base: usize, new: usize) -> Vec<f64> {
    // The largest of all is of NEW, and above every one of BASE, or of BASE, and adds no pair to NEW's.
    let mut rows: Vec<Vec<f64>> = vec![vec![1.0]; base + 1];
    for n in 1..=new {
        for b in 1..=base {
            let mut next = vec![0.0; n * b + 1];
            let all = (n + b) as f64;
            for (pairs, chance) in rows[b].iter().enumerate() {
                next[pairs + b] += chance * n as f64 / all;
            }
            for (pairs, chance) in rows[b - 1].iter().enumerate() {
                next[pairs] += chance * b as f64 / all;
            }
            rows[b] = next;
        }
    }
    rows.swap_remove(base)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounds(count: u32) -> Vec<f64> {
        (1..=count).map(f64::from).collect()
    }

    /// The ranks of the sign test for 95 %, as tables have them.
    #[test]
    fn the_ranks_of_a_median_are_those_of_the_tables() {
        for (count, rank) in [(9, 2.0), (10, 2.0), (12, 3.0), (15, 4.0), (20, 6.0)] {
            let interval = paired(&rounds(count), 0.95).expect("there are enough");
            assert_eq!((count, interval.low), (count, rank));
            assert_eq!(interval.high, f64::from(count) + 1.0 - rank);
        }
        assert_eq!(paired(&rounds(8), 0.95), None);
        assert_eq!(paired(&rounds(10), 0.999), None);
    }

    /// Critical values of U for 5 % on two sides, as tables have them: 2 for 5 and 5, 23 for 10 and 10, 127 for 20.
    #[test]
    fn the_ranks_of_two_samples_are_those_of_the_tables() {
        for (count, critical) in [(5_u32, 2_usize), (7, 8), (10, 23), (20, 127)] {
            let twos = vec![1.0; usize::try_from(count).expect("small")];
            let sum: f64 = chances(twos.len(), twos.len())[..=critical].iter().sum();
            assert!(sum <= 0.025, "{count}: {sum}");
            let more: f64 = chances(twos.len(), twos.len())[..=critical + 1]
                .iter()
                .sum();
            assert!(more > 0.025, "{count}: {more}");
        }
        let all: f64 = chances(7, 4).iter().sum();
        assert!((all - 1.0).abs() < 1e-12, "{all}");
    }

    #[test]
    fn two_samples_are_cut_at_the_critical_rank() {
        let interval = independent(&[1.0; 5], &rounds(5), 0.95).expect("five suffice");
        // Each of the five stands five times; the third from each end is left.
        assert_eq!((interval.low, interval.high), (1.0, 5.0));
        assert_eq!(independent(&[1.0; 4], &rounds(4), 0.95), None);
    }
}
