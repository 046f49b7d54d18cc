//! Random models are valid files that compute something.

use paceline_gguf::{Gguf, TensorType, verify, verify_bytes};
use paceline_plugin_api::graph::DType;
use paceline_tests::reference::shifted;
use paceline_tests::{RandomDrafter, RandomModel, Rows, ValueSource, WeightTypes};
use paceline_text::{EncodeOptions, Tokenizer, TokenizerSource};

use crate::{drafter_of, largest_difference, open, reference_of};

/// Logits that differ between tokens and are no huge numbers.
fn assert_sensible(what: &str, logits: &Rows) {
    for row in logits {
        assert!(row.iter().all(|logit| logit.abs() < 100.0), "{what}: not finite, or too large");
        let mean = row.iter().sum::<f64>() / row.len() as f64;
        let variance = row.iter().map(|logit| (logit - mean).powi(2)).sum::<f64>() / row.len() as f64;
        assert!(variance.sqrt() > 0.1, "{what}: deviation {}", variance.sqrt());
    }
}

#[test]
fn every_variant_is_a_valid_file_with_sensible_outputs() {
    for (name, model) in RandomModel::variants() {
        let report = verify_bytes(model.to_bytes());
        assert!(report.is_ok() && report.tensors > 0, "{name}: {report}");
        let target = reference_of(&model);
        assert_eq!((target.vocabulary(), target.hidden()), (384, model.hidden as usize), "{name}");
        assert_eq!(target.has_mtp(), model.nextn == 1, "{name}");
        let tokens = model.tokens(9, 3);
        let trunk = target.trunk(&tokens);
        assert_sensible(name, &trunk.logits);
        if target.has_mtp() {
            assert_sensible(name, &target.mtp(&tokens, &shifted(&trunk.hidden)).logits);
        }

        let drafter = RandomDrafter::for_target(&model);
        let report = verify_bytes(drafter.to_bytes());
        assert!(report.is_ok(), "drafter of {name}: {report}");
        let drafter = drafter_of(&drafter);
        let block = drafter.block_tokens(tokens[0], 3);
        assert_sensible(name, &drafter.block(&target, &drafter.features(&trunk), &block));
    }
}

#[test]
fn the_vocabulary_is_a_tokenizer_for_any_text() {
    let model = RandomModel::default();
    let file = Gguf::from_bytes(model.to_bytes()).unwrap();
    let text = |key: &str| Some(file.require_str(&format!("tokenizer.ggml.{key}")).unwrap().to_owned());
    let list = |key: &str| {
        file.require_array_str(&format!("tokenizer.ggml.{key}")).unwrap().map(str::to_owned).collect()
    };
    let tokenizer = Tokenizer::new(&TokenizerSource {
        model: text("model"),
        pre: text("pre"),
        tokens: list("tokens"),
        token_types: file.require_array_i32("tokenizer.ggml.token_type").unwrap().collect(),
        merges: list("merges"),
        eos: file.get_u32("tokenizer.ggml.eos_token_id").unwrap(),
        padding: file.get_u32("tokenizer.ggml.padding_token_id").unwrap(),
        add_bos: file.get_bool("tokenizer.ggml.add_bos_token").unwrap(),
        ..TokenizerSource::default()
    })
    .unwrap();
    let sentence = "All the rain, \u{e4}\u{4e2d}\0";
    let tokens = tokenizer.encode(sentence, EncodeOptions::default()).unwrap();
    assert_eq!(tokenizer.decode(&tokens), sentence.as_bytes());
    // " the" is one token, the first ones are bytes.
    assert!(tokens.contains(&258) && tokens[0] == u32::from(b'A'), "{tokens:?}");
    let controls = model.control_tokens();
    assert_eq!(tokenizer.eos(), Some(controls.turn_end));
    assert!(
        [controls.end_of_text, controls.turn_start, controls.mask].map(|id| tokenizer.is_control(id))
            == [true; 3]
    );
}

#[test]
fn every_variant_is_another_model() {
    let mut files: Vec<_> = RandomModel::variants().iter().map(|variant| variant.1.to_bytes()).collect();
    let count = files.len();
    files.sort();
    files.dedup();
    assert_eq!(files.len(), count);
}

#[test]
fn a_file_is_what_the_bytes_are() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("model.gguf");
    let model = RandomModel { seed: 7, ..RandomModel::default() };
    model.write(&path).unwrap();
    assert!(std::fs::read(&path).unwrap() == model.to_bytes());
    assert!(verify(&path).is_ok());
    assert_eq!(open(&path).require_u32("qwen35.block_count").unwrap(), 5);
}

