//! What cannot work is refused when it is bound.

use super::toys::{layer, layer_parameters, recurrent};
use super::{Case, check_refused};
use crate::harness::{HarnessError, Placement};
use crate::reference::ReferenceExecutor;
use crate::suite::compare::compare_results;
use crate::suite::samples::random_weights;
use crate::suite::tolerance::of_product;
use crate::suite::{CaseError, Context, wrong};
use paceline_plugin_api::client::LoadSpans;
use paceline_plugin_api::graph::{DType, Graph};

pub const CASES: &[Case] = &[
    ("a weight with too little room", small_weight),
    ("a state with too little room", small_state),
    ("a workspace with too little room", small_workspace),
    ("parameter blocks with too little room", small_parameters),
    ("result blocks with too little room", small_results),
    ("blocks closer than they are long", small_stride),
    ("no slots", no_slots),
    ("a span that reaches beyond its arena", beyond),
    ("fewer weights than the graph has", fewer),
    ("an executable outlives its plan", outlives_plan),
];

fn place(context: &Context<'_>, graph: &Graph) -> Result<Placement, CaseError> {
    let weights = random_weights(graph, context.options.seed, "load");
    Ok(context.bench.place(&[graph], &weights)?)
}

/// Loads with changed spans, which must be refused.
fn check(
    context: &Context<'_>,
    graph: &Graph,
    what: &str,
    change: impl for<'a> FnOnce(&mut LoadSpans<'a>, &'a Placement),
) -> Result<(), CaseError> {
    let placement = place(context, graph)?;
    let loaded = placement.load_with(0, 2, change).map(drop);
    check_refused(what, loaded.map_err(|error| error.to_string()), "")?;
    // A refusal leaves nothing behind.
    placement.load(0, 2).map(drop).map_err(CaseError::from)
}

fn small_weight(context: &Context<'_>) -> Result<(), CaseError> {
    check(context, &layer(4), "a span of half a weight", |spans, placement| {
        spans.weights[1] = placement.part_of_weight("w", 2);
    })
}

fn small_state(context: &Context<'_>) -> Result<(), CaseError> {
    check(context, &recurrent(4), "a span of half a state", |spans, placement| {
        spans.states[0] = placement.part_of_state("window", 2);
    })
}

fn small_workspace(context: &Context<'_>) -> Result<(), CaseError> {
    let graph = layer(4);
    if place(context, &graph)?.plan(0).summary().workspace_bytes == 0 {
        return Ok(());
    }
    check(context, &graph, "a workspace one byte too small", |spans, placement| {
        spans.workspace = placement.workspace_without(1);
    })
}

fn small_parameters(context: &Context<'_>) -> Result<(), CaseError> {
    check(context, &layer(4), "room for one parameter block of two", |spans, _| {
        spans.parameter_stride *= 2;
    })
}

fn small_results(context: &Context<'_>) -> Result<(), CaseError> {
    check(context, &layer(4), "room for one result block of two", |spans, _| spans.result_stride *= 2)
}

fn small_stride(context: &Context<'_>) -> Result<(), CaseError> {
    check(context, &layer(4), "parameter blocks that overlap", |spans, _| spans.parameter_stride = 4)?;
    check(context, &layer(4), "result blocks that overlap", |spans, _| spans.result_stride = 4)
}

fn no_slots(context: &Context<'_>) -> Result<(), CaseError> {
    check(context, &layer(4), "an executable without slots", |spans, _| spans.slots = 0)
}

fn beyond(context: &Context<'_>) -> Result<(), CaseError> {
    check(context, &layer(4), "a span beyond its arena", |spans, placement| {
        spans.workspace = placement.workspace_beyond();
    })
}

fn fewer(context: &Context<'_>) -> Result<(), CaseError> {
    check(context, &layer(4), "one weight of two", |spans, _| {
        spans.weights.pop();
    })
}

fn outlives_plan(context: &Context<'_>) -> Result<(), CaseError> {
    let graph = layer(4);
    let weights = random_weights(&graph, context.options.seed, "load");
    // The placement with its plan is dropped at the end of the statement.
    let mut loaded = context.bench.place(&[&graph], &weights)?.load(0, 1)?;
    let parameters = layer_parameters(&graph, 3, 5);
    let given = loaded.run(&parameters).map_err(|error: HarnessError| CaseError::Wrong(error.to_string()))?;
    let expected = ReferenceExecutor::new(&graph, weights)?.run(&parameters)?;
    compare_results(&graph, &parameters, &expected, &given, of_product(DType::F32)).map(drop).or_else(wrong)
}
