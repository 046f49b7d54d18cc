//! A token of each row of logits, drawn with the row's noise.

use super::argmax::{find, scan};
use paceline_plugin_api::graph::noise::{Noise, uniform_f32};

/// Elements that are looked at together.
const STRIDE: usize = 64;

per_level! {
    /// The index of a token of the row `x` that is drawn with the noise, and the number of NaN elements; if there are any the
    /// index is -1. `tokens` are those of the columns; none if they are their indices.
    pub fn draw = draw_body(x: &[f32], noise: Noise, tokens: Option<&[i32]>) -> (i32, u32)
}

#[inline(always)]
unsafe fn draw_body(x: &[f32], noise: Noise, tokens: Option<&[i32]>) -> (i32, u32) {
    let (largest, nans) = scan(x);
    if nans > 0 {
        return (-1, nans);
    }
    if !noise.draws() || !largest.is_finite() {
        return (find(x, largest) as i32, 0);
    }
    let least = largest * noise.factor - noise.floor;
    let (mut best, mut index) = (f32::NEG_INFINITY, 0);
    for (group, first) in x.chunks(STRIDE).zip((0..).step_by(STRIDE)) {
        // Few groups have a candidate. Without an early exit, so that the comparison vectorises.
        if !group.iter().fold(false, |found, &logit| found | (logit * noise.factor >= least)) {
            continue;
        }
        for (column, &logit) in (first..).zip(group) {
            let scaled = logit * noise.factor;
            if scaled < least {
                continue;
            }
            let token =
                tokens.and_then(|tokens| tokens.get(column)).map_or(column as u32, |&token| token as u32);
            let score = scaled - (-uniform_f32(noise.key, token).ln()).ln();
            if score > best {
                (best, index) = (score, column);
            }
        }
    }
    (index as i32, 0)
}
