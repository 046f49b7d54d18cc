//! Blocks of the KV cache: which are free, and which belong to a sequence.

use std::ops::Range;

/// Free blocks of a cache that all sequences share.
#[derive(Debug)]
pub(crate) struct BlockPool {
    free: Vec<u32>,
}

impl BlockPool {
    /// A pool of `count` blocks, all free.
    pub fn new(count: u32) -> Self {
        // The lowest block is given first.
        Self { free: (0..count).rev().collect() }
    }

    /// A free block.
    pub fn take(&mut self) -> Option<u32> {
        self.free.pop()
    }

    /// Gives a block back.
    pub fn give(&mut self, block: u32) {
        self.free.push(block);
    }
}

/// What the engine keeps of one sequence.
#[derive(Debug, Default)]
pub(crate) struct SequenceState {
    pub in_use: bool,
    /// Positions that are processed.
    pub length: u32,
    /// Physical block of each logical block.
    pub blocks: Vec<u32>,
    /// The tokens of the positions that are processed.
    pub tokens: Vec<u32>,
    /// Positions that were processed by runs of so many rows that they may have other bits than alone.
    pub wide: Vec<Range<u32>>,
    /// Plane of the snapshots that holds the recurrent state after `length` positions.
    pub plane: u32,
    /// Bank of the records that lead from the base state to that after `length` positions.
    pub bank: u32,
    /// How many records of the bank do.
    pub kept_records: u32,
    /// Positions that can be taken back.
    pub rollable: u32,
    /// A run failed, and what the states hold is undefined.
    pub spoilt: bool,
}

/// What decides how recurrent state is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RollbackShape {
    /// Positions that can be taken back after a run; a bank has one record more.
    pub depth: u32,
    /// The model has no recurrent state: everything can be taken back.
    pub unlimited: bool,
}

impl SequenceState {
    /// A run has processed `rows` more positions.
    pub fn advance(&mut self, rows: u32, shape: RollbackShape) {
        self.length += rows;
        self.plane = (self.plane + rows) % (shape.depth + 1);
        self.bank = 1 - self.bank;
        self.kept_records = rows.min(shape.depth + 1);
        self.rollable = if shape.unlimited { self.length } else { rows.min(shape.depth) };
    }

    /// Takes back the last `rows` positions; false, and nothing is changed, if that is more than can be.
    pub fn roll_back(&mut self, rows: u32, shape: RollbackShape) -> bool {
        if rows > self.rollable {
            return false;
        }
        let planes = shape.depth + 1;
        self.length -= rows;
        self.tokens.truncate(self.length as usize);
        self.wide.retain(|run| run.start < self.length);
        if let Some(last) = self.wide.last_mut() {
            last.end = last.end.min(self.length);
        }
        self.plane = (self.plane + planes - rows % planes) % planes;
        self.kept_records = self.kept_records.saturating_sub(rows);
        self.rollable -= rows;
        true
    }

    /// The recurrent state is that after `length` positions, and nothing of it is pending.
    pub fn settled(&mut self, shape: RollbackShape) {
        self.kept_records = 0;
        self.rollable = if shape.unlimited { self.length } else { 0 };
    }

    /// Back to the beginning.
    pub fn reset(&mut self) {
        self.length = 0;
        self.spoilt = false;
        self.tokens.clear();
        self.wide.clear();
        (self.plane, self.bank, self.kept_records, self.rollable) = (0, 0, 0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    proptest! {
        /// The plane and the records are those of the position, however it was reached.
        #[test]
        fn the_plane_follows_the_length(
            depth in 0u32..16,
            steps in proptest::collection::vec((1u32..40, 0u32..40), 1..40),
        ) {
            let shape = RollbackShape { depth, unlimited: false };
            let mut sequence = SequenceState::default();
            for (rows, back) in steps {
                let base = sequence.length + rows.saturating_sub(depth + 1);
                sequence.advance(rows, shape);
                let before = (sequence.length, sequence.plane, sequence.kept_records);
                if sequence.roll_back(back, shape) {
                    prop_assert!(back <= depth.min(rows));
                    prop_assert_eq!(sequence.length, before.0 - back);
                } else {
                    prop_assert!(back > depth.min(rows));
                    prop_assert_eq!(before, (sequence.length, sequence.plane, sequence.kept_records));
                }
                prop_assert_eq!(sequence.plane, sequence.length % (depth + 1));
                prop_assert_eq!(base + sequence.kept_records, sequence.length);
            }
        }

        #[test]
        fn a_block_has_one_owner(count in 0u32..40, takes in proptest::collection::vec(any::<bool>(), 0..200)) {
            let mut pool = BlockPool::new(count);
            let mut taken = HashSet::new();
            for take in takes {
                if take {
                    match pool.take() {
                        Some(block) => prop_assert!(block < count && taken.insert(block)),
                        None => prop_assert_eq!(taken.len(), count as usize),
                    }
                } else if let Some(&block) = taken.iter().next() {
                    taken.remove(&block);
                    pool.give(block);
                }
            }
        }
    }
}
