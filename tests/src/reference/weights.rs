//! Tensors of a file as numbers.

use std::collections::HashMap;

use paceline_conformance::quant::dequantize;
use paceline_gguf::Gguf;
use paceline_plugin_api::graph::DType;

use super::Rows;
use super::math::silu;
use crate::AnyError;

/// A matrix from `inputs` to `outputs` values.
pub(super) struct Matrix {
    pub inputs: usize,
    pub outputs: usize,
    /// `outputs` rows of `inputs`. The readers of quantised types give f32; computing widens it.
    values: Vec<f32>,
}

impl Matrix {
    /// Row `index`, such as the embedding of a token.
    pub fn row(&self, index: usize) -> Vec<f64> {
        self.row_f32(index).iter().map(|value| f64::from(*value)).collect()
    }

    fn row_f32(&self, index: usize) -> &[f32] {
        &self.values[index * self.inputs..][..self.inputs]
    }

    /// `output[i][r] = sum over c of W[r][c] * rows[i][c]`.
    pub fn apply(&self, rows: &[Vec<f64>]) -> Rows {
        assert!(rows.iter().all(|row| row.len() == self.inputs), "a matrix of {} inputs", self.inputs);
        let mut output = vec![vec![0.0; self.outputs]; rows.len()];
        for index in 0..self.outputs {
            let weights = self.row_f32(index);
            for (row, output) in rows.iter().zip(&mut output) {
                output[index] = dot(weights, row);
            }
        }
        output
    }
}

impl Matrix {
    /// So many matrices of as many rows each.
    pub fn split(self, count: usize) -> Vec<Matrix> {
        let outputs = self.outputs / count;
        let parts = self.values.chunks_exact(outputs * self.inputs);
        parts.map(|values| Matrix { inputs: self.inputs, outputs, values: values.to_vec() }).collect()
    }
}

/// Eight sums side by side, which compilers turn into vector instructions.
fn dot(weights: &[f32], values: &[f64]) -> f64 {
    let mut sums = [0.0; 8];
    let (weight_chunks, value_chunks) = (weights.chunks_exact(8), values.chunks_exact(8));
    let rest: f64 = weight_chunks
        .remainder()
        .iter()
        .zip(value_chunks.remainder())
        .map(|(weight, value)| f64::from(*weight) * value)
        .sum();
    for (weights, values) in weight_chunks.zip(value_chunks) {
        for ((sum, weight), value) in sums.iter_mut().zip(weights).zip(values) {
            *sum += f64::from(*weight) * value;
        }
    }
    rest + sums.iter().sum::<f64>()
}

/// The SwiGLU feed-forward part: down(SiLU(gate x) * (up x)).
pub(super) struct FeedForward {
    pub gate: Matrix,
    pub up: Matrix,
    pub down: Matrix,
}

impl FeedForward {
    pub fn take(tensors: &mut Tensors, prefix: &str) -> Result<Self, AnyError> {
        Ok(FeedForward {
            gate: tensors.matrix(&format!("{prefix}ffn_gate.weight"))?,
            up: tensors.matrix(&format!("{prefix}ffn_up.weight"))?,
            down: tensors.matrix(&format!("{prefix}ffn_down.weight"))?,
        })
    }

    pub fn apply(&self, rows: &[Vec<f64>]) -> Rows {
        let mut inner = self.gate.apply(rows);
        for (gate, up) in inner.iter_mut().zip(self.up.apply(rows)) {
            gate.iter_mut().zip(up).for_each(|(gate, up)| *gate = silu(*gate) * up);
        }
        self.down.apply(&inner)
    }
}

/// The tensors of a file that nobody has taken yet.
pub(super) struct Tensors(HashMap<String, Matrix>);

impl Tensors {
    /// Reads all tensors; one of a type without a reader is an error.
    pub fn read(file: &Gguf) -> Result<Self, AnyError> {
        let mut tensors = HashMap::new();
        for tensor in file.tensors() {
            let inputs = tensor.dims[0] as usize;
            let count = tensor.element_count() as usize;
            let mut values = vec![0.0; count];
            dequantize(DType(tensor.tensor_type.id()), file.tensor_bytes(&tensor)?, &mut values)?;
            tensors.insert(tensor.name.to_owned(), Matrix { inputs, outputs: count / inputs, values });
        }
        Ok(Tensors(tensors))
    }

    pub fn optional_matrix(&mut self, name: &str) -> Option<Matrix> {
        self.0.remove(name)
    }

    pub fn matrix(&mut self, name: &str) -> Result<Matrix, AnyError> {
        self.optional_matrix(name).ok_or_else(|| format!("tensor '{name}' is missing").into())
    }

    pub fn optional_vector(&mut self, name: &str) -> Option<Vec<f64>> {
        self.0.remove(name).map(|tensor| tensor.values.iter().map(|value| f64::from(*value)).collect())
    }

    pub fn vector(&mut self, name: &str) -> Result<Vec<f64>, AnyError> {
        self.optional_vector(name).ok_or_else(|| format!("tensor '{name}' is missing").into())
    }

    /// Refuses what is left: a tensor that was not asked for would change the result.
    pub fn finish(self) -> Result<(), AnyError> {
        let mut names: Vec<String> = self.0.into_keys().collect();
        names.sort();
        if names.is_empty() { Ok(()) } else { Err(format!("the reference does not use {names:?}").into()) }
    }
}
