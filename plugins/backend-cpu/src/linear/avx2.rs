//! Lanes in two 256-bit registers.

use std::arch::x86_64::*;

use super::lanes::{LANES, Lanes, Task};

/// The AVX2 level: AVX2, FMA and F16C.
#[derive(Clone, Copy)]
pub(crate) struct Avx2;

type Floats = [__m256; 2];
type Ints = [__m256i; 2];

/// # Safety
/// The processor has the features named here, and the contract of the task holds.
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn enter<T: Task>(task: T) {
    // SAFETY: the features of this function are those of the level.
    unsafe { task.run::<Avx2>() }
}

/// Writes a method of [`Lanes`] compiled with the features of the level.
macro_rules! with_features {
    ($(unsafe fn $name:ident($($arg:ident: $kind:ty),*) $(-> $out:ty)? $body:block)*) => {
        $(
            #[inline]
            #[target_feature(enable = "avx2,fma,f16c")]
            unsafe fn $name($($arg: $kind),*) $(-> $out)? $body
        )*
    };
}

/// Largest of eight unsigned numbers.
#[inline]
#[target_feature(enable = "avx2")]
fn largest(values: __m256i) -> u32 {
    let four = _mm_max_epu32(_mm256_castsi256_si128(values), _mm256_extracti128_si256::<1>(values));
    let two = _mm_max_epu32(four, _mm_shuffle_epi32::<0b01_00_11_10>(four));
    let one = _mm_max_epu32(two, _mm_shuffle_epi32::<0b10_11_00_01>(two));
    _mm_cvtsi128_si32(one) as u32
}

/// Sum of eight numbers.
#[inline]
#[target_feature(enable = "avx2")]
fn total(values: __m256i) -> i32 {
    let four = _mm_add_epi32(_mm256_castsi256_si128(values), _mm256_extracti128_si256::<1>(values));
    let two = _mm_add_epi32(four, _mm_shuffle_epi32::<0b01_00_11_10>(four));
    let one = _mm_add_epi32(two, _mm_shuffle_epi32::<0b10_11_00_01>(two));
    _mm_cvtsi128_si32(one)
}

impl Lanes for Avx2 {
    type Floats = Floats;
    type Ints = Ints;
    type Bytes = Ints;

    const TILE: usize = 2;
    const PAIRED_TILE: usize = 0;

    #[inline(always)]
    unsafe fn enter<T: Task>(task: T) {
        // SAFETY: the caller vouches for the features and for the task.
        unsafe { enter(task) }
    }

