//! The tokenizing algorithms, and which one a file asks for.

use crate::bpe::ByteLevelBpe;
use crate::error::{EncodeError, TokenizerError, excerpt};
use crate::source::TokenizerSource;
use crate::vocabulary::Vocabulary;

/// The values of `tokenizer.ggml.model` that are supported.
const SUPPORTED_MODELS: &str = "gpt2";

/// A tokenizing algorithm with its tables. Special tokens, limits and decoding are the business
/// of [`Tokenizer`](crate::Tokenizer), so that they are the same for every algorithm.
pub(crate) trait Engine: Send + Sync {
    /// Appends the tokens of `text`, in which special tokens mean nothing. `offset` is the place
    /// of `text` in what the caller encodes, for errors. Stops with an error soon after `ids` has
    /// more than `limit` tokens.
    fn encode(&self, text: &str, offset: usize, limit: usize, ids: &mut Vec<u32>) -> Result<(), EncodeError>;
}

/// The vocabulary of a file and the algorithm that goes with it.
pub(crate) fn build(source: &TokenizerSource) -> Result<(Vocabulary, Box<dyn Engine>), TokenizerError> {
    match source.model.as_deref() {
        None | Some("") => Err(TokenizerError::MissingModel { supported: SUPPORTED_MODELS.into() }),
        Some("gpt2") => {
            let (vocabulary, engine) = ByteLevelBpe::build(source)?;
            Ok((vocabulary, Box::new(engine)))
        }
        Some(other) => Err(TokenizerError::UnsupportedModel {
            model: excerpt(other),
            supported: SUPPORTED_MODELS.into(),
        }),
    }
}
