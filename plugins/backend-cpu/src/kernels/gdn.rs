//! The gated delta rule, row after row.

mod replay;

pub use replay::{Replay, replay};

use super::SharedSlice;
use super::math::exp;
use crate::linear::lanes::{prefetch, prefetch_second_level};
use core::ops::Range;
use replay::{AT_ONCE, Recorded, replay_columns};

/// Inputs of [`gated_delta_net`], for the new rows of one sequence.
#[derive(Clone, Copy)]
pub struct GatedDeltaNet<'a> {
    /// Queries `[rows][key_heads][key_width]`.
    pub query: &'a [f32],
    /// Keys `[rows][key_heads][key_width]`.
    pub key: &'a [f32],
    /// Values `[rows][value_heads][value_width]`.
    pub value: &'a [f32],
    /// Logarithm of the decay `[rows][value_heads]`, at most 0.
    pub log_decay: &'a [f32],
    /// Strength of the update `[rows][value_heads]`.
    pub beta: &'a [f32],
    /// Number of key heads; value head h uses key head h mod `key_heads`.
    pub key_heads: usize,
    /// Number of value heads.
    pub value_heads: usize,
    /// Length of a query or key.
    pub key_width: usize,
    /// Length of a value.
    pub value_width: usize,
    /// Factor of the output.
    pub scale: f32,
}

/// Columns of a state that go through all rows together: with 128 keys they fill two thirds of a first-level cache.
const COLUMNS: usize = 64;

/// Columns of a state that a lone row goes through together: as many sums fit the registers.
const LONE_COLUMNS: usize = 128;

/// Elements of scratch that [`gated_delta_net`] needs.
pub const fn scratch_floats(key_width: usize) -> usize {
    key_width * COLUMNS
}

/// Where the state S `[key_width][value_width]` of a head stands before the first row, and those after rows that stay.
#[derive(Clone, Copy)]
pub struct StatePath<'a> {
    /// Before the first row; none is zeros.
    pub before: Option<SharedSlice<'a, f32>>,
    /// States that stay, `stride` elements from one to the next. One of them may be the state before the first row.
    pub kept: SharedSlice<'a, f32>,
    /// Elements from one of these states to the next.
    pub stride: usize,
    /// How many there are: that of row r is number `(first + r) % count`, and the last `count` rows leave theirs.
    pub count: usize,
    /// Number of the state that the first row would leave.
    pub first: usize,
    /// Rows at the end that leave no state and do not count as the last, since their records say what they did.
    pub dropped: usize,
}

impl<'a> StatePath<'a> {
    /// One state for all rows, read and written.
    pub fn in_place(state: SharedSlice<'a, f32>) -> Self {
        Self { before: Some(state), kept: state, stride: 0, count: 1, first: 0, dropped: 0 }
    }

    /// The first element of column `start` of the state that `row` of `rows` leaves, if it does; a state has `size`.
    fn after(&self, row: usize, rows: usize, start: usize, size: usize) -> Option<*mut f32> {
        let leaving = rows.saturating_sub(self.dropped);
        if row >= leaving || row + self.count < leaving {
            return None;
        }
        let first = (self.first + row) % self.count * self.stride;
        assert!(first + size <= self.kept.len());
        Some(self.kept.pointer(first + start))
    }
}

/// Deltas that are kept: with the keys and decays they are all that is needed to apply rows to an
/// older state again.
#[derive(Clone, Copy)]
pub struct KeptDeltas<'a> {
    /// Deltas `[value_heads][value_width]` of each row, from `first` on.
    pub to: SharedSlice<'a, f32>,
    /// Elements from one row to the next.
    pub stride: usize,
    /// First row whose deltas are kept.
    pub first: usize,
}

