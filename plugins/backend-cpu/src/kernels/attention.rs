//! Attention over a paged cache.
//!
//! The context is cut into blocks of 256 positions at fixed borders, and the blocks are gathered in spans
//! ([`spans`]). A block gives, for each query, its largest score m, l = Σ exp(s - m) and
//! a = Σ exp(s - m)·v. The blocks of a span are combined in ascending order, and then the spans are. So a result
//! depends only on its query and on the cells it sees: not on other rows, not on threads, not on how the cache was
//! filled. Threads may share the spans of one row ([`attention_span`], [`combine_spans`]).

use super::SharedSlice;
use super::attention_math::weigh;
use super::kv::{BLOCK, CellFormat, KvPlane, cell_bytes, decode};
use super::lanes::larger;
use super::math::exp;
use crate::level::Level;
use crate::linear::lanes::{self, LANES, prefetch};
use core::ops::Range;

mod cells;
pub mod spans;
mod tiles;

use cells::{AHEAD, Cells, ScoreCells, WeighCells};
use tiles::{Queries, ScoreTile, WeighTile};

use spans::{span_blocks, span_of};

/// Rows that share converted cells.
const ROW_TILE: usize = 8;
/// Rows whose spans threads may share.
pub const MOST_SHARED_ROWS: usize = ROW_TILE;
/// Positions converted at a time: with 256 elements each they take 16 KiB, a part of the
/// first-level cache.
const CELL_TILE: usize = 16;
/// Positions at a time where cells are read as they lie.
const DIRECT_TILE: usize = 64;

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
    2 * CELL_TILE * width + queries * (BLOCK + 3 * width + 6)
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
    unsafe { attention_at(level, work, level, Target::Output(out), kv_head, rows, scratch) }
}

/// What one span gives for a query, as `[m, l, a...]`.
pub fn part_floats(width: usize) -> usize {
    2 + width
}

/// The part of one span of [`attention`], for all `rows`, at most [`MOST_SHARED_ROWS`]: to
/// `parts[spans][rows][query_heads][part_floats]`, of which a query that sees nothing of the span leaves its own as it
/// was.
///
/// # Safety
/// As for [`attention`].
pub unsafe fn attention_span(
    level: Level,
    work: &Attention<'_>,
    parts: SharedSlice<'_, f32>,
    kv_head: usize,
    span: usize,
    scratch: &mut [f32],
) {
    let rows = work.begin.len();
    assert!(rows <= MOST_SHARED_ROWS);
    // SAFETY: the caller's contract is passed on.
    unsafe { attention_at(level, work, level, Target::Part { parts, span }, kv_head, 0..rows, scratch) }
}

per_level! {
    /// Combines the parts that [`attention_span`] wrote for all spans that a row sees, to the bits of [`attention`].
    /// The work range is one KV head with the query heads that read it. `scratch` has the width of the planes.
    pub fn combine_spans = combine_spans_body(
        work: &Attention<'_>,
        parts: &[f32],
        out: SharedSlice<'_, f32>,
        kv_head: usize,
        scratch: &mut [f32],
    )
}

#[inline(always)]
unsafe fn combine_spans_body(
    work: &Attention<'_>,
    parts: &[f32],
    out: SharedSlice<'_, f32>,
    kv_head: usize,
    scratch: &mut [f32],
) {
    let (width, rows) = (work.keys.width, work.begin.len());
    let group = work.query_heads / work.keys.heads;
    let size = part_floats(width);
    for row in 0..rows {
        let visible = work.visible(row);
        for query_head in kv_head * group..(kv_head + 1) * group {
            let query = row * work.query_heads + query_head;
            // SAFETY: these rows and heads of `out` belong to the caller's work range.
            let out = unsafe { out.part(query * width..(query + 1) * width) };
            if visible.is_empty() {
                out.fill(0.0);
                continue;
            }
            let sums = &mut scratch[..width];
            let mut total = (0.0, 0.0);
            let first = span_of(visible.start / BLOCK);
            for span in first..=span_of((visible.end - 1) / BLOCK) {
                let part = &parts[(span * rows * work.query_heads + query) * size..][..size];
                let of_span = (part[0], part[1]);
                total = if span == first {
                    sums.copy_from_slice(&part[2..]);
                    of_span
                } else {
                    merge(total, sums, of_span, &part[2..])
                };
            }
            work.finish(query_head, total, sums, out);
        }
    }
}

