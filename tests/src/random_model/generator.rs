//! Seeded random numbers: the same seed gives the same weights everywhere.

/// A SplitMix64 generator with normal numbers by the method of Box and Muller.
#[derive(Clone, Debug)]
pub struct Generator {
    state: u64,
    /// Box-Muller makes two numbers at once; the second waits here.
    second_normal: Option<f64>,
}

impl Generator {
    /// A generator for one purpose. With `name` in the seed, a tensor keeps its values whatever other tensors the
    /// model has.
    pub fn new(seed: u64, name: &str) -> Self {
        // FNV-1a over the seed and the name.
        let hash = seed
            .to_le_bytes()
            .into_iter()
            .chain(name.bytes())
            .fold(0xCBF2_9CE4_8422_2325, |hash: u64, byte| {
                (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3)
            });
        Generator { state: hash, second_normal: None }
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number from 0 to below 1.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A number below `bound`, which is not 0.
    pub fn below(&mut self, bound: u32) -> u32 {
        ((u128::from(self.bits()) * u128::from(bound)) >> 64) as u32
    }

    /// A normal number: mean 0, standard deviation 1.
    pub fn normal(&mut self) -> f64 {
        if let Some(number) = self.second_normal.take() {
            return number;
        }
        // The logarithm needs a number above 0.
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        let (sine, cosine) = (std::f64::consts::TAU * self.unit()).sin_cos();
        self.second_normal = Some(radius * sine);
        radius * cosine
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normal_numbers_have_mean_0_and_deviation_1() {
        let mut generator = Generator::new(1, "numbers");
        let numbers: Vec<f64> = (0..100_000).map(|_| generator.normal()).collect();
        let mean = numbers.iter().sum::<f64>() / 1e5;
        let variance = numbers.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / 1e5;
        assert!(mean.abs() < 0.02, "{mean}");
        assert!((variance - 1.0).abs() < 0.02, "{variance}");
    }

    #[test]
    fn seed_and_name_both_matter() {
        let first = |seed, name| Generator::new(seed, name).bits();
        assert_eq!(first(1, "a"), first(1, "a"));
        assert_ne!(first(1, "a"), first(2, "a"));
        assert_ne!(first(1, "a"), first(1, "b"));
    }
}
