//! Products of activations with packed weights: `out[r][n] = sum over k of a[r][k] * w[n][k]`,
//! plus a bias.
//!
//! The bits of a result depend on the weights and the activations of that row and nothing else:
//! not on the level, the number of rows or the split over threads. One `f32` sum per output
//! starts at 0 and takes, in ascending `k` and each by one fused multiply-add:
//!
//! - F32, F16, BF16, for every `k`: `sum = fma(w, a, sum)`;
//! - Q8_0, for every 32: `sum = fma(dot, d * scale, sum)`;
//! - Q4_0, for every 32: `sum = fma(16 * dot, (d / 16) * scale, sum)`;
//! - Q5_0, for every 32: `sum = fma(8 * dot, (d / 8) * scale, sum)`;
//! - IQ4_NL and MXFP4, for every 32: `sum = fma(dot, d * scale, sum)`, where quants are the integers of a table, for
//!   MXFP4 twice its levels, and `d` half its scale (0 where that is subnormal);
//! - Q4_1, Q5_1, for every 32: `sum = fma(dot, d * scale, sum)` and then `sum = fma(m, scaled_sum, sum)`;
//! - Q4_K, Q5_K, for every 32: `sum = fma(dot, (d * sc) * scale, sum)` and then
//!   `sum = fma(-(dmin * min), scaled_sum, sum)`;
//! - Q6_K, for every 32, whose halves have the dots `dot0` and `dot1` and the scales `sc0` and
//!   `sc1`: `part = fma(4 * dot1, (d / 4) * sc1, (4 * dot0) * ((d / 4) * sc0))` and then
//!   `sum = fma(part, scale, sum)`.
//!
//! `dot` is the exact integer product of weight quants (centred: minus 8 for Q4_0, 16 for Q5_0, 32 for
//! Q6_K) and activation quants; `scale` and `scaled_sum` are those of the activation block
//! ([`crate::quantized`]). The bias is added last. A result that is NaN is `f32::NAN`.

use std::fmt;
use std::ops::Range;

use crate::level::Level;
use crate::quantized::{QuantizedRows, row_bytes};
use crate::weights::{PANEL_ROWS, PackedMatrix, WeightType};

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod block_formats;
mod floats;
pub(crate) mod lanes;
#[cfg(target_arch = "aarch64")]
mod neon;
mod quant_formats;
mod quants;
mod scalar;
mod tile;

/// Activations of a product: one row of `k` for each row of the output.
#[derive(Clone, Copy, Debug)]
pub enum Activations<'a> {
    /// For F32, F16 and BF16 weights: `rows` rows of `k` values, one after another.
    F32 {
        /// The values, at least `rows * k`.
        values: &'a [f32],
        /// Number of rows.
        rows: usize,
    },
    /// For all quantised weights.
    Quantized(QuantizedRows<'a>),
}

impl Activations<'_> {
    /// Number of rows.
    pub fn rows(&self) -> usize {
        match self {
            Activations::F32 { rows, .. } => *rows,
            Activations::Quantized(rows) => rows.rows(),
        }
    }
}

/// Where a product goes: element `(r, n)` is written to `start + r * stride + n`.
#[derive(Clone, Copy, Debug)]
pub struct Output {
    /// Element `(0, 0)`.
    pub start: *mut f32,
    /// Distance of two rows, in elements.
    pub stride: usize,
}

// SAFETY: the pointer is only used inside `linear`, whose contract covers several threads.
unsafe impl Send for Output {}
// SAFETY: as above.
unsafe impl Sync for Output {}

/// Arguments of a product that do not fit each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinearError {
    /// Quantised weights want quantised activations, float weights want floats.
    Activations(WeightType),
    /// The activations have another `k` than the weights, or too few values.
    Width {
        /// What the weights ask for.
        needed: usize,
        /// What the activations have.
        found: usize,
    },
    /// The bias has not one value for every weight row.
    Bias {
        /// Weight rows.
        needed: usize,
        /// Values.
        found: usize,
    },
    /// Panels outside the matrix.
    Panels,
}

impl fmt::Display for LinearError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LinearError::Activations(kind) if kind.is_quantized() => {
                write!(f, "{kind} weights need quantised activations")
            }
            LinearError::Activations(kind) => write!(f, "{kind} weights need f32 activations"),
            LinearError::Width { needed, found } => {
                write!(f, "the weights need {needed} activation values, but there are {found}")
            }
            LinearError::Bias { needed, found } => {
                write!(f, "the bias needs {needed} values, but has {found}")
            }
            LinearError::Panels => f.write_str("no such panels in the weight matrix"),
        }
    }
}

impl std::error::Error for LinearError {}

/// A product whose arguments have been checked: the activations hold `rows` rows of the width
/// of the weights, the panels are panels of the weights, and the caller of [`linear`] vouches
/// for the output.
struct Job<'a> {
    weights: PackedMatrix<'a>,
    /// First activation row.
    activations: *const u8,
    /// Bytes from one activation row to the next.
    activation_stride: usize,
    rows: usize,
    bias: Option<&'a [f32]>,
    out: Output,
    panels: Range<usize>,
}

