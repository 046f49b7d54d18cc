//! The tile kernel of quantised weights: dots of 32 elements, and the walk along `k`.

use std::marker::PhantomData;

use super::lanes::{Lanes, Task, prefetch};
use super::quant_formats::QuantFormat;
use super::tile::Target;
use super::{Job, for_row_tiles};
use crate::quantized::{BLOCK, BLOCK_BYTES, OFFSETS_AT, SCALE_AT, SCALED_SUM_AT};
use crate::weights::VECTOR;

/// How far ahead of the kernel weights are fetched.
const PREFETCH_BYTES: usize = 16 * 1024;

/// One activation block of each row of a tile.
#[derive(Clone, Copy)]
pub(super) struct Acts<const R: usize> {
    rows: [*const u8; R],
    /// Byte offset of the block in each row.
    at: usize,
}

impl<const R: usize> Acts<R> {
    /// # Safety
    /// The block is readable, and `at + 4` does not exceed it.
    #[inline(always)]
    unsafe fn word(&self, r: usize, at: usize) -> [u8; 4] {
        // SAFETY: as the caller promises.
        unsafe { self.quants(r, at).cast::<[u8; 4]>().read_unaligned() }
    }

    /// # Safety
    /// The block is readable.
    #[inline(always)]
    unsafe fn quants(&self, r: usize, first: usize) -> *const u8 {
        // SAFETY: as the caller promises.
        unsafe { self.rows[r].add(self.at + first) }
    }

    /// -128 times the sum of the quants of a half.
    ///
    /// # Safety
    /// The block is readable.
    #[inline(always)]
    unsafe fn offset(&self, r: usize, half: usize) -> i32 {
        // SAFETY: as the caller promises.
        i32::from_ne_bytes(unsafe { self.word(r, OFFSETS_AT + 4 * half) })
    }

    /// # Safety
    /// The block is readable.
    #[inline(always)]
    pub unsafe fn scale(&self, r: usize) -> f32 {
        // SAFETY: as the caller promises.
        f32::from_ne_bytes(unsafe { self.word(r, SCALE_AT) })
    }

    /// # Safety
    /// The block is readable.
    #[inline(always)]
    pub unsafe fn scaled_sum(&self, r: usize) -> f32 {
        // SAFETY: as the caller promises.
        f32::from_ne_bytes(unsafe { self.word(r, SCALED_SUM_AT) })
    }

    /// The next block of each row.
    #[inline(always)]
    pub fn next(self) -> Self {
        Acts { rows: self.rows, at: self.at + BLOCK_BYTES }
    }
}

/// One block of a panel and of the activations.
#[derive(Clone, Copy)]
pub(super) struct Block<const R: usize> {
    pub body: *const u8,
    pub tail: *const u8,
    pub acts: Acts<R>,
    /// What to fetch: advances by body and tail, so that every byte has its turn.
    ahead: *const u8,
    streaming: bool,
}

impl<const R: usize> Block<R> {
    /// Fetches, for later, lines from offset `at` of the bytes that are as many blocks ahead as
    /// make the distance. A block has body and tail there, though they do not lie together.
    /// Formats spread this over their work: too many fetches at once would wait for each other.
    #[inline(always)]
    pub fn fetch_ahead(&self, at: usize, lines: usize) {
        if self.streaming {
            for line in 0..lines {
                prefetch(self.ahead.wrapping_add(at + line * VECTOR));
            }
        }
    }
}

/// Vectors of 32 elements as the bytes of a dot product.
pub(super) trait Groups {
    /// Whether 128 is to be subtracted from the bytes (else they are below 128).
    const CENTRED: bool;

    /// The bytes of group `G`: elements `4G..4G + 4`.
    ///
    /// # Safety
    /// The processor has the instructions of `L`; the vectors are readable at `sub`.
    unsafe fn group<L: Lanes, const G: usize>(sub: *const u8) -> L::Bytes;
}

/// Adds the dots of the named groups.
macro_rules! add_groups {
    ($lanes:ty, $format:ty, $sub:ident, $acts:ident, $dots:expr, $($group:literal)*) => {$(
        let weights = <$format>::group::<$lanes, $group>($sub);
        for r in 0..R {
            let quants = $acts.quants(r, 4 * $group);
            $dots[r] = if <$format>::CENTRED {
                <$lanes>::dot_centred($dots[r], weights, quants)
            } else {
                <$lanes>::dot($dots[r], weights, quants)
            };
        }
    )*};
}

