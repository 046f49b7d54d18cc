//! The parts of a family, composed anew: hidden states, and the multi-token prediction block.

use paceline_conformance::harness::{Bench, Loaded};
use paceline_engine::families::Closed;
use paceline_engine::{ContextShape, KV_BLOCK, Model, StepInputs};
use paceline_gguf::Gguf;
use paceline_plugin_api::graph::{Builder, DType, Graph, ValueId, ValueKind};
use paceline_tests::engines::builtin_cpu;
use paceline_tests::random_model::{RandomModel, WeightTypes};
use paceline_tests::reference::shifted;
use paceline_tests::test_models::demo_q8_path;
use paceline_tests::{Reference, Rows, reference_logits};
use std::sync::Arc;

fn open(bytes: Vec<u8>) -> Model {
    Model::new(Arc::new(Gguf::from_bytes(bytes).unwrap())).unwrap()
}

/// A graph of `rows` rows on one sequence; `build` makes the result "out" and gets, besides the step's inputs, the
/// f32 parameter "hidden" of a row each.
fn graph(
    model: &Model,
    rows: u32,
    build: impl Fn(&mut Builder, &StepInputs, ValueId) -> Option<ValueId>,
) -> Graph {
    let context = ContextShape {
        sequences: 1,
        positions: KV_BLOCK,
        blocks_per_sequence: 1,
        kv_types: [DType::F32; 2],
        staged_rows: 0,
        rollback_depth: 0,
    };
    let mut b = Builder::new();
    let step = StepInputs::declare(&mut b, &context, rows);
    let count = b.parameter("row_count", DType::I32, &[1], None);
    let hidden = b.parameter("hidden", DType::F32, &[rows, model.shape().hidden], Some(count));
    if let Some(out) = build(&mut b, &step, hidden) {
        b.result("out", out);
    }
    b.finish()
}

fn load(model: &Model, graph: &Graph) -> Loaded {
    let bytes = |id| model.weight_bytes(&graph.value(id).name).unwrap().into_owned();
    let weights: Vec<Vec<u8>> = graph.weights().map(bytes).collect();
    Bench::open(&builtin_cpu(), 0, &[]).unwrap().load(graph, &weights).unwrap()
}

/// The parameter block of a run of all tokens of one new sequence.
fn parameters(graph: &Graph, tokens: &[u32], hidden: &[Vec<f64>]) -> Vec<u8> {
    let mut block = vec![0; graph.parameter_bytes() as usize];
    let count = tokens.len() as i32;
    let mut put = |name: &str, values: Vec<i32>| {
        let ValueKind::Parameter { offset } = graph.value(graph.parameter(name).unwrap()).kind else {
            panic!("{name} is a parameter");
        };
        for (index, value) in values.into_iter().enumerate() {
            let at = offset as usize + index * 4;
            block[at..at + 4].copy_from_slice(&value.to_le_bytes());
        }
    };
    put("row_count", vec![count]);
    put("sequence_count", vec![1]);
    put("update_count", vec![1]);
    put("block_updates", vec![0, 0, 0]);
    put("ids", tokens.iter().map(|&t| t as i32).collect());
    put("positions", (0..count).collect());
    put("cells", (0..count).collect());
    put("sequences", vec![0, count, 0, 0]);
    put("hidden", hidden.iter().flatten().map(|&h| (h as f32).to_bits() as i32).collect());
    block
}

fn out(graph: &Graph, results: &[u8], width: usize) -> Vec<Vec<f32>> {
    let slot = graph.result("out").unwrap();
    let bytes = graph.value(slot.value).bytes().unwrap() as usize;
    let values: Vec<f32> = results[slot.offset as usize..][..bytes]
        .chunks_exact(4)
        .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
        .collect();
    values.chunks_exact(width).map(<[f32]>::to_vec).collect()
}

fn assert_close(name: &str, found: &[Vec<f32>], expected: &Rows, bound: f64) {
    for (row, (found, expected)) in found.iter().zip(expected).enumerate() {
        for (x, y) in found.iter().zip(expected) {
            assert!((f64::from(*x) - y).abs() < bound, "{name}, row {row}: {x}, expected {y}");
        }
    }
}

fn f32_variants() -> impl Iterator<Item = (&'static str, RandomModel)> {
    let is_f32 = |model: &RandomModel| matches!(model.weights, WeightTypes::All(DType::F32));
    RandomModel::variants().into_iter().filter(move |(_, model)| is_f32(model))
}

