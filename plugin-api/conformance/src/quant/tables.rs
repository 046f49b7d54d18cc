//! Types whose 4-bit levels stand in a table. Blocks of 32, nibbles as in Q4_0: low halves first.

use super::small::{inverse, read_half, write_half};

/// Levels of IQ4_NL: the quantiles of a bell curve, in units of the scale.
const IQ4_NL: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];
/// Levels of MXFP4: the floats of sign, two bits of exponent and one of mantissa (OCP Microscaling Formats, E2M1).
const E2M1: [f32; 16] =
    [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0];
/// The largest of them.
const E2M1_MAX: f32 = 6.0;
/// What E8M0 takes off its exponent.
const E8M0_BIAS: i32 = 127;

fn read(nibbles: &[u8], out: &mut [f32], level: impl Fn(u8) -> f32) {
    for (i, byte) in nibbles.iter().enumerate() {
        out[i] = level(byte & 15);
        out[i + 16] = level(byte >> 4);
    }
}

/// Chooses the nearest level for each value; the first of two that are as near.
fn write(values: &[f32], nibbles: &mut [u8], level: impl Fn(u8) -> f32) {
    let nearest = |value: f32| {
        let distance = |nibble: u8| (level(nibble) - value).abs();
        (1..16).fold(0, |best, nibble| if distance(nibble) < distance(best) { nibble } else { best })
    };
    for (i, byte) in nibbles.iter_mut().enumerate() {
        *byte = nearest(values[i]) | nearest(values[i + 16]) << 4;
    }
}

/// f16 scale, 16 bytes of nibbles.
pub fn read_iq4_nl(bytes: &[u8], out: &mut [f32]) {
    let scale = read_half(bytes);
    read(&bytes[2..], out, |nibble| scale * f32::from(IQ4_NL[usize::from(nibble)]));
}

/// The value farthest from 0 becomes the level -127, by the sign of the scale.
pub fn write_iq4_nl(values: &[f32], bytes: &mut [u8]) {
    let farthest = values.iter().copied().fold(0.0f32, |a, b| if b.abs() > a.abs() { b } else { a });
    let factor = inverse(write_half(farthest / f32::from(IQ4_NL[0]), bytes));
    let scaled: Vec<f32> = values.iter().map(|value| value * factor).collect();
    write(&scaled, &mut bytes[2..], |nibble| f32::from(IQ4_NL[usize::from(nibble)]));
}

/// Scale 2^(e - 127) as one byte e, 16 bytes of nibbles.
pub fn read_mxfp4(bytes: &[u8], out: &mut [f32]) {
    let scale = 2.0f64.powi(i32::from(bytes[0]) - E8M0_BIAS);
    read(&bytes[1..], out, |nibble| (scale * f64::from(E2M1[usize::from(nibble)])) as f32);
}

/// The smallest power of two with which the largest magnitude is not cut by more than a rounding.
pub fn write_mxfp4(values: &[f32], bytes: &mut [u8]) {
    let largest = values.iter().fold(0.0f32, |a, b| a.max(b.abs()));
    let exponent = if largest > 0.0 { (largest / E2M1_MAX).log2().ceil() as i32 } else { -E8M0_BIAS };
    let byte = (exponent + E8M0_BIAS).clamp(0, 254);
    bytes[0] = byte as u8;
    let scale = 2.0f64.powi(byte - E8M0_BIAS);
    let scaled: Vec<f32> = values.iter().map(|&value| (f64::from(value) / scale) as f32).collect();
    write(&scaled, &mut bytes[1..], |nibble| E2M1[usize::from(nibble)]);
}
