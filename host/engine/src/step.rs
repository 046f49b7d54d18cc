//! The inputs of one step: the values that a family builds its graph on, and the layout of the parameter block.

use paceline_plugin_api::graph::{Builder, DType, Graph, StateKind, ValueId, ValueKind};

/// Positions per block of a KV cache.
pub use paceline_plugin_api::graph::ops::KV_BLOCK;

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
}

impl ContextShape {
    /// Blocks of all sequences together.
    pub fn blocks(&self) -> u32 {
        self.blocks_per_sequence.saturating_mul(self.sequences)
    }
}

/// Inputs of a step, as values of the graph that is being built.
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
    /// Rows whose outputs are wanted, i32\[M\].
    pub output_rows: ValueId,
    /// Block tables, i32\[slots, blocks\].
    pub table: ValueId,
    /// The context.
    pub context: ContextShape,
    rows: u32,
}

/// Names of the parameters.
mod name {
    pub const ROW_COUNT: &str = "row_count";
    pub const SEQUENCE_COUNT: &str = "sequence_count";
    pub const OUTPUT_COUNT: &str = "output_count";
    pub const UPDATE_COUNT: &str = "update_count";
    pub const IDS: &str = "ids";
    pub const POSITIONS: &str = "positions";
    pub const CELLS: &str = "cells";
    pub const SEQUENCES: &str = "sequences";
    pub const OUTPUT_ROWS: &str = "output_rows";
    pub const UPDATES: &str = "block_updates";
}

/// Block-table entries that one run may set: every sequence may enter a new block, and rows may fill more.
pub(crate) fn most_updates(rows: u32, sequences: u32) -> u32 {
    rows / KV_BLOCK + sequences.min(rows) + 1
}

impl StepInputs {
    /// Declares the inputs of a graph of at most `rows` rows and `outputs` outputs, and the node that brings block
    /// tables up to date.
    pub fn declare(b: &mut Builder, context: &ContextShape, rows: u32, outputs: u32) -> Self {
        let count = |b: &mut Builder, name: &str| b.parameter(name, DType::I32, &[1], None);
        let row_count = count(b, name::ROW_COUNT);
        let sequence_count = count(b, name::SEQUENCE_COUNT);
        let output_count = count(b, name::OUTPUT_COUNT);
        let update_count = count(b, name::UPDATE_COUNT);
        let sequences = context.sequences.min(rows);
        let table = b.state(
            "blocks",
            StateKind::Table,
            DType::I32,
            &[context.sequences, context.blocks_per_sequence],
        );
        let updates = b.parameter(
            name::UPDATES,
            DType::I32,
            &[most_updates(rows, context.sequences), 3],
            Some(update_count),
        );
        b.table_update(table, updates);
        Self {
            ids: b.parameter(name::IDS, DType::I32, &[rows], Some(row_count)),
            positions: b.parameter(name::POSITIONS, DType::I32, &[rows], Some(row_count)),
            cells: b.parameter(name::CELLS, DType::I32, &[rows], Some(row_count)),
            sequences: b.parameter(name::SEQUENCES, DType::I32, &[sequences, 4], Some(sequence_count)),
            output_rows: b.parameter(name::OUTPUT_ROWS, DType::I32, &[outputs], Some(output_count)),
            table,
            context: context.clone(),
            rows,
        }
    }

    /// Most rows of a run.
    pub fn rows(&self) -> u32 {
        self.rows
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

    /// A state with one entry per sequence slot, f32.
    pub fn slot_state(&self, b: &mut Builder, layer: u32, part: &str, dims: &[u32]) -> ValueId {
        let name = format!("blk.{layer}.{part}");
        let dims = [&[self.context.sequences], dims].concat();
        b.state(&name, StateKind::PerSlot, DType::F32, &dims)
    }
}

/// Byte offsets of the parameters in a graph's block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ParameterOffsets {
    pub row_count: usize,
    pub sequence_count: usize,
    pub output_count: usize,
    pub update_count: usize,
    pub ids: usize,
    pub positions: usize,
    pub cells: usize,
    pub sequences: usize,
    pub output_rows: usize,
    pub updates: usize,
}

impl ParameterOffsets {
    /// Finds the parameters of a graph that was built on [`StepInputs`].
    pub fn of(graph: &Graph) -> Option<Self> {
        let offset = |name: &str| match graph.value(graph.parameter(name)?).kind {
            ValueKind::Parameter { offset } => Some(offset as usize),
            _ => None,
        };
        Some(Self {
            row_count: offset(name::ROW_COUNT)?,
            sequence_count: offset(name::SEQUENCE_COUNT)?,
            output_count: offset(name::OUTPUT_COUNT)?,
            update_count: offset(name::UPDATE_COUNT)?,
            ids: offset(name::IDS)?,
            positions: offset(name::POSITIONS)?,
            cells: offset(name::CELLS)?,
            sequences: offset(name::SEQUENCES)?,
            output_rows: offset(name::OUTPUT_ROWS)?,
            updates: offset(name::UPDATES)?,
        })
    }
}
