//! The quantised formats: how their vectors become bytes that a dot product takes, and how the
//! dots of 32 elements enter the sums.

use super::lanes::{LANES, Lanes};
use super::quants::{Acts, Ahead, Block, Groups, dots, dots_of_half, each_at};
use crate::weights::k_quants::{D_AT, DMIN_AT, Q4_SUB, Q5_SUB, Q6_SUB, Q6_SUBS_AT, SUB_BLOCKS, SUBS_AT};
use crate::weights::{HALVES, VECTOR, WeightType};

/// A quantised format.
pub(super) trait QuantFormat {
    /// Its type.
    const KIND: WeightType;
    /// Whether two panels at once are faster where there are many rows. They save loads of activations; formats
    /// with more arithmetic for each block are not limited by those.
    const PAIRED: bool;
    /// How far ahead weights are fetched for one or two rows, if less than for more.
    const NEAR_BYTES: Option<usize> = None;

    /// Adds the products of one block to the sums of `P` panels and `R` rows.
    ///
    /// # Safety
    /// The processor has the instructions of `L`; bodies and tails of the block, and the block's
    /// activations, are readable.
    unsafe fn add_block<L: Lanes, const R: usize, const P: usize>(
        block: Block<R, P>,
        sums: &mut [[L::Floats; R]; P],
    );
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
pub(super) unsafe fn nibbles<L: Lanes, const G: usize>(vectors: *const u8) -> L::Bytes {
    // SAFETY: vector G % 4 is one of the four.
    unsafe {
        let both = L::load_bytes(vectors.add(G % 4 * VECTOR));
        if G < 4 { L::and_bytes(both, 0x0f) } else { L::and_bytes(L::shift_right_bytes(both, 4), 0x0f) }
    }
}

/// 16 half-precision floats of each panel, times a factor.
///
/// # Safety
/// The processor has the instructions of `L`; 16 are readable at each place.
#[inline(always)]
pub(super) unsafe fn load_halves<L: Lanes, const P: usize>(
    at: [*const u8; P],
    factor: f32,
) -> [L::Floats; P] {
    // SAFETY: as the caller promises.
    unsafe {
        let mut halves = [L::zero(); P];
        for p in 0..P {
            halves[p] = L::load_f16(at[p]);
            if factor != 1.0 {
                halves[p] = L::mul(halves[p], L::splat(factor));
            }
        }
        halves
    }
}

/// Adds dots that need one scale per 32.
///
/// # Safety
/// As for [`QuantFormat::add_block`]; `sub` is the vectors of 32 elements.
#[inline(always)]
pub(super) unsafe fn add_scaled<L: Lanes, F: Groups, const R: usize, const P: usize>(
    subs: [*const u8; P],
    scales: [L::Floats; P],
    acts: Acts<R>,
    ahead: Ahead,
    sums: &mut [[L::Floats; R]; P],
) {
    // SAFETY: as the caller promises.
    unsafe {
        let dots = dots::<L, F, R, P>(subs, acts, ahead);
        for r in 0..R {
            let act_scale = L::splat(acts.scale(r));
            for p in 0..P {
                let scale = L::mul(scales[p], act_scale);
                sums[p][r] = L::fma(L::to_floats(dots[p][r]), scale, sums[p][r]);
            }
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
    const PAIRED: bool = true;

    #[inline(always)]
    unsafe fn add_block<L: Lanes, const R: usize, const P: usize>(
        block: Block<R, P>,
        sums: &mut [[L::Floats; R]; P],
    ) {
        // SAFETY: as the caller promises.
        unsafe {
            let scales = load_halves::<L, P>(block.tails, 1.0);
            add_scaled::<L, Q8_0, R, P>(block.bodies, scales, block.acts, block.ahead(0, 9), sums)
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
    const PAIRED: bool = true;

    #[inline(always)]
    unsafe fn add_block<L: Lanes, const R: usize, const P: usize>(
        block: Block<R, P>,
        sums: &mut [[L::Floats; R]; P],
    ) {
        // SAFETY: as the caller promises.
        unsafe {
            let scales = load_halves::<L, P>(block.tails, 1.0 / 16.0);
            add_scaled::<L, Q4_0, R, P>(block.bodies, scales, block.acts, block.ahead(0, 5), sums)
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

/// Nibbles and fifth bits of group `G` as values 0..32.
///
/// # Safety
/// Four nibble vectors and one of fifth bits are readable at `vectors`.
#[inline(always)]
pub(super) unsafe fn fifth_bits<L: Lanes, const G: usize>(vectors: *const u8) -> L::Bytes {
    // SAFETY: as the caller promises.
    unsafe {
        let bits = L::load_bytes(vectors.add(4 * VECTOR));
        let fifth = if G <= 4 {
            L::shift_left_bytes(bits, 4 - G as i32)
        } else {
            L::shift_right_bytes(bits, G as i32 - 4)
        };
        L::or_masked_bytes(nibbles::<L, G>(vectors), fifth, 0x10)
    }
}

impl Groups for Q5K {
    const CENTRED: bool = false;

    #[inline(always)]
    unsafe fn group<L: Lanes, const G: usize>(sub: *const u8) -> L::Bytes {
        // SAFETY: as the caller promises.
        unsafe { fifth_bits::<L, G>(sub) }
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
        let planes = planes.add(sub * LANES);
        let (scale, minimum) = if sub < 4 {
            (L::load_u8(planes), L::load_u8(planes.add(4 * LANES)))
        } else {
            // The upper two bits of two other bytes are bits 4 and 5.
            let low = L::load_u8(planes.add(4 * LANES));
            let scale_top = L::and_ints(L::shift_right_ints(L::load_u8(planes.sub(4 * LANES)), 2), 0x30);
            let minimum_top = L::and_ints(L::shift_right_ints(L::load_u8(planes), 2), 0x30);
            (
                L::or_ints(L::and_ints(low, 15), scale_top),
                L::or_ints(L::shift_right_ints(low, 4), minimum_top),
            )
        };
        let (scale, minimum) = (L::and_ints(scale, 63), L::and_ints(minimum, 63));
        (L::mul(d, L::to_floats(scale)), L::mul(dmin, L::to_floats(minimum)))
    }
}

/// Lines of a block of each K type, with its tail.
const Q4_LINES: usize = lines(WeightType::Q4K);
const Q5_LINES: usize = lines(WeightType::Q5K);
const Q6_LINES: usize = lines(WeightType::Q6K);

const fn lines(kind: WeightType) -> usize {
    let layout = kind.layout();
    (layout.body + layout.tail).div_ceil(VECTOR)
}

/// A block of Q4_K or Q5_K, with sub-blocks of `size` bytes and `LINES` lines.
///
/// # Safety
/// As for [`QuantFormat::add_block`].
#[inline(always)]
unsafe fn block_with_minimum<L: Lanes, F: Groups, const R: usize, const P: usize, const LINES: usize>(
    mut block: Block<R, P>,
    size: usize,
    sums: &mut [[L::Floats; R]; P],
) {
    // SAFETY: as the caller promises.
    unsafe {
        let bodies = block.bodies;
        let d = load_halves::<L, P>(each_at(bodies, D_AT), 1.0);
        let dmin = load_halves::<L, P>(each_at(bodies, DMIN_AT), 1.0);
        for sub in 0..SUB_BLOCKS {
            let (mut scales, mut minimums) = (d, dmin);
            for p in 0..P {
                (scales[p], minimums[p]) = scale_and_minimum::<L>(bodies[p], sub, d[p], dmin[p]);
            }
            add_scaled::<L, F, R, P>(
                each_at(bodies, SUBS_AT + sub * size),
                scales,
                block.acts,
                block.ahead_of_sub::<LINES, 3>(sub),
                sums,
            );
            for (sums, minimum) in sums.iter_mut().zip(minimums) {
                for (r, sum) in sums.iter_mut().enumerate() {
                    *sum = L::fnma(minimum, L::splat(block.acts.scaled_sum(r)), *sum);
                }
            }
            block.acts = block.acts.next();
        }
    }
}

impl QuantFormat for Q4K {
    const KIND: WeightType = WeightType::Q4K;
    const PAIRED: bool = false;
    const NEAR_BYTES: Option<usize> = Some(8 * 1024);

    #[inline(always)]
    unsafe fn add_block<L: Lanes, const R: usize, const P: usize>(
        block: Block<R, P>,
        sums: &mut [[L::Floats; R]; P],
    ) {
        // SAFETY: as the caller promises.
        unsafe { block_with_minimum::<L, Q4K, R, P, { Q4_LINES }>(block, Q4_SUB, sums) }
    }
}

impl QuantFormat for Q5K {
    const KIND: WeightType = WeightType::Q5K;
    const PAIRED: bool = false;
    const NEAR_BYTES: Option<usize> = Some(8 * 1024);

    #[inline(always)]
    unsafe fn add_block<L: Lanes, const R: usize, const P: usize>(
        block: Block<R, P>,
        sums: &mut [[L::Floats; R]; P],
    ) {
        // SAFETY: as the caller promises.
        unsafe { block_with_minimum::<L, Q5K, R, P, { Q5_LINES }>(block, Q5_SUB, sums) }
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
    const PAIRED: bool = false;
    const NEAR_BYTES: Option<usize> = Some(10 * 1024);

    #[inline(always)]
    unsafe fn add_block<L: Lanes, const R: usize, const P: usize>(
        mut block: Block<R, P>,
        sums: &mut [[L::Floats; R]; P],
    ) {
        // SAFETY: as the caller promises; there are 16 planes of scales before the sub-blocks.
        unsafe {
            let bodies = block.bodies;
            let d = load_halves::<L, P>(block.tails, 0.25);
            for sub in 0..SUB_BLOCKS {
                let ahead = block.ahead_of_sub::<Q6_LINES, 4>(sub);
                let (mut scales0, mut scales1) = (d, d);
                for p in 0..P {
                    let planes = bodies[p].add(2 * sub * LANES);
                    scales0[p] = L::mul(d[p], L::to_floats(L::load_i8(planes)));
                    scales1[p] = L::mul(d[p], L::to_floats(L::load_i8(planes.add(LANES))));
                }
                let vectors = each_at(bodies, Q6_SUBS_AT + sub * Q6_SUB);
                let dots0 = dots_of_half::<L, Q6K, R, P, 0>(vectors, block.acts, ahead);
                let mut parts = [[L::zero(); R]; P];
                for p in 0..P {
                    for r in 0..R {
                        parts[p][r] = L::mul(L::to_floats(dots0[p][r]), scales0[p]);
                    }
                }
                let dots1 = dots_of_half::<L, Q6K, R, P, 1>(vectors, block.acts, ahead);
                for r in 0..R {
                    let act_scale = L::splat(block.acts.scale(r));
                    for p in 0..P {
                        let part = L::fma(L::to_floats(dots1[p][r]), scales1[p], parts[p][r]);
                        sums[p][r] = L::fma(part, act_scale, sums[p][r]);
                    }
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
