//! Packing of Q4_K, Q5_K and Q6_K, whose blocks of 256 are eight sub-blocks of 32.
//!
//! Canonical blocks:
//! - Q4_K: `d`, `dmin`, 12 scale bytes, 4 x 32 bytes: low nibbles are sub-block 2p, high 2p + 1.
//! - Q5_K: `d`, `dmin`, 12 scale bytes, 32 bytes whose bit `s` is the fifth bit of the elements of
//!   sub-block `s`, nibbles as in Q4_K.
//! - Q6_K: 128 bytes of low nibbles, 64 of upper bit pairs, 16 `i8` scales, `d`. Each half of the
//!   block has sub-blocks 0..4: the low nibbles of sub-blocks `s` and `s + 2` share bytes, and the
//!   upper pairs of all four do.

use super::simple_quants::{
    pack_half, pack_nibbles, pack_vectors, unpack_half, unpack_nibbles, unpack_vectors,
};
use super::{HALVES, PANEL_ROWS, VECTOR};

/// Sub-blocks of a block.
pub(crate) const SUB_BLOCKS: usize = 8;
/// Planes of scale bytes of Q4_K and Q5_K.
const SCALE_PLANES: usize = 12;
/// Where `d` lies in a body of Q4_K and Q5_K.
pub(crate) const D_AT: usize = SCALE_PLANES * PANEL_ROWS;
/// Where `dmin` lies in a body of Q4_K and Q5_K.
pub(crate) const DMIN_AT: usize = D_AT + HALVES;
/// Where the first sub-block lies in a body of Q4_K and Q5_K.
pub(crate) const SUBS_AT: usize = DMIN_AT + HALVES;
/// Where the first sub-block lies in a body of Q6_K, after the planes of scales.
pub(crate) const Q6_SUBS_AT: usize = 16 * PANEL_ROWS;
/// Bytes of a sub-block of Q4_K.
pub(crate) const Q4_SUB: usize = 4 * VECTOR;
/// Bytes of a sub-block of Q5_K.
pub(crate) const Q5_SUB: usize = 5 * VECTOR;
/// Bytes of a sub-block of Q6_K.
pub(crate) const Q6_SUB: usize = 6 * VECTOR;

/// Copies a row's scale bytes, one into each plane of 16.
fn pack_planes(bytes: &[u8], lane: usize, planes: &mut [u8]) {
    for (byte, plane) in bytes.iter().zip(planes.chunks_exact_mut(PANEL_ROWS)) {
        plane[lane] = *byte;
    }
}

fn unpack_planes(planes: &[u8], lane: usize, bytes: &mut [u8]) {
    for (byte, plane) in bytes.iter_mut().zip(planes.chunks_exact(PANEL_ROWS)) {
        *byte = plane[lane];
    }
}

/// The 16 bytes before the quants of Q4_K and Q5_K.
fn pack_header(block: &[u8], lane: usize, body: &mut [u8]) {
    pack_half(&block[0..], lane, &mut body[D_AT..]);
    pack_half(&block[2..], lane, &mut body[DMIN_AT..]);
    pack_planes(&block[4..16], lane, body);
}

fn unpack_header(body: &[u8], lane: usize, block: &mut [u8]) {
    unpack_half(&body[D_AT..], lane, &mut block[0..]);
    unpack_half(&body[DMIN_AT..], lane, &mut block[2..]);
    unpack_planes(body, lane, &mut block[4..16]);
}

/// The nibbles of a sub-block of Q4_K and Q5_K.
fn sub_block_nibbles(quants: &[u8], sub: usize) -> [u8; 32] {
    let bytes = &quants[sub / 2 * 32..][..32];
    std::array::from_fn(|i| (bytes[i] >> (sub % 2 * 4)) & 15)
}

/// Adds the nibbles of a sub-block to zeroed quants of Q4_K and Q5_K.
fn put_sub_block_nibbles(values: &[u8; 32], sub: usize, quants: &mut [u8]) {
    for (byte, value) in quants[sub / 2 * 32..][..32].iter_mut().zip(values) {
        *byte |= value << (sub % 2 * 4);
    }
}

pub(super) fn pack_q4_k(block: &[u8], lane: usize, body: &mut [u8]) {
    pack_header(block, lane, body);
    for (sub, packed) in body[SUBS_AT..].chunks_exact_mut(Q4_SUB).enumerate() {
        pack_nibbles(&sub_block_nibbles(&block[16..], sub), lane, packed);
    }
}

