//! Weight matrices as the kernels read them.
//!
//! A canonical matrix (as a GGUF file stores it) is `n` rows of `k` values, row by row, each row
//! cut into blocks along `k`. The packed form groups 16 rows into a *panel*, so that a vector
//! lane is an output row and a kernel never adds across lanes. The last panel is padded with
//! zero rows. A panel is the bodies of its blocks in ascending `k`, then their tails; where tails are longer than a
//! sixteenth of the bodies, that for every 1024 values of a row and what is left of them:
//!
//! | type       | block | body of the 16 rows                           | bytes | tail (bytes)  |
//! |------------|------:|-----------------------------------------------|------:|---------------|
//! | F32        |     1 | 16 values                                     |    64 | -             |
//! | F16, BF16  |     1 | 16 values                                     |    32 | -             |
//! | Q8_0       |    32 | 8 vectors of quants + 128                     |   512 | 16 `d` (32)   |
//! | Q4_0       |    32 | 4 nibble vectors                              |   256 | 16 `d` (32)   |
//! | Q4_1       |    32 | 4 nibble vectors                              |   256 | 16 `d`, 16 `m` (64) |
//! | Q5_0       |    32 | 4 nibble vectors, 1 bit vector                |   320 | 16 `d` (32)   |
//! | Q5_1       |    32 | 4 nibble vectors, 1 bit vector                |   320 | 16 `d`, 16 `m` (64) |
//! | IQ4_NL     |    32 | 4 nibble vectors                              |   256 | 16 `d` (32)   |
//! | MXFP4      |    32 | 4 nibble vectors                              |   256 | 16 exponents (16) |
//! | Q4_K       |   256 | scales, 8 x 4 nibble vectors                  |  2304 | -             |
//! | Q5_K       |   256 | scales, 8 x (4 nibble vectors, 1 bit vector)  |  2816 | -             |
//! | Q6_K       |   256 | scales, 8 x (4 nibble vectors, 2 pair vectors)|  3328 | 16 `d` (32)   |
//!
//! A *vector* is 64 bytes: four consecutive ones for each row. Of a (sub-)block of 32 elements,
//! *group* `g` in 0..8 is elements `4g..4g+4`; byte `4 * row + j` of a vector of group `g` is
//! about element `4g + j`.
//! - Quants: vector `g` is group `g`.
//! - Nibbles: vector `v` in 0..4 has group `v` in its low nibbles and group `v + 4` in the high.
//! - Bits (fifth bits): bit `g` of a byte belongs to group `g`.
//! - Pairs (fifth and sixth bits): vector `h` in 0..2, bits `2f` and `2f + 1` belong to group
//!   `4h + f`.
//!
//! Scales of Q4_K and Q5_K: 12 planes of 16 bytes (plane `j` is canonical scale byte `j` of each
//! row), 16 `d`, 16 `dmin`. Scales of Q6_K: 16 planes of 16 `i8`. `d` and `dmin` are `f16`.
//!
//! Apart from padding the packed form is exactly as large as the canonical one.

use std::fmt;
use std::ops::Range;

mod dequantize;
mod floats;
pub(crate) mod k_quants;
mod simple_quants;
pub(crate) mod tables;

pub use dequantize::dequantize_row;

/// Rows per panel.
pub const PANEL_ROWS: usize = 16;
/// Bytes of a vector: four for each row of a panel.
pub(crate) const VECTOR: usize = 4 * PANEL_ROWS;
/// Bytes of one `f16` for each row of a panel.
pub(crate) const HALVES: usize = 2 * PANEL_ROWS;

/// Values of a row whose tails lie behind their bodies: if all tails of a long row lay together, a kernel would read two
/// places far from each other, which memory answers slower than one.
const GROUP_VALUES: usize = 1024;

/// Where bodies are so many times as long as their tails, all tails of a panel lie together: they are few lines.
const LONG_BODY: usize = 16;

/// Bytes of the largest canonical block, that of Q6_K.
const LARGEST_BLOCK: usize = 210;

/// The storage types of weights that have kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WeightType {
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
    /// Blocks of 32: 4-bit indexes of a table of levels, with a scale.
    Iq4Nl,
    /// Blocks of 32: 4-bit floats with a power of two.
    Mxfp4,
    /// Blocks of 256: 4-bit quants; a scale and a minimum for every 32.
    Q4K,
    /// Blocks of 256: 5-bit quants; a scale and a minimum for every 32.
    Q5K,
    /// Blocks of 256: 6-bit quants around 32; a scale for every 16.
    Q6K,
}

/// How one block lies in a file and in a panel.
pub(crate) struct Layout {
    /// Values of a row.
    pub block: usize,
    /// Canonical bytes of a row.
    pub canonical: usize,
    /// Bytes in the body of a panel.
    pub body: usize,
    /// Bytes in the tail of a panel.
    pub tail: usize,
}