/// What [`gated_delta_net`] writes.
#[derive(Clone, Copy)]
pub struct GatedDeltaNetOut<'a> {
    /// States of the head.
    pub state: StatePath<'a>,
    /// Records that are applied to the state before the first row, over it; for a state that is there.
    pub replayed: Option<Replay<'a>>,
    /// Outputs `[rows][value_heads][value_width]`.
    pub out: SharedSlice<'a, f32>,
    /// Where to keep deltas.
    pub deltas: Option<KeptDeltas<'a>>,
    /// At least [`scratch_floats`] of the caller's own.
    pub scratch: SharedSlice<'a, f32>,
}

per_level! {
    /// For each row in order, with i over the key and j over the value:
    ///
    /// - t = round(exp(log_decay) · S)
    /// - pⱼ = Σᵢ kᵢ·tᵢⱼ, i ascending, fused
    /// - δⱼ = β · (vⱼ - pⱼ)
    /// - Sᵢⱼ = fma(kᵢ, δⱼ, tᵢⱼ)
    /// - outⱼ = scale · Σᵢ qᵢ·Sᵢⱼ, i ascending, fused
    ///
    /// Records that are to be applied first go over the state as in [`replay()`].
    ///
    /// The work range is one value head and the columns j of it, which are independent.
    pub fn gated_delta_net = gated_delta_net_body(
        work: &GatedDeltaNet<'_>,
        to: &GatedDeltaNetOut<'_>,
        head: usize,
        columns: Range<usize>,
    )
}

#[inline(always)]
unsafe fn gated_delta_net_body(
    work: &GatedDeltaNet<'_>,
    to: &GatedDeltaNetOut<'_>,
    head: usize,
    columns: Range<usize>,
) {
    assert!(head < work.value_heads && columns.end <= work.value_width);
    let is_replayed = to.replayed.is_some_and(|replay| !replay.records.is_empty());
    let lone = to.state.before.filter(|_| work.log_decay.len() == work.value_heads && !is_replayed);
    let mut at = columns.start;
    while at < columns.end {
        // SAFETY: these columns belong to the caller's work range.
        at += unsafe {
            match columns.end - at {
                LONE_COLUMNS.. if let Some(state) = lone => {
                    lone_row::<LONE_COLUMNS>(work, to, state, head, at)
                }
                COLUMNS.. => run_columns::<COLUMNS>(work, to, head, at),
                16.. => run_columns::<16>(work, to, head, at),
                _ => run_columns::<1>(work, to, head, at),
            }
        };
    }
}

/// `N` columns of a state.
#[derive(Clone, Copy)]
struct StateColumns<const N: usize> {
    start: *mut f32,
    /// Elements from one row of the state to the next.
    stride: usize,
}

impl<const N: usize> StateColumns<N> {
    /// Asks for row `i`, which may lie anywhere.
    #[inline(always)]
    fn fetch(self, i: usize) {
        let row = self.start.wrapping_add(i * self.stride).cast::<u8>();
        for at in (0..N * size_of::<f32>()).step_by(64) {
            prefetch(row.wrapping_add(at));
        }
    }

    /// # Safety
    /// The state has a row `i`, and nobody writes these columns of it while the result is in use.
    #[inline(always)]
    unsafe fn row<'a>(self, i: usize) -> &'a [f32; N] {
        // SAFETY: inside the state by the caller's promise.
        unsafe { &*self.start.add(i * self.stride).cast::<[f32; N]>() }
    }

    /// # Safety
    /// The state has a row `i`, and nobody else touches these columns of it while the result is in use.
    #[inline(always)]
    unsafe fn row_mut<'a>(self, i: usize) -> &'a mut [f32; N] {
        // SAFETY: as above.
        unsafe { &mut *self.start.add(i * self.stride).cast::<[f32; N]>() }
    }
}

/// What a row does to a state.
#[derive(Clone, Copy)]
struct Step<'a> {
    key: &'a [f32],
    query: &'a [f32],
    decay: f32,
}

