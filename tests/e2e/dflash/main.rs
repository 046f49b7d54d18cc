//! The strategy dflash: its drafts are those of the float64 reference, and texts are what they are without it.

mod cost;
mod drafts;
mod recorder;
mod texts;

use paceline_engine::{
    DrafterOptions, Engine, EngineOptions, GenerationOptions, Sampler, SamplerOptions, SequenceId,
    StrategyOptions,
};
use paceline_gguf::Gguf;
use paceline_plugin_api::graph::DType;
use paceline_strategy_gdn_replay as _;
use paceline_strategy_ngram_adaptive as _;
use paceline_tests::engines::builtin_cpu;
use paceline_tests::strategies::{drafter, engine, open, rollback};
use paceline_tests::{RandomDrafter, RandomModel, demo_drafter_q8_path, demo_q8_path};
use std::ops::ControlFlow;
use std::sync::Arc;

/// Drafts are made whether they pay or not.
fn with_drafters(drafters: Vec<DrafterOptions>, draft: Option<Arc<Gguf>>) -> StrategyOptions {
    StrategyOptions {
        drafters,
        draft,
        rollback: Some(rollback("gdn-replay")),
        controller: false,
        ..StrategyOptions::default()
    }
}

fn dflash_engine(
    files: &[Arc<Gguf>; 2],
    options: EngineOptions,
    plugin: &str,
    settings: &[(&str, &str)],
) -> Engine {
    let [target, draft] = files.clone();
    engine(target, &builtin_cpu(), options, &with_drafters(vec![drafter(plugin, settings)], Some(draft)))
}

fn plain_engine(target: &Arc<Gguf>, options: EngineOptions) -> Engine {
    engine(target.clone(), &builtin_cpu(), options, &StrategyOptions::default())
}

fn demo() -> [Arc<Gguf>; 2] {
    [open(&demo_q8_path()), open(&demo_drafter_q8_path())]
}

fn random(target: &RandomModel, draft: &RandomDrafter) -> [Arc<Gguf>; 2] {
    [target.to_bytes(), draft.to_bytes()].map(|bytes| Arc::new(Gguf::from_bytes(bytes).unwrap()))
}

/// Caches in f32, so that nothing but sums differs from the reference.
fn exact() -> EngineOptions {
    EngineOptions { kv_types: [DType::F32; 2], ..EngineOptions::default() }
}

fn greedy() -> SamplerOptions {
    SamplerOptions::default()
}

fn warm() -> SamplerOptions {
    SamplerOptions { temperature: 0.7, top_p: 0.9, seed: 11, ..SamplerOptions::default() }
}

/// Continues a sequence by `tokens` tokens.
fn continue_text(
    engine: &mut Engine,
    sequence: SequenceId,
    prompt: &[u32],
    sampling: SamplerOptions,
    tokens: usize,
) -> Vec<u32> {
    let vocabulary = engine.model().shape().vocabulary as usize;
    let mut sampler = Sampler::new(sampling, vocabulary).unwrap();
    let mut text = Vec::new();
    let options = GenerationOptions { tokens, end_tokens: &[] };
    engine
        .generate(sequence, prompt, &mut sampler, options, &mut |_| {}, &mut |token| {
            text.push(token);
            ControlFlow::Continue(())
        })
        .unwrap();
    for drafter in engine.speculation_report().drafters {
        assert_eq!(drafter.disabled, None, "{}", drafter.plugin);
    }
    text
}

/// A text of its own.
fn text(engine: &mut Engine, prompt: &[u32], sampling: SamplerOptions, tokens: usize) -> Vec<u32> {
    let sequence = engine.new_sequence().unwrap();
    let text = continue_text(engine, sequence, prompt, sampling, tokens);
    engine.end_sequence(sequence);
    text
}
