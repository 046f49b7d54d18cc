//! `qwen3`: dense, with a norm on each head of queries and keys; these turn in pairs of halves.

use super::dense::{Dense, refuse_experts, rope_divisor};
use super::metadata::Metadata;
use super::parts::AttentionShape;
use crate::error::Result;
use paceline_gguf::Gguf;

pub(super) const ARCHITECTURE: &str = "qwen3";

/// Opens the family on a file.
pub(super) fn open(gguf: &Gguf) -> Result<Dense> {
    let meta = Metadata::new(gguf, ARCHITECTURE);
    refuse_experts(&meta)?;
    let mut attention = AttentionShape::read(&meta, meta.layers()?)?;
    attention.rope.divisor = rope_divisor(&meta, false)?;
    Dense::open(&meta, attention, true, None)
}
