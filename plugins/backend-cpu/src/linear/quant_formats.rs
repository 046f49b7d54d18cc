//! The quantised formats: how their vectors become bytes that a dot product takes, and how the
//! dots of 32 elements enter the sums.

use super::lanes::{LANES, Lanes};
use super::quants::{Acts, Block, Groups, dots, dots_of_halves};
use crate::weights::k_quants::{D_AT, DMIN_AT, Q4_SUB, Q5_SUB, Q6_SUB, Q6_SUBS_AT, SUB_BLOCKS, SUBS_AT};
use crate::weights::{HALVES, VECTOR, WeightType};

/// A quantised format.
pub(super) trait QuantFormat {
    /// Its type.
    const KIND: WeightType;

    /// Adds the products of one block to the sums of `R` rows.
    ///
    /// # Safety
    /// The processor has the instructions of `L`; body and tail of the block, and the block's
    /// activations, are readable.
    unsafe fn add_block<L: Lanes, const R: usize>(block: Block<R>, sums: &mut [L::Floats; R]);
}

/// 8-bit quants.
pub(super) struct Q8_0;
/// 4-bit quants around 8.
pub(super) struct Q4_0;
/// 4-bit quants with minimum.
pub(super) struct Q4K;
/// 5-bit quants with minimum.
pub(super) struct Q5K;
/// 6-bit quants around 32.
pub(super) struct Q6K;

// SAFETY comments below: all reads stay within the bodies, tails and activations of the block
// that the contracts of the traits grant.

/// Nibbles of group `G` as values 0..16.
///
/// # Safety
/// Four nibble vectors are readable at `vectors`.
#[inline(always)]
unsafe fn nibbles<L: Lanes, const G: usize>(vectors: *const u8) -> L::Bytes {
    // SAFETY: vector G % 4 is one of the four.
    unsafe {
        let both = L::load_bytes(vectors.add(G % 4 * VECTOR));
        if G < 4 { L::and_bytes(both, 0x0f) } else { L::and_bytes(L::shift_right_bytes(both, 4), 0x0f) }
    }
}

/// Adds dots that need one scale per 32.
///
/// # Safety
/// As for [`QuantFormat::add_block`]; `sub` is the vectors of 32 elements.
#[inline(always)]
unsafe fn add_scaled<L: Lanes, F: Groups, const R: usize>(
    sub: *const u8,
    scale: L::Floats,
    acts: Acts<R>,
    sums: &mut [L::Floats; R],
) {
    // SAFETY: as the caller promises.
    unsafe {
        let dots = dots::<L, F, R>(sub, acts);
        for (r, sum) in sums.iter_mut().enumerate() {
            let scale = L::mul(scale, L::splat(acts.scale(r)));
            *sum = L::fma(L::to_floats(dots[r]), scale, *sum);
        }
    }
}

impl Groups for Q8_0 {
    const CENTRED: bool = true;

    #[inline(always)]
    unsafe fn group<L: Lanes, const G: usize>(sub: *const u8) -> L::Bytes {
        // SAFETY: there are eight vectors.
        unsafe { L::load_bytes(sub.add(G * VECTOR)) }
    }
}

impl QuantFormat for Q8_0 {
    const KIND: WeightType = WeightType::Q8_0;

    #[inline(always)]
    unsafe fn add_block<L: Lanes, const R: usize>(block: Block<R>, sums: &mut [L::Floats; R]) {
        // SAFETY: as the caller promises.
        unsafe {
            block.fetch_ahead(0, 9);
            add_scaled::<L, Q8_0, R>(block.body, L::load_f16(block.tail), block.acts, sums)
        }
    }
}

impl Groups for Q4_0 {
    const CENTRED: bool = true;

    /// 16 times the quant, so that the centre is 128 as for 8-bit quants.
    #[inline(always)]
    unsafe fn group<L: Lanes, const G: usize>(sub: *const u8) -> L::Bytes {
        // SAFETY: vector G % 4 is one of the four.
        unsafe {
            let both = L::load_bytes(sub.add(G % 4 * VECTOR));
            if G < 4 { L::and_bytes(L::shift_left_bytes(both, 4), 0xf0) } else { L::and_bytes(both, 0xf0) }
        }
    }
}

