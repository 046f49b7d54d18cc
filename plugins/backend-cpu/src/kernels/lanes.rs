//! Reductions in a fixed order: sixteen partial results, element `i` in lane `i % 16`, combined by
//! one tree. The order depends on the length alone.

/// Number of partial results.
pub(super) const LANES: usize = 16;

/// Adds lane `i + 8` to lane `i`, then `i + 4`, `i + 2`, `i + 1`.
#[inline(always)]
pub(super) fn sum_lanes(mut lanes: [f32; LANES]) -> f32 {
    let mut half = LANES / 2;
    while half > 0 {
        for lane in 0..half {
            lanes[lane] += lanes[lane + half];
        }
        half /= 2;
    }
    lanes[0]
}

/// Largest lane.
#[inline(always)]
pub(super) fn max_lanes(mut lanes: [f32; LANES]) -> f32 {
    let mut half = LANES / 2;
    while half > 0 {
        for lane in 0..half {
            lanes[lane] = larger(lanes[lane], lanes[lane + half]);
        }
        half /= 2;
    }
    lanes[0]
}

/// The larger of two numbers; `a` if either is NaN or both are equal. Unlike `f32::max` it leaves
/// no choice to the compiler.
#[inline(always)]
pub(super) fn larger(a: f32, b: f32) -> f32 {
    if b > a { b } else { a }
}

/// Σ xᵢ².
#[inline(always)]
pub(super) fn sum_of_squares(x: &[f32]) -> f32 {
    let mut lanes = [0.0f32; LANES];
    let mut chunks = x.chunks_exact(LANES);
    for chunk in &mut chunks {
        for lane in 0..LANES {
            lanes[lane] = chunk[lane].mul_add(chunk[lane], lanes[lane]);
        }
    }
    for (lane, &value) in lanes.iter_mut().zip(chunks.remainder()) {
        *lane = value.mul_add(value, *lane);
    }
    sum_lanes(lanes)
}

/// Largest element; -inf if there is none, NaN elements are passed over.
#[inline(always)]
pub(super) fn maximum(x: &[f32]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let mut chunks = x.chunks_exact(LANES);
    for chunk in &mut chunks {
        for lane in 0..LANES {
            lanes[lane] = larger(lanes[lane], chunk[lane]);
        }
    }
    for (lane, &value) in lanes.iter_mut().zip(chunks.remainder()) {
        *lane = larger(*lane, value);
    }
    max_lanes(lanes)
}
