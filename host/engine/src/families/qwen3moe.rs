//! `qwen3moe`: as `qwen3`, with mixtures of experts as feed-forward parts.

use super::dense::{Dense, rope_divisor};
use super::experts::ExpertShape;
use super::metadata::Metadata;
use super::parts::AttentionShape;
use crate::error::Result;
use paceline_gguf::Gguf;

pub(super) const ARCHITECTURE: &str = "qwen3moe";

/// Opens the family on a file.
pub(super) fn open(gguf: &Gguf) -> Result<Dense> {
    let meta = Metadata::new(gguf, ARCHITECTURE);
    let mut attention = AttentionShape::read(&meta, meta.layers()?)?;
    attention.rope.divisor = rope_divisor(&meta, false)?;
    let experts = ExpertShape::read(&meta, false)?;
    Dense::open(&meta, attention, true, Some(&experts))
}
