//! Mixtures of experts: how many launches a layer takes, and that no row depends on the others.

use super::backend;
use super::fusions::{kernels, weights_of};
use crate::capabilities::Fusion;
use crate::layout::Layout;
use crate::program::{Target, lower};
use paceline_conformance::block::{ParameterBlock, floats};
use paceline_conformance::harness::Bench;
use paceline_conformance::random::Random;
use paceline_conformance::reference::ReferenceExecutor;
use paceline_conformance::suite::compare_results;
use paceline_conformance::suite::tolerance::of_experts;
use paceline_plugin_api::backend::{NodePlan, Plan, weight_uses};
use paceline_plugin_api::graph::{Builder, DType, Graph, Routing, ValueId};

pub(super) const HIDDEN: u32 = 64;
const EXPERTS: u32 = 6;
const USED: u32 = 2;

/// Types of gate, up and down, and the inner width.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    types: [DType; 3],
    inner: u32,
}

pub(super) const QUANTIZED: Shape = Shape { types: [DType::Q8_0, DType::Q8_0, DType::Q4_0], inner: 96 };
/// Two launches for gate and up, and experts whose last panel is not full.
const UNEVEN: Shape = Shape { types: [DType::Q8_0, DType::F16, DType::F32], inner: 40 };

fn mixture(
    b: &mut Builder,
    f: ValueId,
    name: &str,
    count: u32,
    shape: Shape,
    choice: (ValueId, ValueId),
) -> ValueId {
    let Shape { types: [gate, up, down], inner } = shape;
    let matrices = [
        b.weight(&format!("{name} gate"), gate, &[count, inner, HIDDEN]),
        b.weight(&format!("{name} up"), up, &[count, inner, HIDDEN]),
        b.weight(&format!("{name} down"), down, &[count, HIDDEN, inner]),
    ];
    b.experts(f, matrices, choice, "silu")
}

/// The feed-forward part of a layer as a model has it, with a shared expert or without. With `is_open`, what could be fused
/// with a sum of experts is a result too.
pub(super) fn layer(rows: u32, shape: Shape, has_shared: bool, is_open: bool) -> Graph {
    let mut b = Builder::new();
    let live = b.parameter("rows", DType::I32, &[1], None);
    let x = b.parameter("x", DType::F32, &[rows, HIDDEN], Some(live));
    let norm = b.weight("norm", DType::F32, &[HIDDEN]);
    let f = b.rms_norm(x, norm, 1e-6);
    let router = b.weight("router", DType::F32, &[EXPERTS, HIDDEN]);
    let logits = b.linear(f, router);
    let choice = b.route(logits, USED, Routing { sigmoid: false, normalize: true, factor: 1.0 });
    let mut out = mixture(&mut b, f, "routed", EXPERTS, shape, choice);
    let mut inner = vec![out];
    if has_shared {
        let gate = b.weight("shared_gate", DType::F32, &[1, HIDDEN]);
        let logit = b.linear(f, gate);
        let choice = b.route(logit, 1, Routing { sigmoid: true, normalize: false, factor: 1.0 });
        let shared = mixture(&mut b, f, "shared", 1, shape, choice);
        out = b.add(out, shared);
        inner.extend([shared, out]);
    }
    let y = b.add(x, out);
    // The norm of the next layer, and what reads it.
    let norm = b.weight("next_norm", DType::F32, &[HIDDEN]);
    let u = b.rms_norm(y, norm, 1e-6);
    let next = b.weight("next", DType::Q8_0, &[24, HIDDEN]);
    let z = b.linear(u, next);
    b.result("z", z);
    if is_open {
        inner.extend([y, u]);
        inner.into_iter().enumerate().for_each(|(index, id)| b.result(&format!("inner {index}"), id));
    }
    b.finish()
}

pub(super) fn parameters(graph: &Graph, x: &[f32]) -> Vec<u8> {
    let mut block = ParameterBlock::new(graph);
    block.set_integers("rows", &[x.len() as i32 / HIDDEN as i32]);
    block.set_floats("x", 0, x);
    block.into_bytes()
}

