//! Packing of the types with blocks of 32, and of nibbles for all types that have them.
//!
//! Canonical blocks of 32: `d` as `f16`, then 32 `i8` (Q8_0) or 16 bytes whose low nibbles are
//! elements 0..16 and high nibbles elements 16..32 (Q4_0, IQ4_NL). Between them stand `m` as `f16` (Q4_1, Q5_1) and
//! then 4 bytes of fifth bits, of which bit i belongs to element i (Q5_0, Q5_1). MXFP4 has an exponent of one byte
//! instead of `d`.

use super::{HALVES, VECTOR};

/// Copies the two bytes of a row's `f16` into a plane of 16.
pub(super) fn pack_half(half: &[u8], lane: usize, plane: &mut [u8]) {
    plane[2 * lane..2 * lane + 2].copy_from_slice(&half[..2]);
}

/// Reverses [`pack_half`].
pub(super) fn unpack_half(plane: &[u8], lane: usize, half: &mut [u8]) {
    half[..2].copy_from_slice(&plane[2 * lane..2 * lane + 2]);
}

/// Spreads the bytes of a row over vectors, four to each.
pub(super) fn pack_vectors(bytes: &[u8], lane: usize, vectors: &mut [u8]) {
    for (four, vector) in bytes.chunks_exact(4).zip(vectors.chunks_exact_mut(VECTOR)) {
        vector[4 * lane..4 * lane + 4].copy_from_slice(four);
    }
}

/// Reverses [`pack_vectors`].
pub(super) fn unpack_vectors(vectors: &[u8], lane: usize, bytes: &mut [u8]) {
    for (four, vector) in bytes.chunks_exact_mut(4).zip(vectors.chunks_exact(VECTOR)) {
        four.copy_from_slice(&vector[4 * lane..4 * lane + 4]);
    }
}

pub(super) fn pack_q8_0(block: &[u8], lane: usize, body: &mut [u8], tail: &mut [u8]) {
    pack_half(block, lane, tail);
    let mut quants: [u8; 32] = std::array::from_fn(|i| block[2 + i]);
    // Flipping the top bit of an i8 adds 128 and makes it unsigned.
    quants.iter_mut().for_each(|quant| *quant ^= 0x80);
    pack_vectors(&quants, lane, body);
}

pub(super) fn unpack_q8_0(body: &[u8], tail: &[u8], lane: usize, block: &mut [u8]) {
    unpack_half(tail, lane, block);
    unpack_vectors(body, lane, &mut block[2..]);
    block[2..].iter_mut().for_each(|quant| *quant ^= 0x80);
}

pub(super) fn pack_q4_0(block: &[u8], lane: usize, body: &mut [u8], tail: &mut [u8]) {
    pack_half(block, lane, tail);
    // The nibbles already pair element i with element i + 16, as the vectors do.
    pack_vectors(&block[2..], lane, body);
}

pub(super) fn unpack_q4_0(body: &[u8], tail: &[u8], lane: usize, block: &mut [u8]) {
    unpack_half(tail, lane, block);
    unpack_vectors(body, lane, &mut block[2..]);
}

pub(super) fn pack_q4_1(block: &[u8], lane: usize, body: &mut [u8], tail: &mut [u8]) {
    pack_half(block, lane, tail);
    pack_half(&block[2..], lane, &mut tail[HALVES..]);
    pack_vectors(&block[4..], lane, body);
}

pub(super) fn unpack_q4_1(body: &[u8], tail: &[u8], lane: usize, block: &mut [u8]) {
    unpack_half(tail, lane, block);
    unpack_half(&tail[HALVES..], lane, &mut block[2..]);
    unpack_vectors(body, lane, &mut block[4..]);
}

pub(super) fn pack_q5_0(block: &[u8], lane: usize, body: &mut [u8], tail: &mut [u8]) {
    pack_half(block, lane, tail);
    pack_fifths(&block[2..6], lane, &mut body[4 * VECTOR..]);
    pack_vectors(&block[6..], lane, body);
}

pub(super) fn unpack_q5_0(body: &[u8], tail: &[u8], lane: usize, block: &mut [u8]) {
    unpack_half(tail, lane, block);
    unpack_fifths(&body[4 * VECTOR..], lane, &mut block[2..6]);
    unpack_vectors(&body[..4 * VECTOR], lane, &mut block[6..]);
}

pub(super) fn pack_q5_1(block: &[u8], lane: usize, body: &mut [u8], tail: &mut [u8]) {
    pack_half(block, lane, tail);
    pack_half(&block[2..], lane, &mut tail[HALVES..]);
    pack_fifths(&block[4..8], lane, &mut body[4 * VECTOR..]);
    pack_vectors(&block[8..], lane, body);
}

pub(super) fn unpack_q5_1(body: &[u8], tail: &[u8], lane: usize, block: &mut [u8]) {
    unpack_half(tail, lane, block);
    unpack_half(&tail[HALVES..], lane, &mut block[2..]);
    unpack_fifths(&body[4 * VECTOR..], lane, &mut block[4..8]);
    unpack_vectors(&body[..4 * VECTOR], lane, &mut block[8..]);
}

pub(super) fn pack_mxfp4(block: &[u8], lane: usize, body: &mut [u8], tail: &mut [u8]) {
    tail[lane] = block[0];
    pack_vectors(&block[1..], lane, body);
}

pub(super) fn unpack_mxfp4(body: &[u8], tail: &[u8], lane: usize, block: &mut [u8]) {
    block[0] = tail[lane];
    unpack_vectors(body, lane, &mut block[1..]);
}

/// Spreads the fifth bits of 32 elements over one vector: bit `g` of byte `j` is that of element `4g + j`.
fn pack_fifths(bits: &[u8], lane: usize, vector: &mut [u8]) {
    let bits = u32::from_le_bytes([bits[0], bits[1], bits[2], bits[3]]);
    for element in 0..32 {
        vector[4 * lane + element % 4] |= ((bits >> element & 1) << (element / 4)) as u8;
    }
}

/// Reverses [`pack_fifths`].
fn unpack_fifths(vector: &[u8], lane: usize, bits: &mut [u8]) {
    let fifth = |element: usize| u32::from(vector[4 * lane + element % 4] >> (element / 4) & 1) << element;
    bits.copy_from_slice(&(0..32).map(fifth).sum::<u32>().to_le_bytes());
}

/// Packs 32 values below 16 into four nibble vectors.
pub(super) fn pack_nibbles(values: &[u8; 32], lane: usize, vectors: &mut [u8]) {
    let bytes: [u8; 16] = std::array::from_fn(|i| values[i] | values[i + 16] << 4);
    pack_vectors(&bytes, lane, vectors);
}

/// Reverses [`pack_nibbles`].
pub(super) fn unpack_nibbles(vectors: &[u8], lane: usize) -> [u8; 32] {
    let mut bytes = [0; 16];
    unpack_vectors(&vectors[..4 * VECTOR], lane, &mut bytes);
    std::array::from_fn(|i| if i < 16 { bytes[i] & 15 } else { bytes[i - 16] >> 4 })
}
