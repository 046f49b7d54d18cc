//! Attention over a paged cache.
//!
//! The context is cut into blocks of 256 positions at fixed borders. A block gives, for each query,
//! its largest score m, l = Σ exp(s - m) and a = Σ exp(s - m)·v; blocks are combined in ascending
//! order. So a result depends only on its query and on the cells it sees: not on other rows, not on
//! threads, not on how the cache was filled.

use super::SharedSlice;
use super::attention_math::{accumulate, score, weigh};
use super::kv::{BLOCK, KvPlane, decode};
use super::lanes::larger;
use super::math::exp;
use crate::level::Level;
use core::ops::Range;

/// Rows that share converted cells.
const ROW_TILE: usize = 8;
/// Positions converted at a time: with 256 elements each they take 16 KiB, a part of the
/// first-level cache.
const CELL_TILE: usize = 16;

/// Inputs of [`attention`], for rows of one sequence.
#[derive(Clone, Copy)]
pub struct Attention<'a> {
    /// Queries `[rows][query_heads][width]`, the width of the planes.
    pub query: &'a [f32],
    /// Query heads, a multiple of the planes' heads. Head j reads KV head j / (query / KV heads).
    pub query_heads: usize,
    /// Keys.
    pub keys: KvPlane<'a>,
    /// Values.
    pub values: KvPlane<'a>,
    /// Physical block of each logical block of 256 positions.
    pub blocks: &'a [i32],
    /// First logical position that each row sees `[rows]`.
    pub begin: &'a [i32],
    /// End of the logical positions that each row sees `[rows]`.
    pub end: &'a [i32],
    /// Factor of the scores.
    pub scale: f32,
    /// Scores become cap · tanh(score / cap).
    pub cap: Option<f32>,
    /// Score per query head of a position without value `[query_heads]`.
    pub sinks: Option<&'a [f32]>,
}

/// Floats of scratch that a thread needs for [`attention`].
pub fn attention_scratch_floats(query_heads: usize, kv_heads: usize, width: usize) -> usize {
    let queries = ROW_TILE * (query_heads / kv_heads);
    CELL_TILE * width + queries * (BLOCK + 2 * width + 4)
}

/// out = Σ softmax(scale · q·k) · v over the positions that a row sees; `[rows][query_heads][width]`.
/// A row that sees nothing gives zeros. The dot product is summed in sixteen lanes.
///
/// The work range is one KV head, with all query heads that read it, and a range of rows: converted
/// cells serve them all. `scratch` has [`attention_scratch_floats`] elements.
///
/// # Safety
/// See [the module](crate::kernels). In the planes nobody writes the visible cells.
pub unsafe fn attention(
    level: Level,
    work: &Attention<'_>,
    out: SharedSlice<'_, f32>,
    kv_head: usize,
    rows: Range<usize>,
    scratch: &mut [f32],
) {
    // SAFETY: the caller's contract is passed on.
    unsafe { attention_at(level, work, level, out, kv_head, rows, scratch) }
}

per_level! {
    /// [`attention`], with the level handed down to where cells are converted.
    fn attention_at = attention_body(
        work: &Attention<'_>,
        conversion: Level,
        out: SharedSlice<'_, f32>,
        kv_head: usize,
        rows: Range<usize>,
        scratch: &mut [f32],
    )
}

#[inline(always)]
unsafe fn attention_body(
    work: &Attention<'_>,
    conversion: Level,
    out: SharedSlice<'_, f32>,
    kv_head: usize,
    rows: Range<usize>,
    scratch: &mut [f32],
) {
    assert!(work.keys.heads == work.values.heads && work.keys.width == work.values.width);
    assert!(work.query_heads.is_multiple_of(work.keys.heads));
    let group = work.query_heads / work.keys.heads;
    for start in rows.clone().step_by(ROW_TILE) {
        let tile = start..rows.end.min(start + ROW_TILE);
        let mut tile = Tile::new(work, conversion, kv_head, group, tile, scratch);
        for block in tile.all_blocks() {
            // SAFETY: nobody writes visible cells.
            unsafe {
                tile.score_block(block);
                tile.weigh_scores(block);
                tile.sum_values(block);
            }
            tile.combine(block);
        }
        // SAFETY: these rows and heads of `out` belong to the caller's work range.
        unsafe { tile.finish(out) };
    }
}

