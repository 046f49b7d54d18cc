//! The plain data a tokenizer is built from.

use crate::error::TokenizerError;

/// The `tokenizer.ggml.*` values of a GGUF file, as the file has them.
///
/// An empty list or `None` means that the file lacks the key. Nothing is checked until
/// [`Tokenizer::new`](crate::Tokenizer::new).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TokenizerSource {
    /// `tokenizer.ggml.model`: the algorithm.
    pub model: Option<String>,
    /// `tokenizer.ggml.pre`: how text is split before merging.
    pub pre: Option<String>,
    /// `tokenizer.ggml.tokens`: the place in the list is the token id.
    pub tokens: Vec<String>,
    /// `tokenizer.ggml.token_type`: one per token; empty makes every token an ordinary one.
    pub token_types: Vec<i32>,
    /// `tokenizer.ggml.scores`: one per token; the higher, the sooner a token is merged (`llama`).
    pub scores: Vec<f32>,
    /// `tokenizer.ggml.merges`: two tokens with a space between, most important first.
    pub merges: Vec<String>,
    /// `tokenizer.ggml.bos_token_id`: beginning of text.
    pub bos: Option<u32>,
    /// `tokenizer.ggml.eos_token_id`: end of text.
    pub eos: Option<u32>,
    /// `tokenizer.ggml.eot_token_id`: end of turn.
    pub eot: Option<u32>,
    /// `tokenizer.ggml.eom_token_id`: end of message.
    pub eom: Option<u32>,
    /// `tokenizer.ggml.unknown_token_id`: stands for text that cannot be spelled.
    pub unknown: Option<u32>,
    /// `tokenizer.ggml.padding_token_id`: filler.
    pub padding: Option<u32>,
    /// `tokenizer.ggml.add_bos_token`: whether texts begin with `bos`. Without it, they do in a
    /// `llama` vocabulary.
    pub add_bos: Option<bool>,
    /// `tokenizer.ggml.add_space_prefix`: whether a space goes before a text (`llama`, where it
    /// does without the key).
    pub add_space_prefix: Option<bool>,
    /// `tokenizer.ggml.remove_extra_whitespaces`: whether spaces at the ends of a text and repeated
    /// ones are dropped (`llama`, where they are kept without the key).
    pub remove_extra_whitespaces: Option<bool>,
}

impl TokenizerSource {
    /// The special ids with the keys they came from.
    pub(crate) fn special_ids(&self) -> [(&'static str, Option<u32>); 6] {
        [
            ("tokenizer.ggml.bos_token_id", self.bos),
            ("tokenizer.ggml.eos_token_id", self.eos),
            ("tokenizer.ggml.eot_token_id", self.eot),
            ("tokenizer.ggml.eom_token_id", self.eom),
            ("tokenizer.ggml.unknown_token_id", self.unknown),
            ("tokenizer.ggml.padding_token_id", self.padding),
        ]
    }

    /// Checks what every algorithm needs, and returns one type per token.
    pub(crate) fn check(&self) -> Result<Vec<TokenType>, TokenizerError> {
        let vocab_size = self.tokens.len();
        if vocab_size == 0 {
            return Err(TokenizerError::EmptyVocabulary);
        }
        if vocab_size > MAX_TOKENS {
            return Err(TokenizerError::TooManyTokens { count: vocab_size, limit: MAX_TOKENS });
        }
        for (id, token) in (0..).zip(&self.tokens) {
            if token.len() > MAX_TOKEN_BYTES {
                return Err(TokenizerError::TokenTooLong { id, length: token.len(), limit: MAX_TOKEN_BYTES });
            }
        }
        for (key, id) in self.special_ids() {
            if let Some(id) = id
                && id as usize >= vocab_size
            {
                return Err(TokenizerError::SpecialIdOutOfRange { key, id, vocab_size });
            }
        }
        if self.add_bos == Some(true) && self.bos.is_none() {
            return Err(TokenizerError::AddBosWithoutBos);
        }
        self.checked_types()
    }

    fn checked_types(&self) -> Result<Vec<TokenType>, TokenizerError> {
        if self.token_types.is_empty() {
            return Ok(vec![TokenType::Normal; self.tokens.len()]);
        }
        if self.token_types.len() != self.tokens.len() {
            let (types, tokens) = (self.token_types.len(), self.tokens.len());
            return Err(TokenizerError::TokenTypeCount { types, tokens });
        }
        (0..)
            .zip(&self.token_types)
            .map(|(id, &value)| {
                TokenType::from_gguf(value).ok_or(TokenizerError::UnknownTokenType { id, value })
            })
            .collect()
    }
}

/// Far above any real vocabulary (the largest known have 256 thousand tokens).
const MAX_TOKENS: usize = 1 << 24;
const MAX_TOKEN_BYTES: usize = 64 * 1024;

/// What a token is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TokenType {
    /// A piece of text.
    Normal,
    /// Stands for text that cannot be spelled.
    Unknown,
    /// Steers the model (`<|im_start|>`); never a part of the text.
    Control,
    /// A piece of text that is always one token (`<think>`).
    UserDefined,
    /// A row that was never trained.
    Unused,
    /// A single byte.
    Byte,
}

impl TokenType {
    /// The type with this number in `tokenizer.ggml.token_type`. 0, "undefined", is what some
    /// converters write for ordinary tokens.
    pub fn from_gguf(value: i32) -> Option<TokenType> {
        Some(match value {
            0 | 1 => TokenType::Normal,
            2 => TokenType::Unknown,
            3 => TokenType::Control,
            4 => TokenType::UserDefined,
            5 => TokenType::Unused,
            6 => TokenType::Byte,
            _ => return None,
        })
    }

    /// Whether the token is a piece of text, which decoding shows.
    pub(crate) fn is_text(self) -> bool {
        matches!(self, TokenType::Normal | TokenType::UserDefined | TokenType::Byte)
    }
}
