//! The inputs of a step that the host fills in: values of the graph that is being built, under names that the host
//! knows.
//!
//! A graph has one or several **groups** of rows. Rows of a group have an id, a position and a cell of the KV cache
//! each, and belong to sequences. The target's graphs have one group, whose parameters have plain names; a strategy's
//! graph numbers its groups, and their parameters are called `g0.ids`, `g0.positions` and so on. The host finds the
//! parameters by these names and fills those that a graph has.

use super::{Builder, DType, StateKind, ValueId, ops::KV_BLOCK};

/// What all graphs of one context have in common.
#[derive(Clone, Debug, PartialEq)]
pub struct ContextShape {
    /// Sequences that may exist at a time.
    pub sequences: u32,
    /// Positions that a sequence may have.
    pub positions: u32,
    /// Blocks of 256 positions that hold them.
    pub blocks_per_sequence: u32,
    /// Types of cached keys and values.
    pub kv_types: [DType; 2],
    /// Rows per sequence of a state that a tap fills: position p is entry p modulo this number.
    pub staged_rows: u32,
    /// Rows that a sequence can be rolled back by after a run.
    pub rollback_depth: u32,
}

impl ContextShape {
    /// Blocks of all sequences together.
    pub fn blocks(&self) -> u32 {
        self.blocks_per_sequence.saturating_mul(self.sequences)
    }

    /// Planes of a state that keeps a snapshot for every row that can be rolled back.
    pub fn planes(&self) -> u32 {
        self.rollback_depth + 1
    }

    /// Entries of a state that a tap fills.
    pub fn staged_entries(&self) -> u32 {
        self.staged_rows.saturating_mul(self.sequences)
    }
}

/// Inputs of a group of rows.
#[derive(Clone, Debug)]
pub struct StepInputs {
    /// Token ids, i32\[R\].
    pub ids: ValueId,
    /// Positions, i32\[R\].
    pub positions: ValueId,
    /// Cells of the KV cache that the rows go to, i32\[R\].
    pub cells: ValueId,
    /// Sequences of the run, i32\[S,4\].
    pub sequences: ValueId,
    /// Block tables, i32\[slots, blocks\].
    pub table: ValueId,
    /// Where each sequence's recurrent state is, i32\[S,3\]: plane, bank of records, records to keep. Only where the
    /// context can be rolled back.
    pub rollback: Option<ValueId>,
    /// The context.
    pub context: ContextShape,
    row_count: Option<ValueId>,
    prefix: String,
    rows: u32,
}

/// Names of the parameters and states that the host fills; those of a group come after the group's prefix.
pub mod name {
    /// Live rows.
    pub const ROW_COUNT: &str = "row_count";
    /// Live sequences.
    pub const SEQUENCE_COUNT: &str = "sequence_count";
    /// Token ids.
    pub const IDS: &str = "ids";
    /// Positions.
    pub const POSITIONS: &str = "positions";
    /// Cells of the KV cache.
    pub const CELLS: &str = "cells";
    /// First row, rows, length before, slot of each sequence.
    pub const SEQUENCES: &str = "sequences";
    /// Plane, bank and kept records of each sequence.
    pub const ROLLBACK: &str = "rollback";
    /// Entry of each row in the states of taps.
    pub const STAGED: &str = "staged";
    /// Entry of the position before each row in the states of taps; -1 at position 0.
    pub const STAGED_PREVIOUS: &str = "staged_previous";
    /// Cells of the rows in the strategy's ring.
    pub const RING_CELLS: &str = "ring_cells";
    /// What the token of each row's position is drawn with.
    pub const NOISE: &str = "noise";
    /// What the token behind the last live row is drawn with.
    pub const NOISE_NEXT: &str = "noise_next";
    /// Index of the last live row.
    pub const LAST_ROW: &str = "last_row";
    /// Live block-table updates of the run.
    pub const UPDATE_COUNT: &str = "update_count";
    /// Block-table updates of the run.
    pub const UPDATES: &str = "block_updates";
    /// State: the block tables of the sequences.
    pub const BLOCKS: &str = "blocks";
    /// State: the block tables of the strategy's ring.
    pub const RING_BLOCKS: &str = "ring.blocks";
    /// Beginning of the names of states that taps fill.
    pub const TAP: &str = "tap.";
}

