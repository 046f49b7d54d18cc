//! Writes random models with the shapes of models that fill a large GPU, to be timed on one.
//!
//! `cargo run --release -p paceline-tests --example write_cuda_shapes -- SHAPE MODEL.gguf`, where SHAPE is
//! `qwen3-8b-q4_k_m`, `qwen3-8b-q8_0` or `qwen35-27b-q4_k_m`.

use paceline_plugin_api::graph::DType;
use paceline_tests::{AnyError, DenseFamily, RandomDense, RandomModel, ValueSource, WeightTypes};

fn qwen3_8b(weights: WeightTypes) -> RandomDense {
    RandomDense {
        hidden: 4096,
        layers: 36,
        ffn: 12_288,
        heads: 32,
        kv_heads: 8,
        head_dim: 128,
        rotary: 128,
        vocab: 151_936,
        tied: false,
        context: 40_960,
        rope_base: 1e6,
        weights,
        values: ValueSource::RandomBlocks,
        ..RandomDense::tiny(DenseFamily::Qwen3)
    }
}

fn main() -> Result<(), AnyError> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [shape, path] = arguments.as_slice() else {
        return Err("usage: write_cuda_shapes SHAPE MODEL.gguf".into());
    };
    match shape.as_str() {
        "qwen3-8b-q4_k_m" => qwen3_8b(WeightTypes::Q4KM).write(path),
        "qwen3-8b-q8_0" => qwen3_8b(WeightTypes::All(DType::Q8_0)).write(path),
        "qwen35-27b-q4_k_m" => {
            RandomModel { weights: WeightTypes::Q4KM, ..RandomModel::shaped_27b() }.write(path)
        }
        other => {
            Err(format!("no shape `{other}`; there are qwen3-8b-q4_k_m, qwen3-8b-q8_0, qwen35-27b-q4_k_m")
                .into())
        }
    }
}
