//! What `mtp-chain` guesses: as recorded for the demo, the same in all of its forms, and mostly right.
//!
//! The host does not show drafts, so a recorder stands around the real drafter.

use paceline_engine::{Engine, EngineOptions, StrategyOptions};
use paceline_gguf::Gguf;
use paceline_plugin_api::drafter_plugin;
use paceline_plugin_api::graph::DType;
use paceline_strategy_gdn_replay as _;
use paceline_strategy_mtp_chain::MtpChain;
use paceline_tests::engines::{builtin_cpu, options};
use paceline_tests::prompts::prompts;
use paceline_tests::random_model::RandomModel;
use paceline_tests::recorder::{Recorder, take_proposals};
use paceline_tests::strategies::{engine, open, strategies};
use paceline_tests::test_models::{TopLogits, demo_q8_path, reference_logits};
use paceline_tests::texts::{Wish, generate_alone};
use paceline_tests::{test_models_or_skip, test_strategy};
use std::path::Path;
use std::sync::{Arc, Mutex};

/// Tests that look at drafts run one at a time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

drafter_plugin!(test_strategy!("recorder"), Recorder<MtpChain>, Recorder(MtpChain));

fn with(gguf: &Arc<Gguf>, kv_type: DType, settings: &[(&str, &str)]) -> Engine {
    let options = EngineOptions { kv_types: [kv_type; 2], context: Some(1024), ..options(&[]) };
    engine(gguf.clone(), &builtin_cpu(), options, &strategies(&[("recorder", settings)], true))
}

/// The drafts of a greedy text behind a prompt.
fn drafts(engine: &mut Engine, prompt: &[u32], tokens: usize) -> Vec<Vec<u32>> {
    take_proposals("");
    generate_alone(engine, &Wish::greedy(&[prompt.to_vec()], tokens));
    take_proposals("").into_iter().map(|proposal| proposal.tokens).collect()
}

/// Drafts equal recorded ones, up to the first that two tokens are nearly tied for.
fn assert_recorded(name: &str, found: &[u32], recorded: &[u32], tops: &[TopLogits], margin: f64) -> usize {
    assert_eq!((found.len(), recorded.len()), (4, 4), "{name}");
    for (step, ((found, recorded), top)) in found.iter().zip(recorded).zip(tops).enumerate() {
        let lead = top.logits[0] - top.logits[1];
        if found != recorded {
            assert!(
                lead <= margin,
                "{name}, step {step}: {found}, recorded is {recorded} with a lead of {lead}"
            );
            return step;
        }
    }
    4
}

/// Both recorded chains of every prompt; gives how many of their tokens were compared.
fn compare_with_recorded(path: &Path, kv_type: DType, margin: f64) -> usize {
    let gguf = open(path);
    let mut compared = 0;
    for form in ["chain", "loop"] {
        let mut after_prompt = with(&gguf, kv_type, &[("depth", "4"), ("form", form)]);
        for prompt in reference_logits().unwrap().prompts {
            let chain = &prompt.mtp_chain;
            let found = drafts(&mut after_prompt, &prompt.ids, 6);
            let name = format!("{} by {form}", prompt.name);
            compared += assert_recorded(&name, &found[0], &chain.drafts, &chain.top20, margin);

            let (last, before) = prompt.ids.split_last().unwrap();
            let settings = [("depth", "4"), ("form", form), ("first_anchor", &last.to_string())];
            let found = drafts(&mut with(&gguf, kv_type, &settings), before, 6);
            let recorded = &prompt.from_last_prompt_token;
            let name = format!("{name}, from the last token of the prompt");
            compared += assert_recorded(&name, &found[0], &recorded.mtp_drafts, &recorded.mtp_top20, margin);
        }
    }
    compared
}

#[test]
fn drafts_of_the_demo_in_f16_are_those_recorded() {
    let _guard = ONE_AT_A_TIME.lock();
    let models = test_models_or_skip!();
    assert_eq!(compare_with_recorded(&models.join("demo-qwen35-F16.gguf"), DType::F32, 0.0), 2 * 3 * 2 * 4);
}

