//! `llama`: dense, without norms on heads.
//!
//! Queries and keys turn in adjacent pairs: the rows of their matrices are stored in that order. Llama 3 slows each
//! pair down by a factor of its own, from `rope_freqs.weight`.

use super::dense::{Dense, refuse_experts, rope_divisor};
use super::metadata::Metadata;
use super::parts::AttentionShape;
use crate::error::Result;
use paceline_gguf::Gguf;

pub(super) const ARCHITECTURE: &str = "llama";

/// Opens the family on a file.
pub(super) fn open(gguf: &Gguf) -> Result<Dense> {
    let meta = Metadata::new(gguf, ARCHITECTURE);
    refuse_experts(&meta)?;
    let mut attention = AttentionShape::read(&meta, meta.layers()?)?;
    let pairs = attention.rope.rotary / 2;
    let factors = meta.tensors.optional("rope_freqs.weight", |t, name| t.vector(name, pairs))?;
    attention.rope.adjacent = true;
    attention.rope.divisor = rope_divisor(&meta, factors.is_some())?;
    attention.rope.factors = factors;
    Dense::open(&meta, attention, false, None)
}
