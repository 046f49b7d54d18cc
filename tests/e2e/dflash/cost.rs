//! What a round costs, by count; and, as a measurement, what is accepted.

use super::{demo, dflash_engine, greedy, plain_engine, text, warm};
use paceline_engine::{EngineOptions, GenerationOptions, Sampler};
use paceline_gguf::Gguf;
use paceline_tests::reference_logits;
use paceline_text::{Tokenizer, TokenizerSource};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

thread_local! {
    /// Allocations of the thread that runs the engine.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: passes everything on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
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

#[test]
fn a_round_is_one_launch_of_the_drafter_and_allocates_nothing() {
    let files = demo();
    let prompt = &reference_logits().unwrap().prompts[0].ids;
    let mut engine = dflash_engine(&files, EngineOptions::default(), "dflash", &[("depth", "7")]);
    // Executables are bound when they are first used.
    text(&mut engine, prompt, greedy(), 300);
    engine.clear_speculation_report();
    let sequence = engine.new_sequence().unwrap();
    let mut sampler = Sampler::new(greedy(), 8192).unwrap();
    let options = GenerationOptions { tokens: 300, end_tokens: &[] };
    let (mut count, mut begin, mut end) = (0, 0, 0);
    engine
        .generate(sequence, prompt, &mut sampler, options, &mut |_| {}, &mut |_| {
            count += 1;
            match count {
                20 => begin = ALLOCATIONS.get(),
                280 => end = ALLOCATIONS.get(),
                _ => {}
            }
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!(end - begin, 0);
    let report = engine.speculation_report();
    assert_eq!(report.strategy_runs.launches, report.drafters[0].drafts);
    assert_eq!(report.strategy_runs.uploads, report.strategy_runs.launches);
}

fn tokenizer(file: &Gguf) -> Tokenizer {
    let text = |key: &str| Some(file.require_str(&format!("tokenizer.ggml.{key}")).unwrap().to_owned());
    let list = |key: &str| {
        file.require_array_str(&format!("tokenizer.ggml.{key}")).unwrap().map(str::to_owned).collect()
    };
    Tokenizer::new(&TokenizerSource {
        model: text("model"),
        pre: text("pre"),
        tokens: list("tokens"),
        token_types: file.require_array_i32("tokenizer.ggml.token_type").unwrap().collect(),
        merges: list("merges"),
        ..TokenizerSource::default()
    })
    .unwrap()
}

#[test]
#[ignore = "a measurement"]
fn acceptance_on_code() {
    let files = demo();
    let tokenizer = tokenizer(&files[0]);
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/bench/prompts/code.jsonl");
    let lines = std::fs::read_to_string(path).unwrap();
    let prompts: Vec<Vec<u32>> = lines
        .lines()
        .map(|line| {
            let prompt: serde_json::Value = serde_json::from_str(line).unwrap();
            tokenizer.encode(prompt["text"].as_str().unwrap(), Default::default()).unwrap()
        })
        .collect();
    for sampling in [greedy(), warm()] {
        let mut plain = plain_engine(&files[0], EngineOptions::default());
        let mut drafting = dflash_engine(&files, EngineOptions::default(), "dflash", &[("depth", "7")]);
        let [mut plain_time, mut drafting_time] = [Duration::ZERO; 2];
        for prompt in &prompts {
            let start = Instant::now();
            let expected = text(&mut plain, prompt, sampling.clone(), 160);
            let middle = Instant::now();
            assert_eq!(text(&mut drafting, prompt, sampling.clone(), 160), expected);
            plain_time += middle - start;
            drafting_time += middle.elapsed();
        }
        let report = drafting.speculation_report();
        println!(
            "temperature {}: {:.2} tokens a round, {:.3} of 7 accepted, {:?} instead of {:?} with prompts, {:?}, {}",
            sampling.temperature,
            report.mean_length(),
            report.acceptance().unwrap(),
            drafting_time,
            plain_time,
            report.time,
            report.drafters[0].explanation
        );
    }
}
