//! What a tokenizer does, and what it refuses, with the small vocabulary.

mod common;

use common::{
    CONTROL, END_OF_TEXT, IM_END, IM_START, NORMAL, THINK, TOOL_CALL, UNUSED, small_source, small_tokenizer,
};
use paceline_text::{EncodeError, EncodeOptions, TokenType, Tokenizer, TokenizerError, TokenizerSource};
use proptest::prelude::*;

const PLAIN: EncodeOptions = EncodeOptions { parse_special: false, add_bos: None, max_tokens: 1 << 20 };
const SPECIAL: EncodeOptions = EncodeOptions { parse_special: true, ..PLAIN };

#[test]
fn control_tokens_are_parsed_only_when_asked() {
    let tokenizer = small_tokenizer();
    let ids = tokenizer.encode("<|im_start|>user", SPECIAL).unwrap();
    assert_eq!(ids[0], IM_START);
    let ids = tokenizer.encode("<|im_start|>user<|im_end|>", PLAIN).unwrap();
    assert!(ids.iter().all(|&id| !tokenizer.is_control(id)));
    assert_eq!(tokenizer.decode(&ids), b"<|im_start|>user<|im_end|>");
}

#[test]
fn user_defined_tokens_are_always_parsed_and_are_text() {
    let tokenizer = small_tokenizer();
    for options in [PLAIN, SPECIAL] {
        let ids = tokenizer.encode("<think><tool call>", options).unwrap();
        assert_eq!(ids, [THINK, TOOL_CALL]);
        assert_eq!(tokenizer.decode(&ids), b"<think><tool call>");
    }
    assert_eq!(tokenizer.token_type(THINK), Some(TokenType::UserDefined));
}

#[test]
fn control_tokens_show_only_when_asked() {
    let tokenizer = small_tokenizer();
    let ids = tokenizer.encode("a<|im_end|>b", SPECIAL).unwrap();
    assert_eq!(tokenizer.decode(&ids), b"ab");
    assert_eq!(tokenizer.decode_with_control(&ids), b"a<|im_end|>b");
    assert_eq!(tokenizer.token_bytes(IM_END), b"");
    assert_eq!(tokenizer.token_bytes_with_control(IM_END), b"<|im_end|>");
    assert_eq!(tokenizer.token_text(IM_END), Some("<|im_end|>"));
}

#[test]
fn the_token_of_64_spaces_survives() {
    let tokenizer = small_tokenizer();
    let spaces = " ".repeat(64);
    let ids = tokenizer.encode(&spaces, PLAIN).unwrap();
    assert_eq!(ids.len(), 1);
    assert_eq!(tokenizer.token_bytes(ids[0]), spaces.as_bytes());
    assert_eq!(tokenizer.token_text(ids[0]), Some("Ġ".repeat(64).as_str()));
}

#[test]
fn ids_beyond_the_vocabulary_stand_for_nothing() {
    let tokenizer = small_tokenizer();
    for id in [tokenizer.vocab_size() as u32, u32::MAX] {
        assert_eq!(tokenizer.token_bytes(id), b"");
        assert_eq!(tokenizer.token_bytes_with_control(id), b"");
        assert_eq!((tokenizer.token_text(id), tokenizer.token_type(id)), (None, None));
        assert!(!tokenizer.is_control(id) && !tokenizer.is_end_of_generation(id));
    }
    assert_eq!(tokenizer.decode(&[u32::MAX]), b"");
}

