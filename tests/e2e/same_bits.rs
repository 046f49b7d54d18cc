//! The same bits, however a prompt is cut, whoever shares the batch, whatever the level, the threads, or where the
//! plugin comes from.

use paceline_engine::{Engine, EngineOptions, Rows, Want};
use paceline_plugin_api::graph::DType;
use paceline_tests::engines::{
    bits, builtin_cpu, engine_at, engine_of, last_logits, library_cpu, logits, options,
};
use paceline_tests::random_model::{RandomExperts, RandomModel, WeightTypes};
use paceline_tests::test_models::demo_q8_path;

/// Some token ids of a vocabulary, always the same.
fn tokens(count: usize, vocabulary: u32) -> Vec<u32> {
    (0..count as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 7) % vocabulary).collect()
}

/// The demo, and random models of each weight type.
fn engines(options: &EngineOptions) -> Vec<(String, Engine)> {
    let backend = builtin_cpu();
    let types = [DType::F32, DType::F16, DType::BF16, DType::Q4_0, DType::Q4_K, DType::Q5_K, DType::Q6_K];
    let random = types.map(|weight_type| {
        let model = RandomModel { weights: weight_type.into(), ..RandomModel::wide() };
        (format!("random {weight_type}"), engine_of(model.to_bytes(), &backend, options.clone()))
    });
    // The types of 32 elements beside these, a different one for each kind of matrix, and experts.
    let mixed = RandomModel {
        weights: WeightTypes::ByName(mixed_type),
        experts: Some(RandomExperts { count: 8, used: 3, inner: 64, shared: 96, merged: true }),
        ..RandomModel::default()
    };
    let mixed =
        ("random experts of mixed types".to_owned(), engine_of(mixed.to_bytes(), &backend, options.clone()));
    let demo = engine_at(&demo_q8_path(), &backend, options.clone());
    [("demo q8_0".to_owned(), demo)].into_iter().chain(random).chain([mixed]).collect()
}

fn mixed_type(tensor: &str) -> DType {
    let types = [
        ("ffn_down", DType::MXFP4),
        ("ffn_", DType::IQ4_NL),
        ("attn_q", DType::Q5_0),
        ("attn_", DType::Q5_1),
        ("ssm_", DType::Q4_1),
        ("token_embd", DType::Q5_1),
    ];
    types.into_iter().find(|(part, _)| tensor.contains(part)).map_or(DType::Q4_1, |(_, dtype)| dtype)
}

#[test]
fn a_prompt_may_be_cut_anywhere() {
    for (name, mut engine) in engines(&options(&[])) {
        let tokens = tokens(300, engine.model().shape().vocabulary);
        let sequence = engine.new_sequence().unwrap();
        let expected = bits(&last_logits(&mut engine, sequence, &tokens, 512));
        for part in [1, 7, 16, 64] {
            engine.clear_sequence(sequence);
            let found = bits(&last_logits(&mut engine, sequence, &tokens, part));
            assert!(found == expected, "{name}: parts of {part} rows give other logits");
        }
    }
}

#[test]
fn every_row_of_a_run_is_as_if_alone() {
    for kv_type in [DType::F16, DType::F32, DType::Q8_0] {
        let options = EngineOptions { kv_types: [kv_type; 2], ..options(&[]) };
        for (name, mut engine) in engines(&options) {
            let tokens = tokens(24, engine.model().shape().vocabulary);
            let sequence = engine.new_sequence().unwrap();
            let alone = logits(&mut engine, sequence, &tokens, 1);
            for part in [2, 3, 5, 8, 16] {
                engine.clear_sequence(sequence);
                let together = logits(&mut engine, sequence, &tokens, part);
                for (row, (a, b)) in alone.iter().zip(&together).enumerate() {
                    assert!(bits(a) == bits(b), "{name}, KV {kv_type}: row {row} in parts of {part}");
                }
            }
        }
    }
}

#[test]
fn rows_are_as_if_alone_over_caches_of_few_bits() {
    for kv_types in [[DType::Q5_1, DType::Q4_1], [DType::Q5_0, DType::Q4_0]] {
        let options = EngineOptions { kv_types, ..options(&[]) };
        let mut engine = engine_at(&demo_q8_path(), &builtin_cpu(), options);
        // Several blocks of the cache, the last of them not full.
        let tokens = tokens(530, engine.model().shape().vocabulary);
        let sequence = engine.new_sequence().unwrap();
        let expected = bits(&last_logits(&mut engine, sequence, &tokens, 1));
        for part in [5, 16, 128] {
            engine.clear_sequence(sequence);
            let found = bits(&last_logits(&mut engine, sequence, &tokens, part));
            assert!(found == expected, "{kv_types:?}: parts of {part} rows give other logits");
        }
    }
}

