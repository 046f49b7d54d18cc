//! Plays a script on one form of a subject as a host does.

use super::scripts::Round;
use super::subjects::{SLOTS, Subject};
use crate::block::ParameterBlock;
use crate::random::Random;
use crate::suite::samples::ROWS;
use paceline_plugin_api::graph::Graph;

/// What the host knows of a slot.
#[derive(Clone, Copy, Debug, Default)]
pub struct Slot {
    /// Rows that are kept.
    pub length: u32,
    /// Plane of the state after them.
    pub plane: u32,
    /// Bank of the last records.
    pub bank: u32,
    /// How many of these are kept and not yet replayed.
    pub keep: u32,
}

/// The slots while a script is played.
pub struct Player {
    subject: Subject,
    seed: u64,
    depth: u32,
    pub slots: [Slot; SLOTS as usize],
    step: usize,
}

impl Player {
    /// Slots whose planes and banks are anywhere.
    pub fn new(subject: Subject, seed: u64, depth: u32) -> Self {
        let mut slots = [Slot::default(); SLOTS as usize];
        for (index, slot) in (0..).zip(&mut slots) {
            (slot.plane, slot.bank) = (index % (depth + 1), index % 2);
        }
        Self { subject, seed, depth, slots, step: 0 }
    }

    /// Begins the sequences that begin in a step.
    pub fn begin(&mut self, step: &[Round]) {
        for round in step.iter().filter(|round| round.begins) {
            let slot = &mut self.slots[round.slot as usize];
            (slot.length, slot.keep) = (0, 0);
        }
    }

    /// Parameters of a run of the first `rows(round)` rows of each sequence of a step.
    pub fn parameters(&self, graph: &Graph, step: &[Round], rows: impl Fn(&Round) -> u32) -> Vec<u8> {
        let mut block = ParameterBlock::new(graph);
        let (mut sequences, mut rollbacks, mut first) = (Vec::new(), Vec::new(), 0);
        for round in step {
            let slot = self.slots[round.slot as usize];
            for row in 0..rows(round) {
                let key = format!("{:?} {} {} {row}", self.subject, self.step, round.slot);
                let mut random = Random::named(self.seed, &key);
                self.subject.fill_row(&mut block, (first + row) as usize, &mut random);
            }
            sequences.extend([first, rows(round), slot.length, round.slot].map(|v| v as i32));
            rollbacks.extend([slot.plane, slot.bank, slot.keep].map(|v| v as i32));
            first += rows(round);
        }
        block.set_integers(ROWS, &[first as i32]).set_integers("sequence_count", &[step.len() as i32]);
        block.set_integers("sequences", &sequences).set_integers("rollback", &rollbacks);
        block.into_bytes()
    }

    /// Rows of a run before those that can be taken back.
    pub fn settled(&self, rows: u32) -> u32 {
        rows.saturating_sub(self.depth)
    }

    /// Entry of a state in planes that holds the state after `rows` rows of the run.
    pub fn entry(&self, slot: u32, rows: u32) -> usize {
        let planes = self.depth + 1;
        (slot * planes + (self.slots[slot as usize].plane + rows) % planes) as usize
    }

    /// Takes the last rows of a step back.
    pub fn end(&mut self, step: &[Round]) {
        for round in step {
            let kept = round.rows - round.dropped;
            let settled = self.settled(round.rows);
            let planes = self.depth + 1;
            let slot = &mut self.slots[round.slot as usize];
            slot.length += kept;
            slot.plane = (slot.plane + kept) % planes;
            slot.keep = kept - settled;
            if round.rows > 0 {
                slot.bank = 1 - slot.bank;
            }
            if slot.length == 0 {
                slot.keep = 0;
            }
        }
        self.step += 1;
    }
}
