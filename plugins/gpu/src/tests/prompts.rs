//! Products of many rows in bf16: a class of bits of their own, that of the reference within tolerances.

use super::experts;
use super::fusions::weights_of;
use super::led::{HIDDEN, model, parameters};
use super::{DoublePlatform, HOST, INFO};
use crate::GpuBackend;
use crate::driver::double::DoubleDriver;
use crate::layout::Layout;
use crate::program::{GpuPlan, Step, Target, lower};
use paceline_conformance::harness::Bench;
use paceline_conformance::random::Random;
use paceline_conformance::reference::ReferenceExecutor;
use paceline_conformance::suite::compare_results;
use paceline_conformance::suite::tolerance::{of_experts, of_product};
use paceline_kernels::params::linear::is_bf16;
use paceline_plugin_api::backend::{NodePlan, Plan, UNLIMITED_ROWS, weight_uses};
use paceline_plugin_api::backend_plugin;
use paceline_plugin_api::client::{BackendClient, PluginClient};
use paceline_plugin_api::graph::{DType, Graph};

const TARGET: &str = "with-bf16";

backend_plugin!(
    INFO,
    GpuBackend,
    DoublePlatform::backend(DoubleDriver::leaked_with(|driver| driver.facts.target = TARGET.into()))
);

fn backend() -> BackendClient {
    // SAFETY: the entry of a plugin that is linked in.
    unsafe { PluginClient::enter(plugin_entry, &HOST) }.unwrap().backend().unwrap()
}

fn plan(graph: &Graph, has_bf16: bool) -> GpuPlan {
    let layouts: Vec<_> = weight_uses([graph]).iter().map(|weight| Layout::choose(weight).unwrap()).collect();
    lower(graph.clone(), &layouts, Target { name: "sm_90", has_kernel: &|_| true, has_bf16 }).unwrap()
}

/// The kernels of products with quantised weights: how many are in bf16, and how many are not.
fn products(plan: &GpuPlan, may_bf16: bool) -> (usize, usize) {
    let program = plan.program_with(|entry| may_bf16 || !is_bf16(entry));
    let entries = program.steps.iter().filter_map(|step| match step {
        Step::Kernel(step) => Some(step.launch.entry),
        _ => None,
    });
    let (bf16, int8): (Vec<_>, Vec<_>) =
        entries.filter(|entry| entry.starts_with("linear_")).partition(|entry| is_bf16(entry));
    (bf16.len(), int8.len())
}

#[test]
fn plans_say_which_rows_are_a_class_of_their_own() {
    for is_recurrent in [false, true] {
        let of_rows = |rows: u32| plan(&model(rows, DType::Q4_K, is_recurrent), true);
        let plans = [17, 64, 65, 300].map(of_rows);
        let numerics = |plan: &GpuPlan, is_linear: bool| -> Vec<u64> {
            let graph = model(17, DType::Q4_K, is_recurrent);
            let nodes = graph.nodes().iter().zip(&plan.summary().nodes);
            nodes
                .filter(|(node, _)| (node.operation == "linear") == is_linear)
                .map(|(_, plan)| match plan {
                    NodePlan::Kernel { numerics, .. } => *numerics,
                    NodePlan::Refused { reason } => panic!("{reason}"),
                })
                .collect()
        };
        let [a, b, c, d] = &plans;
        for is_linear in [false, true] {
            assert_eq!(numerics(a, is_linear), numerics(b, is_linear));
            assert_eq!(numerics(c, is_linear), numerics(d, is_linear));
        }
        assert_eq!(numerics(b, false), numerics(c, false));
        assert!(numerics(b, true).iter().zip(numerics(c, true)).all(|(b, c)| *b != c));
        let invariance = |plan: &GpuPlan| {
            let rows = plan.summary().nodes.iter().map(|node| match node {
                NodePlan::Kernel { row_invariance, .. } => *row_invariance,
                NodePlan::Refused { .. } => 0,
            });
            rows.min().unwrap()
        };
        assert_eq!(plans.each_ref().map(invariance), [64, 64, UNLIMITED_ROWS, UNLIMITED_ROWS]);
        assert_eq!(plans.each_ref().map(|plan| products(plan, true).0 > 0), [false, false, true, true]);
        assert_eq!(products(c, true).1, 0, "all of them are in bf16");
        assert_eq!(products(c, false), (0, products(c, true).0), "a setting takes that back");
        let without = plan(&model(300, DType::Q4_K, is_recurrent), false);
        assert_eq!((products(&without, true).0, invariance(&without)), (0, UNLIMITED_ROWS));
        assert!(d.summary().workspace_bytes >= without.summary().workspace_bytes);
    }
}

/// What comes out of a graph for `rows` rows whose first `live` rows are used.
fn run(rows: u32, live: i32, is_recurrent: bool, prompts: &str) -> Vec<u8> {
    let graph = model(rows, DType::Q6_K, is_recurrent);
    let settings = [("prompts".to_owned(), prompts.to_owned()), ("graphs".to_owned(), "false".to_owned())];
    let bench = Bench::open(&backend(), 0, &settings).unwrap();
    let mut loaded = bench.load(&graph, &weights_of(&graph)).unwrap();
    let given = parameters(&graph, live, 0);
    let mut results = loaded.run(&given).unwrap();
    if prompts == "bf16" && live as u32 == rows {
        let expected = ReferenceExecutor::new(&graph, weights_of(&graph)).unwrap().run(&given).unwrap();
        compare_results(&graph, &given, &expected, &results, of_product(DType::Q8_0)).unwrap();
    }
    results.truncate(live as usize * HIDDEN as usize * 4);
    results
}

#[test]
fn a_row_of_a_prompt_has_the_same_bits_in_any_company() {
    for is_recurrent in [false, true] {
        let all = run(70, 70, is_recurrent, "bf16");
        for (rows, live) in [(70, 3), (139, 9)] {
            assert!(all.starts_with(&run(rows, live, is_recurrent, "bf16")), "{live} of {rows} rows");
        }
        // In int8 it has those of a run of few rows, which are others.
        let int8 = run(70, 9, is_recurrent, "int8");
        assert_eq!(int8, run(9, 9, is_recurrent, "bf16"));
        assert!(!all.starts_with(&int8));
    }
}

/// Experts read the rows that a norm makes for products, in int8 whatever those are in.
#[test]
fn experts_of_a_prompt_are_in_int8() {
    for has_shared in [false, true] {
        let graph = experts::layer(72, experts::QUANTIZED, has_shared, false);
        let weights = weights_of(&graph);
        let x = Random::named(7, "experts of a prompt").floats(72 * experts::HIDDEN as usize, 1.0);
        let given = experts::parameters(&graph, &x);
        let bench = Bench::open(&backend(), 0, &[]).unwrap();
        let results = bench.load(&graph, &weights).unwrap().run(&given).unwrap();
        let expected = ReferenceExecutor::new(&graph, weights).unwrap().run(&given).unwrap();
        compare_results(&graph, &given, &expected, &results, of_experts([DType::Q8_0; 3])).unwrap();
        assert!(products(&plan(&graph, true), true).0 > 0, "the product behind them is in bf16");
    }
}
