//! The values of canonical rows: what a weight *is*, in `f32`.

use half::{bf16, f16};

use super::{WeightError, WeightType, canonical_bytes, check_length};

/// Writes the values of one canonical row into `out`, whose length is the row's `k`.
///
/// With every product and difference rounded to `f32` in the order written:
/// - Q8_0: `quant * d`
/// - Q4_0: `(nibble - 8) * d`
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
