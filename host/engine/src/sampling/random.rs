//! A counter-based generator: a number for each (seed, position, purpose), in any order.

use paceline_plugin_api::graph::noise::Noise;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// What a number is drawn for; different purposes at one position are independent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The token at a position.
    Token,
    /// Whether a drafted token is accepted.
    Acceptance,
    /// The token in place of one that was not accepted.
    Residual,
}

impl Purpose {
    fn stream(self) -> u64 {
        match self {
            Self::Token => 1,
            Self::Acceptance => 2,
            Self::Residual => 3,
        }
    }
}

/// What the tokens of a text are drawn with, position by position.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Draws {
    /// Seed of the text.
    pub seed: u64,
    /// One over the temperature.
    pub factor: f32,
    /// Multiplied logits that are by more than this below the largest are hardly ever drawn.
    pub floor: f32,
}

impl Draws {
    /// What the token at a position is drawn with.
    pub fn at(self, position: u64) -> Noise {
        Noise { key: key(self.seed, position), factor: self.factor, floor: self.floor }
    }
}

/// Key of the noise that the token at a position is drawn with.
pub fn key(seed: u64, position: u64) -> u64 {
    generator(seed, position, Purpose::Token).next_u64()
}

fn generator(seed: u64, position: u64, purpose: Purpose) -> ChaCha8Rng {
    let mut generator = ChaCha8Rng::seed_from_u64(seed);
    generator.set_stream(purpose.stream());
    generator.set_word_pos(u128::from(position) * WORDS_PER_POSITION);
    generator
}

/// Words of the key stream per position: one block of ChaCha.
const WORDS_PER_POSITION: u128 = 16;

/// A number in \[0, 1), with 53 random bits.
pub fn uniform(seed: u64, position: u64, purpose: Purpose) -> f64 {
    (generator(seed, position, purpose).next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_depend_on_seed_and_position_only() {
        let a = uniform(7, 1_000_000, Purpose::Token);
        let _ = uniform(7, 3, Purpose::Token);
        assert_eq!(a, uniform(7, 1_000_000, Purpose::Token));
        assert_ne!(a, uniform(7, 1_000_001, Purpose::Token));
        assert_ne!(a, uniform(8, 1_000_000, Purpose::Token));
    }

    #[test]
    fn numbers_are_spread_evenly() {
        let mut buckets = [0u32; 10];
        for position in 0..10_000 {
            buckets[(uniform(1, position, Purpose::Token) * 10.0) as usize] += 1;
        }
        // 3.3 standard deviations of a binomial(10,000, 0.1) are 99.
        assert!(buckets.iter().all(|&b| (901..1099).contains(&b)), "{buckets:?}");
    }
}
