//! Functions of one number, in f64.

use std::f64::consts::{FRAC_2_SQRT_PI, PI, SQRT_2};

/// 1/(1 + e^-x).
pub fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// x · sigmoid(x).
pub fn silu(x: f64) -> f64 {
    // For large negative x the product would be -inf · 0.
    if x == f64::NEG_INFINITY { 0.0 } else { x * sigmoid(x) }
}

/// ln(1 + e^x).
pub fn softplus(x: f64) -> f64 {
    // Written so that e^x does not overflow.
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

/// x · Φ(x), with the distribution function of the normal distribution.
pub fn gelu(x: f64) -> f64 {
    0.5 * x * complementary_error(-x / SQRT_2)
}

/// The usual approximation of [`gelu`] by a hyperbolic tangent.
pub fn gelu_tanh(x: f64) -> f64 {
    0.5 * x * (1.0 + ((2.0 / PI).sqrt() * (x + 0.044_715 * x * x * x)).tanh())
}

/// erfc(x) = 1 - erf(x).
fn complementary_error(x: f64) -> f64 {
    if x < 0.0 {
        return 2.0 - complementary_error(-x);
    }
    if x < 2.5 {
        // Taylor series of erf: 2/√π Σ (-1)^n x^(2n+1) / (n! (2n+1)).
        let (mut power, mut sum) = (x, x);
        for n in 1..80 {
            power *= -x * x / f64::from(n);
            sum += power / f64::from(2 * n + 1);
        }
        return 1.0 - FRAC_2_SQRT_PI * sum;
    }
    // Continued fraction e^-x²/√π / (x + (1/2)/(x + (2/2)/(x + (3/2)/(x + ...)))), from the inside out.
    let inner = (1..=60).rev().fold(x, |tail, n| x + f64::from(n) / 2.0 / tail);
    (-x * x).exp() / PI.sqrt() / inner
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_from_tables() {
        let near = |a: f64, b: f64| assert!((a - b).abs() <= 1e-12 * b.abs().max(1e-3), "{a} is not {b}");
        near(complementary_error(0.5), 0.479_500_122_186_953_5);
        near(complementary_error(2.0), 0.004_677_734_981_047_266);
        near(complementary_error(3.0), 2.209_049_699_858_544e-5);
        near(complementary_error(-1.0), 1.842_700_792_949_715);
        near(gelu(1.0), 0.841_344_746_068_542_9);
        near(softplus(0.0), std::f64::consts::LN_2);
        near(softplus(800.0), 800.0);
        near(sigmoid(0.0), 0.5);
        near(silu(1.0), 0.731_058_578_630_004_9);
        assert_eq!((silu(-800.0), silu(f64::NEG_INFINITY)), (0.0, 0.0));
    }

    #[test]
    fn both_forms_of_erfc_meet() {
        let (below, above) = (complementary_error(2.5 - 1e-12), complementary_error(2.5));
        assert!((below - above).abs() < 1e-12);
    }
}
