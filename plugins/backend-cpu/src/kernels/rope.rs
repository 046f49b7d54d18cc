//! Rotary position embedding.

use super::SharedSlice;
use core::ops::Range;

/// Frequencies of the rotated pairs: base^(-2i / rotary) / divisor for pair i, in f64.
pub struct RopeFrequencies {
    frequencies: Vec<f64>,
}

impl RopeFrequencies {
    /// The frequencies of `rotary` dimensions, an even number.
    pub fn new(rotary: usize, base: f64, divisor: f64) -> Self {
        let frequency = |pair: usize| base.powf(-2.0 * pair as f64 / rotary as f64) / divisor;
        Self { frequencies: (0..rotary / 2).map(frequency).collect() }
    }

    /// Number of pairs.
    pub fn pairs(&self) -> usize {
        self.frequencies.len()
    }

    /// Cosines and sines of the angles of one position, made in f64 and rounded once. Each angle is divided by its
    /// factor, if there are any.
    pub fn angles(&self, position: i32, factors: Option<&[f32]>, cosines: &mut [f32], sines: &mut [f32]) {
        let position = f64::from(position);
        let pairs = self.frequencies.iter().zip(cosines).zip(sines);
        for (pair, ((frequency, cosine), sine)) in pairs.enumerate() {
            let angle = match factors {
                Some(factors) => position * frequency / f64::from(factors[pair]),
                None => position * frequency,
            };
            let (s, c) = angle.sin_cos();
            (*cosine, *sine) = (c as f32, s as f32);
        }
    }
}

/// Which dimensions of a head turn together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RopePairing {
    /// i and i + rotary/2 (NeoX).
    Halves,
    /// 2i and 2i + 1.
    Adjacent,
}

/// Inputs of [`rope`].
#[derive(Clone, Copy)]
pub struct Rope<'a> {
    /// Input `[rows][heads][width]`.
    pub x: &'a [f32],
    /// Heads per row.
    pub heads: usize,
    /// Length of a head, at least twice the pairs.
    pub width: usize,
    /// Rotated pairs of a head.
    pub pairs: usize,
    /// Cosines `[rows][pairs]`.
    pub cosines: &'a [f32],
    /// Sines `[rows][pairs]`.
    pub sines: &'a [f32],
    /// Pairing.
    pub pairing: RopePairing,
}

per_level! {
    /// Turns each pair (a, b) into (a·cos - b·sin, a·sin + b·cos); the rest of a head passes through.
    /// Work items are heads: item = row · heads + head. `out` like `x`.
    pub fn rope = rope_body(work: &Rope<'_>, out: SharedSlice<'_, f32>, items: Range<usize>)
}

#[inline(always)]
unsafe fn rope_body(work: &Rope<'_>, out: SharedSlice<'_, f32>, items: Range<usize>) {
    let (width, pairs) = (work.width, work.pairs);
    for item in items {
        let span = item * width..(item + 1) * width;
        let x = &work.x[span.clone()];
        // SAFETY: the head belongs to the caller's work range.
        let out = unsafe { out.part(span) };
        let angles = item / work.heads * pairs..(item / work.heads + 1) * pairs;
        let (cosines, sines) = (&work.cosines[angles.clone()], &work.sines[angles]);
        let (turned, rest) = x.split_at(2 * pairs);
        let (out, out_rest) = out.split_at_mut(2 * pairs);
        out_rest.copy_from_slice(rest);
        match work.pairing {
            RopePairing::Halves => {
                let (a, b) = turned.split_at(pairs);
                let (out_a, out_b) = out.split_at_mut(pairs);
                for pair in 0..pairs {
                    (out_a[pair], out_b[pair]) = turn(a[pair], b[pair], cosines[pair], sines[pair]);
                }
            }
            RopePairing::Adjacent => {
                let ends = out.chunks_exact_mut(2).zip(turned.chunks_exact(2));
                for ((out, x), (&cosine, &sine)) in ends.zip(cosines.iter().zip(sines)) {
                    (out[0], out[1]) = turn(x[0], x[1], cosine, sine);
                }
            }
        }
    }
}

#[inline(always)]
fn turn(a: f32, b: f32, cosine: f32, sine: f32) -> (f32, f32) {
    (a.mul_add(cosine, -(b * sine)), a.mul_add(sine, b * cosine))
}
