//! Blocks of a file: quants and scales, four elements to a word.

use super::{BLOCK, WeightKind};

/// Quants of 32 elements: byte j of word e is the stored quant of element `4 e + j`.
pub(super) type Quants = [u32; 8];

const NIBBLES: u32 = 0x0f0f_0f0f;
const ONES: u32 = 0x0101_0101;

/// The block of a row that holds elements `32 b..32 b + 32`, and which part of it they are.
#[inline(always)]
pub(super) fn locate(kind: WeightKind, b: usize) -> (usize, usize) {
    let parts = kind.block_elements() / BLOCK;
    (b / parts * kind.block_bytes(), b % parts)
}

/// What turns a quant of the file into the stored one and back, for each byte: centred quants become two's complement.
#[inline(always)]
fn flip(kind: WeightKind) -> u32 {
    ONES * match kind {
        WeightKind::Q4_0 => 0x08,
        WeightKind::Q5_0 => 0x10,
        WeightKind::Q6K => 0x20,
        _ => 0,
    }
}

/// Where nibbles of a part lie in the block: byte of element 0, byte of element 16, shift of each.
#[inline(always)]
fn nibbles_at(kind: WeightKind, part: usize) -> [(usize, u32); 2] {
    let both_halves = |at: usize| [(at, 0), (at, 4)];
    let shared = |at: usize, shift: u32| [(at, shift), (at + 16, shift)];
    match kind {
        WeightKind::Q4_0 | WeightKind::Iq4Nl => both_halves(2),
        WeightKind::Q4_1 => both_halves(4),
        WeightKind::Q5_0 => both_halves(6),
        WeightKind::Q5_1 => both_halves(8),
        WeightKind::Mxfp4 => both_halves(1),
        WeightKind::Q4K => shared(16 + 32 * (part / 2), 4 * (part as u32 % 2)),
        WeightKind::Q5K => shared(48 + 32 * (part / 2), 4 * (part as u32 % 2)),
        WeightKind::Q6K => shared(64 * (part / 4) + 32 * (part % 2), 4 * (part as u32 % 4 / 2)),
        _ => unreachable!("{kind} has no nibbles"),
    }
}

#[inline(always)]
fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// ORs a word into bytes.
fn merge(bytes: &mut [u8], at: usize, bits: u32) {
    let merged = word(bytes, at) | bits;
    bytes[at..at + 4].copy_from_slice(&merged.to_le_bytes());
}

/// The stored quants of a part of a block.
#[inline(always)]
pub(super) fn read(kind: WeightKind, block: &[u8], part: usize) -> Quants {
    if kind == WeightKind::Q8_0 {
        return std::array::from_fn(|e| word(block, 2 + 4 * e));
    }
    let places = nibbles_at(kind, part);
    std::array::from_fn(|e| {
        let (at, shift) = places[e / 4];
        let nibbles = (word(block, at + 4 * (e % 4)) >> shift) & NIBBLES;
        let upper = match kind {
            WeightKind::Q5_0 => spread(word(block, 2) >> (4 * e)),
            WeightKind::Q5_1 => spread(word(block, 4) >> (4 * e)),
            WeightKind::Q5K => (word(block, 16 + 4 * e) >> part) & ONES,
            WeightKind::Q6K => (word(block, q6_upper(part) + 4 * e) >> (2 * (part % 4))) & (3 * ONES),
            _ => 0,
        };
        (nibbles | (upper << 4)) ^ flip(kind)
    })
}

/// The reverse of [`read`], on a block whose quants of this part are zero.
pub(super) fn write(kind: WeightKind, block: &mut [u8], part: usize, quants: &Quants) {
    if kind == WeightKind::Q8_0 {
        for (e, &quants) in quants.iter().enumerate() {
            merge(block, 2 + 4 * e, quants);
        }
        return;
    }
    let places = nibbles_at(kind, part);
    for (e, &quants) in quants.iter().enumerate() {
        let quants = quants ^ flip(kind);
        let (at, shift) = places[e / 4];
        merge(block, at + 4 * (e % 4), (quants & NIBBLES) << shift);
        let upper = (quants >> 4) & NIBBLES;
        match kind {
            WeightKind::Q5_0 => merge(block, 2, gather(upper) << (4 * e)),
            WeightKind::Q5_1 => merge(block, 4, gather(upper) << (4 * e)),
            WeightKind::Q5K => merge(block, 16 + 4 * e, upper << part),
            WeightKind::Q6K => merge(block, q6_upper(part) + 4 * e, upper << (2 * (part % 4))),
            _ => (),
        }
    }
}

/// Where the upper bits of a part of Q6_K begin.
#[inline(always)]
fn q6_upper(part: usize) -> usize {
    128 + 32 * (part / 4)
}

/// The four lowest bits, each in a byte of its own.
#[inline(always)]
fn spread(bits: u32) -> u32 {
    (bits & 1) | (bits & 2) << 7 | (bits & 4) << 14 | (bits & 8) << 21
}

/// The reverse of [`spread`].
fn gather(bytes: u32) -> u32 {
    (bytes & 1) | (bytes >> 7 & 2) | (bytes >> 14 & 4) | (bytes >> 21 & 8)
}

/// The four nibbles of bytes, side by side in 16 bits.
#[inline(always)]
pub(super) fn compact(nibbles: u32) -> u32 {
    (nibbles & 0xf) | (nibbles >> 4 & 0xf0) | (nibbles >> 8 & 0xf00) | (nibbles >> 12 & 0xf000)
}

/// The reverse of [`compact`].
pub(super) fn expand(bits: u32) -> u32 {
    (bits & 0xf) | (bits & 0xf0) << 4 | (bits & 0xf00) << 8 | (bits & 0xf000) << 12
}
