//! Lanes in one 512-bit register, with 8-bit dot products.

use std::arch::asm;
use std::arch::x86_64::*;

use super::lanes::{LANES, Lanes, Task};

/// The AVX-512 level: F, BW, VL, DQ, VNNI, and what the AVX2 level needs.
#[derive(Clone, Copy)]
pub(crate) struct Avx512;

/// # Safety
/// The processor has the features named here, and the contract of the task holds.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c")]
unsafe fn enter<T: Task>(task: T) {
    // SAFETY: the features of this function are those of the level.
    unsafe { task.run::<Avx512>() }
}

/// Writes a method of [`Lanes`] compiled with the features of the level.
macro_rules! with_features {
    ($(unsafe fn $name:ident($($arg:ident: $kind:ty),*) $(-> $out:ty)? $body:block)*) => {
        $(
            #[inline]
            #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c")]
            unsafe fn $name($($arg: $kind),*) $(-> $out)? $body
        )*
    };
}

impl Lanes for Avx512 {
    type Floats = __m512;
    type Ints = __m512i;
    type Bytes = __m512i;

    const TILE: usize = 8;
    const PAIRED_TILE: usize = 6;

    #[inline(always)]
    unsafe fn enter<T: Task>(task: T) {
        // SAFETY: the caller vouches for the features and for the task.
        unsafe { enter(task) }
    }

