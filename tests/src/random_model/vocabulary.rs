//! A tokenizer for random models: every byte has a token, so any text can be tokenized.

use paceline_gguf::Writer;

const NORMAL: i32 = 1;
const CONTROL: i32 = 3;
const UNUSED: i32 = 5;

/// `Ġ` is the space; each pair becomes a token after those of the bytes.
const MERGES: [&str; 8] = ["t h", "th e", "Ġ the", "i n", "a n", "e r", "Ġ a", "o n"];

/// Number of control tokens, which are the last of the vocabulary.
const CONTROLS: u32 = 4;

/// The smallest vocabulary: bytes, merges and control tokens.
pub const MIN_VOCABULARY: u32 = 256 + MERGES.len() as u32 + CONTROLS;

/// The control tokens of a random model's vocabulary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControlTokens {
    /// `<|endoftext|>`, the padding token.
    pub end_of_text: u32,
    /// `<|im_start|>`.
    pub turn_start: u32,
    /// `<|im_end|>`, the end-of-sequence token.
    pub turn_end: u32,
    /// `<|mask|>`, which a drafter fills.
    pub mask: u32,
}

impl ControlTokens {
    /// The control tokens of a vocabulary of `count` tokens.
    pub fn of(count: u32) -> Self {
        let first = count - CONTROLS;
        ControlTokens { end_of_text: first, turn_start: first + 1, turn_end: first + 2, mask: first + 3 }
    }
}

/// The letter that stands for each byte in token texts: itself if it prints, or one from U+0100 on.
fn byte_letters() -> Vec<char> {
    let mut unprintable = 0x100..;
    (0..=255_u8)
        .map(|byte| match byte {
            b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF => char::from(byte),
            _ => unprintable.next().and_then(char::from_u32).unwrap_or_default(),
        })
        .collect()
}

/// Adds the tokenizer's keys: 256 bytes (id = byte), merged tokens, unused filler, control tokens.
pub(super) fn add_vocabulary(header: &mut Writer<'_>, count: u32) {
    assert!(count >= MIN_VOCABULARY, "a vocabulary of {count} tokens, at least {MIN_VOCABULARY} are needed");
    let mut tokens: Vec<String> = byte_letters().into_iter().map(String::from).collect();
    tokens.extend(MERGES.map(|pair| pair.replace(' ', "")));
    let mut types = vec![NORMAL; tokens.len()];
    for id in tokens.len()..(count - CONTROLS) as usize {
        tokens.push(format!("[PAD{id}]"));
        types.push(UNUSED);
    }
    tokens.extend(["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|mask|>"].map(String::from));
    types.resize(tokens.len(), CONTROL);
    let controls = ControlTokens::of(count);
    header
        .metadata("tokenizer.ggml.model", "gpt2")
        .metadata("tokenizer.ggml.pre", "qwen35")
        .metadata("tokenizer.ggml.tokens", tokens)
        .metadata("tokenizer.ggml.token_type", types)
        .metadata("tokenizer.ggml.merges", MERGES.to_vec())
        .metadata("tokenizer.ggml.eos_token_id", controls.turn_end)
        .metadata("tokenizer.ggml.padding_token_id", controls.end_of_text)
        .metadata("tokenizer.ggml.add_bos_token", false);
}