#[test]
fn hidden_states_agree_with_float64() {
    for (name, random) in f32_variants() {
        let model = open(random.to_bytes());
        let tokens = random.tokens(20, 3);
        let expected = Reference::load(model.gguf()).unwrap().trunk(&tokens).hidden;
        let family = model.family();
        let graph = graph(&model, tokens.len() as u32, |b, step, _| {
            let (x, _) = family.embed(b, step.ids);
            let x = family.trunk(b, step, &mut Closed, x).unwrap();
            Some(family.final_norm(b, x))
        });
        let results = load(&model, &graph).run(&parameters(&graph, &tokens, &[])).unwrap();
        assert_close(name, &out(&graph, &results, model.shape().hidden as usize), &expected, 1e-4);
    }
}

#[test]
fn the_prediction_block_agrees_with_float64() {
    let mut seen = 0;
    for (name, random) in f32_variants() {
        let model = open(random.to_bytes());
        let reference = Reference::load(model.gguf()).unwrap();
        let Some(nextn) = model.family().nextn() else {
            assert_eq!(random.nextn, 0, "{name}");
            continue;
        };
        seen += 1;
        let tokens = random.tokens(20, 4);
        let incoming = shifted(&reference.trunk(&tokens).hidden);
        let expected = reference.mtp(&tokens, &incoming).logits;
        let graph = graph(&model, tokens.len() as u32, |b, step, hidden| {
            let (embedded, _) = nextn.embed(b, step.ids);
            let hidden = nextn.full(b, step, embedded, hidden);
            Some(nextn.head(b, hidden))
        });
        let results = load(&model, &graph).run(&parameters(&graph, &tokens, &incoming)).unwrap();
        assert_close(name, &out(&graph, &results, model.shape().vocabulary as usize), &expected, 1e-4);
    }
    assert!(seen > 5, "{seen} models have a prediction block");
}

#[test]
fn the_key_value_pass_fills_the_same_cache() {
    let random = RandomModel { weights: DType::Q8_0.into(), ..RandomModel::default() };
    let model = open(random.to_bytes());
    let nextn = model.family().nextn().unwrap();
    let tokens = random.tokens(20, 6);
    let incoming: Vec<Vec<f64>> = (0..20)
        .map(|row| (0..random.hidden).map(|i| f64::from((row * 7 + i) % 13) * 0.1).collect())
        .collect();
    let caches = |graph: Graph| {
        let mut loaded = load(&model, &graph);
        loaded.run(&parameters(&graph, &tokens, &incoming)).unwrap();
        let names: Vec<String> = graph.states().map(|id| graph.value(id).name.clone()).collect();
        let state = |part: &str| {
            let index = names.iter().position(|name| name.ends_with(part)).unwrap();
            loaded.export_state(index).unwrap().expect("the CPU backend exports state")
        };
        [state("cache_k"), state("cache_v")]
    };
    let full = caches(graph(&model, 20, |b, step, hidden| {
        let (embedded, _) = nextn.embed(b, step.ids);
        Some(nextn.full(b, step, embedded, hidden))
    }));
    let kv_only = caches(graph(&model, 20, |b, step, hidden| {
        let (embedded, _) = nextn.embed(b, step.ids);
        nextn.kv_only(b, step, embedded, hidden);
        None
    }));
    assert!(full == kv_only, "the cache rows differ");
    assert!(full[0].iter().any(|&byte| byte != 0));
}

/// The demo's own prediction block, with the recorded prompt's hidden states from its own trunk.
#[test]
fn the_demo_predicts_two_tokens_ahead_as_recorded() {
    let model = open(std::fs::read(demo_q8_path()).unwrap());
    let family = model.family();
    let nextn = family.nextn().unwrap();
    let width = model.shape().hidden as usize;
    for prompt in reference_logits().unwrap().prompts {
        let rows = prompt.ids.len() as u32;
        let trunk = graph(&model, rows, |b, step, _| {
            let (x, _) = family.embed(b, step.ids);
            let x = family.trunk(b, step, &mut Closed, x).unwrap();
            Some(family.final_norm(b, x))
        });
        let results = load(&model, &trunk).run(&parameters(&trunk, &prompt.ids, &[])).unwrap();
        let hidden: Rows = out(&trunk, &results, width)
            .iter()
            .map(|row| row.iter().map(|&h| f64::from(h)).collect())
            .collect();
        let heads = graph(&model, rows, |b, step, hidden| {
            let (embedded, _) = nextn.embed(b, step.ids);
            let hidden = nextn.full(b, step, embedded, hidden);
            Some(nextn.head(b, hidden))
        });
        let results = load(&model, &heads).run(&parameters(&heads, &prompt.ids, &shifted(&hidden))).unwrap();
        let found = out(&heads, &results, model.shape().vocabulary as usize);
        for (position, (row, top)) in found.iter().zip(&prompt.mtp_top20).enumerate() {
            let first = (0..row.len()).rev().max_by(|&a, &b| row[a].total_cmp(&row[b])).unwrap() as u32;
            let lead = top.logits[0] - top.logits[1];
            assert!(first == top.ids[0] || lead <= 0.15, "{} at {position}: lead {lead}", prompt.name);
        }
    }
}
