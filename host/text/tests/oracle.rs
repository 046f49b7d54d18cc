//! Token ids against Hugging Face `tokenizers`, for the small vocabulary and for a real one.
//!
//! The real one is `tokenizer.json` in the folder that `PACELINE_TEST_MODELS` names; without it
//! that test is skipped.

mod common;

use std::path::PathBuf;

use common::{CONTROL, TEXTS, USER_DEFINED};
use paceline_text::{EncodeOptions, Tokenizer, TokenizerSource};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::Value;

/// Ours and theirs for one vocabulary.
struct Pair {
    ours: Tokenizer,
    theirs: tokenizers::Tokenizer,
    /// Takes control tokens in the text for text.
    theirs_without_control: tokenizers::Tokenizer,
}

impl Pair {
    fn new(source: &TokenizerSource, json: &Value) -> Pair {
        let theirs = oracle(json);
        let mut theirs_without_control = theirs.clone();
        theirs_without_control.set_encode_special_tokens(true);
        Pair { ours: Tokenizer::new(source).unwrap(), theirs, theirs_without_control }
    }

    fn assert_same_ids(&self, text: &str) {
        for (parse_special, theirs) in [(true, &self.theirs), (false, &self.theirs_without_control)] {
            let options = EncodeOptions { parse_special, ..EncodeOptions::default() };
            let ids = self.ours.encode(text, options).unwrap();
            assert_eq!(ids, ids_of(theirs, text), "{text:?} parse_special={parse_special}");
            assert_eq!(self.ours.decode_with_control(&ids), text.as_bytes());
            if !parse_special {
                assert_eq!(self.ours.decode(&ids), text.as_bytes());
            }
        }
    }

    fn assert_same_ids_for_many_texts(&self) {
        TEXTS.iter().for_each(|text| self.assert_same_ids(text));
        self.assert_same_ids(&TEXTS.concat());
        let words = "(<think>|<\\|im_end\\|>|<\\|endoftext\\|>|[ \t\r\n]{1,4}|[a-zA-Z]{1,8}|[0-9]{1,3}|'ll|[é—😊ñकि\u{301}\u{2029}½.,!(){}])";
        let texts = prop_oneof![
            any::<String>(),
            proptest::collection::vec(words, 0..30).prop_map(|parts| parts.concat())
        ];
        TestRunner::new(Config { cases: 1000, failure_persistence: None, ..Config::default() })
            .run(&texts, |text| {
                self.assert_same_ids(&text);
                Ok(())
            })
            .unwrap();
    }
}

#[test]
fn small_vocabulary() {
    let pair = Pair::new(&common::small_source(), &common::small_tokenizer_json());
    pair.assert_same_ids_for_many_texts();
}

#[test]
fn real_vocabulary() {
    let Some(json) = real_tokenizer_json() else { return };
    let mut without_normalizer = json.clone();
    without_normalizer["normalizer"] = Value::Null;
    let source = source_of(&json);
    let pair = Pair::new(&source, &without_normalizer);
    pair.assert_same_ids_for_many_texts();
    assert!(pair.ours.vocab_size() > 1000);

    // This repository's own prose and code.
    for file in ["src/lib.rs", "src/tokenizer.rs", "src/pretokenizer.rs", "tests/oracle.rs", "Cargo.toml"] {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(file);
        pair.assert_same_ids(&std::fs::read_to_string(path).unwrap());
    }
}

/// What the crate's documentation says about normalisation: composed text is encoded as the
/// original tokenizer does, and other text is left as it is.
#[test]
fn real_vocabulary_without_normalisation() {
    let Some(json) = real_tokenizer_json() else { return };
    let original = oracle(&json);
    let ours = Tokenizer::new(&source_of(&json)).unwrap();
    let encode = |text: &str| ours.encode(text, EncodeOptions::default()).unwrap();
    assert_eq!(json["normalizer"]["type"], "NFC");
    assert_eq!(encode("é"), ids_of(&original, "e\u{301}"));
    assert_ne!(encode("e\u{301}"), encode("é"));
    assert_eq!(ours.decode(&encode("e\u{301}")), "e\u{301}".as_bytes());
}

fn oracle(json: &Value) -> tokenizers::Tokenizer {
    tokenizers::Tokenizer::from_bytes(json.to_string()).unwrap()
}

fn ids_of(tokenizer: &tokenizers::Tokenizer, text: &str) -> Vec<u32> {
    tokenizer.encode(text, false).unwrap().get_ids().to_vec()
}

fn real_tokenizer_json() -> Option<Value> {
    let Some(folder) = std::env::var_os("PACELINE_TEST_MODELS") else {
        eprintln!("skipped: PACELINE_TEST_MODELS does not name a folder with tokenizer.json");
        return None;
    };
    let path = PathBuf::from(folder).join("tokenizer.json");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    Some(serde_json::from_str(&text).unwrap())
}

/// What a converter to GGUF writes for this `tokenizer.json`.
fn source_of(json: &Value) -> TokenizerSource {
    let vocabulary = json["model"]["vocab"].as_object().unwrap();
    let added = json["added_tokens"].as_array().unwrap();
    let id = |value: &Value| value.as_u64().unwrap() as usize;
    let highest = vocabulary.values().chain(added.iter().map(|token| &token["id"])).map(id).max().unwrap();
    let mut tokens = vec![String::new(); highest + 1];
    let mut token_types = vec![common::UNUSED; highest + 1];
    for (text, value) in vocabulary {
        tokens[id(value)] = text.clone();
        token_types[id(value)] = common::NORMAL;
    }
    for token in added {
        tokens[id(&token["id"])] = token["content"].as_str().unwrap().into();
        token_types[id(&token["id"])] = if token["special"] == true { CONTROL } else { USER_DEFINED };
    }
    let text_of_merge = |merge: &Value| match merge {
        Value::Array(pair) => format!("{} {}", pair[0].as_str().unwrap(), pair[1].as_str().unwrap()),
        other => other.as_str().unwrap().into(),
    };
    TokenizerSource {
        model: Some("gpt2".into()),
        pre: Some("qwen35".into()),
        tokens,
        token_types,
        merges: json["model"]["merges"].as_array().unwrap().iter().map(text_of_merge).collect(),
        eos: Some(0),
        ..TokenizerSource::default()
    }
}
