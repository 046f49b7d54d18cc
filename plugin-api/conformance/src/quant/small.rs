//! Plain types, and types in blocks of 32 elements.

use half::{bf16, f16};

/// Elements of a block of the quantised types here.
const BLOCK: usize = 32;

pub fn read_half(bytes: &[u8]) -> f32 {
    f16::from_le_bytes([bytes[0], bytes[1]]).to_f32()
}

/// Stores `value` as f16 and returns what will be read back.
pub fn write_half(value: f32, bytes: &mut [u8]) -> f32 {
    let rounded = f16::from_f32(value);
    bytes[..2].copy_from_slice(&rounded.to_le_bytes());
    rounded.to_f32()
}

/// 1/x, and 0 for 0: a block of zeros has scale 0.
pub fn inverse(x: f32) -> f32 {
    if x == 0.0 { 0.0 } else { 1.0 / x }
}

/// Nearest integer of `x` within `low..=high`.
pub fn level(x: f32, low: i32, high: i32) -> i32 {
    (x.round() as i32).clamp(low, high)
}

pub fn read_f32(bytes: &[u8], out: &mut [f32]) {
    out[0] = f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
}

pub fn write_f32(values: &[f32], bytes: &mut [u8]) {
    bytes.copy_from_slice(&values[0].to_le_bytes());
}

pub fn read_f16(bytes: &[u8], out: &mut [f32]) {
    out[0] = read_half(bytes);
}

pub fn write_f16(values: &[f32], bytes: &mut [u8]) {
    write_half(values[0], bytes);
}

pub fn read_bf16(bytes: &[u8], out: &mut [f32]) {
    out[0] = bf16::from_le_bytes([bytes[0], bytes[1]]).to_f32();
}

pub fn write_bf16(values: &[f32], bytes: &mut [u8]) {
    bytes.copy_from_slice(&bf16::from_f32(values[0]).to_le_bytes());
}

/// f16 scale, 32 signed bytes.
pub fn read_q8_0(bytes: &[u8], out: &mut [f32]) {
    let scale = read_half(bytes);
    for (value, &q) in out.iter_mut().zip(&bytes[2..]) {
        *value = scale * f32::from(q as i8);
    }
}

/// The scale is max|x|/127; values are divided by it before it is rounded to f16, halves away from zero.
pub fn write_q8_0(values: &[f32], bytes: &mut [u8]) {
    let scale = largest(values).abs() / 127.0;
    let factor = inverse(scale);
    write_half(scale, bytes);
    for (q, value) in bytes[2..].iter_mut().zip(values) {
        *q = level(value * factor, -127, 127) as i8 as u8;
    }
}

/// The value farthest from 0, with its sign.
fn largest(values: &[f32]) -> f32 {
    values.iter().copied().fold(0.0, |a, b| if b.abs() > a.abs() { b } else { a })
}

fn range(values: &[f32]) -> (f32, f32) {
    values.iter().fold((f32::INFINITY, f32::NEG_INFINITY), |(low, high), &v| (low.min(v), high.max(v)))
}

/// Calls `set(element, level)` for every element of a block: nibbles low half first, with a fifth bit if `high` has
/// any.
fn unpack(nibbles: &[u8], high: u32, mut set: impl FnMut(usize, f32)) {
    for (i, byte) in nibbles.iter().enumerate() {
        let fifth = |element: usize| ((high >> element) & 1) << 4;
        set(i, (u32::from(byte & 15) | fifth(i)) as f32);
        set(i + BLOCK / 2, (u32::from(byte >> 4) | fifth(i + BLOCK / 2)) as f32);
    }
}

/// The reverse of [`unpack`]; returns the fifth bits.
fn pack(nibbles: &mut [u8], get: impl Fn(usize) -> i32) -> u32 {
    let mut high = 0;
    for (i, byte) in nibbles.iter_mut().enumerate() {
        let (low_half, high_half) = (get(i) as u32, get(i + BLOCK / 2) as u32);
        *byte = ((low_half & 15) | ((high_half & 15) << 4)) as u8;
        high |= ((low_half >> 4) << i) | ((high_half >> 4) << (i + BLOCK / 2));
    }
    high
}

fn word(bytes: &[u8]) -> u32 {
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

/// f16 scale, 16 bytes of nibbles; levels are centred at 8.
pub fn read_q4_0(bytes: &[u8], out: &mut [f32]) {
    let scale = read_half(bytes);
    unpack(&bytes[2..], 0, |i, q| out[i] = scale * (q - 8.0));
}

pub fn write_q4_0(values: &[f32], bytes: &mut [u8]) {
    // The extreme value gets the level -8, of which there is no positive counterpart.
    let factor = inverse(write_half(largest(values) / -8.0, bytes));
    pack(&mut bytes[2..], |i| level(values[i] * factor, -8, 7) + 8);
}

/// f16 scale, f16 minimum, 16 bytes of nibbles.
pub fn read_q4_1(bytes: &[u8], out: &mut [f32]) {
    let (scale, minimum) = (read_half(bytes), read_half(&bytes[2..]));
    unpack(&bytes[4..], 0, |i, q| out[i] = scale * q + minimum);
}

pub fn write_q4_1(values: &[f32], bytes: &mut [u8]) {
    let (low, high) = range(values);
    let factor = inverse(write_half((high - low) / 15.0, bytes));
    let minimum = write_half(low, &mut bytes[2..]);
    pack(&mut bytes[4..], |i| level((values[i] - minimum) * factor, 0, 15));
}

/// f16 scale, 32 fifth bits, 16 bytes of nibbles; levels are centred at 16.
pub fn read_q5_0(bytes: &[u8], out: &mut [f32]) {
    let scale = read_half(bytes);
    unpack(&bytes[6..], word(&bytes[2..]), |i, q| out[i] = scale * (q - 16.0));
}

pub fn write_q5_0(values: &[f32], bytes: &mut [u8]) {
    let factor = inverse(write_half(largest(values) / -16.0, bytes));
    let high = pack(&mut bytes[6..], |i| level(values[i] * factor, -16, 15) + 16);
    bytes[2..6].copy_from_slice(&high.to_le_bytes());
}

/// f16 scale, f16 minimum, 32 fifth bits, 16 bytes of nibbles.
pub fn read_q5_1(bytes: &[u8], out: &mut [f32]) {
    let (scale, minimum) = (read_half(bytes), read_half(&bytes[2..]));
    unpack(&bytes[8..], word(&bytes[4..]), |i, q| out[i] = scale * q + minimum);
}

pub fn write_q5_1(values: &[f32], bytes: &mut [u8]) {
    let (low, high) = range(values);
    let factor = inverse(write_half((high - low) / 31.0, bytes));
    let minimum = write_half(low, &mut bytes[2..]);
    let fifth = pack(&mut bytes[8..], |i| level((values[i] - minimum) * factor, 0, 31));
    bytes[4..8].copy_from_slice(&fifth.to_le_bytes());
}
