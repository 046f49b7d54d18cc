//! The gated delta rule, row after row, and the replay of rows that were recorded.

use super::SharedSlice;
use super::math::exp;
use core::ops::Range;

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

/// Where the state S `[key_width][value_width]` of a head stands before the first row and after each.
#[derive(Clone, Copy)]
pub struct StatePath<'a> {
    /// Before the first row; none is zeros.
    pub before: Option<SharedSlice<'a, f32>>,
    /// How many rows leave their state in `settled`, each over the one before.
    pub settled_rows: usize,
    /// After each of the first `settled_rows`.
    pub settled: SharedSlice<'a, f32>,
    /// States of later rows, `later_stride` elements from one to the next.
    pub later: SharedSlice<'a, f32>,
    /// Elements from one of these states to the next.
    pub later_stride: usize,
    /// How many there are.
    pub later_count: usize,
    /// A later row r leaves its state in number `(later_first + r) % later_count`.
    pub later_first: usize,
    /// The state after the last row is wanted; if not, and the row is a later one, it is not written.
    pub keeps_last: bool,
}

impl<'a> StatePath<'a> {
    /// One state for all rows, read and written.
    pub fn in_place(state: SharedSlice<'a, f32>) -> Self {
        Self {
            before: Some(state),
            settled_rows: usize::MAX,
            settled: state,
            later: state,
            later_stride: 0,
            later_count: 1,
            later_first: 0,
            keeps_last: true,
        }
    }

