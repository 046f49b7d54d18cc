//! Fragments: parts of a model's family that a strategy's graph names, and that the host puts in place.
//!
//! A node of the operation [`OPERATION`] with the attribute `name` stands for a fragment; its inputs and outputs are
//! the fragment's. So a strategy needs no copy of an architecture's layers.
//!
//! | name | inputs → outputs |
//! |---|---|
//! | `embed` | ids i32\[R\] → f32\[R, hidden\] |
//! | `head` | normed hidden states f32\[R, hidden\] → logits f32\[R, vocabulary\] |
//! | `nextn.embed` | as `embed`, for the prediction block |
//! | `nextn.full` | embedded tokens and hidden states, both f32\[R, hidden\], positions, cells, sequences, block table → normed hidden state f32\[R, hidden\] |
//! | `nextn.kv_only` | as `nextn.full` → nothing: fills the block's KV cache with the same values |
//! | `nextn.head` | hidden states of the block → logits f32\[R, vocabulary\] |
//! | `nextn.draft_head` | hidden states of the block → logits f32\[R, kept\] over the kept tokens only |
//! | `nextn.draft_ids` | indices into the kept tokens i32\[R\] → token ids i32\[R\] |

use super::step::StepInputs;
use super::{Builder, DType, Shape, ValueId};

/// Name of the operation that stands for a fragment.
pub const OPERATION: &str = "fragment";

/// Rows of the embedding.
pub const EMBED: &str = "embed";
/// The head.
pub const HEAD: &str = "head";
/// The prediction block's embedding.
pub const NEXTN_EMBED: &str = "nextn.embed";
/// The whole prediction block.
pub const NEXTN_FULL: &str = "nextn.full";
/// What fills the prediction block's KV cache.
pub const NEXTN_KV_ONLY: &str = "nextn.kv_only";
/// The prediction block's head.
pub const NEXTN_HEAD: &str = "nextn.head";
/// The prediction block's head over a part of the vocabulary.
pub const NEXTN_DRAFT_HEAD: &str = "nextn.draft_head";

/// From indices of the head over a part of the vocabulary to token ids.
pub const NEXTN_DRAFT_IDS: &str = "nextn.draft_ids";

/// An output of a fragment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FragmentOutput {
    /// Data type.
    pub dtype: DType,
    /// Shape.
    pub shape: Shape,
    /// Axis 0 are live rows.
    pub rows: bool,
}

impl FragmentOutput {
    /// f32\[rows, width\], live rows.
    pub fn rows(rows: u32, width: u32) -> Self {
        let shape = Shape::new(&[rows, width]).expect("two dimensions are at most four");
        Self { dtype: DType::F32, shape, rows: true }
    }
}

impl Builder {
    /// A fragment that makes a row of `width` from each row of its first input.
    pub fn row_fragment(&mut self, name: &str, x: ValueId, width: u32) -> ValueId {
        let rows = self.dims(x)[0];
        self.fragment(name, &[x], &[FragmentOutput::rows(rows, width)])[0]
    }

    /// [`NEXTN_DRAFT_IDS`].
    pub fn nextn_draft_ids(&mut self, indices: ValueId) -> ValueId {
        let shape = Shape::new(&self.dims(indices)[..1]).expect("one dimension is at most four");
        self.fragment(NEXTN_DRAFT_IDS, &[indices], &[FragmentOutput { dtype: DType::I32, shape, rows: true }])
            [0]
    }

    /// [`NEXTN_FULL`].
    pub fn nextn_full(&mut self, step: &StepInputs, embedded: ValueId, hidden: ValueId) -> ValueId {
        let [rows, width] = [0, 1].map(|axis| self.dims(hidden)[axis]);
        let [positions, cells, sequences, table] = step.fragment_inputs();
        let inputs = [embedded, hidden, positions, cells, sequences, table];
        self.fragment(NEXTN_FULL, &inputs, &[FragmentOutput::rows(rows, width)])[0]
    }

    /// [`NEXTN_KV_ONLY`].
    pub fn nextn_kv_only(&mut self, step: &StepInputs, embedded: ValueId, hidden: ValueId) {
        let [positions, cells, sequences, table] = step.fragment_inputs();
        self.fragment(NEXTN_KV_ONLY, &[embedded, hidden, positions, cells, sequences, table], &[]);
    }
}