/// From the state before the first row to t of that row, in `into`: records go over the state first, where there are
/// any, and stay in it. Returns pⱼ = Σᵢ kᵢ·tᵢⱼ.
///
/// # Safety
/// The states have as many rows as the key is long, and nobody else touches these columns.
#[inline(always)]
unsafe fn begin<const N: usize, const RECORDS: usize>(
    step: Step<'_>,
    records: &Recorded<'_, N, RECORDS>,
    before: Option<StateColumns<N>>,
    into: StateColumns<N>,
) -> [f32; N] {
    let mut predicted = [0.0f32; N];
    for (i, &key) in step.key.iter().enumerate() {
        let mut state = [0.0f32; N];
        if let Some(before) = before {
            // SAFETY: by the caller's promise.
            state = unsafe { *before.row(i) };
            if RECORDS > 0 {
                records.apply(i, &mut state);
                // SAFETY: as above.
                unsafe { *before.row_mut(i) = state };
            }
        }
        // SAFETY: as above.
        let into = unsafe { into.row_mut(i) };
        for j in 0..N {
            into[j] = state[j] * step.decay;
            predicted[j] = key.mul_add(into[j], predicted[j]);
        }
    }
    predicted
}

/// A row over t in `state`: Sᵢⱼ = fma(kᵢ, δⱼ, tᵢⱼ). With `NEXT` it leaves t of the row behind it there; else it asks for
/// the columns `ahead`, which are due then. `kept` gets S. Returns Σᵢ qᵢ·Sᵢⱼ and the next row's pⱼ.
///
/// # Safety
/// As for [`begin`].
#[inline(always)]
unsafe fn advance<const N: usize, const KEEP: bool, const NEXT: bool>(
    step: Step<'_>,
    next: Step<'_>,
    delta: &[f32; N],
    state: StateColumns<N>,
    kept: StateColumns<N>,
    ahead: StateColumns<N>,
) -> ([f32; N], [f32; N]) {
    let (mut sum, mut predicted) = ([0.0f32; N], [0.0f32; N]);
    let keys = step.key.iter().zip(step.query).zip(next.key);
    for (i, ((&key, &query), &next_key)) in keys.enumerate() {
        // SAFETY: by the caller's promise; where both are one, S is wanted and t is not.
        let (state, kept) = unsafe { (state.row_mut(i), kept.start.add(i * kept.stride).cast::<[f32; N]>()) };
        if !NEXT {
            ahead.fetch(i);
        }
        let mut updated = [0.0f32; N];
        for j in 0..N {
            updated[j] = key.mul_add(delta[j], state[j]);
            sum[j] = query.mul_add(updated[j], sum[j]);
            if NEXT {
                state[j] = updated[j] * next.decay;
                predicted[j] = next_key.mul_add(state[j], predicted[j]);
            }
        }
        if KEEP {
            // SAFETY: as above.
            unsafe { *kept = updated };
        }
    }
    (sum, predicted)
}

