//! How tokens are chosen, from what was typed.

use std::hash::{BuildHasher, Hasher, RandomState};

use paceline_engine::SamplerOptions;

use crate::args::SamplingArgs;

/// The options of a sampler. Without a seed they get a new one.
pub fn options(args: &SamplingArgs) -> SamplerOptions {
    SamplerOptions {
        temperature: args.temp,
        top_k: args.top_k,
        top_p: args.top_p,
        min_p: args.min_p,
        repeat_penalty: args.repeat_penalty,
        seed: args.seed.unwrap_or_else(random_seed),
        ..SamplerOptions::default()
    }
}

/// A seed that differs each time, and is short enough to be typed again.
fn random_seed() -> u64 {
    // The standard library seeds its hash maps from the system's random numbers.
    RandomState::new().build_hasher().finish() >> 32
}
