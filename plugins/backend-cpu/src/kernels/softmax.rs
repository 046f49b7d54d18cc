//! Softmax over the last axis.

use super::lanes::{LANES, sum_lanes};
use super::math::exp;
use super::{SharedSlice, lanes};
use core::ops::Range;

per_level! {
    /// out = exp(x - max x) / Σ exp(x - max x), each row of `x[rows][width]` by itself; `out` like
    /// `x`. A row with NaN or +inf, or with nothing above -inf, gives NaN.
    pub fn softmax = softmax_body(x: &[f32], width: usize, out: SharedSlice<'_, f32>, rows: Range<usize>)
}

#[inline(always)]
unsafe fn softmax_body(x: &[f32], width: usize, out: SharedSlice<'_, f32>, rows: Range<usize>) {
    for row in rows {
        let span = row * width..(row + 1) * width;
        let x = &x[span.clone()];
        // SAFETY: the row belongs to the caller's work range.
        let out = unsafe { out.part(span) };
        let maximum = lanes::maximum(x);
        for (out, &x) in out.iter_mut().zip(x) {
            *out = exp(x - maximum);
        }
        let sum = sum(out);
        for out in out {
            *out /= sum;
        }
    }
}

/// Σ xᵢ in lanes.
#[inline(always)]
fn sum(x: &[f32]) -> f32 {
    let mut lanes = [0.0f32; LANES];
    let mut chunks = x.chunks_exact(LANES);
    for chunk in &mut chunks {
        for lane in 0..LANES {
            lanes[lane] += chunk[lane];
        }
    }
    for (lane, &value) in lanes.iter_mut().zip(chunks.remainder()) {
        *lane += value;
    }
    sum_lanes(lanes)
}
