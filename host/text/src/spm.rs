//! SentencePiece byte-pair encoding with scores (`tokenizer.ggml.model` = `llama`).
//!
//! Text begins as one symbol per character, spaces written as U+2581. Again and again, the
//! neighbours that together are the token with the highest score become one symbol, of equal
//! scores the leftmost, until no two neighbours make a token. A character that is no token is
//! spelled with byte tokens, or becomes the unknown token.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashMap};
use std::ops::Range;

use crate::engine::{Engine, TextSegment};
use crate::error::{EncodeError, TokenizerError, excerpt};
use crate::source::{TokenType, TokenizerSource};
use crate::vocabulary::Vocabulary;

/// How these vocabularies write a space.
const SPACE_MARK: char = '\u{2581}';
const SPACE_MARK_TEXT: &str = "\u{2581}";

/// The tables of one vocabulary.
pub(crate) struct ScoredBpe {
    pieces: HashMap<Box<str>, Piece>,
    longest_piece: usize,
    token_of_byte: [Option<u32>; 256],
    unknown: Option<u32>,
    add_space_prefix: bool,
    remove_extra_spaces: bool,
}

#[derive(Clone, Copy)]
struct Piece {
    token: u32,
    score: f32,
    /// Only a step on the way to longer tokens; taken apart again where it remains.
    unused: bool,
}

impl ScoredBpe {
    /// Checks the vocabulary and builds the tables.
    pub(crate) fn build(source: &TokenizerSource) -> Result<(Vocabulary, ScoredBpe), TokenizerError> {
        let types = source.check()?;
        if source.token_types.is_empty() {
            return Err(TokenizerError::MissingTokenTypes);
        }
        if source.scores.is_empty() {
            return Err(TokenizerError::MissingScores);
        }
        if source.scores.len() != source.tokens.len() {
            let (scores, tokens) = (source.scores.len(), source.tokens.len());
            return Err(TokenizerError::ScoreCount { scores, tokens });
        }
        let mut token_of_byte = [None; 256];
        let mut pieces = HashMap::with_capacity(source.tokens.len());
        for ((id, text), (&token_type, &score)) in
            (0..).zip(&source.tokens).zip(types.iter().zip(&source.scores))
        {
            if score.is_nan() {
                return Err(TokenizerError::ScoreNotANumber { id });
            }
            match token_type {
                TokenType::Byte => {
                    let byte = byte_of_token(text)
                        .ok_or_else(|| TokenizerError::MalformedByteToken { id, token: excerpt(text) })?;
                    token_of_byte[usize::from(byte)].get_or_insert(id);
                }
                TokenType::Normal | TokenType::UserDefined | TokenType::Unused if !text.is_empty() => {
                    let unused = token_type == TokenType::Unused;
                    pieces.entry(text.as_str().into()).or_insert(Piece { token: id, score, unused });
                }
                _ => {}
            }
        }
        let unknown = source.unknown.or_else(|| {
            (0..).zip(&types).find(|(_, token_type)| **token_type == TokenType::Unknown).map(|(id, _)| id)
        });
        let vocabulary = Vocabulary::new(&source.tokens, types, spelled);
        let engine = ScoredBpe {
            longest_piece: source.tokens.iter().map(String::len).max().unwrap_or(0),
            pieces,
            token_of_byte,
            unknown,
            add_space_prefix: source.add_space_prefix.unwrap_or(true),
            remove_extra_spaces: source.remove_extra_whitespaces.unwrap_or(false),
        };
        Ok((vocabulary, engine))
    }

    fn candidate(&self, work: &Work<'_>, left: usize) -> Option<Candidate> {
        let right = work.symbols.get(left)?.next;
        let (first, second) = (&work.symbols[left], work.symbols.get(right)?);
        let range = first.range.start..second.range.end;
        // A mark that the text itself has is never a space.
        if first.verbatim || second.verbatim || range.len() > self.longest_piece {
            return None;
        }
        let piece = self.pieces.get(&work.marked[range.clone()])?;
        Some(Candidate { score: piece.score, left, range })
    }

