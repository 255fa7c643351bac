//! Student's interval of the logarithms: for few rounds, if the noise is roughly a bell or has longer tails.

use super::estimate::Interval;

/// Around the mean factor; all factors when a logarithm is not finite.
pub(super) fn paired(ratios: &[f64], confidence: f64) -> Interval {
    let logs = Logs::of(ratios);
    around(
        logs.mean,
        logs.error_squared.sqrt(),
        logs.freedom,
        confidence,
    )
}

/// The same for two samples of their own spread (Welch).
pub(super) fn independent(base: &[f64], new: &[f64], confidence: f64) -> Interval {
    let (base, new) = (Logs::of(base), Logs::of(new));
    let error_squared = base.error_squared + new.error_squared;
    let parts = base.error_squared.powi(2) / base.freedom as f64
        + new.error_squared.powi(2) / new.freedom as f64;
    let welch = error_squared.powi(2) / parts;
    let least = base.freedom.min(new.freedom);
    // Rounded down, which is to the safe side.
    let freedom = (least..=base.freedom + new.freedom)
        .take_while(|freedom| *freedom as f64 <= welch)
        .last()
        .unwrap_or(least);
    around(
        new.mean - base.mean,
        error_squared.sqrt(),
        freedom,
        confidence,
    )
}

struct Logs {
    mean: f64,
    /// Square of the standard error of the mean.
    error_squared: f64,
    freedom: usize,
}

impl Logs {
    fn of(values: &[f64]) -> Self {
        let count = values.len() as f64;
        let logs: Vec<f64> = values.iter().map(|value| value.ln()).collect();
        let mean = logs.iter().sum::<f64>() / count;
        let squares: f64 = logs.iter().map(|log| (log - mean).powi(2)).sum();
        Self {
            mean,
            error_squared: squares / (count - 1.0) / count,
            freedom: values.len() - 1,
        }
    }
}

fn around(mean: f64, error: f64, freedom: usize, confidence: f64) -> Interval {
    let reach = quantile(freedom, confidence) * error;
    if !mean.is_finite() || !reach.is_finite() {
        return Interval::ALL;
    }
    Interval {
        low: (mean - reach).exp(),
        high: (mean + reach).exp(),
    }
}

/// How many standard errors to both sides hold `confidence` of Student's distribution.
fn quantile(freedom: usize, confidence: f64) -> f64 {
    let (mut low, mut high) = (0.0, std::f64::consts::FRAC_PI_2);
    for _ in 0..60 {
        let angle = f64::midpoint(low, high);
        if share(freedom, angle) < confidence {
            low = angle;
        } else {
            high = angle;
        }
    }
    (freedom as f64).sqrt() * low.tan()
}

/// The share within ±√freedom·tan(angle): Abramowitz and Stegun, 26.7.3 and 26.7.4.
fn share(freedom: usize, angle: f64) -> f64 {
    let (sine, cosine) = angle.sin_cos();
    let odd = freedom % 2;
    let mut term = if odd == 1 { cosine } else { 1.0 };
    let mut sum = 0.0;
    for step in 1..=freedom / 2 {
        sum += term;
        let factor = 2 * step + odd;
        term *= cosine * cosine * (factor - 1) as f64 / factor as f64;
    }
    if odd == 1 {
        (angle + sine * sum) * std::f64::consts::FRAC_2_PI
    } else {
        sine * sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quantiles_are_those_of_the_tables() {
        for (freedom, confidence, table) in [
            (1, 0.95, 12.706),
            (2, 0.95, 4.303),
            (4, 0.95, 2.776),
            (9, 0.95, 2.262),
            (9, 0.99, 3.250),
            (10, 0.999, 4.587),
            (30, 0.95, 2.042),
        ] {
            let found = quantile(freedom, confidence);
            assert!((found - table).abs() < 0.001, "{freedom}: {found}");
        }
    }

    #[test]
    fn rounds_without_noise_leave_no_doubt() {
        let interval = paired(&[1.25; 5], 0.95);
        assert!((interval.high - 1.25).abs() < 1e-9, "{interval:?}");
        assert!((interval.low - 1.25).abs() < 1e-9, "{interval:?}");
    }

    /// By hand: the means differ by ln 2, both errors are ln 2 / √20, so 8 degrees of freedom.
    #[test]
    fn two_samples_have_the_error_of_both() {
        let base = [1.0, 2.0, 1.0, 2.0, 2.0_f64.sqrt()];
        let new = base.map(|value| value * 2.0);
        let interval = independent(&base, &new, 0.95);
        let two = std::f64::consts::LN_2;
        let error = (2.0 * two * two / 20.0).sqrt();
        let high = (two + 2.306 * error).exp();
        assert!((interval.high - high).abs() < 0.001, "{interval:?} {high}");
    }

    #[test]
    fn a_zero_has_no_logarithm_and_decides_nothing() {
        assert_eq!(paired(&[1.0, 1.0, 0.0, 1.0, 1.0], 0.95), Interval::ALL);
        assert_eq!(independent(&[0.0; 5], &[1.0; 5], 0.95), Interval::ALL);
    }
}
