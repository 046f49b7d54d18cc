//! Measures strategies on the demo: `speculate [tokens] [temperature] [strategy,...]`.

use paceline_engine::{
    DrafterOptions, EngineOptions, GenerationOptions, Sampler, SamplerOptions, StrategyOptions,
};
use paceline_tests::engines::builtin_cpu;
use paceline_tests::strategies::{drafter, engine_at, rollback};
use paceline_tests::test_models::demo_q8_path;
use std::ops::ControlFlow;
use {
    paceline_strategy_gdn_replay as _, paceline_strategy_mtp_chain as _,
    paceline_strategy_ngram_adaptive as _,
};

fn main() {
    let mut args = std::env::args().skip(1);
    let tokens: usize = args.next().map_or(160, |a| a.parse().unwrap());
    let temperature: f32 = args.next().map_or(0.0, |a| a.parse().unwrap());
    let path = std::env::var_os("MODEL").map_or_else(demo_q8_path, Into::into);
    let backend = builtin_cpu();
    let threads = std::env::var("THREADS").unwrap_or_else(|_| "0".into());
    let engine_options =
        || EngineOptions { settings: vec![("threads".into(), threads.clone())], ..EngineOptions::default() };
    let prompts = paceline_tests::reference_logits().unwrap().prompts;
    let number: usize = std::env::var("PROMPT").map_or(0, |p| p.parse().unwrap());
    let prompt = prompts[number].ids.clone();
    for name in
        args.next().as_deref().unwrap_or("none,mtp-chain,ngram-adaptive,mtp-chain+ngram-adaptive").split(',')
    {
        let (name, settings) = name.split_once(':').unwrap_or((name, ""));
        let settings: Vec<(&str, &str)> = settings.split(';').filter_map(|s| s.split_once('=')).collect();
        let drafters: Vec<DrafterOptions> = name
            .split('+')
            .filter(|n| *n != "none" && *n != "snapshots")
            .map(|n| drafter(n, &settings))
            .collect();
        let with_rollback = !drafters.is_empty() && !name.contains("snapshots");
        let strategies = StrategyOptions {
            rollback: with_rollback.then(|| rollback("gdn-replay")),
            drafters,
            ..StrategyOptions::default()
        };
        let start = std::time::Instant::now();
        let mut engine = engine_at(&path, &backend, engine_options(), &strategies);
        let load = start.elapsed();
        for _ in 0..3 {
            let sequence = engine.new_sequence().unwrap();
            let options = SamplerOptions { temperature, top_p: 0.9, seed: 7, ..SamplerOptions::default() };
            let mut sampler = Sampler::new(options, 8192).unwrap();
            let mut ids = Vec::new();
            engine.clear_speculation_report();
            let report = engine
                .generate(
                    sequence,
                    &prompt,
                    &mut sampler,
                    GenerationOptions { tokens, end_tokens: &[] },
                    &mut |_| {},
                    &mut |token| {
                        ids.push(token);
                        ControlFlow::Continue(())
                    },
                )
                .unwrap();
            engine.end_sequence(sequence);
            let spec = engine.speculation_report();
            let hash = ids.iter().fold(0u64, |h, &t| (h ^ u64::from(t)).wrapping_mul(0x100000001b3));
            println!(
                "{name:30} draft {:?} us load {load:?} {:7.1} t/s prompt {:7.1} t/s  {hash:016x} tau {:.2} acc {:?} off {} rounds {} {:?} {:?}",
                spec.drafters.first().map(|d| spec.time.draft.as_micros() as u64 / d.drafts.max(1)),
                report.generation_rate(),
                report.prompt_rate(),
                spec.mean_length(),
                spec.acceptance(),
                spec.rounds_off,
                spec.rounds,
                spec.time,
                spec.drafters
                    .iter()
                    .map(|d| (d.verified, d.accepted, d.disabled.clone(), d.explanation.clone()))
                    .collect::<Vec<_>>(),
            );
        }
        println!(
            "verify: {:?}",
            engine.verify_seconds().iter().map(|(d, s)| (*d + 1, (s * 1e6) as u64)).collect::<Vec<_>>()
        );
    }
}