/// Hidden states that a strategy can have copied to a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Tap {
    /// The normed output of the last layer, which the head reads.
    Hidden,
    /// The residual stream before a layer; the number of layers means the stream after the last.
    LayerInput(u32),
}

impl Tap {
    /// True if a model of so many layers has this hidden state.
    pub fn fits(self, layers: u32) -> bool {
        match self {
            Self::Hidden => true,
            Self::LayerInput(layer) => layer <= layers,
        }
    }

    /// Name of the state that the tap fills.
    pub fn state_name(self) -> String {
        match self {
            Self::Hidden => format!("{}hidden", name::TAP),
            Self::LayerInput(layer) => format!("{}input.{layer}", name::TAP),
        }
    }

    /// The state that the tap fills: f32\[entries, hidden\].
    pub fn state(self, b: &mut Builder, context: &ContextShape, hidden: u32) -> ValueId {
        let dims = [context.staged_entries(), hidden];
        b.state(&self.state_name(), StateKind::Ring, DType::F32, &dims)
    }
}

/// Prefix of the parameters of a strategy's group.
pub fn group_prefix(group: usize) -> String {
    format!("g{group}.")
}

/// Block-table entries that one run may set: every sequence may enter a new block, and rows may fill more.
pub fn most_updates(rows: u32, sequences: u32) -> u32 {
    rows / KV_BLOCK + sequences.min(rows) + 1
}

/// Declares the block tables, and the node that brings them up to date for a run of at most `rows` rows.
pub fn declare_table(b: &mut Builder, context: &ContextShape, rows: u32) -> ValueId {
    let update_count = b.parameter(name::UPDATE_COUNT, DType::I32, &[1], None);
    let dims = [context.sequences, context.blocks_per_sequence];
    let table = b.state(name::BLOCKS, StateKind::Table, DType::I32, &dims);
    let updates = b.parameter(
        name::UPDATES,
        DType::I32,
        &[most_updates(rows, context.sequences), 3],
        Some(update_count),
    );
    b.table_update(table, updates);
    table
}

/// Declares the block tables of the strategy's ring, i32\[slots, blocks\], which the host fills once.
pub fn declare_ring_table(b: &mut Builder, context: &ContextShape) -> ValueId {
    let dims = [context.sequences, context.blocks_per_sequence];
    b.state(name::RING_BLOCKS, StateKind::Table, DType::I32, &dims)
}

impl StepInputs {
    /// Declares the inputs of a target's graph of at most `rows` rows, and the node that brings block tables up to
    /// date.
    pub fn declare(b: &mut Builder, context: &ContextShape, rows: u32) -> Self {
        let table = declare_table(b, context, rows);
        let sequences = context.sequences.min(rows);
        Self::with_prefix(b, context, table, String::new(), rows, sequences)
    }

    /// Declares group `group` of a strategy's graph: at most `rows` rows of one sequence. `table` is what
    /// [`declare_table`] gave.
    pub fn group(b: &mut Builder, context: &ContextShape, table: ValueId, group: usize, rows: u32) -> Self {
        // Only the target's recurrent layers are rolled back.
        let context = ContextShape { rollback_depth: 0, ..context.clone() };
        Self::with_prefix(b, &context, table, group_prefix(group), rows, 1)
    }

    /// Declares group `group` of a strategy's graph: exactly one row, whose token the graph makes itself.
    pub fn single(b: &mut Builder, context: &ContextShape, table: ValueId, group: usize) -> Self {
        let prefix = group_prefix(group);
        let mut declare =
            |name: &str, dims: &[u32]| b.parameter(&format!("{prefix}{name}"), DType::I32, dims, None);
        // Counts are there for the host, which finds groups and their sizes by them.
        declare(name::ROW_COUNT, &[1]);
        Self {
            ids: declare(name::IDS, &[1]),
            positions: declare(name::POSITIONS, &[1]),
            cells: declare(name::CELLS, &[1]),
            sequences: declare(name::SEQUENCES, &[1, 4]),
            rollback: None,
            table,
            context: context.clone(),
            row_count: None,
            prefix,
            rows: 1,
        }
    }

