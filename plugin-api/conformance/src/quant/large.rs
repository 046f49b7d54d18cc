//! Types in blocks of 256 elements with quantised scales for parts of the block.

use super::small::{inverse, level, read_half, write_half};

/// Elements that share a scale and a minimum in Q4_K and Q5_K.
const PART: usize = 32;
/// Where the packed scales begin in Q4_K and Q5_K, behind the two f16 factors.
const SCALES: usize = 4;
/// Where what follows the scales begins.
const AFTER_SCALES: usize = 16;

/// Scale and minimum of a part, 6 bits each: the first four parts have bytes of their own, the other four are spread
/// over the last bytes and the upper bits of the first.
fn scale_and_minimum(packed: &[u8], part: usize) -> (u8, u8) {
    if part < 4 {
        (packed[part] & 63, packed[part + 4] & 63)
    } else {
        let (both, upper) = (packed[part + 4], [packed[part - 4] >> 6, packed[part] >> 6]);
        ((both & 15) | (upper[0] << 4), (both >> 4) | (upper[1] << 4))
    }
}

/// The reverse of [`scale_and_minimum`]; `packed` is zero for this part.
fn pack_scale_and_minimum(packed: &mut [u8], part: usize, scale: u8, minimum: u8) {
    if part < 4 {
        packed[part] |= scale;
        packed[part + 4] |= minimum;
    } else {
        packed[part + 4] = (scale & 15) | (minimum << 4);
        packed[part - 4] |= (scale >> 4) << 6;
        packed[part] |= (minimum >> 4) << 6;
    }
}

/// Reads Q4_K and Q5_K: `fifth` are 32 bytes whose bit `part` belongs to an element of that part, or empty.
fn read_parts(bytes: &[u8], fifth: &[u8], nibbles: &[u8], out: &mut [f32]) {
    let (scale_unit, minimum_unit) = (read_half(bytes), read_half(&bytes[2..]));
    for (part, values) in out.chunks_exact_mut(PART).enumerate() {
        let (scale, minimum) = scale_and_minimum(&bytes[SCALES..], part);
        let (scale, minimum) = (scale_unit * f32::from(scale), minimum_unit * f32::from(minimum));
        // Two parts share 32 bytes: the lower nibbles are the first of them.
        let nibbles = &nibbles[part / 2 * PART..];
        for (i, value) in values.iter_mut().enumerate() {
            let nibble = if part % 2 == 0 { nibbles[i] & 15 } else { nibbles[i] >> 4 };
            let upper = fifth.get(i).map_or(0, |bits| (bits >> part) & 1);
            *value = scale * f32::from(nibble | (upper << 4)) - minimum;
        }
    }
}

/// Chooses scales and minima for levels from 0 to `top`, writes them, and hands out the level of every element.
fn write_parts(values: &[f32], bytes: &mut [u8], top: i32, mut set: impl FnMut(&mut [u8], usize, u8)) {
    let wanted: Vec<(f32, f32)> = values
        .chunks_exact(PART)
        .map(|part| {
            // A minimum is subtracted and cannot be negative, so the range always includes 0.
            let low = part.iter().copied().fold(0.0, f32::min);
            let high = part.iter().copied().fold(0.0, f32::max);
            ((high - low) / top as f32, -low)
        })
        .collect();
    let widest = wanted.iter().fold((0.0f32, 0.0f32), |(s, m), w| (s.max(w.0), m.max(w.1)));
    let scale_unit = write_half(widest.0 / 63.0, bytes);
    let minimum_unit = write_half(widest.1 / 63.0, &mut bytes[2..]);
    bytes[SCALES..AFTER_SCALES].fill(0);
    for (part, (values, (scale, minimum))) in values.chunks_exact(PART).zip(wanted).enumerate() {
        // Rounded up, so that the part's extremes stay inside of its levels.
        let scale = level((scale * inverse(scale_unit)).ceil(), 0, 63);
        let minimum = level(minimum * inverse(minimum_unit), 0, 63);
        pack_scale_and_minimum(&mut bytes[SCALES..], part, scale as u8, minimum as u8);
        let (factor, offset) = (inverse(scale_unit * scale as f32), minimum_unit * minimum as f32);
        for (i, value) in values.iter().enumerate() {
            set(bytes, part * PART + i, level((value + offset) * factor, 0, top) as u8);
        }
    }
}

