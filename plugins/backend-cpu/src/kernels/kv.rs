//! The key/value cache: cell formats, layout, writing and reading.
//!
//! Keys and values lie in planes of their own, `[blocks][heads][256 positions][cell]`: one head's
//! positions of a block are contiguous, so attention reads them in one sweep.

use super::SharedSlice;
use super::kv_blocks::{Group, decode_group, encode_group as encode_block_group};
use super::lanes::{larger, max_lanes};
use crate::level::Level;
use core::ops::Range;
use half::f16;
use half::slice::HalfFloatSliceExt;

/// Positions per block.
pub const BLOCK: usize = 256;
/// Elements that share a scale in the formats that have scales.
pub(super) const GROUP: usize = 32;
/// Bytes of such a group of [`CellFormat::Q8_0`]: an f16 scale and 32 i8.
const GROUP_BYTES: usize = 2 + GROUP;

/// How a head's vector is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CellFormat {
    /// 4 bytes per element.
    F32,
    /// 2 bytes per element, rounded to nearest even.
    F16,
    /// 34 bytes per 32 elements: d = max|x| / 127 as f16, then round(x / d) as i8. The width of a
    /// head is a multiple of 32.
    Q8_0,
    /// 18 bytes per 32 elements: d and 4-bit quants around 8.
    Q4_0,
    /// 20 bytes per 32 elements: d, a minimum and 4-bit quants.
    Q4_1,
    /// 22 bytes per 32 elements: d and 5-bit quants around 16.
    Q5_0,
    /// 24 bytes per 32 elements: d, a minimum and 5-bit quants.
    Q5_1,
}

impl CellFormat {
    /// Every format.
    pub const ALL: [CellFormat; 7] = [
        CellFormat::F32,
        CellFormat::F16,
        CellFormat::Q8_0,
        CellFormat::Q4_0,
        CellFormat::Q4_1,
        CellFormat::Q5_0,
        CellFormat::Q5_1,
    ];
}

const Q4_0: Group = Group { minimum: false, fifth: false };
const Q4_1: Group = Group { minimum: true, fifth: false };
const Q5_0: Group = Group { minimum: false, fifth: true };
const Q5_1: Group = Group { minimum: true, fifth: true };

/// Bytes of one cell of `width` elements.
pub fn cell_bytes(format: CellFormat, width: usize) -> usize {
    match format {
        CellFormat::F32 => 4 * width,
        CellFormat::F16 => 2 * width,
        CellFormat::Q8_0 => groups_in(width) * GROUP_BYTES,
        CellFormat::Q4_0 => groups_in(width) * Q4_0.bytes(),
        CellFormat::Q4_1 => groups_in(width) * Q4_1.bytes(),
        CellFormat::Q5_0 => groups_in(width) * Q5_0.bytes(),
        CellFormat::Q5_1 => groups_in(width) * Q5_1.bytes(),
    }
}

fn groups_in(width: usize) -> usize {
    assert!(width.is_multiple_of(GROUP), "quantised cells hold whole groups of 32");
    width / GROUP
}

/// Bytes of a plane of `blocks` blocks.
pub fn cache_bytes(format: CellFormat, blocks: usize, heads: usize, width: usize) -> usize {
    blocks * heads * BLOCK * cell_bytes(format, width)
}

/// The keys or the values of a layer.
#[derive(Clone, Copy)]
pub struct KvPlane<'a> {
    /// Cell format.
    pub format: CellFormat,
    /// KV heads.
    pub heads: usize,
    /// Elements of a cell.
    pub width: usize,
    /// The cells, [`cache_bytes`] of them.
    pub bytes: SharedSlice<'a, u8>,
}

impl KvPlane<'_> {
    /// Bytes of the cells `positions` of one head in one block.
    #[inline(always)]
    pub(super) fn cells(&self, block: usize, head: usize, positions: Range<usize>) -> Range<usize> {
        assert!(head < self.heads && positions.end <= BLOCK);
        let cell = cell_bytes(self.format, self.width);
        let start = (block * self.heads + head) * BLOCK;
        (start + positions.start) * cell..(start + positions.end) * cell
    }

    /// Bytes of the cell in `slot` (block · 256 + offset) of one head.
    fn cell(&self, slot: usize, head: usize) -> Range<usize> {
        let offset = slot % BLOCK;
        self.cells(slot / BLOCK, head, offset..offset + 1)
    }
}

/// Inputs of [`kv_append`].
#[derive(Clone, Copy)]
pub struct KvAppend<'a> {
    /// Keys `[rows][heads][width]`.
    pub key: &'a [f32],
    /// Values `[rows][heads][width]`.
    pub value: &'a [f32],
    /// Where each row goes `[rows]`: block · 256 + offset; a negative slot drops the row.
    pub slots: &'a [i32],
}

