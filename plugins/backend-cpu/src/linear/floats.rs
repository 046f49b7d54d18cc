//! Kernels of F32, F16 and BF16: one fused multiply-add per weight vector and activation.

use std::marker::PhantomData;

use super::lanes::{LANES, Lanes, Task, prefetch};
use super::tile::Target;
use super::{Job, for_row_tiles};

/// How far ahead of the kernel weights are fetched, all panels of a tile together.
const PREFETCH_BYTES: usize = 16 * 1024;
/// Columns between two fetches: at least one cache line of every type.
const STEP: usize = 4;

/// A float type of weights.
pub(super) trait FloatFormat {
    /// Bytes of a value.
    const SIZE: usize;

    /// The values of 16 rows for one `k`.
    ///
    /// # Safety
    /// 16 values are readable at `from`.
    unsafe fn load<L: Lanes>(from: *const u8) -> L::Floats;
}

/// 32-bit floats.
pub(super) struct F32;
/// Half-precision floats.
pub(super) struct F16;
/// Bfloat16.
pub(super) struct Bf16;

impl FloatFormat for F32 {
    const SIZE: usize = 4;

    #[inline(always)]
    unsafe fn load<L: Lanes>(from: *const u8) -> L::Floats {
        // SAFETY: as the caller promises; the load has no alignment.
        unsafe { L::load(from.cast()) }
    }
}

impl FloatFormat for F16 {
    const SIZE: usize = 2;

    #[inline(always)]
    unsafe fn load<L: Lanes>(from: *const u8) -> L::Floats {
        // SAFETY: as the caller promises.
        unsafe { L::load_f16(from) }
    }
}

impl FloatFormat for Bf16 {
    const SIZE: usize = 2;

    #[inline(always)]
    unsafe fn load<L: Lanes>(from: *const u8) -> L::Floats {
        // SAFETY: as the caller promises.
        unsafe { L::load_bf16(from) }
    }
}

/// `R` activation rows times `P` panels. Several panels give the processor independent sums to
/// work on, which one row alone would not.
struct Tile<'a, F, const R: usize, const P: usize> {
    panels: [*const u8; P],
    rows: [*const u8; R],
    k: usize,
    /// Whether the weights come from memory.
    streaming: bool,
    targets: [Target<'a>; P],
    format: PhantomData<F>,
}

impl<F: FloatFormat, const R: usize, const P: usize> Tile<'_, F, R, P> {
    /// Bytes of the 16 values of a column.
    const COLUMN: usize = F::SIZE * LANES;

    /// Adds the products of column `i`.
    ///
    /// # Safety
    /// As for `run`; `i` is below `k`.
    #[inline(always)]
    unsafe fn add_column<L: Lanes>(&self, i: usize, sums: &mut [[L::Floats; R]; P]) {
        // SAFETY: panels and rows hold `k` columns.
        unsafe {
            for (panel, sums) in self.panels.iter().zip(sums) {
                let weights = F::load::<L>(panel.add(i * Self::COLUMN));
                for (row, sum) in self.rows.iter().zip(sums) {
                    let activation = L::splat(row.cast::<f32>().add(i).read_unaligned());
                    *sum = L::fma(weights, activation, *sum);
                }
            }
        }
    }

    /// Fetches, for later, what lies behind columns `i..i + STEP` of each panel.
    #[inline(always)]
    fn fetch_ahead(&self, i: usize) {
        let at = i * Self::COLUMN + PREFETCH_BYTES / P;
        // Behind the end of a panel lies one that this tile has already: the next tile's is P on.
        let panel_bytes = self.k * Self::COLUMN;
        let at = if at < panel_bytes { at } else { at + (P - 1) * panel_bytes };
        for panel in self.panels {
            for line in 0..STEP * Self::COLUMN / 64 {
                prefetch(panel.wrapping_add(at + line * 64));
            }
        }
    }
}

impl<F: FloatFormat, const R: usize, const P: usize> Task for Tile<'_, F, R, P> {
    #[inline(always)]
    unsafe fn run<L: Lanes>(self) {
        // SAFETY: panels and rows hold `k` columns, and the targets are valid for writes.
        unsafe {
            for target in &self.targets {
                target.fetch::<R>();
            }
            let mut sums = [[L::zero(); R]; P];
            let whole_steps = self.k / STEP * STEP;
            for step in (0..whole_steps).step_by(STEP) {
                if self.streaming {
                    self.fetch_ahead(step);
                }
                for i in 0..STEP {
                    self.add_column::<L>(step + i, &mut sums);
                }
            }
            for i in whole_steps..self.k {
                self.add_column::<L>(i, &mut sums);
            }
            for (target, sums) in self.targets.into_iter().zip(sums) {
                target.write::<L, R>(sums);
            }
        }
    }
}

/// A whole job.
pub(super) struct Product<'a, F> {
    job: &'a Job<'a>,
    format: PhantomData<F>,
}

impl<'a, F> Product<'a, F> {
    pub fn new(job: &'a Job<'a>) -> Self {
        Product { job, format: PhantomData }
    }
}

impl<F: FloatFormat> Product<'_, F> {
    /// Computes panels `panel..panel + P` for rows `row..row + R`; answers with `P`.
    ///
    /// # Safety
    /// Rows and panels are within the job, whose own contract holds; the processor has the
    /// instructions of `L`.
    #[inline(always)]
    unsafe fn tile<L: Lanes, const R: usize, const P: usize>(&self, row: usize, panel: usize) -> usize {
        if R > L::TILE {
            unreachable!("tiles are no larger than the level wants");
        }
        // SAFETY: as the caller promises.
        unsafe {
            L::enter(Tile::<F, R, P> {
                panels: std::array::from_fn(|p| self.job.panel(panel + p)),
                rows: self.job.activation_rows(row),
                k: self.job.weights.k(),
                streaming: row == 0,
                targets: std::array::from_fn(|p| self.job.target(row, panel + p)),
                format: PhantomData,
            })
        }
        P
    }

    /// As `tile`, for a number of rows in 1..=8.
    ///
    /// # Safety
    /// As for `tile`.
    #[inline(always)]
    unsafe fn tile_of<L: Lanes, const P: usize>(&self, row: usize, rows: usize, panel: usize) -> usize {
        // SAFETY: as the caller promises.
        unsafe {
            match rows {
                1 => self.tile::<L, 1, P>(row, panel),
                2 => self.tile::<L, 2, P>(row, panel),
                3 => self.tile::<L, 3, P>(row, panel),
                4 => self.tile::<L, 4, P>(row, panel),
                5 => self.tile::<L, 5, P>(row, panel),
                6 => self.tile::<L, 6, P>(row, panel),
                7 => self.tile::<L, 7, P>(row, panel),
                8 => self.tile::<L, 8, P>(row, panel),
                _ => unreachable!("tiles have 1 to 8 rows"),
            }
        }
    }
}

impl<F: FloatFormat> Task for Product<'_, F> {
    #[inline(always)]
    unsafe fn run<L: Lanes>(self) {
        for panels in self.job.panel_chunks() {
            for_row_tiles(self.job.rows, L::TILE, |row, rows| {
                let mut panel = panels.start;
                while panel < panels.end {
                    // SAFETY: rows and panels come from the ranges of the job.
                    panel += unsafe {
                        match panels.end - panel {
                            2.. => self.tile_of::<L, 2>(row, rows, panel),
                            _ => self.tile_of::<L, 1>(row, rows, panel),
                        }
                    };
                }
            });
        }
    }
}
