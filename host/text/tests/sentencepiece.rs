//! `llama` vocabularies: against SentencePiece, and what is refused.
//!
//! `golden/spm.json` was written by SentencePiece itself, with `golden/make_spm.py`.

use paceline_text::{EncodeError, EncodeOptions, TokenType, Tokenizer, TokenizerError, TokenizerSource};
use proptest::prelude::*;
use serde_json::Value;

const NORMAL: i32 = 1;
const UNKNOWN: i32 = 2;
const CONTROL: i32 = 3;
const USER_DEFINED: i32 = 4;
const UNUSED: i32 = 5;
const BYTE: i32 = 6;

/// Encodes the text alone.
const PLAIN: EncodeOptions =
    EncodeOptions { parse_special: false, add_bos: Some(false), max_tokens: 1 << 20 };
const SPECIAL: EncodeOptions = EncodeOptions { parse_special: true, ..PLAIN };

fn golden() -> Vec<Value> {
    serde_json::from_str(include_str!("golden/spm.json")).unwrap()
}

fn numbers(list: &Value) -> impl Iterator<Item = i64> {
    list.as_array().unwrap().iter().map(|number| number.as_i64().unwrap())
}

fn golden_source(model: &Value) -> TokenizerSource {
    let list = |key: &str| model[key].as_array().unwrap();
    TokenizerSource {
        model: Some("llama".into()),
        tokens: list("pieces").iter().map(|piece| piece.as_str().unwrap().into()).collect(),
        scores: list("scores").iter().map(|score| score.as_f64().unwrap() as f32).collect(),
        token_types: numbers(&model["types"]).map(|value| value as i32).collect(),
        bos: Some(1),
        eos: Some(2),
        remove_extra_whitespaces: model["remove_extra_whitespaces"].as_bool(),
        ..TokenizerSource::default()
    }
}

/// Learned pieces and all bytes.
fn source() -> TokenizerSource {
    golden_source(&golden()[0])
}

fn tokenizer() -> Tokenizer {
    Tokenizer::new(&source()).unwrap()
}

#[test]
fn the_same_ids_as_sentencepiece() {
    for model in golden() {
        let tokenizer = Tokenizer::new(&golden_source(&model)).unwrap();
        for case in model["texts"].as_array().unwrap() {
            let text = case["text"].as_str().unwrap();
            let expected: Vec<u32> = numbers(&case["ids"]).map(|id| id as u32).collect();
            let ids = tokenizer.encode(text, PLAIN).unwrap();
            assert_eq!(ids, expected, "{}: {text:?}", model["name"]);
            let has_unknown = ids.iter().any(|&id| tokenizer.token_type(id) == Some(TokenType::Unknown));
            if !has_unknown {
                let decoded = String::from_utf8(tokenizer.decode(&ids)).unwrap();
                assert_eq!(decoded, case["decoded"].as_str().unwrap(), "{}", model["name"]);
            }
        }
    }
}

/// A vocabulary with the tokens given, `<unk>`, `<s>`, `</s>` and all bytes.
fn small_source(pieces: &[(&str, i32, f32)]) -> TokenizerSource {
    let mut source = TokenizerSource {
        model: Some("llama".into()),
        tokens: vec!["<unk>".into(), "<s>".into(), "</s>".into()],
        token_types: vec![UNKNOWN, CONTROL, CONTROL],
        scores: vec![0.0; 3],
        bos: Some(1),
        eos: Some(2),
        ..TokenizerSource::default()
    };
    for (text, token_type, score) in pieces {
        source.tokens.push((*text).into());
        source.token_types.push(*token_type);
        source.scores.push(*score);
    }
    for byte in 0..=255u8 {
        source.tokens.push(format!("<0x{byte:02X}>"));
        source.token_types.push(BYTE);
        source.scores.push(0.0);
    }
    source
}

fn pieces_of(source: &TokenizerSource, text: &str) -> Vec<String> {
    let tokenizer = Tokenizer::new(source).unwrap();
    let ids = tokenizer.encode(text, SPECIAL).unwrap();
    assert_eq!(String::from_utf8(tokenizer.decode_with_control(&ids)).unwrap(), text);
    ids.iter().map(|&id| tokenizer.token_text(id).unwrap().to_string()).collect()
}

