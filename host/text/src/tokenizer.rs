//! Text to token ids and back.

use std::fmt;

use crate::end_of_generation;
use crate::engine::{self, Engine, TextSegment};
use crate::error::{EncodeError, TokenizerError};
use crate::source::{TokenType, TokenizerSource};
use crate::special::{Segment, SpecialTokens};
use crate::vocabulary::Vocabulary;

/// Ids are counted in 32-bit signed numbers in much of the world.
const DEFAULT_MAX_TOKENS: usize = i32::MAX as usize;

/// The tokenizer of one model.
///
/// Token ids beyond the vocabulary stand for nothing: a model may have more output rows than its
/// vocabulary has tokens.
pub struct Tokenizer {
    vocabulary: Vocabulary,
    engine: Box<dyn Engine>,
    /// Tokens that are text, and are one token wherever they stand.
    user_defined: SpecialTokens,
    /// The same and control tokens.
    all_special: SpecialTokens,
    end_of_generation: Vec<u32>,
    bos: Option<u32>,
    eos: Option<u32>,
    padding: Option<u32>,
    add_bos: bool,
    most_bytes_per_token: usize,
}

/// How to encode a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EncodeOptions {
    /// Whether control tokens written out in the text, such as `<|im_end|>`, become those tokens.
    /// Leave it off for text from users, who could otherwise end a turn or speak for the model.
    pub parse_special: bool,
    /// Whether the ids begin with [`Tokenizer::bos`]; `None` does what the file says. The token is
    /// not added to a text that begins with it.
    pub add_bos: Option<bool>,
    /// The most tokens that the text may have.
    pub max_tokens: usize,
}

impl Default for EncodeOptions {
    fn default() -> EncodeOptions {
        EncodeOptions { parse_special: false, add_bos: None, max_tokens: DEFAULT_MAX_TOKENS }
    }
}

