//! The gated delta rule, row after row.

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

/// What [`gated_delta_net`] writes.
#[derive(Clone, Copy)]
pub struct GatedDeltaNetOut<'a> {
    /// State S of the sequence `[value_heads][key_width][value_width]`, read and written.
    pub state: SharedSlice<'a, f32>,
    /// Outputs `[rows][value_heads][value_width]`.
    pub out: SharedSlice<'a, f32>,
    /// Where to keep the deltas `[rows][value_heads][value_width]`. With the keys and decays they
    /// are all that is needed to apply the rows to an older state again.
    pub deltas: Option<SharedSlice<'a, f32>>,
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
    assert!((head + 1) * size <= to.state.len() && start + N <= value_width);
    let state = to.state.pointer(head * size + start);
    // Columns `start..start + N` of state row `i`.
    // SAFETY: i < key_width in every use, so the place lies inside the head by the check above; the
    // columns are the caller's, and no two of these references live at once.
    let state_row = |i: usize| unsafe { &mut *state.add(i * value_width).cast::<[f32; N]>() };

    for row in 0..work.log_decay.len() / work.value_heads {
        let key_start = (row * work.key_heads + head % work.key_heads) * key_width;
        let key = &work.key[key_start..][..key_width];
        let query = &work.query[key_start..][..key_width];
        let scalar = row * work.value_heads + head;
        let decay = exp(work.log_decay[scalar]);
        let beta = work.beta[scalar];
        let place = scalar * value_width + start;
        let value = &work.value[place..][..N];

        let mut predicted = [0.0f32; N];
        for (i, &key) in key.iter().enumerate() {
            let state = state_row(i);
            for j in 0..N {
                predicted[j] = key.mul_add(state[j] * decay, predicted[j]);
            }
        }
        let mut delta = [0.0f32; N];
        for j in 0..N {
            delta[j] = beta * (value[j] - predicted[j]);
        }
        let mut sum = [0.0f32; N];
        for (i, (&key, &query)) in key.iter().zip(query).enumerate() {
            let state = state_row(i);
            for j in 0..N {
                // The decayed state again, the same product as above: cheaper than storing it.
                let updated = key.mul_add(delta[j], state[j] * decay);
                state[j] = updated;
                sum[j] = query.mul_add(updated, sum[j]);
            }
        }
        for sum in &mut sum {
            *sum *= work.scale;
        }
        // SAFETY: these columns belong to the caller's work range.
        unsafe {
            to.out.part(place..place + N).copy_from_slice(&sum);
            if let Some(deltas) = to.deltas {
                deltas.part(place..place + N).copy_from_slice(&delta);
            }
        }
    }
    N
}
