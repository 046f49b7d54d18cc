//! Elementary functions with the same bits at every level.
//!
//! Branch-free, in plain f32 operations, so that loops over them vectorise. Stated errors are
//! against the exact value, in units in the last place of the result (ulp), for results that are
//! not subnormal. NaN gives NaN.

/// Horner's rule with fused multiply-adds; lowest coefficient first.
#[inline(always)]
fn polynomial<const N: usize>(x: f32, coefficients: [f32; N]) -> f32 {
    let mut value = coefficients[N - 1];
    for index in (0..N - 1).rev() {
        value = value.mul_add(x, coefficients[index]);
    }
    value
}

/// 2ⁿ for -126 ≤ n ≤ 127; garbage, but defined, outside.
#[inline(always)]
fn power_of_two(n: i32) -> f32 {
    f32::from_bits((n.wrapping_add(127) as u32) << 23)
}

/// eˣ. At most 1.03 ulp; exp(-inf) = 0, beyond the range 0 or inf.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    // Adding 1.5·2²³ rounds to an integer, found in the low bits.
    const ROUND: f32 = 12_582_912.0;
    // ln 2 in two parts, the first so short that n times it is exact.
    const LN_2_HIGH: f32 = 355.0 / 512.0;
    const LN_2_LOW: f32 = -2.121_944_4e-4;
    // Minimax for (eʳ - 1 - r) / r² on |r| ≤ ln 2 / 2.
    const TAIL: [f32; 5] = [0.499_999_94, 0.166_665_28, 0.041_668_266, 0.008_368_08, 0.001_381_784_2];

    // Outside these bounds the result is 0 or inf anyway; NaN passes both comparisons.
    let x = if x > 89.0 { 89.0 } else { x };
    let x = if x < -104.0 { -104.0 } else { x };
    let rounded = x.mul_add(core::f32::consts::LOG2_E, ROUND);
    let whole = rounded - ROUND;
    let r = whole.mul_add(-LN_2_LOW, whole.mul_add(-LN_2_HIGH, x));
    let fraction = (r * r).mul_add(polynomial(r, TAIL), r) + 1.0;
    let n = rounded.to_bits().wrapping_sub(ROUND.to_bits()) as i32;
    // Two steps, since 2ⁿ itself may lie outside the range of f32.
    let first = n >> 1;
    fraction * power_of_two(first) * power_of_two(n.wrapping_sub(first))
}

/// ln(1 + x) for 0 ≤ x ≤ 1. At most 2 ulp.
#[inline(always)]
pub fn log1p(x: f32) -> f32 {
    // ln(1 + x) = 2·artanh(s), s = x / (2 + x); minimax for (artanh(s)/s - 1)/s² on s² ≤ 1/9.
    const SERIES: [f32; 5] = [0.333_333_38, 0.199_994_44, 0.143_082_98, 0.107_153_7, 0.121_447_79];
    let s = x / (2.0 + x);
    let square = s * s;
    let double = s + s;
    double.mul_add(square * polynomial(square, SERIES), double)
}

/// ln(1 + eˣ). At most 3 ulp.
#[inline(always)]
pub fn softplus(x: f32) -> f32 {
    let positive = if x > 0.0 { x } else { 0.0 };
    positive + log1p(exp(-x.abs()))
}

/// 1 / (1 + e⁻ˣ). At most 3 ulp.
#[inline(always)]
pub fn sigmoid(x: f32) -> f32 {
    // The exponential of a negative number, so that small results keep their precision.
    let small = exp(-x.abs());
    let numerator = if x >= 0.0 { 1.0 } else { small };
    numerator / (1.0 + small)
}

/// x · sigmoid(x). At most 4 ulp for x > -87.
#[inline(always)]
pub fn silu(x: f32) -> f32 {
    // Beyond the bound sigmoid is 0; without it -inf would give NaN.
    let bounded = if x < -200.0 { -200.0 } else { x };
    bounded * sigmoid(bounded)
}

/// Hyperbolic tangent. At most 2 ulp.
#[inline(always)]
pub fn tanh(x: f32) -> f32 {
    // Minimax for (tanh(x)/x - 1)/x² on x² ≤ 0.4.
    const SERIES: [f32; 6] =
        [-0.333_333_3, 0.133_331_92, -0.053_944_89, 0.021_690_154, -0.008_150_698, 0.002_118_018_4];
    let size = x.abs();
    let square = size * size;
    let near = size.mul_add(square * polynomial(square, SERIES), size);
    let far = 1.0 - 2.0 / (exp(size + size) + 1.0);
    (if size < 0.625 { near } else { far }).copysign(x)
}

/// cap · tanh(x / cap).
#[inline(always)]
pub fn softcap(x: f32, cap: f32) -> f32 {
    cap * tanh(x / cap)
}

/// x · Φ(x), Φ the normal distribution (the erf form). At most 8 ulp for x > -13.
#[inline(always)]
pub fn gelu(x: f32) -> f32 {
    // Minimax for Φ(-a)·exp(a²/2) in t = 1 / (1 + 0.3·a), 0 ≤ a ≤ 14.5.
    const TAIL: [f32; 11] = [
        7.068_090_6e-7,
        0.119_670_32,
        0.119_735_71,
        0.109_301_05,
        0.081_753_57,
        0.088_151_49,
        -0.066_644_93,
        0.178_245_78,
        -0.219_082_37,
        0.108_888,
        -0.020_019_335,
    ];
    let size = x.abs();
    // Further out Φ(-a) is 0 in f32.
    let size = if size > 14.5 { 14.5 } else { size };
    let square = size * size;
    // What rounding took off the square matters, since it stands in an exponent.
    let lost = size.mul_add(size, -square);
    let bell = exp(-0.5 * square);
    let bell = (-0.5 * lost).mul_add(bell, bell);
    let tail = bell * polynomial(1.0 / size.mul_add(0.3, 1.0), TAIL);
    if x < 0.0 { -size * tail } else { x * (1.0 - tail) }
}

/// x/2 · (1 + tanh(√(2/π)·(x + 0.044715·x³))). Absolute error at most 2⁻²² · max(1, |x|).
#[inline(always)]
pub fn gelu_tanh(x: f32) -> f32 {
    // (1 + tanh y)/2 = sigmoid(2y); 2·√(2/π) and 0.044715 times that.
    const LINEAR: f32 = 1.595_769;
    const CUBIC: f32 = 0.071_354_814;
    // Beyond the bound the result is 0; without it -inf would give NaN.
    let x = if x < -20.0 { -20.0 } else { x };
    x * sigmoid(x * (x * x).mul_add(CUBIC, LINEAR))
}
