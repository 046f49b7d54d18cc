//! The tokenizing algorithms, and which one a file asks for.

use std::borrow::Cow;

use crate::bpe::ByteLevelBpe;
use crate::error::{EncodeError, TokenizerError, excerpt};
use crate::source::TokenizerSource;
use crate::spm::ScoredBpe;
use crate::vocabulary::Vocabulary;

/// The values of `tokenizer.ggml.model` that are supported.
const SUPPORTED_MODELS: &str = "gpt2, llama";

/// A tokenizing algorithm with its tables. Special tokens, limits and decoding are the business
/// of [`Tokenizer`](crate::Tokenizer), so that they are the same for every algorithm.
pub(crate) trait Engine: Send + Sync {
    /// Appends the tokens of a text, in which special tokens mean nothing. Stops with an error
    /// soon after `ids` has more than `limit` tokens.
    fn encode(&self, segment: TextSegment<'_>, limit: usize, ids: &mut Vec<u32>) -> Result<(), EncodeError>;

    /// The text as the model was trained to see it, before special tokens are looked for.
    fn normalized<'a>(&self, text: &'a str) -> Cow<'a, str> {
        Cow::Borrowed(text)
    }

    /// Whether [`encode`](Engine::encode) puts a space before a segment that begins a text.
    fn adds_space_prefix(&self) -> bool {
        false
    }

    /// The most bytes of text that one token can take up, given the longest of the vocabulary.
    fn most_bytes_per_token(&self, longest_token: usize) -> usize {
        longest_token
    }
}

/// A piece of text between special tokens.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TextSegment<'a> {
    pub(crate) text: &'a str,
    /// Its place in what the caller encodes, for errors.
    pub(crate) offset: usize,
    /// Whether no text comes before it, or a control token does.
    pub(crate) begins_text: bool,
}

/// The vocabulary of a file and the algorithm that goes with it.
pub(crate) fn build(source: &TokenizerSource) -> Result<(Vocabulary, Box<dyn Engine>), TokenizerError> {
    match source.model.as_deref() {
        None | Some("") => Err(TokenizerError::MissingModel { supported: SUPPORTED_MODELS.into() }),
        Some("gpt2") => {
            let (vocabulary, engine) = ByteLevelBpe::build(source)?;
            Ok((vocabulary, Box::new(engine)))
        }
        Some("llama") => {
            let (vocabulary, engine) = ScoredBpe::build(source)?;
            Ok((vocabulary, Box::new(engine)))
        }
        Some(other) => Err(TokenizerError::UnsupportedModel {
            model: excerpt(other),
            supported: SUPPORTED_MODELS.into(),
        }),
    }
}
