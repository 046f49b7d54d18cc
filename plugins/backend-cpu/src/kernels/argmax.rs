//! Index of the largest element of each row.

use super::SharedSlice;
use super::lanes::{LANES, larger, max_lanes};
use core::ops::Range;

/// Elements compared before looking where in them the maximum stands.
const STRIDE: usize = 64;

per_level! {
    /// `ids[row]` = index of the largest element of row `row` of `x[rows][width]`, the lowest one
    /// of equals. `nans[row]` = number of NaN elements in it; if there are any the id is -1.
    pub fn argmax = argmax_body(
        x: &[f32],
        width: usize,
        ids: SharedSlice<'_, i32>,
        nans: SharedSlice<'_, u32>,
        rows: Range<usize>,
    )
}

#[inline(always)]
unsafe fn argmax_body(
    x: &[f32],
    width: usize,
    ids: SharedSlice<'_, i32>,
    nans: SharedSlice<'_, u32>,
    rows: Range<usize>,
) {
    for row in rows {
        let x = &x[row * width..(row + 1) * width];
        let (maximum, nan_count) = scan(x);
        let id = if nan_count > 0 { -1 } else { find(x, maximum) as i32 };
        // SAFETY: the row belongs to the caller's work range.
        unsafe {
            ids.part(row..row + 1)[0] = id;
            nans.part(row..row + 1)[0] = nan_count;
        }
    }
}

/// Largest element and number of NaN.
#[inline(always)]
pub(super) fn scan(x: &[f32]) -> (f32, u32) {
    let mut best = [f32::NEG_INFINITY; LANES];
    let mut nans = [0u32; LANES];
    let mut chunks = x.chunks_exact(LANES);
    for chunk in &mut chunks {
        for lane in 0..LANES {
            best[lane] = larger(best[lane], chunk[lane]);
            nans[lane] = nans[lane].wrapping_add(u32::from(chunk[lane].is_nan()));
        }
    }
    for (lane, &value) in chunks.remainder().iter().enumerate() {
        best[lane] = larger(best[lane], value);
        nans[lane] = nans[lane].wrapping_add(u32::from(value.is_nan()));
    }
    (max_lanes(best), nans.iter().sum())
}

/// First index of `value`; 0 if it is nowhere, which happens only in an empty row.
#[inline(always)]
pub(super) fn find(x: &[f32], value: f32) -> usize {
    for (index, chunk) in x.chunks(STRIDE).enumerate() {
        // Without an early exit, so that the comparison of a chunk vectorises.
        if chunk.iter().fold(false, |found, &element| found | (element == value)) {
            let within = chunk.iter().position(|&element| element == value);
            return index * STRIDE + within.unwrap_or(0);
        }
    }
    0
}
