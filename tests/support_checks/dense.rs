//! Random dense models and their reference.

use paceline_gguf::verify_bytes;
use paceline_tests::{DenseFamily, RandomDense, Reference, Rows};

use crate::{file_of, largest_difference};

fn logits(model: &RandomDense, tokens: &[u32]) -> Rows {
    Reference::load(&file_of(model.to_bytes())).unwrap().trunk(tokens).logits
}

#[test]
fn every_variant_is_a_valid_file_with_sensible_outputs() {
    let mut files: Vec<Vec<u8>> = Vec::new();
    for (name, model) in RandomDense::variants() {
        let bytes = model.to_bytes();
        let report = verify_bytes(bytes.clone());
        assert!(report.is_ok() && report.tensors > 0, "{name}: {report}");
        files.push(bytes);
        for row in logits(&model, &model.tokens(9, 3)) {
            let deviation = (row.iter().map(|x| x * x).sum::<f64>() / row.len() as f64).sqrt();
            assert!(deviation > 0.1 && row.iter().all(|logit| logit.abs() < 100.0), "{name}: {deviation}");
        }
    }
    let count = files.len();
    files.sort();
    files.dedup();
    assert_eq!(files.len(), count, "every variant is another model");
}

#[test]
fn each_part_of_attention_changes_the_outputs() {
    for family in [DenseFamily::Qwen3, DenseFamily::Llama] {
        let tiny = RandomDense::tiny(family);
        let tokens = tiny.tokens(12, 1);
        let expected = logits(&tiny, &tokens);
        let mut others = vec![
            ("scaling", RandomDense { linear_scaling: Some(4.0), ..tiny.clone() }),
            ("rotary width", RandomDense { rotary: 16, ..tiny.clone() }),
            ("base", RandomDense { rope_base: 1e6, ..tiny.clone() }),
            ("biases", RandomDense { biases: true, ..tiny.clone() }),
        ];
        if family == DenseFamily::Llama {
            others.push(("factors", RandomDense { rope_factors: true, ..tiny.clone() }));
        }
        for (what, other) in others {
            let difference = largest_difference(&logits(&other, &tokens), &expected);
            println!("{family:?}, {what}: {difference:.1e}");
            assert!(difference > 1e-2, "{family:?}, {what}: {difference}");
        }
        // Nothing turns at position 0.
        let first = RandomDense { rope_base: 1e6, ..tiny.clone() };
        assert_eq!(largest_difference(&logits(&first, &tokens[..1]), &expected[..1]), 0.0);
    }
}

#[test]
fn widths_that_are_implied_are_those_that_are_stated() {
    for family in [DenseFamily::Qwen3, DenseFamily::Llama] {
        let stated = RandomDense::tiny(family);
        let implied = RandomDense { states_widths: false, ..stated.clone() };
        let [stated, implied] = [stated, implied].map(|model| logits(&model, &[5, 6, 7]));
        assert_eq!(largest_difference(&stated, &implied), 0.0);
    }
}

#[test]
fn later_tokens_do_not_change_earlier_outputs() {
    for name in ["qwen3-heads-1-to-4", "llama-factors"] {
        let model = RandomDense::variant(name).unwrap();
        let (first, second) = (model.tokens(8, 1), model.tokens(8, 2));
        let other = [&first[..5], &second[5..]].concat();
        let [first, other] = [first, other].map(|tokens| logits(&model, &tokens));
        assert_eq!(largest_difference(&first[..5], &other[..5]), 0.0, "{name}");
        assert!(largest_difference(&first[5..], &other[5..]) > 0.01, "{name}");
    }
}
