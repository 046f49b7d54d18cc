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
    let chance = |column: usize| {
        let token = tokens.and_then(|tokens| tokens.get(column)).map_or(column as u32, |&token| token as u32);
        uniform_f32(noise.key, token)
    };
    let score = |scaled: f32, u: f32| scaled - (-u.ln()).ln();
    let mut index = find(x, largest);
    let mut best = score(largest * noise.factor, chance(index));
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
            let u = chance(column);
            // It wins if -ln u is below e^(scaled - best), and -ln u is at least 1 - u: few need logarithms.
            if 1.0 - u > power_above(scaled - best) {
                continue;
            }
            let own = score(scaled, u);
            if own > best || (own == best && column < index) {
                (best, index) = (own, column);
            }
        }
    }
    (index as i32, 0)
}

/// A power of two that is more than e^x, for x that is finite and not far from 0.
#[inline(always)]
fn power_above(x: f32) -> f32 {
    let exponent = (x * std::f32::consts::LOG2_E).floor() + 2.0;
    f32::from_bits(((exponent.clamp(-126.0, 127.0) + 127.0) as u32) << 23)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_power_is_above_and_near() {
        for step in -4000..400 {
            let x = step as f32 / 100.0;
            let bound = f64::from(power_above(x));
            assert!(bound > f64::from(x).exp() && bound <= 4.0 * f64::from(x).exp(), "{x} {bound}");
        }
    }
}
