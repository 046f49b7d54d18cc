//! Gated attention layers of `qwen35`.

use super::Rows;
use super::math::{Rotary, attend, rms_norm_heads, sigmoid};
use super::weights::{Matrix, Tensors};
use crate::AnyError;

/// Attention with a gate on its output.
pub(super) struct GatedAttention {
    /// Per head: its query, then its gate.
    query_and_gate: Matrix,
    key: Matrix,
    value: Matrix,
    output: Matrix,
    /// One weight per value of a head.
    query_norm: Vec<f64>,
    key_norm: Vec<f64>,
}

impl GatedAttention {
    pub fn take(tensors: &mut Tensors, prefix: &str) -> Result<Self, AnyError> {
        let name = |suffix: &str| format!("{prefix}{suffix}.weight");
        Ok(GatedAttention {
            query_and_gate: tensors.matrix(&name("attn_q"))?,
            key: tensors.matrix(&name("attn_k"))?,
            value: tensors.matrix(&name("attn_v"))?,
            output: tensors.matrix(&name("attn_output"))?,
            query_norm: tensors.vector(&name("attn_q_norm"))?,
            key_norm: tensors.vector(&name("attn_k_norm"))?,
        })
    }

    /// Width of a head.
    pub fn head_dim(&self) -> usize {
        self.query_norm.len()
    }

    /// q = rope(RMS(q)), k = rope(RMS(k)); output = Wo (attention * sigmoid(gate)). Row i is at position i and sees
    /// the rows up to itself.
    pub fn apply(&self, rows: &[Vec<f64>], rotary: &Rotary, scale: f64, epsilon: f64) -> Rows {
        let width = self.head_dim();
        let (mut queries, mut gates) = (Rows::new(), Rows::new());
        for row in self.query_and_gate.apply(rows) {
            let heads = || row.chunks_exact(2 * width);
            queries.push(heads().flat_map(|head| head[..width].to_vec()).collect());
            gates.push(heads().flat_map(|head| head[width..].to_vec()).collect());
        }
        let mut queries = rms_norm_heads(&queries, &self.query_norm, epsilon);
        let mut keys = rms_norm_heads(&self.key.apply(rows), &self.key_norm, epsilon);
        rotary.apply(&mut queries, width, 0);
        rotary.apply(&mut keys, width, 0);
        let values = self.value.apply(rows);
        let mut mixed = attend(&queries, &keys, &values, width, scale, |row, key| key <= row);
        for (mixed, gate) in mixed.iter_mut().zip(&gates) {
            mixed.iter_mut().zip(gate).for_each(|(value, gate)| *value *= sigmoid(*gate));
        }
        self.output.apply(&mixed)
    }
}
