//! After a device failed, its sequences go on in another engine, on the same device or on another backend, with the text
//! that they would have had; and who panicked is known.

#[path = "forced_drafters/plugin.rs"]
mod plugin;

use paceline_backend_sim as _;
use paceline_engine::{
    Engine, EngineError, EngineOptions, GenerationOptions, PluginPanic, Sampler, SamplerOptions, SequenceId,
    StrategyOptions, Task,
};
use paceline_gguf::Gguf;
use paceline_plugin_api::client::BackendClient;
use paceline_registry::Registry;
use paceline_strategy_gdn_replay as _;
use paceline_strategy_mtp_chain as _;
use paceline_strategy_ngram_adaptive as _;
use paceline_tests::engines::{builtin_cpu, options};
use paceline_tests::random_model::RandomModel;
use paceline_tests::strategies::strategies;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

const TOKENS: usize = 24;

fn sim() -> BackendClient {
    let registry = Registry::new().expect("built-in plugins enter");
    registry.backend(Some("sim")).expect("the simulated devices are linked in")
}

fn context(settings: &[(&str, &str)]) -> EngineOptions {
    EngineOptions { context: Some(256), sequences: 3, microbatch: 8, outputs: 4, ..options(settings) }
}

fn engine(backend: &BackendClient, options: EngineOptions, strategies: &StrategyOptions) -> Engine {
    let gguf = Arc::new(Gguf::from_bytes(RandomModel::default().to_bytes()).unwrap());
    paceline_tests::strategies::engine(gguf, backend, options, strategies)
}

fn prompts() -> [Vec<u32>; 2] {
    [RandomModel::default().tokens(19, 3), RandomModel::default().tokens(10, 4)]
}

fn sampler(tokens: &[u32]) -> Sampler {
    let sampling =
        SamplerOptions { temperature: 0.7, repeat_penalty: 1.1, seed: 7, ..SamplerOptions::default() };
    let mut sampler = Sampler::new(sampling, 384).unwrap();
    tokens.iter().for_each(|&token| sampler.observe(token));
    sampler
}

/// Goes on with texts up to their full length; what was emitted is kept also if it fails.
fn go_on(
    engine: &mut Engine,
    sequences: &[SequenceId],
    texts: &mut [Vec<u32>],
    tokens: usize,
) -> Result<(), EngineError> {
    let starts: Vec<usize> = sequences.iter().map(|&id| engine.sequence_length(id)).collect();
    let before = texts.to_vec();
    let mut samplers: Vec<Sampler> =
        before.iter().zip(&starts).map(|(text, &at)| sampler(&text[..at])).collect();
    let prompts = prompts();
    let mut tasks: Vec<Task<'_>> = samplers
        .iter_mut()
        .enumerate()
        .map(|(index, sampler)| Task {
            sequence: sequences[index],
            prompt: &before[index][starts[index]..],
            sampler,
            options: GenerationOptions {
                tokens: prompts[index].len() + tokens - before[index].len(),
                end_tokens: &[],
            },
        })
        .collect();
    let emitted = engine.generate_all(&mut tasks, &mut |index, token| {
        texts[index].push(token);
        ControlFlow::Continue(())
    });
    emitted.map(|_| ())
}

/// Both texts as they are where nothing fails.
fn undisturbed() -> Vec<Vec<u32>> {
    let mut engine = engine(&builtin_cpu(), context(&[]), &StrategyOptions::default());
    let sequences = [engine.new_sequence().unwrap(), engine.new_sequence().unwrap()];
    let mut texts = prompts().to_vec();
    go_on(&mut engine, &sequences, &mut texts, TOKENS).unwrap();
    texts
}

/// Generates both texts on a device that fails, and on others whenever it did; how often that was.
fn with_failures(
    mut failing: Engine,
    next: &mut dyn FnMut() -> Engine,
    tokens_are_kept: &mut dyn FnMut(&Engine),
) -> (Vec<Vec<u32>>, usize) {
    // A sequence that is not used, so that ids are not just counted.
    let unused = failing.new_sequence().unwrap();
    let sequences = [failing.new_sequence().unwrap(), failing.new_sequence().unwrap()];
    failing.end_sequence(unused);
    let mut texts = prompts().to_vec();
    let mut failures = 0;
    while let Err(error) = go_on(&mut failing, &sequences, &mut texts, TOKENS) {
        assert!(error.is_device_fault(), "{error}");
        failures += 1;
        let held = failing.texts();
        tokens_are_kept(&failing);
        for (&id, text) in sequences.iter().zip(&texts) {
            let held = held.of(id).expect("it is in use");
            // All that was emitted but the last token, which no run had taken in.
            assert!(text.starts_with(held), "{held:?} of {text:?}");
        }
        assert_eq!(held.of(unused), None);
        drop(failing);
        failing = next();
        let mut done = 0;
        failing.resume(&held, &mut |tokens| done = tokens).unwrap();
        assert_eq!(done, held.tokens());
        assert_eq!(failing.texts(), held);
    }
    (texts, failures)
}

