//! What is fused has the bits of the nodes one by one, and what the reference executor computes.

use super::backend;
use crate::capabilities::Fusion;
use paceline_conformance::block::{ParameterBlock, floats};
use paceline_conformance::harness::Bench;
use paceline_conformance::quant::quantize;
use paceline_conformance::random::Random;
use paceline_conformance::reference::ReferenceExecutor;
use paceline_conformance::suite::compare_results;
use paceline_conformance::suite::tolerance::of_product;
use paceline_plugin_api::graph::{Builder, DType, Graph, StateKind, ValueId};

const NOTHING: Fusion = Fusion::Nothing;
const ROWS: u32 = 5;
const HIDDEN: u32 = 64;
const KEY_HEADS: u32 = 2;
const HEADS: u32 = 4;
const WIDTH: u32 = 32;

/// A block of a hybrid model: a Gated DeltaNet layer, then a gate on heads, each added to the stream. With
/// `is_open`, everything that could be fused is a result too.
fn block(weights: DType, is_open: bool) -> Graph {
    let mut b = Builder::new();
    let rows = b.parameter("rows", DType::I32, &[1], None);
    let count = b.parameter("sequence_count", DType::I32, &[1], None);
    let x = b.parameter("x", DType::F32, &[ROWS, HIDDEN], Some(rows));
    let sequences = b.parameter("sequences", DType::I32, &[1, 4], Some(count));
    let state = b.state("state", StateKind::PerSlot, DType::F32, &[1, HEADS, WIDTH, WIDTH]);
    let mut inner: Vec<ValueId> = Vec::new();
    let product = |b: &mut Builder, x: ValueId, name: &str, n: u32, k: u32| {
        let w = b.weight(name, weights, &[n, k]);
        b.linear(x, w)
    };
    let norm = b.weight("norm", DType::F32, &[HIDDEN]);
    let u = b.rms_norm(x, norm, 1e-6);
    let keys = KEY_HEADS * WIDTH;
    let qkv = product(&mut b, u, "qkv", 2 * keys + HEADS * WIDTH, HIDDEN);
    let [beta, alpha] = ["beta", "alpha"].map(|name| product(&mut b, u, name, HEADS, HIDDEN));
    let beta = b.activation(beta, "sigmoid");
    let [dt, a] = ["dt", "a"].map(|name| b.weight(name, DType::F32, &[HEADS]));
    let sum = b.add(alpha, dt);
    let softplus = b.activation(sum, "softplus");
    let g = b.mul(softplus, a);
    let part = |b: &mut Builder, offset: u32, heads: u32| {
        let part = b.slice(qkv, offset, heads * WIDTH);
        b.reshape(part, &[ROWS, heads, WIDTH])
    };
    let [q, k] = [0, keys].map(|offset| part(&mut b, offset, KEY_HEADS));
    let v = part(&mut b, 2 * keys, HEADS);
    let [q, k] = [q, k].map(|x| b.l2_norm(x, 1e-6));
    let o = b.gated_delta_net([q, k, v, g, beta], state, sequences, 0.25);
    let norm = b.weight("heads_norm", DType::F32, &[WIDTH]);
    let z = product(&mut b, u, "z", HEADS * WIDTH, HIDDEN);
    let z = b.reshape(z, &[ROWS, HEADS, WIDTH]);
    let normed = b.rms_norm_gated(o, norm, z, 1e-6);
    let flat = b.reshape(normed, &[ROWS, HEADS * WIDTH]);
    let out = product(&mut b, flat, "out", HIDDEN, HEADS * WIDTH);
    let y = b.add(x, out);

    let both = product(&mut b, y, "both", 2 * HEADS * WIDTH, HIDDEN);
    let both = b.reshape(both, &[ROWS, HEADS, 2 * WIDTH]);
    let [value, gate] = [0, WIDTH].map(|offset| b.slice(both, offset, WIDTH));
    let open = b.activation(gate, "sigmoid");
    let gated = b.mul(value, open);
    let gated = b.reshape(gated, &[ROWS, HEADS * WIDTH]);
    let down = product(&mut b, gated, "down", HIDDEN, HEADS * WIDTH);
    let z = b.add(down, y);
    inner.extend([beta, sum, softplus, g, q, k, normed, out, open, down]);
    b.result("y", y);
    b.result("z", z);
    if is_open {
        inner.into_iter().enumerate().for_each(|(index, id)| b.result(&format!("inner {index}"), id));
    }
    b.finish()
}

