//! Sampling: from logits to a token.
//!
//! The chain, in this order: repetition penalty, temperature, top-k, top-p, min-p, then one draw. The generator is
//! keyed by seed and position, so a position draws the same token from the same logits however it was reached.

mod chain;
mod random;

pub use chain::{Sampler, SamplerOptions};
pub(crate) use random::Draws;
pub use random::{Purpose, uniform};
