//! Lanes in plain Rust: the definition that the vector levels must match bit for bit.

use super::lanes::{LANES, Lanes, Task};

/// The scalar level.
#[derive(Clone, Copy)]
pub(crate) struct Scalar;

/// # Safety
/// `N` bytes are readable at `from`.
#[inline(always)]
unsafe fn read<const N: usize>(from: *const u8) -> [u8; N] {
    // SAFETY: a byte array has no alignment, and the caller vouches for its length.
    unsafe { from.cast::<[u8; N]>().read_unaligned() }
}

#[inline(always)]
fn each<T: Copy, U>(values: [T; LANES], f: impl FnMut(T) -> U) -> [U; LANES] {
    values.map(f)
}

// SAFETY comments below that say "16 items" rely on the contract of `Lanes`.
impl Lanes for Scalar {
    type Floats = [f32; LANES];
    type Ints = [i32; LANES];
    type Bytes = [u8; 64];

    const TILE: usize = 4;
    const PAIRED_TILE: usize = 0;

    #[inline(always)]
    unsafe fn enter<T: Task>(task: T) {
        // SAFETY: scalar code needs no instructions beyond those of the target.
        unsafe { task.run::<Scalar>() }
    }

    #[inline(always)]
    unsafe fn zero() -> [f32; LANES] {
        [0.0; LANES]
    }

