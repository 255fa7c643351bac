//! From values to places: linear from zero, or logarithmic where values differ too much.

/// An axis of values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    low: f64,
    high: f64,
    pub(crate) is_log: bool,
}

impl Scale {
    /// For these values; the heads (bars, ends of lines) decide whether it is logarithmic.
    pub(crate) fn new(values: &[f64], heads: &[f64]) -> Self {
        let usable = || values.iter().chain(heads).filter(|value| value.is_finite());
        let bounded = usable().map(|value| value.clamp(-LARGEST, LARGEST));
        let low = bounded.clone().fold(f64::INFINITY, f64::min);
        let high = bounded.fold(f64::NEG_INFINITY, f64::max);
        if low > high {
            return Self::linear(0.0, 1.0);
        }
        let heads = heads.iter().copied().filter(|value| value.is_finite());
        let least = heads.clone().fold(f64::INFINITY, f64::min);
        let most = heads.fold(f64::NEG_INFINITY, f64::max);
        if low >= SMALLEST && most / least > LINEAR_UP_TO {
            Self {
                low: round_below(low / 1.25),
                high: high * 1.1,
                is_log: true,
            }
        } else {
            Self::linear(low.min(0.0), high.max(0.0))
        }
    }

    fn linear(low: f64, high: f64) -> Self {
        // All zero is shown too, and needs an axis.
        let high = if high > low { high } else { low + 1.0 };
        Self {
            low,
            high: high + (high - low) * 0.02,
            is_log: false,
        }
    }

    /// The share of the axis below the value, from 0 to 1.
    pub(crate) fn place(&self, value: f64) -> f64 {
        let share = if self.is_log {
            (value.max(self.low) / self.low).log10() / (self.high / self.low).log10()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        if share.is_finite() {
            share.clamp(0.0, 1.0)
        } else {
            0.0
        }
    }

    /// Where bars begin.
    pub(crate) fn base(&self) -> f64 {
        if self.is_log { self.low } else { 0.0 }
    }

    /// Round values on the axis, rising.
    pub(crate) fn ticks(&self, about: f64) -> Vec<f64> {
        if self.is_log {
            self.log_ticks(about)
        } else {
            let step = round_step((self.high - self.low) / about);
            let first = (self.low / step).ceil();
            let steps = std::iter::successors(Some(first), |at| Some(at + 1.0));
            let ticks = steps.map(|at| at * step);
            // Bounded also where adding one changes nothing.
            ticks
                .take(MOST_TICKS)
                .take_while(|tick| *tick <= self.high)
                .collect()
        }
    }

    fn log_ticks(&self, about: f64) -> Vec<f64> {
        let (first, last) = (self.low.log10().floor(), self.high.log10().ceil());
        let stride = ((last - first) / about).ceil().max(1.0);
        let factors: &[f64] = if (self.high / self.low).log10() <= about / 2.0 {
            &[1.0, 2.0, 5.0]
        } else {
            &[1.0]
        };
        let powers = std::iter::successors(Some(first), |at| Some(at + stride));
        powers
            .take(MOST_TICKS)
            .take_while(|power| *power <= last)
            .flat_map(|power| {
                factors
                    .iter()
                    .map(move |factor| factor * 10_f64.powf(power))
            })
            .filter(|tick| (self.low * 0.999..=self.high).contains(tick))
            .collect()
    }
}

/// Bars of which one is longer than so many of another are drawn on a logarithmic scale.
pub(crate) const LINEAR_UP_TO: f64 = 20.0;

const MOST_TICKS: usize = 20;
const LARGEST: f64 = 1e100;
const SMALLEST: f64 = 1e-100;

/// The largest of 1, 2 and 5 times a power of ten that is not above the value.
fn round_below(value: f64) -> f64 {
    let power = 10_f64.powf(value.log10().floor());
    [5.0, 2.0, 1.0]
        .into_iter()
        .map(|factor| factor * power)
        .find(|round| *round <= value)
        .unwrap_or(power)
}

/// The smallest of 1, 2 and 5 times a power of ten that is not below the value.
fn round_step(value: f64) -> f64 {
    let power = 10_f64.powf(value.log10().floor());
    [1.0, 2.0, 5.0]
        .into_iter()
        .map(|factor| factor * power)
        .find(|round| *round >= value * 0.999)
        .unwrap_or(10.0 * power)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_linear_scale_begins_at_zero() {
        let scale = Scale::new(&[2.0, 8.0], &[2.0, 8.0]);
        assert!(!scale.is_log);
        assert!((scale.place(0.0)).abs() < 1e-9);
        assert_eq!(scale.ticks(4.0), [0.0, 5.0]);
        assert_eq!(scale.ticks(6.0), [0.0, 2.0, 4.0, 6.0, 8.0]);
    }

    #[test]
    fn far_apart_values_get_a_logarithmic_scale() {
        let scale = Scale::new(&[1.0, 21.0], &[1.0, 21.0]);
        assert!(scale.is_log);
        assert!(scale.place(1.0) > 0.0);
        assert!(scale.ticks(6.0).contains(&10.0));
        assert!(!Scale::new(&[1.0, 20.0], &[1.0, 20.0]).is_log);
        assert!(!Scale::new(&[0.0, 21.0], &[0.0, 21.0]).is_log);
    }

    #[test]
    fn every_value_has_a_place() {
        for values in [
            vec![],
            vec![0.0],
            vec![-3.0, -1.0],
            vec![1e308, 1e-308],
            vec![f64::NAN, 1.0],
            vec![5e-324],
        ] {
            let scale = Scale::new(&values, &values);
            let ticks = scale.ticks(5.0);
            for value in values.iter().chain(&ticks) {
                assert!((0.0..=1.0).contains(&scale.place(*value)), "{value}");
            }
        }
    }
}
