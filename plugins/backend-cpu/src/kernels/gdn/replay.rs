//! The replay of recorded rows over a state of the gated delta rule.

use super::{COLUMNS, SharedSlice};
use crate::kernels::math::exp;
use core::ops::Range;

/// Recorded rows of one sequence, for [`replay`] and [`gated_delta_net`](super::gated_delta_net).
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

    /// Number of records.
    pub(super) fn count(&self) -> usize {
        self.records.len() / self.record_width()
    }

    /// The records in parts of as many as go over a state together.
    fn parts(&self) -> impl Iterator<Item = Replay<'_>> {
        self.records.chunks(AT_ONCE * self.record_width()).map(|records| Replay { records, ..*self })
    }

    /// The last part, and all before it.
    pub(super) fn split_last_part(&self) -> (Replay<'_>, Replay<'_>) {
        let in_parts_before = self.count().saturating_sub(1) / AT_ONCE * AT_ONCE;
        let (earlier, last) = self.records.split_at(in_parts_before * self.record_width());
        (Replay { records: earlier, ..*self }, Replay { records: last, ..*self })
    }
}

per_level! {
    /// Applies the records in their order: t = round(exp(log_decay) · S), Sᵢⱼ = fma(kᵢ, δⱼ, tᵢⱼ), to
    /// the bits of [`gated_delta_net`](super::gated_delta_net). `state[key_width][value_width]` is that of the head; the work
    /// range is columns of it.
    pub fn replay = replay_body(
        work: &Replay<'_>,
        state: SharedSlice<'_, f32>,
        head: usize,
        columns: Range<usize>,
    )
}

/// Records that go over a state together.
pub(super) const AT_ONCE: usize = 16;

#[inline(always)]
unsafe fn replay_body(work: &Replay<'_>, state: SharedSlice<'_, f32>, head: usize, columns: Range<usize>) {
    assert!(head < work.value_heads && columns.end <= work.value_width);
    let mut at = columns.start;
    while at < columns.end {
        // SAFETY: these columns belong to the caller's work range.
        at += unsafe {
            match columns.end - at {
                COLUMNS.. => replay_columns::<COLUMNS>(work, state, head, at),
                16.. => replay_columns::<16>(work, state, head, at),
                _ => replay_columns::<1>(work, state, head, at),
            }
        };
    }
}

/// The records over `N` columns of a head from `start` on. Returns `N`.
///
/// # Safety
/// Nobody else touches these columns of the head.
#[inline(always)]
pub(super) unsafe fn replay_columns<const N: usize>(
    work: &Replay<'_>,
    state: SharedSlice<'_, f32>,
    head: usize,
    start: usize,
) -> usize {
    for part in work.parts() {
        // SAFETY: the caller's promise is passed on.
        unsafe {
            match part.count() {
                1 => Recorded::<N, 1>::of(&part, head, start).apply_to_all(state),
                2 => Recorded::<N, 2>::of(&part, head, start).apply_to_all(state),
                3 => Recorded::<N, 3>::of(&part, head, start).apply_to_all(state),
                _ => Recorded::<N, AT_ONCE>::of(&part, head, start).apply_to_all(state),
            }
        }
    }
    N
}

/// At most `RECORDS` records for `N` columns of a head; just so many if they are not [`AT_ONCE`], and then their deltas
/// stay in registers.
pub(super) struct Recorded<'a, const N: usize, const RECORDS: usize> {
    decays: [f32; RECORDS],
    deltas: [[f32; N]; RECORDS],
    keys: [&'a [f32]; RECORDS],
    count: usize,
    key_width: usize,
    value_width: usize,
    /// First of the columns.
    start: usize,
}

impl<const N: usize> Recorded<'_, N, 0> {
    pub(super) const NONE: Self =
        Self { decays: [], deltas: [], keys: [], count: 0, key_width: 0, value_width: 0, start: 0 };
}

impl<'a, const N: usize, const RECORDS: usize> Recorded<'a, N, RECORDS> {
    #[inline(always)]
    pub(super) fn of(work: &Replay<'a>, head: usize, start: usize) -> Self {
        let (key_width, value_width) = (work.key_width, work.value_width);
        let keys_at = work.value_heads * value_width;
        let decays_at = keys_at + work.key_heads * key_width;
        let mut all = Self {
            decays: [0.0; RECORDS],
            deltas: [[0.0; N]; RECORDS],
            keys: [&[]; RECORDS],
            count: RECORDS,
            key_width,
            value_width,
            start,
        };
        if RECORDS == AT_ONCE {
            all.count = work.count().min(RECORDS);
        }
        assert!(head < work.value_heads && start + N <= value_width && all.count <= work.count());
        for (r, record) in work.records.chunks_exact(work.record_width()).take(all.count).enumerate() {
            all.decays[r] = exp(record[decays_at + head]);
            all.deltas[r].copy_from_slice(&record[head * value_width + start..][..N]);
            all.keys[r] = &record[keys_at + head % work.key_heads * key_width..][..key_width];
        }
        all
    }

    /// Row `i` of the state behind the records.
    #[inline(always)]
    pub(super) fn apply(&self, i: usize, row: &mut [f32; N]) {
        let count = if RECORDS == AT_ONCE { self.count } else { RECORDS };
        for ((keys, delta), decay) in self.keys.iter().zip(&self.deltas).zip(&self.decays).take(count) {
            let key = keys[i];
            for j in 0..N {
                row[j] = key.mul_add(delta[j], row[j] * decay);
            }
        }
    }

    /// # Safety
    /// Nobody else touches these columns of the state.
    #[inline(always)]
    unsafe fn apply_to_all(&self, state: SharedSlice<'_, f32>) {
        assert!(self.key_width * self.value_width <= state.len());
        for i in 0..self.key_width {
            let place = i * self.value_width + self.start;
            // SAFETY: these columns belong to the caller's work range.
            let state = unsafe { state.part(place..place + N) };
            let mut row = [0.0f32; N];
            row.copy_from_slice(state);
            self.apply(i, &mut row);
            state.copy_from_slice(&row);
        }
    }
}
