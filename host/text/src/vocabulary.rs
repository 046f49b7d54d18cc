//! The tokens of a model: how each is written in the file, and the bytes it stands for.

use std::ops::Range;

use crate::source::TokenType;

/// All tokens, in order of id. Texts and bytes lie in one block each, since a vocabulary may have
/// 250,000 tokens.
pub(crate) struct Vocabulary {
    types: Vec<TokenType>,
    texts: String,
    text_ends: Vec<usize>,
    bytes: Vec<u8>,
    byte_ends: Vec<usize>,
}

impl Vocabulary {
    /// `spelled` gives the bytes of a token of the given type from its text in the file.
    pub(crate) fn new(
        tokens: &[String],
        types: Vec<TokenType>,
        spelled: impl Fn(&str, TokenType) -> Vec<u8>,
    ) -> Vocabulary {
        let mut vocabulary = Vocabulary {
            types,
            texts: String::new(),
            text_ends: Vec::with_capacity(tokens.len()),
            bytes: Vec::new(),
            byte_ends: Vec::with_capacity(tokens.len()),
        };
        for (token, &token_type) in tokens.iter().zip(&vocabulary.types) {
            vocabulary.texts.push_str(token);
            vocabulary.text_ends.push(vocabulary.texts.len());
            vocabulary.bytes.extend(spelled(token, token_type));
            vocabulary.byte_ends.push(vocabulary.bytes.len());
        }
        vocabulary
    }

    pub(crate) fn len(&self) -> usize {
        self.types.len()
    }

    pub(crate) fn token_type(&self, id: u32) -> Option<TokenType> {
        self.types.get(id as usize).copied()
    }

    /// The token as the file writes it.
    pub(crate) fn text(&self, id: u32) -> Option<&str> {
        self.texts.get(span(&self.text_ends, id)?)
    }

    /// What the token stands for, whatever its type.
    pub(crate) fn bytes(&self, id: u32) -> Option<&[u8]> {
        self.bytes.get(span(&self.byte_ends, id)?)
    }

    /// Every token with its type and text.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, TokenType, &str)> {
        (0..).zip(&self.types).map(|(id, &token_type)| (id, token_type, self.text(id).unwrap_or_default()))
    }

    /// The most text that one token takes up, in bytes.
    pub(crate) fn longest_token(&self) -> usize {
        (0..).zip(&self.types).filter_map(|(id, _)| self.bytes(id)).map(<[u8]>::len).max().unwrap_or(0)
    }
}

/// The place of a token in a block, from where the tokens end.
fn span(ends: &[usize], id: u32) -> Option<Range<usize>> {
    let index = id as usize;
    let end = *ends.get(index)?;
    let start = index.checked_sub(1).map_or(0, |before| ends[before]);
    Some(start..end)
}
