//! A small complete vocabulary, and texts that tokenizers are known to disagree about.

// Each test file uses a part of this.
#![allow(dead_code)]

use std::collections::{BTreeMap, BTreeSet};

use paceline_text::{Tokenizer, TokenizerSource};
use serde_json::{Value, json};

pub const NORMAL: i32 = 1;
pub const CONTROL: i32 = 3;
pub const USER_DEFINED: i32 = 4;
pub const UNUSED: i32 = 5;

pub const END_OF_TEXT: u32 = 0;
pub const IM_START: u32 = 1;
pub const IM_END: u32 = 2;
pub const THINK: u32 = 3;
pub const TOOL_CALL: u32 = 4;
const SPECIAL: [(&str, i32); 5] = [
    ("<|endoftext|>", CONTROL),
    ("<|im_start|>", CONTROL),
    ("<|im_end|>", CONTROL),
    ("<think>", USER_DEFINED),
    // A space, which the byte alphabet does not have.
    ("<tool call>", USER_DEFINED),
];

/// The pattern of `qwen35`, for the oracle.
const QWEN35: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

pub const TEXTS: &[&str] = &[
    "",
    "Hello, world!",
    "fn main() {\n    let mut sum: u64 = 0;\n\tfor i in 0..=1_000 { sum += i; }\n}\n",
    "def area(self) -> float:\r\n    return self.width * 3.14159  # π\r\n\r\n",
    "It's what they'd say: WE'LL see, don't 'ſ",
    "Café déjà vu — 123 😊",
    "e\u{301} é a\u{30a} ǻ",
    "1234567890 3.14 0x1F ½ ² Ⅷ ٣",
    "a\u{2029}b\u{2028}c\u{85}d\u{a0}e\u{3000}f",
    "tab\tdouble\t\tcrlf\r\n\r\nlf\n\n\n end   ",
    "                                                                x",
    "  leading and trailing  ",
    "<|endoftext|>",
    "<|im_start|>user\nHi <|im_end|>\n<|im_start|>assistant",
    "a<|im_end|> b <|im_end|>c<|im_end|>",
    "<think>\nplan\n</think> x<think><think> y <tool call>z",
    "<|im_start| ><|im_<|im_end|>|>",
    "👩‍👩‍👧‍👦 🏳️‍🌈 👍🏽",
    "كِتَابٌ السلام عليكم ١٢٣",
    "किसान नमस्ते दुनिया",
    "ไทย 日本語のテキスト。한국어 中文，测试",
    "zero\u{200b}width\u{feff}\u{200d}joiners",
    "\0\u{1}\u{7f}\u{ad}",
    "!!!???...---===>>>\n",
    " ' \" ` 's 't' ''s",
];

/// A vocabulary with a token for each byte, learned merges, control and user-defined tokens.
pub fn small_source() -> TokenizerSource {
    let (merges, mut learned) = learn_merges(&training_pieces(), 400);
    let mut tokens: Vec<String> = SPECIAL.iter().map(|(text, _)| text.to_string()).collect();
    tokens.extend((0..=255).map(|byte| letter(byte).to_string()));
    tokens.append(&mut learned);
    let mut token_types: Vec<i32> = SPECIAL.iter().map(|(_, token_type)| *token_type).collect();
    token_types.resize(tokens.len(), NORMAL);
    TokenizerSource {
        model: Some("gpt2".into()),
        pre: Some("qwen35".into()),
        tokens,
        token_types,
        merges,
        eos: Some(END_OF_TEXT),
        ..TokenizerSource::default()
    }
}

pub fn small_tokenizer() -> Tokenizer {
    Tokenizer::new(&small_source()).unwrap()
}

/// The small vocabulary as a Hugging Face `tokenizer.json`.
pub fn small_tokenizer_json() -> Value {
    let source = small_source();
    let vocabulary: BTreeMap<&str, usize> =
        source.tokens.iter().enumerate().map(|(id, token)| (token.as_str(), id)).collect();
    let added: Vec<Value> = SPECIAL
        .iter()
        .enumerate()
        .map(|(id, (text, token_type))| {
            json!({
                "id": id, "content": text, "special": *token_type == CONTROL, "normalized": false,
                "single_word": false, "lstrip": false, "rstrip": false,
            })
        })
        .collect();
    json!({
        "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "post_processor": null,
        "added_tokens": added,
        "pre_tokenizer": { "type": "Sequence", "pretokenizers": [
            { "type": "Split", "pattern": { "Regex": QWEN35 }, "behavior": "Isolated", "invert": false },
            { "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false },
        ]},
        "decoder": { "type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true },
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
            "vocab": vocabulary, "merges": source.merges,
        },
    })
}

/// The character that byte-level vocabularies write a byte with.
pub fn letter(byte: u8) -> char {
    let stands_for_itself = |byte: &u8| matches!(byte, 33..=126 | 161..=172 | 174..=255);
    if stands_for_itself(&byte) {
        return char::from(byte);
    }
    let number = (0..byte).filter(|lower| !stands_for_itself(lower)).count() as u32;
    char::from_u32(256 + number).unwrap()
}

/// Words as byte-level tokens, and a run of 64 spaces as long as in code vocabularies.
fn training_pieces() -> Vec<Vec<String>> {
    let spaces = " ".repeat(64);
    let texts = TEXTS.iter().copied().filter(|text| !text.contains('<')).chain([spaces.as_str(); 3]);
    let words = texts.flat_map(|text| {
        let ends = text.char_indices().filter(|(index, character)| {
            *character == ' ' && !text[..*index].ends_with(' ') && !text[..*index].trim().is_empty()
        });
        let mut cuts: Vec<usize> = std::iter::once(0).chain(ends.map(|(index, _)| index)).collect();
        cuts.push(text.len());
        cuts.windows(2).map(|cut| text[cut[0]..cut[1]].to_string()).collect::<Vec<String>>()
    });
    words.map(|word| word.bytes().map(|byte| letter(byte).to_string()).collect()).collect()
}

/// Plain BPE training: the most frequent pair becomes a token, again and again.
fn learn_merges(pieces: &[Vec<String>], count: usize) -> (Vec<String>, Vec<String>) {
    let mut pieces = pieces.to_vec();
    let (mut merges, mut tokens) = (Vec::new(), BTreeSet::new());
    let mut in_order = Vec::new();
    for _ in 0..count {
        let mut frequency: BTreeMap<(String, String), usize> = BTreeMap::new();
        for pair in pieces.iter().flat_map(|piece| piece.windows(2)) {
            *frequency.entry((pair[0].clone(), pair[1].clone())).or_default() += 1;
        }
        let Some(((left, right), _)) = frequency.into_iter().max_by_key(|(_, times)| *times) else { break };
        let merged = format!("{left}{right}");
        for piece in &mut pieces {
            let mut index = 0;
            while index + 1 < piece.len() {
                if piece[index] == left && piece[index + 1] == right {
                    piece.splice(index..index + 2, [merged.clone()]);
                }
                index += 1;
            }
        }
        merges.push(format!("{left} {right}"));
        if tokens.insert(merged.clone()) {
            in_order.push(merged);
        }
    }
    (merges, in_order)
}
