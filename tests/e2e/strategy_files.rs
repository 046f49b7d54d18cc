//! Strategies from shared libraries: ours, and one that someone else might have written.

use paceline_engine::{
    DrafterOptions, Engine, EngineOptions, RollbackOptions, SpeculationReport, StrategyOptions,
};
use paceline_registry::Registry;
use paceline_tests::engines::{builtin_cpu, options, plugin_library, third_party_library};
use paceline_tests::prompts::prompts;
use paceline_tests::strategies::{Drafters, drafter_plugin, engine_at, open, rollback_plugin, strategies};
use paceline_tests::test_models::demo_q8_path;
use paceline_tests::texts::{Text, Wish, assert_same, generate_alone};
use std::path::Path;
use {
    paceline_strategy_gdn_replay as _, paceline_strategy_mtp_chain as _,
    paceline_strategy_ngram_adaptive as _,
};

/// Two texts, and what strategies did for them.
fn texts(strategies: &StrategyOptions) -> (Vec<Text>, SpeculationReport) {
    let path = demo_q8_path();
    let code = prompts("copy-edit", &open(&path)).unwrap();
    let prompts: Vec<Vec<u32>> = code.into_iter().take(2).map(|prompt| prompt.ids).collect();
    let options = EngineOptions { context: Some(1024), ..options(&[]) };
    let mut engine: Engine = engine_at(&path, &builtin_cpu(), options, strategies);
    let texts = generate_alone(&mut engine, &Wish::drawn(&prompts, 60));
    (texts, engine.speculation_report())
}

/// A registry in which the library takes the place of the built-in plugin, if there is one.
fn registry(library: &Path) -> Registry {
    let mut registry = Registry::new().unwrap();
    let plugin = registry.load_file(library).unwrap();
    assert_eq!(plugin.origin.path().and_then(Path::file_name), library.file_name());
    registry
}

#[test]
fn strategies_from_their_files_do_what_the_built_in_ones_do() {
    let (plain, _) = texts(&StrategyOptions::default());
    let replay = registry(&plugin_library("paceline-strategy-gdn-replay-plugin"));
    let given: [(&str, Drafters<'_>); 3] = [
        ("paceline-strategy-ngram-adaptive-plugin", &[("ngram-adaptive", &[("match", "2")])]),
        ("paceline-strategy-mtp-chain-plugin", &[("mtp-chain", &[("depth", "4")])]),
        ("paceline-strategy-mtp-chain-plugin", &[("mtp-chain", &[("depth", "3"), ("form", "loop")])]),
    ];
    for (package, drafters) in given {
        let id = drafters[0].0;
        let built_in = strategies(drafters, true);
        let from_file = StrategyOptions {
            drafters: vec![DrafterOptions {
                plugin: drafter_plugin(&registry(&plugin_library(package)), id),
                settings: built_in.drafters[0].settings.clone(),
            }],
            rollback: Some(RollbackOptions {
                plugin: rollback_plugin(&replay, "gdn-replay"),
                settings: Vec::new(),
            }),
            ..built_in.clone()
        };
        let (expected, by_built_in) = texts(&built_in);
        let (found, by_file) = texts(&from_file);
        assert_same(id, &expected, &plain);
        assert_same(package, &found, &plain);
        assert_eq!(by_file.drafters, by_built_in.drafters, "{package}");
        assert!(by_file.accepted() > 0, "{package}");
    }
}

#[test]
fn a_strategy_of_someone_else_needs_the_plugin_api_alone() {
    let (plain, _) = texts(&StrategyOptions::default());
    let registry = registry(&third_party_library("echo-strategy"));
    let echo = |settings: &[(&str, &str)]| StrategyOptions {
        drafters: vec![DrafterOptions {
            plugin: drafter_plugin(&registry, "echo"),
            settings: settings.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
        }],
        ..strategies(&[], true)
    };
    let (found, report) = texts(&echo(&[]));
    assert_same("echo", &found, &plain);
    let drafter = &report.drafters[0];
    assert!(drafter.accepted > 0 && drafter.disabled.is_none(), "{drafter:?}");
    assert_eq!(drafter.explanation, "drafts of up to 8 tokens");

    let model = paceline_engine::Model::new(open(&demo_q8_path())).unwrap();
    let refused = Engine::plan(&model, &builtin_cpu(), options(&[]), &echo(&[("lenght", "4")]));
    let message = std::error::Error::source(&refused.err().unwrap()).unwrap().to_string();
    assert!(message.contains("setting `lenght` is not known; did you mean `length`?"), "{message}");
}