impl Tokenizer {
    /// Builds the tokenizer that a file describes.
    ///
    /// # Errors
    ///
    /// When the file asks for an algorithm or a way of splitting text that is not supported, or
    /// when its tokens, types, merges and special ids do not fit together.
    pub fn new(source: &TokenizerSource) -> Result<Tokenizer, TokenizerError> {
        let (vocabulary, engine) = engine::build(source)?;
        let of_types = |types: &'static [TokenType]| {
            SpecialTokens::new(
                vocabulary
                    .iter()
                    .filter(|(_, token_type, _)| types.contains(token_type))
                    // A user-defined token stands in the text as it reads, not as the file writes it.
                    .filter_map(|(id, ..)| Some((id, std::str::from_utf8(vocabulary.bytes(id)?).ok()?))),
            )
        };
        let user_defined = of_types(&[TokenType::UserDefined])?;
        let all_special = of_types(&[TokenType::UserDefined, TokenType::Control, TokenType::Unknown])?;
        let end_of_generation = end_of_generation::ids(source, &vocabulary);
        let most_bytes_per_token = engine.most_bytes_per_token(vocabulary.longest_token());
        let adds_bos_by_default = source.model.as_deref() == Some("llama");
        Ok(Tokenizer {
            vocabulary,
            engine,
            user_defined,
            all_special,
            end_of_generation,
            bos: source.bos,
            eos: source.eos,
            padding: source.padding,
            add_bos: source.add_bos.unwrap_or(adds_bos_by_default),
            most_bytes_per_token,
        })
    }

    /// The tokens of a text.
    ///
    /// # Errors
    ///
    /// When the text has more tokens than the options allow, when the vocabulary cannot spell it,
    /// or when the options ask for a leading token that the file does not name.
    ///
    /// # SentencePiece
    ///
    /// A `llama` vocabulary may put a space before a text: here, before what begins the text and
    /// before what follows a control token, where a new text begins; not after a user-defined
    /// token, which is a part of the text. [`decode`](Tokenizer::decode) takes the same spaces away.
    ///
    /// A character without a token of its own is spelled in bytes, and without tokens for these
    /// becomes the unknown token, the one case in which decoding does not give the text back.
    /// U+2581, with which such vocabularies write a space, is spelled in bytes where they have them.
    pub fn encode(&self, text: &str, options: EncodeOptions) -> Result<Vec<u32>, EncodeError> {
        let limit = options.max_tokens;
        // Decided before any work, since a text with too many tokens is also long.
        if text.len().div_ceil(self.most_bytes_per_token.max(1)) > limit {
            return Err(EncodeError::TooManyTokens { limit });
        }
        let bos = match options.add_bos {
            Some(true) => Some(self.bos.ok_or(EncodeError::NoBosToken)?),
            Some(false) => None,
            None => self.bos.filter(|_| self.add_bos),
        };
        let special = if options.parse_special { &self.all_special } else { &self.user_defined };
        let text = self.engine.normalized(text);
        let mut segments = special.segments(&text).peekable();
        let mut ids = Vec::with_capacity(text.len() / 4 + 1);
        // A template that writes the token out must not give two.
        ids.extend(bos.filter(|&id| segments.peek() != Some(&Segment::Token(id))));
        let mut begins_text = true;
        for segment in segments {
            match segment {
                Segment::Token(id) if self.is_text(id) => {
                    if begins_text {
                        // What goes before a text goes before its user-defined tokens as well.
                        let nothing = TextSegment { text: "", offset: 0, begins_text };
                        self.engine.encode(nothing, limit, &mut ids)?;
                    }
                    ids.push(id);
                    begins_text = false;
                }
                Segment::Token(id) => {
                    ids.push(id);
                    begins_text = true;
                }
                Segment::Text { text, offset } => {
                    self.engine.encode(TextSegment { text, offset, begins_text }, limit, &mut ids)?;
                    begins_text = false;
                }
            }
        }
        if ids.len() > limit {
            return Err(EncodeError::TooManyTokens { limit });
        }
        Ok(ids)
    }

    /// The text of tokens that are a whole text, without control tokens. The bytes may begin or
    /// end inside a character; [`Utf8Stream`](crate::Utf8Stream) puts such pieces together.
    ///
    /// The space that encoding puts before a text is dropped; see
    /// [`decode_continuation`](Tokenizer::decode_continuation) for tokens that continue one.
    pub fn decode(&self, ids: &[u32]) -> Vec<u8> {
        self.decode_text(ids, Tokenizer::token_bytes)
    }

    /// The text of tokens that are a whole text, with control tokens written out.
    pub fn decode_with_control(&self, ids: &[u32]) -> Vec<u8> {
        self.decode_text(ids, Tokenizer::token_bytes_with_control)
    }

    /// The text of tokens that continue one, such as a reply after its prompt: all spaces are
    /// kept, so it is the [`token_bytes`](Tokenizer::token_bytes) of the tokens in a row. A stream
    /// that pushes these for each token shows the same.
    pub fn decode_continuation(&self, ids: &[u32]) -> Vec<u8> {
        ids.iter().flat_map(|&id| self.token_bytes(id)).copied().collect()
    }

    /// Joins the bytes of tokens without the spaces that encoding adds.
    fn decode_text<'a>(&'a self, ids: &[u32], bytes_of: impl Fn(&'a Tokenizer, u32) -> &'a [u8]) -> Vec<u8> {
        let mut text = Vec::new();
        let mut begins_text = self.adds_space_prefix();
        for &id in ids {
            let bytes = bytes_of(self, id);
            if !self.is_text(id) {
                begins_text = self.adds_space_prefix();
                text.extend_from_slice(bytes);
            } else if !bytes.is_empty() {
                let without_prefix = bytes.strip_prefix(b" ").filter(|_| begins_text);
                text.extend_from_slice(without_prefix.unwrap_or(bytes));
                begins_text = false;
            }
        }
        text
    }

    /// Whether decoding shows the token.
    fn is_text(&self, id: u32) -> bool {
        self.token_type(id).is_some_and(TokenType::is_text)
    }

    /// The text of one token. A control, unknown or unused token has none.
    pub fn token_bytes(&self, id: u32) -> &[u8] {
        if self.is_text(id) { self.token_bytes_with_control(id) } else { &[] }
    }

    /// The text of one token; that of a control token is its name.
    pub fn token_bytes_with_control(&self, id: u32) -> &[u8] {
        self.vocabulary.bytes(id).unwrap_or_default()
    }

    /// The token as the file writes it, for display: a space is `Ġ` in most vocabularies.
    pub fn token_text(&self, id: u32) -> Option<&str> {
        self.vocabulary.text(id)
    }

    /// What the token is for.
    pub fn token_type(&self, id: u32) -> Option<TokenType> {
        self.vocabulary.token_type(id)
    }

    /// Whether the token steers the model and is no part of the text.
    pub fn is_control(&self, id: u32) -> bool {
        self.token_type(id) == Some(TokenType::Control)
    }

    /// The number of tokens.
    pub fn vocab_size(&self) -> usize {
        self.vocabulary.len()
    }

    /// The tokens that end a reply, in ascending order: those that the file names as end of text,
    /// turn or message, and the end marks of known model families.
    pub fn end_of_generation(&self) -> &[u32] {
        &self.end_of_generation
    }

    /// Whether the token ends a reply.
    pub fn is_end_of_generation(&self, id: u32) -> bool {
        self.end_of_generation.binary_search(&id).is_ok()
    }

    /// The token that may stand at the beginning of a text.
    pub fn bos(&self) -> Option<u32> {
        self.bos
    }

    /// The token that the file names as end of text.
    pub fn eos(&self) -> Option<u32> {
        self.eos
    }

    /// The token that fills unused places of a batch.
    pub fn padding(&self) -> Option<u32> {
        self.padding
    }

    /// Whether encoding puts a space before a text.
    pub fn adds_space_prefix(&self) -> bool {
        self.engine.adds_space_prefix()
    }
}

impl fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokenizer").field("vocab_size", &self.vocab_size()).finish_non_exhaustive()
    }
}
