//! Drafts are those of the float64 reference, and of recorded outputs.

use super::{continue_text, demo, dflash_engine, exact, greedy, random, text, warm, with_drafters};
use paceline_engine::{EngineOptions, Rows, StrategyOptions, Want};
use paceline_gguf::Gguf;
use paceline_tests::engines::builtin_cpu;
use paceline_tests::recorder::{Proposal, proposals};
use paceline_tests::reference::argmax;
use paceline_tests::strategies::{drafter, engine, open};
use paceline_tests::test_models::{TopLogits, read_f32_rows};
use paceline_tests::{
    DenseFamily, DrafterReference, RandomDense, RandomDrafter, RandomModel, Reference, reference_logits,
    test_models_or_skip,
};
use std::sync::Arc;

/// The reference drafts the likeliest tokens, also where texts are drawn.
const LIKELIEST: (&str, &str) = ("draw", "false");

/// Compares proposals with the reference on the text that the target saw; tokens count where the reference's two best
/// logits are further apart than `margin`. Gives how many were compared.
fn compare<'a>(
    proposals: impl IntoIterator<Item = &'a Proposal>,
    references: &(Reference, DrafterReference),
    tokens: &[u32],
    margin: f64,
) -> usize {
    let (target, drafter) = references;
    let features = drafter.features(&target.trunk(tokens));
    let mut compared = 0;
    for Proposal { log, frontier, anchor, tokens: drafted } in proposals {
        assert!(!drafted.is_empty(), "no draft at {frontier}");
        let block = drafter.block_tokens(*anchor, drafted.len());
        let logits = drafter.block(target, &features[..*frontier], &block);
        for (row, (token, logits)) in drafted.iter().zip(&logits[1..]).enumerate() {
            let best = argmax(logits);
            let mut others = logits.clone();
            others[best as usize] = f64::NEG_INFINITY;
            let distance = logits[best as usize] - others[argmax(&others) as usize];
            if distance > margin {
                assert_eq!(*token, best, "{log}: row {row} of the draft at {frontier}, {distance}");
                compared += 1;
            }
        }
    }
    compared
}

fn references([target, draft]: &[Arc<Gguf>; 2]) -> (Reference, DrafterReference) {
    (Reference::load(target).unwrap(), DrafterReference::load(draft).unwrap())
}

/// The recorded blocks of a pair of files: tokens whose logits are further apart than `margin` must be the same. Gives
/// how many were compared.
fn assert_recorded_blocks(files_name: &str, files: &[Arc<Gguf>; 2], margin: f64) -> usize {
    let mut compared = 0;
    let mut block = |name: &str, tokens: &[u32], anchor: u32, drafts: &[u32], top: &[TopLogits]| {
        let log = format!("{files_name} {name} {}", tokens.len());
        let settings = [("depth", "7"), ("log", &log), ("anchor", &anchor.to_string())];
        let mut engine = dflash_engine(files, exact(), "dflash-recorded", &settings);
        // One more than the block after the token that the prompt gives.
        text(&mut engine, tokens, greedy(), 9);
        let first = &proposals(&log)[0];
        assert_eq!((first.frontier, first.anchor, first.tokens.len()), (tokens.len(), anchor, 7));
        for (row, (token, expected)) in first.tokens.iter().zip(drafts).enumerate() {
            let distance = top[row].logits[0] - top[row].logits[1];
            if distance > margin {
                assert_eq!(token, expected, "{log}: row {row}, {distance}");
                compared += 1;
            }
        }
    };
    for prompt in reference_logits().unwrap().prompts {
        let (next, start) = (&prompt.dflash, &prompt.from_last_prompt_token);
        block(&prompt.name, &prompt.ids, next.id_last, &next.drafts, &next.top20_rows_1_to_7);
        let (last, before) = prompt.ids.split_last().unwrap();
        block(&prompt.name, before, *last, &start.dflash_drafts, &start.dflash_top20);
    }
    compared
}