per_level! {
    /// Writes rows into the cache. Work items are heads: item = row · heads + head.
    pub fn kv_append = kv_append_body(
        work: &KvAppend<'_>,
        keys: &KvPlane<'_>,
        values: &KvPlane<'_>,
        items: Range<usize>,
    )
}

#[inline(always)]
unsafe fn kv_append_body(work: &KvAppend<'_>, keys: &KvPlane<'_>, values: &KvPlane<'_>, items: Range<usize>) {
    assert!(keys.heads == values.heads);
    for item in items {
        let head = item % keys.heads;
        let Ok(slot) = usize::try_from(work.slots[item / keys.heads]) else { continue };
        for (plane, x) in [(keys, work.key), (values, work.value)] {
            let x = &x[item * plane.width..(item + 1) * plane.width];
            // SAFETY: this head's cell of the row belongs to the caller's work range.
            encode(plane.format, x, unsafe { plane.bytes.part(plane.cell(slot, head)) });
        }
    }
}

per_level! {
    /// Writes one head's vector `x[width]` into `slot`, rounded to the plane's format.
    pub fn write_cell = write_cell_body(plane: &KvPlane<'_>, slot: usize, head: usize, x: &[f32])
}

#[inline(always)]
unsafe fn write_cell_body(plane: &KvPlane<'_>, slot: usize, head: usize, x: &[f32]) {
    // SAFETY: the cell is the caller's.
    encode(plane.format, &x[..plane.width], unsafe { plane.bytes.part(plane.cell(slot, head)) });
}

/// Reads one head's vector from `slot` into `out[width]`.
///
/// # Safety
/// See [the module](crate::kernels).
pub unsafe fn read_cell(level: Level, plane: &KvPlane<'_>, slot: usize, head: usize, out: &mut [f32]) {
    // SAFETY: the cell is the caller's.
    unsafe { decode(level, plane.format, plane.bytes.read(plane.cell(slot, head)), &mut out[..plane.width]) }
}

#[inline(always)]
fn encode(format: CellFormat, x: &[f32], cell: &mut [u8]) {
    match format {
        CellFormat::F32 => {
            for (bytes, x) in cell.chunks_exact_mut(4).zip(x) {
                bytes.copy_from_slice(&x.to_ne_bytes());
            }
        }
        CellFormat::F16 => {
            let mut halves = [f16::ZERO; GROUP];
            for (bytes, x) in cell.chunks_mut(2 * GROUP).zip(x.chunks(GROUP)) {
                let halves = &mut halves[..x.len()];
                halves.convert_from_f32_slice(x);
                for (bytes, half) in bytes.chunks_exact_mut(2).zip(halves) {
                    bytes.copy_from_slice(&half.to_ne_bytes());
                }
            }
        }
        CellFormat::Q8_0 => {
            for (bytes, x) in cell.chunks_exact_mut(GROUP_BYTES).zip(x.chunks_exact(GROUP)) {
                encode_group(x, bytes);
            }
        }
        CellFormat::Q4_0 => encode_groups(Q4_0, x, cell),
        CellFormat::Q4_1 => encode_groups(Q4_1, x, cell),
        CellFormat::Q5_0 => encode_groups(Q5_0, x, cell),
        CellFormat::Q5_1 => encode_groups(Q5_1, x, cell),
    }
}

#[inline(always)]
fn encode_groups(group: Group, x: &[f32], cell: &mut [u8]) {
    for (bytes, x) in cell.chunks_exact_mut(group.bytes()).zip(x.chunks_exact(GROUP)) {
        encode_block_group(group, x, bytes);
    }
}

#[inline(always)]
fn encode_group(x: &[f32], bytes: &mut [u8]) {
    let mut largest = [0.0f32; GROUP / 2];
    for (lane, largest) in largest.iter_mut().enumerate() {
        *largest = larger(x[lane].abs(), x[lane + GROUP / 2].abs());
    }
    let largest = max_lanes(largest);
    let step = largest / 127.0;
    let per_step = if step > 0.0 { 1.0 / step } else { 0.0 };
    let (scale, quants) = bytes.split_at_mut(2);
    scale.copy_from_slice(&f16::from_f32(step).to_ne_bytes());
    for (quant, x) in quants.iter_mut().zip(x) {
        // Adding 1.5·2²³ rounds to an integer, found in the low bits.
        *quant = (x * per_step + 12_582_912.0).to_bits() as u8;
    }
}

/// Turns contiguous cells into f32, exactly.
///
/// Converting halves is the one step that hardware does in one instruction and plain code in a
/// dozen; being exact, it cannot differ.
#[inline(always)]
pub(super) fn decode(level: Level, format: CellFormat, cells: &[u8], out: &mut [f32]) {
    assert!(cells.len() == cell_bytes(format, out.len()));
    match format {
        CellFormat::F32 => {
            for (out, bytes) in out.iter_mut().zip(cells.chunks_exact(4)) {
                *out = f32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
            }
        }
        #[cfg(target_arch = "x86_64")]
        CellFormat::F16 => match level.usable() {
            // SAFETY: a usable level's features are there.
            Level::Avx2 => unsafe { halves_avx2(cells, out) },
            // SAFETY: as above.
            Level::Avx512Vnni => unsafe { halves_avx512(cells, out) },
            _ => halves(cells, out),
        },
        #[cfg(not(target_arch = "x86_64"))]
        CellFormat::F16 => halves(cells, out),
        // SAFETY: nothing shared is touched.
        CellFormat::Q8_0 => unsafe { groups(level, cells, out) },
        // SAFETY: as above.
        CellFormat::Q4_0 => unsafe { groups_q4_0(level, cells, out) },
        // SAFETY: as above.
        CellFormat::Q4_1 => unsafe { groups_q4_1(level, cells, out) },
        // SAFETY: as above.
        CellFormat::Q5_0 => unsafe { groups_q5_0(level, cells, out) },
        // SAFETY: as above.
        CellFormat::Q5_1 => unsafe { groups_q5_1(level, cells, out) },
    }
}

fn halves(cells: &[u8], out: &mut [f32]) {
    for (out, bytes) in out.iter_mut().zip(cells.chunks_exact(2)) {
        *out = f16::from_ne_bytes([bytes[0], bytes[1]]).to_f32();
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,f16c")]
unsafe fn halves_avx2(cells: &[u8], out: &mut [f32]) {
    use core::arch::x86_64::{_mm_loadu_si128, _mm256_cvtph_ps, _mm256_storeu_ps};
    let whole = out.len() / 8 * 8;
    for start in (0..whole).step_by(8) {
        let (from, to) = (&cells[2 * start..2 * start + 16], &mut out[start..start + 8]);
        // SAFETY: `from` has 16 bytes and `to` 8 elements.
        unsafe {
            let wide = _mm256_cvtph_ps(_mm_loadu_si128(from.as_ptr().cast()));
            _mm256_storeu_ps(to.as_mut_ptr(), wide);
        }
    }
    halves(&cells[2 * whole..], &mut out[whole..]);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx2,f16c")]
unsafe fn halves_avx512(cells: &[u8], out: &mut [f32]) {
    use core::arch::x86_64::{_mm256_loadu_si256, _mm512_cvtph_ps, _mm512_storeu_ps};
    let whole = out.len() / 16 * 16;
    for start in (0..whole).step_by(16) {
        let (from, to) = (&cells[2 * start..2 * start + 32], &mut out[start..start + 16]);
        // SAFETY: `from` has 32 bytes and `to` 16 elements.
        unsafe {
            let wide = _mm512_cvtph_ps(_mm256_loadu_si256(from.as_ptr().cast()));
            _mm512_storeu_ps(to.as_mut_ptr(), wide);
        }
    }
    halves(&cells[2 * whole..], &mut out[whole..]);
}

per_level! {
    /// Decodes q8_0 groups.
    fn groups = groups_body(cells: &[u8], out: &mut [f32])
}

#[inline(always)]
unsafe fn groups_body(cells: &[u8], out: &mut [f32]) {
    for (out, bytes) in out.chunks_exact_mut(GROUP).zip(cells.chunks_exact(GROUP_BYTES)) {
        let scale = f16::from_ne_bytes([bytes[0], bytes[1]]).to_f32();
        for (out, &quant) in out.iter_mut().zip(&bytes[2..]) {
            // Exact: 11 bits times 8 bits.
            *out = f32::from(quant as i8) * scale;
        }
    }
}

/// Decodes the groups of a format, which a constant names so that no group asks.
macro_rules! block_groups {
    ($($name:ident = $body:ident($group:ident);)*) => {$(
        per_level! {
            /// Decodes groups.
            fn $name = $body(cells: &[u8], out: &mut [f32])
        }

        #[inline(always)]
        unsafe fn $body(cells: &[u8], out: &mut [f32]) {
            for (out, bytes) in out.chunks_exact_mut(GROUP).zip(cells.chunks_exact($group.bytes())) {
                decode_group($group, bytes, out);
            }
        }
    )*};
}

block_groups! {
    groups_q4_0 = groups_q4_0_body(Q4_0);
    groups_q4_1 = groups_q4_1_body(Q4_1);
    groups_q5_0 = groups_q5_0_body(Q5_0);
    groups_q5_1 = groups_q5_1_body(Q5_1);
}
