//! Kernels that know sequences: attention, convolution, the delta rule.

use super::Run;
use crate::kernels::attention::{Attention, attention};
use crate::kernels::conv::{CausalConv, causal_conv};
use crate::kernels::gdn::{GatedDeltaNet, GatedDeltaNetOut, gated_delta_net};
use crate::program::{AttentionWork, ConvWork, DeltaWork, Id, Live};
use std::ops::Range;

/// Rows of one sequence that a chunk of attention covers.
const ATTENTION_ROWS: usize = 8;
/// Channels that a chunk of convolution covers.
const CONV_CHANNELS: usize = 256;
/// Columns of a state that a chunk of the delta rule covers: whole heads, since two threads that write pieces of the
/// same rows get in each other's way.
const DELTA_COLUMNS: usize = 128;

/// One entry of a sequences parameter.
#[derive(Clone, Copy)]
struct Sequence {
    first: usize,
    rows: usize,
    length: usize,
    slot: usize,
}

impl Run<'_> {
    fn sequences(&self, id: Id, live: Live) -> impl Iterator<Item = Sequence> + '_ {
        // Checked at launch: no number is negative.
        self.read::<i32>(id, self.live(live) * 4).chunks_exact(4).map(|s| Sequence {
            first: s[0] as usize,
            rows: s[1] as usize,
            length: s[2] as usize,
            slot: s[3] as usize,
        })
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

    pub(super) fn conv_chunks(&self, work: &ConvWork) -> usize {
        self.sequences(work.sequences, work.sequences_live).count() * work.channels.div_ceil(CONV_CHANNELS)
    }

    pub(super) fn conv(&self, work: &ConvWork, chunk: usize) {
        let per_sequence = work.channels.div_ceil(CONV_CHANNELS);
        let Some(sequence) = self.sequences(work.sequences, work.sequences_live).nth(chunk / per_sequence)
        else {
            return;
        };
        let channels = part(chunk % per_sequence, CONV_CHANNELS, work.channels);
        let (first, end) = (sequence.first, sequence.first + sequence.rows);
        let state_width = (work.taps - 1) * work.channels;
        let state = self.write::<f32>(work.state, work.slots * state_width);
        let out = self.write::<f32>(work.out, end * work.channels);
        let task = CausalConv {
            x: &self.read::<f32>(work.x, end * work.channels)[first * work.channels..],
            weight: self.read(work.weight, work.channels * work.taps),
            channels: work.channels,
            taps: work.taps,
            silu: work.silu,
        };
        // SAFETY: the window of this sequence's slot and its rows; their channels are this chunk's alone.
        unsafe {
            let start = sequence.slot * state_width;
            if sequence.length == 0 {
                for tap in 0..work.taps - 1 {
                    let row = start + tap * work.channels;
                    state.part(row + channels.start..row + channels.end).fill(0.0);
                }
            }
            let window = crate::kernels::SharedSlice::from_raw(state.pointer(start), state_width);
            let rows = sequence.rows * work.channels;
            let out = crate::kernels::SharedSlice::from_raw(out.pointer(first * work.channels), rows);
            causal_conv(self.bound.level, &task, window, out, channels);
        }
    }

    pub(super) fn delta_chunks(&self, work: &DeltaWork) -> usize {
        let per_sequence = work.value_heads * work.value_width.div_ceil(DELTA_COLUMNS);
        self.sequences(work.sequences, work.sequences_live).count() * per_sequence
    }

    pub(super) fn delta(&self, work: &DeltaWork, chunk: usize) {
        let parts = work.value_width.div_ceil(DELTA_COLUMNS);
        let per_sequence = work.value_heads * parts;
        let Some(sequence) = self.sequences(work.sequences, work.sequences_live).nth(chunk / per_sequence)
        else {
            return;
        };
        let (head, columns) =
            (chunk % per_sequence / parts, part(chunk % parts, DELTA_COLUMNS, work.value_width));
        let (first, end) = (sequence.first, sequence.first + sequence.rows);
        let rows_of = |id: Id, width: usize| &self.read::<f32>(id, end * width)[first * width..];
        let (key_row, value_row) = (work.key_heads * work.key_width, work.value_heads * work.value_width);
        let [q, k, v, g, beta] = work.inputs;
        let task = GatedDeltaNet {
            query: rows_of(q, key_row),
            key: rows_of(k, key_row),
            value: rows_of(v, value_row),
            log_decay: rows_of(g, work.value_heads),
            beta: rows_of(beta, work.value_heads),
            key_heads: work.key_heads,
            value_heads: work.value_heads,
            key_width: work.key_width,
            value_width: work.value_width,
            scale: work.scale,
        };
        let head_state = work.key_width * work.value_width;
        let slot_state = work.value_heads * head_state;
        let state = self.write::<f32>(work.state, work.slots * slot_state);
        let out = self.write::<f32>(work.out, end * value_row);
        // SAFETY: the state of this sequence's slot and its rows; this head's columns are this chunk's alone.
        unsafe {
            let start = sequence.slot * slot_state;
            if sequence.length == 0 {
                for i in 0..work.key_width {
                    let row = start + head * head_state + i * work.value_width;
                    state.part(row + columns.start..row + columns.end).fill(0.0);
                }
            }
            let to = GatedDeltaNetOut {
                state: crate::kernels::SharedSlice::from_raw(state.pointer(start), slot_state),
                out: crate::kernels::SharedSlice::from_raw(
                    out.pointer(first * value_row),
                    sequence.rows * value_row,
                ),
                deltas: None,
            };
            gated_delta_net(self.bound.level, &task, &to, head, columns);
        }
    }
}

/// Part `index` of `total`, in parts of `size`.
fn part(index: usize, size: usize, total: usize) -> Range<usize> {
    index * size..((index + 1) * size).min(total)
}