pub(super) fn weights_of(graph: &Graph) -> Vec<Vec<u8>> {
    let values = graph.weights().map(|id| {
        let value = graph.value(id);
        let mut random = Random::named(7, &value.name);
        let deviation = 1.0 / f64::from(value.shape.last()).sqrt();
        let elements = value.shape.elements().unwrap() as usize;
        quantize(value.dtype, &random.floats(elements, deviation as f32)).unwrap()
    });
    values.collect()
}

fn parameters(graph: &Graph, rows: i32, length: i32) -> Vec<u8> {
    let mut block = ParameterBlock::new(graph);
    let x = Random::new(3).floats((ROWS * HIDDEN) as usize, 1.0);
    block.set_integers("rows", &[rows]).set_integers("sequence_count", &[1]);
    block.set_integers("sequences", &[0, rows, length, 0]);
    block.set_floats("x", 0, &x[..rows as usize * HIDDEN as usize]);
    block.into_bytes()
}

#[test]
fn fused_nodes_have_the_bits_of_single_ones() {
    let backend = backend();
    for dtype in [DType::Q8_0, DType::F16] {
        let bench = Bench::open(&backend, 0, &[]).unwrap();
        let [closed, open] = [false, true].map(|is_open| block(dtype, is_open));
        let load = |graph: &Graph| bench.load(graph, &weights_of(graph)).unwrap();
        let (mut fused, mut single) = (load(&closed), load(&open));
        let mut reference = ReferenceExecutor::new(&closed, weights_of(&closed)).unwrap();
        for (rows, length) in [(5, 0), (3, 5), (1, 8)] {
            let given = parameters(&closed, rows, length);
            let results = fused.run(&given).unwrap();
            let others = single.run(&parameters(&open, rows, length)).unwrap();
            for name in ["y", "z"] {
                let bits = |graph: &Graph, results: &[u8]| -> Vec<u32> {
                    floats(graph, &given, results, name).iter().map(|value| value.to_bits()).collect()
                };
                assert_eq!(bits(&closed, &results), bits(&open, &others), "{dtype}: {name} of {rows} rows");
            }
            let expected = reference.run(&given).unwrap();
            compare_results(&closed, &given, &expected, &results, of_product(DType::Q8_0)).unwrap();
        }
    }
}

/// Attention with norms and rotation of heads of `WIDTH`, as a hybrid model has it: queries and gates interleaved.
/// Without `reads` only the cache is filled.
fn attention(reads: bool, is_normed: bool, is_gated: bool, is_open: bool) -> Graph {
    let mut b = Builder::new();
    let rows = b.parameter("rows", DType::I32, &[1], None);
    let count = b.parameter("sequence_count", DType::I32, &[1], None);
    let x = b.parameter("x", DType::F32, &[ROWS, HIDDEN], Some(rows));
    let sequences = b.parameter("sequences", DType::I32, &[1, 4], Some(count));
    let [positions, cells] =
        ["positions", "cells"].map(|name| b.parameter(name, DType::I32, &[ROWS], Some(rows)));
    let table = b.state("table", StateKind::Table, DType::I32, &[1, 1]);
    let caches = ["keys", "values"]
        .map(|name| b.state(name, StateKind::PerPosition, DType::F16, &[1, 256, KEY_HEADS, WIDTH]));
    let mut inner = Vec::new();
    let product = |b: &mut Builder, name: &str, n: u32| {
        let w = b.weight(name, DType::Q8_0, &[n, HIDDEN]);
        b.linear(x, w)
    };
    let [k, v] = ["k", "v"].map(|name| {
        let heads = product(&mut b, name, KEY_HEADS * WIDTH);
        b.reshape(heads, &[ROWS, KEY_HEADS, WIDTH])
    });
    let turn = |b: &mut Builder, inner: &mut Vec<ValueId>, x: ValueId, name: &str| {
        let x = match is_normed {
            true => {
                let norm = b.weight(name, DType::F32, &[WIDTH]);
                b.rms_norm(x, norm, 1e-5)
            }
            false => x,
        };
        inner.push(b.rope(x, positions, WIDTH / 2, 1e4));
        inner[inner.len() - 1]
    };
    let k = turn(&mut b, &mut inner, k, "k_norm");
    b.kv_append(k, v, caches, cells);
    b.result("v", v);
    if reads {
        let both = product(&mut b, "q", 2 * HEADS * WIDTH);
        let both = b.reshape(both, &[ROWS, HEADS, 2 * WIDTH]);
        let q = b.slice(both, 0, WIDTH);
        let q = turn(&mut b, &mut inner, q, "q_norm");
        let gate = b.slice(both, WIDTH, WIDTH);
        let out = b.attention(q, caches, table, sequences, 0.25);
        let out = match is_gated {
            true => {
                let open = b.activation(gate, "sigmoid");
                inner.push(out);
                b.mul(out, open)
            }
            false => out,
        };
        inner.push(out);
        let flat = b.reshape(out, &[ROWS, HEADS * WIDTH]);
        let w = b.weight("o", DType::Q8_0, &[HIDDEN, HEADS * WIDTH]);
        let y = b.linear(flat, w);
        b.result("y", y);
    }
    if is_open {
        inner.into_iter().enumerate().for_each(|(index, id)| b.result(&format!("inner {index}"), id));
    }
    b.finish()
}

