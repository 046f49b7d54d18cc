//! Gated DeltaNet layers of `qwen35`, token by token ("Gated Delta Networks", Yang et al. 2024, in the form that
//! Qwen3-Next and its successors use).

use super::Rows;
use super::math::{l2_norm, rms_norm, sigmoid, silu, softplus};
use super::weights::{Matrix, Tensors};
use crate::AnyError;

/// A recurrent layer.
pub(super) struct DeltaNet {
    /// To the channels of the convolution: queries, keys, values, each head by head.
    qkv: Matrix,
    gate: Matrix,
    beta: Matrix,
    alpha: Matrix,
    output: Matrix,
    /// Per channel its taps, the oldest first.
    taps: Matrix,
    decay_bias: Vec<f64>,
    /// -exp(A_log), one per value head.
    decay: Vec<f64>,
    norm: Vec<f64>,
}

impl DeltaNet {
    pub fn take(tensors: &mut Tensors, prefix: &str) -> Result<Self, AnyError> {
        let name = |suffix: &str| format!("{prefix}{suffix}");
        Ok(DeltaNet {
            qkv: tensors.matrix(&name("attn_qkv.weight"))?,
            gate: tensors.matrix(&name("attn_gate.weight"))?,
            beta: tensors.matrix(&name("ssm_beta.weight"))?,
            alpha: tensors.matrix(&name("ssm_alpha.weight"))?,
            output: tensors.matrix(&name("ssm_out.weight"))?,
            taps: tensors.matrix(&name("ssm_conv1d.weight"))?,
            decay_bias: tensors.vector(&name("ssm_dt.bias"))?,
            decay: tensors.vector(&name("ssm_a"))?,
            norm: tensors.vector(&name("ssm_norm.weight"))?,
        })
    }

    /// Width of a head.
    pub fn head_dim(&self) -> usize {
        self.norm.len()
    }

    /// Value heads.
    pub fn value_heads(&self) -> usize {
        self.decay.len()
    }

    /// Key heads, which are the query heads too.
    pub fn key_heads(&self) -> usize {
        (self.qkv.outputs / self.head_dim() - self.value_heads()) / 2
    }

    /// Taps of the convolution.
    pub fn convolution(&self) -> usize {
        self.taps.inputs
    }

    /// `c[t][j] = SiLU(sum over k of tap[j][k] * m[t - K + 1 + k][j])`; before the first token m is 0.
    fn convolve(&self, channels: &[Vec<f64>]) -> Rows {
        let taps: Rows = (0..self.taps.outputs).map(|channel| self.taps.row(channel)).collect();
        let last = self.convolution() - 1;
        let at = |time: usize, channel: usize| {
            let sum: f64 = taps[channel]
                .iter()
                .enumerate()
                .filter(|(tap, _)| time + tap >= last)
                .map(|(tap, weight)| weight * channels[time + tap - last][channel])
                .sum();
            silu(sum)
        };
        (0..channels.len()).map(|time| (0..taps.len()).map(|channel| at(time, channel)).collect()).collect()
    }

    /// Per value head h with its state S [key index][value index], at each token:
    ///
    /// - S = S * exp(a_h * softplus(alpha_h + bias_h))
    /// - delta = sigmoid(beta_h) * (v - S^T k)
    /// - S = S + k delta^T
    /// - o = S^T q / sqrt(width)
    ///
    /// with q and k of the key head h mod (key heads), both of length 1. The output is W (RMS(o) * SiLU(gate)).
    pub fn apply(&self, rows: &[Vec<f64>], epsilon: f64) -> Rows {
        let width = self.head_dim();
        let (key_heads, value_heads) = (self.key_heads(), self.value_heads());
        let convolved = self.convolve(&self.qkv.apply(rows));
        let (gates, betas, alphas) = (self.gate.apply(rows), self.beta.apply(rows), self.alpha.apply(rows));
        let mut mixed = vec![vec![0.0; value_heads * width]; rows.len()];
        for head in 0..value_heads {
            let mut state = vec![vec![0.0; width]; width];
            for (time, channels) in convolved.iter().enumerate() {
                let part = |index: usize| &channels[index * width..][..width];
                let key_head = head % key_heads;
                let query = l2_norm(part(key_head), epsilon);
                let key = l2_norm(part(key_heads + key_head), epsilon);
                let value = part(2 * key_heads + head);
                let beta = sigmoid(betas[time][head]);
                let decay = (self.decay[head] * softplus(alphas[time][head] + self.decay_bias[head])).exp();
                state.iter_mut().flatten().for_each(|entry| *entry *= decay);
                let predicted = transposed_product(&state, &key);
                let delta: Vec<f64> = value.iter().zip(&predicted).map(|(v, p)| beta * (v - p)).collect();
                for (row, key) in state.iter_mut().zip(&key) {
                    row.iter_mut().zip(&delta).for_each(|(entry, delta)| *entry += key * delta);
                }
                let mut read = transposed_product(&state, &query);
                read.iter_mut().for_each(|value| *value /= (width as f64).sqrt());
                let gate = &gates[time][head * width..][..width];
                let output = &mut mixed[time][head * width..][..width];
                for ((output, read), gate) in
                    output.iter_mut().zip(rms_norm(&read, &self.norm, epsilon)).zip(gate)
                {
                    *output = read * silu(*gate);
                }
            }
        }
        self.output.apply(&mixed)
    }
}

/// S^T x: `result[j] = sum over i of S[i][j] * x[i]`.
fn transposed_product(state: &[Vec<f64>], x: &[f64]) -> Vec<f64> {
    let mut result = vec![0.0; state.len()];
    for (row, x) in state.iter().zip(x) {
        result.iter_mut().zip(row).for_each(|(sum, entry)| *sum += entry * x);
    }
    result
}
