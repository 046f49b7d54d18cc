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

/// Σ aᵢ·bᵢⱼ for `N` vectors `b` at once; each sum has the bits of `N = 1`.
#[inline(always)]
pub(super) fn dots<const N: usize>(a: &[f32], b: [&[f32]; N]) -> [f32; N] {
    // Equal lengths, said in a way that drops the checks inside the loop.
    let b = b.map(|vector| &vector[..a.len()]);
    let (whole, rest) = a.as_chunks::<LANES>();
    let whole_of = b.map(|vector| &vector.as_chunks::<LANES>().0[..whole.len()]);
    let mut lanes = [[0.0f32; LANES]; N];
    for (index, left) in whole.iter().enumerate() {
        for n in 0..N {
            let right = &whole_of[n][index];
            for lane in 0..LANES {
                lanes[n][lane] = left[lane].mul_add(right[lane], lanes[n][lane]);
            }
        }
    }
    for (lanes, vector) in lanes.iter_mut().zip(b) {
        for ((lane, &left), &right) in lanes.iter_mut().zip(rest).zip(&vector[a.len() - rest.len()..]) {
            *lane = left.mul_add(right, *lane);
        }
    }
    lanes.map(sum_lanes)
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
