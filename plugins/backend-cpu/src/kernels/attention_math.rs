//! The arithmetic of attention inside one block, for one query.

use super::lanes::{LANES, dots, larger, max_lanes, sum_lanes};
use super::math::{exp, softcap};
use core::ops::Range;

/// Columns of a value accumulated in registers.
const COLUMNS: usize = 64;

/// Dot products of a query with consecutive keys.
#[inline(always)]
pub(super) fn score(query: &[f32], keys: &[f32], scores: &mut [f32]) {
    let width = query.len();
    // Four at a time: the query is loaded once, and their chains of additions overlap.
    let mut keys_by_four = keys.chunks_exact(4 * width);
    let mut scores_by_four = scores.chunks_exact_mut(4);
    for (keys, scores) in (&mut keys_by_four).zip(&mut scores_by_four) {
        let [a, b, c, d] = [0, 1, 2, 3].map(|key| &keys[key * width..(key + 1) * width]);
        scores.copy_from_slice(&dots(query, [a, b, c, d]));
    }
    let rest = keys_by_four.remainder().chunks_exact(width);
    for (key, score) in rest.zip(scores_by_four.into_remainder()) {
        [*score] = dots(query, [key]);
    }
}

/// Turns the visible ones of a block's raw products into weights; returns m and l, the latter in
/// lanes by position.
#[inline(always)]
pub(super) fn weigh(scores: &mut [f32], visible: Range<usize>, scale: f32, cap: Option<f32>) -> (f32, f32) {
    // Whole groups of lanes; in the first and the last one, what is not visible weighs nothing.
    let start = visible.start / LANES * LANES;
    let end = visible.end.div_ceil(LANES) * LANES;
    scores[start..visible.start].fill(f32::NEG_INFINITY);
    scores[visible.end..end].fill(f32::NEG_INFINITY);
    for score in &mut scores[visible] {
        *score *= scale;
    }
    let scores = &mut scores[start..end];
    if let Some(cap) = cap {
        for score in &mut *scores {
            // -inf has to stay.
            *score = if *score == f32::NEG_INFINITY { *score } else { softcap(*score, cap) };
        }
    }
    let mut lanes = [f32::NEG_INFINITY; LANES];
    for chunk in scores.chunks_exact(LANES) {
        for lane in 0..LANES {
            lanes[lane] = larger(lanes[lane], chunk[lane]);
        }
    }
    let maximum = max_lanes(lanes);
    let mut lanes = [0.0f32; LANES];
    for chunk in scores.chunks_exact_mut(LANES) {
        for lane in 0..LANES {
            chunk[lane] = exp(chunk[lane] - maximum);
            lanes[lane] += chunk[lane];
        }
    }
    (maximum, sum_lanes(lanes))
}

/// sumsⱼ = fma(weight, valueⱼ, sumsⱼ) for consecutive values.
#[inline(always)]
pub(super) fn accumulate(weights: &[f32], values: &[f32], sums: &mut [f32]) {
    let width = sums.len();
    let mut start = 0;
    while start < width {
        start += match width - start {
            COLUMNS.. => accumulate_columns::<COLUMNS>(weights, values, sums, start),
            16.. => accumulate_columns::<16>(weights, values, sums, start),
            _ => accumulate_columns::<1>(weights, values, sums, start),
        };
    }
}

/// The same for `N` columns from `start` on. Returns `N`.
#[inline(always)]
fn accumulate_columns<const N: usize>(
    weights: &[f32],
    values: &[f32],
    sums: &mut [f32],
    start: usize,
) -> usize {
    let mut columns = [0.0f32; N];
    let width = sums.len();
    let sums = &mut sums[start..start + N];
    columns.copy_from_slice(sums);
    for (&weight, value) in weights.iter().zip(values.chunks_exact(width)) {
        let value = &value[start..start + N];
        for column in 0..N {
            columns[column] = weight.mul_add(value[column], columns[column]);
        }
    }
    sums.copy_from_slice(&columns);
    N
}
