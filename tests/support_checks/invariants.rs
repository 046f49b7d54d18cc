//! What must hold for every model, whatever its weights.

use paceline_gguf::{Gguf, Writer};
use paceline_tests::reference::{argmax, shifted};
use paceline_tests::{DrafterReference, RandomDrafter, RandomModel, Reference};

use crate::{drafter_of, largest_difference, reference_of};

/// Sums are taken in the same order, so there is no rounding to allow for.
const EXACT: f64 = 0.0;

#[test]
fn later_tokens_do_not_change_earlier_outputs() {
    for name in ["tiny", "all-attention", "all-recurrent", "heads-1-to-3", "wide-q4-k-m"] {
        let model = RandomModel::variant(name).unwrap();
        let target = reference_of(&model);
        let (first, second) = (model.tokens(8, 1), model.tokens(8, 2));
        let other = [&first[..5], &second[5..]].concat();
        assert_ne!(first, other);
        let trunks = [&first, &other].map(|tokens| target.trunk(tokens));
        let mtp = |which: usize, tokens: &[u32]| target.mtp(tokens, &shifted(&trunks[which].hidden)).logits;
        let pairs = [[trunks[0].logits.clone(), trunks[1].logits.clone()], [mtp(0, &first), mtp(1, &other)]];
        for [first, other] in &pairs {
            assert_eq!(largest_difference(&first[..5], &other[..5]), EXACT, "{name}");
            assert!(largest_difference(&first[5..], &other[5..]) > 0.01, "{name}");
        }
    }
}

#[test]
fn earlier_tokens_change_later_outputs_in_every_kind_of_layer() {
    for name in ["all-attention", "all-recurrent"] {
        let target = reference_of(&RandomModel::variant(name).unwrap());
        let logits = [[1, 2, 3, 4, 5], [9, 2, 3, 4, 5]].map(|tokens| target.trunk(&tokens).logits);
        assert!(largest_difference(&logits[0][4..], &logits[1][4..]) > 1e-3, "{name}");
    }
}

#[test]
fn the_interval_and_the_list_of_layers_say_the_same() {
    let by_interval = RandomModel { interval: 2, ..RandomModel::default() };
    let by_list =
        RandomModel { recurrent_layers: Some(vec![true, false, true, false]), ..RandomModel::default() };
    let [first, second] = [&by_interval, &by_list].map(|model| reference_of(model).trunk(&[5, 6, 7]).logits);
    assert_eq!(largest_difference(&first, &second), EXACT);

    let file = Gguf::from_bytes(RandomModel::variant("all-attention").unwrap().to_bytes()).unwrap();
    assert!(file.tensors().all(|tensor| !tensor.name.contains("ssm")));
    let file = Gguf::from_bytes(RandomModel::variant("all-recurrent").unwrap().to_bytes()).unwrap();
    // The MTP block is attention all the same.
    let has_attention = |block: u32| file.tensor(&format!("blk.{block}.attn_q.weight")).is_some();
    assert_eq!([0, 1, 2, 3, 4].map(has_attention), [false, false, false, false, true]);
}

#[test]
fn greedy_text_follows_the_trunk_and_a_chain_begins_as_the_block_does() {
    let model = RandomModel::default();
    let target = reference_of(&model);
    let prompt = model.tokens(6, 4);
    let generated = target.greedy(&prompt, 3);
    let all = [&prompt[..], &generated].concat();
    let trunk = target.trunk(&all);
    for (offset, token) in generated.iter().enumerate() {
        assert_eq!(argmax(&trunk.logits[prompt.len() - 1 + offset]), *token);
    }

    // A random model should not repeat one token, or comparing its text would say little.
    let mut distinct = target.greedy(&prompt, 12);
    distinct.sort_unstable();
    distinct.dedup();
    assert!(distinct.len() >= 6, "{distinct:?}");

    let chain = target.mtp_chain(&all, 3);
    let rows = target.mtp(&all, &shifted(&trunk.hidden)).logits;
    assert_eq!(largest_difference(&chain[..1], &rows[all.len() - 1..]), EXACT);
    assert_eq!(chain.len(), 3);
}

#[test]
fn a_block_sees_its_context_and_its_later_masks() {
    let model = RandomModel::default();
    let target = reference_of(&model);
    let drafter = drafter_of(&RandomDrafter::for_target(&model));
    let features = drafter.features(&target.trunk(&model.tokens(6, 5)));
    let other_features = drafter.features(&target.trunk(&model.tokens(6, 6)));
    let (long, short) = (drafter.block_tokens(42, 3), drafter.block_tokens(42, 2));
    let logits = drafter.block(&target, &features, &long);
    let difference = |other: &[Vec<f64>]| largest_difference(&logits[..3], &other[..3]);
    assert!(difference(&drafter.block(&target, &features, &short)) > 1e-3);
    assert!(difference(&drafter.block(&target, &other_features, &long)) > 1e-3);
    assert_eq!(drafter.block_size(), 16);
    assert_eq!(drafter.target_layers(), [2, 3]);
}

#[test]
fn files_of_other_kinds_are_refused() {
    let file = |bytes| Gguf::from_bytes(bytes).unwrap();
    let model = file(RandomModel::default().to_bytes());
    let drafter = file(RandomDrafter::for_target(&RandomModel::default()).to_bytes());
    assert!(Reference::load(&drafter).is_err());
    assert!(DrafterReference::load(&model).is_err());
    let mut bare = Vec::new();
    Writer::new("qwen35").metadata("qwen35.block_count", 1_u32).write_to(&mut bare).unwrap();
    assert!(Reference::load(&file(bare)).is_err());
}