/// Combines (m, l) and a of what comes later with those of what came before, which `sums` holds; returns the new m
/// and l.
#[inline(always)]
fn merge(before: (f32, f32), sums: &mut [f32], later: (f32, f32), later_sums: &[f32]) -> (f32, f32) {
    let maximum = larger(before.0, later.0);
    let old = exp(before.0 - maximum);
    let new = exp(later.0 - maximum);
    for (sum, &later) in sums.iter_mut().zip(later_sums) {
        *sum = sum.mul_add(old, later * new);
    }
    (maximum, before.1.mul_add(old, later.1 * new))
}

impl Attention<'_> {
    /// Logical positions that a row sees.
    #[inline(always)]
    fn visible(&self, row: usize) -> Range<usize> {
        let end = self.end[row].max(0) as usize;
        (self.begin[row].max(0) as usize).min(end)..end
    }

    /// Divides by the sum of weights, the sink's included, and writes the result of a query.
    #[inline(always)]
    fn finish(&self, query_head: usize, (maximum, sum): (f32, f32), sums: &[f32], out: &mut [f32]) {
        let (factor, sum) = match self.sinks {
            None => (1.0, sum),
            Some(sinks) => {
                let sink = sinks[query_head];
                let both = larger(maximum, sink);
                let factor = exp(maximum - both);
                (factor, sum.mul_add(factor, exp(sink - both)))
            }
        };
        for (out, &value) in out.iter_mut().zip(sums) {
            *out = value * factor / sum;
        }
    }
}

/// Where a call's results go.
#[derive(Clone, Copy)]
enum Target<'a> {
    /// The output, after all spans.
    Output(SharedSlice<'a, f32>),
    /// The parts, of one span.
    Part { parts: SharedSlice<'a, f32>, span: usize },
}

per_level! {
    /// [`attention`], with the level handed down to where cells are converted.
    fn attention_at = attention_body(
        work: &Attention<'_>,
        conversion: Level,
        target: Target<'_>,
        kv_head: usize,
        rows: Range<usize>,
        scratch: &mut [f32],
    )
}

#[inline(always)]
unsafe fn attention_body(
    work: &Attention<'_>,
    conversion: Level,
    target: Target<'_>,
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
        let seen = tile.all_blocks();
        let spans = match target {
            Target::Part { span, .. } => span..span + 1,
            Target::Output(_) if seen.is_empty() => 0..0,
            Target::Output(_) => span_of(seen.start)..span_of(seen.end - 1) + 1,
        };
        let first = span_blocks(spans.start).start.max(seen.start);
        if !spans.is_empty() && first < seen.end {
            tile.fetch_first(first);
        }
        for span in spans {
            let blocks = span_blocks(span);
            for block in blocks.start.max(seen.start)..blocks.end.min(seen.end) {
                // SAFETY: nobody writes visible cells.
                unsafe {
                    tile.score_block(block);
                    tile.weigh_scores(block);
                    tile.sum_values(block);
                }
                tile.combine(block, &blocks);
            }
            match target {
                Target::Output(_) => tile.combine_span(span),
                // SAFETY: these rows and heads of the span's parts belong to the caller's work range.
                Target::Part { parts, .. } => unsafe { tile.write_part(span, parts) },
            }
        }
        if let Target::Output(out) = target {
            // SAFETY: these rows and heads of `out` belong to the caller's work range.
            unsafe { tile.finish(out) };
        }
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

    /// Fetches the beginning of the first keys.
    #[inline(always)]
    fn fetch_first(&self, block: usize) {
        let place = self.place(&self.work.keys, block);
        for line in (0..AHEAD).step_by(64) {
            prefetch(place.wrapping_add(line));
        }
    }

    /// q·k for every query and every position of the span.
    ///
    /// # Safety
    /// Nobody writes visible cells.
    #[inline(always)]
    unsafe fn score_block(&mut self, block: usize) {
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
    fn weigh_scores(&mut self, block: usize) {
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
    unsafe fn sum_values(&mut self, block: usize) {
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
    fn combine(&mut self, block: usize, blocks: &Range<usize>) {
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
    fn combine_span(&mut self, span: usize) {
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
    unsafe fn write_part(&mut self, span: usize, parts: SharedSlice<'_, f32>) {
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
