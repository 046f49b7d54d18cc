//! The tile kernel of quantised weights: dots of 32 elements, and the walk along `k`.

use std::marker::PhantomData;
use std::ops::Range;

use super::lanes::{Lanes, Task, prefetch};
use super::quant_formats::QuantFormat;
use super::tile::Target;
use super::{Job, for_row_tiles};
use crate::quantized::{BLOCK, BLOCK_BYTES, OFFSETS_AT, SCALE_AT, SCALED_SUM_AT};
use crate::weights::VECTOR;

/// How far ahead of the kernel weights are fetched.
const PREFETCH_BYTES: usize = 18 * 1024;
/// The most rows for which a format may want them fetched less far ahead: they go by faster.
const NEAR_ROWS: usize = 2;
/// How far ahead the first tails of a group are fetched, in bytes of weights.
const TAILS_AHEAD: usize = 2 * 1024;
/// So many sums of a tile do not keep the processor busy one by one.
const FEW_SUMS: usize = 3;
/// Rows that pass over a pair of panels while these lie in the first level cache.
const PAIRED_ROWS: usize = 48;

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

    /// -128 times the sum of the quants of a half, or of both: [`WHOLE`].
    ///
    /// # Safety
    /// The block is readable.
    #[inline(always)]
    unsafe fn offset(&self, r: usize, part: usize) -> i32 {
        // SAFETY: as the caller promises.
        i32::from_ne_bytes(unsafe { self.word(r, OFFSETS_AT + 4 * part) })
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

/// One block of `P` panels and of the activations.
#[derive(Clone, Copy)]
pub(super) struct Block<const R: usize, const P: usize> {
    pub bodies: [*const u8; P],
    pub tails: [*const u8; P],
    pub acts: Acts<R>,
    /// What to fetch: advances by body and tail, so that every byte has its turn.
    ahead: *const u8,
    streaming: bool,
}

impl<const R: usize, const P: usize> Block<R, P> {
    /// Fetches, for later, lines from offset `at` of the block that is due. A block has body and tail there, though
    /// they do not lie together.
    #[inline(always)]
    pub fn fetch_ahead(&self, at: usize, lines: usize) {
        Ahead { start: self.ahead.wrapping_add(at), lines, streaming: self.streaming }.fetch(0..lines);
    }

    /// An eighth of the `LINES` lines of a block, due with 32 of its 256 elements, in the order in which they lie: to be
    /// fetched while these are computed where there are at most `SPREAD_ROWS` rows, else at once.
    #[inline(always)]
    pub fn ahead_of_sub<const LINES: usize, const SPREAD_ROWS: usize>(&self, sub: usize) -> Ahead {
        let (at, lines) = (LINES * sub / 8 * VECTOR, LINES.div_ceil(8));
        if R <= SPREAD_ROWS {
            return self.ahead(at, lines);
        }
        self.fetch_ahead(at, lines);
        Ahead::NOTHING
    }

    /// As [`Block::fetch_ahead`], but while 32 elements are computed, or at once where several panels give much to do.
    #[inline(always)]
    pub fn ahead(&self, at: usize, lines: usize) -> Ahead {
        if P > 1 {
            self.fetch_ahead(at, lines);
            return Ahead::NOTHING;
        }
        Ahead { start: self.ahead.wrapping_add(at), lines, streaming: self.streaming }
    }
}

/// Lines to fetch while 32 elements are computed, spread over them: many fetches at once wait for each other, which
/// the arithmetic of 8 rows does not hide.
#[derive(Clone, Copy)]
pub(super) struct Ahead {
    start: *const u8,
    lines: usize,
    streaming: bool,
}

impl Ahead {
    pub const NOTHING: Self = Self { start: std::ptr::null(), lines: 0, streaming: false };

    #[inline(always)]
    fn fetch(&self, lines: Range<usize>) {
        if self.streaming {
            for line in lines {
                prefetch(self.start.wrapping_add(line * VECTOR));
            }
        }
    }

    /// What is due with group `group` of eight.
    #[inline(always)]
    fn fetch_for(&self, group: usize) {
        let before = |group: usize| (self.lines * group).div_ceil(8);
        if before(group) < before(group + 1) {
            self.fetch(before(group)..before(group + 1));
        }
    }
}

/// The same offset in each panel.
///
/// # Safety
/// The offset does not leave what the pointers point into.
#[inline(always)]
pub(super) unsafe fn each_at<const P: usize>(starts: [*const u8; P], offset: usize) -> [*const u8; P] {
    // SAFETY: as the caller promises.
    starts.map(|start| unsafe { start.add(offset) })
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
    ($lanes:ty, $format:ty, $subs:ident, $acts:ident, $ahead:ident, $dots:expr, $($group:literal)*) => {$(
        $ahead.fetch_for($group);
        // A loop, since code in a closure has not the instructions of the level.
        let mut weights = [<$format>::group::<$lanes, $group>($subs[0]); P];
        for p in 1..P {
            weights[p] = <$format>::group::<$lanes, $group>($subs[p]);
        }
        for r in 0..R {
            let quants = <$lanes>::splat_four($acts.quants(r, 4 * $group));
            for p in 0..P {
                $dots[p][r] = match (<$format>::CENTRED, R * P > FEW_SUMS) {
                    (true, false) => <$lanes>::dot_centred($dots[p][r], weights[p], quants),
                    (true, true) => <$lanes>::dot_centred_in_order($dots[p][r], weights[p], quants),
                    (false, false) => <$lanes>::dot($dots[p][r], weights[p], quants),
                    (false, true) => <$lanes>::dot_in_order($dots[p][r], weights[p], quants),
                };
            }
        }
    )*};
}

/// Both halves of a block.
const WHOLE: usize = 2;

/// Sums to start from: those that make up for the centre of a part of the block, or zeros.
///
/// # Safety
/// The processor has the instructions of `L`; the activations are readable.
#[inline(always)]
unsafe fn begin<L: Lanes, F: Groups, const R: usize, const P: usize>(
    acts: Acts<R>,
    part: usize,
) -> [[L::Ints; R]; P] {
    // SAFETY: as the caller promises.
    unsafe {
        let mut first = [L::zero_ints(); R];
        if F::CENTRED {
            for (r, first) in first.iter_mut().enumerate() {
                *first = L::begin_centred(acts.offset(r, part));
            }
        }
        [first; P]
    }
}

/// The dots of a half (16 elements) of 32 elements, for every panel and row.
///
/// # Safety
/// The processor has the instructions of `L`; vectors and activations are readable.
#[inline(always)]
pub(super) unsafe fn dots_of_half<L: Lanes, F: Groups, const R: usize, const P: usize, const HALF: usize>(
    subs: [*const u8; P],
    acts: Acts<R>,
    ahead: Ahead,
) -> [[L::Ints; R]; P] {
    // SAFETY: as the caller promises.
    unsafe {
        let mut dots = begin::<L, F, R, P>(acts, HALF);
        if HALF == 0 {
            add_groups!(L, F, subs, acts, ahead, dots, 0 1 2 3);
        } else {
            add_groups!(L, F, subs, acts, ahead, dots, 4 5 6 7);
        }
        dots
    }
}

/// The dots of 32 elements, for every panel and row.
///
/// # Safety
/// As for [`dots_of_half`].
#[inline(always)]
pub(super) unsafe fn dots<L: Lanes, F: Groups, const R: usize, const P: usize>(
    subs: [*const u8; P],
    acts: Acts<R>,
    ahead: Ahead,
) -> [[L::Ints; R]; P] {
    // SAFETY: as the caller promises.
    unsafe {
        let mut dots = begin::<L, F, R, P>(acts, WHOLE);
        add_groups!(L, F, subs, acts, ahead, dots, 0 1 2 3);
        if R * P <= FEW_SUMS {
            // Two chains of additions for each keep the processor busy.
            let mut second = [[L::zero_ints(); R]; P];
            add_groups!(L, F, subs, acts, ahead, second, 4 5 6 7);
            for (dots, second) in dots.iter_mut().zip(second) {
                for (dot, second) in dots.iter_mut().zip(second) {
                    *dot = L::add_ints(*dot, second);
                }
            }
            return dots;
        }
        add_groups!(L, F, subs, acts, ahead, dots, 4 5 6 7);
        dots
    }
}

/// Weights that a tile fetches while it computes: one stream, however many panels it has.
#[derive(Clone, Copy)]
struct Fetch {
    /// Bytes from the tile's first panel.
    from: usize,
    streaming: bool,
}

impl Fetch {
    const NOTHING: Self = Self { from: 0, streaming: false };

    /// What follows, where so many bytes of bodies lie together: far enough ahead that the first tails behind them come in
    /// time too.
    fn behind(bodies: usize) -> Self {
        Self { from: PREFETCH_BYTES.max(bodies + TAILS_AHEAD), streaming: true }
    }
}

/// `R` activation rows times `P` panels. Several panels share what is read of the activations.
struct Tile<'a, F, const R: usize, const P: usize> {
    panels: [*const u8; P],
    blocks: usize,
    rows: [*const u8; R],
    fetch: Fetch,
    targets: [Target<'a>; P],
    format: PhantomData<F>,
}

impl<F: QuantFormat, const R: usize, const P: usize> Task for Tile<'_, F, R, P> {
    #[inline(always)]
    unsafe fn run<L: Lanes>(self) {
        let layout = const { F::KIND.layout() };
        // SAFETY: the panels and the rows hold `blocks` blocks, and the targets are valid for writes.
        unsafe {
            for target in &self.targets {
                target.fetch::<R>();
            }
            let mut sums = [[L::zero(); R]; P];
            let mut block = Block {
                bodies: self.panels,
                tails: self.panels,
                acts: Acts { rows: self.rows, at: 0 },
                ahead: self.panels[0].wrapping_add(self.fetch.from),
                streaming: self.fetch.streaming,
            };
            let (mut group, mut left) = (self.panels, self.blocks);
            while left > 0 {
                let count = left.min(layout.group());
                block.bodies = group;
                block.tails = each_at(group, count * layout.body);
                for _ in 0..count {
                    F::add_block::<L, R, P>(block, &mut sums);
                    block.bodies = each_at(block.bodies, layout.body);
                    block.tails = each_at(block.tails, layout.tail);
                    block.ahead = block.ahead.wrapping_add(layout.body + layout.tail);
                    block.acts.at += layout.block / BLOCK * BLOCK_BYTES;
                }
                group = each_at(group, count * (layout.body + layout.tail));
                left -= count;
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

impl<F: QuantFormat> Product<'_, F> {
    /// Computes panels `panel..panel + P` for rows `row..row + R`.
    ///
    /// # Safety
    /// Rows and panels are within the job, whose own contract holds; the processor has the
    /// instructions of `L`.
    #[inline(always)]
    unsafe fn tile<L: Lanes, const R: usize, const P: usize>(&self, row: usize, panel: usize, fetch: Fetch) {
        if R > L::TILE || (P > 1 && R > L::PAIRED_TILE) {
            unreachable!("tiles are no larger than the level wants");
        }
        // SAFETY: as the caller promises.
        unsafe {
            let (mut panels, mut targets) = ([self.job.panel(panel); P], [self.job.target(row, panel); P]);
            for p in 1..P {
                (panels[p], targets[p]) = (self.job.panel(panel + p), self.job.target(row, panel + p));
            }
            L::enter(Tile::<F, R, P> {
                panels,
                blocks: self.job.weights.k() / F::KIND.block(),
                rows: self.job.activation_rows(row),
                fetch,
                targets,
                format: PhantomData,
            })
        }
    }

    /// As `tile` with one panel, for a number of rows in 1..=8.
    ///
    /// # Safety
    /// As for `tile`.
    #[inline(always)]
    unsafe fn tile_of<L: Lanes>(&self, row: usize, rows: usize, panel: usize, fetch: Fetch) {
        // SAFETY: as the caller promises.
        unsafe {
            match rows {
                1 => self.tile::<L, 1, 1>(row, panel, fetch),
                2 => self.tile::<L, 2, 1>(row, panel, fetch),
                3 => self.tile::<L, 3, 1>(row, panel, fetch),
                4 => self.tile::<L, 4, 1>(row, panel, fetch),
                5 => self.tile::<L, 5, 1>(row, panel, fetch),
                6 => self.tile::<L, 6, 1>(row, panel, fetch),
                7 => self.tile::<L, 7, 1>(row, panel, fetch),
                8 => self.tile::<L, 8, 1>(row, panel, fetch),
                _ => unreachable!("tiles have 1 to 8 rows"),
            }
        }
    }

    /// As `tile` with two panels, for a number of rows in 4..=6.
    ///
    /// # Safety
    /// As for `tile`.
    #[inline(always)]
    unsafe fn pair_of<L: Lanes>(&self, row: usize, rows: usize, panel: usize, fetch: Fetch) {
        // SAFETY: as the caller promises.
        unsafe {
            match rows {
                4 => self.tile::<L, 4, 2>(row, panel, fetch),
                5 => self.tile::<L, 5, 2>(row, panel, fetch),
                6 => self.tile::<L, 6, 2>(row, panel, fetch),
                _ => unreachable!("tiles over pairs have 4 to 6 rows"),
            }
        }
    }

    /// Rows `first..first + rows`, more than a tile has, over all panels of a range. A pair of panels is fetched while
    /// the one before it is computed: its two are read side by side, but come from memory one after the other.
    ///
    /// # Safety
    /// As for `tile`.
    #[inline(always)]
    unsafe fn pairs<L: Lanes>(&self, first: usize, rows: usize, panels: Range<usize>) {
        for panel in panels.clone().step_by(2) {
            let panel_bytes = self.job.weights.panel_bytes();
            let mut tile = 0;
            // Tiles of as equal rows as can be: above 8 rows none has less than 4.
            for_row_tiles(rows, L::PAIRED_TILE, |row, count| {
                let fetch = match tile {
                    0 | 1 if first == 0 => Fetch { from: (2 + tile) * panel_bytes, streaming: true },
                    _ => Fetch::NOTHING,
                };
                tile += 1;
                // SAFETY: as the caller promises.
                unsafe {
                    if panel + 1 < panels.end {
                        self.pair_of::<L>(first + row, count, panel, fetch);
                    } else {
                        self.tile_of::<L>(first + row, count, panel, fetch);
                    }
                }
            });
        }
    }
}

impl<F: QuantFormat> Task for Product<'_, F> {
    #[inline(always)]
    unsafe fn run<L: Lanes>(self) {
        let layout = F::KIND.layout();
        let bodies = (self.job.weights.k() / layout.block).min(layout.group()) * layout.body;
        let first_fetch = match F::NEAR_BYTES {
            Some(from) if self.job.rows <= NEAR_ROWS => Fetch { from, streaming: true },
            _ => Fetch::behind(bodies),
        };
        for panels in self.job.panel_chunks() {
            if F::PAIRED && L::PAIRED_TILE > 0 && self.job.rows > L::TILE {
                for_row_tiles(self.job.rows, PAIRED_ROWS, |row, rows| {
                    // SAFETY: rows and panels come from the ranges of the job.
                    unsafe { self.pairs::<L>(row, rows, panels.clone()) }
                });
                continue;
            }
            for_row_tiles(self.job.rows, L::TILE, |row, rows| {
                let fetch = if row == 0 { first_fetch } else { Fetch::NOTHING };
                for panel in panels.clone() {
                    // SAFETY: as above.
                    unsafe { self.tile_of::<L>(row, rows, panel, fetch) }
                }
            });
        }
    }
}
