//! Writes a random model, and on request a drafter for it.
//!
//! `cargo run -p paceline-tests --example write_random_model -- VARIANT MODEL.gguf [DRAFTER.gguf]`, where VARIANT is
//! a name of `RandomModel::variants()` or `shaped-0.8b`, or, without a drafter, one of `RandomDense::variants()`.

use paceline_tests::{AnyError, RandomDense, RandomDrafter, RandomModel};

fn main() -> Result<(), AnyError> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (variant, path, drafter_path) = match arguments.as_slice() {
        [variant, path] => (variant, path, None),
        [variant, path, drafter] => (variant, path, Some(drafter)),
        _ => return Err("usage: write_random_model VARIANT MODEL.gguf [DRAFTER.gguf]".into()),
    };
    if let Some(model) = RandomDense::variant(variant) {
        return match drafter_path {
            None => model.write(path),
            Some(_) => Err(format!("there are no drafters for '{variant}'").into()),
        };
    }
    let model = match variant.as_str() {
        "shaped-0.8b" => RandomModel::shaped_0_8b(),
        name => RandomModel::variant(name).ok_or_else(|| {
            let dense = RandomDense::variants().into_iter().map(|variant| variant.0);
            let names: Vec<_> =
                RandomModel::variants().into_iter().map(|variant| variant.0).chain(dense).collect();
            format!("no variant '{name}'; there are shaped-0.8b, {}", names.join(", "))
        })?,
    };
    model.write(path)?;
    match drafter_path {
        Some(path) => RandomDrafter::for_target(&model).write(path),
        None => Ok(()),
    }
}
