//! Weights as the GPU kernels read them.
//!
//! Float kinds are rows of values, each row padded with zeros to a multiple of 16 bytes. Quantised kinds are *panels*
//! of 16 rows (the last one padded with zero rows), so that the fragments of an int8 matrix instruction are 16-byte
//! vectors of a lane, and a panel holds *planes*, one after another:
//!
//! With `nb` blocks of 32 elements in a row, `pairs = ceil(nb / 2)` and `units = ceil(nb / 8)`:
//!
//! | kind | planes of a panel |
//! |---|---|
//! | Q8_0 | bytes `[nb][512]`, d `[units][256]` |
//! | Q4_0, IQ4_NL | nibbles `[pairs][512]`, d `[units][256]` |
//! | Q5_0 | nibbles, bits `[units][512]`, d `[units][256]` |
//! | Q4_1 | nibbles, d, m `[units][256]` |
//! | Q5_1 | nibbles, bits, d, m |
//! | Q4_K | nibbles, heads `[units][256]` |
//! | Q5_K | nibbles, bits, heads |
//! | Q6_K | nibbles, bit pairs `[units][1024]`, scales `[units][256]`, d `[units][32]` |
//! | MXFP4 | nibbles, exponents `[units][128]` |
//!
//! A *fragment* of a block is 16 bytes for each of 32 lanes: with `g = lane / 4`, `t = lane % 4`, byte `4 i + j` of
//! lane is about row `g + 8 (i % 2)` and element `16 (i / 2) + 4 t + j` of the block.
//!
//! - bytes: the fragment itself.
//! - nibbles: a fragment whose low nibbles are the first block of the pair and whose high nibbles are the second.
//! - bits (fifth bits): a fragment; bit s of a byte belongs to block s of the unit.
//! - bit pairs (fifth and sixth bits): two fragments; bits `2 f` and `2 f + 1` of a byte of fragment h belong to
//!   block `4 h + f` of the unit.
//! - d, m: f16 `[16 rows][8 blocks]`; heads: `[16 rows]` of d, dmin and the 12 bytes of packed scales, as in the file;
//!   scales: i8 `[16 rows][16]`; d of Q6_K: f16 `[16 rows]`; exponents: `[16 rows][8 blocks]`.
//!
//! Centred quants are stored as two's complement: the nibbles of Q4_0 have their top bit flipped, so have the fifth
//! bits of Q5_0 and the sixth bits of Q6_K. For IQ4_NL and MXFP4, whose nibbles are looked up, the two low bytes of a
//! fragment word hold the four nibbles of the first block of the pair (element j at bits `4 j`), the two high bytes
//! those of the second.
//!
//! Apart from padding (rows to 16, blocks to 8 in the planes of scales) a layout is as large as the file's bytes.

use std::fmt;

mod blocks;
mod panels;
#[cfg(test)]
mod tests;

/// Weight rows of a panel.
pub const PANEL_ROWS: usize = 16;
/// Elements of a block of activations, and of the smallest quantised block.
pub(crate) const BLOCK: usize = 32;
/// Bytes of a fragment.
pub(crate) const FRAGMENT: usize = 512;
/// What layouts begin at a multiple of.
pub const ALIGNMENT: usize = 256;

/// The storage types of weights that have kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WeightKind {
    /// 32-bit floats.
    F32,
    /// Half-precision floats.
    F16,
    /// Bfloat16.
    Bf16,
    /// Blocks of 32: 8-bit quants with a scale.
    Q8_0,
    /// Blocks of 32: 4-bit quants around 8 with a scale.
    Q4_0,
    /// Blocks of 32: 4-bit quants with a scale and a minimum.
    Q4_1,
    /// Blocks of 32: 5-bit quants around 16 with a scale.
    Q5_0,
    /// Blocks of 32: 5-bit quants with a scale and a minimum.
    Q5_1,
    /// Blocks of 256: 4-bit quants; a scale and a minimum for every 32.
    Q4K,
    /// Blocks of 256: 5-bit quants; a scale and a minimum for every 32.
    Q5K,
    /// Blocks of 256: 6-bit quants around 32; a scale for every 16.
    Q6K,
    /// Blocks of 32: 4-bit indices of a table of 16 uneven steps, with a scale.
    Iq4Nl,
    /// Blocks of 32: 4-bit floats with a power of two as scale.
    Mxfp4,
}

