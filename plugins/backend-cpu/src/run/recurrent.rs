//! Kernels with a state per sequence: convolution, the delta rule, its replay.

use super::Run;
use super::sequences::Sequence;
use crate::kernels::SharedSlice;
use crate::kernels::conv::{CausalConv, ConvWindows, causal_conv};
use crate::kernels::gdn::{
    GatedDeltaNet, GatedDeltaNetOut, KeptDeltas, Replay, StatePath, gated_delta_net, replay,
};
use crate::program::{ConvWork, DeltaMode, DeltaWork, Id, Records, ReplayWork};
use std::ops::Range;

/// Channels that a chunk of convolution covers.
const CONV_CHANNELS: usize = 256;
/// Columns of a state that a chunk of the delta rule covers: whole heads, since two threads that write pieces of the
/// same rows get in each other's way.
const DELTA_COLUMNS: usize = 128;

/// The part of a sequence that a chunk computes.
struct Chunk {
    sequence: Sequence,
    head: usize,
    columns: Range<usize>,
}

/// Part `index` of `total`, in parts of `size`.
fn part(index: usize, size: usize, total: usize) -> Range<usize> {
    index * size..((index + 1) * size).min(total)
}

/// Parts of `length` elements from `start` on.
///
/// # Safety
/// As for [`SharedSlice::from_raw`].
unsafe fn within<'a>(slice: &SharedSlice<'a, f32>, start: usize, length: usize) -> SharedSlice<'a, f32> {
    assert!(start + length <= slice.len());
    // SAFETY: inside of the slice; the rest is the caller's promise.
    unsafe { SharedSlice::from_raw(slice.pointer(start), length) }
}

