//! A graph made ready: checked once, run on any weights and states.

use super::run::Run;
use super::{
    ReferenceError, cache, choice, elementwise, experts, norms, parameters, products, recurrent, rotary,
    views,
};
use crate::quant;
use paceline_plugin_api::graph::{DType, Graph, Node, StateKind, Value, ValueId, ValueKind};

/// Computes one node. Errors say what is out of range.
pub(super) type Compute = fn(&mut Run<'_>, &Node) -> Result<(), String>;

/// The function of an operation, `None` for one that is not known here.
fn compute(operation: &str, version: u32) -> Option<Compute> {
    if version != 1 {
        return None;
    }
    Some(match operation {
        "embed" => products::embed,
        "linear" => products::linear,
        "rms_norm" => norms::rms_norm,
        "l2_norm" => norms::l2_norm,
        "softmax" => norms::softmax,
        "add" => elementwise::add,
        "mul" => elementwise::mul,
        "scale" => elementwise::scale,
        "activation" => elementwise::activation,
        "glu" => elementwise::glu,
        "reshape" => views::reshape,
        "slice" => views::slice,
        "concat" => views::concat,
        "select_rows" => views::select_rows,
        "lookup" => views::lookup,
        "rope" => rotary::rope,
        "table_update" => cache::table_update,
        "kv_append" => cache::kv_append,
        "attention" => cache::attention,
        "rows_store" => cache::rows_store,
        "rows_load" => cache::rows_load,
        "conv_causal" => recurrent::conv_causal,
        "gated_delta_net" => recurrent::gated_delta_net,
        "gated_delta_net_replay" => recurrent::gated_delta_net_replay,
        "argmax" => choice::argmax,
        "draw" => choice::draw,
        "top_k" => choice::top_k,
        "route" => experts::route,
        "experts" => experts::experts,
        _ => return None,
    })
}

/// Operations that work along the last axis, which must then not be the live one.
const ALONG_LAST_AXIS: [&str; 5] = ["rms_norm", "l2_norm", "softmax", "slice", "concat"];

/// A graph made ready to run.
#[derive(Clone)]
pub struct Program {
    graph: Graph,
    /// The nodes that run: those of the graph, unless a test changed them.
    nodes: Vec<Node>,
    computes: Vec<Compute>,
    /// Index of each weight among the weights and of each state among the states, by value.
    places: Vec<usize>,
}

impl Program {
    /// Checks a graph.
    ///
    /// # Errors
    /// A graph that is malformed, or that has an operation or type that is not known here.
    pub fn new(graph: &Graph) -> Result<Self, ReferenceError> {
        graph.validate()?;
        for id in graph.weights().chain(graph.states()) {
            check_type(graph.value(id))?;
        }
        let computes = graph
            .nodes()
            .iter()
            .enumerate()
            .map(|(index, node)| {
                node_refusal(graph, node)
                    .map_or_else(|| compute(&node.operation, node.version).ok_or_else(String::new), Err)
                    .map_err(|what| ReferenceError::Unsupported {
                        node: index,
                        operation: node.operation.clone(),
                        version: node.version,
                        what,
                    })
            })
            .collect::<Result<_, _>>()?;
        let mut places = vec![0; graph.values().len()];
        for (place, id) in graph.weights().enumerate() {
            places[id.index()] = place;
        }
        for (place, id) in graph.states().enumerate() {
            places[id.index()] = place;
        }
        Ok(Self { graph: graph.clone(), nodes: graph.nodes().to_vec(), computes, places })
    }

    /// The program with changed attributes: a way to make one that computes something else, so that tests can prove
    /// that they would notice.
    #[must_use]
    pub fn with_nodes_changed(mut self, change: impl FnMut(&mut Node)) -> Self {
        self.nodes.iter_mut().for_each(change);
        self
    }

    /// The graph.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// States of zeros, in canonical form.
    pub fn zero_states(&self) -> Vec<Vec<u8>> {
        self.graph.states().map(|id| vec![0; bytes(self.graph.value(id))]).collect()
    }

    /// Checks number and lengths of weights.
    ///
    /// # Errors
    /// The first that does not fit.
    pub fn check_weights(&self, weights: &[impl AsRef<[u8]>]) -> Result<(), ReferenceError> {
        let needed = self.graph.weights().count();
        if weights.len() != needed {
            return Err(ReferenceError::Count { what: "weights", given: weights.len(), needed });
        }
        for (id, weight) in self.graph.weights().zip(weights) {
            let value = self.graph.value(id);
            let (given, needed) = (weight.as_ref().len(), bytes(value));
            if given != needed {
                let what = format!("it has {given} bytes, {} {} has {needed}", value.dtype, value.shape);
                return Err(ReferenceError::Memory { name: value.name.clone(), what });
            }
        }
        Ok(())
    }

    /// Checks everything in a parameter block that can be checked before the run: its length, live counts, cells,
    /// rows and sequences. What a run may still find out of range is made by nodes or stands in tables.
    ///
    /// # Errors
    /// The first thing that is out of range.
    pub fn check_parameters(&self, block: &[u8]) -> Result<(), ReferenceError> {
        parameters::live_counts(&self.graph, block)?;
        let mut states = self.zero_states_of_tables();
        let run = Run::new(&self.graph, &self.places, &[], &mut states, block)?;
        for (index, node) in self.nodes.iter().enumerate() {
            parameters::check_node(&run, node).map_err(|what| index_error(index, node, what))?;
        }
        Ok(())
    }

    /// Room for states that no check reads.
    fn zero_states_of_tables(&self) -> Vec<Vec<u8>> {
        vec![Vec::new(); self.graph.states().count()]
    }

    /// Runs the graph once. Weights and states are canonical bytes in the order of the values.
    ///
    /// # Errors
    /// Memory or parameters that do not fit; an index that is out of range. The states are then unspecified.
    pub fn run(
        &self,
        weights: &[&[u8]],
        states: &mut [Vec<u8>],
        block: &[u8],
    ) -> Result<Vec<u8>, ReferenceError> {
        self.check_weights(weights)?;
        self.check_states(states)?;
        self.check_parameters(block)?;
        let mut run = Run::new(&self.graph, &self.places, weights, states, block)?;
        for (index, (node, compute)) in self.nodes.iter().zip(&self.computes).enumerate() {
            compute(&mut run, node).map_err(|what| index_error(index, node, what))?;
        }
        Ok(run.results())
    }

    fn check_states(&self, states: &[Vec<u8>]) -> Result<(), ReferenceError> {
        let needed = self.graph.states().count();
        if states.len() != needed {
            return Err(ReferenceError::Count { what: "states", given: states.len(), needed });
        }
        for (id, state) in self.graph.states().zip(states) {
            let value = self.graph.value(id);
            let needed = bytes(value);
            if state.len() != needed {
                let what = format!("it has {} bytes, not {needed}", state.len());
                return Err(ReferenceError::Memory { name: value.name.clone(), what });
            }
        }
        Ok(())
    }
}

/// Why a node cannot be computed; `None` if it can.
pub(crate) fn node_refusal(graph: &Graph, node: &Node) -> Option<String> {
    if compute(&node.operation, node.version).is_none() {
        return Some("it is not known here".into());
    }
    let first = node.inputs.first().map(|&id| graph.value(id));
    if ALONG_LAST_AXIS.contains(&node.operation.as_str())
        && first.is_some_and(|x| x.shape.rank() < 2 && x.live.is_some())
    {
        return Some("its last axis is the live one".into());
    }
    let unreadable = |id: &&ValueId| {
        let value = graph.value(**id);
        matches!(value.kind, ValueKind::Weight | ValueKind::State(_)) && check_type(value).is_err()
    };
    node.inputs.iter().find(unreadable).map(|&id| format!("{} cannot be read here", graph.value(id).dtype))
}

fn check_type(value: &Value) -> Result<(), ReferenceError> {
    let readable = match value.kind {
        ValueKind::Weight if value.dtype == DType::I32 => true,
        ValueKind::State(StateKind::Table) => value.dtype == DType::I32,
        _ => quant::is_supported(value.dtype),
    };
    if readable && value.bytes().is_some() {
        return Ok(());
    }
    let what = format!("{} cannot be read here", value.dtype);
    Err(ReferenceError::Memory { name: value.name.clone(), what })
}

fn index_error(node: usize, of: &Node, what: String) -> ReferenceError {
    ReferenceError::Index { node, operation: of.operation.clone(), what }
}

/// Bytes of a value whose type was checked.
fn bytes(value: &Value) -> usize {
    value.bytes().and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(0)
}
