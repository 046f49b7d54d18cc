//! A small seeded generator: the same seed gives the same data on every machine.

/// A SplitMix64 generator.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    /// A generator that starts from `seed`.
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// A generator for one purpose: `name` keeps the data of one case apart from that of another, so that a case
    /// draws the same numbers whatever ran before it.
    pub fn named(seed: u64, name: &str) -> Self {
        // FNV-1a.
        let hash = name
            .bytes()
            .fold(0xCBF2_9CE4_8422_2325, |h: u64, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01B3));
        Self::new(seed ^ hash)
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which must not be 0.
    pub fn below(&mut self, bound: u32) -> u32 {
        // The bias is below 2^-32, which tests do not notice.
        ((u128::from(self.bits()) * u128::from(bound)) >> 64) as u32
    }

    /// A number from 0 to below 1.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A number from `low` to below `high`.
    pub fn between(&mut self, low: f32, high: f32) -> f32 {
        (f64::from(low) + self.unit() * (f64::from(high) - f64::from(low))) as f32
    }

    /// A number of a bell shape around 0 with standard deviation 1: the sum of 12 uniform ones, at most 6 from 0.
    pub fn bell(&mut self) -> f32 {
        ((0..12).map(|_| self.unit()).sum::<f64>() - 6.0) as f32
    }

    /// `count` bell-shaped numbers of standard deviation `deviation`.
    pub fn floats(&mut self, count: usize, deviation: f32) -> Vec<f32> {
        (0..count).map(|_| self.bell() * deviation).collect()
    }

    /// The numbers from 0 to below `count` in a random order.
    pub fn shuffled(&mut self, count: u32) -> Vec<u32> {
        let mut list: Vec<u32> = (0..count).collect();
        for last in (1..count).rev() {
            list.swap(last as usize, self.below(last + 1) as usize);
        }
        list
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_is_fixed() {
        let mut random = Random::new(0);
        // First outputs of SplitMix64 for seed 0.
        assert_eq!(random.bits(), 0xE220_A839_7B1D_CDAF);
        assert_eq!(random.bits(), 0x6E78_9E6A_A1B9_65F4);
    }

    #[test]
    fn ranges_hold() {
        let mut random = Random::new(7);
        assert!((0..1000).all(|_| random.below(3) < 3));
        assert!((0..1000).all(|_| (-2.0..5.0).contains(&random.between(-2.0, 5.0))));
        let mut order = random.shuffled(20);
        order.sort_unstable();
        assert_eq!(order, (0..20).collect::<Vec<_>>());
    }
}