    fn with_prefix(
        b: &mut Builder,
        context: &ContextShape,
        table: ValueId,
        prefix: String,
        rows: u32,
        sequences: u32,
    ) -> Self {
        let mut declare = |name: &str, dims: &[u32], live: Option<ValueId>| {
            b.parameter(&format!("{prefix}{name}"), DType::I32, dims, live)
        };
        let row_count = declare(name::ROW_COUNT, &[1], None);
        let sequence_count = declare(name::SEQUENCE_COUNT, &[1], None);
        let rolled_back = context.rollback_depth > 0;
        Self {
            ids: declare(name::IDS, &[rows], Some(row_count)),
            positions: declare(name::POSITIONS, &[rows], Some(row_count)),
            cells: declare(name::CELLS, &[rows], Some(row_count)),
            sequences: declare(name::SEQUENCES, &[sequences, 4], Some(sequence_count)),
            rollback: rolled_back.then(|| declare(name::ROLLBACK, &[sequences, 3], Some(sequence_count))),
            table,
            context: context.clone(),
            row_count: Some(row_count),
            prefix,
            rows,
        }
    }

    /// Inputs that are values of a graph already: what a fragment gets.
    pub fn of_fragment(
        context: &ContextShape,
        rows: u32,
        [positions, cells, sequences, table]: [ValueId; 4],
    ) -> Self {
        Self {
            // A fragment gets embedded tokens, never ids.
            ids: positions,
            positions,
            cells,
            sequences,
            table,
            rollback: None,
            context: context.clone(),
            row_count: None,
            prefix: String::new(),
            rows,
        }
    }

    /// Most rows of a run.
    pub fn rows(&self) -> u32 {
        self.rows
    }

    /// What a fragment of a layer takes besides its rows.
    pub fn fragment_inputs(&self) -> [ValueId; 4] {
        [self.positions, self.cells, self.sequences, self.table]
    }

    fn indices(&self, b: &mut Builder, name: &str) -> ValueId {
        b.parameter(&format!("{}{name}", self.prefix), DType::I32, &[self.rows], self.row_count)
    }

    /// Entries of the rows in the states of taps, i32\[R\].
    pub fn staged(&self, b: &mut Builder) -> ValueId {
        self.indices(b, name::STAGED)
    }

    /// Entries of the positions before the rows in the states of taps, i32\[R\]; -1 at position 0.
    pub fn staged_previous(&self, b: &mut Builder) -> ValueId {
        self.indices(b, name::STAGED_PREVIOUS)
    }

    /// Cells of the rows in the strategy's ring, i32\[R\].
    pub fn ring_cells(&self, b: &mut Builder) -> ValueId {
        self.indices(b, name::RING_CELLS)
    }

    /// What the target draws the token of each row's position with, i32\[R,4\]: the input `noise` of `draw/1`.
    pub fn noise(&self, b: &mut Builder) -> ValueId {
        b.parameter(&format!("{}{}", self.prefix, name::NOISE), DType::I32, &[self.rows, 4], self.row_count)
    }

    /// As [`StepInputs::noise`], for the token behind the last live row, i32\[1,4\].
    pub fn noise_next(&self, b: &mut Builder) -> ValueId {
        b.parameter(&format!("{}{}", self.prefix, name::NOISE_NEXT), DType::I32, &[1, 4], None)
    }

    /// Index of the last live row, i32\[1\].
    pub fn last_row(&self, b: &mut Builder) -> ValueId {
        b.parameter(&format!("{}{}", self.prefix, name::LAST_ROW), DType::I32, &[1], None)
    }

    /// The KV cache of a layer: keys and values, each `[blocks, 256, heads, width]`.
    pub fn kv_cache(&self, b: &mut Builder, layer: u32, heads: u32, width: u32) -> [ValueId; 2] {
        let blocks = self.context.blocks();
        let [k, v] = self.context.kv_types;
        let mut cache = |part: &str, dtype: DType| {
            let name = format!("blk.{layer}.cache_{part}");
            b.state(&name, StateKind::PerPosition, dtype, &[blocks, KV_BLOCK, heads, width])
        };
        [cache("k", k), cache("v", v)]
    }

    /// A state with `entries` entries per sequence slot, f32.
    pub fn slot_state(&self, b: &mut Builder, layer: u32, part: &str, entries: u32, dims: &[u32]) -> ValueId {
        let name = format!("blk.{layer}.{part}");
        let dims = [&[self.context.sequences.saturating_mul(entries)], dims].concat();
        b.state(&name, StateKind::PerSlot, DType::F32, &dims)
    }
}
