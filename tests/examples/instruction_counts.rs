//! Runs whose instructions `tests/instructions.sh` counts: one row or a block of rows, on one thread, at the level of
//! AVX2, which the counting program knows. Without an argument it prints the names of the runs; with one it does that run.

use paceline_engine::{Engine, Rows, Want};
use paceline_tests::engines::{builtin_cpu, engine_of, options};
use paceline_tests::test_models::demo_q8_path;
use paceline_tests::{AnyError, RandomModel};

/// The model that is part of the repository.
const DEMO: &str = "demo-q8-0";
/// That one, and small random models with a type of weights each.
const MODELS: [&str; 7] = [DEMO, "tiny-f16", "tiny-q8-0", "tiny-q4-0", "wide-q4-k", "wide-q5-k", "wide-q6-k"];
/// One row, as to generate, and a block, as of a prompt.
const ROWS: [usize; 2] = [1, 24];

fn main() -> Result<(), AnyError> {
    let runs = MODELS.iter().flat_map(|&model| ROWS.map(|rows| (format!("{model}/{rows}"), model, rows)));
    match std::env::args().nth(1) {
        None => runs.for_each(|(name, ..)| println!("{name}")),
        Some(wanted) => {
            let (_, model, rows) =
                runs.into_iter().find(|(name, ..)| *name == wanted).ok_or("there is no such run")?;
            run(model, rows)?;
        }
    }
    Ok(())
}

fn run(model: &str, rows: usize) -> Result<(), AnyError> {
    let bytes = match model {
        DEMO => std::fs::read(demo_q8_path())?,
        name => RandomModel::variant(name).ok_or("there is no such model")?.to_bytes(),
    };
    let mut engine = engine_of(bytes, &builtin_cpu(), options(&[("threads", "1"), ("level", "avx2")]));
    let vocabulary = engine.model().shape().vocabulary;
    let tokens: Vec<u32> = (1..=rows as u32).map(|i| i * 37 % vocabulary).collect();
    let sequence = engine.new_sequence()?;
    let rows = [Rows { sequence, tokens: &tokens, outputs: 1 }];
    // What happens once is not counted.
    engine.run(&rows, Want::Ids)?;
    counted(&mut engine, &rows)
}

/// Its instructions and those of what it calls are counted.
#[inline(never)]
fn counted(engine: &mut Engine, rows: &[Rows<'_>]) -> Result<(), AnyError> {
    engine.run(rows, Want::Ids)?;
    Ok(())
}