fn attention_parameters(graph: &Graph, rows: i32, length: i32) -> Vec<u8> {
    let mut block = ParameterBlock::new(graph);
    let x = Random::named(5, &format!("{length}")).floats((ROWS * HIDDEN) as usize, 1.0);
    let places: Vec<i32> = (length..length + rows).collect();
    block.set_integers("rows", &[rows]).set_integers("sequence_count", &[1]);
    block.set_integers("sequences", &[0, rows, length, 0]);
    block.set_integers("positions", &places).set_integers("cells", &places);
    block.set_floats("x", 0, &x[..rows as usize * HIDDEN as usize]);
    block.into_bytes()
}

#[test]
fn heads_on_their_way_to_the_cache_have_the_same_bits() {
    let backend = backend();
    let bench = Bench::open(&backend, 0, &[]).unwrap();
    for (reads, is_normed, is_gated) in
        [(true, true, true), (true, false, false), (false, true, false), (false, false, false)]
    {
        let [closed, open] = [false, true].map(|is_open| attention(reads, is_normed, is_gated, is_open));
        for fused in [Some("heads_to_cache"), reads.then_some("join_quantize")].into_iter().flatten() {
            assert!(
                kernels(&closed, NOTHING).contains(&fused) && !kernels(&open, NOTHING).contains(&fused),
                "{fused}"
            );
        }
        let load = |graph: &Graph| bench.load(graph, &weights_of(graph)).unwrap();
        let (mut fused, mut single) = (load(&closed), load(&open));
        for (rows, length) in [(5, 0), (1, 5), (4, 6)] {
            let results = fused.run(&attention_parameters(&closed, rows, length)).unwrap();
            let others = single.run(&attention_parameters(&open, rows, length)).unwrap();
            if reads {
                let out = |graph: &Graph, results: &[u8]| {
                    let parameters = attention_parameters(graph, rows, length);
                    let values = floats(graph, &parameters, results, "y");
                    values.iter().map(|value| value.to_bits()).collect::<Vec<u32>>()
                };
                assert_eq!(out(&closed, &results), out(&open, &others), "{rows} rows");
            }
        }
        for cache in closed.states().enumerate().filter(|(_, id)| closed.value(*id).dtype == DType::F16) {
            let name = &closed.value(cache.1).name;
            let other = open.states().position(|id| open.value(id).name == *name).unwrap();
            assert_eq!(fused.export_state(cache.0).unwrap(), single.export_state(other).unwrap(), "{name}");
        }
    }
}

/// The kernels of a plan, in order.
pub(super) fn kernels(graph: &Graph, fusion: Fusion) -> Vec<&'static str> {
    use crate::layout::Layout;
    use crate::program::{Chosen, Target, lower};
    use paceline_plugin_api::backend::weight_uses;
    let layouts: Vec<_> = weight_uses([graph]).iter().map(|weight| Layout::choose(weight).unwrap()).collect();
    let target = Target { name: "sm_90", has_kernel: &|_| true, has_bf16: false };
    let plan = lower(graph.clone(), &layouts, target).unwrap();
    let names = plan.program.steps.iter().flat_map(|step| step.chosen(fusion)).map(|step| match step {
        Chosen::Kernel(step) => step.launch.entry,
        Chosen::Clear(..) => "clear",
    });
    names.collect()
}

#[test]
fn a_block_takes_few_launches() {
    let expected = [
        "norm_quantize_short",
        "linear_q8_0_r8",
        "gated_delta_net_64",
        "items_norm_quantize",
        "linear_q8_0_r8",
        "quantize",
        "linear_q8_0_r8",
        "glu",
        "quantize",
        "linear_q8_0_r8",
    ];
    // What products make themselves counts whether it is used or not.
    assert_eq!(kernels(&block(DType::Q8_0, false), NOTHING)[1..], expected);
    assert!(kernels(&block(DType::Q8_0, true), NOTHING).len() > expected.len());
}
