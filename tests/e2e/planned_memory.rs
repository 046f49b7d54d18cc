//! What taking rows back costs in memory, by the plan of a model that is too big to be run here.

use paceline_engine::{Engine, EngineOptions, Model, StrategyOptions};
use paceline_tests::engines::{builtin_cpu, engine_of, options};
use paceline_tests::random_model::RandomModel;
use paceline_tests::strategies::{self, open, strategies};
use std::sync::Arc;
use {
    paceline_strategy_gdn_replay as _, paceline_strategy_mtp_chain as _,
    paceline_strategy_ngram_adaptive as _,
};

/// Recurrent layers, and elements of one: heads of values times widths of keys and values; rows of the convolution
/// times its channels.
const LAYERS: u64 = 48;
const STATE: u64 = 48 * 128 * 128;
const CONVOLUTION: u64 = 3 * (2 * 16 * 128 + 48 * 128);
/// A record: delta, key and decay of a token.
const RECORD: u64 = 48 * 128 + 16 * 128 + 48;

fn recurrent_bytes(model: &Model, depth: u32, replay: bool, sequences: u32) -> u64 {
    let options = EngineOptions { context: Some(4096), sequences, ..options(&[]) };
    let strategies =
        StrategyOptions { most_verified: depth, ..strategies(&[("ngram-adaptive", &[])], replay) };
    let plan = Engine::plan(model, &builtin_cpu(), options, &strategies).unwrap();
    let rows = plan.rows().iter().filter(|row| row.what == "recurrent state");
    rows.map(|row| row.bytes).sum()
}

#[test]
fn the_27b_model_takes_what_was_worked_out_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("27b.gguf");
    RandomModel::shaped_27b().write_empty(&path).unwrap();
    let model = Model::new(open(&path)).unwrap();
    let mebibytes = |bytes: u64| (bytes as f64 / f64::from(1 << 20) * 10.0).round() / 10.0;
    let snapshots = |depth: u64| LAYERS * (depth + 1) * (STATE + CONVOLUTION) * 4;
    let replay = |depth: u64| LAYERS * (STATE + 2 * (depth + 1) * RECORD + (depth + 1) * CONVOLUTION) * 4;
    for (depth, with_replay, bytes, shown) in [
        (3, false, snapshots(3), 598.5),
        (4, false, snapshots(4), 748.1),
        (8, false, snapshots(8), 1346.6),
        (15, false, snapshots(15), 2394.0),
        (3, true, replay(3), 178.6),
        (4, true, replay(4), 187.2),
        (8, true, replay(8), 221.8),
        (15, true, replay(15), 282.3),
    ] {
        let planned = recurrent_bytes(&model, depth, with_replay, 1);
        assert_eq!((planned, mebibytes(planned)), (bytes, shown), "depth {depth}, replay {with_replay}");
    }
    assert_eq!(recurrent_bytes(&model, 4, true, 3), 3 * replay(4));

    // Without strategies: one state.
    let bare = Engine::plan(&model, &builtin_cpu(), options(&[]), &StrategyOptions::default()).unwrap();
    let row = bare.rows().iter().find(|row| row.what == "recurrent state").unwrap();
    assert_eq!(row.bytes, LAYERS * (STATE + CONVOLUTION) * 4);
}

#[test]
fn a_context_with_strategies_holds_what_was_planned() {
    let bytes = RandomModel::default().to_bytes();
    let backend = builtin_cpu();
    let gguf = Arc::new(paceline_gguf::Gguf::from_bytes(bytes.clone()).unwrap());
    let before = engine_of(bytes, &backend, options(&[])).memory().total();
    for replay in [false, true] {
        let drafters: strategies::Drafters<'_> = &[("mtp-chain", &[("depth", "4")]), ("ngram-adaptive", &[])];
        let strategies = strategies(drafters, replay);
        let model = Model::new(gguf.clone()).unwrap();
        let planned = Engine::plan(&model, &backend, options(&[]), &strategies).unwrap();
        let engine = strategies::engine(gguf.clone(), &backend, options(&[]), &strategies);
        assert_eq!(*engine.memory(), planned);
        assert_eq!(engine.counters().unwrap().arena_bytes, planned.total());
        assert!(planned.total() > before);
        let rows: Vec<&str> = planned.rows().iter().map(|row| row.what).collect();
        for part in ["hidden states for strategies", "strategies' caches"] {
            assert!(rows.contains(&part), "{rows:?}");
        }
    }
}