    with_features! {
        unsafe fn zero() -> Floats {
            [_mm256_setzero_ps(); 2]
        }

        unsafe fn splat(value: f32) -> Floats {
            [_mm256_set1_ps(value); 2]
        }

        unsafe fn load(from: *const f32) -> Floats {
            // SAFETY: 16 items are readable.
            unsafe { [_mm256_loadu_ps(from), _mm256_loadu_ps(from.add(8))] }
        }

        unsafe fn load_f16(from: *const u8) -> Floats {
            // SAFETY: 16 items are readable.
            let [low, high] = unsafe { [_mm_loadu_si128(from.cast()), _mm_loadu_si128(from.add(16).cast())] };
            [_mm256_cvtph_ps(low), _mm256_cvtph_ps(high)]
        }

        unsafe fn load_bf16(from: *const u8) -> Floats {
            // SAFETY: 16 items are readable.
            let [low, high] = unsafe { [_mm_loadu_si128(from.cast()), _mm_loadu_si128(from.add(16).cast())] };
            [
                _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(low))),
                _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(high))),
            ]
        }

        unsafe fn load_e8m0_half(from: *const u8) -> Floats {
            // SAFETY: 16 items are readable.
            let exponents = unsafe { Self::load_u8(from) };
            let one = _mm256_set1_epi32(1);
            // The exponent's field of f32 is e - 1.
            let low = _mm256_sub_epi32(_mm256_max_epi32(exponents[0], one), one);
            let high = _mm256_sub_epi32(_mm256_max_epi32(exponents[1], one), one);
            [
                _mm256_castsi256_ps(_mm256_slli_epi32::<23>(low)),
                _mm256_castsi256_ps(_mm256_slli_epi32::<23>(high)),
            ]
        }

        unsafe fn store(values: Floats, to: *mut f32) {
            // SAFETY: 16 items are writable.
            unsafe {
                _mm256_storeu_ps(to, values[0]);
                _mm256_storeu_ps(to.add(8), values[1]);
            }
        }

        unsafe fn transpose_four(from: *const f32, stride: usize, to: *mut f32) {
            // Eight places at a time: place 4i + r in half i of register r, then four by four in each half.
            for part in 0..2 {
                let mut rows = [_mm256_setzero_ps(); 4];
                for (r, row) in rows.iter_mut().enumerate() {
                    // SAFETY: 4 items are readable at each of 16 places.
                    unsafe {
                        let at = |place: usize| from.add((8 * part + place) * stride);
                        let first = _mm256_castps128_ps256(_mm_loadu_ps(at(r)));
                        *row = _mm256_insertf128_ps::<1>(first, _mm_loadu_ps(at(r + 4)));
                    }
                }
                let low = [_mm256_unpacklo_ps(rows[0], rows[1]), _mm256_unpacklo_ps(rows[2], rows[3])];
                let high = [_mm256_unpackhi_ps(rows[0], rows[1]), _mm256_unpackhi_ps(rows[2], rows[3])];
                for (half, [a, b]) in [low, high].into_iter().enumerate() {
                    let (a, b) = (_mm256_castps_pd(a), _mm256_castps_pd(b));
                    // SAFETY: 64 items are writable.
                    unsafe {
                        let to = to.add(2 * half * LANES + 8 * part);
                        _mm256_storeu_ps(to, _mm256_castpd_ps(_mm256_unpacklo_pd(a, b)));
                        _mm256_storeu_ps(to.add(LANES), _mm256_castpd_ps(_mm256_unpackhi_pd(a, b)));
                    }
                }
            }
        }

        unsafe fn add(a: Floats, b: Floats) -> Floats {
            [_mm256_add_ps(a[0], b[0]), _mm256_add_ps(a[1], b[1])]
        }

        unsafe fn mul(a: Floats, b: Floats) -> Floats {
            [_mm256_mul_ps(a[0], b[0]), _mm256_mul_ps(a[1], b[1])]
        }

        unsafe fn fma(a: Floats, b: Floats, c: Floats) -> Floats {
            [_mm256_fmadd_ps(a[0], b[0], c[0]), _mm256_fmadd_ps(a[1], b[1], c[1])]
        }

        unsafe fn fnma(a: Floats, b: Floats, c: Floats) -> Floats {
            [_mm256_fnmadd_ps(a[0], b[0], c[0]), _mm256_fnmadd_ps(a[1], b[1], c[1])]
        }

        unsafe fn one_nan(values: Floats) -> Floats {
            let nan = _mm256_set1_ps(f32::NAN);
            [
                _mm256_blendv_ps(values[0], nan, _mm256_cmp_ps::<_CMP_UNORD_Q>(values[0], values[0])),
                _mm256_blendv_ps(values[1], nan, _mm256_cmp_ps::<_CMP_UNORD_Q>(values[1], values[1])),
            ]
        }

        unsafe fn to_floats(values: Ints) -> Floats {
            [_mm256_cvtepi32_ps(values[0]), _mm256_cvtepi32_ps(values[1])]
        }

        unsafe fn zero_ints() -> Ints {
            [_mm256_setzero_si256(); 2]
        }

        unsafe fn add_ints(a: Ints, b: Ints) -> Ints {
            [_mm256_add_epi32(a[0], b[0]), _mm256_add_epi32(a[1], b[1])]
        }

        unsafe fn and_ints(a: Ints, mask: i32) -> Ints {
            let mask = _mm256_set1_epi32(mask);
            [_mm256_and_si256(a[0], mask), _mm256_and_si256(a[1], mask)]
        }

        unsafe fn or_ints(a: Ints, b: Ints) -> Ints {
            [_mm256_or_si256(a[0], b[0]), _mm256_or_si256(a[1], b[1])]
        }

        unsafe fn shift_right_ints(a: Ints, by: i32) -> Ints {
            let by = _mm_cvtsi32_si128(by);
            [_mm256_sra_epi32(a[0], by), _mm256_sra_epi32(a[1], by)]
        }

        unsafe fn load_u8(from: *const u8) -> Ints {
            // SAFETY: 16 items are readable.
            let [low, high] = unsafe { [_mm_loadl_epi64(from.cast()), _mm_loadl_epi64(from.add(8).cast())] };
            [_mm256_cvtepu8_epi32(low), _mm256_cvtepu8_epi32(high)]
        }

        unsafe fn load_i8(from: *const u8) -> Ints {
            // SAFETY: 16 items are readable.
            let [low, high] = unsafe { [_mm_loadl_epi64(from.cast()), _mm_loadl_epi64(from.add(8).cast())] };
            [_mm256_cvtepi8_epi32(low), _mm256_cvtepi8_epi32(high)]
        }

        unsafe fn load_bytes(from: *const u8) -> Ints {
            // SAFETY: 64 items are readable.
            unsafe { [_mm256_loadu_si256(from.cast()), _mm256_loadu_si256(from.add(32).cast())] }
        }

        unsafe fn and_bytes(a: Ints, mask: u8) -> Ints {
            let mask = _mm256_set1_epi8(mask as i8);
            [_mm256_and_si256(a[0], mask), _mm256_and_si256(a[1], mask)]
        }

        unsafe fn or_masked_bytes(a: Ints, b: Ints, mask: u8) -> Ints {
            let mask = _mm256_set1_epi8(mask as i8);
            [
                _mm256_or_si256(a[0], _mm256_and_si256(b[0], mask)),
                _mm256_or_si256(a[1], _mm256_and_si256(b[1], mask)),
            ]
        }

        unsafe fn shift_left_bytes(a: Ints, by: i32) -> Ints {
            let by = _mm_cvtsi32_si128(by);
            [_mm256_sll_epi16(a[0], by), _mm256_sll_epi16(a[1], by)]
        }

        unsafe fn shift_right_bytes(a: Ints, by: i32) -> Ints {
            let by = _mm_cvtsi32_si128(by);
            [_mm256_srl_epi16(a[0], by), _mm256_srl_epi16(a[1], by)]
        }

        unsafe fn look_up(table: &[u8; 16], indexes: Ints) -> Ints {
            // SAFETY: the table has 16 bytes.
            let table = _mm256_broadcastsi128_si256(unsafe { _mm_loadu_si128(table.as_ptr().cast()) });
            [_mm256_shuffle_epi8(table, indexes[0]), _mm256_shuffle_epi8(table, indexes[1])]
        }

        unsafe fn splat_four(from: *const u8) -> Ints {
            // SAFETY: 4 items are readable.
            [_mm256_set1_epi32(unsafe { from.cast::<i32>().read_unaligned() }); 2]
        }

        unsafe fn dot(sums: Ints, weights: Ints, activations: Ints) -> Ints {
            let four = activations[0];
            let ones = _mm256_set1_epi16(1);
            // A pair sums to at most 2 * 127 * 127, which 16 bits hold.
            let pairs = [_mm256_maddubs_epi16(weights[0], four), _mm256_maddubs_epi16(weights[1], four)];
            [
                _mm256_add_epi32(sums[0], _mm256_madd_epi16(pairs[0], ones)),
                _mm256_add_epi32(sums[1], _mm256_madd_epi16(pairs[1], ones)),
            ]
        }

        unsafe fn dot_centred(sums: Ints, weights: Ints, activations: Ints) -> Ints {
            let four = activations[0];
            let ones = _mm256_set1_epi16(1);
            let half = _mm256_set1_epi8(-128);
            // Flipping the top bit subtracts 128. The sign moves to the activations, as the
            // instruction wants one side unsigned; a pair sums to at most 2 * 128 * 127, which
            // 16 bits hold.
            let centred = [_mm256_xor_si256(weights[0], half), _mm256_xor_si256(weights[1], half)];
            let pairs = [
                _mm256_maddubs_epi16(_mm256_abs_epi8(centred[0]), _mm256_sign_epi8(four, centred[0])),
                _mm256_maddubs_epi16(_mm256_abs_epi8(centred[1]), _mm256_sign_epi8(four, centred[1])),
            ];
            [
                _mm256_add_epi32(sums[0], _mm256_madd_epi16(pairs[0], ones)),
                _mm256_add_epi32(sums[1], _mm256_madd_epi16(pairs[1], ones)),
            ]
        }

        unsafe fn begin_centred(_offset: i32) -> Ints {
            [_mm256_setzero_si256(); 2]
        }

        unsafe fn largest_magnitude_bits(values: *const f32) -> u32 {
            let magnitude = _mm256_set1_epi32(i32::MAX);
            let mut larger = _mm256_setzero_si256();
            for part in 0..4 {
                // SAFETY: 32 items are readable.
                let eight = unsafe { _mm256_loadu_si256(values.add(8 * part).cast()) };
                larger = _mm256_max_epu32(larger, _mm256_and_si256(eight, magnitude));
            }
            largest(larger)
        }

        unsafe fn quantize(values: *const f32, factor: f32, to: *mut u8) -> i32 {
            let factor = _mm256_set1_ps(factor);
            // SAFETY: 16 items are readable.
            let [low, high] = unsafe { [_mm256_loadu_ps(values), _mm256_loadu_ps(values.add(8))] };
            let low = _mm256_cvtps_epi32(_mm256_mul_ps(low, factor));
            let high = _mm256_cvtps_epi32(_mm256_mul_ps(high, factor));
            // Packing works within 128-bit halves; the permutation puts the parts in order.
            let words = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packs_epi32(low, high));
            let bytes = _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256::<1>(words));
            // SAFETY: 16 items are writable.
            unsafe { _mm_storeu_si128(to.cast(), bytes) }
            total(_mm256_add_epi32(low, high))
        }
    }
}
