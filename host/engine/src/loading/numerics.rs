//! Which graphs of a context give a row the same bits.
//!
//! A backend may compute runs of many rows, prompts, in another way than decoding and verification, which must be equal. Up
//! to how many rows a row's bits do not depend on its company is its row invariance; graphs for more rows are a class of
//! their own.

use crate::error::Result;
use crate::model::Model;
use paceline_plugin_api::backend::{NodePlan, PlanSummary};
use paceline_plugin_api::graph::Graph;

/// The least row invariance of all nodes of the plans.
pub(super) fn row_invariance<'a>(plans: impl Iterator<Item = &'a PlanSummary>) -> u32 {
    let of_node = |node: &NodePlan| match node {
        NodePlan::Kernel { row_invariance, .. } => *row_invariance,
        NodePlan::Refused { .. } => 0,
    };
    plans.flat_map(|plan| &plan.nodes).map(of_node).min().unwrap_or(0)
}

/// Checks that graphs of the same step, given with their rows, promise the same bits: those of no more rows than the row
/// invariance, and all others, each among themselves.
///
/// # Errors
/// The first node that differs.
pub(super) fn check(model: &Model, target: &[(u32, &Graph, &PlanSummary)]) -> Result<()> {
    let invariance = row_invariance(target.iter().map(|(_, _, plan)| *plan));
    type Class<'a> = Vec<(u32, &'a Graph, &'a PlanSummary)>;
    let (narrow, wide): (Class<'_>, Class<'_>) =
        target.iter().partition(|(rows, _, _)| *rows <= invariance.max(1));
    for class in [narrow, wide] {
        let Some((first, others)) = class.split_first() else { continue };
        for other in others {
            if let Some((index, operation)) = difference((first.1, first.2), (other.1, other.2)) {
                return Err(model.fault(format!(
                    "node {index} ({operation}) would give other bits in another graph of the same step"
                )));
            }
        }
    }
    Ok(())
}

/// The first node whose numerics id differs from that of the corresponding one. Nodes correspond by their order, as far as
/// both graphs go.
fn difference<'a>(
    first: (&Graph, &PlanSummary),
    other: (&'a Graph, &PlanSummary),
) -> Option<(usize, &'a str)> {
    let nodes = first.0.nodes().iter().zip(&first.1.nodes).zip(other.0.nodes().iter().zip(&other.1.nodes));
    nodes.enumerate().find_map(|(index, ((a, a_plan), (b, b_plan)))| match (a_plan, b_plan) {
        (NodePlan::Kernel { numerics: x, .. }, NodePlan::Kernel { numerics: y, .. })
            if a.operation == b.operation && x != y =>
        {
            Some((index, b.operation.as_str()))
        }
        _ => None,
    })
}