    fn merge<'a>(&self, work: &mut Work<'a>) {
        let mut candidates: BinaryHeap<Candidate> =
            (0..work.symbols.len()).filter_map(|left| self.candidate(work, left)).collect();
        while let Some(Candidate { left, range, .. }) = candidates.pop() {
            let right = work.symbols[left].next;
            // Either of the two may have gone with another merge.
            let still_there = !work.symbols[left].absorbed
                && work.symbols[left].range.start == range.start
                && work.symbols.get(right).is_some_and(|symbol| symbol.range.end == range.end);
            if !still_there {
                continue;
            }
            if self.pieces.get(&work.marked[range.clone()]).is_some_and(|piece| piece.unused) {
                let marked: &'a str = work.marked;
                work.halves.insert(&marked[range.clone()], work.symbols[left].range.len());
            }
            let after = work.symbols[right].next;
            work.symbols[left].range = range;
            work.symbols[left].next = after;
            work.symbols[right].absorbed = true;
            if let Some(symbol) = work.symbols.get_mut(after) {
                symbol.previous = left;
            }
            let before = work.symbols[left].previous;
            candidates.extend(self.candidate(work, before));
            candidates.extend(self.candidate(work, left));
        }
    }

    fn emit(&self, work: &Work<'_>, ids: &mut Vec<u32>, limit: usize) -> Result<(), EncodeError> {
        let mut last_was_unknown = false;
        let mut parts = Vec::new();
        for symbol in work.symbols.iter().filter(|symbol| !symbol.absorbed) {
            parts.push(symbol.range.clone());
            while let Some(range) = parts.pop() {
                let text = &work.marked[range.clone()];
                let piece = self.pieces.get(text).filter(|_| !symbol.verbatim);
                if let Some(&half) = work.halves.get(text).filter(|_| piece.is_some_and(|piece| piece.unused))
                {
                    let middle = range.start + half;
                    parts.extend([middle..range.end, range.start..middle]);
                    continue;
                }
                last_was_unknown = match piece {
                    Some(piece) => {
                        ids.push(piece.token);
                        false
                    }
                    None => self.spell(text, symbol.offset, last_was_unknown, ids)?,
                };
            }
            if ids.len() > limit {
                return Err(EncodeError::TooManyTokens { limit });
            }
        }
        Ok(())
    }

    /// Writes a character that is no token. Returns whether it became the unknown token, of which
    /// a run of such characters has only one.
    fn spell(
        &self,
        text: &str,
        offset: usize,
        after_unknown: bool,
        ids: &mut Vec<u32>,
    ) -> Result<bool, EncodeError> {
        let missing =
            text.bytes().enumerate().find(|(_, byte)| self.token_of_byte[usize::from(*byte)].is_none());
        let Some((index, byte)) = missing else {
            ids.extend(text.bytes().filter_map(|byte| self.token_of_byte[usize::from(byte)]));
            return Ok(false);
        };
        let unknown = self.unknown.ok_or_else(|| {
            // The text has a space where the vocabulary has a mark of three bytes.
            if text == SPACE_MARK_TEXT {
                EncodeError::ByteNotInVocabulary { byte: b' ', offset }
            } else {
                EncodeError::ByteNotInVocabulary { byte, offset: offset + index }
            }
        })?;
        ids.extend((!after_unknown).then_some(unknown));
        Ok(true)
    }
}

