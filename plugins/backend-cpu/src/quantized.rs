//! Activations as the quantised kernels read them.
//!
//! A row of `k` values is cut into blocks of 32. A block holds, in [`BLOCK_BYTES`] bytes:
//!
//! | offset | content                                                     |
//! |-------:|-------------------------------------------------------------|
//! |      0 | 32 quants, `i8` in -127..=127                               |
//! |     32 | scale, `f32`: value = scale * quant                         |
//! |     36 | scaled sum, `f32`: scale * (sum of the 32 quants)           |
//! |     40 | three `i32`: -128 * (sum of quants 0..16), of 16..32, of all  |
//!
//! The formula, the same on every level: with `a` the largest magnitude of the block,
//! `scale = a / 127` and `quant = round_ties_even(value * (127 / a))`. A block with `a` below
//! 2^-100 is all zero. A block with a NaN or an infinity has quants 0 and a NaN scale, so every
//! product with it is NaN.

use std::fmt;

use crate::level::Level;
use crate::linear::lanes::{self, Lanes, Task};

/// Values per block.
pub const BLOCK: usize = 32;
/// Bytes per block.
pub const BLOCK_BYTES: usize = 52;
/// Byte offset of the scale in a block.
pub(crate) const SCALE_AT: usize = 32;
/// Byte offset of the scaled sum in a block.
pub(crate) const SCALED_SUM_AT: usize = 36;
/// Byte offset of the three offsets in a block.
pub(crate) const OFFSETS_AT: usize = 40;

/// Magnitudes below this count as zero: 127 over them would overflow.
const SMALLEST_MAGNITUDE: f32 = f32::from_bits((127 - 100) << 23);

/// A row whose length does not suit the format or the buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowError(&'static str);

impl fmt::Display for RowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for RowError {}

/// Bytes of one quantised row of `k` values (`k` a multiple of [`BLOCK`]).
///
/// An odd number of cache lines, so that equal offsets of neighbouring rows do not all fall in
/// the same cache set.
pub const fn row_bytes(k: usize) -> usize {
    ((k / BLOCK * BLOCK_BYTES).div_ceil(64) | 1) * 64
}

/// Quantises one row into the first [`row_bytes`] bytes of `row`; the padding is left as it was.
pub fn quantize_row(level: Level, values: &[f32], row: &mut [u8]) -> Result<(), RowError> {
    if !values.len().is_multiple_of(BLOCK) {
        return Err(RowError("a quantised row needs a multiple of 32 values"));
    }
    if row.len() < row_bytes(values.len()) {
        return Err(RowError("the buffer of a quantised row is too short"));
    }
    lanes::run(level, QuantizeRow { values, row });
    Ok(())
}

struct QuantizeRow<'a> {
    values: &'a [f32],
    row: &'a mut [u8],
}

impl Task for QuantizeRow<'_> {
    #[inline(always)]
    unsafe fn run<L: Lanes>(self) {
        for (values, block) in self.values.chunks_exact(BLOCK).zip(self.row.chunks_exact_mut(BLOCK_BYTES)) {
            // SAFETY: both chunks have the full length of a block, and the caller of `run` made
            // sure that the processor has the instructions of L.
            unsafe { quantize_block::<L>(values.as_ptr(), block) }
        }
    }
}