#[test]
fn a_text_goes_on_where_the_device_was_lost() {
    let expected = undisturbed();
    for after in [1, 3, 4, 9, 20] {
        let after = after.to_string();
        let none = StrategyOptions::default();
        let failing = || engine(&sim(), context(&[("lose_after", &after)]), &none);
        // On another backend, on another device, and on the same one opened anew.
        let next: [&dyn Fn() -> Engine; 3] = [
            &|| engine(&builtin_cpu(), context(&[]), &none),
            &|| engine(&sim(), EngineOptions { device: 1, ..context(&[]) }, &none),
            &|| engine(&sim(), context(&[]), &none),
        ];
        for next in next {
            let (texts, failures) = with_failures(failing(), &mut || next(), &mut |_| {});
            assert_eq!((texts, failures), (expected.clone(), 1), "lost after {after} launches");
        }
    }
}

/// A device that is lost again and again gives the whole text, as each time it gets further.
#[test]
fn a_device_may_be_lost_several_times() {
    let settings = [("lose_after", "15")];
    let strategies = StrategyOptions::default();
    let mut next = || engine(&sim(), context(&settings), &strategies);
    let (texts, failures) = with_failures(next(), &mut next, &mut |_| {});
    assert_eq!(texts, undisturbed());
    assert!(failures > 1, "{failures}");
}

#[test]
fn panics_and_hangs_are_survived_too() {
    let expected = undisturbed();
    let none = StrategyOptions::default();
    for place in ["launch", "worker", "load"] {
        let failing = engine(&sim(), context(&[("panic_in", place), ("panic_after", "2")]), &none);
        let mut next = || engine(&sim(), context(&[]), &none);
        let mut panics = Vec::new();
        let (texts, failures) = with_failures(failing, &mut next, &mut |engine| panics = engine.panics());
        assert_eq!((texts, failures), (expected.clone(), 1), "{place}");
        let message =
            format!("the plugin panicked: sim:0 (rocm gfx906): the setting `panic_in` is `{place}`");
        assert_eq!(panics, [PluginPanic { plugin: "sim".into(), message }]);
    }
    let hasty =
        EngineOptions { launch_timeout: Duration::from_millis(1), ..context(&[("slow_launch_ms", "300")]) };
    let failing = engine(&sim(), hasty, &none);
    let (texts, failures) = with_failures(failing, &mut || engine(&sim(), context(&[]), &none), &mut |_| {});
    assert_eq!((texts, failures), (expected, 1));
}

/// Drafters, recurrent state by records and caches of theirs begin anew and are told the text.
#[test]
fn strategies_go_on_too() {
    let expected = undisturbed();
    for after in ["2", "7", "15"] {
        let strategies = strategies(&[("ngram-adaptive", &[]), ("mtp-chain", &[])], true);
        let failing = engine(&sim(), context(&[("lose_after", after)]), &strategies);
        let next = || engine(&builtin_cpu(), context(&[]), &strategies);
        let mut after_it = None;
        let (texts, _) = with_failures(
            failing,
            &mut || {
                let engine = next();
                after_it = Some(engine.speculation_report().drafters.len());
                engine
            },
            &mut |_| {},
        );
        assert_eq!(texts, expected, "lost after {after} launches");
        assert_eq!(after_it, Some(2));
    }
}

#[test]
fn texts_that_do_not_fit_are_refused() {
    let mut full = engine(&builtin_cpu(), context(&[]), &StrategyOptions::default());
    let sequences = [(); 3].map(|()| full.new_sequence().unwrap());
    full.prompt(sequences[2], &RandomModel::default().tokens(40, 1), paceline_engine::Want::Ids, &mut |_| {})
        .unwrap();
    let texts = full.texts();
    let refused = |options: EngineOptions| {
        let mut small = engine(&builtin_cpu(), options, &StrategyOptions::default());
        let before = small.new_sequence().unwrap();
        let error = small.resume(&texts, &mut |_| {}).unwrap_err();
        assert!(!error.is_device_fault());
        assert_eq!(small.texts().of(before), Some(&[][..]), "nothing is changed");
        error.to_string()
    };
    insta::assert_snapshot!(refused(EngineOptions { sequences: 2, ..context(&[]) }), @"the texts are of 3 sequences, this context has 2");
    insta::assert_snapshot!(refused(EngineOptions { context: Some(39), ..context(&[]) }), @"a text of 40 tokens does not fit this context of 39");
}

/// A strategy that panics ends no request, and one that runs a program on a backend that does is not to blame.
#[test]
fn it_is_known_whose_panic_it_was() {
    let prompt = RandomModel::default().tokens(12, 5);
    let mut sampler = Sampler::new(SamplerOptions::default(), 384).unwrap();
    let mut panics = |mut engine: Engine| {
        let sequence = engine.new_sequence().unwrap();
        let options = GenerationOptions { tokens: 12, end_tokens: &[] };
        let ended = engine.generate(sequence, &prompt, &mut sampler, options, &mut |_| {}, &mut |_| {
            ControlFlow::Continue(())
        });
        let whose = engine.panics().into_iter().map(|panic| panic.plugin).collect::<Vec<_>>();
        (ended.is_ok(), whose)
    };
    let forced = strategies(&[("forced", &[("guess", "random"), ("fails", "panic in propose")])], false);
    assert_eq!(panics(engine(&builtin_cpu(), context(&[]), &forced)), (true, vec!["forced".to_owned()]));
    let chain = strategies(&[("mtp-chain", &[])], false);
    // The first two launches are of the prompt, the third one is the drafter's.
    let faults = [("panic_in", "launch"), ("panic_after", "2")];
    assert_eq!(panics(engine(&sim(), context(&faults), &chain)), (true, vec!["sim".to_owned()]));
    assert_eq!(panics(engine(&builtin_cpu(), context(&[]), &chain)), (true, Vec::new()));
}