impl Engine for ScoredBpe {
    fn encode(&self, segment: TextSegment<'_>, limit: usize, ids: &mut Vec<u32>) -> Result<(), EncodeError> {
        let mut marked = String::with_capacity(segment.text.len() + SPACE_MARK.len_utf8());
        let mut symbols: Vec<Symbol> = Vec::with_capacity(segment.text.len() + 1);
        let prefix = (segment.begins_text && self.add_space_prefix).then_some((0, ' '));
        let can_spell_mark =
            SPACE_MARK_TEXT.bytes().all(|byte| self.token_of_byte[usize::from(byte)].is_some());
        for (index, character) in prefix.into_iter().chain(segment.text.char_indices()) {
            let start = marked.len();
            marked.push(if character == ' ' { SPACE_MARK } else { character });
            symbols.push(Symbol {
                range: start..marked.len(),
                offset: segment.offset + index,
                previous: symbols.len().wrapping_sub(1),
                next: symbols.len() + 1,
                absorbed: false,
                verbatim: character == SPACE_MARK && can_spell_mark,
            });
        }
        let mut work = Work { marked: &marked, symbols, halves: HashMap::new() };
        self.merge(&mut work);
        self.emit(&work, ids, limit)
    }

    fn normalized<'a>(&self, text: &'a str) -> Cow<'a, str> {
        if !self.remove_extra_spaces {
            return Cow::Borrowed(text);
        }
        let words: Vec<&str> = text.split(' ').filter(|word| !word.is_empty()).collect();
        Cow::Owned(words.join(" "))
    }

    fn adds_space_prefix(&self) -> bool {
        self.add_space_prefix
    }

    fn most_bytes_per_token(&self, longest_token: usize) -> usize {
        // A run of unknown characters is one token, whatever its length.
        if self.unknown.is_some() || self.remove_extra_spaces { usize::MAX } else { longest_token }
    }
}

/// A text under work.
struct Work<'a> {
    /// The text with marks for spaces.
    marked: &'a str,
    symbols: Vec<Symbol>,
    /// Where merging put together tokens that are not to be used: the length of the left part.
    halves: HashMap<&'a str, usize>,
}

/// A part of the text, linked to its neighbours. Links beyond the list mean that there is none.
struct Symbol {
    range: Range<usize>,
    /// Where it begins in what the caller encodes.
    offset: usize,
    previous: usize,
    next: usize,
    /// Whether the neighbour on the left has taken this one in.
    absorbed: bool,
    /// Spelled in bytes, whatever the vocabulary has.
    verbatim: bool,
}

/// Two neighbours that make a token. The greatest is merged first.
struct Candidate {
    score: f32,
    left: usize,
    range: Range<usize>,
}

impl Ord for Candidate {
    fn cmp(&self, other: &Candidate) -> Ordering {
        // Scores are numbers; unlike `total_cmp`, this takes -0.0 and 0.0 for equal.
        let by_score = self.score.partial_cmp(&other.score).unwrap_or(Ordering::Equal);
        by_score.then(other.left.cmp(&self.left)).then(other.range.end.cmp(&self.range.end))
    }
}

impl PartialOrd for Candidate {
    fn partial_cmp(&self, other: &Candidate) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Candidate {
    fn eq(&self, other: &Candidate) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Candidate {}

/// The byte of `<0xNN>`.
fn byte_of_token(text: &str) -> Option<u8> {
    let digits = text.strip_prefix("<0x")?.strip_suffix('>')?;
    // `from_str_radix` also takes a sign.
    let is_plain = digits.len() == 2 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    u8::from_str_radix(digits, 16).ok().filter(|_| is_plain)
}

/// The bytes that a token stands for.
fn spelled(text: &str, token_type: TokenType) -> Vec<u8> {
    match token_type {
        TokenType::Byte => byte_of_token(text).into_iter().collect(),
        TokenType::Normal | TokenType::UserDefined | TokenType::Unused => {
            text.replace(SPACE_MARK, " ").into_bytes()
        }
        TokenType::Control | TokenType::Unknown => text.as_bytes().to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_two_hexadecimal_digits_are_a_byte() {
        assert_eq!(byte_of_token("<0x0A>"), Some(10));
        assert_eq!(byte_of_token("<0xff>"), Some(255));
        for text in ["<0x-1>", "<0x+1>", "<0xZZ>", "<0x1>", "<0x100>", "<0x>", "0x0A", "<0x0A", "<0xé>", ""]
        {
            assert_eq!(byte_of_token(text), None, "{text}");
        }
    }
}
