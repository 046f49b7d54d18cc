//! The graph of one step, as data.
//!
//! A [`Graph`] is a list of values and a list of nodes in the order in which they run. A value is a weight, a
//! state (persistent, mutable), a parameter (written by the host for each run) or the result of a node. A node is
//! an operation by name and version ([`ops`]), attributes, inputs and outputs. Graphs are made with a [`Builder`]
//! and cross the ABI as canonical bytes ([`Graph::to_bytes`]): equal graphs have equal bytes.

mod builder;
mod bytes;
mod c_table;
pub mod fragment;
pub mod noise;
pub mod ops;
pub mod step;
mod types;
mod vendor;

pub use builder::{Builder, Rotation, Routing};
pub use c_table::GRAPH_TABLE;
pub use types::{DType, Shape};
pub use vendor::vendor_operation;

use std::fmt;

/// Index of a value in [`Graph::values`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ValueId(pub u32);

impl ValueId {
    /// The index as `usize`.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// How a state is addressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StateKind {
    /// By position, through a block table: `[blocks, 256, ...]`.
    PerPosition,
    /// By sequence slot: `[slots, ...]`.
    PerSlot,
    /// By position modulo a capacity.
    Ring,
    /// Without meaning between runs.
    Scratch,
    /// A table of indices that the host maintains: i32 `[slots, entries]`.
    Table,
}

/// Where a value lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ValueKind {
    /// Imported once, opaque to the host.
    Weight,
    /// Persistent and mutable.
    State(StateKind),
    /// In the parameter block, at this byte offset.
    Parameter {
        /// Byte offset in the parameter block.
        offset: u32,
    },
    /// Made by a node.
    Node,
}

/// One value.
#[derive(Clone, Debug, PartialEq)]
pub struct Value {
    /// Where it lives.
    pub kind: ValueKind,
    /// Data type of its elements.
    pub dtype: DType,
    /// Dimensions, outermost first.
    pub shape: Shape,
    /// The parameter, i32\[1\], that holds how many entries of axis 0 are live in a run.
    pub live: Option<ValueId>,
    /// Name: the tensor of a weight, the name of a state or parameter, empty for results of nodes.
    pub name: String,
}

/// Value of an attribute.
#[derive(Clone, Debug, PartialEq)]
pub enum Attribute {
    /// An integer.
    Integer(i64),
    /// A number.
    Float(f64),
    /// A word.
    Text(String),
    /// A list of integers.
    Integers(Vec<i64>),
}

/// One operation of the graph.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Name of the operation.
    pub operation: String,
    /// Version of the operation.
    pub version: u32,
    /// Attributes in ascending order of their keys; those at their default are left out.
    pub attributes: Vec<(String, Attribute)>,
    /// Inputs in the order that the operation defines.
    pub inputs: Vec<ValueId>,
    /// Outputs in the order that the operation defines.
    pub outputs: Vec<ValueId>,
}

/// A node's output that appears in the result block.
#[derive(Clone, Debug, PartialEq)]
pub struct ResultSlot {
    /// Name by which the host finds it.
    pub name: String,
    /// The value.
    pub value: ValueId,
    /// Byte offset in the result block.
    pub offset: u32,
}

/// A whole graph. See the module's documentation.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Graph {
    values: Vec<Value>,
    nodes: Vec<Node>,
    results: Vec<ResultSlot>,
}

/// Why bytes are not a graph, or a graph breaks its rules.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GraphError {
    /// The bytes do not have the form of a graph.
    #[error("graph bytes are malformed at offset {offset}: {what}")]
    Malformed {
        /// Byte offset.
        offset: usize,
        /// What is wrong there.
        what: String,
    },
    /// A node breaks the rules of its operation.
    #[error("node {node} ({operation}/{version}): {what}")]
    Node {
        /// Index of the node.
        node: usize,
        /// Name of its operation.
        operation: String,
        /// Version of its operation.
        version: u32,
        /// What is wrong.
        what: String,
    },
    /// A value breaks the rules.
    #[error("value {value}: {what}")]
    Value {
        /// Index of the value.
        value: usize,
        /// What is wrong.
        what: String,
    },
}

impl Graph {
    /// All values, in the order of their ids.
    pub fn values(&self) -> &[Value] {
        &self.values
    }

    /// All nodes, in the order in which they run.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The results, in ascending order of their offsets.
    pub fn results(&self) -> &[ResultSlot] {
        &self.results
    }

    /// The value with this id.
    pub fn value(&self, id: ValueId) -> &Value {
        &self.values[id.index()]
    }