impl QuantFormat for Q4_0 {
    const KIND: WeightType = WeightType::Q4_0;

    #[inline(always)]
    unsafe fn add_block<L: Lanes, const R: usize>(block: Block<R>, sums: &mut [L::Floats; R]) {
        // SAFETY: as the caller promises.
        unsafe {
            block.fetch_ahead(0, 5);
            let scale = L::mul(L::load_f16(block.tail), L::splat(1.0 / 16.0));
            add_scaled::<L, Q4_0, R>(block.body, scale, block.acts, sums)
        }
    }
}

impl Groups for Q4K {
    const CENTRED: bool = false;

    #[inline(always)]
    unsafe fn group<L: Lanes, const G: usize>(sub: *const u8) -> L::Bytes {
        // SAFETY: as the caller promises.
        unsafe { nibbles::<L, G>(sub) }
    }
}

impl Groups for Q5K {
    const CENTRED: bool = false;

    #[inline(always)]
    unsafe fn group<L: Lanes, const G: usize>(sub: *const u8) -> L::Bytes {
        // SAFETY: the vector of fifth bits follows the four nibble vectors.
        unsafe {
            let bits = L::load_bytes(sub.add(4 * VECTOR));
            let fifth = if G <= 4 {
                L::shift_left_bytes(bits, 4 - G as i32)
            } else {
                L::shift_right_bytes(bits, G as i32 - 4)
            };
            L::or_masked_bytes(nibbles::<L, G>(sub), fifth, 0x10)
        }
    }
}

/// Scale and minimum of the sub-blocks of Q4_K and Q5_K, times `d` and `dmin`.
///
/// # Safety
/// The scale planes of a body are readable at `planes`; `sub` is below 8.
#[inline(always)]
unsafe fn scale_and_minimum<L: Lanes>(
    planes: *const u8,
    sub: usize,
    d: L::Floats,
    dmin: L::Floats,
) -> (L::Floats, L::Floats) {
    // SAFETY: there are 12 planes.
    unsafe {
        let plane = |j: usize| L::load_u8(planes.add(j * LANES));
        let (scale, minimum) = if sub < 4 {
            (L::and_ints(plane(sub), 63), L::and_ints(plane(sub + 4), 63))
        } else {
            let low = plane(sub + 4);
            // The upper two bits of another byte, as bits 4 and 5.
            let top = |bytes| L::and_ints(L::shift_right_ints(bytes, 2), 0x30);
            (
                L::or_ints(L::and_ints(low, 15), top(plane(sub - 4))),
                L::or_ints(L::shift_right_ints(low, 4), top(plane(sub))),
            )
        };
        (L::mul(d, L::to_floats(scale)), L::mul(dmin, L::to_floats(minimum)))
    }
}

/// A block of Q4_K or Q5_K, with sub-blocks of `size` bytes.
///
/// # Safety
/// As for [`QuantFormat::add_block`].
#[inline(always)]
unsafe fn block_with_minimum<L: Lanes, F: Groups, const R: usize>(
    mut block: Block<R>,
    size: usize,
    sums: &mut [L::Floats; R],
) {
    // SAFETY: as the caller promises.
    unsafe {
        let body = block.body;
        let (d, dmin) = (L::load_f16(body.add(D_AT)), L::load_f16(body.add(DMIN_AT)));
        block.fetch_ahead(0, SUBS_AT / VECTOR);
        for sub in 0..SUB_BLOCKS {
            block.fetch_ahead(SUBS_AT + sub * size, size / VECTOR);
            let (scale, minimum) = scale_and_minimum::<L>(body, sub, d, dmin);
            add_scaled::<L, F, R>(body.add(SUBS_AT + sub * size), scale, block.acts, sums);
            for (r, sum) in sums.iter_mut().enumerate() {
                *sum = L::fnma(minimum, L::splat(block.acts.scaled_sum(r)), *sum);
            }
            block.acts = block.acts.next();
        }
    }
}

