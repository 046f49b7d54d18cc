//! The index: where in the text the last n tokens occurred before.

/// No position.
const NONE: u32 = u32::MAX;
/// Earlier places with the same hash that are looked at.
const MOST_CANDIDATES: usize = 32;
/// Matches longer than this are as good as one another.
const LONGEST_MATCH: usize = 32;

/// A text of tokens with a chain of earlier places for every hash of n tokens. Taking back tokens restores the chains,
/// so the index is always that of the tokens it holds. Nothing is allocated after it was made.
#[derive(Debug)]
pub(crate) struct Index {
    matched: usize,
    tokens: Vec<u32>,
    /// By hash, the last position that follows n tokens of that hash.
    heads: Vec<u32>,
    /// By position, the one before in its chain.
    earlier: Vec<u32>,
    shift: u32,
}

impl Index {
    /// An empty index of at most `positions` tokens that looks for `matched` tokens.
    pub fn new(matched: usize, positions: usize) -> Self {
        let bits = usize::BITS - positions.max(16).leading_zeros();
        Self {
            matched,
            tokens: Vec::with_capacity(positions + 1),
            heads: vec![NONE; 1 << bits],
            earlier: Vec::with_capacity(positions + 1),
            shift: u64::BITS - bits,
        }
    }

    /// Tokens that it holds.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    fn hash(&self, tokens: impl Iterator<Item = u32>) -> usize {
        // Fibonacci hashing; the constant is 2^64 divided by the golden ratio.
        const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;
        let mixed =
            tokens.fold(0u64, |hash, token| (hash ^ u64::from(token)).wrapping_mul(GOLDEN).rotate_left(23));
        (mixed.wrapping_mul(GOLDEN) >> self.shift) as usize
    }

    /// The hash of the n tokens before `position`.
    fn hash_before(&self, position: usize) -> Option<usize> {
        let first = position.checked_sub(self.matched)?;
        Some(self.hash(self.tokens[first..position].iter().copied()))
    }

    /// Appends a token.
    pub fn push(&mut self, token: u32) {
        self.tokens.push(token);
        let position = self.tokens.len();
        let before = match self.hash_before(position) {
            Some(hash) => std::mem::replace(&mut self.heads[hash], position as u32),
            None => NONE,
        };
        self.earlier.push(before);
    }

    /// Keeps only the first `length` tokens.
    pub fn truncate(&mut self, length: usize) {
        while self.tokens.len() > length {
            let position = self.tokens.len();
            if let (Some(hash), Some(before)) = (self.hash_before(position), self.earlier.pop()) {
                self.heads[hash] = before;
            }
            self.earlier.truncate(position - 1);
            self.tokens.pop();
        }
    }

    /// The tokens that followed the longest earlier match of the text and `anchor` behind it, at most `most`. A match
    /// that reaches into what is being continued goes round.
    pub fn continuation(&self, anchor: u32, most: usize, give: &mut dyn FnMut(u32)) {
        let length = self.tokens.len();
        let Some(first) = (length + 1).checked_sub(self.matched) else { return };
        let last = self.tokens[first..].iter().copied().chain([anchor]);
        let mut candidate = self.heads[self.hash(last.clone())];
        let mut best: Option<(usize, usize)> = None;
        for _ in 0..MOST_CANDIDATES {
            if candidate == NONE {
                break;
            }
            let place = candidate as usize;
            let found = self.match_length(place, anchor);
            // Among equals the latest wins, which comes first.
            if found >= self.matched && best.is_none_or(|(longest, _)| found > longest) {
                best = Some((found, place));
            }
            candidate = self.earlier[place - 1];
        }
        let Some((_, place)) = best else { return };
        let period = length + 1 - place;
        for step in 0..most {
            let at = place + step % period;
            give(if at < length { self.tokens[at] } else { anchor });
        }
    }

    /// How many tokens before `place` are those at the end of the text with `anchor` behind it.
    fn match_length(&self, place: usize, anchor: u32) -> usize {
        if self.tokens[place - 1] != anchor {
            return 0;
        }
        let before = self.tokens[..place - 1].iter().rev();
        1 + before.zip(self.tokens.iter().rev()).take(LONGEST_MATCH).take_while(|(a, b)| a == b).count()
    }
}
