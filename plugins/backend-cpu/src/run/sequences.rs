//! Sequences of a run, and attention over them.

use super::Run;
use crate::kernels::SharedSlice;
use crate::kernels::attention::spans::span_of;
use crate::kernels::attention::{
    Attention, MOST_SHARED_ROWS, attention, attention_span, combine_spans, part_floats,
};
use crate::kernels::kv::BLOCK;
use crate::program::{AttentionWork, Id, Live};

/// Rows of one sequence that a chunk of attention covers.
const ATTENTION_ROWS: usize = 8;
/// Spans of the longest sequence below which threads do not share the spans of a row.
const LEAST_SHARED_SPANS: usize = 4;

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
        let heads = work.caches[0].heads;
        if self.shares_spans(work) {
            return self.sequences(work.sequences, work.sequences_live).map(|s| s.spans() * heads).sum();
        }
        let tiles: usize = self
            .sequences(work.sequences, work.sequences_live)
            .map(|s| s.rows.div_ceil(ATTENTION_ROWS))
            .sum();
        tiles * heads
    }

    pub(super) fn combine_chunks(&self, work: &AttentionWork) -> usize {
        if !self.shares_spans(work) {
            return 0;
        }
        self.sequences(work.sequences, work.sequences_live).count() * work.caches[0].heads
    }

    /// Whether threads share the spans of rows: where there are few rows, long contexts and more threads than heads.
    /// The bits are the same.
    fn shares_spans(&self, work: &AttentionWork) -> bool {
        let sequences = || self.sequences(work.sequences, work.sequences_live);
        let threads = self.bound.threads;
        threads > 1
            && self.live(work.rows) <= MOST_SHARED_ROWS
            && sequences().count() * work.caches[0].heads < 2 * threads
            && sequences().any(|sequence| sequence.spans() >= LEAST_SHARED_SPANS)
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
        let heads = work.caches[0].heads;
        let (mut part, kv_head) = (chunk / heads, chunk % heads);
        let shares_spans = self.shares_spans(work);
        for sequence in self.sequences(work.sequences, work.sequences_live) {
            let count = if shares_spans { sequence.spans() } else { sequence.rows.div_ceil(ATTENTION_ROWS) };
            if part >= count {
                part -= count;
                continue;
            }
            let (task, level) = (self.attention_task(work, sequence), self.bound.level);
            // SAFETY: the part of this sequence; what the chunk writes of it is the chunk's alone.
            unsafe {
                if shares_spans {
                    // The last span is the largest, so it comes first.
                    let span = count - 1 - part;
                    let parts = self.attention_parts(work, sequence);
                    attention_span(level, &task, parts, kv_head, span, self.scratch(thread));
                } else {
                    let rows = part * ATTENTION_ROWS..((part + 1) * ATTENTION_ROWS).min(sequence.rows);
                    let out = self.attention_out(work, sequence);
                    attention(level, &task, out, kv_head, rows, self.scratch(thread));
                }
            }
            return;
        }
    }

    /// Combines the spans of one sequence and KV head.
    pub(super) fn combine(&self, work: &AttentionWork, chunk: usize, thread: usize) {
        let heads = work.caches[0].heads;
        let (index, kv_head) = (chunk / heads, chunk % heads);
        let Some(sequence) = self.sequences(work.sequences, work.sequences_live).nth(index) else { return };
        let task = self.attention_task(work, sequence);
        // SAFETY: the parts of this sequence, which nobody writes in this phase, and its rows and heads of the output,
        // which are this chunk's alone.
        unsafe {
            let parts = self.attention_parts(work, sequence);
            let (parts, out) = (parts.read(0..parts.len()), self.attention_out(work, sequence));
            combine_spans(self.bound.level, &task, parts, out, kv_head, self.scratch(thread));
        }
    }

    fn attention_task(&self, work: &AttentionWork, sequence: Sequence) -> Attention<'_> {
        let (first, end) = (sequence.first, sequence.first + sequence.rows);
        let row_width = work.heads * work.caches[0].width;
        let (begins, ends) = self.read::<i32>(work.visible, 2 * work.rows.max).split_at(work.rows.max);
        let [table_rows, table_columns] = work.table_shape;
        let table = self.read::<i32>(work.table, table_rows * table_columns);
        Attention {
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
        }
    }

    /// The output's rows of a sequence.
    fn attention_out(&self, work: &AttentionWork, sequence: Sequence) -> SharedSlice<'_, f32> {
        let row_width = work.heads * work.caches[0].width;
        let out = self.write::<f32>(work.out, (sequence.first + sequence.rows) * row_width);
        // SAFETY: inside of the output; its users take the parts of their chunks.
        unsafe { SharedSlice::from_raw(out.pointer(sequence.first * row_width), sequence.rows * row_width) }
    }

    /// The parts of a sequence's rows, for all spans that there can be.
    fn attention_parts(&self, work: &AttentionWork, sequence: Sequence) -> SharedSlice<'_, f32> {
        let row = work.most_spans() * work.heads * part_floats(work.caches[0].width);
        let parts = self.write::<f32>(work.parts, (sequence.first + sequence.rows) * row);
        // SAFETY: as above.
        unsafe { SharedSlice::from_raw(parts.pointer(sequence.first * row), sequence.rows * row) }
    }
}

impl Sequence {
    /// Spans with a position that some row may see.
    fn spans(&self) -> usize {
        (self.length + self.rows).checked_sub(1).map_or(0, |last| span_of(last / BLOCK) + 1)
    }
}