/// Computes the outputs of the given panels (16 weight rows each) for all activation rows.
///
/// # Safety
/// For every row `r` of the activations and every weight row `n` of the panels,
/// `out.start + r * out.stride + n` is valid for a write, and nothing else reads or writes it
/// during the call. Other threads may meanwhile compute other panels of the same product.
pub unsafe fn linear(
    level: Level,
    weights: &PackedMatrix<'_>,
    activations: Activations<'_>,
    bias: Option<&[f32]>,
    out: Output,
    panels: Range<usize>,
) -> Result<(), LinearError> {
    let (n, k) = (weights.n(), weights.k());
    if panels.start > panels.end || panels.end > weights.panels() {
        return Err(LinearError::Panels);
    }
    if let Some(bias) = bias
        && bias.len() != n
    {
        return Err(LinearError::Bias { needed: n, found: bias.len() });
    }
    let (start, activation_stride) = match activations {
        Activations::F32 { values, rows } if !weights.kind().is_quantized() => {
            match rows.checked_mul(k) {
                Some(needed) if needed <= values.len() => {}
                _ => return Err(LinearError::Width { needed: rows.saturating_mul(k), found: values.len() }),
            }
            (values.as_ptr().cast(), k * size_of::<f32>())
        }
        Activations::Quantized(rows) if weights.kind().is_quantized() => {
            if rows.k() != k {
                return Err(LinearError::Width { needed: k, found: rows.k() });
            }
            (rows.as_ptr(), row_bytes(k))
        }
        _ => return Err(LinearError::Activations(weights.kind())),
    };
    let job = Job {
        weights: *weights,
        activations: start,
        activation_stride,
        rows: activations.rows(),
        bias,
        out,
        panels,
    };
    job.run(level);
    Ok(())
}

impl Job<'_> {
    fn run(&self, level: Level) {
        use block_formats::{Iq4Nl, Mxfp4, Q4_1, Q5_0, Q5_1};
        use quant_formats::{Q4_0, Q4K, Q5K, Q6K, Q8_0};
        match self.weights.kind() {
            WeightType::F32 => lanes::run(level, floats::Product::<floats::F32>::new(self)),
            WeightType::F16 => lanes::run(level, floats::Product::<floats::F16>::new(self)),
            WeightType::Bf16 => lanes::run(level, floats::Product::<floats::Bf16>::new(self)),
            WeightType::Q8_0 => lanes::run(level, quants::Product::<Q8_0>::new(self)),
            WeightType::Q4_0 => lanes::run(level, quants::Product::<Q4_0>::new(self)),
            WeightType::Q4_1 => lanes::run(level, quants::Product::<Q4_1>::new(self)),
            WeightType::Q5_0 => lanes::run(level, quants::Product::<Q5_0>::new(self)),
            WeightType::Q5_1 => lanes::run(level, quants::Product::<Q5_1>::new(self)),
            WeightType::Iq4Nl => lanes::run(level, quants::Product::<Iq4Nl>::new(self)),
            WeightType::Mxfp4 => lanes::run(level, quants::Product::<Mxfp4>::new(self)),
            WeightType::Q4K => lanes::run(level, quants::Product::<Q4K>::new(self)),
            WeightType::Q5K => lanes::run(level, quants::Product::<Q5K>::new(self)),
            WeightType::Q6K => lanes::run(level, quants::Product::<Q6K>::new(self)),
        }
    }

    /// The panels in chunks that stay in the second level cache while all row tiles pass over
    /// them. So the first row tile alone reads weights from memory.
    fn panel_chunks(&self) -> impl Iterator<Item = Range<usize>> {
        const CHUNK_BYTES: usize = 256 * 1024;
        let chunk = (CHUNK_BYTES / self.weights.panel_bytes()).max(1);
        let end = self.panels.end;
        self.panels.clone().step_by(chunk).map(move |start| start..end.min(start + chunk))
    }

    /// # Safety
    /// `panel` is one of the matrix.
    #[inline(always)]
    unsafe fn panel(&self, panel: usize) -> *const u8 {
        // SAFETY: the matrix holds all its panels.
        unsafe { self.weights.bytes().as_ptr().add(panel * self.weights.panel_bytes()) }
    }

    /// # Safety
    /// Rows `first..first + R` are rows of the activations.
    #[inline(always)]
    unsafe fn activation_rows<const R: usize>(&self, first: usize) -> [*const u8; R] {
        // A loop, since code in a closure has not the instructions of the level and stays a call.
        let mut rows = [self.activations; R];
        for (r, row) in rows.iter_mut().enumerate() {
            // SAFETY: as the caller promises.
            *row = unsafe { row.add((first + r) * self.activation_stride) };
        }
        rows
    }

    /// # Safety
    /// `row` is one of the activations, `panel` one of the panels of the job.
    #[inline(always)]
    unsafe fn target(&self, row: usize, panel: usize) -> tile::Target<'_> {
        let first = panel * PANEL_ROWS;
        let lanes = (self.weights.n() - first).min(PANEL_ROWS);
        tile::Target {
            // SAFETY: the caller of `linear` vouches for every element of the row and panel.
            start: unsafe { self.out.start.add(row * self.out.stride + first) },
            stride: self.out.stride,
            lanes,
            bias: self.bias.map(|bias| &bias[first..first + lanes]),
        }
    }
}

/// Cuts `rows` into tiles of at most `largest` rows and as equal as can be; calls
/// `visit(first row, rows)` for each.
#[inline]
fn for_row_tiles(rows: usize, largest: usize, mut visit: impl FnMut(usize, usize)) {
    let tiles = rows.div_ceil(largest);
    let mut first = 0;
    for tile in 0..tiles {
        let size = (rows - first).div_ceil(tiles - tile);
        visit(first, size);
        first += size;
    }
}
