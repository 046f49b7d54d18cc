//! Some rows with the query heads of one KV head, block after block.

use super::cells::{AHEAD, Cells, ScoreCells, WeighCells};
use super::spans::{span_blocks, span_of};
use super::tiles::{Queries, ScoreTile, WeighTile};
use super::{Attention, CELL_TILE, merge, part_floats};
use crate::kernels::SharedSlice;
use crate::kernels::attention_math::weigh;
use crate::kernels::kv::{BLOCK, CellFormat, KvPlane, cell_bytes, decode};
use crate::level::Level;
use crate::linear::lanes::{self, LANES, prefetch};
use core::ops::Range;

/// Positions at a time where cells are read as they lie.
const DIRECT_TILE: usize = 64;

/// Some rows with the query heads of one KV head. A query is one head of one row.
pub(super) struct Tile<'a> {
    work: &'a Attention<'a>,
    conversion: Level,
    kv_head: usize,
    group: usize,
    rows: Range<usize>,
    /// Converted cells `[CELL_TILE][width]`.
    cells: &'a mut [f32],
    /// Converted keys, transposed `[width][CELL_TILE]`.
    transposed: &'a mut [f32],
    /// Scores, then weights, of the current block `[queries][BLOCK]`.
    scores: &'a mut [f32],
    /// a of the current block `[queries][width]`.
    block_sums: &'a mut [f32],
    /// a of the current span's blocks so far `[queries][width]`.
    span_sums: &'a mut [f32],
    /// a of all spans so far `[queries][width]`.
    sums: &'a mut [f32],
    /// m and l of all spans so far, of the current span so far, and of the current block `[queries][6]`.
    totals: &'a mut [f32],
}

impl<'a> Tile<'a> {
    #[inline(always)]
    pub(super) fn new(
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
        let (transposed, rest) = rest.split_at_mut(CELL_TILE * width);
        let (scores, rest) = rest.split_at_mut(queries * BLOCK);
        let (block_sums, rest) = rest.split_at_mut(queries * width);
        let (span_sums, rest) = rest.split_at_mut(queries * width);
        let (sums, rest) = rest.split_at_mut(queries * width);
        Self {
            work,
            conversion,
            kv_head,
            group,
            rows,
            cells,
            transposed,
            scores,
            block_sums,
            span_sums,
            sums,
            totals: &mut rest[..6 * queries],
        }
    }

    #[inline(always)]
    fn width(&self) -> usize {
        self.work.keys.width
    }

    /// Logical positions that a row sees.
    #[inline(always)]
    fn visible(&self, row: usize) -> Range<usize> {
        self.work.visible(row)
    }

    /// Those of them in `block`, counted from its start.
    #[inline(always)]
    fn visible_in(&self, row: usize, block: usize) -> Range<usize> {
        let visible = self.visible(row);
        let start = block * BLOCK;
        let clamp = |position: usize| position.clamp(start, start + BLOCK) - start;
        clamp(visible.start)..clamp(visible.end)
    }

    /// Those of `positions` in `block` that a row sees.
    #[inline(always)]
    fn seen_of(&self, row: usize, block: usize, positions: &Range<usize>) -> Range<usize> {
        let visible = self.visible_in(row, block);
        visible.start.max(positions.start)..visible.end.min(positions.end)
    }