impl QuantFormat for Q4K {
    const KIND: WeightType = WeightType::Q4K;

    #[inline(always)]
    unsafe fn add_block<L: Lanes, const R: usize>(block: Block<R>, sums: &mut [L::Floats; R]) {
        // SAFETY: as the caller promises.
        unsafe { block_with_minimum::<L, Q4K, R>(block, Q4_SUB, sums) }
    }
}

impl QuantFormat for Q5K {
    const KIND: WeightType = WeightType::Q5K;

    #[inline(always)]
    unsafe fn add_block<L: Lanes, const R: usize>(block: Block<R>, sums: &mut [L::Floats; R]) {
        // SAFETY: as the caller promises.
        unsafe { block_with_minimum::<L, Q5K, R>(block, Q5_SUB, sums) }
    }
}

impl Groups for Q6K {
    const CENTRED: bool = true;

    /// 4 times the quant, so that the centre is 128 as for 8-bit quants.
    #[inline(always)]
    unsafe fn group<L: Lanes, const G: usize>(sub: *const u8) -> L::Bytes {
        // SAFETY: two vectors of pairs follow the four nibble vectors.
        unsafe {
            let both = L::load_bytes(sub.add(G % 4 * VECTOR));
            let low = if G < 4 { L::shift_left_bytes(both, 2) } else { L::shift_right_bytes(both, 2) };
            let pairs = L::load_bytes(sub.add((4 + G / 4) * VECTOR));
            let high = L::shift_left_bytes(pairs, 6 - 2 * (G as i32 % 4));
            L::or_masked_bytes(L::and_bytes(low, 0x3c), high, 0xc0)
        }
    }
}

impl QuantFormat for Q6K {
    const KIND: WeightType = WeightType::Q6K;

    #[inline(always)]
    unsafe fn add_block<L: Lanes, const R: usize>(mut block: Block<R>, sums: &mut [L::Floats; R]) {
        // SAFETY: as the caller promises; there are 16 planes of scales before the sub-blocks.
        unsafe {
            let body = block.body;
            let d = L::mul(L::load_f16(block.tail), L::splat(0.25));
            block.fetch_ahead(0, Q6_SUBS_AT / VECTOR);
            block.fetch_ahead(WeightType::Q6K.layout().body, 1);
            for sub in 0..SUB_BLOCKS {
                block.fetch_ahead(Q6_SUBS_AT + sub * Q6_SUB, Q6_SUB / VECTOR);
                let scale =
                    |half: usize| L::mul(d, L::to_floats(L::load_i8(body.add((2 * sub + half) * LANES))));
                let (scale0, scale1) = (scale(0), scale(1));
                let vectors = body.add(Q6_SUBS_AT + sub * Q6_SUB);
                let [dots0, dots1] = dots_of_halves::<L, Q6K, R>(vectors, block.acts);
                for (r, sum) in sums.iter_mut().enumerate() {
                    let part = L::mul(L::to_floats(dots0[r]), scale0);
                    let part = L::fma(L::to_floats(dots1[r]), scale1, part);
                    *sum = L::fma(part, L::splat(block.acts.scale(r)), *sum);
                }
                block.acts = block.acts.next();
            }
        }
    }
}

// The layout of a body, as the kernels walk it, against its declared size.
const _: () = {
    assert!(D_AT + 2 * HALVES == SUBS_AT);
    assert!(WeightType::Q4K.layout().body == SUBS_AT + SUB_BLOCKS * Q4_SUB);
    assert!(WeightType::Q5K.layout().body == SUBS_AT + SUB_BLOCKS * Q5_SUB);
    assert!(WeightType::Q6K.layout().body == Q6_SUBS_AT + SUB_BLOCKS * Q6_SUB);
    assert!(WeightType::Q8_0.layout().body == 8 * VECTOR && WeightType::Q4_0.layout().body == 4 * VECTOR);
};
