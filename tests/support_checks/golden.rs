//! The reference against a second one in another language, for random models. See `golden/reference.py`.

use std::path::Path;

use paceline_tests::reference::shifted;
use paceline_tests::{RandomDense, RandomDrafter, RandomModel, Reference, Rows};
use serde::Deserialize;

use crate::{drafter_of, file_of, largest_difference, reference_of};

/// The weights are the same f32 numbers, but a machine's mathematical library may round the normal numbers they
/// come from in another way.
const TOLERANCE: f64 = 1e-6;

#[derive(Deserialize)]
struct Golden {
    variant: String,
    tokens: Vec<u32>,
    positions: Vec<usize>,
    trunk: Rows,
    #[serde(default)]
    mtp: Rows,
    #[serde(default)]
    block_rows: Vec<usize>,
    #[serde(default)]
    drafter: Rows,
}

fn check(what: &str, computed: &[Vec<f64>], rows: &[usize], golden: &Rows) {
    let computed: Rows =
        rows.iter().zip(golden).map(|(row, golden)| computed[*row][..golden.len()].to_vec()).collect();
    let difference = largest_difference(&computed, golden);
    println!("{what}: largest difference {difference:.2e}");
    assert!(difference <= TOLERANCE, "{what}: {difference}");
}

fn golden(name: &str) -> Golden {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("golden/{name}.json"));
    let golden: Golden = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    assert_eq!(golden.variant, name);
    golden
}

fn check_dense_variant(name: &str) {
    let golden = golden(name);
    let model = RandomDense::variant(name).unwrap();
    let trunk = Reference::load(&file_of(model.to_bytes())).unwrap().trunk(&golden.tokens);
    check(&format!("{name} trunk"), &trunk.logits, &golden.positions, &golden.trunk);
}

fn check_variant(name: &str) {
    let golden = golden(name);
    let model = RandomModel::variant(name).unwrap();
    let target = reference_of(&model);
    let trunk = target.trunk(&golden.tokens);
    check(&format!("{name} trunk"), &trunk.logits, &golden.positions, &golden.trunk);
    let mtp = target.mtp(&golden.tokens, &shifted(&trunk.hidden));
    check(&format!("{name} MTP"), &mtp.logits, &golden.positions, &golden.mtp);
    if !golden.drafter.is_empty() {
        let drafter = drafter_of(&RandomDrafter::for_target(&model));
        let block = drafter.block(&target, &drafter.features(&trunk), &drafter.block_tokens(42, 7));
        check(&format!("{name} drafter"), &block, &golden.block_rows, &golden.drafter);
    }
}

#[test]
fn a_second_implementation_agrees_on_the_tiny_model() {
    check_variant("tiny");
}

#[test]
fn a_second_implementation_agrees_on_three_value_heads_per_key_head_and_an_untied_head() {
    check_variant("heads-1-to-3");
}

#[test]
fn a_second_implementation_agrees_on_a_given_attention_scale() {
    check_variant("attention-scale");
}

#[test]
fn a_second_implementation_agrees_on_quantised_weights() {
    check_variant("wide-q4-k-m");
}

#[test]
fn a_second_implementation_agrees_on_qwen3() {
    for name in ["qwen3", "qwen3-heads-1-to-4", "qwen3-partial-rotary"] {
        check_dense_variant(name);
    }
}

#[test]
fn a_second_implementation_agrees_on_llama() {
    for name in ["llama-heads-1-to-1", "llama-factors", "llama-linear-scaling", "llama-biases"] {
        check_dense_variant(name);
    }
}