    /// Ids of the weights, in the order in which layouts and spans are given for them.
    pub fn weights(&self) -> impl Iterator<Item = ValueId> + '_ {
        self.ids(|kind| matches!(kind, ValueKind::Weight))
    }

    /// Ids of the states, in the order in which spans are given for them.
    pub fn states(&self) -> impl Iterator<Item = ValueId> + '_ {
        self.ids(|kind| matches!(kind, ValueKind::State(_)))
    }

    /// Ids of the parameters.
    pub fn parameters(&self) -> impl Iterator<Item = ValueId> + '_ {
        self.ids(|kind| matches!(kind, ValueKind::Parameter { .. }))
    }

    fn ids<'a>(&'a self, want: impl Fn(ValueKind) -> bool + 'a) -> impl Iterator<Item = ValueId> + 'a {
        (0u32..).map(ValueId).zip(&self.values).filter(move |(_, v)| want(v.kind)).map(|(id, _)| id)
    }

    /// Finds a parameter by name.
    pub fn parameter(&self, name: &str) -> Option<ValueId> {
        self.parameters().find(|&id| self.value(id).name == name)
    }

    /// Finds a result by name.
    pub fn result(&self, name: &str) -> Option<&ResultSlot> {
        self.results.iter().find(|r| r.name == name)
    }

    /// Bytes of one parameter block.
    pub fn parameter_bytes(&self) -> u64 {
        self.parameters().map(|id| self.parameter_end(id)).max().unwrap_or(0)
    }

    fn parameter_end(&self, id: ValueId) -> u64 {
        let value = self.value(id);
        match value.kind {
            ValueKind::Parameter { offset } => u64::from(offset) + value.bytes().unwrap_or(0),
            _ => 0,
        }
    }

    /// Bytes of one result block.
    pub fn result_bytes(&self) -> u64 {
        self.results
            .iter()
            .map(|r| u64::from(r.offset) + self.value(r.value).bytes().unwrap_or(0))
            .max()
            .unwrap_or(0)
    }

    /// Checks everything that a backend may rely on: values before use, offsets that do not overlap, every known
    /// operation's inputs, attributes and shapes. Operations that are not known here are checked in form only.
    ///
    /// # Errors
    /// The first rule that is broken.
    pub fn validate(&self) -> Result<(), GraphError> {
        self.validate_values()?;
        let mut made = vec![false; self.values.len()];
        for (index, node) in self.nodes.iter().enumerate() {
            let fault = |what: String| GraphError::Node {
                node: index,
                operation: node.operation.clone(),
                version: node.version,
                what,
            };
            for &input in &node.inputs {
                let value = self.values.get(input.index()).ok_or_else(|| fault("unknown input".into()))?;
                if value.kind == ValueKind::Node && !made[input.index()] {
                    return Err(fault(format!("input {} is used before it is made", input.0)));
                }
            }
            for &output in &node.outputs {
                match self.values.get(output.index()) {
                    Some(value) if value.kind == ValueKind::Node && !made[output.index()] => {
                        made[output.index()] = true;
                    }
                    _ => return Err(fault(format!("output {} cannot be made here", output.0))),
                }
            }
            if node.attributes.windows(2).any(|pair| pair[0].0 >= pair[1].0) {
                return Err(fault("attributes are not in ascending order".into()));
            }
            ops::check(self, node).map_err(fault)?;
        }
        if let Some(value) = (0..made.len()).find(|&i| self.values[i].kind == ValueKind::Node && !made[i]) {
            return Err(GraphError::Value { value, what: "no node makes it".into() });
        }
        self.validate_results(&made)
    }

    fn validate_values(&self) -> Result<(), GraphError> {
        let mut end = 0;
        for (index, value) in self.values.iter().enumerate() {
            let fault = |what: &str| GraphError::Value { value: index, what: what.into() };
            if value.shape.dims().contains(&0) {
                return Err(fault("a dimension is 0"));
            }
            let bytes = value.bytes();
            if bytes.is_none_or(|b| b > isize::MAX as u64) && value.dtype.is_known() {
                return Err(fault("its size does not fit its type or this machine"));
            }
            if let Some(live) = value.live {
                let is_count = self.values.get(live.index()).is_some_and(|count| {
                    matches!(count.kind, ValueKind::Parameter { .. })
                        && count.dtype == DType::I32
                        && count.shape.dims() == [1]
                });
                if !is_count || value.shape.rank() == 0 {
                    return Err(fault("its live count is not an i32[1] parameter"));
                }
            }
            if let ValueKind::Parameter { offset } = value.kind {
                if u64::from(offset) < end || !offset.is_multiple_of(4) || !value.dtype.is_plain() {
                    return Err(fault("its place in the parameter block overlaps or is not aligned"));
                }
                end = u64::from(offset) + bytes.unwrap_or(0);
            }
        }
        Ok(())
    }

    fn validate_results(&self, made: &[bool]) -> Result<(), GraphError> {
        let mut end = 0;
        for result in &self.results {
            let index = result.value.index();
            let fault = |what: &str| GraphError::Value { value: index, what: what.into() };
            if !made.get(index).copied().unwrap_or(false) {
                return Err(fault("a result is not made by any node"));
            }
            if u64::from(result.offset) < end || !result.offset.is_multiple_of(4) {
                return Err(fault("its place in the result block overlaps or is not aligned"));
            }
            end = u64::from(result.offset) + self.values[index].bytes().unwrap_or(0);
        }
        Ok(())
    }
}

impl Value {
    /// Bytes of the value in canonical form, `None` if the type is not known or a row is not whole blocks.
    pub fn bytes(&self) -> Option<u64> {
        self.dtype.bytes(&self.shape)
    }
}

impl Node {
    /// An attribute by name, if it is not at its default.
    pub fn attribute(&self, key: &str) -> Option<&Attribute> {
        self.attributes.iter().find(|(name, _)| name == key).map(|(_, value)| value)
    }
}

impl fmt::Display for ValueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "%{}", self.0)
    }
}