    #[inline(always)]
    unsafe fn splat(value: f32) -> [f32; LANES] {
        [value; LANES]
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> [f32; LANES] {
        // SAFETY: 16 items are readable.
        unsafe { from.cast::<[f32; LANES]>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn load_f16(from: *const u8) -> [f32; LANES] {
        // SAFETY: 16 items are readable.
        let bytes: [u8; 32] = unsafe { read(from) };
        std::array::from_fn(|i| half::f16::from_le_bytes([bytes[2 * i], bytes[2 * i + 1]]).to_f32())
    }

    #[inline(always)]
    unsafe fn load_bf16(from: *const u8) -> [f32; LANES] {
        // SAFETY: 16 items are readable.
        let bytes: [u8; 32] = unsafe { read(from) };
        std::array::from_fn(|i| half::bf16::from_le_bytes([bytes[2 * i], bytes[2 * i + 1]]).to_f32())
    }

    #[inline(always)]
    unsafe fn transpose_four(from: *const f32, stride: usize, to: *mut f32) {
        for place in 0..LANES {
            for item in 0..4 {
                // SAFETY: 4 items are readable at each of 16 places, 64 are writable.
                unsafe { *to.add(item * LANES + place) = *from.add(place * stride + item) };
            }
        }
    }

    #[inline(always)]
    unsafe fn load_e8m0_half(from: *const u8) -> [f32; LANES] {
        // SAFETY: 16 items are readable.
        each(unsafe { read::<LANES>(from) }, |e| f32::from_bits(u32::from(e).saturating_sub(1) << 23))
    }

    #[inline(always)]
    unsafe fn store(values: [f32; LANES], to: *mut f32) {
        // SAFETY: 16 items are writable.
        unsafe { to.cast::<[f32; LANES]>().write_unaligned(values) }
    }

    #[inline(always)]
    unsafe fn add(a: [f32; LANES], b: [f32; LANES]) -> [f32; LANES] {
        std::array::from_fn(|i| a[i] + b[i])
    }

    #[inline(always)]
    unsafe fn mul(a: [f32; LANES], b: [f32; LANES]) -> [f32; LANES] {
        std::array::from_fn(|i| a[i] * b[i])
    }

    #[inline(always)]
    unsafe fn fma(a: [f32; LANES], b: [f32; LANES], c: [f32; LANES]) -> [f32; LANES] {
        std::array::from_fn(|i| a[i].mul_add(b[i], c[i]))
    }

    #[inline(always)]
    unsafe fn fnma(a: [f32; LANES], b: [f32; LANES], c: [f32; LANES]) -> [f32; LANES] {
        std::array::from_fn(|i| (-a[i]).mul_add(b[i], c[i]))
    }

    #[inline(always)]
    unsafe fn one_nan(values: [f32; LANES]) -> [f32; LANES] {
        each(values, |v| if v.is_nan() { f32::NAN } else { v })
    }

    #[inline(always)]
    unsafe fn to_floats(values: [i32; LANES]) -> [f32; LANES] {
        each(values, |v| v as f32)
    }

    #[inline(always)]
    unsafe fn zero_ints() -> [i32; LANES] {
        [0; LANES]
    }

    #[inline(always)]
    unsafe fn add_ints(a: [i32; LANES], b: [i32; LANES]) -> [i32; LANES] {
        std::array::from_fn(|i| a[i] + b[i])
    }

    #[inline(always)]
    unsafe fn and_ints(a: [i32; LANES], mask: i32) -> [i32; LANES] {
        each(a, |v| v & mask)
    }

    #[inline(always)]
    unsafe fn or_ints(a: [i32; LANES], b: [i32; LANES]) -> [i32; LANES] {
        std::array::from_fn(|i| a[i] | b[i])
    }

    #[inline(always)]
    unsafe fn shift_right_ints(a: [i32; LANES], by: i32) -> [i32; LANES] {
        each(a, |v| v >> by)
    }

    #[inline(always)]
    unsafe fn load_u8(from: *const u8) -> [i32; LANES] {
        // SAFETY: 16 items are readable.
        each(unsafe { read::<LANES>(from) }, i32::from)
    }

    #[inline(always)]
    unsafe fn load_i8(from: *const u8) -> [i32; LANES] {
        // SAFETY: 16 items are readable.
        each(unsafe { read::<LANES>(from) }, |v| i32::from(v as i8))
    }

    #[inline(always)]
    unsafe fn load_bytes(from: *const u8) -> [u8; 64] {
        // SAFETY: 64 items are readable.
        unsafe { read(from) }
    }

    #[inline(always)]
    unsafe fn and_bytes(a: [u8; 64], mask: u8) -> [u8; 64] {
        a.map(|v| v & mask)
    }

    #[inline(always)]
    unsafe fn or_masked_bytes(a: [u8; 64], b: [u8; 64], mask: u8) -> [u8; 64] {
        std::array::from_fn(|i| a[i] | (b[i] & mask))
    }

    #[inline(always)]
    unsafe fn shift_left_bytes(a: [u8; 64], by: i32) -> [u8; 64] {
        a.map(|v| v << by)
    }

    #[inline(always)]
    unsafe fn shift_right_bytes(a: [u8; 64], by: i32) -> [u8; 64] {
        a.map(|v| v >> by)
    }

    #[inline(always)]
    unsafe fn look_up(table: &[u8; 16], indexes: [u8; 64]) -> [u8; 64] {
        indexes.map(|index| table[usize::from(index & 15)])
    }

    #[inline(always)]
    unsafe fn splat_four(from: *const u8) -> [u8; 64] {
        // SAFETY: 4 items are readable.
        let four = unsafe { read::<4>(from) };
        std::array::from_fn(|i| four[i % 4])
    }

    #[inline(always)]
    unsafe fn dot(sums: [i32; LANES], weights: [u8; 64], activations: [u8; 64]) -> [i32; LANES] {
        std::array::from_fn(|lane| {
            (4 * lane..4 * lane + 4)
                .fold(sums[lane], |sum, i| sum + i32::from(weights[i]) * i32::from(activations[i] as i8))
        })
    }

    #[inline(always)]
    unsafe fn dot_centred(sums: [i32; LANES], weights: [u8; 64], activations: [u8; 64]) -> [i32; LANES] {
        std::array::from_fn(|lane| {
            (4 * lane..4 * lane + 4).fold(sums[lane], |sum, i| {
                sum + (i32::from(weights[i]) - 128) * i32::from(activations[i] as i8)
            })
        })
    }

    #[inline(always)]
    unsafe fn begin_centred(_offset: i32) -> [i32; LANES] {
        [0; LANES]
    }

    #[inline(always)]
    unsafe fn largest_magnitude_bits(values: *const f32) -> u32 {
        // SAFETY: 32 items are readable.
        let values = unsafe { values.cast::<[f32; 32]>().read_unaligned() };
        values.iter().fold(0, |largest, value| largest.max(value.abs().to_bits()))
    }

    #[inline(always)]
    unsafe fn quantize(values: *const f32, factor: f32, to: *mut u8) -> i32 {
        // SAFETY: 16 items are readable.
        let values = unsafe { values.cast::<[f32; LANES]>().read_unaligned() };
        let quants = each(values, |v| (v * factor).round_ties_even() as i8);
        // SAFETY: 16 items are writable.
        unsafe { to.cast::<[u8; LANES]>().write_unaligned(quants.map(|q| q as u8)) }
        quants.iter().map(|&q| i32::from(q)).sum()
    }
}