#[test]
fn blocks_of_the_demo_are_the_recorded_ones() {
    let compared = assert_recorded_blocks("q8", &demo(), 0.15);
    assert!(compared >= 20, "{compared}");
}

#[test]
fn blocks_of_the_f16_files_are_the_recorded_ones() {
    let directory = test_models_or_skip!();
    let files = ["demo-qwen35-F16.gguf", "demo-dflash-F16.gguf"].map(|name| open(&directory.join(name)));
    assert_eq!(assert_recorded_blocks("f16", &files, 0.0), 3 * 2 * 7);
}

#[test]
fn a_block_of_the_tiny_drafter_is_what_llama_cpp_says() {
    let directory = test_models_or_skip!().join("tiny");
    let files = ["tiny-f32.gguf", "tiny-dflash-f32.gguf"].map(|name| open(&directory.join(name)));
    let settings = [("depth", "7"), ("log", "tiny"), ("anchor", "42")];
    let mut engine = dflash_engine(&files, exact(), "dflash-recorded", &settings);
    let prompt = [72, 101, 108, 108, 111, 44, 32, 119, 111, 114, 108, 100, 33, 10, 7, 250, 131];
    text(&mut engine, &prompt, greedy(), 9);
    let recorded = read_f32_rows(directory.join("tiny.dflash.f32"), 384).unwrap();
    let best = recorded[1..].iter().map(|row| argmax(&row.iter().map(|&x| f64::from(x)).collect::<Vec<_>>()));
    assert_eq!(proposals("tiny")[0].tokens, best.collect::<Vec<_>>());
}

#[test]
fn drafts_of_the_demo_follow_the_reference_through_a_text() {
    let files = demo();
    let prompt = &reference_logits().unwrap().prompts[0];
    let settings = [("depth", "7"), ("log", "demo text")];
    let mut engine = dflash_engine(&files, EngineOptions::default(), "dflash-recorded", &settings);
    let generated = text(&mut engine, &prompt.ids, greedy(), 64);
    let accepted = engine.speculation_report().accepted();
    assert!(accepted > 20, "{accepted} accepted");
    let tokens = [prompt.ids.as_slice(), &generated].concat();
    let compared = compare(&proposals("demo text"), &references(&files), &tokens, 0.15);
    assert!(compared > 20, "{compared}");
}

/// Random drafters that differ in one thing each.
fn drafters(target: &RandomModel) -> Vec<(&'static str, RandomDrafter)> {
    let plain = || RandomDrafter::for_target(target);
    vec![
        ("plain", plain()),
        ("own-vocabulary", RandomDrafter { own_vocabulary: true, ..plain() }),
        ("causal", RandomDrafter { causal: true, ..plain() }),
        ("sliding", RandomDrafter { sliding: Some((24, vec![true, false])), ..plain() }),
        ("all-slide", RandomDrafter { sliding: Some((9, vec![true, true])), ..plain() }),
        ("last-input", RandomDrafter { target_layers: vec![target.layers, 0, 2], ..plain() }),
        ("one-feature", RandomDrafter { target_layers: vec![3], ..plain() }),
    ]
}

#[test]
fn drafts_of_random_drafters_are_those_of_the_reference() {
    let target = RandomModel::default();
    for (name, draft) in drafters(&target) {
        let files = random(&target, &draft);
        let depths = if name == "plain" { &["1", "5", "15"][..] } else { &["5"] };
        for &depth in depths {
            let log = format!("random {name} {depth}");
            let settings = [("depth", depth), LIKELIEST, ("log", &log)];
            let mut engine = dflash_engine(&files, exact(), "dflash-recorded", &settings);
            let prompt = target.tokens(40, 5);
            let sequence = engine.new_sequence().unwrap();
            let first = continue_text(&mut engine, sequence, &prompt, warm(), 30);
            // The last token is not processed, but another in its place, which is taken back.
            let junk = [Rows { sequence, tokens: &prompt[..1], outputs: 0 }];
            engine.run(&junk, Want::Ids).unwrap();
            engine.roll_back(sequence, 1).unwrap();
            assert_eq!(engine.sequence_length(sequence), 69);
            let mut tokens = [prompt.as_slice(), &first].concat();
            tokens.truncate(69);
            let before = proposals(&log).len();
            let more = target.tokens(3, 8);
            let second = continue_text(&mut engine, sequence, &more, warm(), 20);
            tokens.extend(more.iter().chain(&second));
            assert!(proposals(&log).len() > before + 1);
            let compared = compare(&proposals(&log), &references(&files), &tokens, 1e-3);
            assert!(compared > 30, "{log}: {compared}");
        }
    }
}

