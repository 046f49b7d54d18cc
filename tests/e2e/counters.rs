//! What a decoded token and a round of a strategy cost, by count: no heap allocation in engine, strategies and backend,
//! one launch and one wait a run; and memory as planned, to the byte.

use paceline_engine::{Engine, GenerationOptions, Rows, RunCounts, Sampler, SamplerOptions, Want};
use paceline_plugin_api::backend::ArenaClass;
use paceline_tests::engines::{builtin_cpu, engine_at, options};
use paceline_tests::strategies::{self, Drafters, strategies};
use paceline_tests::test_models::demo_q8_path;
use std::alloc::{GlobalAlloc, Layout, System};
use std::ops::ControlFlow;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use {
    paceline_strategy_gdn_replay as _, paceline_strategy_mtp_chain as _,
    paceline_strategy_ngram_adaptive as _,
};

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

struct Counting;

// SAFETY: passes everything on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::SeqCst);
        // SAFETY: the caller's contract is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's contract is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static GLOBAL: Counting = Counting;

/// The count is of the whole process, so tests run one at a time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

struct Cost {
    allocations: u64,
    launches: u64,
    waits: u64,
}

/// What `steps` decoded tokens cost after a warm-up.
fn decode(engine: &mut Engine, sampler: &mut Sampler, want: Want, steps: usize) -> Cost {
    let sequence = engine.new_sequence().unwrap();
    let mut token = 300;
    let step = |engine: &mut Engine, sampler: &mut Sampler, token: u32, position: u64| {
        let outputs = engine.run(&[Rows { sequence, tokens: &[token], outputs: 1 }], want).unwrap();
        match outputs.logits(0) {
            Some(logits) => sampler.sample(logits, position).unwrap(),
            None => outputs.id(0).unwrap(),
        }
    };
    for position in 0..4 {
        token = step(engine, sampler, token, position);
    }
    let before = (ALLOCATIONS.load(Ordering::SeqCst), engine.counters().unwrap());
    for position in 0..steps {
        token = step(engine, sampler, token, position as u64);
    }
    let after = (ALLOCATIONS.load(Ordering::SeqCst), engine.counters().unwrap());
    engine.end_sequence(sequence);
    Cost {
        allocations: after.0 - before.0,
        launches: after.1.launches - before.1.launches,
        waits: after.1.waits - before.1.waits,
    }
}

#[test]
fn a_decoded_token_is_one_launch_one_wait_and_no_allocation() {
    let _guard = ONE_AT_A_TIME.lock();
    for threads in ["1", "2"] {
        let mut engine = engine_at(&demo_q8_path(), &builtin_cpu(), options(&[("threads", threads)]));
        let vocabulary = engine.model().shape().vocabulary as usize;
        let samplers = [
            (Want::Ids, SamplerOptions::default()),
            (Want::Logits, SamplerOptions { temperature: 0.7, top_p: 0.9, ..SamplerOptions::default() }),
        ];
        for (want, sampling) in samplers {
            let mut sampler = Sampler::new(sampling, vocabulary).unwrap();
            // More than a block of the cache, so that block tables change too.
            let cost = decode(&mut engine, &mut sampler, want, 300);
            assert_eq!(cost.allocations, 0, "{threads} threads, {want:?}");
            assert_eq!(cost.launches, 300, "{threads} threads, {want:?}");
            // A worker may finish before the engine asks, so a wait is at most one.
            assert!(cost.waits <= 300, "{} waits", cost.waits);
        }
    }
}

#[test]
fn the_device_holds_what_was_planned_and_gives_it_back() {
    let _guard = ONE_AT_A_TIME.lock();
    let engine = engine_at(&demo_q8_path(), &builtin_cpu(), options(&[]));
    let planned = engine.memory().total();
    assert_eq!(engine.counters().unwrap().arena_bytes, planned);
    // 2 attention layers, K and V, 4096 positions, 2 heads of 64 in f16; 16 entries of the block table.
    assert_eq!(engine.memory().class_bytes(ArenaClass::Kv), 2 * 2 * 4096 * 2 * 64 * 2 + 16 * 4);
    // 6 recurrent layers: 8 heads of 64x64, and 3 rows of 1024 channels, all f32.
    assert_eq!(engine.memory().class_bytes(ArenaClass::State), 6 * (8 * 64 * 64 + 3 * 1024) * 4);
}

#[test]
fn activations_are_quantised_once_for_all_that_read_them() {
    let _guard = ONE_AT_A_TIME.lock();
    let mut engine = engine_at(&demo_q8_path(), &builtin_cpu(), options(&[]));
    let sequence = engine.new_sequence().unwrap();
    let rows = |engine: &mut Engine, tokens: &[u32]| {
        let before = engine.counters().unwrap().quantized_rows;
        engine.run(&[Rows { sequence, tokens, outputs: 1 }], Want::Ids).unwrap();
        engine.counters().unwrap().quantized_rows - before
    };
    // Per layer: the mixer's input, its output, the feed-forward's input and its inner rows; then the head.
    assert_eq!(rows(&mut engine, &[300]), 8 * 4 + 1);
    assert_eq!(rows(&mut engine, &[300; 5]), 5 * 8 * 4 + 1);
}