#[test]
fn exactly_one_bos() {
    let with = |add_bos: Option<bool>| {
        Tokenizer::new(&TokenizerSource { bos: Some(END_OF_TEXT), add_bos, ..small_source() }).unwrap()
    };
    let leading = |tokenizer: &Tokenizer, text: &str, add_bos: Option<bool>| {
        let ids = tokenizer.encode(text, EncodeOptions { add_bos, ..SPECIAL }).unwrap();
        ids.iter().take_while(|&&id| id == END_OF_TEXT).count()
    };
    for written in ["", "<|endoftext|>"] {
        let text = format!("{written}Hello");
        let already = usize::from(!written.is_empty());
        assert_eq!(leading(&with(Some(true)), &text, None), 1);
        assert_eq!(leading(&with(Some(false)), &text, None), already);
        assert_eq!(leading(&with(None), &text, None), already);
        assert_eq!(leading(&with(Some(true)), &text, Some(false)), already);
        assert_eq!(leading(&with(None), &text, Some(true)), 1);
    }
    // Two that were written are meant.
    assert_eq!(leading(&with(Some(true)), "<|endoftext|><|endoftext|>", None), 2);
    assert_eq!(with(Some(true)).encode("", PLAIN), Ok(vec![END_OF_TEXT]));
    let asked = EncodeOptions { add_bos: Some(true), ..PLAIN };
    assert_eq!(small_tokenizer().encode("x", asked), Err(EncodeError::NoBosToken));
}

#[test]
fn every_end_of_a_reply_is_known() {
    assert_eq!(small_tokenizer().end_of_generation(), [END_OF_TEXT, IM_END]);
    let named = TokenizerSource { eos: None, eot: Some(IM_START), eom: Some(9), ..small_source() };
    assert_eq!(Tokenizer::new(&named).unwrap().end_of_generation(), [END_OF_TEXT, IM_START, IM_END, 9]);
    // Read as text, an end mark is not one.
    let mut as_text = TokenizerSource { eos: None, ..small_source() };
    as_text.token_types[IM_END as usize] = NORMAL;
    let tokenizer = Tokenizer::new(&as_text).unwrap();
    assert!(!tokenizer.is_end_of_generation(IM_END) && tokenizer.is_end_of_generation(END_OF_TEXT));
}

#[test]
fn the_token_limit_is_exact() {
    let tokenizer = small_tokenizer();
    let count = tokenizer.encode("1 2 3", PLAIN).unwrap().len();
    let limited = |max_tokens| tokenizer.encode("1 2 3", EncodeOptions { max_tokens, ..PLAIN });
    assert!(limited(count).is_ok());
    assert_eq!(limited(count - 1), Err(EncodeError::TooManyTokens { limit: count - 1 }));
    assert_eq!(limited(0), Err(EncodeError::TooManyTokens { limit: 0 }));
    assert_eq!(tokenizer.encode("", EncodeOptions { max_tokens: 0, ..PLAIN }), Ok(vec![]));
}

#[test]
fn a_long_word_is_encoded_in_good_time() {
    let tokenizer = small_tokenizer();
    let word = "Helloworld".repeat(100_000);
    let ids = tokenizer.encode(&word, PLAIN).unwrap();
    assert_eq!(tokenizer.decode(&ids), word.as_bytes());
}

#[test]
fn text_that_cannot_be_spelled_is_an_error() {
    let mut source = small_source();
    let missing = source.tokens.iter().position(|token| *token == common::letter(b'\n').to_string()).unwrap();
    source.token_types[missing] = UNUSED;
    source.merges.retain(|merge| !merge.contains(common::letter(b'\n')));
    let tokenizer = Tokenizer::new(&source).unwrap();
    assert_eq!(
        tokenizer.encode("<think>ab\nc", PLAIN),
        Err(EncodeError::ByteNotInVocabulary { byte: b'\n', offset: 9 })
    );
}

#[test]
fn empty_and_repeated_tokens_are_tolerated() {
    let mut source = small_source();
    let plain = small_tokenizer();
    source.tokens.extend(["".into(), "".into(), "H".into(), "<think>".into()]);
    source.token_types.extend([CONTROL, common::USER_DEFINED, NORMAL, common::USER_DEFINED]);
    let tokenizer = Tokenizer::new(&source).unwrap();
    for text in common::TEXTS {
        assert_eq!(tokenizer.encode(text, SPECIAL), plain.encode(text, SPECIAL));
    }
}

