//! Normalisation over the last axis.

use super::SharedSlice;
use super::lanes::sum_of_squares;
use super::math::silu;
use core::ops::Range;

/// Inputs of [`rms_norm`].
#[derive(Clone, Copy)]
pub struct RmsNorm<'a> {
    /// Input `[rows][width]`.
    pub x: &'a [f32],
    /// Length of the last axis.
    pub width: usize,
    /// Factors `[width]`.
    pub weight: Option<&'a [f32]>,
    /// Gate `[rows][width]`.
    pub gate: Option<&'a [f32]>,
    /// Added to the mean of squares.
    pub epsilon: f32,
}

per_level! {
    /// out = x · 1/√(mean(x²) + ε) · weight · silu(gate), each row by itself; `out[rows][width]`.
    pub fn rms_norm = rms_norm_body(work: &RmsNorm<'_>, out: SharedSlice<'_, f32>, rows: Range<usize>)
}

#[inline(always)]
unsafe fn rms_norm_body(work: &RmsNorm<'_>, out: SharedSlice<'_, f32>, rows: Range<usize>) {
    let width = work.width;
    for row in rows {
        let span = row * width..(row + 1) * width;
        let x = &work.x[span.clone()];
        // SAFETY: the row belongs to the caller's work range.
        let out = unsafe { out.part(span.clone()) };
        let factor = 1.0 / (sum_of_squares(x) / width as f32 + work.epsilon).sqrt();
        match work.weight {
            Some(weight) => {
                for ((out, &x), &weight) in out.iter_mut().zip(x).zip(&weight[..width]) {
                    *out = x * factor * weight;
                }
            }
            None => {
                for (out, &x) in out.iter_mut().zip(x) {
                    *out = x * factor;
                }
            }
        }
        if let Some(gate) = work.gate {
            for (out, &gate) in out.iter_mut().zip(&gate[span]) {
                *out *= silu(gate);
            }
        }
    }
}

per_level! {
    /// out = x · 1/√(Σx² + ε), each row of `x[rows][width]` by itself; `out` like `x`.
    pub fn l2_norm = l2_norm_body(
        x: &[f32],
        width: usize,
        epsilon: f32,
        out: SharedSlice<'_, f32>,
        rows: Range<usize>,
    )
}

#[inline(always)]
unsafe fn l2_norm_body(x: &[f32], width: usize, epsilon: f32, out: SharedSlice<'_, f32>, rows: Range<usize>) {
    for row in rows {
        let span = row * width..(row + 1) * width;
        let x = &x[span.clone()];
        // SAFETY: the row belongs to the caller's work range.
        let out = unsafe { out.part(span) };
        let factor = 1.0 / (sum_of_squares(x) + epsilon).sqrt();
        for (out, &x) in out.iter_mut().zip(x) {
            *out = x * factor;
        }
    }
}
