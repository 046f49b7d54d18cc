//! The host's side of sequences: lengths, slots, blocks of caches, and the parameter block of a run.

use super::scripts::Piece;
use crate::block::ParameterBlock;
use crate::random::Random;
use crate::suite::samples::{ROWS, SequenceSample};
use paceline_plugin_api::graph::Graph;
use paceline_plugin_api::graph::ops::KV_BLOCK;

/// What a slot holds.
#[derive(Clone, Default)]
struct Slot {
    stream: Option<u32>,
    length: u32,
    /// Blocks of the cache, in the order of the positions.
    blocks: Vec<u32>,
}

/// Keeps track of sequences while a script is played.
#[derive(Clone)]
pub(super) struct Player<'s> {
    sample: &'s SequenceSample,
    seed: u64,
    slots: Vec<Slot>,
    /// Blocks that no slot uses, the next one last.
    free: Vec<u32>,
}

impl<'s> Player<'s> {
    pub fn new(sample: &'s SequenceSample, seed: u64) -> Self {
        let blocks = sample.cache.map_or(0, |(blocks, _)| blocks);
        // In no order, so that a block's place does not give away its position.
        let free = Random::named(seed, &sample.name).shuffled(blocks);
        Self { sample, seed, slots: vec![Slot::default(); sample.slots as usize], free }
    }

    /// Slots that hold a sequence.
    pub fn slots_in_use(&self) -> impl Iterator<Item = u32> + '_ {
        (0u32..).zip(&self.slots).filter(|(_, slot)| slot.stream.is_some()).map(|(index, _)| index)
    }

    /// The parameter block of a run with these rows, one sequence after the other. Afterwards the sequences count as
    /// grown. A stream that its slot does not hold yet begins there.
    pub fn parameters(&mut self, graph: &Graph, step: &[Piece]) -> Vec<u8> {
        let mut block = ParameterBlock::new(graph);
        let (mut sequences, mut cells, mut updates) = (Vec::new(), Vec::new(), Vec::new());
        let mut first = 0;
        for piece in step {
            let length = self.begin(piece);
            sequences.extend([first, piece.rows, length, piece.slot].map(|v| v as i32));
            updates.extend(self.reserve(piece, length));
            for row in 0..piece.rows {
                cells.extend(self.cell(piece.slot, length + row));
                self.fill_row(&mut block, graph, first + row, piece.stream, length + row);
            }
            self.slots[piece.slot as usize].length += piece.rows;
            first += piece.rows;
        }
        block.set_integers(ROWS, &[first as i32]);
        block.set_integers("sequence_count", &[step.len() as i32]).set_integers("sequences", &sequences);
        if self.sample.cache.is_some() {
            block.set_integers("update_count", &[(updates.len() / 3) as i32]);
            block.set_integers("updates", &updates).set_integers("cells", &cells);
        }
        block.into_bytes()
    }

    /// Length of the sequence before the run.
    fn begin(&mut self, piece: &Piece) -> u32 {
        let slot = &mut self.slots[piece.slot as usize];
        if slot.stream != Some(piece.stream) {
            self.free.append(&mut slot.blocks);
            *slot = Slot { stream: Some(piece.stream), ..Slot::default() };
        }
        slot.length
    }

    /// Takes blocks for the rows of a piece and returns the updates of the table.
    fn reserve(&mut self, piece: &Piece, length: u32) -> Vec<i32> {
        let mut updates = Vec::new();
        let Some((_, entries)) = self.sample.cache else { return updates };
        let blocks = &mut self.slots[piece.slot as usize].blocks;
        let needed = (length + piece.rows).div_ceil(KV_BLOCK);
        assert!(needed <= entries, "scripts stay below the capacity of a table");
        while (blocks.len() as u32) < needed {
            let block = self.free.pop().expect("scripts stay below the capacity of a cache");
            updates.extend([piece.slot, blocks.len() as u32, block].map(|v| v as i32));
            blocks.push(block);
        }
        updates
    }

    /// Where a position is stored; `None` without a cache.
    fn cell(&self, slot: u32, position: u32) -> Option<i32> {
        let blocks = &self.slots[slot as usize].blocks;
        blocks
            .get((position / KV_BLOCK) as usize)
            .map(|block| (block * KV_BLOCK + position % KV_BLOCK) as i32)
    }

    /// A row's content follows from its sequence and position, however the sequence is cut.
    fn fill_row(&self, block: &mut ParameterBlock<'_>, graph: &Graph, row: u32, stream: u32, position: u32) {
        for (name, content) in &self.sample.contents {
            let key = format!("{} {name} {stream} {position}", self.sample.name);
            let mut random = Random::named(self.seed, &key);
            content.fill_row(block, graph, name, row, position.into(), &mut random);
        }
    }
}