/// A user-defined token that is spelled like a byte of the alphabet must not be taken for it.
#[test]
fn user_defined_text_is_not_read_as_bytes() {
    let mut source = small_source();
    // "é" is how the alphabet writes the byte 0xE9.
    source.tokens[THINK as usize] = "é".into();
    let tokenizer = Tokenizer::new(&source).unwrap();
    assert_eq!(tokenizer.encode("é", PLAIN), Ok(vec![THINK]));
    let text = "中 é ਉ";
    assert_eq!(tokenizer.decode(&tokenizer.encode(text, PLAIN).unwrap()), text.as_bytes());
}

#[test]
fn refusals_name_the_key() {
    let refused = |change: &dyn Fn(&mut TokenizerSource)| {
        let mut source = small_source();
        change(&mut source);
        Tokenizer::new(&source).unwrap_err()
    };
    let message = |change: &dyn Fn(&mut TokenizerSource)| refused(change).to_string();
    let size = small_source().tokens.len();

    assert!(message(&|source| source.model = None).contains("tokenizer.ggml.model"));
    assert!(message(&|source| source.model = Some("bert".into())).contains("`bert`"));
    assert!(message(&|source| source.pre = None).contains("qwen2, qwen35"));
    assert!(message(&|source| source.pre = Some("".into())).contains("tokenizer.ggml.pre"));
    assert!(message(&|source| source.pre = Some("llama-bpe".into())).contains("`llama-bpe`"));
    assert_eq!(refused(&|source| source.merges.clear()), TokenizerError::MissingMerges);
    assert_eq!(refused(&|source| source.tokens.clear()), TokenizerError::EmptyVocabulary);
    assert_eq!(
        refused(&|source| source.token_types.truncate(3)),
        TokenizerError::TokenTypeCount { types: 3, tokens: size }
    );
    for value in [-1, 7, i32::MAX] {
        let error = refused(&|source| source.token_types[2] = value);
        assert_eq!(error, TokenizerError::UnknownTokenType { id: 2, value });
    }
    assert_eq!(
        refused(&|source| source.tokens[7] = "x".repeat(65 * 1024)),
        TokenizerError::TokenTooLong { id: 7, length: 65 * 1024, limit: 64 * 1024 }
    );
    assert!(message(&|source| source.bos = Some(u32::MAX)).contains("bos_token_id"));
    assert!(message(&|source| source.eos = Some(size as u32)).contains(&format!("ends at {}", size - 1)));
    assert!(message(&|source| source.padding = Some(u32::MAX)).contains("padding_token_id"));
    assert_eq!(refused(&|source| source.add_bos = Some(true)), TokenizerError::AddBosWithoutBos);
    for merge in ["", " ", "nospace", "a ", " a"] {
        let error = refused(&|source| source.merges[4] = merge.into());
        assert_eq!(error, TokenizerError::MalformedMerge { index: 4, merge: merge.into() });
    }
    assert!(message(&|source| source.merges[1] = "q zzz".into()).contains("`zzz`"));
    assert!(message(&|source| source.merges[1] = "q q".into()).contains("`qq`"));
    assert!(message(&|source| source.merges[1] = "a <|im_end|>".into()).contains("ordinary token"));
}

proptest! {
    #[test]
    fn decoding_gives_the_text_back(text in any::<String>()) {
        let tokenizer = shared();
        let ids = tokenizer.encode(&text, PLAIN).unwrap();
        prop_assert_eq!(tokenizer.decode(&ids), text.as_bytes());
    }

    #[test]
    fn decoding_gives_awkward_text_back(text in "(<think>|<\\|im_end\\|>|[<|>a-f 'é😊\u{301}\r\n\t0-9]){0,60}") {
        let tokenizer = shared();
        let ids = tokenizer.encode(&text, PLAIN).unwrap();
        prop_assert_eq!(tokenizer.decode(&ids), text.as_bytes());
        let ids = tokenizer.encode(&text, SPECIAL).unwrap();
        prop_assert_eq!(tokenizer.decode_with_control(&ids), text.as_bytes());
    }
}

fn shared() -> &'static Tokenizer {
    static SHARED: std::sync::LazyLock<Tokenizer> = std::sync::LazyLock::new(small_tokenizer);
    &SHARED
}