impl Run<'_> {
    pub(super) fn conv_chunks(&self, work: &ConvWork) -> usize {
        self.sequences(work.sequences, work.sequences_live).count() * work.channels.div_ceil(CONV_CHANNELS)
    }

    pub(super) fn conv(&self, work: &ConvWork, chunk: usize) {
        let per_sequence = work.channels.div_ceil(CONV_CHANNELS);
        let index = chunk / per_sequence;
        let Some(sequence) = self.sequences(work.sequences, work.sequences_live).nth(index) else { return };
        let channels = part(chunk % per_sequence, CONV_CHANNELS, work.channels);
        let (first, end) = (sequence.first, sequence.first + sequence.rows);
        let slot_width = work.planes * (work.taps - 1) * work.channels;
        let state = self.write::<f32>(work.state, work.slots * slot_width);
        let out = self.write::<f32>(work.out, end * work.channels);
        let task = CausalConv {
            x: &self.read::<f32>(work.x, end * work.channels)[first * work.channels..],
            weight: self.read(work.weight, work.channels * work.taps),
            channels: work.channels,
            taps: work.taps,
            silu: work.silu,
        };
        // SAFETY: the windows of this sequence's slot and its rows; their channels are this chunk's alone.
        unsafe {
            let windows = ConvWindows {
                planes: within(&state, sequence.slot * slot_width, slot_width),
                count: work.planes,
                before: work.rollback.map_or(0, |id| self.rollback(id, index).plane),
                fresh: sequence.length == 0,
            };
            let out = within(&out, first * work.channels, sequence.rows * work.channels);
            causal_conv(self.bound.level, &task, &windows, out, channels);
        }
    }

    pub(super) fn delta_chunks(&self, work: &DeltaWork) -> usize {
        self.sequences(work.sequences, work.sequences_live).count() * self.delta_chunks_of_sequence(work)
    }

    pub(super) fn delta_chunks_of_sequence(&self, work: &DeltaWork) -> usize {
        work.value_heads * work.value_width.div_ceil(DELTA_COLUMNS)
    }

    pub(super) fn delta(&self, work: &DeltaWork, chunk: usize, thread: usize) {
        let parts = work.value_width.div_ceil(DELTA_COLUMNS);
        let per_sequence = work.value_heads * parts;
        let index = chunk / per_sequence;
        let Some(sequence) = self.sequences(work.sequences, work.sequences_live).nth(index) else { return };
        let kept = work.replay.as_ref().map(|replay| self.kept_records(replay, sequence, index));
        if sequence.rows == 0 && kept.is_none_or(|kept| kept.records.is_empty()) {
            return;
        }
        let columns = part(chunk % parts, DELTA_COLUMNS, work.value_width);
        let chunk = Chunk { sequence, head: chunk % per_sequence / parts, columns };
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
        let out = self.write::<f32>(work.out, end * value_row);
        // SAFETY: the states and records of this sequence's slot and its rows; this head's columns are this chunk's
        // alone, and the scratch is this thread's.
        unsafe {
            let (state, deltas) = match work.mode {
                DeltaMode::Plain => (self.planes(work, &chunk, 1, 0), None),
                DeltaMode::Snapshots { planes, rollback } => {
                    let plane = self.rollback(rollback, index).plane;
                    (self.planes(work, &chunk, planes, plane), None)
                }
                DeltaMode::Records { records, rollback } => {
                    let bank = 1 - self.rollback(rollback, index).bank;
                    let deltas = self.record(work, &task, &chunk, records, bank);
                    (self.base(work, &chunk, records.count), Some(deltas))
                }
            };
            let out = within(&out, first * value_row, sequence.rows * value_row);
            let scratch = SharedSlice::new(self.scratch(thread));
            let to = GatedDeltaNetOut { state, replayed: kept, out, deltas, scratch };
            gated_delta_net(self.bound.level, &task, &to, chunk.head, chunk.columns);
        }
    }

    /// States of a head in planes: each row leaves its own in the next one.
    ///
    /// # Safety
    /// The columns of the chunk are the caller's alone.
    unsafe fn planes(&self, work: &DeltaWork, chunk: &Chunk, planes: usize, plane: usize) -> StatePath<'_> {
        let head_state = work.key_width * work.value_width;
        let slot_state = work.value_heads * head_state;
        let state = self.write::<f32>(work.state, work.slots * planes * slot_state);
        let first = chunk.sequence.slot * planes * slot_state + chunk.head * head_state;
        // SAFETY: inside of the state; the caller's promise is passed on.
        let [before, kept] = unsafe {
            let before = within(&state, first + plane * slot_state, head_state);
            [before, within(&state, first, (planes - 1) * slot_state + head_state)]
        };
        StatePath {
            before: (chunk.sequence.length > 0).then_some(before),
            kept,
            stride: slot_state,
            count: planes,
            first: plane + 1,
            dropped: 0,
        }
    }

    /// The base of a head, which has those rows only that cannot be taken back.
    ///
    /// # Safety
    /// The columns of the chunk are the caller's alone.
    unsafe fn base(&self, work: &DeltaWork, chunk: &Chunk, records: usize) -> StatePath<'_> {
        let head_state = work.key_width * work.value_width;
        let state = self.write::<f32>(work.state, work.slots * work.value_heads * head_state);
        let first = (chunk.sequence.slot * work.value_heads + chunk.head) * head_state;
        // SAFETY: inside of the state; the caller's promise is passed on.
        let base = unsafe { within(&state, first, head_state) };
        let is_fresh = chunk.sequence.length == 0;
        if is_fresh && chunk.sequence.rows <= records {
            for i in 0..work.key_width {
                let row = i * work.value_width;
                // SAFETY: the columns are the caller's.
                unsafe { base.part(row + chunk.columns.start..row + chunk.columns.end) }.fill(0.0);
            }
        }
        let path = StatePath { dropped: records, ..StatePath::in_place(base) };
        if is_fresh { StatePath { before: None, ..path } } else { path }
    }

    /// Writes the keys and decays of the chunk into the records of its rows, and says where its deltas go.
    ///
    /// # Safety
    /// The chunk's part of the records is the caller's alone.
    unsafe fn record(
        &self,
        work: &DeltaWork,
        task: &GatedDeltaNet<'_>,
        chunk: &Chunk,
        records: Records,
        bank: usize,
    ) -> KeptDeltas<'_> {
        let state = self.write::<f32>(records.state, work.slots * 2 * records.count * records.width);
        let bank_width = records.count * records.width;
        // SAFETY: inside of the records; the caller's promise is passed on.
        let to = unsafe { within(&state, (chunk.sequence.slot * 2 + bank) * bank_width, bank_width) };
        let first = chunk.sequence.rows.saturating_sub(records.count);
        let keys_at = work.value_heads * work.value_width;
        let decays_at = keys_at + work.key_heads * work.key_width;
        let head = chunk.head;
        // One chunk of each head: the key heads are the first of the value heads.
        if chunk.columns.start == 0 {
            for (place, row) in (first..chunk.sequence.rows).enumerate() {
                let record = place * records.width;
                let decay_at = record + decays_at + head;
                // SAFETY: this place is the head's alone, and so are those below.
                unsafe { to.part(decay_at..decay_at + 1)[0] = task.log_decay[row * work.value_heads + head] };
                if head < work.key_heads {
                    let key_at = (row * work.key_heads + head) * work.key_width;
                    let to_at = record + keys_at + head * work.key_width;
                    // SAFETY: as above.
                    unsafe { to.part(to_at..to_at + work.key_width) }
                        .copy_from_slice(&task.key[key_at..key_at + work.key_width]);
                }
            }
        }
        KeptDeltas { to, stride: records.width, first }
    }

    /// The records of a sequence that were kept.
    fn kept_records(&self, work: &ReplayWork, sequence: Sequence, index: usize) -> Replay<'_> {
        let rollback = self.rollback(work.rollback, index);
        let bank_width = work.records.count * work.records.width;
        let records = self.write::<f32>(work.records.state, work.slots * 2 * bank_width);
        let kept = (sequence.slot * 2 + rollback.bank) * bank_width;
        Replay {
            // SAFETY: new records go to the other bank of the slot.
            records: unsafe { records.read(kept..kept + rollback.keep * work.records.width) },
            key_heads: work.key_heads,
            value_heads: work.value_heads,
            key_width: work.key_width,
            value_width: work.value_width,
        }
    }

    pub(super) fn replay_chunks(&self, work: &ReplayWork) -> usize {
        let per_sequence = work.value_heads * work.value_width.div_ceil(DELTA_COLUMNS);
        self.sequences(work.sequences, work.sequences_live).count() * per_sequence
    }

    pub(super) fn replay(&self, work: &ReplayWork, chunk: usize) {
        let parts = work.value_width.div_ceil(DELTA_COLUMNS);
        let per_sequence = work.value_heads * parts;
        let index = chunk / per_sequence;
        let Some(sequence) = self.sequences(work.sequences, work.sequences_live).nth(index) else { return };
        let (head, columns) =
            (chunk % per_sequence / parts, part(chunk % parts, DELTA_COLUMNS, work.value_width));
        let task = self.kept_records(work, sequence, index);
        let head_state = work.key_width * work.value_width;
        let state = self.write::<f32>(work.state, work.slots * work.value_heads * head_state);
        // SAFETY: the head of this sequence's slot, whose columns are this chunk's alone.
        unsafe {
            let first = (sequence.slot * work.value_heads + head) * head_state;
            replay(self.bound.level, &task, within(&state, first, head_state), head, columns);
        }
    }
}
