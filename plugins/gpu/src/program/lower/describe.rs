//! What a plan says about a node that has a kernel.

use super::Target;
use super::products::{LINEAR_BF16, LINEAR_INT8, MOST_INT8_ROWS};
use paceline_plugin_api::backend::{NodePlan, UNLIMITED_ROWS};
use paceline_plugin_api::graph::{Graph, Node, StateKind, Value, ValueKind};
use paceline_plugin_api::support::Numerics;

/// Names the arithmetic of all kernels; changes when any kernel's bits change.
const NUMERICS_FAMILY: &str = "gpu kernels 2";

/// The bits of a row depend on the row alone: neither on how many rows a run has, nor on which of a kernel's forms
/// runs, nor on what is fused with it. So plans for any number of rows have the same numerics, with one exception: where
/// products of many rows are in bf16, these are a class of their own, in which again a row's bits depend on the row alone.
pub(super) fn describe(graph: &Graph, node: &Node, kernel: &str, target: Target<'_>) -> NodePlan {
    let mut numerics = Numerics::new(NUMERICS_FAMILY);
    // Matrix units of other devices may add in another order.
    numerics.text(target.name);
    numerics.text(&node.operation);
    // Which form runs is decided by the types and widths of the caches.
    if node.operation == "attention" || kernel == LINEAR_BF16 {
        numerics.text(kernel);
    }
    numerics.attributes(node);
    let (mut bytes_read, mut operations) = (0, 0);
    for &id in &node.inputs {
        let value = graph.value(id);
        match value.kind {
            ValueKind::Weight => {
                numerics.text(&value.dtype.to_string());
                let rows = graph.value(node.inputs[0]).shape.first();
                let (bytes, elements) = (value.bytes().unwrap_or(0), value.shape.elements().unwrap_or(0));
                let (read, used) = expert_share(graph, node, value).unwrap_or((1.0, f64::from(rows)));
                bytes_read += (bytes as f64 * read) as u64;
                operations += (elements as f64 * used) as u64;
            }
            ValueKind::State(StateKind::PerPosition) => {
                numerics.text(&value.dtype.to_string());
                bytes_read += value.bytes().unwrap_or(0);
            }
            // The number of columns decides how many blocks a chunk of attention has.
            ValueKind::State(StateKind::Table) if node.operation == "attention" => {
                numerics.text(&value.shape.last().to_string());
            }
            // Only written.
            ValueKind::State(_) if node.operation == "rows_store" => {}
            ValueKind::State(_) => bytes_read += value.bytes().unwrap_or(0),
            _ => {}
        }
    }
    if matches!(node.operation.as_str(), "embed" | "rows_load") {
        let output = graph.value(node.outputs[0]).shape;
        (bytes_read, operations) = (output.row_elements() * 4 * u64::from(output.first()), 0);
    }
    NodePlan::Kernel {
        kernel: kernel.to_owned(),
        row_invariance: match kernel {
            LINEAR_INT8 if target.has_bf16 => MOST_INT8_ROWS,
            _ => UNLIMITED_ROWS,
        },
        numerics: numerics.id(),
        bytes_read,
        operations,
    }
}

/// Of a weight of `experts/1`: the part that a run of all rows reads at most, and the rows that each part sees on average.
fn expert_share(graph: &Graph, node: &Node, weight: &Value) -> Option<(f64, f64)> {
    let ids = *node.inputs.get(4).filter(|_| node.operation == "experts")?;
    let assignments = graph.value(ids).shape.elements()? as f64 / f64::from(weight.shape.first());
    Some((assignments.min(1.0), assignments))
}