/// The dots of both halves (16 elements each) of 32 elements, for every row.
///
/// # Safety
/// The processor has the instructions of `L`; vectors and activations are readable.
#[inline(always)]
pub(super) unsafe fn dots_of_halves<L: Lanes, F: Groups, const R: usize>(
    sub: *const u8,
    acts: Acts<R>,
) -> [[L::Ints; R]; 2] {
    // SAFETY: as the caller promises.
    unsafe {
        let mut halves = [[L::zero_ints(); R]; 2];
        if F::CENTRED {
            for (half, dots) in halves.iter_mut().enumerate() {
                for (r, dot) in dots.iter_mut().enumerate() {
                    *dot = L::begin_centred(acts.offset(r, half));
                }
            }
        }
        add_groups!(L, F, sub, acts, halves[0], 0 1 2 3);
        add_groups!(L, F, sub, acts, halves[1], 4 5 6 7);
        halves
    }
}

/// The dots of 32 elements, for every row.
///
/// # Safety
/// As for [`dots_of_halves`].
#[inline(always)]
pub(super) unsafe fn dots<L: Lanes, F: Groups, const R: usize>(
    sub: *const u8,
    acts: Acts<R>,
) -> [L::Ints; R] {
    // SAFETY: as the caller promises.
    unsafe {
        if R <= 4 {
            // Few rows: two chains of additions per row keep the processor busy.
            let [first, second] = dots_of_halves::<L, F, R>(sub, acts);
            return std::array::from_fn(|r| L::add_ints(first[r], second[r]));
        }
        let mut dots = [L::zero_ints(); R];
        if F::CENTRED {
            for (r, dot) in dots.iter_mut().enumerate() {
                *dot = L::begin_centred(acts.offset(r, 0));
            }
        }
        add_groups!(L, F, sub, acts, dots, 0 1 2 3);
        if F::CENTRED {
            for (r, dot) in dots.iter_mut().enumerate() {
                *dot = L::continue_centred(*dot, acts.offset(r, 1));
            }
        }
        add_groups!(L, F, sub, acts, dots, 4 5 6 7);
        dots
    }
}

/// `R` activation rows times one panel.
struct Tile<'a, F, const R: usize> {
    panel: *const u8,
    blocks: usize,
    rows: [*const u8; R],
    /// Whether the weights come from memory.
    streaming: bool,
    target: Target<'a>,
    format: PhantomData<F>,
}

impl<F: QuantFormat, const R: usize> Task for Tile<'_, F, R> {
    #[inline(always)]
    unsafe fn run<L: Lanes>(self) {
        let layout = const { F::KIND.layout() };
        // SAFETY: the panel and the rows hold `blocks` blocks, and the target is valid for writes.
        unsafe {
            let mut sums = [L::zero(); R];
            let mut block = Block {
                body: self.panel,
                tail: self.panel.add(self.blocks * layout.body),
                acts: Acts { rows: self.rows, at: 0 },
                ahead: self.panel.wrapping_add(PREFETCH_BYTES),
                streaming: self.streaming,
            };
            for _ in 0..self.blocks {
                F::add_block::<L, R>(block, &mut sums);
                block.body = block.body.add(layout.body);
                block.tail = block.tail.add(layout.tail);
                block.ahead = block.ahead.wrapping_add(layout.body + layout.tail);
                block.acts.at += layout.block / BLOCK * BLOCK_BYTES;
            }
            self.target.write::<L, R>(sums);
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

impl<F: QuantFormat> Product<'_, F> {
    /// # Safety
    /// Rows and panel are within the job, whose own contract holds; the processor has the
    /// instructions of `L`.
    #[inline(always)]
    unsafe fn tile<L: Lanes, const R: usize>(&self, row: usize, panel: usize) {
        if R > L::TILE {
            unreachable!("tiles are no larger than the level wants");
        }
        // SAFETY: as the caller promises.
        unsafe {
            L::enter(Tile::<F, R> {
                panel: self.job.panel(panel),
                blocks: self.job.weights.k() / F::KIND.block(),
                rows: self.job.activation_rows(row),
                streaming: row == 0,
                target: self.job.target(row, panel),
                format: PhantomData,
            })
        }
    }
}

impl<F: QuantFormat> Task for Product<'_, F> {
    #[inline(always)]
    unsafe fn run<L: Lanes>(self) {
        for panels in self.job.panel_chunks() {
            for_row_tiles(self.job.rows, L::TILE, |row, rows| {
                for panel in panels.clone() {
                    // SAFETY: rows and panels come from the ranges of the job.
                    unsafe {
                        match rows {
                            1 => self.tile::<L, 1>(row, panel),
                            2 => self.tile::<L, 2>(row, panel),
                            3 => self.tile::<L, 3>(row, panel),
                            4 => self.tile::<L, 4>(row, panel),
                            5 => self.tile::<L, 5>(row, panel),
                            6 => self.tile::<L, 6>(row, panel),
                            7 => self.tile::<L, 7>(row, panel),
                            8 => self.tile::<L, 8>(row, panel),
                            _ => unreachable!("tiles have 1 to 8 rows"),
                        }
                    }
                }
            });
        }
    }
}
