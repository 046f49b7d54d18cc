//! Accuracy of the elementary functions over the whole range of f32, and the same bits everywhere.

mod kernels_support;

use kernels_support::{at_all_levels, bits, filled, halves};
use paceline_backend_cpu::kernels::elementwise::{Activation, activation, glu};
use paceline_backend_cpu::kernels::math;
use paceline_backend_cpu::level::Level;

/// Samples of every exponent and both signs, with the values where something changes.
fn samples() -> Vec<f32> {
    let mut samples: Vec<f32> = (0..1u32 << 18).map(|i| f32::from_bits(i * 16_381)).collect();
    // The interesting exponents once more, closely.
    samples.extend((0..400_000).map(|i| (i - 200_000) as f32 * 5.3e-4));
    samples.extend([0.0, -0.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, f32::MAX, f32::MIN]);
    samples.extend([88.722_84, 88.722_85, -87.336_55, -103.97, -103.98, 0.625, 20.0, -0.625]);
    samples
}

/// Largest error in ulp over samples where the result is normal and `x > from`; also checks that the
/// special values come out as in f64.
fn worst(name: &str, from: f32, f: fn(f32) -> f32, exact: fn(f64) -> f64) -> f64 {
    let mut worst = (0.0, 0.0);
    for x in samples() {
        let expected = exact(f64::from(x));
        let result = f(x);
        if expected.is_nan() {
            assert!(result.is_nan(), "{name}({x}) = {result}");
        } else if expected.abs() > f64::from(f32::MAX) * (1.0 + 1e-7) {
            assert_eq!(f64::from(result), expected.signum() * f64::INFINITY, "{name}({x})");
        } else if expected.abs() < f64::from(f32::MIN_POSITIVE) {
            assert!((f64::from(result) - expected).abs() < 2e-43, "{name}({x}) = {result}");
        } else if x > from {
            let spacing = 2f64.powi(expected.abs().log2().floor() as i32 - 23);
            let error = (f64::from(result) - expected).abs() / spacing;
            if error > worst.0 {
                worst = (error, x);
            }
        }
    }
    println!("{name}: {:.2} ulp at {:?}", worst.0, worst.1);
    worst.0
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

fn silu(x: f64) -> f64 {
    if x == f64::NEG_INFINITY { 0.0 } else { x * sigmoid(x) }
}

/// Φ(-a) for a ≥ 0: a series near zero, a continued fraction beyond.
fn normal_tail(a: f64) -> f64 {
    let density = (-0.5 * a * a).exp() / (2.0 * std::f64::consts::PI).sqrt();
    if a < 3.0 {
        let (mut term, mut sum, mut n) = (a, a, 1.0);
        while term > 1e-18 * sum {
            n += 2.0;
            term *= a * a / n;
            sum += term;
        }
        0.5 - density * sum
    } else {
        density / (a + (1..=300).rev().fold(0.0, |rest, k| f64::from(k) / (a + rest)))
    }
}

fn gelu(x: f64) -> f64 {
    match x {
        f64::NEG_INFINITY => 0.0,
        x if x < 0.0 => x * normal_tail(-x),
        x => x * (1.0 - normal_tail(x)),
    }
}

fn gelu_tanh(x: f64) -> f64 {
    let inner = 2.0 * (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x);
    if x == f64::NEG_INFINITY { 0.0 } else { x * sigmoid(inner) }
}

fn softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p() + if x.is_nan() { x } else { 0.0 }
}

#[test]
fn functions_keep_their_stated_errors() {
    let all = f32::NEG_INFINITY;
    assert!(worst("exp", all, math::exp, f64::exp) <= 1.03);
    assert!(worst("softplus", all, math::softplus, softplus) <= 3.0);
    assert!(worst("sigmoid", all, math::sigmoid, sigmoid) <= 3.0);
    assert!(worst("silu", -87.0, math::silu, silu) <= 4.0);
    assert!(worst("tanh", all, math::tanh, f64::tanh) <= 2.0);
    assert!(worst("gelu", -13.0, math::gelu, gelu) <= 8.0);
}