    /// Blocks with a position that some row sees, and those between them.
    #[inline(always)]
    pub(super) fn all_blocks(&self) -> Range<usize> {
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

    /// Bytes of a part of `block`.
    ///
    /// # Safety
    /// Nobody writes them.
    #[inline(always)]
    unsafe fn bytes(&self, plane: &KvPlane<'a>, block: usize, positions: Range<usize>) -> &'a [u8] {
        let Ok(physical) = usize::try_from(self.work.blocks[block]) else {
            panic!("a visible position lies in a block that the table lacks");
        };
        // SAFETY: promised by the caller.
        unsafe { plane.bytes.read(plane.cells(physical, self.kv_head, positions)) }
    }

    /// Converts the cells of a part of `block` that lies in one cell tile.
    ///
    /// # Safety
    /// Nobody writes them.
    #[inline(always)]
    unsafe fn load(&mut self, plane: &KvPlane<'a>, block: usize, positions: Range<usize>) {
        let count = positions.len() * self.width();
        // SAFETY: promised by the caller.
        let bytes = unsafe { self.bytes(plane, block, positions) };
        decode(self.conversion, plane.format, bytes, &mut self.cells[..count]);
    }

    /// Whether the level reads cells of this format as they lie.
    #[inline(always)]
    fn reads_directly(&self, plane: &KvPlane<'_>) -> bool {
        matches!(plane.format, CellFormat::F16 | CellFormat::F32)
            && self.conversion.usable() == Level::Avx512Vnni
            && self.width().is_multiple_of(LANES)
    }

    /// The cells at `positions` of a block of which those of `span` are read, and then what lies at `then`.
    ///
    /// # Safety
    /// As for [`Tile::load`]; the level reads them directly.
    #[inline(always)]
    unsafe fn direct(
        &self,
        plane: &KvPlane<'a>,
        block: usize,
        positions: &Range<usize>,
        span: &Range<usize>,
        then: *const u8,
    ) -> Cells<'a> {
        Cells {
            // SAFETY: promised by the caller.
            bytes: unsafe { self.bytes(plane, block, positions.clone()) },
            halves: plane.format == CellFormat::F16,
            width: plane.width,
            left: (span.end - positions.start) * cell_bytes(plane.format, plane.width),
            then,
        }
    }

    /// Where the first visible cell of a block lies, to be fetched.
    #[inline(always)]
    fn place(&self, plane: &KvPlane<'_>, block: usize) -> *const u8 {
        let physical = self.work.blocks.get(block).and_then(|&physical| usize::try_from(physical).ok());
        match physical {
            Some(physical) => {
                let cells = plane.cells(physical, self.kv_head, self.span(block));
                plane.bytes.pointer(0).cast_const().wrapping_add(cells.start)
            }
            None => core::ptr::null(),
        }
    }

    /// Fetches the beginning of the first keys, where the level reads them as they lie.
    #[inline(always)]
    pub(super) fn fetch_first(&self, block: usize) {
        let keys = &self.work.keys;
        if !self.reads_directly(keys) {
            return;
        }
        let (place, seen) = (self.place(keys, block), self.span(block).len());
        for line in (0..AHEAD.min(seen * cell_bytes(keys.format, keys.width))).step_by(64) {
            prefetch(place.wrapping_add(line));
        }
    }

    /// q·k for every query and every position of the span.
    ///
    /// # Safety
    /// Nobody writes visible cells.
    #[inline(always)]
    pub(super) unsafe fn score_block(&mut self, block: usize) {
        let width = self.width();
        let row_width = self.work.query_heads * width;
        let queries = Queries {
            values: self.work.query,
            row_width,
            first: self.rows.start * row_width + self.kv_head * self.group * width,
            group: self.group,
            width,
        };
        let (keys, span) = (&self.work.keys, self.span(block));
        let is_direct = self.reads_directly(keys);
        let values = self.place(&self.work.values, block);
        for positions in cut(&span, if is_direct { DIRECT_TILE } else { CELL_TILE }) {
            // Rows between two that see the tile may not see it; their scores there are never read.
            let sees = |&row: &usize| !self.seen_of(row, block, &positions).is_empty();
            let first = self.rows.clone().find(sees).unwrap_or(self.rows.end);
            let end = self.rows.clone().rev().find(sees).map_or(first, |row| row + 1);
            let numbers = (first - self.rows.start) * self.group..(end - self.rows.start) * self.group;
            if is_direct {
                // SAFETY: promised by the caller.
                let keys = unsafe { self.direct(keys, block, &positions, &span, values) };
                let (scores, position) = (&mut *self.scores, positions.start);
                let task = ScoreCells { queries, numbers, keys, scores, row: BLOCK, position };
                lanes::run(self.conversion, task);
                continue;
            }
            // SAFETY: promised by the caller.
            unsafe { self.load(keys, block, positions.clone()) };
            lanes::run(
                self.conversion,
                ScoreTile {
                    queries,
                    numbers,
                    keys: self.cells,
                    transposed: self.transposed,
                    scores: self.scores,
                    row: BLOCK,
                    positions,
                },
            );
        }
    }

    /// Scores to exp(s - m), with m and l.
    #[inline(always)]
    pub(super) fn weigh_scores(&mut self, block: usize) {
        for (number, row) in self.rows.clone().enumerate() {
            let visible = self.visible_in(row, block);
            if visible.is_empty() {
                continue;
            }
            for query in number * self.group..(number + 1) * self.group {
                let scores = &mut self.scores[query * BLOCK..(query + 1) * BLOCK];
                let (maximum, sum) = weigh(scores, visible.clone(), self.work.scale, self.work.cap);
                self.totals[6 * query + 4] = maximum;
                self.totals[6 * query + 5] = sum;
            }
        }
    }

    /// Σ exp(s - m)·v, positions ascending.
    ///
    /// # Safety
    /// Nobody writes visible cells.
    #[inline(always)]
    pub(super) unsafe fn sum_values(&mut self, block: usize) {
        let width = self.width();
        self.block_sums.fill(0.0);
        let (plane, span) = (&self.work.values, self.span(block));
        let is_direct = self.reads_directly(plane);
        let next = self.place(&self.work.keys, block + 1);
        for positions in cut(&span, if is_direct { DIRECT_TILE } else { CELL_TILE }) {
            if !is_direct {
                // SAFETY: promised by the caller.
                unsafe { self.load(plane, block, positions.clone()) };
            }
            // Only what a row sees: other cells may hold anything. Neighbours that see the same go together.
            let mut row = self.rows.start;
            let mut fetches = true;
            while row < self.rows.end {
                let seen_here = self.seen_of(row, block, &positions);
                let first = row;
                while row < self.rows.end && self.seen_of(row, block, &positions) == seen_here {
                    row += 1;
                }
                if seen_here.is_empty() {
                    continue;
                }
                let numbers = (first - self.rows.start) * self.group..(row - self.rows.start) * self.group;
                if is_direct {
                    // SAFETY: promised by the caller.
                    let values = unsafe { self.direct(plane, block, &seen_here, &span, next) };
                    let (weights, sums, position) = (&*self.scores, &mut *self.block_sums, seen_here.start);
                    let task = WeighCells { weights, row: BLOCK, position, values, sums, numbers, fetches };
                    lanes::run(self.conversion, task);
                    fetches = false;
                    continue;
                }
                let (from, to) = (seen_here.start - positions.start, seen_here.end - positions.start);
                lanes::run(
                    self.conversion,
                    WeighTile {
                        weights: self.scores,
                        row: BLOCK,
                        positions: seen_here,
                        values: &self.cells[from * width..to * width],
                        sums: self.block_sums,
                        width,
                        numbers,
                    },
                );
            }
        }
    }

    /// Adds the current block to the span, which has `blocks`, for each query that sees some of it.
    #[inline(always)]
    pub(super) fn combine(&mut self, block: usize, blocks: &Range<usize>) {
        let width = self.width();
        for (number, row) in self.rows.clone().enumerate() {
            if self.visible_in(row, block).is_empty() {
                continue;
            }
            let first = (self.visible(row).start / BLOCK).max(blocks.start) == block;
            for query in number * self.group..(number + 1) * self.group {
                let totals = &mut self.totals[6 * query..6 * query + 6];
                let columns = query * width..(query + 1) * width;
                let (sums, block_sums) = (&mut self.span_sums[columns.clone()], &self.block_sums[columns]);
                let of_block = (totals[4], totals[5]);
                (totals[2], totals[3]) = if first {
                    sums.copy_from_slice(block_sums);
                    of_block
                } else {
                    merge((totals[2], totals[3]), sums, of_block, block_sums)
                };
            }
        }
    }

    /// Whether a row sees something of a span, and whether that is the first such span.
    #[inline(always)]
    fn sees(&self, row: usize, span: usize) -> (bool, bool) {
        let visible = self.visible(row);
        let blocks = span_blocks(span);
        let sees =
            visible.start < blocks.end * BLOCK && visible.end > blocks.start * BLOCK && !visible.is_empty();
        (sees, span_of(visible.start / BLOCK) == span)
    }

    /// Adds the current span to the total of each query that sees some of it.
    #[inline(always)]
    pub(super) fn combine_span(&mut self, span: usize) {
        let width = self.width();
        for (number, row) in self.rows.clone().enumerate() {
            let (sees, first) = self.sees(row, span);
            if !sees {
                continue;
            }
            for query in number * self.group..(number + 1) * self.group {
                let totals = &mut self.totals[6 * query..6 * query + 6];
                let columns = query * width..(query + 1) * width;
                let (sums, span_sums) = (&mut self.sums[columns.clone()], &self.span_sums[columns]);
                let of_span = (totals[2], totals[3]);
                (totals[0], totals[1]) = if first {
                    sums.copy_from_slice(span_sums);
                    of_span
                } else {
                    merge((totals[0], totals[1]), sums, of_span, span_sums)
                };
            }
        }
    }

    /// Writes what the current span gave.
    ///
    /// # Safety
    /// Nobody else touches the tile's parts of the span.
    #[inline(always)]
    pub(super) unsafe fn write_part(&mut self, span: usize, parts: SharedSlice<'_, f32>) {
        let (width, all_rows) = (self.width(), self.work.begin.len());
        let size = part_floats(width);
        for (number, row) in self.rows.clone().enumerate() {
            if !self.sees(row, span).0 {
                continue;
            }
            for head in 0..self.group {
                let query = number * self.group + head;
                let query_head = self.kv_head * self.group + head;
                let place = ((span * all_rows + row) * self.work.query_heads + query_head) * size;
                // SAFETY: promised by the caller.
                let part = unsafe { parts.part(place..place + size) };
                part[..2].copy_from_slice(&self.totals[6 * query + 2..6 * query + 4]);
                part[2..].copy_from_slice(&self.span_sums[query * width..(query + 1) * width]);
            }
        }
    }

    /// Divides by the sum of weights and writes the result.
    ///
    /// # Safety
    /// Nobody else touches the tile's part of `out`.
    #[inline(always)]
    pub(super) unsafe fn finish(&mut self, out: SharedSlice<'_, f32>) {
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
                let total = (self.totals[6 * query], self.totals[6 * query + 1]);
                self.work.finish(query_head, total, &self.sums[query * width..(query + 1) * width], out);
            }
        }
    }
}

/// Cuts positions of a block at multiples of `size`.
#[inline(always)]
fn cut(span: &Range<usize>, size: usize) -> impl Iterator<Item = Range<usize>> + use<> {
    let span = span.clone();
    let tiles = span.start / size..span.end.div_ceil(size);
    tiles.map(move |tile| (tile * size).max(span.start)..((tile + 1) * size).min(span.end))
}