/// Puts the lower 4 bits of an element's level in its nibble.
fn set_nibble(nibbles: &mut [u8], element: usize, level: u8) {
    let (part, i) = (element / PART, element % PART);
    let byte = &mut nibbles[part / 2 * PART + i];
    // The first part of a pair is written before the second.
    *byte = if part.is_multiple_of(2) { level & 15 } else { *byte | ((level & 15) << 4) };
}

/// f16 unit of scales, f16 unit of minima, 12 bytes of scales and minima, 128 bytes of nibbles.
pub fn read_q4_k(bytes: &[u8], out: &mut [f32]) {
    read_parts(bytes, &[], &bytes[AFTER_SCALES..], out);
}

pub fn write_q4_k(values: &[f32], bytes: &mut [u8]) {
    write_parts(values, bytes, 15, |bytes, i, q| set_nibble(&mut bytes[AFTER_SCALES..], i, q));
}

/// As Q4_K with 32 bytes of fifth bits before the nibbles.
pub fn read_q5_k(bytes: &[u8], out: &mut [f32]) {
    let (fifth, nibbles) = bytes[AFTER_SCALES..].split_at(PART);
    read_parts(bytes, fifth, nibbles, out);
}

pub fn write_q5_k(values: &[f32], bytes: &mut [u8]) {
    bytes[AFTER_SCALES..AFTER_SCALES + PART].fill(0);
    write_parts(values, bytes, 31, |bytes, i, q| {
        let (fifth, nibbles) = bytes[AFTER_SCALES..].split_at_mut(PART);
        fifth[i % PART] |= (q >> 4) << (i / PART);
        set_nibble(nibbles, i, q);
    });
}

/// Elements that share a scale in Q6_K.
const SIXTEENTH: usize = 16;
const Q6_UPPER: usize = 128;
const Q6_SCALES: usize = 192;
const Q6_UNIT: usize = 208;

/// Where the lower 4 and the upper 2 bits of an element of Q6_K are: byte and shift of each.
fn q6_place(element: usize) -> [(usize, u32); 2] {
    // Each half of the block has 64 bytes of nibbles, used twice, and 32 bytes of pairs of bits, used four times.
    let (half, quarter, i) = (element / 128, element / 32 % 4, element % 32);
    let nibble = (64 * half + 32 * (quarter % 2) + i, 4 * (quarter as u32 / 2));
    [nibble, (Q6_UPPER + 32 * half + i, 2 * quarter as u32)]
}

/// 128 bytes of nibbles, 64 bytes of upper bits, 16 signed scales, f16 unit of scales; levels are centred at 32.
pub fn read_q6_k(bytes: &[u8], out: &mut [f32]) {
    let unit = read_half(&bytes[Q6_UNIT..]);
    for (element, value) in out.iter_mut().enumerate() {
        let [(low, low_shift), (high, high_shift)] = q6_place(element);
        let q = ((bytes[low] >> low_shift) & 15) | (((bytes[high] >> high_shift) & 3) << 4);
        let scale = bytes[Q6_SCALES + element / SIXTEENTH] as i8;
        *value = unit * f32::from(scale) * (f32::from(q) - 32.0);
    }
}

pub fn write_q6_k(values: &[f32], bytes: &mut [u8]) {
    bytes[..Q6_SCALES].fill(0);
    let wanted: Vec<f32> = values
        .chunks_exact(SIXTEENTH)
        .map(|part| part.iter().fold(0.0f32, |a, v| a.max(v.abs())) / 31.0)
        .collect();
    let unit = write_half(wanted.iter().copied().fold(0.0, f32::max) / 127.0, &mut bytes[Q6_UNIT..]);
    for (element, value) in values.iter().enumerate() {
        let part = element / SIXTEENTH;
        let scale = level((wanted[part] * inverse(unit)).ceil(), 0, 127);
        bytes[Q6_SCALES + part] = scale as u8;
        let q = level(value * inverse(unit * scale as f32), -32, 31) + 32;
        let [(low, low_shift), (high, high_shift)] = q6_place(element);
        bytes[low] |= (q as u8 & 15) << low_shift;
        bytes[high] |= (q as u8 >> 4) << high_shift;
    }
}
