//! The whole plugin on drivers without a GPU: OpenCL on the processor, and a stand-in for Level Zero.

mod level_zero;
mod opencl;

use paceline_conformance::block::ParameterBlock;
use paceline_conformance::harness::Bench;
use paceline_conformance::quant::quantize;
use paceline_conformance::random::Random;
use paceline_conformance::suite::{Suite, SuiteOptions};
use paceline_plugin_api::client::BackendClient;
use paceline_plugin_api::graph::{Builder, DType, ops};

/// Runs the whole conformance suite: every operation passes and is refused nowhere.
#[track_caller]
fn whole_suite(backend: &BackendClient) {
    let report = Suite::new(backend, SuiteOptions::default()).run();
    println!("{report}");
    assert_eq!(report.failed(), 0, "{report}");
    let operations = ops::all().map(|(operation, _)| operation);
    for group in operations.chain(["plan", "load", "launch", "semaphore", "device", "state"]) {
        let tally = report.tally(group);
        assert!(tally.passed > 0 && tally.refused == 0, "{group}: {tally:?}");
    }
}

/// Runs groups of the conformance suite, of which nothing may be refused.
#[track_caller]
fn strict_suite(backend: &BackendClient, groups: &[&str], graphs: bool) {
    let options = SuiteOptions {
        settings: vec![("graphs".into(), graphs.to_string())],
        groups: groups.iter().map(|&group| group.to_owned()).collect(),
        required: vec!["*".into()],
        ..SuiteOptions::default()
    };
    let report = Suite::new(backend, options).run();
    println!("{report}");
    assert_eq!(report.failed(), 0, "{report}");
    assert!(report.passed() > 0);
}

/// The bits of a block of a model: a norm, a product with quantised weights and one with floats, a softmax; of five rows, then
/// of each of them alone, which have to be the same.
fn bits_of(backend: &BackendClient) -> Vec<u8> {
    const ROWS: u32 = 5;
    let mut b = Builder::new();
    let live = b.parameter("rows", DType::I32, &[1], None);
    let x = b.parameter("x", DType::F32, &[ROWS, 96], Some(live));
    let norm = b.weight("norm", DType::F32, &[96]);
    let quantised = b.weight("q", DType::Q4_K, &[48, 256]);
    let float = b.weight("f", DType::F16, &[256, 96]);
    let normed = b.rms_norm(x, norm, 1e-6);
    let wide = b.linear(normed, float);
    let narrow = b.linear(wide, quantised);
    let y = b.activation(narrow, "gelu");
    b.result("y", y);
    let graph = b.finish();
    let weights: Vec<Vec<u8>> = graph
        .weights()
        .map(|id| {
            let value = graph.value(id);
            let elements = value.shape.elements().unwrap() as usize;
            quantize(value.dtype, &Random::named(7, &value.name).floats(elements, 0.1)).unwrap()
        })
        .collect();
    let values = Random::new(3).floats((ROWS * 96) as usize, 1.0);
    let bench = Bench::open(backend, 0, &[]).unwrap();
    let mut loaded = bench.load(&graph, &weights).unwrap();
    let mut run = |rows: &[f32]| {
        let mut block = ParameterBlock::new(&graph);
        block.set_integers("rows", &[rows.len() as i32 / 96]);
        block.set_floats("x", 0, rows);
        loaded.run(&block.into_bytes()).unwrap()
    };
    let all = run(&values);
    for (row, alone) in values.chunks(96).enumerate() {
        let bytes = 48 * 4;
        assert_eq!(run(alone)[..bytes], all[row * bytes..][..bytes], "row {row} alone");
    }
    all
}
