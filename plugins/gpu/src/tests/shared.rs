//! Launches and tables that several nodes share, or that read vectors: only where they really read the same.

use super::backend;
use paceline_conformance::block::ParameterBlock;
use paceline_conformance::harness::Bench;
use paceline_conformance::quant::quantize;
use paceline_conformance::random::Random;
use paceline_conformance::reference::ReferenceExecutor;
use paceline_conformance::suite::compare_results;
use paceline_conformance::suite::tolerance::of_product;
use paceline_plugin_api::graph::{Builder, DType, Graph};

const WIDTH: u32 = 64;

fn weights_of(graph: &Graph) -> Vec<Vec<u8>> {
    let values = graph.weights().map(|id| {
        let value = graph.value(id);
        let elements = value.shape.elements().unwrap() as usize;
        quantize(value.dtype, &Random::named(7, &value.name).floats(elements, 0.25)).unwrap()
    });
    values.collect()
}

fn assert_computed(graph: &Graph, x: &[f32]) {
    let bench_backend = backend();
    let bench = Bench::open(&bench_backend, 0, &[]).unwrap();
    let mut block = ParameterBlock::new(graph);
    block.set_floats("x", 0, x);
    let parameters = block.into_bytes();
    let results = bench.load(graph, &weights_of(graph)).unwrap().run(&parameters).unwrap();
    let expected = ReferenceExecutor::new(graph, weights_of(graph)).unwrap().run(&parameters).unwrap();
    compare_results(graph, &parameters, &expected, &results, of_product(DType::Q8_0)).unwrap();
}

/// Two readings of one value with other rows: each product has its own.
#[test]
fn products_of_one_start_but_other_rows_are_apart() {
    for weights in [DType::F16, DType::F32, DType::Q8_0] {
        let mut b = Builder::new();
        let x = b.parameter("x", DType::F32, &[2, 2 * WIDTH], None);
        let [left, right] = ["left", "right"].map(|name| b.weight(name, weights, &[24, WIDTH]));
        let half = b.slice(x, 0, WIDTH);
        let a = b.linear(half, left);
        let lines = b.reshape(x, &[4, WIDTH]);
        let c = b.linear(lines, right);
        b.result("a", a);
        b.result("c", c);
        assert_computed(&b.finish(), &Random::new(5).floats(4 * WIDTH as usize, 1.0));
    }
}

/// A norm whose weight begins at an odd place goes without vectors.
#[test]
fn a_norm_with_a_weight_at_an_odd_place_runs() {
    let mut b = Builder::new();
    let x = b.parameter("x", DType::F32, &[3, WIDTH], None);
    let long = b.weight("long", DType::F32, &[WIDTH + 1]);
    let norm = b.slice(long, 1, WIDTH);
    let y = b.rms_norm(x, norm, 1e-6);
    let weight = b.weight("w", DType::Q8_0, &[8, WIDTH]);
    let out = b.linear(y, weight);
    b.result("out", out);
    assert_computed(&b.finish(), &Random::new(6).floats(3 * WIDTH as usize, 1.0));
}
