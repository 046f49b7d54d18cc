//! Whether counts follow probabilities.

/// Pearson's statistic, and the value that it exceeds once in a million.
#[derive(Clone, Copy, Debug)]
pub struct ChiSquare {
    /// The statistic.
    pub found: f64,
    /// Its limit.
    pub limit: f64,
}

/// Compares counts with the probabilities that they should follow. Outcomes that are expected less than ten times are
/// taken together.
///
/// # Panics
/// If an outcome that cannot be was counted.
pub fn chi_square(counts: &[u64], probabilities: &[f64]) -> ChiSquare {
    const QUANTILE: f64 = 4.753;
    let total: u64 = counts.iter().sum();
    let mut rare = (0.0, 0.0);
    let (mut found, mut cells) = (0.0, 0);
    let mut add = |count: f64, expected: f64| {
        found += (count - expected).powi(2) / expected;
        cells += 1;
    };
    for (&count, &probability) in counts.iter().zip(probabilities) {
        assert!(probability > 0.0 || count == 0, "an outcome that cannot be occurred {count} times");
        let expected = probability * total as f64;
        if expected < 10.0 {
            rare = (rare.0 + count as f64, rare.1 + expected);
        } else {
            add(count as f64, expected);
        }
    }
    if rare.1 > 0.0 {
        add(rare.0, rare.1);
    }
    // Wilson and Hilferty's approximation of the quantile.
    let freedom = f64::from(cells - 1);
    let part = 2.0 / (9.0 * freedom);
    ChiSquare { found, limit: freedom * (1.0 - part + QUANTILE * part.sqrt()).powi(3) }
}

impl ChiSquare {
    /// True if the counts may follow the probabilities.
    pub fn fits(self) -> bool {
        self.found < self.limit
    }
}
