//! The arithmetic of attention inside one block, for one query.

use super::lanes::{LANES, larger, max_lanes, sum_lanes};
use super::math::{exp, softcap};
use core::ops::Range;

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
