//! The reference against outputs of the demo model that were recorded when it was trained.

use std::path::Path;

use paceline_tests::reference::{argmax, shifted};
use paceline_tests::test_models::TopLogits;
use paceline_tests::{
    DrafterReference, Reference, Rows, demo_drafter_q8_path, demo_q8_path, reference_logits,
    test_models_or_skip,
};

use crate::open;

/// The largest difference to recorded logits, and how often the most likely token is another.
#[derive(Default)]
struct Agreement {
    difference: f64,
    other_choices: usize,
    rows: usize,
}

impl Agreement {
    fn add(&mut self, computed: &[Vec<f64>], recorded: &[TopLogits]) {
        assert_eq!(computed.len(), recorded.len());
        for (computed, recorded) in computed.iter().zip(recorded) {
            assert_eq!((recorded.ids.len(), recorded.logits.len()), (20, 20));
            for (id, logit) in recorded.ids.iter().zip(&recorded.logits) {
                self.difference = self.difference.max((computed[*id as usize] - logit).abs());
            }
            self.other_choices += usize::from(argmax(computed) != recorded.ids[0]);
            self.rows += 1;
        }
    }
}

/// A step of a chain reads the draft before it, so nothing can be compared behind the first other draft.
fn comparable_steps(computed: &[Vec<f64>], recorded: &[TopLogits]) -> usize {
    let same = computed.iter().zip(recorded).take_while(|(logits, top)| argmax(logits) == top.ids[0]).count();
    (same + 1).min(recorded.len())
}

/// All recorded logits of the trunk, the MTP block and the drafter.
fn agreements(target: &Reference, drafter: &DrafterReference) -> [(&'static str, Agreement); 3] {
    let [mut trunk, mut mtp, mut dflash] = <[Agreement; 3]>::default();
    for prompt in reference_logits().unwrap().prompts {
        let ids = &prompt.ids;
        let computed = target.trunk(ids);
        trunk.add(&computed.logits, &prompt.logits_top20);
        mtp.add(&target.mtp(ids, &shifted(&computed.hidden)).logits, &prompt.mtp_top20);
        let with_next = [&ids[..], &[prompt.mtp_chain.id_last]].concat();
        let start = &prompt.from_last_prompt_token;
        for (tokens, recorded) in [(&with_next, &prompt.mtp_chain.top20), (ids, &start.mtp_top20)] {
            let chain = target.mtp_chain(tokens, 4);
            let steps = comparable_steps(&chain, recorded);
            mtp.add(&chain[..steps], &recorded[..steps]);
        }
        let features: Rows = drafter.features(&computed);
        let mut block = |features: &[Vec<f64>], anchor: u32, recorded: &[TopLogits]| {
            let logits = drafter.block(target, features, &drafter.block_tokens(anchor, 7));
            dflash.add(&logits[1..], recorded);
        };
        block(&features, prompt.dflash.id_last, &prompt.dflash.top20_rows_1_to_7);
        block(&features[..ids.len() - 1], ids[ids.len() - 1], &start.dflash_top20);
    }
    [("trunk", trunk), ("MTP", mtp), ("drafter", dflash)]
}

fn load(target: &Path, drafter: &Path) -> (Reference, DrafterReference) {
    (Reference::load(&open(target)).unwrap(), DrafterReference::load(&open(drafter)).unwrap())
}

#[test]
fn the_f16_files_give_the_recorded_outputs() {
    let directory = test_models_or_skip!();
    let (target, drafter) =
        load(&directory.join("demo-qwen35-F16.gguf"), &directory.join("demo-dflash-F16.gguf"));
    for (what, agreement) in agreements(&target, &drafter) {
        println!("F16 {what}: {:.1e} over {} rows", agreement.difference, agreement.rows);
        // Recorded in f32 and rounded to 5 decimals.
        assert!(agreement.difference < 2e-4, "{what}: {}", agreement.difference);
        assert_eq!(agreement.other_choices, 0, "{what}");
    }
    for prompt in reference_logits().unwrap().prompts {
        let trunk = target.trunk(&prompt.ids);
        let last = prompt.ids.len() - 1;
        let close = |computed: &[f64], recorded: &[f64]| {
            computed.iter().zip(recorded).all(|(a, b)| (a - b).abs() < 1e-5 * b.abs().max(50.0))
        };
        assert!(close(&trunk.hidden[last], &prompt.hidden_after_norm_last), "{}", prompt.name);
        assert_eq!(prompt.layer_inputs_last.keys().copied().collect::<Vec<_>>(), [2, 5, 7]);
        for (layer, recorded) in &prompt.layer_inputs_last {
            assert!(close(&trunk.layer_inputs[*layer][last], recorded), "{} {layer}", prompt.name);
        }
    }
}

/// Quantised files: how far their logits are off, and for how many rows in a hundred another token is the most likely.
fn assert_near(files: &str, target: &Path, drafter: &Path, difference_bound: f64, choices_bound: usize) {
    let (target, drafter) = load(target, drafter);
    for (what, agreement) in agreements(&target, &drafter) {
        let Agreement { difference, other_choices, rows } = agreement;
        println!("{files} {what}: {difference:.2}, {other_choices} of {rows} choices differ");
        assert!(difference < difference_bound, "{what}: {difference}");
        assert!(other_choices * 100 <= choices_bound * rows, "{what}: {other_choices} of {rows}");
    }
}

#[test]
fn the_q8_files_come_near_the_recorded_outputs() {
    assert_near("Q8_0", &demo_q8_path(), &demo_drafter_q8_path(), 0.5, 5);
}

#[test]
fn the_q4_k_m_file_comes_near_the_recorded_outputs() {
    let directory = test_models_or_skip!();
    let target = directory.join("demo-qwen35-Q4_K_M.gguf");
    assert_near("Q4_K_M", &target, &demo_drafter_q8_path(), 2.5, 20);
}
