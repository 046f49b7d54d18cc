//! What a verification of W rows costs in decodes of one: `verify_cost [replay|snapshots|ngram|plain] [model.gguf]`; `ngram`
//! is for models without a prediction block, `plain` a context that never rolls back, without strategies, and shows one row
//! alone. `NARROWEST` and `WIDEST` limit the rows. `PLUGIN` is the file of another backend than the CPU's, `SETTINGS` are its
//! settings, as in `fusion=all,graphs=true`.

use paceline_engine::{EngineOptions, Rows, StrategyOptions, Want};
use paceline_plugin_api::client::BackendClient;
use paceline_registry::Registry;
use paceline_tests::engines::builtin_cpu;
use paceline_tests::strategies::{drafter, engine_at, rollback};
use paceline_tests::test_models::demo_q8_path;
use std::time::Instant;
use {
    paceline_strategy_gdn_replay as _, paceline_strategy_mtp_chain as _,
    paceline_strategy_ngram_adaptive as _,
};

fn limit(name: &str) -> Option<usize> {
    std::env::var(name).ok()?.parse().ok()
}

/// The backend, and its settings.
fn backend() -> (BackendClient, Vec<(String, String)>) {
    let given = std::env::var("SETTINGS").unwrap_or_default();
    let pair = |text: &str| text.split_once('=').map(|(key, value)| (key.to_owned(), value.to_owned()));
    let mut settings: Vec<_> = given.split(',').filter_map(pair).collect();
    let Some(file) = std::env::var_os("PLUGIN") else {
        let threads = std::env::var("THREADS").unwrap_or_else(|_| "0".into());
        settings.push(("threads".into(), threads));
        return (builtin_cpu(), settings);
    };
    let mut registry = Registry::new().expect("built-in plugins enter");
    let id = registry.load_file(&file).expect("the plugin loads").id();
    (registry.backend(Some(&id)).expect("the backend works"), settings)
}

fn main() {
    let mut args = std::env::args().skip(1);
    let form = args.next().unwrap_or_else(|| "replay".into());
    let path = args.next().map_or_else(demo_q8_path, Into::into);
    let (strategies, widest) = match form.as_str() {
        "plain" => (StrategyOptions::default(), 1),
        _ => {
            let replay = (form == "replay").then(|| rollback("gdn-replay"));
            let drafters = match form.as_str() {
                "ngram" => vec![drafter("ngram-adaptive", &[])],
                _ => vec![drafter("mtp-chain", &[("depth", "15")])],
            };
            let widest = limit("WIDEST").unwrap_or(16);
            (StrategyOptions { drafters, rollback: replay, ..StrategyOptions::default() }, widest)
        }
    };
    let (backend, settings) = backend();
    let options = EngineOptions { settings, ..EngineOptions::default() };
    let mut engine = engine_at(&path, &backend, options, &strategies);
    let vocabulary = engine.model().shape().vocabulary;
    let tokens: Vec<u32> = (0..300u32).map(|i| i.wrapping_mul(2_654_435_761) % vocabulary).collect();
    let sequence = engine.new_sequence().expect("a sequence");
    engine.run(&[Rows { sequence, tokens: &tokens, outputs: 1 }], Want::Ids).expect("it runs");
    let narrowest = limit("NARROWEST").unwrap_or(1).min(widest);
    let mut times = vec![Vec::new(); 17];
    let rounds = if widest == narrowest { 400 } else { 60 };
    for round in 0..rounds {
        for width in narrowest..=widest {
            let rows = Rows { sequence, tokens: &tokens[..width], outputs: width };
            let start = Instant::now();
            engine.run(&[rows], Want::Ids).expect("it runs");
            let elapsed = start.elapsed().as_secs_f64();
            if width > 1 {
                engine.roll_back(sequence, width - 1).expect("it is kept");
            }
            if round > 0 {
                times[width].push(elapsed);
            }
        }
    }
    let median = |times: &mut Vec<f64>| {
        times.sort_by(f64::total_cmp);
        (times[times.len() / 2], times[times.len() / 10])
    };
    let (one, least_one) = median(&mut times[narrowest].clone());
    for (width, times) in times.iter_mut().enumerate().take(widest + 1).skip(narrowest) {
        let (middle, least) = median(times);
        println!(
            "{width:2} rows  median {:7.1} us {:5.2}x   fast {:7.1} us {:5.2}x",
            middle * 1e6,
            middle / one,
            least * 1e6,
            least / least_one
        );
    }
}
