//! What plans say before anything is loaded.

use crate::layout::Layout;
use crate::program::{KernelStep, Step, Target, lower};
use paceline_kernels::params::cache::AttentionParts;
use paceline_kernels::params::recurrent::ConvCausal;
use paceline_plugin_api::backend::{NodePlan, Plan, weight_uses};
use paceline_plugin_api::graph::{Builder, DType, Graph, StateKind};

fn nodes(graph: &Graph, target: &str) -> Vec<NodePlan> {
    let layouts: Vec<_> = weight_uses([graph]).iter().map(|weight| Layout::choose(weight).unwrap()).collect();
    let target = Target { name: target, has_kernel: &|_| true, has_bf16: false };
    lower(graph.clone(), &layouts, target).unwrap().summary().nodes.clone()
}

/// The kernels of a graph without products.
fn steps(graph: &Graph) -> Vec<KernelStep> {
    let layouts: Vec<_> = weight_uses([graph]).iter().map(|weight| Layout::choose(weight).unwrap()).collect();
    let target = Target { name: "sm_90", has_kernel: &|_| true, has_bf16: false };
    let program = lower(graph.clone(), &layouts, target).unwrap().program.clone();
    let kernel = |step: &Step| match step {
        Step::Kernel(kernel) => Some(kernel.clone()),
        _ => None,
    };
    program.steps.iter().filter_map(kernel).collect()
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

/// Attention of a few rows reads a cache before the launches in front of it have ended only where it knows what those write: one
/// append of the same rows. One of many rows on matrix units is a launch of its own.
#[test]
fn caches_are_read_early_where_one_append_writes_them() {
    let graph = |rows: u32, appends: usize| {
        let mut b = Builder::new();
        let count = b.parameter("count", DType::I32, &[1], None);
        let cells = b.parameter("cells", DType::I32, &[rows], Some(count));
        let sequences = b.parameter("sequences", DType::I32, &[1, 4], Some(count));
        let q = b.parameter("q", DType::F32, &[rows, 4, 64], Some(count));
        let [k, v] = ["k", "v"].map(|name| b.parameter(name, DType::F32, &[rows, 2, 64], Some(count)));
        let table = b.state("table", StateKind::Table, DType::I32, &[1, 2]);
        let caches = ["keys", "values"]
            .map(|name| b.state(name, StateKind::PerPosition, DType::F16, &[2, 256, 2, 64]));
        (0..appends).for_each(|_| b.kv_append(k, v, caches, cells));
        let out = b.attention(q, caches, table, sequences, 0.125);
        b.result("out", out);
        b.finish()
    };
    let cells_at = std::mem::offset_of!(AttentionParts, cells);
    for (appends, is_early) in [(0, false), (1, true), (2, false)] {
        let steps = steps(&graph(16, appends));
        let parts = steps.iter().find(|step| step.launch.entry == "attention_parts_f16_64").unwrap();
        assert_eq!(parts.addresses.iter().any(|(at, _)| *at == cells_at), is_early, "{appends} appends");
    }
    let many = steps(&graph(17, 1));
    let names: Vec<_> =
        many.iter().map(|step| step.launch.entry).filter(|name| name.starts_with("attention")).collect();
    assert_eq!(names, ["attention_rows_f16_64"]);
}

/// A convolution reads its windows before the launches in front of it have ended, but not where one of them writes these.
#[test]
fn windows_are_read_early_where_nothing_in_front_writes_them() {
    let mut b = Builder::new();
    let count = b.parameter("count", DType::I32, &[1], None);
    let sequences = b.parameter("sequences", DType::I32, &[1, 4], Some(count));
    let x = b.parameter("x", DType::F32, &[4, 32], Some(count));
    let taps = b.weight("taps", DType::F32, &[32, 4]);
    let windows = b.state("windows", StateKind::PerSlot, DType::F32, &[1, 3, 32]);
    let y = b.conv_causal_silu(x, taps, windows, sequences);
    let z = b.conv_causal_silu(y, taps, windows, sequences);
    b.result("z", z);
    let at = std::mem::offset_of!(ConvCausal, early);
    let early: Vec<_> = steps(&b.finish())
        .iter()
        .filter(|step| step.launch.entry == "conv_causal")
        .map(|step| step.parameters[at])
        .collect();
    assert_eq!(early, [1, 0]);
}
