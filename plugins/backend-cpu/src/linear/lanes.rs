//! Sixteen-lane vectors: what the kernels are written in, once for all levels.
//!
//! A lane is an output row of a weight panel. Nothing here adds lanes to each other, so the
//! order of every float addition is the one a kernel spells out, on every level.

use crate::level::Level;

/// Lanes of a vector, which is also the number of weight rows in a panel.
pub(crate) const LANES: usize = 16;

/// Work that is compiled once for every level.
pub(crate) trait Task {
    /// Does the work. Implementations are `inline(always)`, so that they become part of a
    /// function compiled with the instructions of `L`.
    ///
    /// # Safety
    /// The processor has the instructions of `L`, and whatever the task itself asks for holds.
    unsafe fn run<L: Lanes>(self);
}

/// Runs a task on `level`, or on the fastest level there is where the processor lacks it.
///
/// The task must be sound to run: what it asks for beyond instructions holds by construction.
pub(crate) fn run<T: Task>(level: Level, task: T) {
    match level.usable() {
        // SAFETY: `usable` answers only with levels that the processor has.
        Level::Scalar => unsafe { super::scalar::Scalar::enter(task) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        Level::Avx2 => unsafe { super::avx2::Avx2::enter(task) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        Level::Avx512Vnni => unsafe { super::avx512::Avx512::enter(task) },
        #[cfg(target_arch = "aarch64")]
        // SAFETY: as above.
        Level::Neon => unsafe { super::neon::Neon::enter(task) },
        // Levels of other processors, which are not usable here.
        // SAFETY: as above.
        _ => unsafe { super::scalar::Scalar::enter(task) },
    }
}

/// Asks the cache for the line at `address`, which may lie anywhere.
#[inline(always)]
pub(crate) fn prefetch(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch never faults, and the instruction is part of every x86-64.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(address.cast());
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a prefetch never faults, and the instruction is part of every such processor.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = address;
}

/// As [`prefetch`], into the second-level cache only.
#[inline(always)]
pub(crate) fn prefetch_second_level(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch never faults, and the instruction is part of every x86-64.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T1 }>(address.cast());
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a prefetch never faults, and the instruction is part of every such processor.
    unsafe {
        std::arch::asm!("prfm pldl2keep, [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = address;
}

/// As [`prefetch`], for a line that will be written: other processors give it up.
#[inline(always)]
pub(crate) fn prefetch_to_write(address: *mut u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: it never faults, and processors that lack the instruction take it for one that does nothing.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a prefetch never faults, and the instruction is part of every such processor.
    unsafe {
        std::arch::asm!("prfm pstl1keep, [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = address;
}

/// Sixteen lanes on one level.
///
/// # Safety
/// Every function needs the instructions of the level; those with a pointer read or write the
/// number of items they name behind it, at any alignment.
pub(crate) trait Lanes: Copy {
    /// 16 `f32`.
    type Floats: Copy;
    /// 16 `i32`.
    type Ints: Copy;
    /// 64 bytes, four for every lane.
    type Bytes: Copy;

    /// The most activation rows of a tile whose sums fit the registers, at most 8.
    const TILE: usize;
    /// The same for two panels at once, 5 or 6; 0 where two are too many.
    const PAIRED_TILE: usize;

    /// Runs a task compiled for this level.
    unsafe fn enter<T: Task>(task: T);

    /// 16 zeros.
    unsafe fn zero() -> Self::Floats;
    /// One value in all lanes.
    unsafe fn splat(value: f32) -> Self::Floats;
    /// Reads 16 `f32`.
    unsafe fn load(from: *const f32) -> Self::Floats;
    /// Reads 16 half-precision floats.
    unsafe fn load_f16(from: *const u8) -> Self::Floats;
    /// Reads 16 bfloat16.
    unsafe fn load_bf16(from: *const u8) -> Self::Floats;
    /// Reads 16 bytes e as 2^(e - 128), which is half of what E8M0 means; 0 and 1, whose powers are subnormal, give 0.
    unsafe fn load_e8m0_half(from: *const u8) -> Self::Floats;
    /// Writes 16 `f32`.
    unsafe fn store(values: Self::Floats, to: *mut f32);
    /// Reads 4 `f32` each at 16 places `stride` elements apart, and writes 4 vectors: the first of each place, the
    /// second of each, and so on.
    unsafe fn transpose_four(from: *const f32, stride: usize, to: *mut f32);
    /// Adds the lanes of each vector, the sum of the first in lane 0, and so on: lane `i + 8` to lane `i`, then `i + 4`,
    /// `i + 2`, `i + 1`.
    #[inline(always)]
    unsafe fn sum_each(vectors: [Self::Floats; LANES]) -> Self::Floats {
        let mut sums = [0.0; LANES];
        // SAFETY: 16 items are readable and writable; the rest is the caller's promise.
        unsafe {
            for (sum, vector) in sums.iter_mut().zip(vectors) {
                let mut lanes = [0.0; LANES];
                Self::store(vector, lanes.as_mut_ptr());
                for half in [8, 4, 2, 1] {
                    for lane in 0..half {
                        lanes[lane] += lanes[lane + half];
                    }
                }
                *sum = lanes[0];
            }
            Self::load(sums.as_ptr())
        }
    }
    /// `a + b`.
    unsafe fn add(a: Self::Floats, b: Self::Floats) -> Self::Floats;
    /// `a * b`.
    unsafe fn mul(a: Self::Floats, b: Self::Floats) -> Self::Floats;
    /// `a * b + c`, rounded once.
    unsafe fn fma(a: Self::Floats, b: Self::Floats, c: Self::Floats) -> Self::Floats;
    /// `c - a * b`, rounded once.
    unsafe fn fnma(a: Self::Floats, b: Self::Floats, c: Self::Floats) -> Self::Floats;
    /// Replaces every NaN by the one NaN of `f32::NAN`: which NaN an operation hands on is
    /// not the same on all levels.
    unsafe fn one_nan(values: Self::Floats) -> Self::Floats;
    /// Nearest `f32`, ties to even.
    unsafe fn to_floats(values: Self::Ints) -> Self::Floats;

    /// 16 zeros.
    unsafe fn zero_ints() -> Self::Ints;
    /// `a + b`.
    unsafe fn add_ints(a: Self::Ints, b: Self::Ints) -> Self::Ints;
    /// Bits in both `a` and `mask`.
    unsafe fn and_ints(a: Self::Ints, mask: i32) -> Self::Ints;
    /// Bits in `a` or `b`.
    unsafe fn or_ints(a: Self::Ints, b: Self::Ints) -> Self::Ints;
    /// `a >> by`.
    unsafe fn shift_right_ints(a: Self::Ints, by: i32) -> Self::Ints;
    /// Reads 16 `u8`.
    unsafe fn load_u8(from: *const u8) -> Self::Ints;
    /// Reads 16 `i8`.
    unsafe fn load_i8(from: *const u8) -> Self::Ints;

    /// Reads 64 bytes.
    unsafe fn load_bytes(from: *const u8) -> Self::Bytes;
    /// Bits in both `a` and `mask`.
    unsafe fn and_bytes(a: Self::Bytes, mask: u8) -> Self::Bytes;
    /// Bits of `a`, and of `b` where `mask` has them.
    unsafe fn or_masked_bytes(a: Self::Bytes, b: Self::Bytes, mask: u8) -> Self::Bytes;
    /// Shifts left. What crosses from byte to byte is unspecified: mask it away.
    unsafe fn shift_left_bytes(a: Self::Bytes, by: i32) -> Self::Bytes;
    /// Shifts right. What crosses from byte to byte is unspecified: mask it away.
    unsafe fn shift_right_bytes(a: Self::Bytes, by: i32) -> Self::Bytes;

    /// The entries of a table that bytes below 16 name.
    unsafe fn look_up(table: &[u8; 16], indexes: Self::Bytes) -> Self::Bytes;

    /// Reads 4 bytes, for every lane.
    unsafe fn splat_four(from: *const u8) -> Self::Bytes;
    /// `sums` plus, per lane, the four products of its weights (below 128) and its activations,
    /// which are the same four for every lane.
    unsafe fn dot(sums: Self::Ints, weights: Self::Bytes, activations: Self::Bytes) -> Self::Ints;
    /// As `dot`, of `weights - 128` for any bytes; on a level that cannot subtract in passing,
    /// the sum is short by what `begin_centred` put in.
    unsafe fn dot_centred(sums: Self::Ints, weights: Self::Bytes, activations: Self::Bytes) -> Self::Ints;
    /// As `dot`, and the compiler keeps the order in which these are written. Left alone, it puts the instructions of
    /// one sum after another, where each waits for the one before; with many sums that is slower.
    #[inline(always)]
    unsafe fn dot_in_order(sums: Self::Ints, weights: Self::Bytes, activations: Self::Bytes) -> Self::Ints {
        // SAFETY: as the caller promises.
        unsafe { Self::dot(sums, weights, activations) }
    }
    /// As `dot_centred`, in order as [`Lanes::dot_in_order`].
    #[inline(always)]
    unsafe fn dot_centred_in_order(
        sums: Self::Ints,
        weights: Self::Bytes,
        activations: Self::Bytes,
    ) -> Self::Ints {
        // SAFETY: as the caller promises.
        unsafe { Self::dot_centred(sums, weights, activations) }
    }
    /// The sums before the `dot_centred` of activations whose sum times -128 is `offset`.
    unsafe fn begin_centred(offset: i32) -> Self::Ints;

    /// The largest magnitude among 32 values, as bits without the sign: infinities and NaNs
    /// come out above every finite value.
    unsafe fn largest_magnitude_bits(values: *const f32) -> u32;
    /// Writes `round_ties_even(value * factor)` of 16 values as `i8`; answers with their sum.
    /// The results must lie in -127..=127.
    unsafe fn quantize(values: *const f32, factor: f32, to: *mut u8) -> i32;
}

#[cfg(test)]
mod tests {
    use super::*;

    struct SumEach<'a> {
        vectors: &'a [[f32; LANES]; LANES],
        sums: &'a mut [f32; LANES],
    }

    impl Task for SumEach<'_> {
        #[inline(always)]
        unsafe fn run<L: Lanes>(self) {
            // SAFETY: 16 items are readable and writable each, and the processor has the instructions of L.
            unsafe {
                let mut vectors = [L::zero(); LANES];
                for (vector, from) in vectors.iter_mut().zip(self.vectors) {
                    *vector = L::load(from.as_ptr());
                }
                L::store(L::sum_each(vectors), self.sums.as_mut_ptr());
            }
        }
    }

    #[test]
    fn sums_of_each_vector_have_one_order_and_place() {
        // Values whose sum depends on the order.
        let vectors: [[f32; LANES]; LANES] = std::array::from_fn(|vector| {
            std::array::from_fn(|lane| {
                let number = (vector * LANES + lane) as f32;
                (number * 0.7).sin() * 10f32.powi((vector * 5 + lane * 3) as i32 % 7)
            })
        });
        let expected = vectors.map(|lanes| {
            let eight: [f32; 8] = std::array::from_fn(|i| lanes[i] + lanes[i + 8]);
            let four: [f32; 4] = std::array::from_fn(|i| eight[i] + eight[i + 4]);
            (four[0] + four[2]) + (four[1] + four[3])
        });
        for level in Level::available() {
            let mut sums = [0.0; LANES];
            run(level, SumEach { vectors: &vectors, sums: &mut sums });
            assert_eq!(sums.map(f32::to_bits), expected.map(f32::to_bits), "{level}");
        }
    }
}