#[test]
fn the_seed_changes_all_weights_and_nothing_else() {
    let models = [1, 2].map(|seed| RandomModel { seed, ..RandomModel::default() });
    let files = models.each_ref().map(|model| Gguf::from_bytes(model.to_bytes()).unwrap());
    for (first, second) in files[0].tensors().zip(files[1].tensors()) {
        assert_eq!(first, second);
        let bytes = [files[0].tensor_bytes(&first).unwrap(), files[1].tensor_bytes(&second).unwrap()];
        assert!(bytes[0] != bytes[1], "{}", first.name);
    }
    let logits = models.each_ref().map(|model| reference_of(model).trunk(&[1, 2, 3]).logits);
    assert!(largest_difference(&logits[0], &logits[1]) > 0.5);
}

#[test]
fn coarser_types_move_the_outputs_more() {
    let tokens = RandomModel::wide().tokens(5, 1);
    let logits = |weights: WeightTypes| {
        reference_of(&RandomModel { weights, ..RandomModel::wide() }).trunk(&tokens).logits
    };
    let exact = logits(DType::F32.into()).concat();
    let length = |values: &[f64]| values.iter().map(|value| value * value).sum::<f64>().sqrt();
    let mut last = 0.0;
    // From the finest type to the coarsest.
    for dtype in [DType::F16, DType::BF16, DType::Q8_0, DType::Q6_K, DType::Q5_K, DType::Q4_K] {
        let error: Vec<f64> = logits(dtype.into()).concat().iter().zip(&exact).map(|(a, b)| a - b).collect();
        let relative = length(&error) / length(&exact);
        println!("{dtype}: {relative:.4}");
        // Unrelated logits would give 1.4.
        assert!(relative > last && relative < 1.0, "{dtype}: {relative} after {last}");
        last = relative;
    }
}

#[test]
fn matrices_have_the_wanted_types() {
    let types = |model: &RandomModel, name: &str| {
        let file = Gguf::from_bytes(model.to_bytes()).unwrap();
        file.require_tensor(name).unwrap().tensor_type
    };
    let mixed = RandomModel { weights: WeightTypes::Q4KM, ..RandomModel::wide() };
    assert_eq!(types(&mixed, "token_embd.weight"), TensorType::Q6K);
    assert_eq!(types(&mixed, "blk.3.attn_v.weight"), TensorType::Q6K);
    assert_eq!(types(&mixed, "blk.0.ffn_up.weight"), TensorType::Q4K);
    assert_eq!(types(&mixed, "blk.0.ssm_conv1d.weight"), TensorType::F32);
    let by_name = RandomModel {
        weights: WeightTypes::ByName(|name| if name.contains("ffn") { DType::Q4_0 } else { DType::F16 }),
        ..RandomModel::default()
    };
    assert_eq!(types(&by_name, "blk.0.ffn_down.weight"), TensorType::Q4_0);
    assert_eq!(types(&by_name, "blk.0.ssm_out.weight"), TensorType::F16);
    // Rows of 128 are no whole blocks of 256, those of 256 are.
    let narrow = RandomModel { weights: DType::Q4_K.into(), ..RandomModel::default() };
    assert_eq!(types(&narrow, "blk.0.ffn_up.weight"), TensorType::Q8_0);
    assert_eq!(types(&narrow, "blk.0.ffn_down.weight"), TensorType::Q4K);
}

#[test]
fn the_model_for_benchmarks_is_valid_and_computes() {
    // All of its shapes but the number of tokens and layers, which only cost time.
    for weights in [DType::Q8_0.into(), WeightTypes::Q4KM, DType::BF16.into()] {
        let model = RandomModel { vocab: 512, layers: 4, weights, ..RandomModel::shaped_0_8b() };
        assert_eq!(model.values, ValueSource::RandomBlocks);
        let report = verify_bytes(model.to_bytes());
        assert!(report.is_ok(), "{report}");
        let target = reference_of(&model);
        let trunk = target.trunk(&[1, 2, 3]);
        assert_sensible("0.8B", &trunk.logits);
        let drafter = RandomDrafter::for_target(&model);
        assert_eq!((drafter.layers, drafter.heads, drafter.kv_heads), (5, 8, 2));
    }
    let features = RandomDrafter::for_target(&RandomModel::shaped_0_8b()).target_layers;
    assert_eq!(features, [2, 7, 12, 17, 23]);
}