#[test]
fn log1p_keeps_its_stated_error() {
    let mut worst = 0.0f64;
    for i in 0..=1_000_000 {
        let x = (i as f32 / 1_000_000.0).powi(3);
        let expected = f64::from(x).ln_1p();
        if expected >= f64::from(f32::MIN_POSITIVE) {
            let spacing = 2f64.powi(expected.log2().floor() as i32 - 23);
            worst = worst.max((f64::from(math::log1p(x)) - expected).abs() / spacing);
        }
    }
    println!("log1p: {worst:.2} ulp");
    assert!(worst <= 2.0);
    assert_eq!(math::log1p(0.0), 0.0);
}

#[test]
fn gelu_tanh_keeps_its_stated_error() {
    let mut worst = 0.0f64;
    for x in samples().into_iter().filter(|x| x.is_finite()) {
        let error = (f64::from(math::gelu_tanh(x)) - gelu_tanh(f64::from(x))).abs();
        worst = worst.max(error / f64::from(x).abs().max(1.0));
    }
    println!("gelu_tanh: 2^{:.2}", worst.log2());
    assert!(worst <= 2f64.powi(-22));
    assert_eq!(math::gelu_tanh(f32::INFINITY), f32::INFINITY);
    assert_eq!(math::gelu_tanh(f32::NEG_INFINITY), 0.0);
    assert!(math::gelu_tanh(f32::NAN).is_nan());
}

#[test]
fn special_values() {
    assert_eq!(math::exp(f32::NEG_INFINITY).to_bits(), 0);
    assert_eq!(math::exp(0.0), 1.0);
    assert_eq!(math::silu(f32::NEG_INFINITY), 0.0);
    assert_eq!(math::tanh(f32::INFINITY), 1.0);
    assert_eq!(math::tanh(-0.0).to_bits(), (-0.0f32).to_bits());
    assert_eq!(math::softcap(1e30, 30.0), 30.0);
    assert!((math::softcap(3.0, 30.0) - 30.0 * 0.1f32.tanh()).abs() < 1e-6);
}

type Function = fn(f32) -> f32;

const ACTIVATIONS: [(Activation, Function); 8] = [
    (Activation::Identity, |x| x),
    (Activation::Silu, math::silu),
    (Activation::Gelu, math::gelu),
    (Activation::GeluTanh, math::gelu_tanh),
    (Activation::Sigmoid, math::sigmoid),
    (Activation::Softplus, math::softplus),
    (Activation::Tanh, math::tanh),
    (Activation::Exp, math::exp),
];

#[test]
fn levels_and_splits_agree_on_every_activation() {
    let x: Vec<f32> = samples().into_iter().step_by(37).collect();
    let up: Vec<f32> = x.iter().rev().copied().collect();
    for (kind, f) in ACTIVATIONS {
        for cap in [None, Some(30.0)] {
            let capped = |x: f32| cap.map_or(x, |cap| math::softcap(x, cap));
            let expected: Vec<f32> = x.iter().map(|&x| f(capped(x))).collect();
            let result = at_all_levels(|level| {
                filled(x.len(), |out| {
                    for range in halves(x.len()) {
                        // SAFETY: one thread.
                        unsafe { activation(level, kind, cap, &x, out, range) };
                    }
                })
            });
            assert_eq!(bits(&result), bits(&expected), "{kind:?} {cap:?}");
        }
        let expected: Vec<f32> = x.iter().zip(&up).map(|(&gate, &up)| f(gate) * up).collect();
        for level in Level::available() {
            // SAFETY: one thread.
            let result = filled(x.len(), |out| unsafe { glu(level, kind, &x, &up, out, 0..x.len()) });
            assert_eq!(bits(&result), bits(&expected), "{kind:?} {level}");
        }
    }
}
