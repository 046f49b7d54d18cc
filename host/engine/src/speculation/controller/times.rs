//! How long drafts and verifications take, by their length.

use super::LENGTHS;

/// How many times of a length are kept; their median counts. What else runs on a machine makes some of them much longer,
/// and a mean, or the shortest, would favour those lengths that are measured seldom, or often.
const KEPT: usize = 9;

/// The last few times of one kind of work.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RecentTimes {
    seconds: [f64; KEPT],
    samples: u32,
    /// Of those that are kept: it is asked for many times a round, and changes once.
    median: f64,
}

impl RecentTimes {
    pub fn add(&mut self, seconds: f64) {
        self.seconds[self.samples as usize % KEPT] = seconds;
        self.samples = self.samples.saturating_add(1);
        let kept = KEPT.min(self.samples as usize);
        let mut sorted = self.seconds;
        let sorted = &mut sorted[..kept];
        sorted.sort_unstable_by(f64::total_cmp);
        // Of an even number the shorter of the two in the middle: the first finds cold caches.
        self.median = sorted[(kept - 1) / 2];
    }

    /// The same on a machine that takes `factor` times as long.
    pub fn scale(&mut self, factor: f64) {
        self.seconds.iter_mut().for_each(|seconds| *seconds *= factor);
        self.median *= factor;
    }

    pub fn known(&self) -> Option<f64> {
        (self.samples > 0).then_some(self.median)
    }

    pub fn samples(&self) -> u32 {
        self.samples
    }
}

/// Times by length; lengths that were not measured follow from those that were.
#[derive(Clone, Debug)]
pub(super) struct Times {
    by_length: [RecentTimes; LENGTHS],
    /// What is expected of the times, in any unit.
    expected: [f64; LENGTHS],
}

impl Times {
    pub fn new(expected: [f64; LENGTHS]) -> Self {
        Self { by_length: [RecentTimes::default(); LENGTHS], expected }
    }

    /// Times that grow with the length.
    pub fn proportional() -> Self {
        Self::new(std::array::from_fn(|length| length.max(1) as f64))
    }

    pub fn add(&mut self, length: usize, seconds: f64) {
        self.by_length[length.min(LENGTHS - 1)].add(seconds);
    }

    /// Forgets what was measured of a length.
    pub fn forget(&mut self, length: usize) {
        self.by_length[length.min(LENGTHS - 1)] = RecentTimes::default();
    }

    /// The same on a machine that takes `factor` times as long, but for verifications or drafts of `length` tokens.
    pub fn scale_others(&mut self, length: Option<usize>, factor: f64) {
        let others = self.by_length.iter_mut().enumerate().filter(|&(index, _)| Some(index) != length);
        others.for_each(|(_, times)| times.scale(factor));
    }

    /// The times that were measured of a length.
    pub fn measured(&self, length: usize) -> &RecentTimes {
        &self.by_length[length.min(LENGTHS - 1)]
    }

    /// The time at `length`. More work takes no less time, so a length is never thought to take longer than a greater one
    /// took: what is done seldom finds cold caches.
    pub fn at(&self, length: usize) -> Option<f64> {
        let longer = self.by_length[length..].iter().filter_map(RecentTimes::known);
        let bound = longer.fold(f64::INFINITY, f64::min);
        self.alone(length).map(|time| time.min(bound))
    }

    /// The time at `length`: measured, or from the nearest shorter one as expected, or between the nearest measured lengths,
    /// whichever is less.
    fn alone(&self, length: usize) -> Option<f64> {
        if let Some(known) = self.by_length[length].known() {
            return Some(known);
        }
        let below = (0..length).rev().find_map(|l| self.by_length[l].known().map(|t| (l, t)));
        let above = (length + 1..LENGTHS).find_map(|l| self.by_length[l].known().map(|t| (l, t)));
        let from = |(l, time): (usize, f64)| time * self.expected[length] / self.expected[l];
        match (below, above) {
            (Some((l, t)), Some((m, u))) => {
                // The hopeful of two guesses: who is wrong finds out by trying, while a length that was given up is not tried.
                let between = t + (u - t) * (length - l) as f64 / (m - l) as f64;
                Some(between.min(from((l, t))))
            }
            (Some(known), None) | (None, Some(known)) => Some(from(known)),
            (None, None) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Whatever was measured, a longer one takes no less.
        #[test]
        fn times_grow_with_the_length(measured in prop::collection::vec((0..LENGTHS, 1e-6f64..1.0), 1..40)) {
            let mut times = Times::proportional();
            for &(length, seconds) in &measured {
                times.add(length, seconds);
            }
            let all: Vec<f64> = (0..LENGTHS).map(|length| times.at(length).unwrap()).collect();
            let longest = measured.iter().map(|&(length, _)| length).max().unwrap();
            prop_assert!(all[..=longest].is_sorted(), "{all:?}");
        }
    }

    #[test]
    fn what_else_runs_does_not_count() {
        let mut times = Times::proportional();
        for seconds in [9.0, 1.0, 1.1, 0.9, 7.0, 1.0] {
            times.add(2, seconds);
        }
        assert_eq!(times.at(2), Some(1.0));
        assert_eq!(times.at(4), Some(2.0));
    }
}
