//! Operations whose rows do not depend on each other: right, and the same bits in any company.

use super::compare::{compare_results, first_difference};
use super::samples::{ROWS, RowSample};
use super::{CaseError, Context, wrong};
use crate::block::{ParameterBlock, ResultData, result};
use crate::harness::{HarnessError, Loaded};
use crate::reference::ReferenceExecutor;
use paceline_plugin_api::backend::{NodePlan, PlanSummary, UNLIMITED_ROWS};
use paceline_plugin_api::graph::Graph;

/// Row maxima for which every sample is planned.
const MAX_ROWS: [u32; 9] = [1, 2, 3, 5, 8, 16, 17, 33, 40];
/// Row maximum of the checks of bits.
const BITS_ROWS: u32 = 33;

/// Row maximum of a prompt: a backend may have another class of bits for so many rows of products, which is the same for
/// all of them.
const PROMPT_ROWS: u32 = 72;

/// Runs all cases of a sample.
pub(super) fn run(context: &mut Context<'_>, sample: &RowSample) {
    for max_rows in MAX_ROWS {
        let result = accuracy(context, sample, max_rows);
        let is_refused = matches!(result, Err(CaseError::Harness(HarnessError::Refused(_))));
        context.record(sample.operation, &format!("{}, up to {max_rows} rows", sample.name), result);
        if is_refused {
            // The same for the other row counts and the bits.
            return;
        }
    }
    let result = same_bits(context, sample);
    context.record(sample.operation, &format!("{}, bits of a row in company and alone", sample.name), result);
    if sample.operation == "linear" {
        let result = prompt(context, sample);
        context.record(
            sample.operation,
            &format!("{}, {PROMPT_ROWS} rows, and some alone", sample.name),
            result,
        );
    }
}

/// Row counts to run on a graph for up to `max_rows`: all of them, about half, one.
fn live_rows(max_rows: u32) -> Vec<u32> {
    let mut counts = vec![max_rows, max_rows.div_ceil(2), 1];
    counts.dedup();
    counts
}

fn accuracy(context: &Context<'_>, sample: &RowSample, max_rows: u32) -> Result<f64, CaseError> {
    let graph = sample.graph(max_rows);
    let weights = sample.weights(&graph);
    let mut loaded = context.bench.load(&graph, &weights)?;
    let (reference_graph, weights) = sample.for_reference(&graph, weights)?;
    let mut reference = ReferenceExecutor::new(&reference_graph, weights)?;
    let mut worst = 0.0f64;
    for rows in live_rows(max_rows) {
        let parameters = sample.parameters(&graph, rows);
        let expected = reference.run(&parameters)?;
        let given = loaded.run(&parameters)?;
        let error = compare_results(&graph, &parameters, &expected, &given, sample.tolerance)
            .or_else(|what| wrong(format!("{rows} rows: {what}")))?;
        worst = worst.max(error);
    }
    Ok(worst)
}

/// Rows up to which every node of a plan promises the same bits.
pub(super) fn row_invariance(summary: &PlanSummary) -> u32 {
    let of_node = |node: &NodePlan| match node {
        NodePlan::Kernel { row_invariance, .. } => *row_invariance,
        NodePlan::Refused { .. } => 0,
    };
    summary.nodes.iter().map(of_node).min().unwrap_or(UNLIMITED_ROWS)
}

/// The numerics ids of a plan's nodes.
pub(super) fn numerics(summary: &PlanSummary) -> Vec<u64> {
    summary
        .nodes
        .iter()
        .map(|node| match node {
            NodePlan::Kernel { numerics, .. } => *numerics,
            NodePlan::Refused { .. } => 0,
        })
        .collect()
}

