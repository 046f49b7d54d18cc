//! Texts are what they are without the strategy, and files that do not fit are refused.

use super::{demo, dflash_engine, greedy, plain_engine, random, text, warm, with_drafters};
use paceline_engine::{
    DrafterOptions, Engine, EngineError, EngineOptions, GenerationOptions, Model, Sampler, Select,
    StrategyOptions, Task,
};
use paceline_gguf::Gguf;
use paceline_registry::Registry;
use paceline_tests::engines::{builtin_cpu, plugin_library};
use paceline_tests::strategies::{drafter, drafter_plugin, engine};
use paceline_tests::{RandomDrafter, RandomModel, reference_logits};
use std::ops::ControlFlow;
use std::sync::Arc;

#[test]
fn a_drafter_that_costs_nothing_may_come_first() {
    let files = demo();
    let prompt = &reference_logits().unwrap().prompts[1].ids;
    let both = vec![drafter("ngram-adaptive", &[("match", "2")]), drafter("dflash", &[("context", "100")])];
    let expected = text(&mut plain_engine(&files[0], EngineOptions::default()), prompt, warm(), 200);
    for (select, microbatch) in [(Select::Value, 512), (Select::Order, 512), (Select::Order, 5)] {
        let strategies = StrategyOptions { select, ..with_drafters(both.clone(), Some(files[1].clone())) };
        let options = EngineOptions { microbatch, outputs: 5, ..EngineOptions::default() };
        let mut drafting = engine(files[0].clone(), &builtin_cpu(), options, &strategies);
        assert_eq!(text(&mut drafting, prompt, warm(), 200), expected, "{select:?} {microbatch}");
        let accepted = drafting.speculation_report().drafters[1].accepted;
        assert!(accepted > 20, "{select:?} {microbatch}: {accepted}");
    }
}

#[test]
fn the_shared_library_drafts_as_the_built_in_does() {
    let files = demo();
    let prompt = &reference_logits().unwrap().prompts[0].ids;
    let mut registry = Registry::new().unwrap();
    registry.load_file(plugin_library("paceline-strategy-dflash-plugin")).unwrap();
    let plugin = drafter_plugin(&registry, "dflash");
    let settings = vec![("depth".to_owned(), "7".to_owned())];
    let of_library = with_drafters(vec![DrafterOptions { plugin, settings }], Some(files[1].clone()));
    let built_in = with_drafters(vec![drafter("dflash", &[("depth", "7")])], Some(files[1].clone()));
    let [first, second] = [of_library, built_in].map(|strategies| {
        let mut engine = engine(files[0].clone(), &builtin_cpu(), EngineOptions::default(), &strategies);
        let text = text(&mut engine, prompt, greedy(), 100);
        (text, engine.speculation_report().drafters[0].positions.clone())
    });
    assert_eq!(first, second);
}

#[test]
fn texts_of_the_demo_are_those_without_a_strategy() {
    let files = demo();
    let mut plain = plain_engine(&files[0], EngineOptions::default());
    let prompts = reference_logits().unwrap().prompts;
    for settings in [&[("depth", "7")][..], &[], &[("depth", "3"), ("context", "20")]] {
        // Where the length is not fixed, the host may find that drafts do not pay.
        let controller = settings.is_empty();
        let strategies = with_drafters(vec![drafter("dflash", settings)], Some(files[1].clone()));
        let strategies = StrategyOptions { controller, ..strategies };
        let mut drafting = engine(files[0].clone(), &builtin_cpu(), EngineOptions::default(), &strategies);
        for prompt in &prompts {
            for sampling in [greedy(), warm()] {
                let expected = text(&mut plain, &prompt.ids, sampling.clone(), 120);
                assert_eq!(
                    text(&mut drafting, &prompt.ids, sampling.clone(), 120),
                    expected,
                    "{} {settings:?} at {}",
                    prompt.name,
                    sampling.temperature
                );
            }
        }
        let accepted = drafting.speculation_report().accepted();
        assert!(controller || accepted > 50, "{settings:?}: {accepted}");
    }
}

#[test]
fn a_long_text_over_a_small_ring_is_that_without_a_strategy() {
    let files = demo();
    let prompt = &reference_logits().unwrap().prompts[0].ids;
    let options = EngineOptions { context: Some(2048), ..EngineOptions::default() };
    let expected = text(&mut plain_engine(&files[0], options.clone()), prompt, warm(), 1700);
    let mut drafting = dflash_engine(&files, options, "dflash", &[("depth", "7"), ("context", "60")]);
    assert_eq!(text(&mut drafting, prompt, warm(), 1700), expected);
    let report = drafting.speculation_report();
    let [first, last] = [report.drafters[0].positions[0], report.drafters[0].positions[6]];
    println!("accepted of the first {first:?}, of the last {last:?}");
    assert!(first[1] * 2 > first[0], "{first:?}");
}

#[test]
fn sequences_do_not_see_each_other() {
    let files = demo();
    let prompts: Vec<Vec<u32>> = reference_logits().unwrap().prompts.into_iter().map(|p| p.ids).collect();
    let options = || EngineOptions { sequences: 2, ..EngineOptions::default() };
    for sampling in [greedy(), warm()] {
        let mut plain = plain_engine(&files[0], options());
        let expected: Vec<Vec<u32>> =
            prompts[..2].iter().map(|prompt| text(&mut plain, prompt, sampling.clone(), 90)).collect();
        for context in ["0", "40"] {
            let settings = [("depth", "6"), ("context", context)];
            let mut drafting = dflash_engine(&files, options(), "dflash", &settings);
            let mut samplers = [(); 2].map(|()| Sampler::new(sampling.clone(), 8192).unwrap());
            let sequences = [(); 2].map(|()| drafting.new_sequence().unwrap());
            let mut tasks: Vec<Task<'_>> = samplers
                .iter_mut()
                .zip(&prompts)
                .zip(sequences)
                .map(|((sampler, prompt), sequence)| Task {
                    sequence,
                    prompt,
                    sampler,
                    options: GenerationOptions { tokens: 90, end_tokens: &[] },
                })
                .collect();
            let mut texts = vec![Vec::new(); 2];
            drafting
                .generate_all(&mut tasks, &mut |index, token| {
                    texts[index].push(token);
                    ControlFlow::Continue(())
                })
                .unwrap();
            assert_eq!(texts, expected);
            assert!(drafting.speculation_report().accepted() > 20);
        }
    }
}

/// What is said where the strategy cannot work.
fn refusal(target: Arc<Gguf>, draft: Option<Arc<Gguf>>) -> String {
    let strategies = with_drafters(vec![drafter("dflash", &[])], draft);
    let model = Model::new(target).unwrap();
    match Engine::with_strategies(
        model,
        &builtin_cpu(),
        EngineOptions::default(),
        &strategies,
        &mut |_, _| {},
    ) {
        Err(EngineError::StrategyRefused { source, .. }) => source.message,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it works"),
    }
}

#[test]
fn files_that_do_not_fit_are_refused() {
    let [target, draft] = demo();
    assert!(refusal(target.clone(), None).contains("give the drafter's file with --draft"));
    assert!(refusal(target.clone(), Some(target.clone())).contains("`qwen35`"));
    let small = RandomModel::default();
    let others = random(&small, &RandomDrafter::for_target(&small));
    let message = refusal(target, Some(others[1].clone()));
    assert!(message.contains("`dflash.embedding_length` is 128") && message.contains("512"), "{message}");
    assert!(refusal(others[0].clone(), Some(draft)).contains("`dflash.embedding_length` is 512"));
}
