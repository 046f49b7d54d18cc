//! Cells of 4 and 5 bits per element: groups of 32 as in files of these types.
//!
//! A group is `d` as f16, then `m` as f16 where the type has a minimum, then 4 bytes of fifth bits where it has them
//! (bit i belongs to element i), then 16 bytes whose low nibbles are elements 0..16 and high nibbles 16..32.
//! `element = d · (quant - centre)`, or `d · quant + m`.

use super::kv::GROUP;
use half::f16;

/// What a group of such a type has.
#[derive(Clone, Copy)]
pub(super) struct Group {
    /// A minimum; else quants lie around the middle of their range.
    pub minimum: bool,
    /// Fifth bits.
    pub fifth: bool,
}

impl Group {
    /// Bytes of a group.
    pub const fn bytes(self) -> usize {
        2 + if self.minimum { 2 } else { 0 } + if self.fifth { 4 } else { 0 } + GROUP / 2
    }

    const fn largest_quant(self) -> u8 {
        if self.fifth { 31 } else { 15 }
    }
}

/// x · factor + offset to the nearest integer of 0..=largest; NaN becomes 0.
#[inline(always)]
fn quant(x: f32, factor: f32, offset: f32, largest: f32) -> u8 {
    let level = x * factor + offset;
    let level = if level > largest {
        largest
    } else if level > 0.0 {
        level
    } else {
        0.0
    };
    // Adding 1.5·2²³ rounds to an integer, found in the low bits.
    (level + 12_582_912.0).to_bits() as u8
}

#[inline(always)]
fn inverse(x: f32) -> f32 {
    if x == 0.0 { 0.0 } else { 1.0 / x }
}

#[inline(always)]
fn rounded_half(x: f32, bytes: &mut [u8]) -> f32 {
    let half = f16::from_f32(x);
    bytes.copy_from_slice(&half.to_le_bytes());
    half.to_f32()
}

/// Writes the 32 elements of `x`. Without a minimum the element farthest from 0 becomes the lowest quant, of which
/// there is no positive counterpart; with one, the ends of the range are the least and the greatest element.
#[inline(always)]
pub(super) fn encode_group(group: Group, x: &[f32], bytes: &mut [u8]) {
    let largest = f32::from(group.largest_quant());
    let (factor, shift, offset);
    let rest = if group.minimum {
        let (low, high) = x.iter().fold((f32::INFINITY, f32::NEG_INFINITY), |(low, high), &x| {
            (if x < low { x } else { low }, if x > high { x } else { high })
        });
        let (scale, rest) = bytes.split_at_mut(2);
        let (minimum, rest) = rest.split_at_mut(2);
        factor = inverse(rounded_half((high - low) / largest, scale));
        shift = rounded_half(low, minimum);
        offset = 0.0;
        rest
    } else {
        let farthest = x.iter().fold(0.0f32, |a, &b| if b.abs() > a.abs() { b } else { a });
        let centre = (largest + 1.0) / 2.0;
        let (scale, rest) = bytes.split_at_mut(2);
        factor = inverse(rounded_half(farthest / -centre, scale));
        shift = 0.0;
        offset = centre;
        rest
    };
    let mut quants = [0u8; GROUP];
    for (q, &x) in quants.iter_mut().zip(x) {
        *q = quant(x - shift, factor, offset, largest);
    }
    let nibbles = if group.fifth {
        let (fifths, nibbles) = rest.split_at_mut(4);
        let mut bits = 0u32;
        for (i, &q) in quants.iter().enumerate() {
            bits |= u32::from(q >> 4) << i;
        }
        fifths.copy_from_slice(&bits.to_le_bytes());
        nibbles
    } else {
        rest
    };
    for (i, byte) in nibbles.iter_mut().enumerate() {
        *byte = (quants[i] & 15) | (quants[i + GROUP / 2] << 4);
    }
}

#[inline(always)]
fn half_of(bytes: &[u8]) -> f32 {
    f16::from_le_bytes([bytes[0], bytes[1]]).to_f32()
}

/// Reads the 32 elements of a group into `out`. Products of quants and `d` are exact, so a sum with `m` is rounded
/// once at every level.
#[inline(always)]
pub(super) fn decode_group(group: Group, bytes: &[u8], out: &mut [f32]) {
    let d = half_of(bytes);
    let (m, rest) = if group.minimum { (half_of(&bytes[2..]), &bytes[4..]) } else { (0.0, &bytes[2..]) };
    let centre = (u32::from(group.largest_quant()) + 1) as i32 / 2;
    let (fifths, nibbles) = if group.fifth {
        (u32::from_le_bytes([rest[0], rest[1], rest[2], rest[3]]), &rest[4..])
    } else {
        (0, rest)
    };
    let (low, high) = out.split_at_mut(GROUP / 2);
    for i in 0..GROUP / 2 {
        let fifth = |element: usize| (fifths >> element & 1) << 4;
        let byte = u32::from(nibbles[i]);
        let (a, b) = ((byte & 15 | fifth(i)) as i32, (byte >> 4 | fifth(i + GROUP / 2)) as i32);
        // Two formulas, since a sum with 0 would lose the sign of a zero.
        if group.minimum {
            low[i] = a as f32 * d + m;
            high[i] = b as f32 * d + m;
        } else {
            low[i] = (a - centre) as f32 * d;
            high[i] = (b - centre) as f32 * d;
        }
    }
}
