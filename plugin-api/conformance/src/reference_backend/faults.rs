//! Ways to be wrong.

use crate::block::ParameterBlock;
use crate::reference::Program;
use paceline_plugin_api::graph::{Attribute, Graph, Node};

/// One way in which a backend breaks its contract. Tests use them to prove that they notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Norms leave out eps.
    NormWithoutEps,
    /// Attention lets rows see what comes after them.
    AttentionSeesTheFuture,
    /// Attention sees one position too few at the far end of its window.
    WindowOffByOne,
    /// Rope pairs the wrong elements.
    RopePairsAdjacent,
    /// Rope ignores what divides its positions.
    RopeWithoutDivisor,
    /// Rope ignores its factors.
    RopeWithoutFactors,
    /// The scale of the delta rule is left out.
    DeltaWithoutScale,
    /// Activations ignore their softcap.
    NoSoftcap,
    /// A slice begins at 0.
    SliceFromZero,
    /// The lowest bit of the first result differs in runs of several rows.
    RowsDependOnCompany,
    /// The lowest bit of the first result differs in every second launch.
    Unsteady,
    /// A sequence that starts continues what the slot of its state held.
    KeepsStaleState,
    /// A negative cell is taken for cell 0.
    NegativeCellsAreZero,
    /// A state is read from its first plane and written from there on.
    ForgetsPlanes,
    /// Records always go to the second bank.
    ForgetsBanks,
    /// One kept record too few is replayed.
    ReplaysTooFew,
    /// A slot that does not exist is taken for slot 0.
    AcceptsAnySlot,
    /// Parameters that are out of range are noticed late and without text.
    LaunchesUnchecked,
    /// Unknown settings are ignored.
    AcceptsAnySetting,
    /// Memory of freed arenas stays counted.
    ForgetsFreedArenas,
    /// Launches are not counted.
    CountsNoLaunches,
    /// A wait ends at once when it has a limit of time.
    WaitsDoNotWait,
    /// A launch begins before the points that it waits for.
    IgnoresWaits,
    /// Two plans of one graph differ.
    PlanVaries,
    /// Any span is taken, however small.
    AcceptsSmallSpans,
}

fn set(node: &mut Node, key: &str, value: Attribute) {
    node.attributes.retain(|(name, _)| name != key);
    node.attributes.push((key.into(), value));
}

fn without_negative_cells(graph: &Graph, parameters: &[u8]) -> Vec<u8> {
    let mut block = ParameterBlock::from_bytes(graph, parameters);
    for name in ["cells", "wanted"].into_iter().filter(|name| graph.parameter(name).is_some()) {
        let cells: Vec<i32> = block.integers(name).into_iter().map(|cell| cell.max(0)).collect();
        block.set_integers(name, &cells);
    }
    block.into_bytes()
}

fn with_rollbacks(graph: &Graph, parameters: Vec<u8>, change: impl Fn(&mut [i32])) -> Vec<u8> {
    let Some(id) = graph.parameter("rollback") else { return parameters };
    let mut block = ParameterBlock::from_bytes(graph, &parameters);
    let mut rollbacks = block.integers("rollback");
    let live = block.live_rows(id) * 3;
    rollbacks[..live].chunks_exact_mut(3).for_each(change);
    block.set_integers("rollback", &rollbacks);
    block.into_bytes()
}

impl Fault {
    /// The program with nodes that compute something else.
    pub(super) fn change(self, program: Program) -> Program {
        program.with_nodes_changed(|node| self.change_node(node))
    }

    fn change_node(self, node: &mut Node) {
        match (self, node.operation.as_str()) {
            (Self::NormWithoutEps, "rms_norm" | "l2_norm") => set(node, "eps", Attribute::Float(0.0)),
            (Self::AttentionSeesTheFuture, "attention") => set(node, "causal", Attribute::Integer(0)),
            (Self::WindowOffByOne, "attention") => {
                if let Some(Attribute::Integer(window)) = node.attribute("window").cloned() {
                    set(node, "window", Attribute::Integer((window - 1).max(1)));
                }
            }
            (Self::RopePairsAdjacent, "rope") => set(node, "pairing", Attribute::Text("adjacent".into())),
            (Self::RopeWithoutDivisor, "rope") => set(node, "divisor", Attribute::Float(1.0)),
            (Self::RopeWithoutFactors, "rope") => set(node, "factors", Attribute::Integer(0)),
            (Self::DeltaWithoutScale, "gated_delta_net") => set(node, "scale", Attribute::Float(1.0)),
            (Self::NoSoftcap, "activation" | "attention") => set(node, "softcap", Attribute::Float(0.0)),
            (Self::SliceFromZero, "slice") => set(node, "offset", Attribute::Integer(0)),
            _ => {}
        }
    }

    /// What a launch reads instead of its parameters.
    pub(super) fn change_parameters(self, graph: &Graph, parameters: Vec<u8>) -> Vec<u8> {
        match self {
            Self::NegativeCellsAreZero => return without_negative_cells(graph, &parameters),
            Self::ForgetsPlanes => return with_rollbacks(graph, parameters, |entry| entry[0] = 0),
            Self::ForgetsBanks => return with_rollbacks(graph, parameters, |entry| entry[1] = 0),
            Self::ReplaysTooFew => {
                return with_rollbacks(graph, parameters, |entry| entry[2] = (entry[2] - 1).max(0));
            }
            _ => {}
        }
        let Some(id) = graph.parameter("sequences").filter(|_| self == Self::KeepsStaleState) else {
            return parameters;
        };
        let is_attention = graph.nodes().iter().any(|node| node.operation == "attention");
        if is_attention {
            return parameters;
        }
        let mut block = ParameterBlock::from_bytes(graph, &parameters);
        let mut sequences = block.integers("sequences");
        let live = block.live_rows(id) * 4;
        for sequence in sequences[..live].chunks_exact_mut(4) {
            sequence[2] = sequence[2].max(1);
        }
        block.set_integers("sequences", &sequences);
        block.into_bytes()
    }

    /// What a launch writes instead of its results. `launch` counts the launches of the executable.
    pub(super) fn change_results(self, graph: &Graph, parameters: &[u8], launch: u64, results: &mut [u8]) {
        let live =
            |block: &ParameterBlock<'_>| graph.results().iter().map(|r| block.live_rows(r.value)).max();
        let block = ParameterBlock::from_bytes(graph, parameters);
        let is_wrong = match self {
            Self::RowsDependOnCompany => live(&block).is_some_and(|rows| rows > 1),
            Self::Unsteady => launch % 2 == 1,
            _ => false,
        };
        if let Some(byte) = results.first_mut().filter(|_| is_wrong) {
            *byte ^= 1;
        }
    }
}
