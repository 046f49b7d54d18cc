//! The parameter block of a run: where the parameters of a graph are, and filling them in.

use crate::blocks::SequenceState;
use crate::sampling::Draws;
use paceline_plugin_api::graph::noise::Noise;
use paceline_plugin_api::graph::step::{group_prefix, name};
use paceline_plugin_api::graph::{Graph, ValueKind};

/// Positions per block of a KV cache.
pub use paceline_plugin_api::graph::ops::KV_BLOCK;
pub use paceline_plugin_api::graph::step::{ContextShape, StepInputs};

/// Byte offset of a parameter, if the graph has it.
fn offset(graph: &Graph, name: &str) -> Option<usize> {
    match graph.value(graph.parameter(name)?).kind {
        ValueKind::Parameter { offset } => Some(offset as usize),
        _ => None,
    }
}

/// Entries of a parameter.
fn entries(graph: &Graph, name: &str) -> usize {
    graph.parameter(name).map_or(0, |id| graph.value(id).shape.first() as usize)
}

/// Byte offsets of the parameters of a group of rows; those that a graph lacks are left alone.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct GroupOffsets {
    /// Most rows.
    pub rows: usize,
    row_count: Option<usize>,
    sequence_count: Option<usize>,
    ids: Option<usize>,
    positions: Option<usize>,
    pub cells: Option<usize>,
    sequence_entries: Option<usize>,
    rollback: Option<usize>,
    staged: Option<usize>,
    staged_previous: Option<usize>,
    ring_cells: Option<usize>,
    last_row: Option<usize>,
    noise: Option<usize>,
    noise_next: Option<usize>,
}

/// Byte offsets of the updates of block tables.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UpdateOffsets {
    count: usize,
    updates: usize,
    /// Most updates.
    pub most: usize,
}

impl GroupOffsets {
    fn of(graph: &Graph, prefix: &str) -> Self {
        let at = |part: &str| offset(graph, &format!("{prefix}{part}"));
        let count = |part: &str| entries(graph, &format!("{prefix}{part}"));
        Self {
            rows: count(name::IDS),
            row_count: at(name::ROW_COUNT),
            sequence_count: at(name::SEQUENCE_COUNT),
            ids: at(name::IDS),
            positions: at(name::POSITIONS),
            cells: at(name::CELLS),
            sequence_entries: at(name::SEQUENCES),
            rollback: at(name::ROLLBACK),
            staged: at(name::STAGED),
            staged_previous: at(name::STAGED_PREVIOUS),
            ring_cells: at(name::RING_CELLS),
            last_row: at(name::LAST_ROW),
            noise: at(name::NOISE),
            noise_next: at(name::NOISE_NEXT),
        }
    }

    /// The one group of a target's graph.
    pub fn of_target(graph: &Graph) -> Self {
        Self::of(graph, "")
    }

    /// All groups of a strategy's graph.
    pub fn of_strategy(graph: &Graph) -> Vec<Self> {
        (0..)
            .map(group_prefix)
            .take_while(|prefix| graph.parameter(&format!("{prefix}{}", name::ROW_COUNT)).is_some())
            .map(|prefix| Self::of(graph, &prefix))
            .collect()
    }
}

impl UpdateOffsets {
    pub fn of(graph: &Graph) -> Option<Self> {
        Some(Self {
            count: offset(graph, name::UPDATE_COUNT)?,
            updates: offset(graph, name::UPDATES)?,
            most: entries(graph, name::UPDATES),
        })
    }

    pub fn write(&self, block: &mut ParameterBlock<'_>, updates: &[[i32; 3]]) {
        block.put(Some(self.count), 0, updates.len() as i32);
        for (number, update) in updates.iter().enumerate() {
            block.put_all(Some(self.updates), number * 3, update);
        }
    }
}

/// The block that a launch reads its parameters from.
pub(crate) struct ParameterBlock<'a>(pub &'a mut [u8]);

impl ParameterBlock<'_> {
    /// Writes entry `index` of the parameter at `offset`, if the graph has the parameter.
    pub fn put(&mut self, offset: Option<usize>, index: usize, value: i32) {
        if let Some(offset) = offset {
            let at = offset + index * 4;
            self.0[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        }
    }

    fn put_all(&mut self, offset: Option<usize>, first: usize, values: &[i32]) {
        for (index, &value) in values.iter().enumerate() {
            self.put(offset, first + index, value);
        }
    }
}