impl WeightKind {
    /// All kinds.
    pub const ALL: [WeightKind; 13] = [
        WeightKind::F32,
        WeightKind::F16,
        WeightKind::Bf16,
        WeightKind::Q8_0,
        WeightKind::Q4_0,
        WeightKind::Q4_1,
        WeightKind::Q5_0,
        WeightKind::Q5_1,
        WeightKind::Q4K,
        WeightKind::Q5K,
        WeightKind::Q6K,
        WeightKind::Iq4Nl,
        WeightKind::Mxfp4,
    ];

    /// The number of the type in a GGUF file.
    pub const fn gguf_id(self) -> u32 {
        match self {
            Self::F32 => 0,
            Self::F16 => 1,
            Self::Q4_0 => 2,
            Self::Q4_1 => 3,
            Self::Q5_0 => 6,
            Self::Q5_1 => 7,
            Self::Q8_0 => 8,
            Self::Q4K => 12,
            Self::Q5K => 13,
            Self::Q6K => 14,
            Self::Iq4Nl => 20,
            Self::Bf16 => 30,
            Self::Mxfp4 => 39,
        }
    }

    /// The kind of that number in a GGUF file, if it has kernels.
    pub fn from_gguf_id(id: u32) -> Option<WeightKind> {
        Self::ALL.into_iter().find(|kind| kind.gguf_id() == id)
    }

    /// The name that GGUF tools use.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "F32",
            Self::F16 => "F16",
            Self::Bf16 => "BF16",
            Self::Q8_0 => "Q8_0",
            Self::Q4_0 => "Q4_0",
            Self::Q4_1 => "Q4_1",
            Self::Q5_0 => "Q5_0",
            Self::Q5_1 => "Q5_1",
            Self::Q4K => "Q4_K",
            Self::Q5K => "Q5_K",
            Self::Q6K => "Q6_K",
            Self::Iq4Nl => "IQ4_NL",
            Self::Mxfp4 => "MXFP4",
        }
    }

    /// Elements of a block; k of a matrix is a multiple of it.
    #[inline(always)]
    pub const fn block_elements(self) -> usize {
        match self {
            Self::F32 | Self::F16 | Self::Bf16 => 1,
            Self::Q4K | Self::Q5K | Self::Q6K => 256,
            _ => BLOCK,
        }
    }

    /// Bytes of a block in a file.
    #[inline(always)]
    pub const fn block_bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
            Self::Q8_0 => 34,
            Self::Q4_0 | Self::Iq4Nl => 18,
            Self::Q4_1 => 20,
            Self::Q5_0 => 22,
            Self::Q5_1 => 24,
            Self::Q4K => 144,
            Self::Q5K => 176,
            Self::Q6K => 210,
            Self::Mxfp4 => 17,
        }
    }

    /// Whether the products want quantised activations (else plain f32).
    pub const fn is_quantized(self) -> bool {
        !matches!(self, Self::F32 | Self::F16 | Self::Bf16)
    }
}

impl fmt::Display for WeightKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A matrix whose shape or size does not suit its kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LayoutError {
    /// k is zero or not a multiple of the block.
    Width {
        /// The kind of the matrix.
        kind: WeightKind,
        /// Elements of a row.
        k: usize,
    },
    /// There are no rows, or the sizes overflow.
    Size,
    /// A buffer has another length than the shape asks for.
    Length {
        /// What the buffer holds.
        what: &'static str,
        /// Bytes that the shape asks for.
        needed: usize,
        /// Bytes that there are.
        found: usize,
    },
}

impl fmt::Display for LayoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LayoutError::Width { kind, k } => {
                write!(
                    f,
                    "a row of {k} elements is no whole number of {kind} blocks of {}",
                    kind.block_elements()
                )
            }
            LayoutError::Size => f.write_str("the matrix is empty or too large"),
            LayoutError::Length { what, needed, found } => {
                write!(f, "the {what} take {needed} bytes, but there are {found}")
            }
        }
    }
}