/// Some rows with the query heads of one KV head. A query is one head of one row.
struct Tile<'a> {
    work: &'a Attention<'a>,
    conversion: Level,
    kv_head: usize,
    group: usize,
    rows: Range<usize>,
    /// Converted cells `[CELL_TILE][width]`.
    cells: &'a mut [f32],
    /// Scores, then weights, of the current block `[queries][BLOCK]`.
    scores: &'a mut [f32],
    /// a of the current block `[queries][width]`.
    block_sums: &'a mut [f32],
    /// a of all blocks so far `[queries][width]`.
    sums: &'a mut [f32],
    /// m and l of all blocks so far, then of the current one `[queries][4]`.
    totals: &'a mut [f32],
}

impl<'a> Tile<'a> {
    #[inline(always)]
    fn new(
        work: &'a Attention<'a>,
        conversion: Level,
        kv_head: usize,
        group: usize,
        rows: Range<usize>,
        scratch: &'a mut [f32],
    ) -> Self {
        let width = work.keys.width;
        let queries = rows.len() * group;
        let (cells, rest) = scratch.split_at_mut(CELL_TILE * width);
        let (scores, rest) = rest.split_at_mut(queries * BLOCK);
        let (block_sums, rest) = rest.split_at_mut(queries * width);
        let (sums, rest) = rest.split_at_mut(queries * width);
        Self {
            work,
            conversion,
            kv_head,
            group,
            rows,
            cells,
            scores,
            block_sums,
            sums,
            totals: &mut rest[..4 * queries],
        }
    }

    #[inline(always)]
    fn width(&self) -> usize {
        self.work.keys.width
    }

    /// Logical positions that a row sees.
    #[inline(always)]
    fn visible(&self, row: usize) -> Range<usize> {
        let end = self.work.end[row].max(0) as usize;
        (self.work.begin[row].max(0) as usize).min(end)..end
    }

    /// Those of them in `block`, counted from its start.
    #[inline(always)]
    fn visible_in(&self, row: usize, block: usize) -> Range<usize> {
        let visible = self.visible(row);
        let start = block * BLOCK;
        let clamp = |position: usize| position.clamp(start, start + BLOCK) - start;
        clamp(visible.start)..clamp(visible.end)
    }

    /// Blocks with a position that some row sees, and those between them.
    #[inline(always)]
    fn all_blocks(&self) -> Range<usize> {
        let seen = self.rows.clone().map(|row| self.visible(row)).filter(|visible| !visible.is_empty());
        let (first, end) = seen.fold((usize::MAX, 0), |(first, end), visible| {
            (first.min(visible.start / BLOCK), end.max(visible.end.div_ceil(BLOCK)))
        });
        first.min(end)..end
    }

    /// Positions in `block` from the first to the last that some row sees.
    #[inline(always)]
    fn span(&self, block: usize) -> Range<usize> {
        let seen =
            self.rows.clone().map(|row| self.visible_in(row, block)).filter(|visible| !visible.is_empty());
        let (start, end) =
            seen.fold((BLOCK, 0), |(start, end), visible| (start.min(visible.start), end.max(visible.end)));
        start.min(end)..end
    }

    /// Converts the cells of a part of `block` that lies in one cell tile.
    ///
    /// # Safety
    /// Nobody writes them.
    #[inline(always)]
    unsafe fn load(&mut self, plane: &KvPlane<'_>, block: usize, positions: Range<usize>) {
        let Ok(physical) = usize::try_from(self.work.blocks[block]) else {
            panic!("a visible position lies in a block that the table lacks");
        };
        let count = positions.len() * self.width();
        // SAFETY: promised by the caller.
        let bytes = unsafe { plane.bytes.read(plane.cells(physical, self.kv_head, positions)) };
        decode(self.conversion, plane.format, bytes, &mut self.cells[..count]);
    }

    /// q·k for every query and every position of the span.
    ///
    /// # Safety
    /// Nobody writes visible cells.
    #[inline(always)]
    unsafe fn score_block(&mut self, block: usize) {
        let width = self.width();
        for positions in cut(self.span(block)) {
            // SAFETY: promised by the caller.
            unsafe { self.load(&self.work.keys, block, positions.clone()) };
            for (number, row) in self.rows.clone().enumerate() {
                let visible = self.visible_in(row, block);
                if visible.start >= positions.end || visible.end <= positions.start {
                    continue;
                }
                for head in 0..self.group {
                    let query = (row * self.work.query_heads + self.kv_head * self.group + head) * width;
                    let query = &self.work.query[query..query + width];
                    let place = (number * self.group + head) * BLOCK;
                    let scores = &mut self.scores[place + positions.start..place + positions.end];
                    score(query, &self.cells[..positions.len() * width], scores);
                }
            }
        }
    }

