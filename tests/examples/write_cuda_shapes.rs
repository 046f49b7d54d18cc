//! Writes random models with the shapes of models that fill a large GPU, to be timed on one.
//!
//! `cargo run --release -p paceline-tests --example write_cuda_shapes -- SHAPE MODEL.gguf [LAYERS]`, where SHAPE is
//! `qwen3-8b-q4_k_m`, `qwen3-8b-q8_0`, `qwen3-30b-a3b-q4_k_m` or `qwen35-27b-q4_k_m`, and LAYERS a smaller number of layers for
//! those of Qwen3.

use paceline_plugin_api::graph::DType;
use paceline_tests::{
    AnyError, DenseFamily, RandomDense, RandomExperts, RandomModel, ValueSource, WeightTypes,
};

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

fn qwen3_30b_a3b(weights: WeightTypes) -> RandomDense {
    RandomDense {
        family: DenseFamily::Qwen3Moe,
        hidden: 2048,
        layers: 48,
        ffn: 6144,
        experts: RandomExperts { count: 128, used: 8, inner: 768, shared: 0, merged: false },
        heads: 32,
        kv_heads: 4,
        ..qwen3_8b(weights)
    }
}

fn main() -> Result<(), AnyError> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [shape, path, layers @ ..] = arguments.as_slice() else {
        return Err("usage: write_cuda_shapes SHAPE MODEL.gguf [LAYERS]".into());
    };
    let layers: Option<u32> = layers.first().map(|layers| layers.parse()).transpose()?;
    let write = |model: RandomDense| {
        RandomDense { layers: layers.unwrap_or(model.layers).min(model.layers), ..model }.write(path)
    };
    match shape.as_str() {
        "qwen3-8b-q4_k_m" => write(qwen3_8b(WeightTypes::Q4KM)),
        "qwen3-8b-q8_0" => write(qwen3_8b(WeightTypes::All(DType::Q8_0))),
        "qwen3-30b-a3b-q4_k_m" => write(qwen3_30b_a3b(WeightTypes::Q4KM)),
        "qwen35-27b-q4_k_m" => {
            RandomModel { weights: WeightTypes::Q4KM, ..RandomModel::shaped_27b() }.write(path)
        }
        other => {
            Err(format!(
                "no shape `{other}`; there are qwen3-8b-q4_k_m, qwen3-8b-q8_0, qwen3-30b-a3b-q4_k_m, qwen35-27b-q4_k_m"
            )
            .into())
        }
    }
}