/// # Safety
/// The processor has the instructions of L; `values` points to 32 values.
#[inline(always)]
unsafe fn quantize_block<L: Lanes>(values: *const f32, block: &mut [u8]) {
    // SAFETY: as the caller promises.
    let largest_bits = unsafe { L::largest_magnitude_bits(values) };
    let mut scale = 0.0;
    let mut sums = [0i32; 2];
    if largest_bits >= f32::INFINITY.to_bits() || largest_bits < SMALLEST_MAGNITUDE.to_bits() {
        block.fill(0);
        if largest_bits >= f32::INFINITY.to_bits() {
            scale = f32::NAN;
        }
    } else {
        let largest = f32::from_bits(largest_bits);
        scale = largest / 127.0;
        let inverse = 127.0 / largest;
        let quants = block.as_mut_ptr();
        // SAFETY: 32 values are read and 32 quants written, in two halves.
        unsafe {
            sums[0] = L::quantize(values, inverse, quants);
            sums[1] = L::quantize(values.add(16), inverse, quants.add(16));
        }
    }
    let scaled_sum = scale * (sums[0] + sums[1]) as f32;
    block[SCALE_AT..SCALE_AT + 4].copy_from_slice(&scale.to_ne_bytes());
    block[SCALED_SUM_AT..SCALED_SUM_AT + 4].copy_from_slice(&scaled_sum.to_ne_bytes());
    block[OFFSETS_AT..OFFSETS_AT + 4].copy_from_slice(&(-128 * sums[0]).to_ne_bytes());
    block[OFFSETS_AT + 4..OFFSETS_AT + 8].copy_from_slice(&(-128 * sums[1]).to_ne_bytes());
    block[OFFSETS_AT + 8..].copy_from_slice(&(-128 * (sums[0] + sums[1])).to_ne_bytes());
}

/// Quantised rows, one after another at a distance of [`row_bytes`].
#[derive(Clone, Copy, Debug)]
pub struct QuantizedRows<'a> {
    bytes: &'a [u8],
    rows: usize,
    k: usize,
}

/// One block, read out of its row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QuantizedBlock {
    /// Quants in -127..=127.
    pub quants: [i8; BLOCK],
    /// Value of one quant step.
    pub scale: f32,
    /// Scale times the sum of the quants.
    pub scaled_sum: f32,
    /// -128 times the sum of each half of the quants.
    pub offsets: [i32; 2],
}

impl<'a> QuantizedRows<'a> {
    /// Views `bytes` as `rows` rows of `k` values that [`quantize_row`] wrote.
    pub fn new(bytes: &'a [u8], rows: usize, k: usize) -> Result<Self, RowError> {
        if k == 0 || !k.is_multiple_of(BLOCK) {
            return Err(RowError("a quantised row needs a multiple of 32 values"));
        }
        match rows.checked_mul(row_bytes(k)) {
            Some(needed) if needed <= bytes.len() => Ok(QuantizedRows { bytes, rows, k }),
            _ => Err(RowError("the buffer of the quantised rows is too short")),
        }
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Values per row.
    pub fn k(&self) -> usize {
        self.k
    }

    /// The rows from `first` on, `rows` of them.
    pub fn slice(&self, first: usize, rows: usize) -> Result<Self, RowError> {
        match first.checked_add(rows) {
            Some(end) if end <= self.rows => {
                QuantizedRows::new(&self.bytes[first * row_bytes(self.k)..], rows, self.k)
            }
            _ => Err(RowError("there are fewer quantised rows than asked for")),
        }
    }

    /// Block `block` (of `k / 32`) of row `row`.
    ///
    /// # Panics
    /// When there is no such row or block.
    pub fn block(&self, row: usize, block: usize) -> QuantizedBlock {
        assert!(row < self.rows && block < self.k / BLOCK, "no such block of quantised activations");
        let start = row * row_bytes(self.k) + block * BLOCK_BYTES;
        let bytes = &self.bytes[start..start + BLOCK_BYTES];
        let word = |at: usize| [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
        QuantizedBlock {
            quants: std::array::from_fn(|i| bytes[i] as i8),
            scale: f32::from_ne_bytes(word(SCALE_AT)),
            scaled_sum: f32::from_ne_bytes(word(SCALED_SUM_AT)),
            offsets: [i32::from_ne_bytes(word(OFFSETS_AT)), i32::from_ne_bytes(word(OFFSETS_AT + 4))],
        }
    }

    /// Start of the first row.
    pub(crate) fn as_ptr(&self) -> *const u8 {
        self.bytes.as_ptr()
    }
}
