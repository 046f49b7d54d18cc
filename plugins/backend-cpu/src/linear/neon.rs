//! Lanes in four 128-bit registers, with 8-bit dot products.

use std::arch::aarch64::*;
use std::arch::asm;

use super::lanes::{LANES, Lanes, Task};

/// The NEON level: NEON and its dot products.
#[derive(Clone, Copy)]
pub(crate) struct Neon;

type Floats = [float32x4_t; 4];
type Ints = [int32x4_t; 4];
type Bytes = [uint8x16_t; 4];

/// # Safety
/// The processor has the features named here, and the contract of the task holds.
#[target_feature(enable = "neon,dotprod")]
unsafe fn enter<T: Task>(task: T) {
    // SAFETY: the features of this function are those of the level.
    unsafe { task.run::<Neon>() }
}

/// Writes a method of [`Lanes`] compiled with the features of the level.
macro_rules! with_features {
    ($(unsafe fn $name:ident($($arg:ident: $kind:ty),*) $(-> $out:ty)? $body:block)*) => {
        $(
            #[inline]
            #[target_feature(enable = "neon,dotprod")]
            unsafe fn $name($($arg: $kind),*) $(-> $out)? $body
        )*
    };
}

/// The same expression for each of the four registers. Written out, since code in closures has not the instructions of
/// the level.
macro_rules! each {
    ($i:ident => $value:expr) => {
        [
            {
                const $i: usize = 0;
                $value
            },
            {
                const $i: usize = 1;
                $value
            },
            {
                const $i: usize = 2;
                $value
            },
            {
                const $i: usize = 3;
                $value
            },
        ]
    };
}

/// Sixteen bytes as 16 numbers of 32 bits.
#[inline]
#[target_feature(enable = "neon")]
fn widen(bytes: uint8x16_t) -> [uint32x4_t; 4] {
    let (low, high) = (vmovl_u8(vget_low_u8(bytes)), vmovl_u8(vget_high_u8(bytes)));
    [
        vmovl_u16(vget_low_u16(low)),
        vmovl_u16(vget_high_u16(low)),
        vmovl_u16(vget_low_u16(high)),
        vmovl_u16(vget_high_u16(high)),
    ]
}