    /// Scores to exp(s - m), with m and l.
    #[inline(always)]
    fn weigh_scores(&mut self, block: usize) {
        for (number, row) in self.rows.clone().enumerate() {
            let visible = self.visible_in(row, block);
            if visible.is_empty() {
                continue;
            }
            for query in number * self.group..(number + 1) * self.group {
                let scores = &mut self.scores[query * BLOCK..(query + 1) * BLOCK];
                let (maximum, sum) = weigh(scores, visible.clone(), self.work.scale, self.work.cap);
                self.totals[4 * query + 2] = maximum;
                self.totals[4 * query + 3] = sum;
            }
        }
    }

    /// Σ exp(s - m)·v, positions ascending.
    ///
    /// # Safety
    /// Nobody writes visible cells.
    #[inline(always)]
    unsafe fn sum_values(&mut self, block: usize) {
        let width = self.width();
        self.block_sums.fill(0.0);
        for positions in cut(self.span(block)) {
            // SAFETY: promised by the caller.
            unsafe { self.load(&self.work.values, block, positions.clone()) };
            for (number, row) in self.rows.clone().enumerate() {
                // Only what the row sees: other cells may hold anything.
                let visible = self.visible_in(row, block);
                let from = visible.start.max(positions.start);
                let to = visible.end.min(positions.end);
                if from >= to {
                    continue;
                }
                let cells = (from - positions.start) * width..(to - positions.start) * width;
                for query in number * self.group..(number + 1) * self.group {
                    let weights = &self.scores[query * BLOCK + from..query * BLOCK + to];
                    let sums = &mut self.block_sums[query * width..(query + 1) * width];
                    accumulate(weights, &self.cells[cells.clone()], sums);
                }
            }
        }
    }

    /// Adds the current block to the total of each query that sees some of it.
    #[inline(always)]
    fn combine(&mut self, block: usize) {
        let width = self.width();
        for (number, row) in self.rows.clone().enumerate() {
            if self.visible_in(row, block).is_empty() {
                continue;
            }
            let first = self.visible(row).start / BLOCK == block;
            for query in number * self.group..(number + 1) * self.group {
                let [old_maximum, old_sum, new_maximum, new_sum] = &mut self.totals[4 * query..4 * query + 4]
                else {
                    continue;
                };
                let sums = &mut self.sums[query * width..(query + 1) * width];
                let block_sums = &self.block_sums[query * width..(query + 1) * width];
                if first {
                    (*old_maximum, *old_sum) = (*new_maximum, *new_sum);
                    sums.copy_from_slice(block_sums);
                    continue;
                }
                let maximum = larger(*old_maximum, *new_maximum);
                let old = exp(*old_maximum - maximum);
                let new = exp(*new_maximum - maximum);
                *old_maximum = maximum;
                *old_sum = old_sum.mul_add(old, *new_sum * new);
                for (sum, &block_sum) in sums.iter_mut().zip(block_sums) {
                    *sum = sum.mul_add(old, block_sum * new);
                }
            }
        }
    }

    /// Divides by the sum of weights and writes the result.
    ///
    /// # Safety
    /// Nobody else touches the tile's part of `out`.
    #[inline(always)]
    unsafe fn finish(&mut self, out: SharedSlice<'_, f32>) {
        let width = self.width();
        for (number, row) in self.rows.clone().enumerate() {
            let visible = self.visible(row);
            for head in 0..self.group {
                let query = number * self.group + head;
                let query_head = self.kv_head * self.group + head;
                let place = (row * self.work.query_heads + query_head) * width;
                // SAFETY: promised by the caller.
                let out = unsafe { out.part(place..place + width) };
                if visible.is_empty() {
                    out.fill(0.0);
                    continue;
                }
                let (maximum, sum) = (self.totals[4 * query], self.totals[4 * query + 1]);
                let (factor, sum) = match self.work.sinks {
                    None => (1.0, sum),
                    Some(sinks) => {
                        let sink = sinks[query_head];
                        let both = larger(maximum, sink);
                        let factor = exp(maximum - both);
                        (factor, sum.mul_add(factor, exp(sink - both)))
                    }
                };
                for (out, &value) in out.iter_mut().zip(&self.sums[query * width..(query + 1) * width]) {
                    *out = value * factor / sum;
                }
            }
        }
    }
}

/// Cuts positions of a block at multiples of the cell tile.
#[inline(always)]
fn cut(span: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let tiles = span.start / CELL_TILE..span.end.div_ceil(CELL_TILE);
    tiles.map(move |tile| (tile * CELL_TILE).max(span.start)..((tile + 1) * CELL_TILE).min(span.end))
}