impl Layout {
    /// Blocks whose tails lie behind their bodies: all of a panel where bodies are long.
    pub const fn group(&self) -> usize {
        if self.tail * LONG_BODY <= self.body { usize::MAX } else { GROUP_VALUES / self.block }
    }

    /// Where the body and the tail of a block begin in a panel of so many.
    fn places(&self, blocks: usize, index: usize) -> [usize; 2] {
        let first = index - index % self.group();
        let bodies = (blocks - first).min(self.group()) * self.body;
        let (start, within) = (first * (self.body + self.tail), index - first);
        [start + within * self.body, start + bodies + within * self.tail]
    }
}

impl WeightType {
    /// All types.
    pub const ALL: [WeightType; 13] = [
        WeightType::F32,
        WeightType::F16,
        WeightType::Bf16,
        WeightType::Q8_0,
        WeightType::Q4_0,
        WeightType::Q4_1,
        WeightType::Q5_0,
        WeightType::Q5_1,
        WeightType::Iq4Nl,
        WeightType::Mxfp4,
        WeightType::Q4K,
        WeightType::Q5K,
        WeightType::Q6K,
    ];

    /// The number of the type in a GGUF file.
    pub const fn gguf_id(self) -> u32 {
        match self {
            WeightType::F32 => 0,
            WeightType::F16 => 1,
            WeightType::Bf16 => 30,
            WeightType::Q8_0 => 8,
            WeightType::Q4_0 => 2,
            WeightType::Q4_1 => 3,
            WeightType::Q5_0 => 6,
            WeightType::Q5_1 => 7,
            WeightType::Iq4Nl => 20,
            WeightType::Mxfp4 => 39,
            WeightType::Q4K => 12,
            WeightType::Q5K => 13,
            WeightType::Q6K => 14,
        }
    }

    /// The type of that number in a GGUF file, if it has kernels.
    pub fn from_gguf_id(id: u32) -> Option<WeightType> {
        WeightType::ALL.into_iter().find(|kind| kind.gguf_id() == id)
    }

    /// The name GGUF tools use.
    pub const fn name(self) -> &'static str {
        match self {
            WeightType::F32 => "F32",
            WeightType::F16 => "F16",
            WeightType::Bf16 => "BF16",
            WeightType::Q8_0 => "Q8_0",
            WeightType::Q4_0 => "Q4_0",
            WeightType::Q4_1 => "Q4_1",
            WeightType::Q5_0 => "Q5_0",
            WeightType::Q5_1 => "Q5_1",
            WeightType::Iq4Nl => "IQ4_NL",
            WeightType::Mxfp4 => "MXFP4",
            WeightType::Q4K => "Q4_K",
            WeightType::Q5K => "Q5_K",
            WeightType::Q6K => "Q6_K",
        }
    }

    /// Values per block; `k` of a matrix is a multiple of it.
    pub const fn block(self) -> usize {
        self.layout().block
    }

    /// Whether the kernels want quantised activations (else plain `f32`).
    pub const fn is_quantized(self) -> bool {
        !matches!(self, WeightType::F32 | WeightType::F16 | WeightType::Bf16)
    }

    pub(crate) const fn layout(self) -> Layout {
        let (block, canonical, body, tail) = match self {
            WeightType::F32 => (1, 4, 64, 0),
            WeightType::F16 | WeightType::Bf16 => (1, 2, 32, 0),
            WeightType::Q8_0 => (32, 34, 512, HALVES),
            WeightType::Q4_0 => (32, 18, 256, HALVES),
            WeightType::Q4_1 => (32, 20, 256, 2 * HALVES),
            WeightType::Q5_0 => (32, 22, 320, HALVES),
            WeightType::Q5_1 => (32, 24, 320, 2 * HALVES),
            WeightType::Iq4Nl => (32, 18, 256, HALVES),
            WeightType::Mxfp4 => (32, 17, 256, PANEL_ROWS),
            WeightType::Q4K => (256, 144, 2304, 0),
            WeightType::Q5K => (256, 176, 2816, 0),
            WeightType::Q6K => (256, 210, 3328, HALVES),
        };
        Layout { block, canonical, body, tail }
    }
}

impl fmt::Display for WeightType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A matrix whose shape or size does not suit its type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WeightError {
    /// `k` is zero or not a multiple of the block.
    Width {
        /// The type of the matrix.
        kind: WeightType,
        /// Values per row.
        k: usize,
    },
    /// `n` is zero, or the sizes overflow.
    Size,
    /// A buffer has another length than the shape asks for.
    Length {
        /// What the buffer holds.
        what: &'static str,
        /// Bytes or values that the shape asks for.
        needed: usize,
        /// Bytes or values that there are.
        found: usize,
    },
    /// A row or a panel outside the matrix.
    Range,
}

