//! Writes the 0.8B-shaped random model with another mix of types than the Q8_0 of `write_random_model`.
//!
//! `cargo run --release -p ours-bench --example write_shaped -- Q4_K_M|Q4_0 MODEL.gguf`

use paceline_plugin_api::graph::DType;
use paceline_tests::{AnyError, RandomModel, WeightTypes};

fn main() -> Result<(), AnyError> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let weights = match arguments.first().map(String::as_str) {
        Some("Q4_K_M") => WeightTypes::Q4KM,
        Some("Q4_0") => DType::Q4_0.into(),
        _ => return Err("usage: write_shaped Q4_K_M|Q4_0 MODEL.gguf".into()),
    };
    let path = arguments.get(1).ok_or("usage: write_shaped Q4_K_M|Q4_0 MODEL.gguf")?;
    RandomModel { weights, ..RandomModel::shaped_0_8b() }.write(path)
}
