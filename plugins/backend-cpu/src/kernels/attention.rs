//! Attention over a paged cache.
//!
//! The context is cut into blocks of 256 positions at fixed borders, and the blocks are gathered in spans
//! ([`spans`]). A block gives, for each query, its largest score m, l = Σ exp(s - m) and
//! a = Σ exp(s - m)·v. The blocks of a span are combined in ascending order, and then the spans are. So a result
//! depends only on its query and on the cells it sees: not on other rows, not on threads, not on how the cache was
//! filled. Threads may share the spans of one row ([`attention_span`], [`combine_spans`]).

use super::SharedSlice;
use super::kv::{BLOCK, KvPlane};
use super::lanes::larger;
use super::math::exp;
use crate::level::Level;
use core::ops::Range;

mod cells;
mod row_tile;
pub mod spans;
mod tiles;

use row_tile::Tile;
use spans::{span_blocks, span_of};

/// Rows that share converted cells.
const ROW_TILE: usize = 8;
/// Rows whose spans threads may share.
pub const MOST_SHARED_ROWS: usize = ROW_TILE;
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
