//! The noise that a token is drawn with.
//!
//! Of candidates with weights w the one with the smallest E/w is a sample of the distribution that the weights stand for, if
//! the E are independent and exponentially distributed (the Gumbel-max trick: the largest ln w - ln E). Here E follows from a
//! key, one for each position of a text, and the token. So two that know the key and have similar weights mostly draw the
//! same token: a drafter that draws with the noise of the position it guesses for agrees with the target more often than one that
//! takes its most likely token, and each of the two keeps its own distribution.

/// Increment of the generator SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// 64 random bits of a token: output `token` of SplitMix64 that starts at `key`.
pub fn bits(key: u64, token: u32) -> u64 {
    let z = key.wrapping_add(STEP.wrapping_mul(u64::from(token) + 1));
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// A number in (0, 1) of a token, from its upper 52 bits.
pub fn uniform(key: u64, token: u32) -> f64 {
    inside(bits(key, token))
}

/// As [`uniform`], from the upper 23 bits.
pub fn uniform_f32(key: u64, token: u32) -> f32 {
    inside_f32(bits(key, token))
}

/// The middle of one of 2^52 equal parts of (0, 1), which f64 holds exactly, so that none is rounded to an end.
fn inside(bits: u64) -> f64 {
    ((bits >> 12) as f64 + 0.5) / (1u64 << 52) as f64
}

/// The same of 2^23 parts for f32.
fn inside_f32(bits: u64) -> f32 {
    ((bits >> 41) as f32 + 0.5) / (1u32 << 23) as f32
}

/// What one row is drawn with: a row of the input `noise` of `draw/1`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Noise {
    /// Key of the position.
    pub key: u64,
    /// Logits are multiplied by it: one over the temperature. Where it is not positive and finite, the largest logit is taken.
    pub factor: f32,
    /// Multiplied logits that are by more than this below the largest are not drawn.
    pub floor: f32,
}

impl Noise {
    /// Takes the largest logit.
    pub const NONE: Self = Self { key: 0, factor: 0.0, floor: 0.0 };

    /// The row: low and high half of the key, bits of the factor, bits of the floor.
    pub fn to_row(self) -> [i32; 4] {
        [self.key as i32, (self.key >> 32) as i32, self.factor.to_bits() as i32, self.floor.to_bits() as i32]
    }

    /// The reverse of [`Noise::to_row`].
    pub fn from_row(row: [i32; 4]) -> Self {
        let [low, high, factor, floor] = row.map(|word| word as u32);
        let key = u64::from(high) << 32 | u64::from(low);
        Self { key, factor: f32::from_bits(factor), floor: f32::from_bits(floor) }
    }

    /// False if the largest logit is taken.
    pub fn draws(self) -> bool {
        self.factor > 0.0 && self.factor.is_finite()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_keep_what_they_hold() {
        let noise = Noise { key: 0xFEDC_BA98_7654_3210, factor: 1.25, floor: 16.0 };
        assert_eq!(Noise::from_row(noise.to_row()), noise);
        assert!(noise.draws() && !Noise::NONE.draws());
    }

    #[test]
    fn numbers_are_spread_evenly_over_tokens_and_keys() {
        let of_tokens: [fn(u32) -> (u64, u32); 2] = [|i| (7, i), |i| (i.into(), 7)];
        for pair in of_tokens {
            let mut buckets = [0u32; 10];
            for (key, token) in (0..10_000).map(pair) {
                let u = uniform(key, token);
                assert!((u - f64::from(uniform_f32(key, token))).abs() < 1.3e-7);
                buckets[(u * 10.0) as usize] += 1;
            }
            // 3.3 standard deviations of a binomial(10,000, 0.1) are 99.
            assert!(buckets.iter().all(|b| (901..1099).contains(b)), "{buckets:?}");
        }
    }

    #[test]
    fn numbers_stay_inside() {
        for bits in [0, u64::MAX] {
            assert!(inside(bits) > 0.0 && inside(bits) < 1.0, "{bits}");
            assert!(inside_f32(bits) > 0.0 && inside_f32(bits) < 1.0, "{bits}");
        }
    }
}