/// Two launches give the same bits; a row alone has the bits that it has among others, in the same executable, and in
/// one planned for a single row if its plan states the same numerics.
fn same_bits(context: &Context<'_>, sample: &RowSample) -> Result<f64, CaseError> {
    let graph = sample.graph(BITS_ROWS);
    let weights = sample.weights(&graph);
    let mut loaded = context.bench.load(&graph, &weights)?;
    let rows = row_invariance(loaded.summary()).min(BITS_ROWS);
    let together = sample.parameters(&graph, rows.max(1));
    let results = loaded.run(&together)?;
    if loaded.run(&together)? != results && !equal_live(&graph, &together, &results, &loaded.read_results(0))
    {
        return wrong("two launches with equal parameters give different bits");
    }
    if rows < 2 {
        return Err(CaseError::NotOffered("the plan promises no row invariance".into()));
    }
    let single_graph = sample.graph(1);
    let mut single = context.bench.load(&single_graph, &sample.weights(&single_graph))?;
    let is_same_class = numerics(single.summary()) == numerics(loaded.summary());
    let whole = ParameterBlock::from_bytes(&graph, &together);
    for row in 0..rows as usize {
        let alone = whole.only_row(&graph, ROWS, row);
        check_row(&mut loaded, alone.bytes(), (&graph, &together, &results), row)?;
        if is_same_class {
            let alone = whole.only_row(&single_graph, ROWS, row);
            check_row(&mut single, alone.bytes(), (&graph, &together, &results), row)
                .map_err(|error| in_single(error, "in an executable for one row, "))?;
        }
    }
    Ok(0.0)
}

/// All rows of a prompt are right, and some of them have the same bits alone.
fn prompt(context: &Context<'_>, sample: &RowSample) -> Result<f64, CaseError> {
    let graph = sample.graph(PROMPT_ROWS);
    let weights = sample.weights(&graph);
    let mut loaded = context.bench.load(&graph, &weights)?;
    let (reference_graph, weights) = sample.for_reference(&graph, weights)?;
    let together = sample.parameters(&graph, PROMPT_ROWS);
    let expected = ReferenceExecutor::new(&reference_graph, weights)?.run(&together)?;
    let results = loaded.run(&together)?;
    let error = compare_results(&graph, &together, &expected, &results, sample.tolerance).or_else(wrong)?;
    let whole = ParameterBlock::from_bytes(&graph, &together);
    if row_invariance(loaded.summary()) >= PROMPT_ROWS {
        for row in [0, 9, PROMPT_ROWS as usize - 1] {
            let alone = whole.only_row(&graph, ROWS, row);
            check_row(&mut loaded, alone.bytes(), (&graph, &together, &results), row)?;
        }
    }
    Ok(error)
}

fn in_single(error: CaseError, place: &str) -> CaseError {
    match error {
        CaseError::Wrong(what) => CaseError::Wrong(format!("{place}{what}")),
        other => other,
    }
}

fn equal_live(graph: &Graph, parameters: &[u8], left: &[u8], right: &[u8]) -> bool {
    graph.results().iter().all(|slot| {
        bits(&result(graph, parameters, left, &slot.name))
            == bits(&result(graph, parameters, right, &slot.name))
    })
}

fn bits(data: &ResultData) -> Vec<u32> {
    match data {
        ResultData::Floats(values) => values.iter().map(|v| v.to_bits()).collect(),
        ResultData::Integers(values) => values.iter().map(|v| *v as u32).collect(),
    }
}

/// Runs row `row` alone and compares its results with those of the run in which it had company.
fn check_row(
    loaded: &mut Loaded,
    alone: &[u8],
    (graph, together, results): (&Graph, &[u8], &[u8]),
    row: usize,
) -> Result<(), CaseError> {
    let given = loaded.run(alone)?;
    // What is not counted by rows belongs to the whole run.
    for slot in graph.results().iter().filter(|slot| graph.value(slot.value).live.is_some()) {
        let width = graph.value(slot.value).shape.row_elements() as usize;
        let single = result(loaded.graph(), alone, &given, &slot.name);
        let what = match (result(graph, together, results, &slot.name), single) {
            (ResultData::Floats(all), ResultData::Floats(one)) => {
                first_difference(&all[row * width..(row + 1) * width], &one)
            }
            (ResultData::Integers(all), ResultData::Integers(one)) => {
                (all[row * width..(row + 1) * width] != one[..]).then(|| "an index differs".into())
            }
            _ => Some("another type".into()),
        };
        if let Some(what) = what {
            return wrong(format!("result `{}`, row {row} in company and alone: {what}", slot.name));
        }
    }
    Ok(())
}