    /// The first element of column `start` after `row`; a state of `size` elements lies there.
    fn after(&self, row: usize, start: usize, size: usize) -> *mut f32 {
        if row < self.settled_rows {
            assert!(size <= self.settled.len());
            return self.settled.pointer(start);
        }
        let first = (self.later_first + row) % self.later_count * self.later_stride;
        assert!(first + size <= self.later.len());
        self.later.pointer(first + start)
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
    /// State of the head.
    pub state: StatePath<'a>,
    /// Records that are applied to the state before the first row, over it; for a state that is there.
    pub replayed: Option<Replay<'a>>,
    /// Outputs `[rows][value_heads][value_width]`.
    pub out: SharedSlice<'a, f32>,
    /// Where to keep deltas.
    pub deltas: Option<KeptDeltas<'a>>,
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
    /// Records that are to be applied first go over the state as in [`replay`].
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
    let mut at = columns.start;
    while at < columns.end {
        // SAFETY: these columns belong to the caller's work range.
        at += unsafe {
            match columns.end - at {
                // So many columns of 128 keys stay in the first-level cache through all rows.
                64.. => run_columns::<64>(work, to, head, at),
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

/// pⱼ = Σᵢ kᵢ·tᵢⱼ.
///
/// # Safety
/// The state has as many rows as the key is long, and nobody else touches these columns.
#[inline(always)]
unsafe fn predict<const N: usize>(step: Step<'_>, from: StateColumns<N>) -> [f32; N] {
    let mut predicted = [0.0f32; N];
    for (i, &key) in step.key.iter().enumerate() {
        // SAFETY: by the caller's promise.
        let state = unsafe { from.row(i) };
        for j in 0..N {
            predicted[j] = key.mul_add(state[j] * step.decay, predicted[j]);
        }
    }
    predicted
}

/// What is left of a state behind a row.
#[derive(Clone, Copy)]
enum Left<'a> {
    /// S.
    State,
    /// What the next row begins with, t: S is wanted by nobody else. The next row's prediction is made in passing.
    Decayed(Step<'a>),
    /// S, and the next row's prediction is made in passing.
    StateFor(Step<'a>),
    /// Nothing.
    Nothing,
}

/// tᵢⱼ of a row: decayed here, unless the row before left it so.
#[inline(always)]
fn decayed<const DECAYED: bool>(value: f32, step: Step<'_>) -> f32 {
    if DECAYED { value } else { value * step.decay }
}

/// Sᵢⱼ = fma(kᵢ, δⱼ, tᵢⱼ), from one state into another or the same. Returns Σᵢ qᵢ·Sᵢⱼ. With `DECAYED`, what is read is
/// t already.
///
/// # Safety
/// As for [`predict`], for both states.
#[inline(always)]
unsafe fn update<const N: usize, const DECAYED: bool>(
    step: Step<'_>,
    delta: &[f32; N],
    from: StateColumns<N>,
    into: StateColumns<N>,
) -> [f32; N] {
    let mut sum = [0.0f32; N];
    for (i, (&key, &query)) in step.key.iter().zip(step.query).enumerate() {
        // SAFETY: by the caller's promise; a row is read before it is written.
        let (old, into) = unsafe { (*from.row(i), into.row_mut(i)) };
        for j in 0..N {
            let updated = key.mul_add(delta[j], decayed::<DECAYED>(old[j], step));
            into[j] = updated;
            sum[j] = query.mul_add(updated, sum[j]);
        }
    }
    sum
}

/// As [`update`], and the prediction of the row behind it; with `KEEP` it leaves S, else t of that row.
///
/// # Safety
/// As for [`update`].
#[inline(always)]
unsafe fn update_and_predict<const N: usize, const DECAYED: bool, const KEEP: bool>(
    step: Step<'_>,
    next: Step<'_>,
    delta: &[f32; N],
    from: StateColumns<N>,
    into: StateColumns<N>,
) -> ([f32; N], [f32; N]) {
    let (mut sum, mut predicted) = ([0.0f32; N], [0.0f32; N]);
    let keys = step.key.iter().zip(step.query).zip(next.key);
    for (i, ((&key, &query), &next_key)) in keys.enumerate() {
        // SAFETY: as there.
        let (old, into) = unsafe { (*from.row(i), into.row_mut(i)) };
        for j in 0..N {
            let updated = key.mul_add(delta[j], decayed::<DECAYED>(old[j], step));
            let for_next = updated * next.decay;
            into[j] = if KEEP { updated } else { for_next };
            sum[j] = query.mul_add(updated, sum[j]);
            predicted[j] = next_key.mul_add(for_next, predicted[j]);
        }
    }
    (sum, predicted)
}

/// Σᵢ qᵢ·Sᵢⱼ of the state that [`update`] would leave, without leaving it.
///
/// # Safety
/// As for [`predict`].
#[inline(always)]
unsafe fn output_alone<const N: usize, const DECAYED: bool>(
    step: Step<'_>,
    delta: &[f32; N],
    from: StateColumns<N>,
) -> [f32; N] {
    let mut sum = [0.0f32; N];
    for (i, (&key, &query)) in step.key.iter().zip(step.query).enumerate() {
        // SAFETY: by the caller's promise.
        let from = unsafe { from.row(i) };
        for j in 0..N {
            sum[j] = query.mul_add(key.mul_add(delta[j], decayed::<DECAYED>(from[j], step)), sum[j]);
        }
    }
    sum
}

/// A row over a state: its output before the scale, and the next row's prediction where that is made in passing.
///
/// # Safety
/// As for [`update`].
#[inline(always)]
unsafe fn advance<const N: usize, const DECAYED: bool>(
    step: Step<'_>,
    left: Left<'_>,
    delta: &[f32; N],
    from: StateColumns<N>,
    into: StateColumns<N>,
) -> ([f32; N], [f32; N]) {
    // SAFETY: the caller's promise is passed on.
    unsafe {
        match left {
            Left::State => (update::<N, DECAYED>(step, delta, from, into), [0.0; N]),
            Left::Decayed(next) => update_and_predict::<N, DECAYED, false>(step, next, delta, from, into),
            Left::StateFor(next) => update_and_predict::<N, DECAYED, true>(step, next, delta, from, into),
            Left::Nothing => (output_alone::<N, DECAYED>(step, delta, from), [0.0; N]),
        }
    }
}

/// `N` columns of a head from `start` on, through all rows. Returns `N`.
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
    assert!(start + N <= value_width);
    let columns = |start: *mut f32| StateColumns::<N> { start, stride: value_width };
    let rows = work.log_decay.len() / work.value_heads;
    if let (Some(records), Some(state)) = (&to.replayed, to.state.before) {
        assert!(size <= state.len());
        // The columns stay in the first-level cache for the rows.
        for records in records.parts() {
            // SAFETY: these columns belong to the caller's work range.
            unsafe { replay_columns::<N>(&records, state, head, start) };
        }
    }
    if rows == 0 {
        return N;
    }
    let mut from = match to.state.before {
        Some(state) => {
            assert!(size <= state.len());
            columns(state.pointer(start))
        }
        // Zeros stand where the first row leaves its state.
        None => {
            let zeros = columns(to.state.after(0, start, size));
            for i in 0..key_width {
                // SAFETY: i < key_width, and these columns belong to the caller's work range.
                unsafe { zeros.row_mut(i) }.fill(0.0);
            }
            zeros
        }
    };

    let step_of = |row: usize| {
        let key_start = (row * work.key_heads + head % work.key_heads) * key_width;
        Step {
            key: &work.key[key_start..][..key_width],
            query: &work.query[key_start..][..key_width],
            decay: exp(work.log_decay[row * work.value_heads + head]),
        }
    };
    let mut step = step_of(0);
    // SAFETY: the states are as high as a key is long, and these columns are the caller's.
    let mut predicted = unsafe { predict(step, from) };
    let mut is_decayed = false;
    for row in 0..rows {
        let into = columns(to.state.after(row, start, size));
        let scalar = row * work.value_heads + head;
        let beta = work.beta[scalar];
        let place = scalar * value_width + start;
        let value = &work.value[place..][..N];
        let mut delta = [0.0f32; N];
        for j in 0..N {
            delta[j] = beta * (value[j] - predicted[j]);
        }
        let left = if row + 1 < rows {
            let next = step_of(row + 1);
            // Where the next row goes over the same state, this row's is wanted by that one alone.
            let is_overwritten = to.state.after(row + 1, start, size) == into.start
                && (to.state.keeps_last || row + 2 < rows || row >= to.state.settled_rows);
            if is_overwritten { Left::Decayed(next) } else { Left::StateFor(next) }
        } else if to.state.keeps_last || row < to.state.settled_rows {
            Left::State
        } else {
            Left::Nothing
        };
        // SAFETY: as above, and a state that is not the one before lies elsewhere.
        let (mut sum, for_next) = unsafe {
            if is_decayed {
                advance::<N, true>(step, left, &delta, from, into)
            } else {
                advance::<N, false>(step, left, &delta, from, into)
            }
        };
        predicted = for_next;
        is_decayed = matches!(left, Left::Decayed(_));
        if let Left::Decayed(next) | Left::StateFor(next) = left {
            step = next;
        }
        from = into;
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

/// Recorded rows of one sequence, for [`replay`] and [`gated_delta_net`].
#[derive(Clone, Copy)]
pub struct Replay<'a> {
    /// Records, each `[value_heads][value_width]` deltas, `[key_heads][key_width]` keys and
    /// `[value_heads]` logarithms of decays.
    pub records: &'a [f32],
    /// Number of key heads; value head h uses key head h mod `key_heads`.
    pub key_heads: usize,
    /// Number of value heads.
    pub value_heads: usize,
    /// Length of a key.
    pub key_width: usize,
    /// Length of a value.
    pub value_width: usize,
}

impl Replay<'_> {
    /// Elements of a record.
    pub fn record_width(&self) -> usize {
        self.value_heads * (self.value_width + 1) + self.key_heads * self.key_width
    }

    /// The records in parts of as many as go over a state together.
    fn parts(&self) -> impl Iterator<Item = Replay<'_>> {
        self.records.chunks(REPLAYED_AT_ONCE * self.record_width()).map(|records| Replay { records, ..*self })
    }
}

per_level! {
    /// Applies the records in their order: t = round(exp(log_decay) · S), Sᵢⱼ = fma(kᵢ, δⱼ, tᵢⱼ), to
    /// the bits of [`gated_delta_net`]. `state[key_width][value_width]` is that of the head; the work
    /// range is columns of it.
    pub fn replay = replay_body(
        work: &Replay<'_>,
        state: SharedSlice<'_, f32>,
        head: usize,
        columns: Range<usize>,
    )
}

/// Records that go over a state together.
const REPLAYED_AT_ONCE: usize = 16;

#[inline(always)]
unsafe fn replay_body(work: &Replay<'_>, state: SharedSlice<'_, f32>, head: usize, columns: Range<usize>) {
    assert!(head < work.value_heads && columns.end <= work.value_width);
    for work in work.parts() {
        let mut at = columns.start;
        while at < columns.end {
            // SAFETY: these columns belong to the caller's work range.
            at += unsafe {
                match columns.end - at {
                    64.. => replay_columns::<64>(&work, state, head, at),
                    16.. => replay_columns::<16>(&work, state, head, at),
                    _ => replay_columns::<1>(&work, state, head, at),
                }
            };
        }
    }
}

/// Up to [`REPLAYED_AT_ONCE`] records over `N` columns of a head from `start` on. Returns `N`.
///
/// # Safety
/// Nobody else touches these columns of the head.
#[inline(always)]
unsafe fn replay_columns<const N: usize>(
    work: &Replay<'_>,
    state: SharedSlice<'_, f32>,
    head: usize,
    start: usize,
) -> usize {
    // SAFETY: the caller's promise is passed on.
    unsafe {
        match work.records.len() / work.record_width() {
            0 => N,
            1 => replay_records::<N, 1>(work, state, head, start),
            2 => replay_records::<N, 2>(work, state, head, start),
            3 => replay_records::<N, 3>(work, state, head, start),
            _ => replay_records::<N, REPLAYED_AT_ONCE>(work, state, head, start),
        }
    }
}

/// As [`replay_columns`], with at most `RECORDS` records: few enough, and their deltas stay in registers.
///
/// # Safety
/// Nobody else touches these columns of the head.
#[inline(always)]
unsafe fn replay_records<const N: usize, const RECORDS: usize>(
    work: &Replay<'_>,
    state: SharedSlice<'_, f32>,
    head: usize,
    start: usize,
) -> usize {
    let (key_width, width) = (work.key_width, work.record_width());
    let keys_at = work.value_heads * work.value_width;
    let decays_at = keys_at + work.key_heads * key_width;
    let count = (work.records.len() / width).min(RECORDS);
    let mut decays = [0.0f32; RECORDS];
    let mut deltas = [[0.0f32; N]; RECORDS];
    let mut keys: [&[f32]; RECORDS] = [&[]; RECORDS];
    for (r, record) in work.records.chunks_exact(width).take(count).enumerate() {
        decays[r] = exp(record[decays_at + head]);
        deltas[r].copy_from_slice(&record[head * work.value_width + start..][..N]);
        keys[r] = &record[keys_at + head % work.key_heads * key_width..][..key_width];
    }
    let count = if RECORDS < REPLAYED_AT_ONCE { RECORDS } else { count };
    assert!(keys[..count].iter().all(|keys| keys.len() == key_width));
    assert!(start + N <= work.value_width && key_width * work.value_width <= state.len());
    for i in 0..key_width {
        let place = i * work.value_width + start;
        // SAFETY: these columns belong to the caller's work range.
        let state = unsafe { state.part(place..place + N) };
        let mut row = [0.0f32; N];
        row.copy_from_slice(state);
        for ((keys, delta), decay) in keys.iter().zip(&deltas).zip(&decays).take(count) {
            let key = keys[i];
            for j in 0..N {
                row[j] = key.mul_add(delta[j], row[j] * decay);
            }
        }
        state.copy_from_slice(&row);
    }
    N
}