pub(super) fn unpack_q4_k(body: &[u8], lane: usize, block: &mut [u8]) {
    block.fill(0);
    unpack_header(body, lane, block);
    for (sub, packed) in body[SUBS_AT..].chunks_exact(Q4_SUB).enumerate() {
        put_sub_block_nibbles(&unpack_nibbles(packed, lane), sub, &mut block[16..]);
    }
}

pub(super) fn pack_q5_k(block: &[u8], lane: usize, body: &mut [u8]) {
    pack_header(block, lane, body);
    let fifth_bits = &block[16..48];
    for (sub, packed) in body[SUBS_AT..].chunks_exact_mut(Q5_SUB).enumerate() {
        let (nibbles, bits) = packed.split_at_mut(4 * VECTOR);
        pack_nibbles(&sub_block_nibbles(&block[48..], sub), lane, nibbles);
        let mut four = [0u8; 4];
        for (i, byte) in fifth_bits.iter().enumerate() {
            four[i % 4] |= (byte >> sub & 1) << (i / 4);
        }
        pack_vectors(&four, lane, bits);
    }
}

pub(super) fn unpack_q5_k(body: &[u8], lane: usize, block: &mut [u8]) {
    block.fill(0);
    unpack_header(body, lane, block);
    for (sub, packed) in body[SUBS_AT..].chunks_exact(Q5_SUB).enumerate() {
        let (nibbles, bits) = packed.split_at(4 * VECTOR);
        put_sub_block_nibbles(&unpack_nibbles(nibbles, lane), sub, &mut block[48..]);
        let mut four = [0u8; 4];
        unpack_vectors(bits, lane, &mut four);
        for (i, byte) in block[16..48].iter_mut().enumerate() {
            *byte |= (four[i % 4] >> (i / 4) & 1) << sub;
        }
    }
}

/// Where the low nibble of element `i` of a Q6_K sub-block lies: byte and shift.
fn q6_nibble(sub: usize, i: usize) -> (usize, usize) {
    let (half, quarter) = (sub / 4, sub % 4);
    (64 * half + 32 * (quarter % 2) + i, quarter / 2 * 4)
}

/// Where the upper pair of element `i` of a Q6_K sub-block lies: byte and shift.
fn q6_pair(sub: usize, i: usize) -> (usize, usize) {
    (128 + 32 * (sub / 4) + i, 2 * (sub % 4))
}

pub(super) fn pack_q6_k(block: &[u8], lane: usize, body: &mut [u8], tail: &mut [u8]) {
    pack_half(&block[208..], lane, tail);
    pack_planes(&block[192..208], lane, body);
    for (sub, packed) in body[Q6_SUBS_AT..].chunks_exact_mut(Q6_SUB).enumerate() {
        let (nibbles, pairs) = packed.split_at_mut(4 * VECTOR);
        let low = std::array::from_fn(|i| {
            let (byte, shift) = q6_nibble(sub, i);
            block[byte] >> shift & 15
        });
        pack_nibbles(&low, lane, nibbles);
        let mut eight = [0u8; 8];
        for i in 0..32 {
            let (byte, shift) = q6_pair(sub, i);
            eight[i / 16 * 4 + i % 4] |= (block[byte] >> shift & 3) << (2 * (i / 4 % 4));
        }
        pack_vectors(&eight, lane, pairs);
    }
}

pub(super) fn unpack_q6_k(body: &[u8], tail: &[u8], lane: usize, block: &mut [u8]) {
    block.fill(0);
    unpack_half(tail, lane, &mut block[208..]);
    unpack_planes(body, lane, &mut block[192..208]);
    for (sub, packed) in body[Q6_SUBS_AT..].chunks_exact(Q6_SUB).enumerate() {
        let (nibbles, pairs) = packed.split_at(4 * VECTOR);
        let low = unpack_nibbles(nibbles, lane);
        let mut eight = [0u8; 8];
        unpack_vectors(pairs, lane, &mut eight);
        for (i, low) in low.into_iter().enumerate() {
            let (byte, shift) = q6_nibble(sub, i);
            block[byte] |= low << shift;
            let (byte, shift) = q6_pair(sub, i);
            block[byte] |= (eight[i / 16 * 4 + i % 4] >> (2 * (i / 4 % 4)) & 3) << shift;
        }
    }
}