/// Consecutive rows of one sequence.
#[derive(Clone, Copy)]
pub(crate) struct Span<'a> {
    pub slot: usize,
    pub state: &'a SequenceState,
    /// Position of the first row.
    pub position: usize,
    pub count: usize,
    /// Token ids, where the graph takes them.
    pub tokens: Option<&'a [u32]>,
    /// What the text's tokens are drawn with.
    pub draws: Option<Draws>,
}

/// Fills in the parameters of a group, span after span.
pub(crate) struct GroupWriter<'a, 'b> {
    block: &'a mut ParameterBlock<'b>,
    offsets: &'a GroupOffsets,
    context: &'a ContextShape,
    /// Blocks per sequence of the strategy's ring; 0 for none.
    ring_blocks: u32,
    row: usize,
    spans: usize,
}

impl<'a, 'b> GroupWriter<'a, 'b> {
    pub fn new(
        block: &'a mut ParameterBlock<'b>,
        offsets: &'a GroupOffsets,
        context: &'a ContextShape,
        ring_blocks: u32,
    ) -> Self {
        Self { block, offsets, context, ring_blocks, row: 0, spans: 0 }
    }

    pub fn span(&mut self, span: &Span<'_>) {
        let (block, offsets) = (&mut *self.block, self.offsets);
        let entry = [self.row, span.count, span.position, span.slot].map(|value| value as i32);
        block.put_all(offsets.sequence_entries, self.spans * 4, &entry);
        let state = span.state;
        let rollback = [state.plane, state.bank, state.kept_records].map(|value| value as i32);
        block.put_all(offsets.rollback, self.spans * 3, &rollback);

        let staged_rows = (self.context.staged_rows as usize).max(1);
        let staged = |position: usize| (span.slot * staged_rows + position % staged_rows) as i32;
        let ring_rows = (self.ring_blocks * KV_BLOCK) as usize;
        for index in 0..span.count {
            let (position, row) = (span.position + index, self.row + index);
            if let Some(token) = span.tokens.and_then(|tokens| tokens.get(index)) {
                block.put(offsets.ids, row, *token as i32);
            }
            block.put(offsets.positions, row, position as i32);
            if offsets.cells.is_some() {
                // A graph may have cells that it does not use, of positions that have no block.
                let cell = state.blocks.get(position / KV_BLOCK as usize).map_or(-1, |&physical| {
                    (physical * KV_BLOCK) as i32 + (position % KV_BLOCK as usize) as i32
                });
                block.put(offsets.cells, row, cell);
            }
            block.put(offsets.staged, row, staged(position));
            block.put(offsets.staged_previous, row, position.checked_sub(1).map_or(-1, staged));
            if ring_rows > 0 {
                block.put(offsets.ring_cells, row, (span.slot * ring_rows + position % ring_rows) as i32);
            }
        }
        let noise =
            |position: usize| span.draws.map_or(Noise::NONE, |draws| draws.at(position as u64)).to_row();
        if offsets.noise.is_some() {
            for index in 0..span.count {
                block.put_all(offsets.noise, (self.row + index) * 4, &noise(span.position + index));
            }
        }
        if offsets.noise_next.is_some() {
            block.put_all(offsets.noise_next, 0, &noise(span.position + span.count));
        }
        self.row += span.count;
        self.spans += 1;
    }

    pub fn finish(self) {
        self.block.put(self.offsets.row_count, 0, self.row as i32);
        self.block.put(self.offsets.sequence_count, 0, self.spans as i32);
        self.block.put(self.offsets.last_row, 0, self.row as i32 - 1);
    }
}

/// Offsets that only the target's graphs have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OutputOffsets {
    pub output_count: usize,
    pub output_rows: usize,
}

/// Names of the parameters of the rows whose outputs are wanted.
pub(crate) mod output_name {
    pub const COUNT: &str = "output_count";
    pub const ROWS: &str = "output_rows";
}

impl OutputOffsets {
    pub fn of(graph: &Graph) -> Option<Self> {
        Some(Self {
            output_count: offset(graph, output_name::COUNT)?,
            output_rows: offset(graph, output_name::ROWS)?,
        })
    }
}
