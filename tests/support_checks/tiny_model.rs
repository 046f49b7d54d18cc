//! The reference against outputs of llama.cpp for a random model.

use paceline_tests::reference::shifted;
use paceline_tests::test_models::read_f32_rows;
use paceline_tests::{DrafterReference, Reference, Rows, test_models_or_skip};

use crate::{TOKENS, largest_difference, open};

/// llama.cpp computes in f32.
const TOLERANCE: f64 = 1e-5;

#[test]
fn the_reference_agrees_with_recorded_outputs_of_the_tiny_model() {
    let directory = test_models_or_skip!().join("tiny");
    let check = |name: &str, computed: &Rows| {
        let recorded = read_f32_rows(directory.join(name), computed[0].len()).unwrap();
        let difference = largest_difference(computed, &recorded);
        println!("{name}: largest difference {difference:.2e}");
        assert!(difference <= TOLERANCE, "{name}: {difference}");
    };
    let target = Reference::load(&open(directory.join("tiny-f32.gguf"))).unwrap();
    let trunk = target.trunk(&TOKENS);
    check("tiny.logits.f32", &trunk.logits);
    check("tiny.h.f32", &trunk.hidden);
    check("tiny.mtp.f32", &target.mtp(&TOKENS, &shifted(&trunk.hidden)).logits);

    let drafter = DrafterReference::load(&open(directory.join("tiny-dflash-f32.gguf"))).unwrap();
    let features = drafter.features(&trunk);
    check("tiny.feat.f32", &features);
    let block = drafter.block_tokens(42, 7);
    check("tiny.dflash.f32", &drafter.block(&target, &features, &block));
}
