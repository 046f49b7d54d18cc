//! One run: where the values of its nodes are.

use super::{ReferenceError, parameters};
use crate::quant;
use paceline_plugin_api::graph::{DType, Graph, Value, ValueId, ValueKind};
use std::borrow::Cow;

/// What a node made.
enum Tensor {
    None,
    Floats(Vec<f32>),
    Integers(Vec<i32>),
}

/// The values of one run.
pub(super) struct Run<'a> {
    graph: &'a Graph,
    places: &'a [usize],
    weights: &'a [&'a [u8]],
    states: &'a mut [Vec<u8>],
    block: &'a [u8],
    tensors: Vec<Tensor>,
    /// Live entries of axis 0, by value.
    rows: Vec<usize>,
}

impl<'a> Run<'a> {
    pub fn new(
        graph: &'a Graph,
        places: &'a [usize],
        weights: &'a [&'a [u8]],
        states: &'a mut [Vec<u8>],
        block: &'a [u8],
    ) -> Result<Self, ReferenceError> {
        let rows = parameters::live_counts(graph, block)?;
        let tensors = graph.values().iter().map(|_| Tensor::None).collect();
        Ok(Self { graph, places, weights, states, block, tensors, rows })
    }

    pub fn value(&self, id: ValueId) -> &'a Value {
        self.graph.value(id)
    }

    /// Dimensions of a value as `usize`; panics if it has another number of them, which a checked graph cannot have.
    pub fn dims<const N: usize>(&self, id: ValueId) -> [usize; N] {
        let dims = self.value(id).shape;
        std::array::from_fn(|axis| dims.dims()[axis] as usize)
    }

    /// Live entries of axis 0.
    pub fn rows(&self, id: ValueId) -> usize {
        self.rows[id.index()]
    }

    /// Elements of the live entries of axis 0.
    pub fn live_elements(&self, id: ValueId) -> usize {
        self.rows(id) * self.value(id).shape.row_elements() as usize
    }

    /// All elements.
    pub fn elements(&self, id: ValueId) -> usize {
        self.value(id).shape.elements().unwrap_or(0) as usize
    }

    /// Length of the last axis.
    pub fn width(&self, id: ValueId) -> usize {
        self.value(id).shape.last() as usize
    }

    /// The elements of an f32 value.
    pub fn floats(&self, id: ValueId) -> Cow<'_, [f32]> {
        let read = |bytes: &[u8]| Cow::Owned(bytes.chunks_exact(4).map(read_float).collect());
        match (self.value(id).kind, &self.tensors[id.index()]) {
            (_, Tensor::Floats(values)) => Cow::Borrowed(values),
            (ValueKind::Weight, _) => read(self.weight(id)),
            (ValueKind::Parameter { offset }, _) => read(self.parameter_bytes(offset, self.elements(id))),
            _ => Cow::Borrowed(&[]),
        }
    }

    /// The elements of an i32 value.
    pub fn integers(&self, id: ValueId) -> Cow<'_, [i32]> {
        match (self.value(id).kind, &self.tensors[id.index()]) {
            (_, Tensor::Integers(values)) => Cow::Borrowed(values),
            (ValueKind::Parameter { offset }, _) => {
                let bytes = self.parameter_bytes(offset, self.elements(id));
                Cow::Owned(bytes.chunks_exact(4).map(read_integer).collect())
            }
            _ => Cow::Borrowed(&[]),
        }
    }

    fn parameter_bytes(&self, offset: u32, words: usize) -> &[u8] {
        &self.block[offset as usize..offset as usize + words * 4]
    }

    /// Canonical bytes of a weight.
    fn weight(&self, id: ValueId) -> &'a [u8] {
        self.weights[self.places[id.index()]]
    }

    /// The elements of a weight of i32.
    pub fn weight_integers(&self, id: ValueId) -> Vec<i32> {
        let word = |bytes: &[u8; 4]| i32::from_le_bytes(*bytes);
        self.weight(id).as_chunks().0.iter().map(word).collect()
    }

    /// Row `row` of a weight: of all rows of all its matrices if it has three dimensions.
    pub fn read_weight_row(&self, id: ValueId, row: usize, out: &mut [f32]) -> Result<(), String> {
        let bytes = self.weight(id);
        let row_bytes = bytes.len() / (self.elements(id) / self.width(id));
        let bytes = &bytes[row * row_bytes..(row + 1) * row_bytes];
        quant::dequantize(self.value(id).dtype, bytes, out).map_err(|error| error.to_string())
    }

    /// Canonical bytes of a state.
    pub fn state(&self, id: ValueId) -> &[u8] {
        &self.states[self.places[id.index()]]
    }

    /// Canonical bytes of a state, to change them.
    pub fn state_mut(&mut self, id: ValueId) -> &mut [u8] {
        &mut self.states[self.places[id.index()]]
    }

    /// Sets the result of a node.
    pub fn set_floats(&mut self, id: ValueId, values: Vec<f32>) {
        debug_assert_eq!(values.len(), self.elements(id));
        self.tensors[id.index()] = Tensor::Floats(values);
    }

    /// Sets the result of a node.
    pub fn set_integers(&mut self, id: ValueId, values: Vec<i32>) {
        debug_assert_eq!(values.len(), self.elements(id));
        self.tensors[id.index()] = Tensor::Integers(values);
    }

    /// The result block.
    pub fn results(&self) -> Vec<u8> {
        let mut block = vec![0; self.graph.result_bytes() as usize];
        for result in self.graph.results() {
            let bytes: Vec<u8> = match self.value(result.value).dtype {
                DType::I32 => self.integers(result.value).iter().flat_map(|v| v.to_le_bytes()).collect(),
                _ => self.floats(result.value).iter().flat_map(|v| v.to_le_bytes()).collect(),
            };
            let start = result.offset as usize;
            block[start..start + bytes.len()].copy_from_slice(&bytes);
        }
        block
    }
}

pub(super) fn read_float(bytes: &[u8]) -> f32 {
    f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

pub(super) fn read_integer(bytes: &[u8]) -> i32 {
    i32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}
