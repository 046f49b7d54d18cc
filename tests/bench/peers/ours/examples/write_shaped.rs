//! Writes a random model with the shape of a published one, to be timed.
//!
//! `cargo run --release -p ours-bench --example write_shaped -- SHAPE TYPE MODEL.gguf`, where SHAPE is `0.8b` or `4b`
//! (qwen35) or `1.7b` (qwen3), and TYPE is `Q8_0`, `Q4_0`, `Q4_K_M`, `F16` or another type that all matrices get.

use paceline_plugin_api::graph::DType;
use paceline_tests::{AnyError, DenseFamily, RandomDense, RandomModel, ValueSource, WeightTypes};

const USAGE: &str = "usage: write_shaped 0.8b|4b|1.7b TYPE MODEL.gguf";

/// Qwen3 1.7B: plain attention in 28 layers.
fn qwen3_1_7b(weights: WeightTypes) -> RandomDense {
    RandomDense {
        hidden: 2048,
        layers: 28,
        ffn: 6144,
        heads: 16,
        kv_heads: 8,
        head_dim: 128,
        rotary: 128,
        vocab: 151_936,
        context: 40_960,
        rope_base: 1e6,
        weights,
        values: ValueSource::RandomBlocks,
        ..RandomDense::tiny(DenseFamily::Qwen3)
    }
}

/// Qwen3.5 4B.
fn qwen35_4b(weights: WeightTypes) -> RandomModel {
    RandomModel {
        hidden: 2560,
        layers: 32,
        ffn: 9216,
        heads: 16,
        kv_heads: 4,
        value_heads: 32,
        weights,
        ..RandomModel::shaped_0_8b()
    }
}

fn main() -> Result<(), AnyError> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [shape, types, path] = arguments.as_slice() else { return Err(USAGE.into()) };
    let weights = match types.as_str() {
        "Q4_K_M" => WeightTypes::Q4KM,
        "Q8_0" => DType::Q8_0.into(),
        "Q4_0" => DType::Q4_0.into(),
        "Q4_1" => DType::Q4_1.into(),
        "Q5_0" => DType::Q5_0.into(),
        "Q5_1" => DType::Q5_1.into(),
        "Q4_K" => DType::Q4_K.into(),
        "Q5_K" => DType::Q5_K.into(),
        "Q6_K" => DType::Q6_K.into(),
        "IQ4_NL" => DType::IQ4_NL.into(),
        "F16" => DType::F16.into(),
        "BF16" => DType::BF16.into(),
        other => return Err(format!("no type `{other}`; {USAGE}").into()),
    };
    match shape.as_str() {
        "0.8b" => RandomModel { weights, ..RandomModel::shaped_0_8b() }.write(path),
        "4b" => qwen35_4b(weights).write(path),
        "1.7b" => qwen3_1_7b(weights).write(path),
        other => Err(format!("no shape `{other}`; {USAGE}").into()),
    }
}
