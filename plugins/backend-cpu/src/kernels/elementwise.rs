//! Operations on single elements. Work ranges count elements of the output.

use super::SharedSlice;
use super::math;
use core::ops::Range;

/// A function of one number, see [`math`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// The number itself.
    Identity,
    /// x · sigmoid(x).
    Silu,
    /// x · Φ(x).
    Gelu,
    /// The tanh form of [`Activation::Gelu`].
    GeluTanh,
    /// 1 / (1 + e⁻ˣ).
    Sigmoid,
    /// ln(1 + eˣ).
    Softplus,
    /// Hyperbolic tangent.
    Tanh,
    /// eˣ.
    Exp,
}

per_level! {
    /// out = a + b. The shape of `b` is the last axes of `a`: it repeats over the leading ones.
    pub fn add = add_body(a: &[f32], b: &[f32], out: SharedSlice<'_, f32>, range: Range<usize>)
}

#[inline(always)]
unsafe fn add_body(a: &[f32], b: &[f32], out: SharedSlice<'_, f32>, range: Range<usize>) {
    // SAFETY: the caller's contract is passed on.
    unsafe { repeat_second(a, b, out, range, |a, b| a + b) }
}

per_level! {
    /// out = a · b. The shape of `b` is the last axes of `a`: it repeats over the leading ones.
    pub fn mul = mul_body(a: &[f32], b: &[f32], out: SharedSlice<'_, f32>, range: Range<usize>)
}

#[inline(always)]
unsafe fn mul_body(a: &[f32], b: &[f32], out: SharedSlice<'_, f32>, range: Range<usize>) {
    // SAFETY: the caller's contract is passed on.
    unsafe { repeat_second(a, b, out, range, |a, b| a * b) }
}

per_level! {
    /// out = x · factor.
    pub fn scale = scale_body(x: &[f32], factor: f32, out: SharedSlice<'_, f32>, range: Range<usize>)
}

#[inline(always)]
unsafe fn scale_body(x: &[f32], factor: f32, out: SharedSlice<'_, f32>, range: Range<usize>) {
    // SAFETY: the caller's contract is passed on.
    unsafe { each(x, out, range, |x| x * factor) }
}

per_level! {
    /// out = kind(x), or with a cap kind(cap · tanh(x / cap)): for a capped logit the kind is
    /// [`Activation::Identity`].
    pub fn activation = activation_body(
        kind: Activation,
        cap: Option<f32>,
        x: &[f32],
        out: SharedSlice<'_, f32>,
        range: Range<usize>,
    )
}

#[inline(always)]
unsafe fn activation_body(
    kind: Activation,
    cap: Option<f32>,
    x: &[f32],
    out: SharedSlice<'_, f32>,
    range: Range<usize>,
) {
    // SAFETY: the caller's contract is passed on, in every arm.
    unsafe {
        if let Some(cap) = cap {
            each(x, out, range.clone(), |x| math::softcap(x, cap));
            let out = out.part(range);
            match kind {
                Activation::Identity => {}
                Activation::Silu => each_in_place(out, math::silu),
                Activation::Gelu => each_in_place(out, math::gelu),
                Activation::GeluTanh => each_in_place(out, math::gelu_tanh),
                Activation::Sigmoid => each_in_place(out, math::sigmoid),
                Activation::Softplus => each_in_place(out, math::softplus),
                Activation::Tanh => each_in_place(out, math::tanh),
                Activation::Exp => each_in_place(out, math::exp),
            }
            return;
        }
        match kind {
            Activation::Identity => out.part(range.clone()).copy_from_slice(&x[range]),
            Activation::Silu => each(x, out, range, math::silu),
            Activation::Gelu => each(x, out, range, math::gelu),
            Activation::GeluTanh => each(x, out, range, math::gelu_tanh),
            Activation::Sigmoid => each(x, out, range, math::sigmoid),
            Activation::Softplus => each(x, out, range, math::softplus),
            Activation::Tanh => each(x, out, range, math::tanh),
            Activation::Exp => each(x, out, range, math::exp),
        }
    }
}

per_level! {
    /// out = kind(gate) · up.
    pub fn glu = glu_body(
        kind: Activation,
        gate: &[f32],
        up: &[f32],
        out: SharedSlice<'_, f32>,
        range: Range<usize>,
    )
}

#[inline(always)]
unsafe fn glu_body(
    kind: Activation,
    gate: &[f32],
    up: &[f32],
    out: SharedSlice<'_, f32>,
    range: Range<usize>,
) {
    let (gate, up) = (&gate[range.clone()], &up[range.clone()]);
    // SAFETY: the range is the caller's.
    let out = unsafe { out.part(range) };
    match kind {
        Activation::Identity => pairs(gate, up, out, |g, u| g * u),
        Activation::Silu => pairs(gate, up, out, |g, u| math::silu(g) * u),
        Activation::Gelu => pairs(gate, up, out, |g, u| math::gelu(g) * u),
        Activation::GeluTanh => pairs(gate, up, out, |g, u| math::gelu_tanh(g) * u),
        Activation::Sigmoid => pairs(gate, up, out, |g, u| math::sigmoid(g) * u),
        Activation::Softplus => pairs(gate, up, out, |g, u| math::softplus(g) * u),
        Activation::Tanh => pairs(gate, up, out, |g, u| math::tanh(g) * u),
        Activation::Exp => pairs(gate, up, out, |g, u| math::exp(g) * u),
    }
}

/// `out = f(a, b)` over a range of `a`, `b` repeating.
///
/// # Safety
/// Nobody else touches the range of `out`.
#[inline(always)]
unsafe fn repeat_second(
    a: &[f32],
    b: &[f32],
    out: SharedSlice<'_, f32>,
    range: Range<usize>,
    f: impl Fn(f32, f32) -> f32,
) {
    assert!(!b.is_empty() && a.len().is_multiple_of(b.len()));
    if let [single] = *b {
        // SAFETY: as promised by the caller.
        return unsafe { each(a, out, range, |a| f(a, single)) };
    }
    let mut at = range.start;
    while at < range.end {
        let within = at % b.len();
        let end = range.end.min(at - within + b.len());
        // SAFETY: a part of the caller's range.
        let out = unsafe { out.part(at..end) };
        pairs(&a[at..end], &b[within..within + (end - at)], out, &f);
        at = end;
    }
}

/// `out = f(x)` over a range.
///
/// # Safety
/// Nobody else touches the range of `out`.
#[inline(always)]
unsafe fn each(x: &[f32], out: SharedSlice<'_, f32>, range: Range<usize>, f: impl Fn(f32) -> f32) {
    // SAFETY: as promised by the caller.
    let out = unsafe { out.part(range.clone()) };
    for (out, &x) in out.iter_mut().zip(&x[range]) {
        *out = f(x);
    }
}

#[inline(always)]
fn each_in_place(values: &mut [f32], f: impl Fn(f32) -> f32) {
    for value in values {
        *value = f(*value);
    }
}

#[inline(always)]
fn pairs(a: &[f32], b: &[f32], out: &mut [f32], f: impl Fn(f32, f32) -> f32) {
    for ((out, &a), &b) in out.iter_mut().zip(a).zip(b) {
        *out = f(a, b);
    }
}
