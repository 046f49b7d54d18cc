//! Byte-level byte-pair encoding (`tokenizer.ggml.model` = `gpt2`).
//!
//! A piece of text begins as one token per byte. Again and again, the neighbours whose pair comes
//! first in the merge list become one token, the leftmost first, until no pair is in the list.
//!
//! Tables are keyed by the bytes that tokens stand for, not by their spelling in the file, so the
//! tokens of a text always stand for exactly its bytes, whatever the file says.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use crate::byte_alphabet::bytes_of_token;
use crate::engine::{Engine, TextSegment};
use crate::error::{EncodeError, TokenizerError, excerpt};
use crate::pretokenizer::Pretokenizer;
use crate::source::{TokenType, TokenizerSource};
use crate::vocabulary::Vocabulary;

const MAX_MERGES: usize = 1 << 24;

/// The tables of one vocabulary.
pub(crate) struct ByteLevelBpe {
    pretokenizer: Pretokenizer,
    token_of_byte: [Option<u32>; 256],
    merges: HashMap<(u32, u32), Merge>,
}

#[derive(Clone, Copy)]
struct Merge {
    rank: u32,
    token: u32,
}

impl ByteLevelBpe {
    /// Checks the vocabulary and builds the tables.
    pub(crate) fn build(source: &TokenizerSource) -> Result<(Vocabulary, ByteLevelBpe), TokenizerError> {
        let pretokenizer = Pretokenizer::named(source.pre.as_deref())?;
        let types = source.check()?;
        if source.merges.is_empty() {
            return Err(TokenizerError::MissingMerges);
        }
        if source.merges.len() > MAX_MERGES {
            return Err(TokenizerError::TooManyMerges { count: source.merges.len(), limit: MAX_MERGES });
        }
        let vocabulary = Vocabulary::new(&source.tokens, types, spelled);
        let token_of_bytes = ordinary_tokens(&vocabulary);
        let merges = merge_table(&source.merges, &token_of_bytes)?;
        let token_of_byte = std::array::from_fn(|byte| token_of_bytes.get(&[byte as u8][..]).copied());
        Ok((vocabulary, ByteLevelBpe { pretokenizer, token_of_byte, merges }))
    }

    fn candidate(&self, symbols: &[Symbol], left: usize) -> Option<Candidate> {
        let right = symbols[left].next;
        let pair = (symbols[left].token, symbols.get(right)?.token);
        self.merges.get(&pair).map(|merge| Reverse((merge.rank, left, pair)))
    }

    /// Merges one piece, whose bytes are in `scratch.symbols`.
    fn merge(&self, scratch: &mut Scratch) {
        let Scratch { symbols, candidates } = scratch;
        candidates.clear();
        candidates.extend((0..symbols.len()).filter_map(|left| self.candidate(symbols, left)));
        while let Some(Reverse((_, left, pair))) = candidates.pop() {
            let right = symbols[left].next;
            // The pair may have gone with an earlier merge of one of its two.
            let still_there = !symbols[left].absorbed
                && symbols.get(right).is_some_and(|symbol| (symbols[left].token, symbol.token) == pair);
            let Some(merge) = self.merges.get(&pair).filter(|_| still_there) else { continue };
            let after = symbols[right].next;
            symbols[left].token = merge.token;
            symbols[left].next = after;
            symbols[right].absorbed = true;
            if let Some(symbol) = symbols.get_mut(after) {
                symbol.previous = left;
            }
            let before = symbols[left].previous;
            if before != NONE {
                candidates.extend(self.candidate(symbols, before));
            }
            candidates.extend(self.candidate(symbols, left));
        }
    }
}

impl Engine for ByteLevelBpe {
    fn encode(&self, segment: TextSegment<'_>, limit: usize, ids: &mut Vec<u32>) -> Result<(), EncodeError> {
        let mut scratch = Scratch::default();
        let mut piece_offset = segment.offset;
        for piece in self.pretokenizer.pieces(segment.text) {
            scratch.symbols.clear();
            for (index, byte) in piece.bytes().enumerate() {
                let token = self.token_of_byte[usize::from(byte)]
                    .ok_or(EncodeError::ByteNotInVocabulary { byte, offset: piece_offset + index })?;
                let next = if index + 1 < piece.len() { index + 1 } else { NONE };
                let previous = index.checked_sub(1).unwrap_or(NONE);
                scratch.symbols.push(Symbol { token, previous, next, absorbed: false });
            }
            self.merge(&mut scratch);
            ids.extend(scratch.symbols.iter().filter(|symbol| !symbol.absorbed).map(|symbol| symbol.token));
            if ids.len() > limit {
                return Err(EncodeError::TooManyTokens { limit });
            }
            piece_offset += piece.len();
        }
        Ok(())
    }
}

/// No neighbour. Beyond any index, so that looking it up finds nothing.
const NONE: usize = usize::MAX;

/// A token of a piece under work, linked to its neighbours.
struct Symbol {
    token: u32,
    previous: usize,
    next: usize,
    /// Whether the neighbour on the left has taken this one in.
    absorbed: bool,
}

/// A pair that may be merged: lowest rank first, then leftmost.
type Candidate = Reverse<(u32, usize, (u32, u32))>;

/// Buffers that the pieces of a text share.
#[derive(Default)]
struct Scratch {
    symbols: Vec<Symbol>,
    candidates: BinaryHeap<Candidate>,
}

/// The bytes that a token of a byte-level vocabulary stands for.
fn spelled(text: &str, token_type: TokenType) -> Vec<u8> {
    match token_type {
        TokenType::Normal | TokenType::Byte => bytes_of_token(text),
        // Tokens added by hand are not written in the byte alphabet.
        _ => text.as_bytes().to_vec(),
    }
}

/// The tokens that merging may give, by their bytes. Of several with the same bytes the lowest id
/// is used, but a token of the alphabet before one added by hand.
fn ordinary_tokens(vocabulary: &Vocabulary) -> HashMap<&[u8], u32> {
    let mut token_of_bytes = HashMap::with_capacity(vocabulary.len());
    for by_hand in [false, true] {
        for (id, token_type, _) in vocabulary.iter() {
            if token_type.is_text()
                && by_hand == (token_type == TokenType::UserDefined)
                && let Some(bytes) = vocabulary.bytes(id).filter(|bytes| !bytes.is_empty())
            {
                token_of_bytes.entry(bytes).or_insert(id);
            }
        }
    }
    token_of_bytes
}

fn merge_table(
    merges: &[String],
    token_of_bytes: &HashMap<&[u8], u32>,
) -> Result<HashMap<(u32, u32), Merge>, TokenizerError> {
    let mut table = HashMap::with_capacity(merges.len());
    for (rank, (index, merge)) in (0..).zip(merges.iter().enumerate()) {
        let (left, right) = merge
            .split_once(' ')
            .filter(|(left, right)| !left.is_empty() && !right.is_empty())
            .ok_or_else(|| TokenizerError::MalformedMerge { index, merge: excerpt(merge) })?;
        let find = |bytes: &[u8], text: &str| {
            token_of_bytes.get(bytes).copied().ok_or_else(|| TokenizerError::MergeOfUnknownToken {
                index,
                merge: excerpt(merge),
                token: excerpt(text),
            })
        };
        let (left_bytes, right_bytes) = (bytes_of_token(left), bytes_of_token(right));
        let pair = (find(&left_bytes, left)?, find(&right_bytes, right)?);
        let token = find(&[left_bytes, right_bytes].concat(), &[left, right].concat())?;
        table.entry(pair).or_insert(Merge { rank, token });
    }
    Ok(table)
}
