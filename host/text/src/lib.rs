//! Text on both ends of a model: token ids from text, and text from token bytes.
//!
//! * [`Tokenizer`] is built from the `tokenizer.ggml.*` values of a GGUF file, which the caller
//!   copies into a [`TokenizerSource`]. This crate reads no files.
//! * [`Utf8Stream`] turns bytes that arrive in pieces into whole characters.
//! * [`StopMatcher`] ends a reply at a stop string, however the string was split.
//! * [`ChatTemplate`] turns the messages of a conversation into the text of a prompt.
//! * [`TextStream`] is both in a row: the bytes of one token in, the text to show out.
//!
//! Rules:
//!
//! * Text is refused, never mangled: a vocabulary that this crate would split differently from
//!   the one the model was trained with is an error that names the key, and so is text that a
//!   vocabulary cannot spell, unless the vocabulary has a token for unknown text.
//! * Vocabularies, templates, text and token ids are untrusted. None of them makes this crate panic.
//! * Text is not Unicode-normalised. A GGUF file does not say whether the model's original
//!   tokenizer did (Qwen's used NFC), so what is typed is what is encoded, and
//!   `decode(encode(text))` is `text`. A caller who wants NFC applies it before encoding.

#![forbid(unsafe_code)]

mod bpe;
mod byte_alphabet;
mod chat_template;
mod end_of_generation;
mod engine;
mod error;
mod pretokenizer;
mod source;
mod special;
mod spm;
mod stop;
mod text_stream;
mod tokenizer;
mod utf8_stream;
mod vocabulary;

pub use chat_template::{ChatTemplate, LocalTime, Message, RenderLimits, RenderOptions, TemplateError};
pub use error::{EncodeError, TokenizerError};
pub use pretokenizer::supported_pretokenizers;
pub use source::{TokenType, TokenizerSource};
pub use stop::StopMatcher;
pub use text_stream::{TextDelta, TextStream};
pub use tokenizer::{EncodeOptions, Tokenizer};
pub use utf8_stream::Utf8Stream;
