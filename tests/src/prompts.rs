//! The benchmark's prompts as tokens of a model.

use crate::AnyError;
use paceline_gguf::Gguf;
use paceline_text::{EncodeOptions, Tokenizer, TokenizerSource};
use serde::Deserialize;
use std::path::Path;

/// A prompt of `bench/prompts`.
#[derive(Clone, Debug)]
pub struct Prompt {
    /// Its name, which comes once in its kind.
    pub name: String,
    /// Its tokens.
    pub ids: Vec<u32>,
}

#[derive(Deserialize)]
struct Line {
    name: String,
    text: String,
}

/// All prompts of a kind, such as `code`, for a model.
///
/// # Errors
/// A file that cannot be read, or is not as its README says; a tokenizer that cannot be used.
pub fn prompts(kind: &str, gguf: &Gguf) -> Result<Vec<Prompt>, AnyError> {
    let tokenizer = tokenizer(gguf)?;
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("bench/prompts/{kind}.jsonl"));
    let text = std::fs::read_to_string(path)?;
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    lines
        .map(|line| {
            let Line { name, text } = serde_json::from_str(line)?;
            Ok(Prompt { name, ids: tokenizer.encode(&text, EncodeOptions::default())? })
        })
        .collect()
}

/// The tokenizer of a model with a byte vocabulary.
///
/// # Errors
/// A file without one.
pub fn tokenizer(gguf: &Gguf) -> Result<Tokenizer, AnyError> {
    let text = |key: &str| Ok::<_, AnyError>(gguf.get_str(key)?.map(str::to_owned));
    let list = |key: &str| {
        let strings = gguf.array_str(key)?;
        Ok::<_, AnyError>(strings.into_iter().flatten().map(str::to_owned).collect())
    };
    let source = TokenizerSource {
        model: text("tokenizer.ggml.model")?,
        pre: text("tokenizer.ggml.pre")?,
        tokens: list("tokenizer.ggml.tokens")?,
        token_types: gguf.array_i32("tokenizer.ggml.token_type")?.into_iter().flatten().collect(),
        merges: list("tokenizer.ggml.merges")?,
        eos: gguf.get_u32("tokenizer.ggml.eos_token_id")?,
        add_bos: gguf.get_bool("tokenizer.ggml.add_bos_token")?,
        ..TokenizerSource::default()
    };
    Ok(Tokenizer::new(&source)?)
}
