//! What plans say before anything is loaded.

use crate::layout;
use crate::program::{GpuPlan, KernelStep, Step, Target, lower};
use paceline_kernels::params::linear::{ORDER_BESIDE, ORDER_FIRST};
use paceline_plugin_api::backend::{NodePlan, Plan, weight_uses};
use paceline_plugin_api::graph::{Builder, DType, Graph, StateKind};

fn plan(graph: &Graph, target: &str) -> GpuPlan {
    let layouts: Vec<_> = weight_uses([graph]).iter().map(|weight| layout::choose(weight).unwrap()).collect();
    let target = Target { name: target, has_kernel: &|_| true };
    lower(graph.clone(), &layouts, target).unwrap()
}

fn nodes(graph: &Graph, target: &str) -> Vec<NodePlan> {
    plan(graph, target).summary().nodes.clone()
}

fn kernels(plan: &GpuPlan) -> Vec<&KernelStep> {
    let steps = plan.program.steps.iter();
    steps
        .filter_map(|step| match step {
            Step::Kernel(kernel) => Some(kernel),
            Step::Clear(..) => None,
        })
        .collect()
}

#[test]
fn more_rows_than_a_launch_takes_are_refused_when_they_are_planned() {
    let graph = |rows: u32| {
        let mut b = Builder::new();
        let x = b.parameter("x", DType::F32, &[rows, 32], None);
        let w = b.weight("w", DType::Q8_0, &[16, 32]);
        let y = b.activation(x, "silu");
        let z = b.linear(x, w);
        b.result("y", y);
        b.result("z", z);
        b.finish()
    };
    let refused = |plan: &NodePlan| matches!(plan, NodePlan::Refused { reason } if reason.contains("65535"));
    assert!(nodes(&graph(65_535), "sm_90").iter().all(|plan| matches!(plan, NodePlan::Kernel { .. })));
    let plans = nodes(&graph(65_536), "sm_90");
    assert!(plans.iter().all(refused), "{plans:?}");
}

#[test]
fn bits_are_those_of_a_target() {
    let mut b = Builder::new();
    let x = b.parameter("x", DType::F32, &[4, 32], None);
    let y = b.activation(x, "silu");
    b.result("y", y);
    let graph = b.finish();
    let numerics = |target| match nodes(&graph, target)[0] {
        NodePlan::Kernel { numerics, .. } => numerics,
        NodePlan::Refused { .. } => 0,
    };
    assert_eq!(numerics("sm_90"), numerics("sm_90"));
    assert_ne!(numerics("sm_90"), numerics("sm_80"));
}

#[test]
fn products_of_the_same_activations_run_beside_each_other() {
    let mut b = Builder::new();
    let x = b.parameter("x", DType::F32, &[4, 64], None);
    for (name, dtype) in [("q", DType::Q8_0), ("v", DType::Q4_0), ("plain", DType::F16)] {
        let w = b.weight(name, dtype, &[16, 64]);
        let y = b.linear(x, w);
        b.result(name, y);
    }
    let plan = plan(&b.finish(), "sm_90");
    let orders: Vec<_> = kernels(&plan)
        .into_iter()
        .filter(|kernel| kernel.launch.entry.starts_with("linear_"))
        .map(|kernel| u32::from_ne_bytes(*kernel.parameters.last_chunk().unwrap()))
        .collect();
    assert_eq!(orders, [ORDER_FIRST, ORDER_BESIDE, 0]);
}

#[test]
fn what_rows_see_is_made_before_everything_and_waited_for() {
    let mut b = Builder::new();
    let count = b.parameter("count", DType::I32, &[1], None);
    let sequences = b.parameter("sequences", DType::I32, &[1, 4], Some(count));
    let x = b.parameter("x", DType::F32, &[4, 2, 64], None);
    let table = b.state("table", StateKind::Table, DType::I32, &[1, 1]);
    let caches =
        ["keys", "values"].map(|name| b.state(name, StateKind::PerPosition, DType::F16, &[1, 256, 1, 64]));
    let q = b.scale(x, 2.0);
    let y = b.attention(q, caches, table, sequences, 0.25);
    b.result("y", y);
    let plan = plan(&b.finish(), "sm_90");
    let steps: Vec<_> = kernels(&plan).into_iter().map(|k| (k.launch.entry, k.leads, k.waits)).collect();
    assert_eq!(steps[..2], [("row_spans", true, false), ("scale", false, true)]);
    assert!(steps[2..].iter().all(|&(_, leads, waits)| !leads && !waits), "{steps:?}");
}