impl fmt::Display for WeightError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WeightError::Width { kind, k } => {
                write!(f, "a row of {k} values is no whole number of {kind} blocks of {}", kind.block())
            }
            WeightError::Size => f.write_str("the matrix is empty or too large"),
            WeightError::Length { what, needed, found } => {
                write!(f, "the {what} take {needed}, but there are {found}")
            }
            WeightError::Range => f.write_str("no such row or panel in the matrix"),
        }
    }
}

impl std::error::Error for WeightError {}

/// Number of panels of a matrix of `n` rows.
pub const fn panel_count(n: usize) -> usize {
    n.div_ceil(PANEL_ROWS)
}

/// Bytes of one packed panel of rows of `k` values.
pub fn panel_bytes(kind: WeightType, k: usize) -> Result<usize, WeightError> {
    let Layout { block, body, tail, .. } = kind.layout();
    if k == 0 || !k.is_multiple_of(block) {
        return Err(WeightError::Width { kind, k });
    }
    (k / block).checked_mul(body + tail).ok_or(WeightError::Size)
}

/// Bytes of a packed matrix of `n` rows of `k` values.
pub fn packed_bytes(kind: WeightType, n: usize, k: usize) -> Result<usize, WeightError> {
    match panel_bytes(kind, k)?.checked_mul(panel_count(n)) {
        Some(bytes) if n > 0 => Ok(bytes),
        _ => Err(WeightError::Size),
    }
}

/// Bytes of a canonical matrix of `n` rows of `k` values.
pub fn canonical_bytes(kind: WeightType, n: usize, k: usize) -> Result<usize, WeightError> {
    // The packed size is never smaller, so this cannot overflow where that does not.
    packed_bytes(kind, n, k)?;
    Ok(n * canonical_row_bytes(kind, k))
}

fn canonical_row_bytes(kind: WeightType, k: usize) -> usize {
    k / kind.block() * kind.layout().canonical
}

fn check_length(what: &'static str, needed: usize, found: usize) -> Result<(), WeightError> {
    if needed == found { Ok(()) } else { Err(WeightError::Length { what, needed, found }) }
}

/// Packs the given panels of a canonical matrix of `n` rows of `k` values.
///
/// `canonical` is the whole matrix; `out` holds just those panels, so that threads can pack one
/// matrix together, each into its own part.
pub fn pack(
    kind: WeightType,
    canonical: &[u8],
    n: usize,
    k: usize,
    out: &mut [u8],
    panels: Range<usize>,
) -> Result<(), WeightError> {
    check_length("canonical bytes", canonical_bytes(kind, n, k)?, canonical.len())?;
    if panels.start > panels.end || panels.end > panel_count(n) {
        return Err(WeightError::Range);
    }
    let panel_bytes = panel_bytes(kind, k)?;
    check_length("packed panels", panels.len() * panel_bytes, out.len())?;
    let row_bytes = canonical_row_bytes(kind, k);
    for (panel, out) in panels.zip(out.chunks_exact_mut(panel_bytes)) {
        out.fill(0);
        let rows = &canonical[panel * PANEL_ROWS * row_bytes..];
        for (lane, row) in rows.chunks_exact(row_bytes).take(PANEL_ROWS).enumerate() {
            pack_row(kind, row, lane, out);
        }
    }
    Ok(())
}

/// Writes one canonical row into a lane of a zeroed panel.
fn pack_row(kind: WeightType, row: &[u8], lane: usize, panel: &mut [u8]) {
    let layout = kind.layout();
    let canonical = layout.canonical;
    if !kind.is_quantized() {
        return floats::pack_row(row, canonical, lane, panel);
    }
    let blocks = row.len() / canonical;
    for (index, block) in row.chunks_exact(canonical).enumerate() {
        let [body_at, tail_at] = layout.places(blocks, index);
        let (body, tail) = panel.split_at_mut(tail_at);
        let (body, tail) = (&mut body[body_at..body_at + layout.body], &mut tail[..layout.tail]);
        match kind {
            WeightType::Q8_0 => simple_quants::pack_q8_0(block, lane, body, tail),
            WeightType::Q4_0 | WeightType::Iq4Nl => simple_quants::pack_q4_0(block, lane, body, tail),
            WeightType::Q4_1 => simple_quants::pack_q4_1(block, lane, body, tail),
            WeightType::Q5_0 => simple_quants::pack_q5_0(block, lane, body, tail),
            WeightType::Q5_1 => simple_quants::pack_q5_1(block, lane, body, tail),
            WeightType::Mxfp4 => simple_quants::pack_mxfp4(block, lane, body, tail),
            WeightType::Q4K => k_quants::pack_q4_k(block, lane, body),
            WeightType::Q5K => k_quants::pack_q5_k(block, lane, body),
            WeightType::Q6K => k_quants::pack_q6_k(block, lane, body, tail),
            WeightType::F32 | WeightType::F16 | WeightType::Bf16 => unreachable!("handled above"),
        }
    }
}