impl std::error::Error for LayoutError {}

/// Bytes of `n` rows of `k` elements in a file.
///
/// # Errors
/// No rows, k that is not whole blocks, a size that overflows.
pub fn canonical_bytes(kind: WeightKind, n: usize, k: usize) -> Result<usize, LayoutError> {
    if k == 0 || !k.is_multiple_of(kind.block_elements()) {
        return Err(LayoutError::Width { kind, k });
    }
    let row = (k / kind.block_elements()).checked_mul(kind.block_bytes());
    row.and_then(|row| row.checked_mul(n)).filter(|&bytes| bytes > 0).ok_or(LayoutError::Size)
}

/// Bytes from one row of a float kind to the next.
pub const fn float_row_bytes(kind: WeightKind, k: usize) -> usize {
    (k * kind.block_bytes()).next_multiple_of(16)
}

/// Bytes of `n` rows of `k` elements in the layout of their kind. Rows that are packed in several calls, each but the
/// last with a multiple of [`PANEL_ROWS`], lie one after another as if packed in one.
///
/// # Errors
/// As [`canonical_bytes`].
pub fn packed_bytes(kind: WeightKind, n: usize, k: usize) -> Result<usize, LayoutError> {
    // Padding adds at most 15 bytes to a value of a float row and half a block to a block, times 16 rows.
    canonical_bytes(kind, n.div_ceil(PANEL_ROWS), k)?
        .checked_mul(16 * PANEL_ROWS)
        .ok_or(LayoutError::Size)?;
    if kind.is_quantized() {
        Ok(n.div_ceil(PANEL_ROWS) * panels::Planes::of(kind, k).bytes())
    } else {
        Ok(n * float_row_bytes(kind, k))
    }
}

/// Writes `n` rows as they stand in a file into the layout of their kind.
///
/// # Errors
/// As [`canonical_bytes`], and buffers of another length.
pub fn pack(
    kind: WeightKind,
    n: usize,
    k: usize,
    canonical: &[u8],
    packed: &mut [u8],
) -> Result<(), LayoutError> {
    check(kind, n, k, canonical, packed)?;
    let row = canonical.len() / n;
    if kind.is_quantized() {
        let planes = panels::Planes::of(kind, k);
        let rows = canonical.chunks(PANEL_ROWS * row);
        for (rows, panel) in rows.zip(packed.chunks_exact_mut(planes.bytes())) {
            planes.pack(rows, panel);
        }
    } else {
        for (from, to) in canonical.chunks_exact(row).zip(packed.chunks_exact_mut(float_row_bytes(kind, k))) {
            let (values, padding) = to.split_at_mut(row);
            values.copy_from_slice(from);
            padding.fill(0);
        }
    }
    Ok(())
}

/// The reverse of [`pack`].
///
/// # Errors
/// As [`pack`].
pub fn unpack(
    kind: WeightKind,
    n: usize,
    k: usize,
    packed: &[u8],
    canonical: &mut [u8],
) -> Result<(), LayoutError> {
    check(kind, n, k, canonical, packed)?;
    let row = canonical.len() / n;
    if kind.is_quantized() {
        let planes = panels::Planes::of(kind, k);
        let rows = canonical.chunks_mut(PANEL_ROWS * row);
        for (rows, panel) in rows.zip(packed.chunks_exact(planes.bytes())) {
            planes.unpack(panel, rows);
        }
    } else {
        for (to, from) in canonical.chunks_exact_mut(row).zip(packed.chunks_exact(float_row_bytes(kind, k))) {
            to.copy_from_slice(&from[..row]);
        }
    }
    Ok(())
}

fn check(kind: WeightKind, n: usize, k: usize, canonical: &[u8], packed: &[u8]) -> Result<(), LayoutError> {
    let lengths = [
        ("rows of the file", canonical_bytes(kind, n, k)?, canonical.len()),
        ("packed rows", packed_bytes(kind, n, k)?, packed.len()),
    ];
    match lengths.into_iter().find(|(_, needed, found)| needed != found) {
        Some((what, needed, found)) => Err(LayoutError::Length { what, needed, found }),
        None => Ok(()),
    }
}
