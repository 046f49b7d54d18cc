//! The engine against independent computations: float64 for random models, recorded outputs for the demo.

use paceline_engine::{Engine, EngineOptions, Rows, Want};
use paceline_gguf::Gguf;
use paceline_plugin_api::graph::DType;
use paceline_tests::engines::{builtin_cpu, engine_at, engine_of, logits, options};
use paceline_tests::random_model::{RandomDense, RandomModel, WeightTypes};
use paceline_tests::test_models::{TopLogits, demo_q8_path, reference_logits};
use paceline_tests::{Reference, test_models_or_skip};

fn f32_cache() -> EngineOptions {
    EngineOptions { kv_types: [DType::F32; 2], ..options(&[]) }
}

/// How far the engine's logits are from the float64 reference.
struct Difference {
    largest: f64,
    /// Root mean square, relative to that of the reference.
    relative: f64,
}

/// A random model of any family: its file, a prompt, and the types of its weights.
struct Random {
    name: &'static str,
    bytes: Vec<u8>,
    tokens: Vec<u32>,
    weights: WeightTypes,
}

fn random_models() -> impl Iterator<Item = Random> {
    let hybrid = RandomModel::variants().into_iter().map(|(name, model)| Random {
        name,
        bytes: model.to_bytes(),
        tokens: model.tokens(24, 5),
        weights: model.weights,
    });
    let dense = RandomDense::variants().into_iter().map(|(name, model)| Random {
        name,
        bytes: model.to_bytes(),
        tokens: model.tokens(24, 5),
        weights: model.weights,
    });
    hybrid.chain(dense)
}

fn compare_with_float64(model: Random) -> Difference {
    let Random { bytes, tokens, .. } = model;
    let reference = Reference::load(&Gguf::from_bytes(bytes.clone()).unwrap()).unwrap();
    let expected = reference.trunk(&tokens).logits;
    let mut engine = engine_of(bytes, &builtin_cpu(), f32_cache());
    let sequence = engine.new_sequence().unwrap();
    let found = logits(&mut engine, sequence, &tokens, 7);
    let (mut largest, mut squares, mut expected_squares) = (0.0f64, 0.0, 0.0);
    for (expected, found) in expected.iter().flatten().zip(found.iter().flatten()) {
        let difference = expected - f64::from(*found);
        largest = largest.max(difference.abs());
        squares += difference * difference;
        expected_squares += expected * expected;
    }
    Difference { largest, relative: (squares / expected_squares).sqrt() }
}

#[test]
fn random_f32_models_agree_with_float64() {
    for model in random_models() {
        let name = model.name;
        if matches!(model.weights, WeightTypes::All(DType::F32)) {
            let Difference { largest, relative } = compare_with_float64(model);
            println!("{name}: largest {largest:.1e}, relative {relative:.1e}");
            assert!(largest < 1e-4, "{name}: {largest}");
        }
    }
}

/// The reference reads the same rounded weights, so what remains is the rounding of activations to 8 bits.
#[test]
fn random_models_of_other_types_agree_within_the_rounding_of_activations() {
    for model in random_models() {
        let name = model.name;
        let bound = match model.weights {
            WeightTypes::All(DType::F32) => continue,
            WeightTypes::All(DType::F16 | DType::BF16) => 1e-5,
            _ => 0.03,
        };
        let Difference { largest, relative } = compare_with_float64(model);
        println!("{name}: largest {largest:.1e}, relative {relative:.1e}");
        assert!(relative < bound, "{name}: {relative}");
    }
}

/// What the demo's logits are compared by.
struct Bounds {
    /// Largest difference of any of the top logits.
    difference: f64,
    /// The first must be the same where it leads by more than this.
    margin: f64,
}

struct Comparison {
    largest: f64,
    mean: f64,
    other_first: usize,
}

fn margin(top: &TopLogits) -> f64 {
    top.logits[0] - top.logits[1]
}

fn compare_with_recorded(engine: &mut Engine, bounds: &Bounds) -> Comparison {
    let mut all = Comparison { largest: 0.0, mean: 0.0, other_first: 0 };
    let mut count = 0;
    for prompt in reference_logits().unwrap().prompts {
        let sequence = engine.new_sequence().unwrap();
        let found = logits(engine, sequence, &prompt.ids, 16);
        engine.end_sequence(sequence);
        for (position, (top, row)) in prompt.logits_top20.iter().zip(&found).enumerate() {
            for (&id, &expected) in top.ids.iter().zip(&top.logits) {
                let difference = (f64::from(row[id as usize]) - expected).abs();
                all.largest = all.largest.max(difference);
                all.mean += difference;
                count += 1;
            }
            let first = (0..row.len()).rev().max_by(|&a, &b| row[a].total_cmp(&row[b])).unwrap() as u32;
            if first != top.ids[0] {
                all.other_first += 1;
                let lead = margin(top);
                assert!(lead <= bounds.margin, "{} at {position}: lead {lead}", prompt.name);
            }
        }
    }
    all.mean /= f64::from(count);
    assert!(all.largest <= bounds.difference, "the largest difference is {}", all.largest);
    all
}

/// Greedy continuations equal the recorded ones up to the first position where two tokens are nearly tied.
fn compare_greedy_text(engine: &mut Engine, bounds: &Bounds) {
    for prompt in reference_logits().unwrap().prompts {
        let sequence = engine.new_sequence().unwrap();
        let mut rows = logits(engine, sequence, &prompt.ids, 16);
        let mut equal = 0;
        for &expected in &prompt.greedy_64 {
            let row = rows.pop().unwrap();
            let first = (0..row.len()).rev().max_by(|&a, &b| row[a].total_cmp(&row[b])).unwrap();
            if first as u32 != expected {
                let lead = f64::from(row[first] - row[expected as usize]);
                assert!(lead <= bounds.margin, "{} after {equal} tokens: lead {lead}", prompt.name);
                break;
            }
            equal += 1;
            let step = [Rows { sequence, tokens: &[expected], outputs: 1 }];
            rows.push(engine.run(&step, Want::Logits).unwrap().logits(0).unwrap().to_vec());
        }
        engine.end_sequence(sequence);
        println!("{}: {equal} of {} greedy tokens are equal", prompt.name, prompt.greedy_64.len());
    }
}

fn check(path: &std::path::Path, bounds: &Bounds) {
    let mut engine = engine_at(path, &builtin_cpu(), options(&[]));
    let found = compare_with_recorded(&mut engine, bounds);
    println!(
        "largest difference {:.4}, mean {:.5}, other first token at {} near ties",
        found.largest, found.mean, found.other_first
    );
    compare_greedy_text(&mut engine, bounds);
}

#[test]
fn the_demo_in_q8_0_agrees_with_its_recorded_outputs() {
    check(&demo_q8_path(), &Bounds { difference: 0.5, margin: 0.15 });
}

#[test]
fn the_demo_in_f16_agrees_with_its_recorded_outputs() {
    let models = test_models_or_skip!();
    check(&models.join("demo-qwen35-F16.gguf"), &Bounds { difference: 2e-2, margin: 4e-2 });
}
