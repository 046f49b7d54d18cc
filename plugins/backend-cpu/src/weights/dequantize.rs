//! The values of canonical rows: what a weight *is*, in `f32`.

use half::{bf16, f16};

use super::tables::{IQ4_NL, MXFP4};
use super::{WeightError, WeightType, canonical_bytes, check_length};

/// Writes the values of one canonical row into `out`, whose length is the row's `k`.
///
/// With every product and difference rounded to `f32` in the order written:
/// - Q8_0: `quant * d`
/// - Q4_0: `(nibble - 8) * d`
/// - Q4_1, Q5_1: `quant * d + m`
/// - Q5_0: `(quant - 16) * d`
/// - IQ4_NL: `table[nibble] * d`
/// - MXFP4: `table[nibble] * 2^(e - 127)`
/// - Q4_K, Q5_K: `(d * scale) * quant - dmin * minimum`
/// - Q6_K: `(d * scale) * (quant - 32)`
pub fn dequantize_row(kind: WeightType, canonical: &[u8], out: &mut [f32]) -> Result<(), WeightError> {
    check_length("canonical bytes of the row", canonical_bytes(kind, 1, out.len())?, canonical.len())?;
    let layout = kind.layout();
    for (block, out) in canonical.chunks_exact(layout.canonical).zip(out.chunks_exact_mut(layout.block)) {
        match kind {
            WeightType::F32 => out[0] = f32::from_le_bytes([block[0], block[1], block[2], block[3]]),
            WeightType::F16 => out[0] = half_at(block, 0),
            WeightType::Bf16 => out[0] = bf16::from_le_bytes([block[0], block[1]]).to_f32(),
            WeightType::Q8_0 => q8_0(block, out),
            WeightType::Q4_0 => q4_0(block, out),
            WeightType::Q4_1 => q4_1(block, out),
            WeightType::Q5_0 => q5_0(block, out),
            WeightType::Q5_1 => q5_1(block, out),
            WeightType::Iq4Nl => iq4_nl(block, out),
            WeightType::Mxfp4 => mxfp4(block, out),
            WeightType::Q4K => q4_k(block, out),
            WeightType::Q5K => q5_k(block, out),
            WeightType::Q6K => q6_k(block, out),
        }
    }
    Ok(())
}

fn half_at(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

fn q8_0(block: &[u8], out: &mut [f32]) {
    let d = half_at(block, 0);
    for (value, quant) in out.iter_mut().zip(&block[2..]) {
        *value = f32::from(*quant as i8) * d;
    }
}

fn q4_0(block: &[u8], out: &mut [f32]) {
    let d = half_at(block, 0);
    for (i, byte) in block[2..].iter().enumerate() {
        out[i] = f32::from((byte & 15) as i8 - 8) * d;
        out[i + 16] = f32::from((byte >> 4) as i8 - 8) * d;
    }
}

/// Calls `set(element, quant)` for the nibbles of a block of 32, with its fifth bits.
fn each_quant(nibbles: &[u8], fifths: u32, mut set: impl FnMut(usize, u8)) {
    for (i, byte) in nibbles.iter().enumerate() {
        let fifth = |element: usize| ((fifths >> element & 1) << 4) as u8;
        set(i, byte & 15 | fifth(i));
        set(i + 16, byte >> 4 | fifth(i + 16));
    }
}

fn word_at(block: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]])
}

fn q4_1(block: &[u8], out: &mut [f32]) {
    let (d, m) = (half_at(block, 0), half_at(block, 2));
    each_quant(&block[4..], 0, |i, quant| out[i] = f32::from(quant) * d + m);
}

fn q5_0(block: &[u8], out: &mut [f32]) {
    let d = half_at(block, 0);
    each_quant(&block[6..], word_at(block, 2), |i, quant| out[i] = f32::from(quant as i8 - 16) * d);
}

fn q5_1(block: &[u8], out: &mut [f32]) {
    let (d, m) = (half_at(block, 0), half_at(block, 2));
    each_quant(&block[8..], word_at(block, 4), |i, quant| out[i] = f32::from(quant) * d + m);
}

fn iq4_nl(block: &[u8], out: &mut [f32]) {
    let d = half_at(block, 0);
    each_quant(&block[2..], 0, |i, quant| out[i] = f32::from(IQ4_NL[usize::from(quant)]) * d);
}

fn mxfp4(block: &[u8], out: &mut [f32]) {
    // Half the scale as f64, of which no exponent is subnormal.
    let d = f64::from_bits((u64::from(block[0]) + 1023 - 128) << 52);
    each_quant(&block[1..], 0, |i, quant| out[i] = (f64::from(MXFP4[usize::from(quant)]) * d) as f32);
}

/// Scale and minimum (both 6 bits) of a sub-block of Q4_K or Q5_K.
fn scale_and_minimum(bytes: &[u8], sub: usize) -> (u8, u8) {
    if sub < 4 {
        (bytes[sub] & 63, bytes[sub + 4] & 63)
    } else {
        let (low, scale_top, minimum_top) = (bytes[sub + 4], bytes[sub - 4] >> 6, bytes[sub] >> 6);
        (low & 15 | scale_top << 4, low >> 4 | minimum_top << 4)
    }
}

/// Shared by Q4_K and Q5_K: `fifth_bit(i, sub)` is 0 or 1.
fn with_minimum(block: &[u8], nibbles: &[u8], out: &mut [f32], fifth_bit: impl Fn(usize, usize) -> u8) {
    let (d, dmin) = (half_at(block, 0), half_at(block, 2));
    for (sub, out) in out.chunks_exact_mut(32).enumerate() {
        let (scale, minimum) = scale_and_minimum(&block[4..16], sub);
        let (step, offset) = (d * f32::from(scale), dmin * f32::from(minimum));
        for (i, value) in out.iter_mut().enumerate() {
            let nibble = nibbles[sub / 2 * 32 + i] >> (sub % 2 * 4) & 15;
            *value = step * f32::from(nibble + 16 * fifth_bit(i, sub)) - offset;
        }
    }
}

fn q4_k(block: &[u8], out: &mut [f32]) {
    with_minimum(block, &block[16..], out, |_, _| 0);
}

fn q5_k(block: &[u8], out: &mut [f32]) {
    with_minimum(block, &block[48..], out, |i, sub| block[16 + i] >> sub & 1);
}

fn q6_k(block: &[u8], out: &mut [f32]) {
    let d = half_at(block, 208);
    let (low, high, scales) = (&block[..128], &block[128..192], &block[192..208]);
    for (element, value) in out.iter_mut().enumerate() {
        let (half, quarter, i) = (element / 128, element / 32 % 4, element % 32);
        let nibble = low[64 * half + 32 * (quarter % 2) + i] >> (quarter / 2 * 4) & 15;
        let pair = high[32 * half + i] >> (2 * quarter) & 3;
        let quant = (nibble | pair << 4) as i8 - 32;
        *value = d * f32::from(scales[element / 16] as i8) * f32::from(quant);
    }
}