#[test]
fn drafts_of_the_demo_in_q8_0_are_those_recorded_but_for_near_ties() {
    let _guard = ONE_AT_A_TIME.lock();
    let compared = compare_with_recorded(&demo_q8_path(), DType::F16, 0.15);
    println!("{compared} of 48 tokens compared");
    assert!(compared >= 40, "{compared}");
}

/// A prompt that is longer than a microbatch and not a multiple of it, on a model whose drafts are hard to guess.
#[test]
fn forms_and_prompt_passes_draft_the_same() {
    let _guard = ONE_AT_A_TIME.lock();
    let model = RandomModel { weights: DType::Q8_0.into(), ..RandomModel::wide() };
    let random = Arc::new(Gguf::from_bytes(model.to_bytes()).unwrap());
    let demo = open(&demo_q8_path());
    let subjects = [(&random, model.tokens(530, 8)), (&demo, prompts("code", &demo).unwrap().remove(0).ids)];
    for (gguf, prompt) in subjects {
        let settings: [&[(&str, &str)]; 4] = [
            &[("depth", "5")],
            &[("depth", "5"), ("kv_only", "false")],
            &[("depth", "5"), ("form", "loop")],
            &[("depth", "5"), ("form", "loop"), ("kv_only", "false")],
        ];
        let found = settings.map(|settings| drafts(&mut with(gguf, DType::F16, settings), &prompt, 60));
        assert!(found[0].len() >= 10 && found[0].iter().all(|draft| !draft.is_empty()));
        for (settings, other) in settings.iter().zip(&found).skip(1) {
            assert_eq!(*other, found[0], "{settings:?}");
        }
    }
}

/// The whole state of a chain: its drafts behind a text do not depend on how the text came about, even if the token
/// that the first one followed did not become part of it.
#[test]
fn drafts_do_not_depend_on_what_was_drafted_before() {
    let _guard = ONE_AT_A_TIME.lock();
    let demo = open(&demo_q8_path());
    let prompt = prompts("code", &demo).unwrap().remove(1).ids;
    let mut fresh = with(&demo, DType::F16, &[("depth", "4")]);
    let text = generate_alone(&mut fresh, &Wish::greedy(std::slice::from_ref(&prompt), 60)).remove(0).tokens;
    let another = (text[0] ^ 1).to_string();
    for (settings, tokens) in
        [(&[("depth", "4")][..], 60), (&[("depth", "4"), ("first_anchor", &another)], 20)]
    {
        let all = drafts(&mut with(&demo, DType::F16, settings), &prompt, tokens);
        // A draft begins behind every token that a round ended with.
        let mut position = 0;
        for (number, draft) in all.iter().enumerate() {
            let known = [&prompt[..], &text[..position]].concat();
            let expected = drafts(&mut fresh, &known, tokens - position).swap_remove(0);
            let misled = number == 0 && settings.len() > 1;
            assert!(misled || *draft == expected, "behind {position} tokens: {draft:?}, {expected:?}");
            let accepted = draft.iter().zip(&text[position + 1..]).take_while(|(a, b)| a == b).count();
            position += accepted + 1;
        }
        assert!(position >= tokens - 5, "{position}");
    }
}

#[test]
fn three_of_four_drafted_tokens_of_code_are_accepted() {
    let demo = open(&demo_q8_path());
    let prompts: Vec<Vec<u32>> = prompts("code", &demo).unwrap().into_iter().map(|p| p.ids).collect();
    let options = EngineOptions { context: Some(1024), ..options(&[]) };
    let strategies: StrategyOptions = strategies(&[("mtp-chain", &[("depth", "4")])], true);
    let mut engine = engine(demo, &builtin_cpu(), options, &strategies);
    generate_alone(&mut engine, &Wish::greedy(&prompts, 64));
    let report = engine.speculation_report();
    println!("{:?} accepted, {:.2} tokens a round", report.acceptance(), report.mean_length());
    assert!(report.acceptance().unwrap() >= 0.75, "{report:?}");
}
