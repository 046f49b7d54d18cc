//! What a strategy's graph may hold: only parameters that the host fills, weights that exist, and of the target's states
//! only what it may read.

use crate::fragments::Check;
use crate::model::Model;
use crate::step::ContextShape;
use crate::weights::WeightSource;
use paceline_gguf::Gguf;
use paceline_plugin_api::graph::step::{Tap, group_prefix, name};
use paceline_plugin_api::graph::{DType, Graph, Node, StateKind, Value, ValueId, ValueKind, fragment};
use paceline_plugin_api::strategy::DRAFT_WEIGHT;

/// Names that a strategy's state has in common with the target's graphs; all others get the plugin's name in front.
pub(crate) fn is_shared(state: &str) -> bool {
    state == name::BLOCKS || state.starts_with(name::TAP)
}

/// Checks a graph that is valid in itself.
///
/// # Errors
/// What it may not do, for the strategy's author.
pub(crate) fn check(
    graph: &Graph,
    model: &Model,
    context: &ContextShape,
    check: &Check<'_>,
) -> Result<(), String> {
    for value in graph.values() {
        match value.kind {
            ValueKind::Weight => check_weight(value, model, check.draft)?,
            ValueKind::State(kind) => check_state(value, kind, model, context, check)?,
            ValueKind::Parameter { .. } => check_parameter(graph, value)?,
            ValueKind::Node => {}
        }
    }
    let mut updates = 0;
    for node in graph.nodes() {
        for (position, &input) in node.inputs.iter().enumerate() {
            check_use(graph, node, position, input)?;
        }
        let is_update = node.operation == "table_update";
        updates += usize::from(is_update && graph.value(node.inputs[0]).name == name::BLOCKS);
    }
    if updates > 1 || (graph.parameter(name::UPDATES).is_some() && updates == 0) {
        return Err(format!(
            "its graph has {updates} nodes that bring `{}` up to date, not one",
            name::BLOCKS
        ));
    }
    Ok(())
}

fn check_weight(value: &Value, model: &Model, draft: Option<&Gguf>) -> Result<(), String> {
    let name = &value.name;
    let (file, own) = match name.strip_prefix(DRAFT_WEIGHT) {
        Some(own) => (draft.ok_or("its graph takes weights of a drafter's file, but none was given")?, own),
        None => (model.gguf().as_ref(), name.as_str()),
    };
    let source = WeightSource::find(file, own)
        .ok_or_else(|| format!("its graph takes the weight `{name}`, which no file has"))?;
    let dims = value.shape.dims().iter().rev().map(|&d| u64::from(d));
    if !dims.eq(source.dims()) || value.dtype.0 != source.tensor.tensor_type.id() {
        return Err(format!(
            "its graph takes `{name}` as {} {}, which the file has not",
            value.dtype, value.shape
        ));
    }
    Ok(())
}

fn check_state(
    value: &Value,
    kind: StateKind,
    model: &Model,
    context: &ContextShape,
    check: &Check<'_>,
) -> Result<(), String> {
    let state = value.name.as_str();
    if state == name::BLOCKS || state == name::RING_BLOCKS {
        let expected = [context.sequences, context.blocks_per_sequence];
        if kind != StateKind::Table || value.shape.dims() != expected {
            return Err(format!("its state `{state}` must be a table of {expected:?}"));
        }
    }
    if state.starts_with(name::TAP) {
        let expected = [context.staged_entries(), model.shape().hidden];
        let is_declared = check.taps.iter().any(|tap: &Tap| tap.state_name() == state);
        if !is_declared {
            return Err(format!("its graph reads `{state}`, a tap that it did not declare"));
        }
        if kind != StateKind::Ring || value.dtype != DType::F32 || value.shape.dims() != expected {
            return Err(format!("its state `{state}` must be a ring of f32 {expected:?}"));
        }
    }
    Ok(())
}

/// Every parameter is one that the host fills, and of the size that the host fills.
fn check_parameter(graph: &Graph, value: &Value) -> Result<(), String> {
    let parameter = value.name.as_str();
    let fault =
        |what: &str| Err(format!("its parameter `{parameter}` {} {}: {what}", value.dtype, value.shape));
    let dims = value.shape.dims();
    if value.dtype != DType::I32 {
        return fault("the host fills i32 only");
    }
    let count_of = |name: &str| value.live.is_none_or(|live| graph.value(live).name == name);
    if parameter == name::UPDATE_COUNT {
        return if dims == [1] { Ok(()) } else { fault("it must be [1]") };
    }
    if parameter == name::UPDATES {
        let fits = matches!(dims, [_, 3]) && value.live.is_some() && count_of(name::UPDATE_COUNT);
        return if fits { Ok(()) } else { fault("it must be [most, 3] with the live count `update_count`") };
    }
    let Some((group, part)) = parameter.split_once('.').filter(|(group, _)| is_group(group)) else {
        return fault("the host fills no parameter of this name");
    };
    let rows =
        graph.parameter(&format!("{group}.{}", name::IDS)).map_or(0, |ids| graph.value(ids).shape.first());
    let fits = match part {
        name::ROW_COUNT | name::SEQUENCE_COUNT | name::LAST_ROW => dims == [1],
        name::SEQUENCES => dims == [1, 4] && count_of(&format!("{group}.{}", name::SEQUENCE_COUNT)),
        name::IDS
        | name::POSITIONS
        | name::CELLS
        | name::STAGED
        | name::STAGED_PREVIOUS
        | name::RING_CELLS => dims == [rows] && count_of(&format!("{group}.{}", name::ROW_COUNT)),
        name::NOISE => dims == [rows, 4] && count_of(&format!("{group}.{}", name::ROW_COUNT)),
        name::NOISE_NEXT => dims == [1, 4],
        _ => return fault("the host fills no parameter of this name"),
    };
    if fits { Ok(()) } else { fault(&format!("it does not fit a group of {rows} rows")) }
}

/// True for `g0`, `g1` and so on.
fn is_group(text: &str) -> bool {
    let number = text.strip_prefix('g').and_then(|number| number.parse::<usize>().ok());
    number.is_some_and(|number| group_prefix(number).strip_suffix('.') == Some(text))
}

/// Of the target's states, block tables are read by attention and brought up to date as the host says; taps are read.
fn check_use(graph: &Graph, node: &Node, position: usize, input: ValueId) -> Result<(), String> {
    let value = graph.value(input);
    if !matches!(value.kind, ValueKind::State(_)) || !is_shared(&value.name) {
        return Ok(());
    }
    let allowed = match (value.name.as_str(), node.operation.as_str()) {
        (name::BLOCKS, fragment::OPERATION) => true,
        (name::BLOCKS, "attention") => position == 3,
        (name::BLOCKS, "table_update") => {
            node.inputs.get(1).is_some_and(|&updates| graph.value(updates).name == name::UPDATES)
        }
        (name::BLOCKS, _) => false,
        (_, operation) => operation == "rows_load",
    };
    if allowed {
        return Ok(());
    }
    Err(format!("its graph uses the target's state `{}` in {}, which it may not", value.name, node.operation))
}
