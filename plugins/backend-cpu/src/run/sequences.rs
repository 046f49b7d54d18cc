//! Sequences of a run, and attention over them.

use super::Run;
use crate::kernels::attention::{Attention, attention};
use crate::program::{AttentionWork, Id, Live};

/// Rows of one sequence that a chunk of attention covers.
const ATTENTION_ROWS: usize = 8;

/// One entry of a sequences parameter.
#[derive(Clone, Copy)]
pub(super) struct Sequence {
    pub first: usize,
    pub rows: usize,
    pub length: usize,
    pub slot: usize,
}

/// One entry of a rollback parameter.
#[derive(Clone, Copy)]
pub(super) struct Rollback {
    pub plane: usize,
    pub bank: usize,
    pub keep: usize,
}

impl Run<'_> {
    pub(super) fn sequences(&self, id: Id, live: Live) -> impl Iterator<Item = Sequence> + '_ {
        // Checked at launch: no number is negative.
        self.read::<i32>(id, self.live(live) * 4).chunks_exact(4).map(|s| Sequence {
            first: s[0] as usize,
            rows: s[1] as usize,
            length: s[2] as usize,
            slot: s[3] as usize,
        })
    }

    /// Entry `index` of a rollback parameter.
    pub(super) fn rollback(&self, id: Id, index: usize) -> Rollback {
        let entry = &self.read::<i32>(id, (index + 1) * 3)[index * 3..];
        // Checked at launch where a kernel uses it.
        let [plane, bank, keep] = [0, 1, 2].map(|i| entry[i] as usize);
        Rollback { plane, bank, keep }
    }

    pub(super) fn attention_chunks(&self, work: &AttentionWork) -> usize {
        let tiles: usize = self
            .sequences(work.sequences, work.sequences_live)
            .map(|s| s.rows.div_ceil(ATTENTION_ROWS))
            .sum();
        tiles * work.caches[0].heads
    }

    /// Computes which positions each row sees.
    pub(super) fn visible(&self, work: &AttentionWork) {
        let max = work.rows.max;
        // SAFETY: this kernel is one chunk, and no other kernel of the phase touches the value.
        let (begins, ends) =
            unsafe { self.write::<i32>(work.visible, 2 * max).part(0..2 * max) }.split_at_mut(max);
        for sequence in self.sequences(work.sequences, work.sequences_live) {
            for row in 0..sequence.rows {
                let position = sequence.length + row;
                let end = if work.causal { position + 1 } else { sequence.length + sequence.rows };
                let begin = match work.window {
                    0 => 0,
                    window => (position + 1).saturating_sub(window),
                };
                begins[sequence.first + row] = begin as i32;
                ends[sequence.first + row] = end as i32;
            }
        }
    }

    pub(super) fn attention(&self, work: &AttentionWork, chunk: usize, thread: usize) {
        let kv_heads = work.caches[0].heads;
        let (mut tile, kv_head) = (chunk / kv_heads, chunk % kv_heads);
        for sequence in self.sequences(work.sequences, work.sequences_live) {
            let tiles = sequence.rows.div_ceil(ATTENTION_ROWS);
            if tile >= tiles {
                tile -= tiles;
                continue;
            }
            let rows = tile * ATTENTION_ROWS..((tile + 1) * ATTENTION_ROWS).min(sequence.rows);
            let (first, end) = (sequence.first, sequence.first + sequence.rows);
            let row_width = work.heads * work.caches[0].width;
            let visible = self.read::<i32>(work.visible, 2 * work.rows.max);
            let (begins, ends) = visible.split_at(work.rows.max);
            let [table_rows, table_columns] = work.table_shape;
            let table = self.read::<i32>(work.table, table_rows * table_columns);
            let task = Attention {
                query: &self.read::<f32>(work.q, end * row_width)[first * row_width..],
                query_heads: work.heads,
                keys: self.plane(work.caches[0]),
                values: self.plane(work.caches[1]),
                blocks: &table[sequence.slot * table_columns..(sequence.slot + 1) * table_columns],
                begin: &begins[first..end],
                end: &ends[first..end],
                scale: work.scale,
                cap: work.cap,
                sinks: work.sinks.map(|id| self.read(id, work.heads)),
            };
            let out = self.write::<f32>(work.out, end * row_width);
            // SAFETY: the part of this sequence; its rows and heads of this chunk are this chunk's alone.
            unsafe {
                let out = crate::kernels::SharedSlice::from_raw(
                    out.pointer(first * row_width),
                    sequence.rows * row_width,
                );
                attention(self.bound.level, &task, out, kv_head, rows, self.scratch(thread));
            }
            return;
        }
    }
}