/// `N` columns of a head from `start` on, through all rows. Returns `N`.
///
/// They lie side by side in the scratch meanwhile: in a state their distance would put them all into a few sets of the
/// first-level cache.
///
/// # Safety
/// Nobody else touches these columns of the head.
#[inline(always)]
unsafe fn run_columns<const N: usize>(
    work: &GatedDeltaNet<'_>,
    to: &GatedDeltaNetOut<'_>,
    head: usize,
    start: usize,
) -> usize {
    let (key_width, value_width) = (work.key_width, work.value_width);
    let size = key_width * value_width;
    assert!(start + N <= value_width && key_width * N <= to.scratch.len());
    let rows = work.log_decay.len() / work.value_heads;
    if rows == 0 {
        if let (Some(records), Some(state)) = (&to.replayed, to.state.before) {
            // SAFETY: these columns belong to the caller's work range.
            unsafe { replay_columns::<N>(records, state, head, start) };
        }
        return N;
    }
    let step_of = |row: usize| {
        let key_start = (row * work.key_heads + head % work.key_heads) * key_width;
        Step {
            key: &work.key[key_start..][..key_width],
            query: &work.query[key_start..][..key_width],
            decay: exp(work.log_decay[row * work.value_heads + head]),
        }
    };
    let mut step = step_of(0);
    let state = StateColumns::<N> { start: to.scratch.pointer(0), stride: N };
    // SAFETY: these columns belong to the caller's work range, the scratch is its own.
    let mut predicted = unsafe { begin_columns(work, to, head, start, step, state) };
    // The columns behind these, or the first of the head behind this one.
    let next_columns = if start + 2 * N <= value_width { start + N } else { size };
    let next_start =
        to.state.before.map_or(state.start, |before| before.pointer(0).wrapping_add(next_columns));
    let ahead = StateColumns::<N> { start: next_start, stride: value_width };
    for row in 0..rows {
        let scalar = row * work.value_heads + head;
        let beta = work.beta[scalar];
        let place = scalar * value_width + start;
        let value = &work.value[place..][..N];
        let mut delta = [0.0f32; N];
        for j in 0..N {
            delta[j] = beta * (value[j] - predicted[j]);
        }
        let kept = to.state.after(row, rows, start, size);
        let kept = kept.map(|start| StateColumns::<N> { start, stride: value_width });
        let next = if row + 1 < rows { step_of(row + 1) } else { step };
        // SAFETY: the states are as high as a key is long, and these columns are the caller's.
        let (mut sum, for_next) = unsafe {
            match (kept, row + 1 < rows) {
                (None, true) => advance::<N, false, true>(step, next, &delta, state, state, ahead),
                (None, false) => advance::<N, false, false>(step, next, &delta, state, state, ahead),
                (Some(kept), true) => advance::<N, true, true>(step, next, &delta, state, kept, ahead),
                (Some(kept), false) => advance::<N, true, false>(step, next, &delta, state, kept, ahead),
            }
        };
        (predicted, step) = (for_next, next);
        for sum in &mut sum {
            *sum *= work.scale;
        }
        // SAFETY: these columns belong to the caller's work range.
        unsafe {
            to.out.part(place..place + N).copy_from_slice(&sum);
            if let Some(kept) = to.deltas.filter(|kept| row >= kept.first) {
                let place = (row - kept.first) * kept.stride + head * value_width + start;
                kept.to.part(place..place + N).copy_from_slice(&delta);
            }
        }
    }
    N
}

