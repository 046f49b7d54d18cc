//! Where the target draws its tokens, drafters guess by drawing with the same noise: more of their guesses are right, and the text
//! stays what it is.

use paceline_engine::{Engine, EngineOptions, StrategyOptions};
use paceline_gguf::Gguf;
use paceline_plugin_api::client::BackendClient;
use paceline_tests::engines::builtin_cpu;
use paceline_tests::prompts::prompts;
use paceline_tests::strategies::{Drafters, engine, open, strategies};
use paceline_tests::test_models::{demo_drafter_q8_path, demo_q8_path};
use paceline_tests::texts::{Text, Wish, generate_alone};
use paceline_tests::trimmed::with_draft_head;
use std::sync::Arc;
use {paceline_strategy_dflash as _, paceline_strategy_gdn_replay as _, paceline_strategy_mtp_chain as _};

fn start(backend: &BackendClient, gguf: &Arc<Gguf>, drafters: Drafters<'_>) -> Engine {
    let options = EngineOptions { context: Some(512), ..EngineOptions::default() };
    let strategies = StrategyOptions {
        draft: drafters.iter().any(|(id, _)| *id == "dflash").then(|| open(&demo_drafter_q8_path())),
        ..strategies(drafters, true)
    };
    engine(gguf.clone(), backend, options, &strategies)
}

/// The texts of a wish, and how many guesses were right.
fn guessed(
    backend: &BackendClient,
    gguf: &Arc<Gguf>,
    drafters: Drafters<'_>,
    wish: &Wish<'_>,
) -> (Vec<Text>, u64) {
    let mut engine = start(backend, gguf, drafters);
    let texts = generate_alone(&mut engine, wish);
    (texts, engine.speculation_report().drafters[0].accepted)
}

#[test]
fn more_guesses_are_right_and_the_text_stays() {
    let gguf = open(&demo_q8_path());
    let prompts: Vec<Vec<u32>> = prompts("code", &gguf).unwrap().into_iter().take(4).map(|p| p.ids).collect();
    let mut wish = Wish::drawn(&prompts, 80);
    wish.sampling.top_p = 1.0;
    let expected = generate_alone(&mut start(&builtin_cpu(), &gguf, &[]), &wish);
    let trimmed = with_draft_head(&gguf, &(0..4096).rev().collect::<Vec<u32>>());
    for (name, gguf, id, depth) in [
        ("chain", &gguf, "mtp-chain", "3"),
        ("trimmed head", &trimmed, "mtp-chain", "3"),
        ("block", &gguf, "dflash", "4"),
    ] {
        let accepted = |draw: &str| {
            let (texts, accepted) =
                guessed(&builtin_cpu(), gguf, &[(id, &[("depth", depth), ("draw", draw)])], &wish);
            assert!(texts == expected, "{name}, draw = {draw}");
            accepted
        };
        let (likeliest, drawn) = (accepted("false"), accepted("true"));
        println!("{name}: {likeliest} of the likeliest tokens were right, {drawn} of those drawn");
        assert!(drawn > likeliest, "{name}: {drawn} {likeliest}");
    }
}
