//! The quantised formats in blocks of 32 beside Q8_0 and Q4_0: a minimum, a fifth bit, or levels from a table.

use super::lanes::Lanes;
use super::quant_formats::{QuantFormat, add_scaled, fifth_bits, load_halves, nibbles};
use super::quants::{Block, Groups, each_at};
use crate::weights::tables::{CENTRED_IQ4_NL, CENTRED_MXFP4};
use crate::weights::{HALVES, VECTOR, WeightType};

/// 4-bit quants with minimum.
pub(super) struct Q4_1;
/// 5-bit quants around 16.
pub(super) struct Q5_0;
/// 5-bit quants with minimum.
pub(super) struct Q5_1;
/// 4-bit indexes of a table.
pub(super) struct Iq4Nl;
/// 4-bit floats with a power of two.
pub(super) struct Mxfp4;

// SAFETY comments below: all reads stay within the bodies, tails and activations of the block
// that the contracts of the traits grant.

/// Adds `m` times the scaled sum of the activations; the tails hold 16 `d` and then 16 `m`.
///
/// # Safety
/// As for [`QuantFormat::add_block`].
#[inline(always)]
unsafe fn add_minimums<L: Lanes, const R: usize, const P: usize>(
    block: Block<R, P>,
    sums: &mut [[L::Floats; R]; P],
) {
    // SAFETY: as the caller promises.
    unsafe {
        let minimums = load_halves::<L, P>(each_at(block.tails, HALVES), 1.0);
        for (sums, minimum) in sums.iter_mut().zip(minimums) {
            for (r, sum) in sums.iter_mut().enumerate() {
                *sum = L::fma(minimum, L::splat(block.acts.scaled_sum(r)), *sum);
            }
        }
    }
}

impl Groups for Q4_1 {
    const CENTRED: bool = false;

    #[inline(always)]
    unsafe fn group<L: Lanes, const G: usize>(sub: *const u8) -> L::Bytes {
        // SAFETY: as the caller promises.
        unsafe { nibbles::<L, G>(sub) }
    }
}

impl QuantFormat for Q4_1 {
    const KIND: WeightType = WeightType::Q4_1;
    const PAIRED: bool = true;

    #[inline(always)]
    unsafe fn add_block<L: Lanes, const R: usize, const P: usize>(
        block: Block<R, P>,
        sums: &mut [[L::Floats; R]; P],
    ) {
        // SAFETY: as the caller promises.
        unsafe {
            add_scaled::<L, Q4_1, R, P>(
                block.bodies,
                load_halves::<L, P>(block.tails, 1.0),
                block.acts,
                block.ahead(0, 5),
                sums,
            );
            add_minimums::<L, R, P>(block, sums);
        }
    }
}

impl Groups for Q5_0 {
    const CENTRED: bool = true;

    /// 8 times the quant, so that the centre is 128 as for 8-bit quants.
    #[inline(always)]
    unsafe fn group<L: Lanes, const G: usize>(sub: *const u8) -> L::Bytes {
        // SAFETY: the vector of fifth bits follows the four nibble vectors.
        unsafe {
            let both = L::load_bytes(sub.add(G % 4 * VECTOR));
            let low = if G < 4 { L::shift_left_bytes(both, 3) } else { L::shift_right_bytes(both, 1) };
            let fifth = L::shift_left_bytes(L::load_bytes(sub.add(4 * VECTOR)), 7 - G as i32);
            L::or_masked_bytes(L::and_bytes(low, 0x78), fifth, 0x80)
        }
    }
}

impl QuantFormat for Q5_0 {
    const KIND: WeightType = WeightType::Q5_0;
    const PAIRED: bool = true;

    #[inline(always)]
    unsafe fn add_block<L: Lanes, const R: usize, const P: usize>(
        block: Block<R, P>,
        sums: &mut [[L::Floats; R]; P],
    ) {
        // SAFETY: as the caller promises.
        unsafe {
            let scales = load_halves::<L, P>(block.tails, 1.0 / 8.0);
            add_scaled::<L, Q5_0, R, P>(block.bodies, scales, block.acts, block.ahead(0, 6), sums)
        }
    }
}

