//! Drafting with a head over a part of the vocabulary: other guesses, the same text.

use paceline_engine::{Engine, EngineError, EngineOptions, Model, StrategyOptions};
use paceline_gguf::Gguf;
use paceline_tests::engines::builtin_cpu;
use paceline_tests::prompts::prompts;
use paceline_tests::strategies::{drafter, engine, open, rollback};
use paceline_tests::test_models::demo_q8_path;
use paceline_tests::texts::{Wish, generate_alone};
use paceline_tests::trimmed::{with_draft_head, with_draft_head_ids};
use std::sync::Arc;
use {paceline_strategy_gdn_replay as _, paceline_strategy_mtp_chain as _};

fn drafting(gguf: Arc<Gguf>, head: &str) -> Engine {
    let strategies = StrategyOptions {
        drafters: vec![drafter("mtp-chain", &[("depth", "4"), ("head", head)])],
        rollback: Some(rollback("gdn-replay")),
        controller: false,
        ..StrategyOptions::default()
    };
    engine(
        gguf,
        &builtin_cpu(),
        EngineOptions { context: Some(1024), ..EngineOptions::default() },
        &strategies,
    )
}

fn code_prompts(gguf: &Gguf) -> Vec<Vec<u32>> {
    prompts("code", gguf).unwrap().into_iter().take(4).map(|prompt| prompt.ids).collect()
}

#[test]
fn a_smaller_head_guesses_less_and_says_the_same() {
    let whole = open(&demo_q8_path());
    let prompts = code_prompts(&whole);
    let wish = Wish::greedy(&prompts, 60);
    let mut plain =
        engine(whole.clone(), &builtin_cpu(), EngineOptions::default(), &StrategyOptions::default());
    let expected = generate_alone(&mut plain, &wish);
    let full_bytes = whole.require_tensor("token_embd.weight").unwrap().dims.iter().product::<u64>();
    let mut acceptances = Vec::new();
    for kept in [8192, 4096, 2048, 512] {
        let ids: Vec<u32> = (0..kept).collect();
        let mut engine = drafting(with_draft_head(&whole, &ids), "trimmed");
        assert!(generate_alone(&mut engine, &wish) == expected, "{kept} tokens kept");
        let report = engine.speculation_report();
        assert!(report.drafters[0].explanation.contains("trimmed head"));
        let acceptance = report.acceptance().unwrap();
        println!(
            "{kept:5} of 8192 tokens kept: acceptance {acceptance:.3}, {:.2} of the head's bytes",
            f64::from(kept) * 512.0 / full_bytes as f64
        );
        acceptances.push(acceptance);
    }
    // All tokens in the trimmed head are the full head.
    let mut full = drafting(whole.clone(), "full");
    assert!(generate_alone(&mut full, &wish) == expected);
    assert_eq!(full.speculation_report().acceptance().unwrap(), acceptances[0]);
    assert!(acceptances.is_sorted_by(|more, less| more >= less), "{acceptances:?}");
    assert!(acceptances[3] < acceptances[0], "{acceptances:?}");
}

#[test]
fn the_setting_decides_and_a_file_without_the_head_is_refused() {
    let whole = open(&demo_q8_path());
    let trimmed = with_draft_head(&whole, &[1, 5, 9]);
    let explanation = |gguf: &Arc<Gguf>, head: &str| {
        drafting(gguf.clone(), head).speculation_report().drafters[0].explanation.clone()
    };
    assert!(explanation(&trimmed, "auto").contains("trimmed head"));
    assert!(explanation(&trimmed, "full").contains("full head"));
    assert!(explanation(&whole, "auto").contains("full head"));
    let strategies = StrategyOptions {
        drafters: vec![drafter("mtp-chain", &[("head", "trimmed")])],
        ..StrategyOptions::default()
    };
    let model = Model::new(whole).unwrap();
    let refused = Engine::plan(&model, &builtin_cpu(), EngineOptions::default(), &strategies);
    let Err(EngineError::StrategyRefused { source, .. }) = refused else { panic!("it is refused") };
    assert_eq!(
        source.message,
        "setting `head` is trimmed, but the model file has no trimmed head: make one with `paceline tools trim-head`"
    );
}

/// A damaged file may name tokens that do not exist: its drafts are dropped, the text stays.
#[test]
fn wrong_ids_only_cost_time() {
    let whole = open(&demo_q8_path());
    let prompts = code_prompts(&whole);
    let wish = Wish::greedy(&prompts[..2], 40);
    let mut plain =
        engine(whole.clone(), &builtin_cpu(), EngineOptions::default(), &StrategyOptions::default());
    let expected = generate_alone(&mut plain, &wish);
    let kept: Vec<u32> = (0..2048).collect();
    for ids in [vec![-1; 2048], vec![1_000_000; 2048], (0..2048).rev().collect()] {
        let mut engine = drafting(with_draft_head_ids(&whole, &kept, &ids), "trimmed");
        assert!(generate_alone(&mut engine, &wish) == expected);
        assert!(engine.speculation_report().acceptance().unwrap_or(0.0) < 0.1);
    }
}
