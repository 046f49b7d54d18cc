//! Planning is pure and total.

use super::toys::{layer, recurrent, renamed, with_version};
use super::{Case, check_refused};
use crate::harness::HarnessError;
use crate::suite::samples::Rows;
use crate::suite::{CaseError, Context, wrong};
use paceline_plugin_api::backend::weight_uses;
use paceline_plugin_api::backend::{NodePlan, PlanSummary, WeightLayout};
use paceline_plugin_api::graph::{DType, Graph};

pub const CASES: &[Case] = &[
    ("equal graphs have equal plans", equal_plans),
    ("layouts are a function of their inputs", equal_layouts),
    ("threads plan at the same time", threads),
    ("every row maximum has a plan", every_row_maximum),
    ("alignments are powers of two and blocks have room", sizes),
    ("an unknown operation is refused by name", unknown_operation),
    ("an unknown version is refused by name", unknown_version),
    ("an unknown weight type is refused by name", unknown_type),
    ("a graph without nodes has a plan", empty),
];

fn summary(context: &Context<'_>, graph: &Graph) -> Result<PlanSummary, CaseError> {
    Ok(context.bench.plan(graph)?.summary().clone())
}

fn equal_plans(context: &Context<'_>) -> Result<(), CaseError> {
    for graph in [layer(16), recurrent(8)] {
        let first = summary(context, &graph)?;
        // A plan of something else in between must not show.
        summary(context, &layer(3))?;
        if summary(context, &graph)? != first {
            return wrong("two plans of one graph differ");
        }
    }
    Ok(())
}

fn equal_layouts(context: &Context<'_>) -> Result<(), CaseError> {
    let uses = weight_uses([&layer(1), &recurrent(1)]);
    let first = context.bench.layouts(&uses)?;
    if context.bench.layouts(&uses)? != first {
        return wrong("two choices of layouts for the same weights differ");
    }
    Ok(())
}

fn threads(context: &Context<'_>) -> Result<(), CaseError> {
    let graph = layer(8);
    let layouts = context.bench.layouts(&weight_uses([&graph]))?;
    let (backend, capabilities) = (context.bench.backend(), context.bench.capabilities());
    let plan = || backend.plan(&graph, capabilities, &layouts).map(|plan| plan.summary().clone());
    let expected = plan();
    let plans: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(plan)).collect();
        threads.into_iter().map(std::thread::ScopedJoinHandle::join).collect()
    });
    match plans.iter().all(|result| result.as_ref().is_ok_and(|plan| *plan == expected)) {
        true => Ok(()),
        false => wrong("plans that were made at the same time differ"),
    }
}

fn every_row_maximum(context: &Context<'_>) -> Result<(), CaseError> {
    let layouts = summary(context, &recurrent(1))?.states;
    for rows in (1..=64).chain([512]) {
        for graph in [layer(rows), recurrent(rows)] {
            let plan = summary(context, &graph)?;
            if let Some((_, reason)) = plan.refusal() {
                return wrong(format!("{rows} rows are refused: {reason}"));
            }
            if !plan.states.is_empty() && plan.states != layouts {
                return wrong(format!("with {rows} rows a state has another form than with one"));
            }
        }
    }
    Ok(())
}

fn sizes(context: &Context<'_>) -> Result<(), CaseError> {
    for graph in [layer(16), recurrent(8)] {
        let plan = summary(context, &graph)?;
        let layouts: Vec<WeightLayout> = context.bench.layouts(&weight_uses([&graph]))?;
        let alignments = layouts
            .iter()
            .map(|layout| layout.alignment)
            .chain(plan.states.iter().map(|state| state.alignment))
            .chain([plan.workspace_alignment]);
        if let Some(odd) = alignments.into_iter().find(|alignment| !alignment.is_power_of_two()) {
            return wrong(format!("an alignment of {odd}"));
        }
        let (parameters, results) = (graph.parameter_bytes(), graph.result_bytes());
        if plan.parameter_bytes < parameters || plan.result_bytes < results {
            return wrong(format!(
                "blocks of {} and {} bytes, the graph needs {parameters} and {results}",
                plan.parameter_bytes, plan.result_bytes
            ));
        }
        if layouts.iter().any(|layout| layout.bytes == 0) || plan.states.iter().any(|state| state.bytes == 0)
        {
            return wrong("a weight or a state has no bytes");
        }
    }
    Ok(())
}

/// A graph in which `scale` is the only operation, behind it `add`.
fn scaled() -> Graph {
    let mut g = Rows::new(4);
    let x = g.floats("x", &[16]);
    let scaled = g.builder.scale(x, 2.0);
    let out = g.builder.add(scaled, x);
    g.out(out);
    g.builder.finish()
}

/// The first node must be refused with a reason that names it, the second must not.
fn check_first_refused(context: &Context<'_>, graph: Option<Graph>, name: &str) -> Result<(), CaseError> {
    let Some(graph) = graph else { return wrong("the graph of the case cannot be made") };
    let plan = context.bench.plan(&graph)?;
    match &plan.summary().nodes[..] {
        [NodePlan::Refused { reason }, NodePlan::Kernel { .. }] if reason.contains(name) => {}
        [NodePlan::Refused { reason }, NodePlan::Kernel { .. }] => {
            return wrong(format!("the reason `{reason}` does not name `{name}`"));
        }
        [NodePlan::Refused { .. }, _] => return wrong("a node that can run is refused because of another"),
        _ => return wrong(format!("`{name}` is accepted")),
    }
    // What is refused cannot be loaded.
    let loaded = context.bench.load(&graph, &[]).map(drop);
    match loaded {
        Err(HarnessError::Refused(_)) => Ok(()),
        _ => wrong("a graph with a refused node is loaded"),
    }
}

fn unknown_operation(context: &Context<'_>) -> Result<(), CaseError> {
    check_first_refused(context, renamed(&scaled(), "scale", "skale"), "skale")
}

fn unknown_version(context: &Context<'_>) -> Result<(), CaseError> {
    check_first_refused(context, with_version(&scaled(), 77), "scale")
}

fn unknown_type(context: &Context<'_>) -> Result<(), CaseError> {
    let mut uses = weight_uses([&layer(1)]);
    for weight in &mut uses {
        if weight.name == "w" {
            weight.name = "an_odd_weight".into();
            weight.dtype = DType(9999);
        }
    }
    let layouts = context.bench.backend().layout_weights(context.bench.capabilities(), &uses);
    check_refused("a weight of an unknown type", layouts.map_err(|error| error.message), "an_odd_weight")
}

fn empty(context: &Context<'_>) -> Result<(), CaseError> {
    let plan = context.bench.backend().plan(&Graph::default(), context.bench.capabilities(), &[]);
    plan.map(drop).map_err(super::failing("plan"))
}
