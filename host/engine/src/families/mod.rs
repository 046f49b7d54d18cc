//! Model families: one file each. A family reads its metadata, checks its tensors, and builds the parts of a step.
//!
//! A step of the target is [`Family::embed`], [`Family::trunk`], then, for the rows whose outputs are wanted,
//! [`Family::final_norm`] and [`Family::head`]. The parts are separate so that strategies can compose them anew: a
//! multi-token prediction block, for example, shares `embed` and `head`.

mod dense;
mod experts;
mod llama;
mod metadata;
mod parts;
mod qwen3;
mod qwen35;
mod qwen3moe;

use crate::error::{EngineError, Result};
use crate::model::{ModelShape, file_name};
use crate::step::StepInputs;
use paceline_gguf::Gguf;
use paceline_plugin_api::graph::{Builder, ValueId};
use paceline_plugin_api::strategy::DeltaNetShape;
use std::sync::Arc;

/// A model family, opened on a file.
pub trait Family: Send + Sync {
    /// Sizes.
    fn shape(&self) -> &ModelShape;

    /// Rows of the embedding: ids i32\[R\] to f32\[R, hidden\], and the count of ids out of range.
    fn embed(&self, b: &mut Builder, ids: ValueId) -> (ValueId, ValueId);

    /// All trunk layers: the residual stream before the first to the residual stream after the last.
    ///
    /// # Errors
    /// Those of `ports`.
    fn trunk(&self, b: &mut Builder, step: &StepInputs, ports: &mut dyn Ports, x: ValueId)
    -> Result<ValueId>;

    /// The norm between trunk and head.
    fn final_norm(&self, b: &mut Builder, x: ValueId) -> ValueId;

    /// Logits f32\[M, vocabulary\] of normed rows.
    fn head(&self, b: &mut Builder, hidden: ValueId) -> ValueId;

    /// The multi-token prediction block, if the file has one.
    fn nextn(&self) -> Option<&dyn NextnBlock> {
        None
    }
}

/// Places of the trunk where the engine may take something out, or put a part of its own in.
pub trait Ports {
    /// The residual stream before layer `layer`; behind the last layer, `layer` is the number of layers.
    fn layer_input(&mut self, b: &mut Builder, step: &StepInputs, layer: u32, x: ValueId) {
        let _ = (b, step, layer, x);
    }

    /// The part of a Gated DeltaNet layer that keeps state: queries, keys, values, log decay and strength to the
    /// layer's f32\[R, value heads, value width\].
    ///
    /// # Errors
    /// A part that does not fit the layer.
    fn delta_net(
        &mut self,
        b: &mut Builder,
        step: &StepInputs,
        layer: u32,
        inputs: [ValueId; 5],
        shape: &DeltaNetShape,
    ) -> Result<ValueId> {
        Ok(delta_net(b, step, layer, inputs, shape))
    }
}

/// Ports that take nothing out.
pub struct Closed;

impl Ports for Closed {}

/// The engine's own form of the part that keeps state: in place, or with a snapshot of the state for every row that
/// can be rolled back.
fn delta_net(
    b: &mut Builder,
    step: &StepInputs,
    layer: u32,
    inputs: [ValueId; 5],
    shape: &DeltaNetShape,
) -> ValueId {
    let dims = [shape.value_heads, shape.key_width, shape.value_width];
    let state = step.slot_state(b, layer, "delta", step.context.planes(), &dims);
    match step.rollback {
        None => b.gated_delta_net(inputs, state, step.sequences, shape.scale),
        Some(rollback) => {
            let planes = step.context.planes();
            b.gated_delta_net_snapshots(inputs, state, step.sequences, rollback, planes, shape.scale)
        }
    }
}

/// A multi-token prediction block (NextN): predicts the token after the next one from a token and the hidden state
/// of the position before it.
pub trait NextnBlock: Send + Sync {
    /// The whole block: embedded tokens and hidden states, both f32\[R, hidden\], to the normed hidden state that
    /// feeds the head and the next step. Row p holds the token at position p and the trunk's normed hidden state of
    /// position p - 1.
    fn full(&self, b: &mut Builder, step: &StepInputs, embedded: ValueId, hidden: ValueId) -> ValueId;

    /// Only what fills the block's KV cache: the same values as [`NextnBlock::full`] appends, and nothing else.
    fn kv_only(&self, b: &mut Builder, step: &StepInputs, embedded: ValueId, hidden: ValueId);

    /// Logits of the block's hidden state.
    fn head(&self, b: &mut Builder, hidden: ValueId) -> ValueId;

    /// Tokens that the head over a part of the vocabulary knows, if the file has such a head.
    fn draft_head_rows(&self) -> Option<u32> {
        None
    }

    /// Logits over a part of the vocabulary, if the file has such a head.
    fn draft_head(&self, b: &mut Builder, hidden: ValueId) -> Option<ValueId> {
        let _ = (b, hidden);
        None
    }

    /// Token ids of indices into that part.
    fn draft_ids(&self, b: &mut Builder, indices: ValueId) -> Option<ValueId> {
        let _ = (b, indices);
        None
    }

    /// The block's own embedding, or the trunk's.
    fn embed(&self, b: &mut Builder, ids: ValueId) -> (ValueId, ValueId);
}

/// Architectures that run.
const SUPPORTED: &[&str] = &[
    llama::ARCHITECTURE,
    qwen3::ARCHITECTURE,
    qwen3moe::ARCHITECTURE,
    qwen35::ARCHITECTURE,
    qwen35::WITH_EXPERTS,
];

/// Opens the family of a file.
///
/// # Errors
/// An architecture that Paceline does not know, or what is wrong with the file, by key or tensor.
pub fn open(gguf: &Gguf) -> Result<Arc<dyn Family>> {
    match gguf.architecture()? {
        llama::ARCHITECTURE => Ok(Arc::new(llama::open(gguf)?)),
        qwen3::ARCHITECTURE => Ok(Arc::new(qwen3::open(gguf)?)),
        qwen3moe::ARCHITECTURE => Ok(Arc::new(qwen3moe::open(gguf)?)),
        qwen35::ARCHITECTURE => Ok(Arc::new(qwen35::Qwen35::open(gguf, qwen35::ARCHITECTURE)?)),
        qwen35::WITH_EXPERTS => Ok(Arc::new(qwen35::Qwen35::open(gguf, qwen35::WITH_EXPERTS)?)),
        other => Err(EngineError::Unsupported {
            file: file_name(gguf),
            what: format!(
                "architecture `{other}` is not supported; this version runs {}",
                SUPPORTED.join(", ")
            ),
        }),
    }
}