/// Reads block `index` of a canonical row of `k` values back out of a lane of a panel.
fn unpack_block(kind: WeightType, panel: &[u8], k: usize, lane: usize, index: usize, block: &mut [u8]) {
    let layout = kind.layout();
    if !kind.is_quantized() {
        return floats::unpack_element(panel, layout.canonical, lane, index, block);
    }
    let [body_at, tail_at] = layout.places(k / layout.block, index);
    let (body, tail) = (&panel[body_at..body_at + layout.body], &panel[tail_at..tail_at + layout.tail]);
    match kind {
        WeightType::Q8_0 => simple_quants::unpack_q8_0(body, tail, lane, block),
        WeightType::Q4_0 | WeightType::Iq4Nl => simple_quants::unpack_q4_0(body, tail, lane, block),
        WeightType::Q4_1 => simple_quants::unpack_q4_1(body, tail, lane, block),
        WeightType::Q5_0 => simple_quants::unpack_q5_0(body, tail, lane, block),
        WeightType::Q5_1 => simple_quants::unpack_q5_1(body, tail, lane, block),
        WeightType::Mxfp4 => simple_quants::unpack_mxfp4(body, tail, lane, block),
        WeightType::Q4K => k_quants::unpack_q4_k(body, lane, block),
        WeightType::Q5K => k_quants::unpack_q5_k(body, lane, block),
        WeightType::Q6K => k_quants::unpack_q6_k(body, tail, lane, block),
        WeightType::F32 | WeightType::F16 | WeightType::Bf16 => unreachable!("handled above"),
    }
}

/// A packed matrix in memory.
#[derive(Clone, Copy, Debug)]
pub struct PackedMatrix<'a> {
    kind: WeightType,
    n: usize,
    k: usize,
    bytes: &'a [u8],
}

impl<'a> PackedMatrix<'a> {
    /// Views `bytes`, which [`pack`] wrote, as `n` rows of `k` values. Kernels are fastest where
    /// the bytes begin at a multiple of 64.
    pub fn new(kind: WeightType, n: usize, k: usize, bytes: &'a [u8]) -> Result<Self, WeightError> {
        check_length("packed bytes", packed_bytes(kind, n, k)?, bytes.len())?;
        Ok(PackedMatrix { kind, n, k, bytes })
    }

    /// Storage type.
    pub fn kind(&self) -> WeightType {
        self.kind
    }

    /// Number of rows (outputs).
    pub fn n(&self) -> usize {
        self.n
    }

    /// Values per row (inputs).
    pub fn k(&self) -> usize {
        self.k
    }

    /// Number of panels.
    pub fn panels(&self) -> usize {
        panel_count(self.n)
    }

    /// Bytes of one panel.
    pub fn panel_bytes(&self) -> usize {
        self.bytes.len() / self.panels()
    }

    /// The packed bytes.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    fn panel_of(&self, row: usize) -> Result<&'a [u8], WeightError> {
        if row >= self.n {
            return Err(WeightError::Range);
        }
        let bytes = self.panel_bytes();
        Ok(&self.bytes[row / PANEL_ROWS * bytes..][..bytes])
    }

    /// The canonical bytes of one row.
    pub fn canonical_row(&self, row: usize) -> Result<Vec<u8>, WeightError> {
        let panel = self.panel_of(row)?;
        let mut bytes = vec![0; canonical_row_bytes(self.kind, self.k)];
        for (index, block) in bytes.chunks_exact_mut(self.kind.layout().canonical).enumerate() {
            unpack_block(self.kind, panel, self.k, row % PANEL_ROWS, index, block);
        }
        Ok(bytes)
    }

    /// Writes the `k` values of one row, equal to those of the canonical row, into `out`. Does not allocate.
    pub fn unpack_row(&self, row: usize, out: &mut [f32]) -> Result<(), WeightError> {
        let panel = self.panel_of(row)?;
        check_length("values of the row", self.k, out.len())?;
        let mut canonical = [0; LARGEST_BLOCK];
        let block = &mut canonical[..self.kind.layout().canonical];
        for (index, out) in out.chunks_exact_mut(self.kind.block()).enumerate() {
            unpack_block(self.kind, panel, self.k, row % PANEL_ROWS, index, block);
            dequantize_row(self.kind, block, out)?;
        }
        Ok(())
    }
}
