//! Packing of Q8_0 and Q4_0, and of nibbles for all types that have them.
//!
//! Canonical blocks of 32: `d` as `f16`, then 32 `i8` (Q8_0) or 16 bytes whose low nibbles are
//! elements 0..16 and high nibbles elements 16..32 (Q4_0).

use super::VECTOR;

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
