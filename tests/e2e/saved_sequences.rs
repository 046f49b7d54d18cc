//! Sequences that are saved, restored and copied go on as if nothing had happened.

use paceline_engine::{
    Engine, EngineOptions, GenerationOptions, Rows, Sampler, SamplerOptions, Select, SequenceId,
    StrategyOptions, Want,
};
use paceline_plugin_api::graph::DType;
use paceline_tests::engines::{bits, builtin_cpu};
use paceline_tests::strategies::{drafter, engine_at, rollback};
use paceline_tests::test_models::demo_q8_path;
use std::ops::ControlFlow;
use {
    paceline_strategy_gdn_replay as _, paceline_strategy_mtp_chain as _,
    paceline_strategy_ngram_adaptive as _,
};

/// How a context keeps recurrent state.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kept {
    InPlace,
    Snapshots,
    Records,
}

const ALL: [Kept; 3] = [Kept::InPlace, Kept::Snapshots, Kept::Records];

fn engine(kept: Kept) -> Engine {
    engine_with(kept, [DType::F16; 2])
}

fn engine_with(kept: Kept, kv_types: [DType; 2]) -> Engine {
    let drafters = vec![drafter("ngram-adaptive", &[]), drafter("mtp-chain", &[("depth", "4")])];
    let strategies = match kept {
        Kept::InPlace => StrategyOptions::default(),
        // Which drafter is asked must not depend on times.
        Kept::Snapshots | Kept::Records => StrategyOptions {
            drafters,
            controller: false,
            select: Select::Order,
            rollback: (kept == Kept::Records).then(|| rollback("gdn-replay")),
            ..StrategyOptions::default()
        },
    };
    let options = EngineOptions {
        context: Some(1024),
        sequences: 2,
        microbatch: 64,
        kv_types,
        ..EngineOptions::default()
    };
    engine_at(&demo_q8_path(), &builtin_cpu(), options, &strategies)
}

fn tokens(count: usize, seed: u32) -> Vec<u32> {
    (0..count as u32).map(|i| (i + seed).wrapping_mul(2_654_435_761) % 8192).collect()
}

/// Processes tokens in small runs, taking some rows back where that is possible, so that records are pending.
fn process(engine: &mut Engine, sequence: SequenceId, tokens: &[u32]) {
    for part in tokens.chunks(5) {
        let with_more = [part, &[7, 8]].concat();
        let back = engine.can_roll_back(sequence);
        engine.run(&[Rows { sequence, tokens: &with_more, outputs: 0 }], Want::Ids).unwrap();
        if engine.can_roll_back(sequence) >= 2 {
            engine.roll_back(sequence, 2).unwrap();
        } else {
            // In place nothing can be taken back: the tokens are processed alone from the beginning.
            assert_eq!(back, 0);
            engine.clear_sequence(sequence);
            engine.prompt(sequence, tokens, Want::Ids, &mut |_| {}).unwrap();
            return;
        }
    }
}

/// Logits of the next tokens, one after the other.
fn continuation(engine: &mut Engine, sequence: SequenceId) -> Vec<Vec<u32>> {
    let step = |token: u32| {
        let rows = [Rows { sequence, tokens: &[token], outputs: 1 }];
        bits(engine.run(&rows, Want::Logits).unwrap().logits(0).unwrap())
    };
    tokens(4, 900).into_iter().map(step).collect()
}

#[test]
fn caches_of_few_bits_are_saved_and_restored() {
    let text = tokens(300, 1);
    let all = [[DType::Q5_1, DType::Q4_1], [DType::Q5_0, DType::Q4_0]];
    for kv_types in all {
        let mut source = engine_with(Kept::InPlace, kv_types);
        let sequence = source.new_sequence().unwrap();
        source.prompt(sequence, &text, Want::Ids, &mut |_| {}).unwrap();
        let saved = source.save_sequence(sequence).unwrap();
        let expected = continuation(&mut source, sequence);
        let mut target = engine_with(Kept::Records, kv_types);
        let other = target.new_sequence().unwrap();
        target.prompt(other, &tokens(400, 5), Want::Ids, &mut |_| {}).unwrap();
        let restored = target.new_sequence().unwrap();
        target.restore_sequence(restored, &saved).unwrap();
        assert!(continuation(&mut target, restored) == expected, "{kv_types:?}");
        for foreign in all.into_iter().filter(|other| *other != kv_types) {
            let mut target = engine_with(Kept::InPlace, foreign);
            let sequence = target.new_sequence().unwrap();
            assert!(target.restore_sequence(sequence, &saved).is_err(), "{kv_types:?} as {foreign:?}");
        }
    }
}

#[test]
fn a_saved_sequence_goes_on_anywhere() {
    let text = tokens(300, 1);
    let mut plain = engine(Kept::InPlace);
    let sequence = plain.new_sequence().unwrap();
    plain.prompt(sequence, &text, Want::Ids, &mut |_| {}).unwrap();
    let expected = continuation(&mut plain, sequence);
    for from in ALL {
        let mut source = engine(from);
        let sequence = source.new_sequence().unwrap();
        process(&mut source, sequence, &text);
        let saved = source.save_sequence(sequence).unwrap();
        assert_eq!(continuation(&mut source, sequence), expected, "{from:?} after it was saved");
        for to in ALL {
            let mut target = engine(to);
            // Another sequence's remains are there, and in another slot.
            let other = target.new_sequence().unwrap();
            process(&mut target, other, &tokens(80, 77));
            let restored = target.new_sequence().unwrap();
            process(&mut target, restored, &tokens(40, 5));
            target.restore_sequence(restored, &saved).unwrap();
            assert_eq!(target.sequence_length(restored), text.len());
            assert_eq!(continuation(&mut target, restored), expected, "{from:?} to {to:?}");
        }
    }
}