#[test]
fn sequences_in_one_batch_do_not_know_each_other() {
    let options = EngineOptions { sequences: 3, ..options(&[]) };
    for (name, mut engine) in engines(&options) {
        let vocabulary = engine.model().shape().vocabulary;
        let prompts: Vec<Vec<u32>> =
            [5, 11, 2].iter().map(|&n| tokens(n + 40, vocabulary).split_off(n)).collect();
        let ids: Vec<_> = prompts.iter().map(|_| engine.new_sequence().unwrap()).collect();
        let alone: Vec<Vec<f32>> =
            ids.iter().zip(&prompts).map(|(&id, p)| last_logits(&mut engine, id, p, 16)).collect();
        ids.iter().for_each(|&id| engine.clear_sequence(id));
        // Different lengths are behind the sequences when they meet, and rows of several are in each run.
        let step = 10;
        let mut last = vec![Vec::new(); prompts.len()];
        for start in (0..40).step_by(step) {
            let rows: Vec<Rows<'_>> = ids
                .iter()
                .zip(&prompts)
                .map(|(&sequence, p)| Rows { sequence, tokens: &p[start..start + step], outputs: 1 })
                .collect();
            let outputs = engine.run(&rows, Want::Logits).unwrap();
            for (index, last) in last.iter_mut().enumerate() {
                *last = outputs.logits(index).unwrap().to_vec();
            }
        }
        for (index, (a, b)) in alone.iter().zip(&last).enumerate() {
            assert!(bits(a) == bits(b), "{name}: sequence {index}");
        }
    }
}

#[test]
fn a_slot_that_was_used_before_leaves_no_trace() {
    for (name, mut engine) in engines(&options(&[])) {
        let vocabulary = engine.model().shape().vocabulary;
        let sequence = engine.new_sequence().unwrap();
        let prompt = tokens(20, vocabulary);
        let expected = bits(&last_logits(&mut engine, sequence, &prompt, 4));
        engine.clear_sequence(sequence);
        last_logits(&mut engine, sequence, &tokens(270, vocabulary).split_off(3), 64);
        engine.end_sequence(sequence);
        let sequence = engine.new_sequence().unwrap();
        assert!(bits(&last_logits(&mut engine, sequence, &prompt, 4)) == expected, "{name}");
    }
}

#[test]
fn levels_and_threads_do_not_change_bits() {
    let backend = builtin_cpu();
    let levels: Vec<&str> =
        paceline_backend_cpu::level::Level::available().iter().map(|l| l.name()).collect();
    let mut expected = None;
    for level in levels {
        for threads in ["1", "2", "3"] {
            let options = options(&[("level", level), ("threads", threads)]);
            let mut engine = engine_at(&demo_q8_path(), &backend, options);
            let tokens = tokens(40, engine.model().shape().vocabulary);
            let sequence = engine.new_sequence().unwrap();
            let found = bits(&last_logits(&mut engine, sequence, &tokens, 16));
            assert!(*expected.get_or_insert_with(|| found.clone()) == found, "{level}, {threads} threads");
        }
    }
}

#[test]
fn a_plugin_from_its_file_gives_the_same() {
    let run = |backend| {
        let mut engine = engine_at(&demo_q8_path(), &backend, options(&[]));
        let tokens = tokens(60, engine.model().shape().vocabulary);
        let sequence = engine.new_sequence().unwrap();
        logits(&mut engine, sequence, &tokens, 16).iter().map(|l| bits(l)).collect::<Vec<_>>()
    };
    assert!(run(library_cpu()) == run(builtin_cpu()));
}

#[test]
fn ids_found_on_the_device_are_the_largest_logits() {
    for (name, mut engine) in engines(&options(&[])) {
        let tokens = tokens(16, engine.model().shape().vocabulary);
        let sequence = engine.new_sequence().unwrap();
        let expected: Vec<u32> = logits(&mut engine, sequence, &tokens, 16)
            .iter()
            .map(|l| (0..l.len()).rev().max_by(|&a, &b| l[a].total_cmp(&l[b])).unwrap() as u32)
            .collect();
        engine.clear_sequence(sequence);
        let rows = [Rows { sequence, tokens: &tokens, outputs: tokens.len() }];
        let outputs = engine.run(&rows, Want::Ids).unwrap();
        let found: Vec<u32> = (0..outputs.len()).map(|i| outputs.id(i).unwrap()).collect();
        assert_eq!(found, expected, "{name}");
    }
}