/// Sums of four products of signed bytes.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn dot_signed(sums: int32x4_t, weights: int8x16_t, activations: int8x16_t) -> int32x4_t {
    let mut sums = sums;
    // SAFETY: the instruction is part of the level and touches its registers alone.
    unsafe {
        asm!(
            "sdot {sums:v}.4s, {weights:v}.16b, {activations:v}.16b",
            sums = inout(vreg) sums,
            weights = in(vreg) weights,
            activations = in(vreg) activations,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    sums
}

impl Lanes for Neon {
    type Floats = Floats;
    type Ints = Ints;
    type Bytes = Bytes;

    const TILE: usize = 2;
    const PAIRED_TILE: usize = 0;

    #[inline(always)]
    unsafe fn enter<T: Task>(task: T) {
        // SAFETY: the caller vouches for the features and for the task.
        unsafe { enter(task) }
    }

    with_features! {
        unsafe fn zero() -> Floats {
            [vdupq_n_f32(0.0); 4]
        }

        unsafe fn splat(value: f32) -> Floats {
            [vdupq_n_f32(value); 4]
        }

        unsafe fn load(from: *const f32) -> Floats {
            // SAFETY: 16 items are readable.
            unsafe { each!(I => vld1q_f32(from.add(4 * I))) }
        }

        unsafe fn load_f16(from: *const u8) -> Floats {
            let mut floats = [vdupq_n_f32(0.0); 4];
            for (i, float) in floats.iter_mut().enumerate() {
                // SAFETY: 16 items are readable.
                let halves = unsafe { vld1_u8(from.add(8 * i)) };
                // SAFETY: the instruction is part of every such processor and touches its registers alone.
                unsafe {
                    asm!(
                        "fcvtl {float:v}.4s, {halves:v}.4h",
                        float = lateout(vreg) *float,
                        halves = in(vreg) halves,
                        options(pure, nomem, nostack, preserves_flags),
                    );
                }
            }
            floats
        }

        unsafe fn load_bf16(from: *const u8) -> Floats {
            // SAFETY: 16 items are readable.
            unsafe {
                each!(I => {
                    let halves = vreinterpret_u16_u8(vld1_u8(from.add(8 * I)));
                    vreinterpretq_f32_u32(vshll_n_u16::<16>(halves))
                })
            }
        }

        unsafe fn transpose_four(from: *const f32, stride: usize, to: *mut f32) {
            for group in 0..4 {
                // SAFETY: 4 items are readable at each of 16 places, 64 are writable.
                unsafe {
                    let place: [_; 4] = each!(I => vld1q_f32(from.add((4 * group + I) * stride)));
                    // Two places each: items 0 and 2, items 1 and 3.
                    let even = [vtrn1q_f32(place[0], place[1]), vtrn1q_f32(place[2], place[3])];
                    let odd = [vtrn2q_f32(place[0], place[1]), vtrn2q_f32(place[2], place[3])];
                    let [even, odd] = [even, odd].map(|pair| pair.map(|both| vreinterpretq_f64_f32(both)));
                    let items = [
                        vtrn1q_f64(even[0], even[1]),
                        vtrn1q_f64(odd[0], odd[1]),
                        vtrn2q_f64(even[0], even[1]),
                        vtrn2q_f64(odd[0], odd[1]),
                    ];
                    for (item, values) in items.into_iter().enumerate() {
                        vst1q_f32(to.add(item * LANES + 4 * group), vreinterpretq_f32_f64(values));
                    }
                }
            }
        }

        unsafe fn load_e8m0_half(from: *const u8) -> Floats {
            // SAFETY: 16 items are readable.
            let exponents = widen(unsafe { vld1q_u8(from) });
            let one = vdupq_n_u32(1);
            // The exponent's field of f32 is e - 1.
            each!(I => vreinterpretq_f32_u32(vshlq_n_u32::<23>(vsubq_u32(vmaxq_u32(exponents[I], one), one))))
        }

        unsafe fn store(values: Floats, to: *mut f32) {
            // SAFETY: 16 items are writable.
            let _: [(); 4] = unsafe { each!(I => vst1q_f32(to.add(4 * I), values[I])) };
        }

        unsafe fn add(a: Floats, b: Floats) -> Floats {
            each!(I => vaddq_f32(a[I], b[I]))
        }

        unsafe fn mul(a: Floats, b: Floats) -> Floats {
            each!(I => vmulq_f32(a[I], b[I]))
        }

        unsafe fn fma(a: Floats, b: Floats, c: Floats) -> Floats {
            each!(I => vfmaq_f32(c[I], a[I], b[I]))
        }

        unsafe fn fnma(a: Floats, b: Floats, c: Floats) -> Floats {
            each!(I => vfmsq_f32(c[I], a[I], b[I]))
        }

        unsafe fn one_nan(values: Floats) -> Floats {
            let nan = vdupq_n_f32(f32::NAN);
            each!(I => vbslq_f32(vceqq_f32(values[I], values[I]), values[I], nan))
        }

        unsafe fn to_floats(values: Ints) -> Floats {
            each!(I => vcvtq_f32_s32(values[I]))
        }

        unsafe fn zero_ints() -> Ints {
            [vdupq_n_s32(0); 4]
        }

        unsafe fn add_ints(a: Ints, b: Ints) -> Ints {
            each!(I => vaddq_s32(a[I], b[I]))
        }

        unsafe fn and_ints(a: Ints, mask: i32) -> Ints {
            let mask = vdupq_n_s32(mask);
            each!(I => vandq_s32(a[I], mask))
        }

        unsafe fn or_ints(a: Ints, b: Ints) -> Ints {
            each!(I => vorrq_s32(a[I], b[I]))
        }

        unsafe fn shift_right_ints(a: Ints, by: i32) -> Ints {
            let by = vdupq_n_s32(-by);
            each!(I => vshlq_s32(a[I], by))
        }

        unsafe fn load_u8(from: *const u8) -> Ints {
            // SAFETY: 16 items are readable.
            let wide = widen(unsafe { vld1q_u8(from) });
            each!(I => vreinterpretq_s32_u32(wide[I]))
        }

        unsafe fn load_i8(from: *const u8) -> Ints {
            // SAFETY: 16 items are readable.
            let bytes = unsafe { vld1q_s8(from.cast()) };
            let (low, high) = (vmovl_s8(vget_low_s8(bytes)), vmovl_s8(vget_high_s8(bytes)));
            [
                vmovl_s16(vget_low_s16(low)),
                vmovl_s16(vget_high_s16(low)),
                vmovl_s16(vget_low_s16(high)),
                vmovl_s16(vget_high_s16(high)),
            ]
        }

        unsafe fn load_bytes(from: *const u8) -> Bytes {
            // SAFETY: 64 items are readable.
            unsafe { each!(I => vld1q_u8(from.add(16 * I))) }
        }

        unsafe fn and_bytes(a: Bytes, mask: u8) -> Bytes {
            let mask = vdupq_n_u8(mask);
            each!(I => vandq_u8(a[I], mask))
        }

        unsafe fn or_masked_bytes(a: Bytes, b: Bytes, mask: u8) -> Bytes {
            let mask = vdupq_n_u8(mask);
            each!(I => vorrq_u8(a[I], vandq_u8(b[I], mask)))
        }

        unsafe fn shift_left_bytes(a: Bytes, by: i32) -> Bytes {
            let by = vdupq_n_s8(by as i8);
            each!(I => vshlq_u8(a[I], by))
        }

        unsafe fn shift_right_bytes(a: Bytes, by: i32) -> Bytes {
            let by = vdupq_n_s8(-by as i8);
            each!(I => vshlq_u8(a[I], by))
        }

        unsafe fn look_up(table: &[u8; 16], indexes: Bytes) -> Bytes {
            // SAFETY: the table has 16 bytes.
            let table = unsafe { vld1q_u8(table.as_ptr()) };
            each!(I => vqtbl1q_u8(table, indexes[I]))
        }

        unsafe fn splat_four(from: *const u8) -> Bytes {
            // SAFETY: 4 items are readable.
            let four = unsafe { from.cast::<u32>().read_unaligned() };
            [vreinterpretq_u8_u32(vdupq_n_u32(four)); 4]
        }

        unsafe fn dot(sums: Ints, weights: Bytes, activations: Bytes) -> Ints {
            // Weights are below 128, so they are the same as signed bytes.
            let four = vreinterpretq_s8_u8(activations[0]);
            each!(I => dot_signed(sums[I], vreinterpretq_s8_u8(weights[I]), four))
        }

        unsafe fn dot_centred(sums: Ints, weights: Bytes, activations: Bytes) -> Ints {
            let four = vreinterpretq_s8_u8(activations[0]);
            // Flipping the top bit subtracts 128.
            let top = vdupq_n_u8(0x80);
            each!(I => dot_signed(sums[I], vreinterpretq_s8_u8(veorq_u8(weights[I], top)), four))
        }

        unsafe fn begin_centred(_offset: i32) -> Ints {
            [vdupq_n_s32(0); 4]
        }

        unsafe fn largest_magnitude_bits(values: *const f32) -> u32 {
            let magnitude = vdupq_n_u32(i32::MAX as u32);
            let mut larger = vdupq_n_u32(0);
            for part in 0..8 {
                // SAFETY: 32 items are readable.
                let four = unsafe { vld1q_u32(values.add(4 * part).cast()) };
                larger = vmaxq_u32(larger, vandq_u32(four, magnitude));
            }
            vmaxvq_u32(larger)
        }

        unsafe fn quantize(values: *const f32, factor: f32, to: *mut u8) -> i32 {
            let factor = vdupq_n_f32(factor);
            // SAFETY: 16 items are readable.
            let quants: Ints = unsafe { each!(I => vcvtnq_s32_f32(vmulq_f32(vld1q_f32(values.add(4 * I)), factor))) };
            let low = vcombine_s16(vmovn_s32(quants[0]), vmovn_s32(quants[1]));
            let high = vcombine_s16(vmovn_s32(quants[2]), vmovn_s32(quants[3]));
            // SAFETY: 16 items are writable.
            unsafe { vst1q_s8(to.cast(), vcombine_s8(vmovn_s16(low), vmovn_s16(high))) };
            vaddvq_s32(vaddq_s32(vaddq_s32(quants[0], quants[1]), vaddq_s32(quants[2], quants[3])))
        }
    }
}
