//! The reference executor: every operation in the plainest way there is.
//!
//! Values are f32 between operations; sums, exponentials and the like are computed in f64 and rounded once, so the
//! result is near the exact one and any backend can be compared with it under a tolerance. Weights are read exactly
//! and multiplied with f32 activations: nothing is quantised on the way. States are kept in canonical form, row-major
//! elements of the declared type, and what is stored in a KV cache is rounded to its type and read back from there.
//!
//! Parameters come from outside and are checked: a live count, cell, slot or row that is out of range is an error.
//! Entries beyond a live count may hold anything. In results they are zero here and unspecified elsewhere.

mod cache;
mod choice;
mod elementwise;
mod experts;
mod norms;
mod parameters;
mod products;
mod program;
mod recurrent;
mod rotary;
mod run;
mod special;
mod views;

pub use program::Program;
pub(crate) use program::node_refusal;

use crate::quant::QuantError;
use paceline_plugin_api::graph::{Graph, GraphError};

/// Why a graph cannot be executed, or a run failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReferenceError {
    /// The graph breaks its rules.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// A node that the executor does not know or whose form it cannot compute.
    #[error("node {node} ({operation}/{version}) cannot be computed: {what}")]
    Unsupported {
        /// Index of the node.
        node: usize,
        /// Name of its operation.
        operation: String,
        /// Version of its operation.
        version: u32,
        /// Why not.
        what: String,
    },
    /// A weight or state whose type or bytes do not fit.
    #[error("`{name}`: {what}")]
    Memory {
        /// Its name.
        name: String,
        /// What is wrong.
        what: String,
    },
    /// Weights or states of another number than the graph has, or a parameter block of another length.
    #[error("{what}: {given} were given, the graph has {needed}")]
    Count {
        /// What is counted.
        what: &'static str,
        /// How many there are.
        given: usize,
        /// How many there must be.
        needed: usize,
    },
    /// A live count that is negative or above its maximum.
    #[error("parameter `{name}` is {value}, outside of 0..={maximum}")]
    LiveCount {
        /// Name of the parameter.
        name: String,
        /// Its value.
        value: i32,
        /// The largest that it may be.
        maximum: u32,
    },
    /// A node met an index that is out of range.
    #[error("node {node} ({operation}): {what}")]
    Index {
        /// Index of the node.
        node: usize,
        /// Name of its operation.
        operation: String,
        /// What is out of range.
        what: String,
    },
}

impl From<QuantError> for ReferenceError {
    fn from(error: QuantError) -> Self {
        Self::Memory { name: "block data".into(), what: error.to_string() }
    }
}

/// A graph with its weights and states, ready to run.
///
/// After an error of a run, what the states hold is unspecified.
#[derive(Clone)]
pub struct ReferenceExecutor {
    program: Program,
    weights: Vec<Vec<u8>>,
    states: Vec<Vec<u8>>,
}

impl ReferenceExecutor {
    /// An executor with states of zeros. `weights` are canonical bytes, in the order of [`Graph::weights`].
    ///
    /// # Errors
    /// A graph that is malformed or has an operation or type that is not known here; weights that do not fit it.
    pub fn new(graph: &Graph, weights: Vec<Vec<u8>>) -> Result<Self, ReferenceError> {
        Self::of(Program::new(graph)?, weights)
    }

    /// An executor of a program that was made already.
    ///
    /// # Errors
    /// Weights that do not fit the program's graph.
    pub fn of(program: Program, weights: Vec<Vec<u8>>) -> Result<Self, ReferenceError> {
        program.check_weights(&weights)?;
        let states = program.zero_states();
        Ok(Self { program, weights, states })
    }

    /// The graph.
    pub fn graph(&self) -> &Graph {
        self.program.graph()
    }

    /// Runs the graph once on a parameter block and returns the result block.
    ///
    /// # Errors
    /// A block of another length than [`Graph::parameter_bytes`], or an index in it that is out of range.
    pub fn run(&mut self, parameters: &[u8]) -> Result<Vec<u8>, ReferenceError> {
        let weights: Vec<&[u8]> = self.weights.iter().map(Vec::as_slice).collect();
        self.program.run(&weights, &mut self.states, parameters)
    }

    /// Canonical bytes of a state, by its index among [`Graph::states`].
    ///
    /// # Panics
    /// If there is no such state.
    pub fn state(&self, index: usize) -> &[u8] {
        &self.states[index]
    }

    /// Number of states.
    pub fn state_count(&self) -> usize {
        self.states.len()
    }

    /// Replaces a state by canonical bytes.
    ///
    /// # Errors
    /// No such state, or another length.
    pub fn set_state(&mut self, index: usize, bytes: &[u8]) -> Result<(), ReferenceError> {
        let needed = self.states.get(index).map_or(0, Vec::len);
        if index >= self.states.len() || bytes.len() != needed {
            return Err(ReferenceError::Count { what: "bytes of a state", given: bytes.len(), needed });
        }
        self.states[index].copy_from_slice(bytes);
        Ok(())
    }
}
