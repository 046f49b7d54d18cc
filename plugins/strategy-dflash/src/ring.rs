//! The ring that keeps the keys and values of the positions that the drafter looks back on, and what of a sequence is
//! in it.
//!
//! Position p is in cell p modulo the ring's rows. A draft at frontier f sees the positions from f + 1 - window on and
//! writes as far as f plus its length, so with a block more than the window no draft takes the place of a position that
//! the next one sees. Another block lets a text be cut by that much without a pause: what was overwritten does not come
//! back, and until the window has moved on from there nothing is drafted.

use paceline_plugin_api::graph::ops::KV_BLOCK;
use paceline_plugin_api::graph::step::ContextShape;
use paceline_plugin_api::{Error, Result};

/// Blocks beyond the window.
const SPARE_BLOCKS: u32 = 2;

/// Size of the ring of each sequence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Ring {
    /// Blocks of 256 positions.
    pub blocks: u32,
    /// Positions that a row sees, its own included; 0 for all.
    pub window: u32,
}

impl Ring {
    /// A ring for `visible` positions.
    pub fn new(visible: u32, context: &ContextShape) -> Self {
        if visible >= context.positions {
            return Self { blocks: context.blocks_per_sequence, window: 0 };
        }
        let blocks = visible.div_ceil(KV_BLOCK) + SPARE_BLOCKS;
        Self { blocks: blocks.min(context.blocks_per_sequence), window: visible }
    }

    /// Positions that it holds.
    pub fn rows(self) -> u32 {
        self.blocks * KV_BLOCK
    }

    /// The first position that a row at `position` sees.
    fn first_visible(self, position: u32) -> u32 {
        if self.window == 0 { 0 } else { (position + 1).saturating_sub(self.window) }
    }
}

/// What the ring holds of one sequence.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Kept {
    /// Positions that entered the ring.
    pub filled: u32,
    /// Positions behind them that were kept and did not enter yet.
    pub waiting: u32,
    /// Entered positions from here on were not overwritten.
    intact_from: u32,
}

impl Kept {
    /// A sequence of `length` positions of which nothing is in the ring.
    pub fn unseen(length: u32) -> Self {
        Self { filled: length, waiting: 0, intact_from: length }
    }

    /// What is kept, as bytes, for a ring of this size.
    pub fn save(&self, ring: Ring) -> Vec<u8> {
        let numbers = [ring.blocks, ring.window, self.filled, self.waiting, self.intact_from];
        numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
    }

    /// The reverse of [`Kept::save`], for a sequence of `length` positions. What was saved of a ring of another size is as
    /// good as nothing.
    ///
    /// # Errors
    /// Bytes that are not those of a ring, or of another length.
    pub fn restored(bytes: &[u8], length: u32, ring: Ring) -> Result<Self> {
        let fault = || Error::invalid("what was saved of the sequence is not this drafter's");
        let (words, rest) = bytes.as_chunks::<4>();
        let &[blocks, window, filled, waiting, intact_from] = words else { return Err(fault()) };
        let [blocks, window, filled, waiting, intact_from] =
            [blocks, window, filled, waiting, intact_from].map(u32::from_le_bytes);
        if !rest.is_empty() || filled.checked_add(waiting) != Some(length) || intact_from > length {
            return Err(fault());
        }
        let is_same_ring = (Ring { blocks, window }) == ring;
        Ok(if is_same_ring { Self { filled, waiting, intact_from } } else { Self::unseen(length) })
    }

    /// `count` positions from `position` on were processed and kept.
    ///
    /// # Errors
    /// Positions before them that nobody told of.
    pub fn keep(&mut self, position: u32, count: u32) -> Result<()> {
        self.truncate(position);
        let known = self.known();
        if known != position {
            return Err(Error::invalid(format!(
                "rows of position {position} were kept, {known} positions are known"
            )));
        }
        self.waiting += count;
        Ok(())
    }

    /// Positions that are known.
    pub fn known(&self) -> u32 {
        self.filled + self.waiting
    }

    /// Only the first `length` positions remain.
    pub fn truncate(&mut self, length: u32) {
        self.filled = self.filled.min(length);
        self.waiting = self.waiting.min(length - self.filled);
        // What is lost is lost; what follows will be written anew.
        self.intact_from = self.intact_from.min(length);
    }

    /// Skips waiting rows that later ones would overwrite, if all but one of them enter at once.
    pub fn skip_overwritten(&mut self, ring: Ring) {
        let skipped = self.waiting.saturating_sub(ring.rows() + 1);
        self.filled += skipped;
        self.waiting -= skipped;
        self.intact_from = self.intact_from.max(if skipped > 0 { self.filled } else { 0 });
    }

    /// The first `count` waiting rows entered the ring.
    pub fn enter(&mut self, count: u32, ring: Ring) {
        self.filled += count;
        self.waiting -= count;
        self.written(self.filled, ring);
    }

    /// Cells of the positions before `end` were written.
    pub fn written(&mut self, end: u32, ring: Ring) {
        self.intact_from = self.intact_from.max(end.saturating_sub(ring.rows()));
    }

    /// True if a draft at `frontier` sees what belongs to the text, and nothing else.
    pub fn is_ready(&self, frontier: u32, ring: Ring) -> bool {
        self.known() == frontier && self.waiting > 0 && ring.first_visible(frontier) >= self.intact_from
    }
}
