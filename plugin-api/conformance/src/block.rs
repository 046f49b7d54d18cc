//! Parameter and result blocks, by the names in a graph.

use paceline_plugin_api::graph::{DType, Graph, ValueId, ValueKind};

/// What entries hold that nobody set: as f32 a NaN, as i32 an index that is out of range everywhere, so whoever
/// reads beyond a live count gives himself away.
const GARBAGE: u32 = 0x7FC0_DEAD;

/// Fills a parameter block of a graph.
///
/// The methods panic on names that the graph lacks and on lists that are longer than their parameter: blocks are
/// filled by tests, from data of their own.
#[derive(Clone)]
pub struct ParameterBlock<'g> {
    graph: &'g Graph,
    bytes: Vec<u8>,
}

impl<'g> ParameterBlock<'g> {
    /// A block of garbage: whatever is not set reads as NaN or as an index that is out of range.
    pub fn new(graph: &'g Graph) -> Self {
        let words = (graph.parameter_bytes() as usize).div_ceil(4);
        let mut bytes: Vec<u8> = std::iter::repeat_n(GARBAGE.to_le_bytes(), words).flatten().collect();
        bytes.truncate(graph.parameter_bytes() as usize);
        Self { graph, bytes }
    }

    /// A block with the content of `bytes`, which have the length that the graph states.
    pub fn from_bytes(graph: &'g Graph, bytes: &[u8]) -> Self {
        assert_eq!(bytes.len() as u64, graph.parameter_bytes(), "another length than the graph states");
        Self { graph, bytes: bytes.to_vec() }
    }

    fn set(&mut self, name: &str, first: usize, words: impl ExactSizeIterator<Item = [u8; 4]>) -> &mut Self {
        let id = self.graph.parameter(name).unwrap_or_else(|| panic!("no parameter `{name}`"));
        let elements = self.graph.value(id).shape.elements().unwrap_or(0) as usize;
        assert!(first + words.len() <= elements, "`{name}` has {elements} elements");
        let start = offset(self.graph, id) + first * 4;
        for (place, word) in self.bytes[start..].chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word);
        }
        self
    }

    /// Writes the first elements of an i32 parameter.
    pub fn set_integers(&mut self, name: &str, values: &[i32]) -> &mut Self {
        self.set_integers_at(name, 0, values)
    }

    /// Writes elements of an i32 parameter, beginning with element `first`.
    pub fn set_integers_at(&mut self, name: &str, first: usize, values: &[i32]) -> &mut Self {
        self.set(name, first, values.iter().map(|v| v.to_le_bytes()))
    }

    /// Writes elements of an f32 parameter, beginning with element `first`.
    pub fn set_floats(&mut self, name: &str, first: usize, values: &[f32]) -> &mut Self {
        self.set(name, first, values.iter().map(|v| v.to_le_bytes()))
    }

    /// All elements of an i32 parameter.
    pub fn integers(&self, name: &str) -> Vec<i32> {
        let id = self.graph.parameter(name).unwrap_or_else(|| panic!("no parameter `{name}`"));
        let elements = self.graph.value(id).shape.elements().unwrap_or(0) as usize;
        words(&self.bytes[offset(self.graph, id)..]).take(elements).map(i32::from_le_bytes).collect()
    }

    /// The live count of a value: the parameter that holds it, or the whole first axis.
    pub fn live_rows(&self, id: ValueId) -> usize {
        live_rows(self.graph, &self.bytes, id)
    }

    /// The bytes so far.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The finished block.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// A block in which row `row` of every parameter that counts its rows in the parameter `rows` stands alone; other
    /// parameters are as here. `graph` has the same parameters, perhaps with another maximum of rows.
    #[must_use]
    pub fn only_row<'h>(&self, graph: &'h Graph, rows: &str, row: usize) -> ParameterBlock<'h> {
        let mut single = ParameterBlock::new(graph);
        for id in self.graph.parameters() {
            let value = self.graph.value(id);
            let target =
                graph.parameter(&value.name).unwrap_or_else(|| panic!("no parameter `{}`", value.name));
            let counted = value.live.is_some_and(|live| self.graph.value(live).name == rows);
            let elements =
                if counted { value.shape.row_elements() } else { value.shape.elements().unwrap_or(0) };
            let (from, to) = (offset(self.graph, id), offset(graph, target));
            let bytes = elements as usize * 4;
            let from = if counted { from + row * bytes } else { from };
            single.bytes[to..to + bytes].copy_from_slice(&self.bytes[from..from + bytes]);
        }
        single.set_integers(rows, &[1]);
        single
    }
}

fn offset(graph: &Graph, parameter: ValueId) -> usize {
    match graph.value(parameter).kind {
        ValueKind::Parameter { offset } => offset as usize,
        _ => 0,
    }
}

fn words(bytes: &[u8]) -> impl Iterator<Item = [u8; 4]> + '_ {
    bytes.chunks_exact(4).map(|b| [b[0], b[1], b[2], b[3]])
}

/// Live entries of axis 0 of a value in a run with this parameter block; at most the whole axis.
pub fn live_rows(graph: &Graph, parameters: &[u8], id: ValueId) -> usize {
    let value = graph.value(id);
    let maximum = value.shape.first() as usize;
    value.live.map_or(maximum, |live| {
        let count = words(&parameters[offset(graph, live)..]).next().map_or(0, i32::from_le_bytes);
        usize::try_from(count).unwrap_or(0).min(maximum)
    })
}

/// The live part of a result.
#[derive(Clone, Debug, PartialEq)]
pub enum ResultData {
    /// Of an f32 result.
    Floats(Vec<f32>),
    /// Of an i32 result.
    Integers(Vec<i32>),
}

/// The live rows of the result `name` of a run with these parameters.
///
/// # Panics
/// If the graph has no such result.
pub fn result(graph: &Graph, parameters: &[u8], results: &[u8], name: &str) -> ResultData {
    let slot = graph.result(name).unwrap_or_else(|| panic!("no result `{name}`"));
    let value = graph.value(slot.value);
    let elements = live_rows(graph, parameters, slot.value) * value.shape.row_elements() as usize;
    let bytes = &results[slot.offset as usize..slot.offset as usize + elements * 4];
    if value.dtype == DType::I32 {
        ResultData::Integers(words(bytes).map(i32::from_le_bytes).collect())
    } else {
        ResultData::Floats(words(bytes).map(f32::from_le_bytes).collect())
    }
}

/// The live rows of an f32 result.
///
/// # Panics
/// If the graph has no such result, or it is not f32.
pub fn floats(graph: &Graph, parameters: &[u8], results: &[u8], name: &str) -> Vec<f32> {
    match result(graph, parameters, results, name) {
        ResultData::Floats(values) => values,
        ResultData::Integers(_) => panic!("`{name}` is not f32"),
    }
}

/// The live rows of an i32 result.
///
/// # Panics
/// If the graph has no such result, or it is not i32.
pub fn integers(graph: &Graph, parameters: &[u8], results: &[u8], name: &str) -> Vec<i32> {
    match result(graph, parameters, results, name) {
        ResultData::Integers(values) => values,
        ResultData::Floats(_) => panic!("`{name}` is not i32"),
    }
}
