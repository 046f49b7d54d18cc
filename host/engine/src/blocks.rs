//! Blocks of the KV cache: which are free, and which belong to a sequence.

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
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    proptest! {
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
