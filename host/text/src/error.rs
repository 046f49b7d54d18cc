//! What can be wrong with a vocabulary, and with text to be encoded.

use thiserror::Error;

/// Characters of a file's text that an error repeats; a hostile token may be very long.
const EXCERPT_CHARS: usize = 48;

/// Why a [`Tokenizer`](crate::Tokenizer) could not be built.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum TokenizerError {
    /// `tokenizer.ggml.model` is absent or empty.
    #[error(
        "`tokenizer.ggml.model` is missing, so the tokenizer of this file is unknown (supported: {supported})"
    )]
    MissingModel {
        /// The supported names.
        supported: String,
    },

    /// `tokenizer.ggml.model` names an algorithm that is not built in.
    #[error("`tokenizer.ggml.model` is `{model}`, which is not supported (supported: {supported})")]
    UnsupportedModel {
        /// What the file says.
        model: String,
        /// The supported names.
        supported: String,
    },

    /// `tokenizer.ggml.pre` is absent or empty.
    #[error(
        "`tokenizer.ggml.pre` is missing or empty; guessing how to split text would give wrong tokens \
         without any sign of it (supported: {supported}). Convert the model again with a current \
         converter, or give the name if you know it"
    )]
    MissingPretokenizer {
        /// The supported names.
        supported: String,
    },

    /// `tokenizer.ggml.pre` names a way of splitting text that is not built in.
    #[error(
        "`tokenizer.ggml.pre` is `{pre}`, which is not supported (supported: {supported}). Give one of \
         these names instead only if you know that the vocabulary was made with it"
    )]
    UnsupportedPretokenizer {
        /// What the file says.
        pre: String,
        /// The supported names.
        supported: String,
    },

    /// There are no tokens.
    #[error("`tokenizer.ggml.tokens` is missing or empty; the file has no vocabulary")]
    EmptyVocabulary,

    /// There are more tokens than a vocabulary may have.
    #[error("`tokenizer.ggml.tokens` has {count} tokens, more than the limit of {limit}")]
    TooManyTokens {
        /// Tokens in the file.
        count: usize,
        /// The limit.
        limit: usize,
    },

    /// A token is longer than a token may be.
    #[error("token {id} of `tokenizer.ggml.tokens` has {length} bytes, more than the limit of {limit}")]
    TokenTooLong {
        /// The token.
        id: u32,
        /// Its length in bytes.
        length: usize,
        /// The limit.
        limit: usize,
    },

    /// The list of token types does not match the list of tokens.
    #[error("`tokenizer.ggml.token_type` has {types} entries for {tokens} tokens; the file is damaged")]
    TokenTypeCount {
        /// Entries in `tokenizer.ggml.token_type`.
        types: usize,
        /// Entries in `tokenizer.ggml.tokens`.
        tokens: usize,
    },

    /// A token type is outside the values that GGUF defines.
    #[error("`tokenizer.ggml.token_type` gives token {id} the type {value}; GGUF defines 0 to 6")]
    UnknownTokenType {
        /// The token.
        id: u32,
        /// The value in the file.
        value: i32,
    },

    /// The vocabulary needs token types and has none.
    #[error(
        "`tokenizer.ggml.token_type` is missing or empty; without it the byte and control tokens of a \
         `llama` vocabulary would be taken for text. Convert the model again from its original files"
    )]
    MissingTokenTypes,

    /// The vocabulary needs scores and has none.
    #[error(
        "`tokenizer.ggml.scores` is missing or empty; a `llama` vocabulary cannot be used without it. \
         Convert the model again from its original files"
    )]
    MissingScores,

    /// The list of scores does not match the list of tokens.
    #[error("`tokenizer.ggml.scores` has {scores} entries for {tokens} tokens; the file is damaged")]
    ScoreCount {
        /// Entries in `tokenizer.ggml.scores`.
        scores: usize,
        /// Entries in `tokenizer.ggml.tokens`.
        tokens: usize,
    },

    /// A score cannot be compared.
    #[error("`tokenizer.ggml.scores` gives token {id} a score that is not a number; the file is damaged")]
    ScoreNotANumber {
        /// The token.
        id: u32,
    },

    /// A byte token does not say which byte it is.
    #[error(
        "token {id} of `tokenizer.ggml.tokens`, `{token}`, has the type of a byte, but is not written as \
         `<0x` with two hexadecimal digits and `>`; the file is damaged"
    )]
    MalformedByteToken {
        /// The token.
        id: u32,
        /// Its text (shortened).
        token: String,
    },

    /// The vocabulary needs a merge list and has none.
    #[error(
        "`tokenizer.ggml.merges` is missing or empty; a `gpt2` vocabulary cannot be used without it. \
         Convert the model again from its original files"
    )]
    MissingMerges,

    /// There are more merges than can be ranked.
    #[error("`tokenizer.ggml.merges` has {count} entries, more than the limit of {limit}")]
    TooManyMerges {
        /// Entries in the file.
        count: usize,
        /// The limit.
        limit: usize,
    },

    /// A merge is not two tokens with a space between.
    #[error("entry {index} of `tokenizer.ggml.merges`, `{merge}`, is not two tokens with one space between")]
    MalformedMerge {
        /// Place in the list, from 0.
        index: usize,
        /// The entry (shortened).
        merge: String,
    },

    /// A merge names a token that ordinary text cannot have, or makes one.
    #[error(
        "entry {index} of `tokenizer.ggml.merges`, `{merge}`, needs the token `{token}`, which the \
         vocabulary does not have as an ordinary token; tokens and merges are not of the same model"
    )]
    MergeOfUnknownToken {
        /// Place in the list, from 0.
        index: usize,
        /// The entry (shortened).
        merge: String,
        /// The token that is missing (shortened).
        token: String,
    },

    /// A key gives the id of a token that does not exist.
    #[error("`{key}` is {id}, but the vocabulary ends at {last}", last = vocab_size.saturating_sub(1))]
    SpecialIdOutOfRange {
        /// The GGUF key.
        key: &'static str,
        /// The id in the file.
        id: u32,
        /// Tokens in the vocabulary.
        vocab_size: usize,
    },

    /// The file wants a token before every text and does not say which.
    #[error("`tokenizer.ggml.add_bos_token` is true, but `tokenizer.ggml.bos_token_id` is missing")]
    AddBosWithoutBos,

    /// The special tokens are too many or too long to be searched for.
    #[error("the special tokens of `tokenizer.ggml.tokens` are too large to search for: {reason}")]
    SpecialTokensTooLarge {
        /// What the search engine says.
        reason: String,
    },
}

/// Why text could not be encoded.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum EncodeError {
    /// The vocabulary cannot spell the text.
    #[error(
        "the vocabulary has no token for the byte 0x{byte:02X} at offset {offset} of the text; \
         this model cannot read that character"
    )]
    ByteNotInVocabulary {
        /// The byte.
        byte: u8,
        /// Its place in the text.
        offset: usize,
    },

    /// The text has more tokens than the caller allows.
    #[error("the text has more than {limit} tokens; shorten it or allow more")]
    TooManyTokens {
        /// The limit in [`EncodeOptions`](crate::EncodeOptions).
        limit: usize,
    },

    /// The caller asked for a leading token that the vocabulary does not have.
    #[error("a beginning-of-text token was asked for, but the file has no `tokenizer.ggml.bos_token_id`")]
    NoBosToken,
}

/// The beginning of a text from a file, short enough for a message and without line breaks.
pub(crate) fn excerpt(text: &str) -> String {
    let mut short: String = text.chars().take(EXCERPT_CHARS).flat_map(char::escape_debug).collect();
    if text.chars().nth(EXCERPT_CHARS).is_some() {
        short.push('…');
    }
    short
}