/// Generates 200 tokens behind a prompt of 100, and gives how many allocations there were after the first of them.
fn speculate(engine: &mut Engine, sampling: &SamplerOptions) -> u64 {
    let vocabulary = engine.model().shape().vocabulary as usize;
    let mut sampler = Sampler::new(sampling.clone(), vocabulary).unwrap();
    let prompt: Vec<u32> = (0..100).map(|i| 300 + i * 7 % 40).collect();
    let sequence = engine.new_sequence().unwrap();
    engine.clear_speculation_report();
    let (mut first, mut last) = (None, 0);
    let mut on_token = |_| {
        last = ALLOCATIONS.load(Ordering::SeqCst);
        first.get_or_insert(last);
        ControlFlow::Continue(())
    };
    let options = GenerationOptions { tokens: 200, end_tokens: &[] };
    engine.generate(sequence, &prompt, &mut sampler, options, &mut |_| {}, &mut on_token).unwrap();
    engine.end_sequence(sequence);
    last - first.unwrap()
}

#[test]
fn rounds_allocate_nothing_and_load_nothing_once_they_are_warm() {
    let _guard = ONE_AT_A_TIME.lock();
    let ways: [Drafters<'_>; 4] = [
        &[("mtp-chain", &[("depth", "4")])],
        &[("mtp-chain", &[("depth", "3"), ("form", "loop")])],
        &[("ngram-adaptive", &[("match", "2")])],
        &[("ngram-adaptive", &[("match", "2")]), ("mtp-chain", &[("depth", "4")])],
    ];
    for (number, drafters) in ways.into_iter().enumerate() {
        let strategies = paceline_engine::StrategyOptions {
            select: paceline_engine::Select::Order,
            ..strategies(drafters, number != 1)
        };
        let mut engine = strategies::engine_at(&demo_q8_path(), &builtin_cpu(), options(&[]), &strategies);
        let drawn = SamplerOptions { temperature: 0.7, top_p: 0.9, seed: 5, ..SamplerOptions::default() };
        for sampling in [SamplerOptions::default(), drawn] {
            speculate(&mut engine, &sampling);
            let loads = engine.run_counts().loads;
            assert_eq!(speculate(&mut engine, &sampling), 0, "{drafters:?}: allocations");
            assert_eq!(engine.run_counts().loads, loads, "{drafters:?}: executables");
            let report = engine.speculation_report();
            assert!(report.rounds_with_draft >= 10, "{drafters:?}: {report:?}");
        }
    }
}

/// Uploads, launches and waits of some runs, one of each a run.
fn each_once(counts: RunCounts) -> u64 {
    assert_eq!([counts.uploads, counts.waits], [counts.launches; 2]);
    counts.launches
}

#[test]
fn a_draft_is_one_launch_and_its_verification_another() {
    let _guard = ONE_AT_A_TIME.lock();
    let all = |drafters: Drafters<'_>| {
        let strategies = strategies(drafters, true);
        let mut engine = strategies::engine_at(&demo_q8_path(), &builtin_cpu(), options(&[]), &strategies);
        speculate(&mut engine, &SamplerOptions::default());
        let before = (engine.run_counts(), engine.counters().unwrap());
        speculate(&mut engine, &SamplerOptions::default());
        let (counts, device) = (engine.run_counts(), engine.counters().unwrap());
        assert_eq!(device.launches - before.1.launches, counts.launches - before.0.launches);
        let report = engine.speculation_report();
        assert_eq!(each_once(report.target_runs), report.rounds);
        // The rest is the prompt, and filling the prompt's keys and values.
        let others = counts.launches - before.0.launches - report.rounds - each_once(report.strategy_runs);
        (report, others)
    };

    let (report, others) = all(&[("mtp-chain", &[("depth", "4")])]);
    assert_eq!(each_once(report.strategy_runs), report.drafters[0].drafts);
    assert_eq!(others, 2);
    let explanation = &report.drafters[0].explanation;
    // Of both texts: each prompt's rows at once, all later ones at the head of drafts.
    assert!(explanation.ends_with("; 200 rows of keys and values filled in 2 launches"), "{explanation}");
    // Four ids and four fault counts of 4 bytes come back, and nothing else.
    let bytes = report.strategy_runs.bytes_from_device / report.strategy_runs.launches;
    assert!((32..=8 * 64).contains(&bytes), "{bytes} bytes a draft");

    let (report, others) = all(&[("mtp-chain", &[("depth", "4"), ("form", "loop")])]);
    // The looped form has a launch a step, and drafts are only shorter at the end of the text.
    assert_eq!(each_once(report.strategy_runs), report.drafters[0].drafted);
    assert_eq!(others, 2);

    let (report, others) = all(&[("ngram-adaptive", &[("match", "2")])]);
    assert_eq!((each_once(report.strategy_runs), others), (0, 1));
    assert!(report.drafters[0].drafts > 0);
}
