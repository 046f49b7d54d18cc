//! What numbers that are too small for full precision cost: a step of the delta rule whose state holds them, against the same step
//! with ordinary numbers, in turns, on one thread. Processors may take a hundred times as long for one of them, and a state that
//! decays ends there. `subnormal_cost [rows]`.

use paceline_conformance::block::ParameterBlock;
use paceline_conformance::harness::{Bench, Loaded};
use paceline_conformance::random::Random;
use paceline_plugin_api::graph::{Builder, DType, Graph, StateKind};
use paceline_tests::engines::builtin_cpu;
use std::time::Instant;

const HEADS: u32 = 16;
const WIDTH: u32 = 128;
const ROUNDS: usize = 400;

fn graph(rows: u32) -> Graph {
    let mut b = Builder::new();
    let [q, k, v] = ["q", "k", "v"].map(|name| b.parameter(name, DType::F32, &[rows, HEADS, WIDTH], None));
    let [decay, beta] = ["decay", "beta"].map(|name| b.parameter(name, DType::F32, &[rows, HEADS], None));
    let sequences = b.parameter("sequences", DType::I32, &[1, 4], None);
    let state = b.state("state", StateKind::PerSlot, DType::F32, &[1, HEADS, WIDTH, WIDTH]);
    let out = b.gated_delta_net([q, k, v, decay, beta], state, sequences, 0.1);
    b.result("out", out);
    b.finish()
}

/// Milliseconds of a run from a state of this size.
fn time(loaded: &mut Loaded, state: &[u8], parameters: &[u8]) -> f64 {
    loaded.import_state(0, state).expect("it fits").expect("states can be imported");
    let start = Instant::now();
    loaded.run(parameters).expect("it runs");
    start.elapsed().as_secs_f64() * 1e3
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn main() {
    let rows: u32 = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(1);
    let graph = graph(rows);
    let backend = builtin_cpu();
    let bench = Bench::open(&backend, 0, &[("threads".into(), "1".into())]).expect("a device");
    let mut loaded = bench.load(&graph, &[]).expect("it loads");
    let mut random = Random::new(1);
    let mut block = ParameterBlock::new(&graph);
    let elements = (rows * HEADS * WIDTH) as usize;
    for name in ["q", "k"] {
        block.set_floats(name, 0, &random.floats(elements, 0.1));
    }
    // Nothing is written and little is lost, so that the state keeps its size.
    block.set_floats("v", 0, &vec![0.0; elements]);
    block.set_floats("decay", 0, &vec![-0.01; (rows * HEADS) as usize]);
    block.set_floats("beta", 0, &vec![0.0; (rows * HEADS) as usize]);
    block.set_integers("sequences", &[0, rows as i32, 100, 0]);
    let parameters = block.into_bytes();
    let states = [1e-3f32, 1e-39].map(|size| -> Vec<u8> {
        let values = random.floats((HEADS * WIDTH * WIDTH) as usize, size);
        values.iter().flat_map(|value| value.to_le_bytes()).collect()
    });
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        for (state, times) in states.iter().zip(&mut times) {
            times.push(time(&mut loaded, state, &parameters));
        }
    }
    let [ordinary, small] = times.map(median);
    println!(
        "{rows} rows: {ordinary:.3} ms, with subnormal state {small:.3} ms, {:.2} times as long",
        small / ordinary
    );
}