    with_features! {
        unsafe fn zero() -> __m512 {
            _mm512_setzero_ps()
        }

        unsafe fn splat(value: f32) -> __m512 {
            _mm512_set1_ps(value)
        }

        unsafe fn load(from: *const f32) -> __m512 {
            // SAFETY: 16 items are readable.
            unsafe { _mm512_loadu_ps(from) }
        }

        unsafe fn load_f16(from: *const u8) -> __m512 {
            // SAFETY: 16 items are readable.
            _mm512_cvtph_ps(unsafe { _mm256_loadu_si256(from.cast()) })
        }

        unsafe fn load_bf16(from: *const u8) -> __m512 {
            // SAFETY: 16 items are readable.
            let halves = unsafe { _mm256_loadu_si256(from.cast()) };
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(halves)))
        }

        unsafe fn load_e8m0_half(from: *const u8) -> __m512 {
            // SAFETY: 16 items are readable.
            let exponents = unsafe { Self::load_u8(from) };
            let one = _mm512_set1_epi32(1);
            // The exponent's field of f32 is e - 1.
            let field = _mm512_sub_epi32(_mm512_max_epi32(exponents, one), one);
            _mm512_castsi512_ps(_mm512_slli_epi32::<23>(field))
        }

        unsafe fn store(values: __m512, to: *mut f32) {
            // SAFETY: 16 items are writable.
            unsafe { _mm512_storeu_ps(to, values) }
        }

        unsafe fn transpose_four(from: *const f32, stride: usize, to: *mut f32) {
            // Place 4i + r in quarter i of register r: what is left is to transpose four by four in each quarter.
            let mut rows = [_mm512_setzero_ps(); 4];
            for (r, row) in rows.iter_mut().enumerate() {
                // SAFETY: 4 items are readable at each of 16 places.
                unsafe {
                    let at = |place: usize| from.add(place * stride);
                    let first = _mm512_castps128_ps512(_mm_loadu_ps(at(r)));
                    let second = _mm512_insertf32x4::<1>(first, _mm_loadu_ps(at(r + 4)));
                    let third = _mm512_insertf32x4::<2>(second, _mm_loadu_ps(at(r + 8)));
                    *row = _mm512_insertf32x4::<3>(third, _mm_loadu_ps(at(r + 12)));
                }
            }
            let low = [_mm512_unpacklo_ps(rows[0], rows[1]), _mm512_unpacklo_ps(rows[2], rows[3])];
            let high = [_mm512_unpackhi_ps(rows[0], rows[1]), _mm512_unpackhi_ps(rows[2], rows[3])];
            for (half, [a, b]) in [low, high].into_iter().enumerate() {
                let (a, b) = (_mm512_castps_pd(a), _mm512_castps_pd(b));
                // SAFETY: 64 items are writable.
                unsafe {
                    let to = to.add(2 * half * LANES);
                    _mm512_storeu_ps(to, _mm512_castpd_ps(_mm512_unpacklo_pd(a, b)));
                    _mm512_storeu_ps(to.add(LANES), _mm512_castpd_ps(_mm512_unpackhi_pd(a, b)));
                }
            }
        }

        unsafe fn sum_each(vectors: [__m512; 16]) -> __m512 {
            // Each step folds two vectors into one: halves, then quarters, then inside of quarters. Vector 4q + m ends in
            // quarter q, place m.
            let mut quarters = [_mm512_setzero_ps(); 4];
            for (m, to) in quarters.iter_mut().enumerate() {
                let mut halves = [_mm512_setzero_ps(); 2];
                for (pair, to) in halves.iter_mut().enumerate() {
                    let (a, b) = (vectors[8 * pair + m], vectors[8 * pair + 4 + m]);
                    let low = _mm512_shuffle_f32x4::<0b01_00_01_00>(a, b);
                    *to = _mm512_add_ps(low, _mm512_shuffle_f32x4::<0b11_10_11_10>(a, b));
                }
                let even = _mm512_shuffle_f32x4::<0b10_00_10_00>(halves[0], halves[1]);
                *to = _mm512_add_ps(even, _mm512_shuffle_f32x4::<0b11_01_11_01>(halves[0], halves[1]));
            }
            let mut pairs = [_mm512_setzero_ps(); 2];
            for (index, to) in pairs.iter_mut().enumerate() {
                let a = _mm512_castps_pd(quarters[2 * index]);
                let b = _mm512_castps_pd(quarters[2 * index + 1]);
                let low = _mm512_castpd_ps(_mm512_unpacklo_pd(a, b));
                *to = _mm512_add_ps(low, _mm512_castpd_ps(_mm512_unpackhi_pd(a, b)));
            }
            let even = _mm512_shuffle_ps::<0b10_00_10_00>(pairs[0], pairs[1]);
            _mm512_add_ps(even, _mm512_shuffle_ps::<0b11_01_11_01>(pairs[0], pairs[1]))
        }

        unsafe fn add(a: __m512, b: __m512) -> __m512 {
            _mm512_add_ps(a, b)
        }

        unsafe fn mul(a: __m512, b: __m512) -> __m512 {
            _mm512_mul_ps(a, b)
        }

        unsafe fn fma(a: __m512, b: __m512, c: __m512) -> __m512 {
            _mm512_fmadd_ps(a, b, c)
        }

        unsafe fn fnma(a: __m512, b: __m512, c: __m512) -> __m512 {
            _mm512_fnmadd_ps(a, b, c)
        }

        unsafe fn one_nan(values: __m512) -> __m512 {
            let is_nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(values, values);
            _mm512_mask_blend_ps(is_nan, values, _mm512_set1_ps(f32::NAN))
        }

        unsafe fn to_floats(values: __m512i) -> __m512 {
            _mm512_cvtepi32_ps(values)
        }

        unsafe fn zero_ints() -> __m512i {
            _mm512_setzero_si512()
        }

        unsafe fn add_ints(a: __m512i, b: __m512i) -> __m512i {
            _mm512_add_epi32(a, b)
        }

        unsafe fn and_ints(a: __m512i, mask: i32) -> __m512i {
            _mm512_and_si512(a, _mm512_set1_epi32(mask))
        }

        unsafe fn or_ints(a: __m512i, b: __m512i) -> __m512i {
            _mm512_or_si512(a, b)
        }

        unsafe fn shift_right_ints(a: __m512i, by: i32) -> __m512i {
            _mm512_sra_epi32(a, _mm_cvtsi32_si128(by))
        }

        unsafe fn load_u8(from: *const u8) -> __m512i {
            // SAFETY: 16 items are readable.
            _mm512_cvtepu8_epi32(unsafe { _mm_loadu_si128(from.cast()) })
        }

        unsafe fn load_i8(from: *const u8) -> __m512i {
            // SAFETY: 16 items are readable.
            _mm512_cvtepi8_epi32(unsafe { _mm_loadu_si128(from.cast()) })
        }

        unsafe fn load_bytes(from: *const u8) -> __m512i {
            // SAFETY: 64 items are readable.
            unsafe { _mm512_loadu_si512(from.cast()) }
        }

        unsafe fn and_bytes(a: __m512i, mask: u8) -> __m512i {
            _mm512_and_si512(a, _mm512_set1_epi8(mask as i8))
        }

        unsafe fn or_masked_bytes(a: __m512i, b: __m512i, mask: u8) -> __m512i {
            // 0xf8 is the truth table of a | (b & mask).
            _mm512_ternarylogic_epi32::<0xf8>(a, b, _mm512_set1_epi8(mask as i8))
        }

        unsafe fn shift_left_bytes(a: __m512i, by: i32) -> __m512i {
            _mm512_sll_epi16(a, _mm_cvtsi32_si128(by))
        }

        unsafe fn shift_right_bytes(a: __m512i, by: i32) -> __m512i {
            _mm512_srl_epi16(a, _mm_cvtsi32_si128(by))
        }

        unsafe fn look_up(table: &[u8; 16], indexes: __m512i) -> __m512i {
            // SAFETY: the table has 16 bytes.
            let table = unsafe { _mm_loadu_si128(table.as_ptr().cast()) };
            _mm512_shuffle_epi8(_mm512_broadcast_i32x4(table), indexes)
        }

        unsafe fn splat_four(from: *const u8) -> __m512i {
            // SAFETY: 4 items are readable.
            _mm512_set1_epi32(unsafe { from.cast::<i32>().read_unaligned() })
        }

        unsafe fn dot(sums: __m512i, weights: __m512i, activations: __m512i) -> __m512i {
            _mm512_dpbusd_epi32(sums, weights, activations)
        }

        unsafe fn dot_centred(sums: __m512i, weights: __m512i, activations: __m512i) -> __m512i {
            // The offsets put in before make up for the 128.
            _mm512_dpbusd_epi32(sums, weights, activations)
        }

        unsafe fn dot_in_order(sums: __m512i, weights: __m512i, activations: __m512i) -> __m512i {
            let mut sums = sums;
            // SAFETY: the instruction is part of the level and touches its registers alone.
            unsafe {
                asm!(
                    "vpdpbusd {sums}, {weights}, {activations}",
                    sums = inout(zmm_reg) sums,
                    weights = in(zmm_reg) weights,
                    activations = in(zmm_reg) activations,
                    options(nomem, nostack, preserves_flags),
                );
            }
            sums
        }

        unsafe fn dot_centred_in_order(sums: __m512i, weights: __m512i, activations: __m512i) -> __m512i {
            // SAFETY: as for `dot_centred`.
            unsafe { Self::dot_in_order(sums, weights, activations) }
        }

        unsafe fn begin_centred(offset: i32) -> __m512i {
            _mm512_set1_epi32(offset)
        }

        unsafe fn largest_magnitude_bits(values: *const f32) -> u32 {
            // SAFETY: 32 items are readable.
            let (a, b) = unsafe { (_mm512_loadu_si512(values.cast()), _mm512_loadu_si512(values.add(16).cast())) };
            let magnitude = _mm512_set1_epi32(i32::MAX);
            let larger = _mm512_max_epu32(_mm512_and_si512(a, magnitude), _mm512_and_si512(b, magnitude));
            _mm512_reduce_max_epu32(larger)
        }

        unsafe fn quantize(values: *const f32, factor: f32, to: *mut u8) -> i32 {
            // SAFETY: 16 items are readable.
            let scaled = _mm512_mul_ps(unsafe { _mm512_loadu_ps(values) }, _mm512_set1_ps(factor));
            let quants = _mm512_cvtps_epi32(scaled);
            // SAFETY: 16 items are writable.
            unsafe { _mm_storeu_si128(to.cast(), _mm512_cvtepi32_epi8(quants)) }
            _mm512_reduce_add_epi32(quants)
        }
    }
}
