//! What plans say before anything is loaded.

use crate::layout::Layout;
use crate::program::{Target, lower};
use paceline_plugin_api::backend::{NodePlan, Plan, weight_uses};
use paceline_plugin_api::graph::{Builder, DType, Graph};

fn nodes(graph: &Graph, target: &str) -> Vec<NodePlan> {
    let layouts: Vec<_> = weight_uses([graph]).iter().map(|weight| Layout::choose(weight).unwrap()).collect();
    let target = Target { name: target, has_kernel: &|_| true };
    lower(graph.clone(), &layouts, target).unwrap().summary().nodes.clone()
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