impl Groups for Q5_1 {
    const CENTRED: bool = false;

    #[inline(always)]
    unsafe fn group<L: Lanes, const G: usize>(sub: *const u8) -> L::Bytes {
        // SAFETY: as the caller promises.
        unsafe { fifth_bits::<L, G>(sub) }
    }
}

impl QuantFormat for Q5_1 {
    const KIND: WeightType = WeightType::Q5_1;
    const PAIRED: bool = true;

    #[inline(always)]
    unsafe fn add_block<L: Lanes, const R: usize, const P: usize>(
        block: Block<R, P>,
        sums: &mut [[L::Floats; R]; P],
    ) {
        // SAFETY: as the caller promises.
        unsafe {
            add_scaled::<L, Q5_1, R, P>(
                block.bodies,
                load_halves::<L, P>(block.tails, 1.0),
                block.acts,
                block.ahead(0, 6),
                sums,
            );
            add_minimums::<L, R, P>(block, sums);
        }
    }
}

impl Groups for Iq4Nl {
    const CENTRED: bool = true;

    #[inline(always)]
    unsafe fn group<L: Lanes, const G: usize>(sub: *const u8) -> L::Bytes {
        // SAFETY: as the caller promises.
        unsafe { L::look_up(&CENTRED_IQ4_NL, nibbles::<L, G>(sub)) }
    }
}

impl QuantFormat for Iq4Nl {
    const KIND: WeightType = WeightType::Iq4Nl;
    const PAIRED: bool = true;

    #[inline(always)]
    unsafe fn add_block<L: Lanes, const R: usize, const P: usize>(
        block: Block<R, P>,
        sums: &mut [[L::Floats; R]; P],
    ) {
        // SAFETY: as the caller promises.
        unsafe {
            add_scaled::<L, Iq4Nl, R, P>(
                block.bodies,
                load_halves::<L, P>(block.tails, 1.0),
                block.acts,
                block.ahead(0, 5),
                sums,
            )
        }
    }
}

impl Groups for Mxfp4 {
    const CENTRED: bool = true;

    #[inline(always)]
    unsafe fn group<L: Lanes, const G: usize>(sub: *const u8) -> L::Bytes {
        // SAFETY: as the caller promises.
        unsafe { L::look_up(&CENTRED_MXFP4, nibbles::<L, G>(sub)) }
    }
}

impl QuantFormat for Mxfp4 {
    const KIND: WeightType = WeightType::Mxfp4;
    const PAIRED: bool = true;

    #[inline(always)]
    unsafe fn add_block<L: Lanes, const R: usize, const P: usize>(
        block: Block<R, P>,
        sums: &mut [[L::Floats; R]; P],
    ) {
        // SAFETY: as the caller promises; a tail has 16 exponents.
        unsafe {
            let mut scales = [L::zero(); P];
            for (scale, tail) in scales.iter_mut().zip(block.tails) {
                *scale = L::load_e8m0_half(tail);
            }
            add_scaled::<L, Mxfp4, R, P>(block.bodies, scales, block.acts, block.ahead(0, 5), sums)
        }
    }
}

// The layout of a body, as the kernels walk it, against its declared size.
const _: () = {
    assert!(WeightType::Q4_1.layout().body == 4 * VECTOR && WeightType::Q4_1.layout().tail == 2 * HALVES);
    assert!(WeightType::Q5_0.layout().body == 5 * VECTOR && WeightType::Q5_0.layout().tail == HALVES);
    assert!(WeightType::Q5_1.layout().body == 5 * VECTOR && WeightType::Q5_1.layout().tail == 2 * HALVES);
    assert!(WeightType::Iq4Nl.layout().body == 4 * VECTOR && WeightType::Iq4Nl.layout().tail == HALVES);
    assert!(WeightType::Mxfp4.layout().body == 4 * VECTOR && WeightType::Mxfp4.layout().tail == HALVES / 2);
};
