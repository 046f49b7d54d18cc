//! Writes the 0.8B-shaped random model with the mix of types that is called Q4_K_M.
//!
//! `cargo run --release -p ours-bench --example write_shaped_q4_k_m -- MODEL.gguf`

use paceline_tests::{AnyError, RandomModel, WeightTypes};

fn main() -> Result<(), AnyError> {
    let path = std::env::args().nth(1).ok_or("usage: write_shaped_q4_k_m MODEL.gguf")?;
    RandomModel { weights: WeightTypes::Q4KM, ..RandomModel::shaped_0_8b() }.write(path)
}