/// The only row, over `N` columns of a head from `start` on, without records. Returns `N`.
///
/// Two passes over the state where it lies, of which both compute t: a copy of it would be used once. Either asks for
/// a part of the next head's state, in the order in which it lies in memory, so that memory never waits.
///
/// # Safety
/// Nobody else touches these columns of the head.
#[inline(always)]
unsafe fn lone_row<const N: usize>(
    work: &GatedDeltaNet<'_>,
    to: &GatedDeltaNetOut<'_>,
    before: SharedSlice<'_, f32>,
    head: usize,
    start: usize,
) -> usize {
    let (key_width, value_width) = (work.key_width, work.value_width);
    let size = key_width * value_width;
    assert!(start + N <= value_width && size <= before.len());
    let key_start = head % work.key_heads * key_width;
    let (key, query) = (&work.key[key_start..][..key_width], &work.query[key_start..][..key_width]);
    let decay = exp(work.log_decay[head]);
    let place = head * value_width + start;
    let value = &work.value[place..][..N];
    let state = StateColumns::<N> { start: before.pointer(start), stride: value_width };
    // What is due with each key of a pass: all passes of the head together ask for as much as a head has.
    let part =
        |pass: usize| before.pointer(0).wrapping_add(size + (start / N * 2 + pass) * key_width * N / 2);
    let ahead = [part(0), part(1)].map(|start| Ahead::<N> { start });

    let mut predicted = [0.0f32; N];
    for (i, &key) in key.iter().enumerate() {
        ahead[0].fetch(i);
        // SAFETY: the state has a row for each element of a key, and these columns are the caller's.
        let row = unsafe { state.row(i) };
        for j in 0..N {
            predicted[j] = key.mul_add(row[j] * decay, predicted[j]);
        }
    }
    let mut delta = [0.0f32; N];
    for j in 0..N {
        delta[j] = work.beta[head] * (value[j] - predicted[j]);
    }
    let kept = to.state.after(0, 1, start, size);
    let mut sum = [0.0f32; N];
    for (i, (&key, &query)) in key.iter().zip(query).enumerate() {
        ahead[1].fetch(i);
        // SAFETY: as above.
        let row = unsafe { state.row(i) };
        let mut updated = [0.0f32; N];
        for j in 0..N {
            updated[j] = key.mul_add(delta[j], row[j] * decay);
            sum[j] = query.mul_add(updated[j], sum[j]);
        }
        if let Some(kept) = kept {
            // SAFETY: as above; the row that was read is no longer needed.
            unsafe { *kept.add(i * value_width).cast::<[f32; N]>() = updated };
        }
    }
    for sum in &mut sum {
        *sum *= work.scale;
    }
    // SAFETY: these columns belong to the caller's work range.
    unsafe {
        to.out.part(place..place + N).copy_from_slice(&sum);
        if let Some(kept) = to.deltas.filter(|kept| kept.first == 0) {
            kept.to.part(place..place + N).copy_from_slice(&delta);
        }
    }
    N
}

/// The part of the next head's state that is due in a pass over `N` columns of this one.
#[derive(Clone, Copy)]
struct Ahead<const N: usize> {
    start: *mut f32,
}

impl<const N: usize> Ahead<N> {
    /// Asks for what is due with element `i` of the key.
    #[inline(always)]
    fn fetch(self, i: usize) {
        let due = self.start.wrapping_add(i * N / 2).cast::<u8>();
        for at in (0..N / 2 * size_of::<f32>()).step_by(64) {
            prefetch_second_level(due.wrapping_add(at));
        }
    }
}

/// [`begin`] for the columns from `start` on, with as many records as there are.
///
/// # Safety
/// Nobody else touches these columns of the head, nor the scratch.
#[inline(always)]
unsafe fn begin_columns<const N: usize>(
    work: &GatedDeltaNet<'_>,
    to: &GatedDeltaNetOut<'_>,
    head: usize,
    start: usize,
    step: Step<'_>,
    into: StateColumns<N>,
) -> [f32; N] {
    let before = to.state.before.map(|state| {
        assert!(work.key_width * work.value_width <= state.len());
        (state, StateColumns::<N> { start: state.pointer(start), stride: work.value_width })
    });
    let Some(((state, before), records)) = before.zip(to.replayed).filter(|(_, r)| !r.records.is_empty())
    else {
        let none = Recorded::<N, 0>::NONE;
        // SAFETY: the caller's promise is passed on; the state is as high as a key is long.
        return unsafe { begin(step, &none, before.map(|(_, columns)| columns), into) };
    };
    let fits = (records.key_width, records.value_width) == (work.key_width, work.value_width);
    assert!(fits && records.value_heads == work.value_heads);
    let (earlier, last) = records.split_last_part();
    // SAFETY: as above.
    unsafe {
        replay_columns::<N>(&earlier, state, head, start);
        match last.count() {
            1 => begin(step, &Recorded::<N, 1>::of(&last, head, start), Some(before), into),
            2 => begin(step, &Recorded::<N, 2>::of(&last, head, start), Some(before), into),
            3 => begin(step, &Recorded::<N, 3>::of(&last, head, start), Some(before), into),
            _ => begin(step, &Recorded::<N, AT_ONCE>::of(&last, head, start), Some(before), into),
        }
    }
}