#[test]
fn a_layer_takes_few_launches() {
    let of = |rows, has_shared| {
        let mut names = kernels(&layer(rows, QUANTIZED, has_shared, false), Fusion::Nothing);
        // Of a counter for the form of a product that makes its rows itself.
        names.retain(|name| *name != "clear");
        names
    };
    // Norm and router; the choice; gate and up; what gates; down; the sum with the residual and the next norm.
    let one = [
        "norm_quantize_short",
        "linear_f32_r1",
        "route",
        "experts_q8_0_r1",
        "experts_gate",
        "experts_q4_0_r1",
        "experts_norm_short",
        "linear_q8_0_r1",
    ];
    assert_eq!(of(1, false), one);
    let few = [
        "norm_quantize_short",
        "linear_f32_r8",
        "route",
        "experts_group",
        "experts_gather",
        "experts_q8_0_r8",
        "experts_gate",
        "experts_q4_0_r8",
        "experts_norm_short",
        "linear_q8_0_r16",
    ];
    assert_eq!(of(16, false), few);
    assert!(of(17, false).ends_with(&["experts_q4_0_r32", "experts_norm_short", "linear_q8_0_wide"]));
    // Its gate's logit comes with the router's; then it is a product like any other.
    let shared = [
        "experts_combine",
        "route",
        "linear_q8_0_r1",
        "glu_quantize",
        "linear_q4_0_r1",
        "experts_norm_short",
    ];
    assert_eq!(of(1, true), [&one[..6], &shared, &one[7..]].concat());
}

#[test]
fn rows_do_not_depend_on_each_other_nor_on_what_is_fused() {
    let backend = backend();
    let most = 20;
    let x = Random::new(3).floats((most * HIDDEN) as usize, 1.0);
    for shape in [QUANTIZED, UNEVEN] {
        let bench = Bench::open(&backend, 0, &[]).unwrap();
        let run = |graph: &Graph, x: &[f32]| {
            let parameters = parameters(graph, x);
            let results = bench.load(graph, &weights_of(graph)).unwrap().run(&parameters).unwrap();
            let bits =
                floats(graph, &parameters, &results, "z").iter().map(|z| z.to_bits()).collect::<Vec<_>>();
            (parameters, results, bits)
        };
        let graph = layer(most, shape, true, false);
        let (parameters, results, all) = run(&graph, &x);
        let expected = ReferenceExecutor::new(&graph, weights_of(&graph)).unwrap().run(&parameters).unwrap();
        compare_results(&graph, &parameters, &expected, &results, of_experts([DType::Q8_0; 3])).unwrap();
        assert_eq!(run(&layer(most, shape, true, true), &x).2, all);
        for (rows, first) in [(1, 0), (1, 19), (5, 7)] {
            let from = (first * HIDDEN) as usize;
            let to = from + (rows * HIDDEN) as usize;
            let few = run(&layer(rows, shape, true, false), &x[from..to]).2;
            let outputs = all.len() / most as usize;
            let of_rows = first as usize * outputs..(first + rows) as usize * outputs;
            assert_eq!(few, all[of_rows], "{rows} rows from {first} on");
            // Fewer live rows than planned.
            assert_eq!(run(&graph, &x[from..to]).2, few);
        }
    }
}

fn plans(graph: &Graph) -> Vec<NodePlan> {
    let layouts: Vec<_> = weight_uses([graph]).iter().map(|weight| Layout::choose(weight).unwrap()).collect();
    let target = Target { name: "sm_90", has_kernel: &|_| true, has_bf16: false };
    lower(graph.clone(), &layouts, target).unwrap().summary().nodes.clone()
}

#[test]
fn plans_count_the_experts_that_are_chosen() {
    let [few, many] = [1, 64].map(|rows| {
        let graph = layer(rows, QUANTIZED, false, false);
        let at = graph.nodes().iter().position(|node| node.operation == "experts").unwrap();
        match plans(&graph)[at] {
            NodePlan::Kernel { bytes_read, operations, .. } => (bytes_read, operations),
            NodePlan::Refused { ref reason } => panic!("{reason}"),
        }
    });
    let elements = u64::from(HIDDEN * QUANTIZED.inner);
    let bytes = elements * 34 / 32 * 2 + elements * 18 / 32;
    let is_near = |given: u64, expected: u64| given.abs_diff(expected) < 3;
    assert!(
        is_near(few.0, bytes * u64::from(USED)) && is_near(many.0, bytes * u64::from(EXPERTS)),
        "{few:?} {many:?}"
    );
    assert!(
        is_near(few.1, 3 * elements * u64::from(USED)) && is_near(many.1, 64 * few.1),
        "{few:?} {many:?}"
    );
}

#[test]
fn more_experts_than_kernels_choose_among_are_refused() {
    let mut b = Builder::new();
    let logits = b.parameter("logits", DType::F32, &[2, 4097], None);
    let (ids, _) = b.route(logits, 2, Routing { sigmoid: true, normalize: true, factor: 1.0 });
    b.result("ids", ids);
    let plans = plans(&b.finish());
    assert!(matches!(&plans[0], NodePlan::Refused { reason } if reason.contains("4097")), "{plans:?}");
}
