//! Small graphs for the cases of the contract.

use crate::block::ParameterBlock;
use crate::random::Random;
use crate::suite::samples::{ROWS, Rows};
use paceline_plugin_api::graph::{DType, Graph, StateKind};

/// Width of the rows of [`layer`].
pub const WIDTH: u32 = 64;
/// Slots of the state of [`recurrent`].
pub const SLOTS: u32 = 3;

/// Norm, product and sum: `out` = x + W norm(x), with weights `norm` and `w`.
pub fn layer(max_rows: u32) -> Graph {
    let mut g = Rows::new(max_rows);
    let x = g.floats("x", &[WIDTH]);
    let norm = g.builder.weight("norm", DType::F32, &[WIDTH]);
    let w = g.builder.weight("w", DType::F32, &[WIDTH, WIDTH]);
    let normed = g.builder.rms_norm(x, norm, 1e-6);
    let product = g.builder.linear(normed, w);
    let out = g.builder.add(x, product);
    g.out(out);
    g.builder.finish()
}

/// Parameters of [`layer`] with rows that follow from `content`.
pub fn layer_parameters(graph: &Graph, rows: u32, content: u64) -> Vec<u8> {
    let mut block = ParameterBlock::new(graph);
    block.set_integers(ROWS, &[rows as i32]);
    block.set_floats("x", 0, &Random::new(content).floats((rows * WIDTH) as usize, 1.0));
    block.into_bytes()
}

/// A convolution with the state `window` of three slots.
pub fn recurrent(max_rows: u32) -> Graph {
    let mut g = Rows::new(max_rows);
    let (x, sequences) = (g.floats("x", &[WIDTH]), g.sequences());
    let w = g.builder.weight("taps", DType::F32, &[WIDTH, 3]);
    let state = g.builder.state("window", StateKind::PerSlot, DType::F32, &[SLOTS, 2, WIDTH]);
    let out = g.builder.conv_causal_silu(x, w, state, sequences);
    g.out(out);
    g.builder.finish()
}

/// Parameters of [`recurrent`]: one sequence that has all rows, given as (first, rows, length before, slot).
pub fn recurrent_parameters(graph: &Graph, rows: u32, sequence: [i32; 4], content: u64) -> Vec<u8> {
    let mut block = ParameterBlock::new(graph);
    block.set_integers(ROWS, &[rows as i32]);
    block.set_integers("sequence_count", &[1]).set_integers("sequences", &sequence);
    block.set_floats("x", 0, &Random::new(content).floats((rows * WIDTH) as usize, 1.0));
    block.into_bytes()
}

/// The bytes of a graph with one occurrence of a text replaced by another of the same length.
pub fn renamed(graph: &Graph, from: &str, to: &str) -> Option<Graph> {
    let mut bytes = graph.to_bytes();
    let at = bytes.windows(from.len()).position(|window| window == from.as_bytes())?;
    bytes[at..at + from.len()].copy_from_slice(to.as_bytes());
    Graph::from_bytes(&bytes).ok()
}

/// The graph with another version of its first node's operation.
pub fn with_version(graph: &Graph, version: u32) -> Option<Graph> {
    const HEADER_WORDS: usize = 8;
    const VALUE_WORDS: usize = 12;
    // The third word of a node's record.
    let at = (HEADER_WORDS + VALUE_WORDS * graph.values().len() + 2) * 4;
    let mut bytes = graph.to_bytes();
    bytes[at..at + 4].copy_from_slice(&version.to_le_bytes());
    Graph::from_bytes(&bytes).ok()
}
