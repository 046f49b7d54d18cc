//! The graphs of a context: which there are, and building them.

use crate::error::{EngineError, Result};
use crate::model::Model;
use crate::step::{ContextShape, ParameterOffsets, StepInputs};
use paceline_plugin_api::backend::{NodePlan, PlanSummary};
use paceline_plugin_api::graph::{Builder, Graph};

/// Row counts that have a graph of their own, up to the microbatch.
const ROW_COUNTS: [u32; 14] = [1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32, 48, 64];

/// What a run gives back for the rows whose outputs are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Want {
    /// The id of the largest logit, found on the device.
    Ids,
    /// All logits.
    Logits,
}

/// One graph of the context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ProgramKey {
    pub rows: u32,
    pub outputs: u32,
    pub want: Want,
}

/// The graphs of a context of at most `microbatch` rows and `outputs` outputs a run.
pub(crate) fn keys(microbatch: u32, outputs: u32) -> Vec<ProgramKey> {
    let rows = ROW_COUNTS.into_iter().filter(|&rows| rows < microbatch).chain([microbatch]);
    rows.flat_map(|rows| {
        [Want::Ids, Want::Logits].map(|want| ProgramKey { rows, outputs: rows.min(outputs), want })
    })
    .collect()
}

/// A built graph with the places that the engine writes and reads.
pub(crate) struct ProgramGraph {
    pub graph: Graph,
    pub parameters: ParameterOffsets,
    pub output: usize,
    pub embed_faults: usize,
    pub output_faults: Option<usize>,
}

/// Builds one graph.
pub(crate) fn build(model: &Model, context: &ContextShape, key: ProgramKey) -> Result<ProgramGraph> {
    let family = model.family();
    let mut b = Builder::new();
    let step = StepInputs::declare(&mut b, context, key.rows, key.outputs);
    let (x, faults) = family.embed(&mut b, step.ids);
    b.result("embed_faults", faults);
    let x = family.trunk(&mut b, &step, x);
    let x = b.select_rows(x, step.output_rows);
    let hidden = family.final_norm(&mut b, x);
    let logits = family.head(&mut b, hidden);
    match key.want {
        Want::Logits => b.result("output", logits),
        Want::Ids => {
            let (ids, faults) = b.argmax(logits);
            b.result("output", ids);
            b.result("output_faults", faults);
        }
    }
    let graph = b.finish();
    let offset = |name: &str| graph.result(name).map(|r| r.offset as usize);
    let (Some(parameters), Some(output), Some(embed_faults)) =
        (ParameterOffsets::of(&graph), offset("output"), offset("embed_faults"))
    else {
        return Err(EngineError::Request("a step's graph lacks its own inputs and results".into()));
    };
    let output_faults = offset("output_faults");
    Ok(ProgramGraph { parameters, output, embed_faults, output_faults, graph })
}

/// Checks that plans of the same step promise the same bits: corresponding nodes of graphs that differ in rows or in
/// what they give back have equal numerics ids. Nodes correspond by their order, as far as both graphs go.
///
/// # Errors
/// The first node that differs.
pub(crate) fn check_numerics(
    model: &Model,
    first: (&Graph, &PlanSummary),
    other: (&Graph, &PlanSummary),
) -> Result<()> {
    let nodes = first.0.nodes().iter().zip(&first.1.nodes).zip(other.0.nodes().iter().zip(&other.1.nodes));
    for (index, ((a, a_plan), (b, b_plan))) in nodes.enumerate() {
        if a.operation != b.operation {
            continue;
        }
        if let (NodePlan::Kernel { numerics: x, .. }, NodePlan::Kernel { numerics: y, .. }) = (a_plan, b_plan)
            && x != y
        {
            return Err(model.fault(format!(
                "node {index} ({}) would give other bits in another graph of the same step",
                a.operation
            )));
        }
    }
    Ok(())
}
