//! Vocabularies that no converter would write: refused or usable, but never a panic.

mod common;

use paceline_text::{EncodeOptions, Tokenizer, TokenizerSource};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

/// Token texts that collide with each other, with the byte alphabet and with special tokens.
fn token() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => "[abĠĊÃ©]{0,3}",
        1 => "[ab é日<>|]{0,4}",
        1 => any::<String>(),
        1 => select(vec!["<0x-1>", "<0xZZ>", "<0x1>", "<0x100>", "<|im_end|>", "</s>", "\0", " "]).prop_map(String::from),
    ]
}

fn special_id() -> impl Strategy<Value = Option<u32>> {
    option::of(prop_oneof![30 => 0..8u32, 1 => any::<u32>()])
}

fn token_type() -> impl Strategy<Value = i32> {
    prop_oneof![40 => Just(common::NORMAL), 3 => Just(common::USER_DEFINED), 2 => 0..=6i32]
}

prop_compose! {
    /// A vocabulary that fits together, but for the few tokens that make it hostile.
    fn plausible_source()(
        pre in select(vec!["qwen2", "qwen35"]),
        mut tokens in vec(token(), 0..24),
        has_all_bytes in prop::bool::weighted(0.7),
        mut token_types in prop_oneof![1 => Just(vec![]), 4 => vec(token_type(), 400)],
        pairs in vec((any::<Index>(), any::<Index>()), 1..24),
        ids in (special_id(), special_id(), special_id(), special_id(), special_id()),
        add_bos in any::<Option<bool>>(),
    ) -> TokenizerSource {
        if has_all_bytes {
            tokens.extend((0..=255).map(|byte| common::letter(byte).to_string()));
        }
        let mut merges = Vec::new();
        for (left, right) in pairs {
            let in_alphabet = |token: &&String| !token.is_empty() && token.chars().all(|letter| "abĠĊÃ©".contains(letter));
            let candidates: Vec<String> = tokens.iter().filter(in_alphabet).cloned().collect();
            if !candidates.is_empty() {
                let (left, right) = (left.get(&candidates), right.get(&candidates));
                merges.push(format!("{left} {right}"));
                tokens.push(format!("{left}{right}"));
            }
        }
        token_types.truncate(tokens.len());
        let (bos, eos, eot, eom, padding) = ids;
        let (model, pre) = (Some("gpt2".into()), Some(pre.into()));
        TokenizerSource {
            model, pre, tokens, token_types, merges, bos, eos, eot, eom, padding, add_bos,
            ..TokenizerSource::default()
        }
    }
}

#[derive(Clone, Debug)]
enum Damage {
    Model(Option<String>),
    Pre(Option<String>),
    Type(Index, i32),
    TypeCount(Index),
    Merge(Index, String),
    TokenCount(Index),
}

impl Damage {
    fn apply(self, source: &mut TokenizerSource) {
        let count = source.tokens.len() + 1;
        match self {
            Damage::Model(model) => source.model = model,
            Damage::Pre(pre) => source.pre = pre,
            Damage::Type(place, value) if !source.token_types.is_empty() => {
                *place.get_mut(&mut source.token_types) = value;
            }
            Damage::Type(..) => {}
            Damage::TypeCount(new) => source.token_types.resize(new.index(count), common::NORMAL),
            Damage::Merge(place, merge) => source.merges.insert(place.index(source.merges.len() + 1), merge),
            Damage::TokenCount(new) => source.tokens.truncate(new.index(count)),
        }
    }
}

fn damage() -> impl Strategy<Value = Damage> {
    prop_oneof![
        any::<Option<String>>().prop_map(Damage::Model),
        any::<Option<String>>().prop_map(Damage::Pre),
        (any::<Index>(), any::<i32>()).prop_map(|(place, value)| Damage::Type(place, value)),
        any::<Index>().prop_map(Damage::TypeCount),
        (any::<Index>(), "[ab ]{0,5}").prop_map(|(place, merge)| Damage::Merge(place, merge)),
        (any::<Index>(), any::<String>()).prop_map(|(place, merge)| Damage::Merge(place, merge)),
        any::<Index>().prop_map(Damage::TokenCount),
    ]
}

fn source() -> impl Strategy<Value = TokenizerSource> {
    (plausible_source(), option::weighted(0.3, damage())).prop_map(|(mut source, damage)| {
        if let Some(damage) = damage {
            damage.apply(&mut source);
        }
        source
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_vocabulary_and_no_text_panics(
        source in source(),
        text in prop_oneof!["[abé日<>| \n]{0,20}", any::<String>()],
        ids in vec(any::<u32>(), 0..8),
    ) {
        let tokenizer = match Tokenizer::new(&source) {
            Ok(tokenizer) => tokenizer,
            Err(error) => {
                // Names what is wrong, and not at the length of the file.
                prop_assert!(!error.to_string().is_empty() && error.to_string().len() < 2000);
                return Ok(());
            }
        };
        for parse_special in [false, true] {
            let options = EncodeOptions { parse_special, add_bos: Some(false), ..EncodeOptions::default() };
            let Ok(encoded) = tokenizer.encode(&text, options) else { continue };
            prop_assert!(encoded.iter().all(|&id| (id as usize) < tokenizer.vocab_size()));
            prop_assert_eq!(tokenizer.decode_with_control(&encoded), text.as_bytes());
            if !parse_special {
                prop_assert!(encoded.iter().all(|&id| !tokenizer.is_control(id)));
                prop_assert_eq!(tokenizer.decode(&encoded), text.as_bytes());
            }
        }
        for id in ids.into_iter().chain(0..tokenizer.vocab_size() as u32 + 1) {
            let known = tokenizer.token_text(id).is_some();
            prop_assert_eq!(known, (id as usize) < tokenizer.vocab_size());
            prop_assert!(known || tokenizer.token_bytes_with_control(id).is_empty());
            let _ = (tokenizer.token_bytes(id), tokenizer.is_end_of_generation(id), tokenizer.is_control(id));
        }
    }
}

/// Otherwise the test above would only test refusals.
#[test]
fn many_of_these_vocabularies_are_usable() {
    let mut runner = TestRunner::deterministic();
    let usable = (0..200).filter(|_| {
        let source = source().new_tree(&mut runner).unwrap().current();
        Tokenizer::new(&source).is_ok()
    });
    let count = usable.count();
    assert!((40..190).contains(&count), "{count} of 200");
}
