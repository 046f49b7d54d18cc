//! Hidden states that a caller reads are those of the reference, also where they go around the end of their ring.

use paceline_engine::{Engine, EngineError, EngineOptions, Rows, StrategyOptions, Want};
use paceline_gguf::Gguf;
use paceline_plugin_api::graph::DType;
use paceline_plugin_api::graph::step::Tap;
use paceline_tests::engines::builtin_cpu;
use paceline_tests::random_model::RandomModel;
use paceline_tests::reference::Reference;
use paceline_tests::strategies;
use std::sync::Arc;

fn engine(gguf: Arc<Gguf>) -> Engine {
    let strategies =
        StrategyOptions { taps: vec![Tap::Hidden, Tap::LayerInput(1)], ..StrategyOptions::default() };
    let options =
        EngineOptions { microbatch: 16, kv_types: [DType::F32; 2], sequences: 2, ..EngineOptions::default() };
    strategies::engine(gguf, &builtin_cpu(), options, &strategies)
}

#[test]
fn they_are_those_of_the_reference() {
    let model = RandomModel { weights: DType::F32.into(), ..RandomModel::default() };
    let gguf = Arc::new(Gguf::from_bytes(model.to_bytes()).unwrap());
    let mut engine = engine(gguf.clone());
    let (vocabulary, width) = (engine.model().shape().vocabulary, engine.model().shape().hidden as usize);
    let tokens: Vec<u32> = (0..150u32).map(|i| i.wrapping_mul(2_654_435_761) % vocabulary).collect();
    let expected = Reference::load(&gguf).unwrap().trunk(&tokens).hidden;
    // The second slot, so that its entries do not begin at 0.
    engine.new_sequence().unwrap();
    let sequence = engine.new_sequence().unwrap();
    let mut found = Vec::new();
    for part in tokens.chunks(16) {
        let position = engine.sequence_length(sequence);
        engine.run(&[Rows { sequence, tokens: part, outputs: 0 }], Want::Logits).unwrap();
        found.extend(engine.hidden_states(sequence, Tap::Hidden, position, part.len()).unwrap());
    }
    for (row, expected) in found.chunks_exact(width).zip(&expected) {
        for (found, expected) in row.iter().zip(expected) {
            assert!((f64::from(*found) - expected).abs() < 1e-4, "{found} is not {expected}");
        }
    }
    // Several runs at once, around the end of the ring of 80 rows.
    let last = engine.hidden_states(sequence, Tap::Hidden, 75, 75).unwrap();
    assert_eq!(last, found[75 * width..]);
    let refused = engine.hidden_states(sequence, Tap::Hidden, 60, 10).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "hidden states of 10 positions from 60 on were asked for; those of the last 80 of 150 are kept"
    );
    assert!(engine.hidden_states(sequence, Tap::Hidden, 149, 2).is_err());
    assert!(engine.hidden_states(sequence, Tap::LayerInput(0), 149, 1).is_err(), "it was not asked for");
    assert_ne!(engine.hidden_states(sequence, Tap::LayerInput(1), 140, 10).unwrap(), found[140 * width..]);
}

#[test]
fn a_layer_that_is_not_there_is_refused() {
    let gguf = Arc::new(Gguf::from_bytes(RandomModel::default().to_bytes()).unwrap());
    let model = paceline_engine::Model::new(gguf).unwrap();
    let layers = model.shape().layers.len() as u32;
    let plan = |layer| {
        let strategies = StrategyOptions { taps: vec![Tap::LayerInput(layer)], ..StrategyOptions::default() };
        Engine::plan(&model, &builtin_cpu(), EngineOptions::default(), &strategies)
    };
    assert!(plan(layers).is_ok(), "behind the last layer");
    assert!(matches!(plan(layers + 1), Err(EngineError::Request(_))));
}
