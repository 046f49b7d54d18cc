//! Medians, spreads and intervals.

/// The 97.5 % quantile of the normal distribution: both sides of an interval together leave out 5 %.
const NORMAL_QUANTILE: f64 = 1.959_963_984_540_054;

/// An interval that has the true value in 95 % of all cases.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// The middle of some samples, and how far they lie apart.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// Median.
    pub median: f64,
    /// Smallest sample.
    pub least: f64,
    /// Largest sample.
    pub most: f64,
    /// Median of the distances from the median.
    pub deviation: f64,
}

impl Spread {
    /// Of samples that are numbers; `None` if there are none.
    pub fn of(samples: impl IntoIterator<Item = f64>) -> Option<Self> {
        let sorted = sorted(samples);
        let (least, most) = (*sorted.first()?, *sorted.last()?);
        let median = median(&sorted);
        let distances = self::sorted(sorted.iter().map(|sample| (sample - median).abs()));
        Some(Self { median, least, most, deviation: self::median(&distances) })
    }
}

/// A median with its interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MedianEstimate {
    /// The median of the samples.
    pub median: f64,
    /// Where the true median lies; `None` if there are too few samples to say.
    pub interval: Option<Interval>,
    /// Number of samples.
    pub samples: usize,
}

impl MedianEstimate {
    /// Of samples that are numbers; `None` if there are none.
    pub fn of(samples: impl IntoIterator<Item = f64>) -> Option<Self> {
        let sorted = sorted(samples);
        if sorted.is_empty() {
            return None;
        }
        Some(Self { median: median(&sorted), interval: median_interval(&sorted), samples: sorted.len() })
    }
}

/// A share, with its interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Proportion {
    /// Cases that count.
    pub hits: u64,
    /// All cases.
    pub cases: u64,
    /// Their ratio.
    pub rate: f64,
    /// Where the true ratio lies.
    pub interval: Interval,
}

impl Proportion {
    /// `hits` of `cases`, with the interval of Wilson (1927), which stays within 0 and 1 and does not collapse at
    /// the ends. `None` without cases.
    pub fn of(hits: u64, cases: u64) -> Option<Self> {
        if cases == 0 {
            return None;
        }
        let (n, rate) = (cases as f64, hits as f64 / cases as f64);
        let square = NORMAL_QUANTILE * NORMAL_QUANTILE;
        let centre = (rate + square / (2.0 * n)) / (1.0 + square / n);
        // More hits than cases would make this negative.
        let variance = (rate * (1.0 - rate) / n + square / (4.0 * n * n)).max(0.0);
        let half = NORMAL_QUANTILE * variance.sqrt() / (1.0 + square / n);
        let interval = Interval { low: (centre - half).max(0.0), high: (centre + half).min(1.0) };
        Some(Self { hits, cases, rate, interval })
    }
}

/// The samples that are numbers, in order.
fn sorted(samples: impl IntoIterator<Item = f64>) -> Vec<f64> {
    let mut sorted: Vec<f64> = samples.into_iter().filter(|sample| !sample.is_nan()).collect();
    sorted.sort_by(f64::total_cmp);
    sorted
}

/// Of sorted samples, at least one.
fn median(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    if sorted.len().is_multiple_of(2) { (sorted[middle - 1] + sorted[middle]) / 2.0 } else { sorted[middle] }
}

/// The interval between two of the sorted samples that has the true median in at least 95 % of all cases, whatever the
/// distribution is: the number of samples below the median is binomial. `None` for fewer than 6 samples, of which even
/// the extremes do not suffice.
fn median_interval(sorted: &[f64]) -> Option<Interval> {
    let rank = rank_of_low_end(sorted.len())?;
    Some(Interval { low: sorted[rank], high: sorted[sorted.len() - 1 - rank] })
}

/// The index of the lower end of a median's interval: the greatest with P(at most so many samples lie below the
/// median) of at most 2.5 %.
fn rank_of_low_end(samples: usize) -> Option<usize> {
    const EXACT: usize = 1000;
    const ONE_SIDE: f64 = 0.025;

    let n = samples as f64;
    if samples > EXACT {
        // The powers of two below would vanish; for so many samples the normal distribution is close.
        return Some(((n - NORMAL_QUANTILE * n.sqrt()) / 2.0) as usize);
    }
    let mut probability = 0.5_f64.powi(samples as i32);
    let mut cumulated = probability;
    let mut rank = None;
    for below in 0..samples / 2 {
        if cumulated > ONE_SIDE {
            break;
        }
        rank = Some(below);
        probability *= (n - below as f64) / (below as f64 + 1.0);
        cumulated += probability;
    }
    rank
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_close(value: f64, expected: f64) {
        assert!((value - expected).abs() < 5e-5, "{value} is not {expected}");
    }

    #[test]
    fn spreads() {
        let spread = Spread::of([9.0, 1.0, 2.0, 4.0, 2.0]).unwrap();
        assert_eq!(spread, Spread { median: 2.0, least: 1.0, most: 9.0, deviation: 1.0 });
        assert_eq!(Spread::of([4.0, 1.0, 2.0, 3.0]).unwrap().median, 2.5);
        assert_eq!(Spread::of([f64::NAN, 7.0]).unwrap().most, 7.0);
        assert_eq!(Spread::of([]), None);
    }

    /// Ranks from tables of the sign test: the interval of 10 samples is from the 2nd to the 9th, and so on.
    #[test]
    fn intervals_of_medians() {
        let ranks = [5, 6, 8, 9, 10, 12, 15, 20, 25, 30, 50, 100].map(rank_of_low_end);
        let expected: Vec<Option<usize>> =
            [0, 1, 1, 2, 2, 3, 4, 6, 8, 10, 18, 40].map(|rank: usize| rank.checked_sub(1)).into();
        assert_eq!(ranks.to_vec(), expected);
        let estimate = MedianEstimate::of((1..=10).map(f64::from)).unwrap();
        assert_eq!((estimate.median, estimate.samples), (5.5, 10));
        assert_eq!(estimate.interval, Some(Interval { low: 2.0, high: 9.0 }));
        assert_eq!(MedianEstimate::of([]), None);
    }

    #[test]
    fn the_approximation_continues_the_exact_ranks() {
        let (exact, next) = (rank_of_low_end(1000).unwrap(), rank_of_low_end(1001).unwrap());
        assert!(next.abs_diff(exact) <= 1, "{exact} {next}");
    }

    /// Values of Newcombe (1998), Statistics in Medicine 17, table I.
    #[test]
    fn wilson_intervals() {
        for (hits, cases, low, high) in [
            (81, 263, 0.2553, 0.3662),
            (15, 148, 0.0624, 0.1605),
            (0, 20, 0.0, 0.1611),
            (1, 29, 0.0061, 0.1718),
            (20, 20, 0.8389, 1.0),
        ] {
            let interval = Proportion::of(hits, cases).unwrap().interval;
            assert_close(interval.low, low);
            assert_close(interval.high, high);
        }
        assert_eq!(Proportion::of(0, 0), None);
        assert!(Proportion::of(3, 2).unwrap().interval.low.is_finite());
    }
}