#[test]
fn the_best_score_wins_and_of_equal_ones_the_leftmost() {
    let letters = [("a", NORMAL, -9.0), ("b", NORMAL, -9.0), ("c", NORMAL, -9.0), ("▁", NORMAL, -9.0)];
    let with = |pieces: &[(&'static str, i32, f32)]| small_source(&[&letters, pieces].concat());
    let ab_first = with(&[("ab", NORMAL, -1.0), ("bc", NORMAL, -2.0)]);
    assert_eq!(pieces_of(&ab_first, "abc"), ["▁", "ab", "c"]);
    let bc_first = with(&[("ab", NORMAL, -2.0), ("bc", NORMAL, -1.0)]);
    assert_eq!(pieces_of(&bc_first, "abc"), ["▁", "a", "bc"]);
    let equal = with(&[("aa", NORMAL, 0.0), ("aaa", NORMAL, -0.0)]);
    assert_eq!(pieces_of(&equal, "aaaaa"), ["▁", "aaa", "aa"]);
    let infinite = with(&[("ab", NORMAL, f32::NEG_INFINITY), ("bc", NORMAL, f32::MIN)]);
    assert_eq!(pieces_of(&infinite, "abc"), ["▁", "a", "bc"]);
    let unused = with(&[("ab", UNUSED, -1.0), ("abc", NORMAL, -2.0)]);
    assert_eq!(pieces_of(&unused, "abcab"), ["▁", "abc", "a", "b"]);
}

#[test]
fn a_space_goes_before_a_text_and_comes_off_again() {
    let source = small_source(&[("▁", NORMAL, -9.0), ("G", NORMAL, -9.0), ("▁G", NORMAL, -1.0)]);
    assert_eq!(pieces_of(&source, "G"), ["▁G"]);
    assert_eq!(pieces_of(&source, " G"), ["▁", "▁G"]);
    assert_eq!(pieces_of(&source, "<s>G"), ["<s>", "▁G"]);
    assert_eq!(pieces_of(&source, "<s> G</s>G"), ["<s>", "▁", "▁G", "</s>", "▁G"]);
    let without = TokenizerSource { add_space_prefix: Some(false), ..source };
    assert_eq!(pieces_of(&without, "<s>G G"), ["<s>", "G", "▁G"]);
    assert!(!Tokenizer::new(&without).unwrap().adds_space_prefix());
}

#[test]
fn user_defined_tokens_stay_in_the_text() {
    let source =
        small_source(&[("▁", NORMAL, -9.0), ("<think>", USER_DEFINED, 0.0), ("▁▁▁", USER_DEFINED, 0.0)]);
    assert_eq!(pieces_of(&source, "<think>"), ["▁", "<think>"]);
    assert_eq!(pieces_of(&source, "<think> <think>"), ["▁", "<think>", "▁", "<think>"]);
    assert_eq!(pieces_of(&source, "   <think>"), ["▁", "▁▁▁", "<think>"]);
    let ids = Tokenizer::new(&source).unwrap().encode("<think>", PLAIN).unwrap();
    assert_eq!(ids.len(), 2);
}

/// A reply continues its prompt, so its first space is one.
#[test]
fn a_continuation_keeps_its_spaces() {
    let tokenizer = tokenizer();
    let ids = tokenizer.encode("The rain", PLAIN).unwrap();
    assert_eq!(tokenizer.decode(&ids), b"The rain");
    assert_eq!(tokenizer.decode_continuation(&ids), b" The rain");
    let streamed: Vec<u8> = ids.iter().flat_map(|&id| tokenizer.token_bytes(id)).copied().collect();
    assert_eq!(streamed, b" The rain");
    assert_eq!(tokenizer.decode(&[]), b"");
}

#[test]
fn bos_is_added_unless_the_file_says_no() {
    let leading = |source: &TokenizerSource, text: &str| {
        let options = EncodeOptions { parse_special: true, ..EncodeOptions::default() };
        let ids = Tokenizer::new(source).unwrap().encode(text, options).unwrap();
        ids.iter().take_while(|&&id| id == 1).count()
    };
    assert_eq!(leading(&source(), "x"), 1);
    assert_eq!(leading(&source(), "<s>x"), 1);
    assert_eq!(leading(&TokenizerSource { add_bos: Some(false), ..source() }, "x"), 0);
    assert_eq!(leading(&TokenizerSource { bos: None, ..source() }, "x"), 0);
}

#[test]
fn a_mark_in_the_text_is_not_a_space() {
    let ids = tokenizer().encode("▁▂▃ ▁", PLAIN).unwrap();
    assert_eq!(tokenizer().decode(&ids), "▁▂▃ ▁".as_bytes());
}

#[test]
fn text_without_byte_tokens_is_unknown_or_an_error() {
    let mut source = small_source(&[("▁", NORMAL, -9.0), ("a", NORMAL, -9.0)]);
    let newline = source.tokens.iter().position(|token| token == "<0x0A>").unwrap();
    source.token_types[newline] = UNUSED;
    let tokenizer = Tokenizer::new(&source).unwrap();
    // A run of unknown characters is one token, as in SentencePiece.
    assert_eq!(tokenizer.encode("a\n\na\n", PLAIN), Ok(vec![3, 4, 0, 4, 0]));
    let one = EncodeOptions { max_tokens: 2, ..PLAIN };
    assert_eq!(tokenizer.encode(&"\n".repeat(1000), one), Ok(vec![3, 0]));

    source.token_types[0] = CONTROL;
    let tokenizer = Tokenizer::new(&source).unwrap();
    let error = EncodeError::ByteNotInVocabulary { byte: b'\n', offset: 2 };
    assert_eq!(tokenizer.encode("aa\na", PLAIN), Err(error));
    // Other bytes are still there.
    let ids = tokenizer.encode("é\t😊", PLAIN).unwrap();
    assert_eq!(tokenizer.decode(&ids), "é\t😊".as_bytes());

    let only_letter = TokenizerSource {
        model: Some("llama".into()),
        tokens: vec!["a".into()],
        token_types: vec![NORMAL],
        scores: vec![0.0],
        ..TokenizerSource::default()
    };
    let error = EncodeError::ByteNotInVocabulary { byte: b' ', offset: 0 };
    assert_eq!(Tokenizer::new(&only_letter).unwrap().encode("a", PLAIN), Err(error));
}

#[test]
fn refusals_name_the_key() {
    let refused = |change: &dyn Fn(&mut TokenizerSource)| {
        let mut source = source();
        change(&mut source);
        Tokenizer::new(&source).unwrap_err()
    };
    let size = source().tokens.len();
    assert_eq!(refused(&|source| source.scores.clear()), TokenizerError::MissingScores);
    assert_eq!(refused(&|source| source.token_types.clear()), TokenizerError::MissingTokenTypes);
    for scores in [1, size - 1, size + 1] {
        let error = refused(&|source| source.scores.resize(scores, 0.0));
        assert_eq!(error, TokenizerError::ScoreCount { scores, tokens: size });
    }
    assert_eq!(refused(&|source| source.scores[7] = f32::NAN), TokenizerError::ScoreNotANumber { id: 7 });
    for text in ["<0x-1>", "<0xZZ>", "<0x1>", "<0x100>", "\n", ""] {
        let error = refused(&|source| source.tokens[20] = text.into());
        assert!(matches!(error, TokenizerError::MalformedByteToken { id: 20, .. }), "{error}");
    }
    assert!(refused(&|source| source.unknown = Some(u32::MAX)).to_string().contains("unknown_token_id"));
}

#[test]
fn lower_case_byte_tokens_are_bytes() {
    let mut source = source();
    for token in source.tokens.iter_mut().filter(|token| token.starts_with("<0x")) {
        *token = token.to_lowercase();
    }
    let ids = tokenizer().encode("日\u{7f}", PLAIN).unwrap();
    let lower = Tokenizer::new(&source).unwrap();
    assert_eq!(lower.encode("日\u{7f}", PLAIN), Ok(ids.clone()));
    assert_eq!(lower.decode(&ids), "日\u{7f}".as_bytes());
}

#[test]
fn a_long_text_is_encoded_in_good_time() {
    let tokenizer = tokenizer();
    for text in ["the bottles ".repeat(50_000), "a".repeat(500_000), " ".repeat(500_000)] {
        let ids = tokenizer.encode(&text, PLAIN).unwrap();
        assert_eq!(tokenizer.decode(&ids), text.as_bytes());
    }
}

fn shared() -> &'static Tokenizer {
    static SHARED: std::sync::LazyLock<Tokenizer> = std::sync::LazyLock::new(tokenizer);
    &SHARED
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn decoding_gives_the_text_back(text in prop_oneof![any::<String>(), "(<think>|<s>|<tool_call>|[ ▁a-f<>é😊\n]){0,40}"]) {
        let ids = shared().encode(&text, PLAIN).unwrap();
        prop_assert_eq!(shared().decode(&ids), text.as_bytes());
        let ids = shared().encode(&text, SPECIAL).unwrap();
        prop_assert_eq!(shared().decode_with_control(&ids), text.as_bytes());
    }

    #[test]
    fn no_vocabulary_and_no_text_panics(
        tokens in proptest::collection::vec(("[ab▁ ]{0,3}|<0x[0-9A-Gx-]{1,3}>|<0x61>", 0..7i32, prop_oneof![Just(0.0f32), -9.0f32..9.0]), 1..40),
        ids in any::<(Option<bool>, Option<bool>, Option<u8>)>(),
        text in "[ab▁ c]{0,30}",
        limit in 0..40usize,
    ) {
        let source = TokenizerSource {
            model: Some("llama".into()),
            tokens: tokens.iter().map(|(text, ..)| text.clone()).collect(),
            token_types: tokens.iter().map(|(_, token_type, _)| *token_type).collect(),
            scores: tokens.iter().map(|(.., score)| *score).collect(),
            add_space_prefix: ids.0,
            remove_extra_whitespaces: ids.1,
            unknown: ids.2.map(u32::from).filter(|id| *id < 60),
            ..TokenizerSource::default()
        };
        let Ok(tokenizer) = Tokenizer::new(&source) else { return Ok(()) };
        for options in [PLAIN, SPECIAL, EncodeOptions { max_tokens: limit, ..PLAIN }] {
            if let Ok(ids) = tokenizer.encode(&text, options) {
                prop_assert!(ids.len() <= options.max_tokens);
                prop_assert!(ids.iter().all(|&id| (id as usize) < tokenizer.vocab_size()));
                let _ = tokenizer.decode_with_control(&ids);
            }
        }
    }
}
