//! Medians and spreads.

/// Median, smallest and largest of some samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    pub median: f64,
    pub least: f64,
    pub most: f64,
}

impl Spread {
    /// Of no samples it is NaN throughout.
    pub fn of(samples: impl IntoIterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = samples.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let at = |index: usize| sorted.get(index).copied().unwrap_or(f64::NAN);
        let count = sorted.len();
        Self {
            median: (at(count.saturating_sub(1) / 2) + at(count / 2)) / 2.0,
            least: at(0),
            most: at(count.saturating_sub(1)),
        }
    }
}

/// How many leading elements are equal.
pub fn common_length(left: &[u32], right: &[u32]) -> usize {
    left.iter().zip(right).take_while(|(left, right)| left == right).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(Spread::of([3.0, 1.0, 2.0]), Spread { median: 2.0, least: 1.0, most: 3.0 });
        assert_eq!(Spread::of([4.0, 1.0, 2.0, 3.0]).median, 2.5);
        assert_eq!(Spread::of([7.0]).median, 7.0);
        assert!(Spread::of([]).median.is_nan());
    }

    #[test]
    fn common_lengths() {
        assert_eq!(common_length(&[1, 2, 3], &[1, 2, 4]), 2);
        assert_eq!(common_length(&[1], &[1, 2]), 1);
        assert_eq!(common_length(&[], &[1]), 0);
    }
}