/// More blocks than one run could bring up to date.
#[test]
fn a_long_sequence_is_restored() {
    let text = tokens(1500, 1);
    let long = |kept| {
        let strategies = StrategyOptions {
            drafters: vec![drafter("ngram-adaptive", &[]), drafter("mtp-chain", &[])],
            rollback: (kept == Kept::Records).then(|| rollback("gdn-replay")),
            ..StrategyOptions::default()
        };
        let options = EngineOptions { context: Some(2048), microbatch: 64, ..EngineOptions::default() };
        engine_at(&demo_q8_path(), &builtin_cpu(), options, &strategies)
    };
    let mut source = long(Kept::Records);
    let sequence = source.new_sequence().unwrap();
    source.prompt(sequence, &text, Want::Ids, &mut |_| {}).unwrap();
    let saved = source.save_sequence(sequence).unwrap();
    let expected = continuation(&mut source, sequence);
    let mut target = long(Kept::Snapshots);
    let sequence = target.new_sequence().unwrap();
    target.restore_sequence(sequence, &saved).unwrap();
    assert_eq!(continuation(&mut target, sequence), expected);
}

#[test]
fn a_copy_goes_its_own_way() {
    for kept in ALL {
        let mut engine = engine(kept);
        let (first, second) = (engine.new_sequence().unwrap(), engine.new_sequence().unwrap());
        process(&mut engine, first, &tokens(70, 3));
        engine.copy_sequence(first, second).unwrap();
        process(&mut engine, first, &tokens(20, 60));
        let of_copy = continuation(&mut engine, second);
        engine.clear_sequence(second);
        engine.prompt(second, &tokens(70, 3), Want::Ids, &mut |_| {}).unwrap();
        assert_eq!(of_copy, continuation(&mut engine, second), "{kept:?}");
    }
}

/// A, then B, then A from what was saved: as if A had been processed again.
#[test]
fn a_restored_prompt_equals_one_that_was_processed() {
    for kept in [Kept::Snapshots, Kept::Records] {
        let mut engine = engine(kept);
        let sequence = engine.new_sequence().unwrap();
        let (a, b) = (tokens(200, 11), tokens(150, 12));
        let generate = |engine: &mut Engine, prompt: &[u32]| {
            let mut sampler =
                Sampler::new(SamplerOptions { temperature: 0.7, seed: 3, ..SamplerOptions::default() }, 8192)
                    .unwrap();
            let mut ids = Vec::new();
            engine.clear_speculation_report();
            let options = GenerationOptions { tokens: 60, end_tokens: &[] };
            engine
                .generate(sequence, prompt, &mut sampler, options, &mut |_| {}, &mut |token| {
                    ids.push(token);
                    ControlFlow::Continue(())
                })
                .unwrap();
            let report = engine.speculation_report();
            (ids, report.drafters.iter().map(|d| (d.drafted, d.verified, d.accepted)).collect::<Vec<_>>())
        };
        let (rest, last) = (&a[..a.len() - 1], &a[a.len() - 1..]);
        engine.prompt(sequence, rest, Want::Ids, &mut |_| {}).unwrap();
        let saved = engine.save_sequence(sequence).unwrap();
        let missed = generate(&mut engine, last);
        engine.clear_sequence(sequence);
        generate(&mut engine, &b);
        engine.restore_sequence(sequence, &saved).unwrap();
        // Text and drafts: what drafters keep is restored too.
        assert_eq!(generate(&mut engine, last), missed, "{kept:?}");
    }
}

#[test]
fn damaged_bytes_are_refused_and_leave_an_empty_sequence() {
    let mut engine = engine(Kept::Records);
    let sequence = engine.new_sequence().unwrap();
    process(&mut engine, sequence, &tokens(30, 1));
    let saved = engine.save_sequence(sequence).unwrap();
    let mut cases: Vec<Vec<u8>> =
        (0..saved.len()).step_by(saved.len() / 40).map(|end| saved[..end].to_vec()).collect();
    cases.push([saved.as_slice(), &[0]].concat());
    // Lengths and tokens that are not what they were.
    for place in [9, 15, 100, 120, 160] {
        let mut changed = saved.clone();
        changed[place] ^= 0xF0;
        cases.push(changed);
    }
    for (number, case) in cases.iter().enumerate() {
        let restored = engine.restore_sequence(sequence, case);
        if let Err(error) = restored {
            assert!(
                error.to_string().starts_with("the saved sequence cannot be restored: "),
                "{number}: {error}"
            );
            assert_eq!(engine.sequence_length(sequence), 0);
        }
    }
    assert!(cases[..40].iter().all(|case| engine.restore_sequence(sequence, case).is_err()));
    engine.restore_sequence(sequence, &saved).unwrap();
    assert_eq!(engine.sequence_length(sequence), 30);
}

#[test]
fn another_context_says_why_it_refuses() {
    let mut engine = engine(Kept::InPlace);
    let sequence = engine.new_sequence().unwrap();
    engine.prompt(sequence, &tokens(300, 1), Want::Ids, &mut |_| {}).unwrap();
    let saved = engine.save_sequence(sequence).unwrap();
    let options = EngineOptions { context: Some(256), ..EngineOptions::default() };
    let mut short = engine_at(&demo_q8_path(), &builtin_cpu(), options, &StrategyOptions::default());
    let sequence = short.new_sequence().unwrap();
    let error = short.restore_sequence(sequence, &saved).unwrap_err().to_string();
    assert_eq!(error, "the saved sequence cannot be restored: it holds 300 positions, this context 256");
}