#[test]
fn a_ring_forgets_what_is_further_back_and_nothing_else() {
    let target = RandomModel::default();
    let draft = RandomDrafter { layers: 3, ..RandomDrafter::for_target(&target) };
    let files = random(&target, &draft);
    // The ring has 3 blocks; prompts are longer than that, in microbatches shorter and longer than the ring.
    for (microbatch, length) in [(64, 900), (1024, 1100)] {
        let log = format!("ring {microbatch}");
        let options = EngineOptions { microbatch, context: Some(2048), ..exact() };
        let settings = [("depth", "5"), LIKELIEST, ("context", "50"), ("log", &log)];
        let mut engine = dflash_engine(&files, options, "dflash-recorded", &settings);
        let prompt = target.tokens(length, 5);
        let generated = text(&mut engine, &prompt, warm(), 700);
        assert!(engine.speculation_report().drafters[0].drafts > 300);
        let tokens = [prompt.as_slice(), &generated].concat();
        let (reference, drafter) = references(&files);
        let some = proposals(&log);
        let some = some.iter().step_by(40);
        let compared = compare(some, &(reference, drafter.looking_back(50)), &tokens, 1e-3);
        assert!(compared > 40, "{compared}");
    }
}

#[test]
fn a_text_that_is_cut_far_back_is_drafted_from_when_the_ring_holds_it_again() {
    let target = RandomDense::tiny(DenseFamily::Qwen3);
    let sizes = RandomModel {
        hidden: target.hidden,
        layers: target.layers,
        vocab: target.vocab,
        ..RandomModel::default()
    };
    let bytes = [target.to_bytes(), RandomDrafter::for_target(&sizes).to_bytes()];
    let files = bytes.map(|bytes| Arc::new(Gguf::from_bytes(bytes).unwrap()));
    let settings = [("depth", "4"), LIKELIEST, ("context", "50"), ("log", "cut")];
    let options = EngineOptions { context: Some(1536), ..exact() };
    let [target, draft] = files.clone();
    let strategies = StrategyOptions {
        rollback: None,
        ..with_drafters(vec![drafter("dflash-recorded", &settings)], Some(draft))
    };
    let mut engine = engine(target, &builtin_cpu(), options, &strategies);
    let prompt = sizes.tokens(900, 5);
    let sequence = engine.new_sequence().unwrap();
    let first = continue_text(&mut engine, sequence, &prompt, warm(), 20);
    let references = references(&files);
    let references = (references.0, references.1.looking_back(50));
    let tokens = [prompt.as_slice(), &first].concat();
    let before = proposals("cut");
    assert!(compare(&before, &references, &tokens, 1e-3) > 20);

    // The ring has 768 positions, so of the first 40 none is left.
    engine.roll_back(sequence, engine.sequence_length(sequence) - 40).unwrap();
    let more = sizes.tokens(5, 9);
    let second = continue_text(&mut engine, sequence, &more, warm(), 120);
    let tokens = [&prompt[..40], &more, &second].concat();
    let after = proposals("cut").split_off(before.len());
    let (waiting, drafting): (Vec<_>, Vec<_>) = after.into_iter().partition(|p| p.tokens.is_empty());
    // A draft at 89 sees the positions from 40 on.
    assert!(waiting.iter().all(|p| p.frontier < 89) && drafting.iter().all(|p| p.frontier >= 89));
    assert!(waiting.len() > 20, "{}", waiting.len());
    assert!(compare(&drafting, &references, &tokens, 1e-3) > 20);
}
