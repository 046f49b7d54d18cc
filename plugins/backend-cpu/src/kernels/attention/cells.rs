//! The products of attention over cells as they lie in the cache, for levels with registers enough for sixteen sums.
//!
//! Sixteen scores are made together, of some queries and some keys, each with its sixteen partial sums in one vector;
//! these vectors are then folded into one, which takes four instructions a score. So keys need no transposing, and
//! cells of f16 become f32 on their way into a register. The order of addition is that of [`super::tiles`].

use super::tiles::Queries;
use crate::linear::lanes::{LANES, Lanes, Task, prefetch};
use core::ops::Range;

/// Bytes that are fetched ahead.
pub(super) const AHEAD: usize = 8 * 1024;
/// Bytes of a line of the caches.
const LINE: usize = 64;
/// Queries that share what is read of cells, at most.
const MOST_QUERIES: usize = 4;
/// Columns that a query's sums are kept in registers for, in vectors.
const VECTORS: usize = 4;

/// Consecutive cells of one head, of f16 or f32.
#[derive(Clone, Copy)]
pub(super) struct Cells<'a> {
    pub bytes: &'a [u8],
    pub halves: bool,
    /// Elements of a cell, a multiple of sixteen.
    pub width: usize,
    /// Bytes from the first of these cells to where others go on at `then`, for what is fetched ahead.
    pub left: usize,
    pub then: *const u8,
}

impl Cells<'_> {
    fn cell_bytes(&self) -> usize {
        self.width * if self.halves { 2 } else { 4 }
    }

    fn count(&self) -> usize {
        self.bytes.len() / self.cell_bytes()
    }

    /// Fetches what lies [`AHEAD`] of a part of these cells.
    #[inline(always)]
    fn fetch_ahead(&self, start: usize, bytes: usize) {
        let ahead = start + AHEAD;
        let place = if ahead < self.left {
            self.bytes.as_ptr().wrapping_add(ahead)
        } else {
            self.then.wrapping_add(ahead - self.left)
        };
        for line in (0..bytes).step_by(LINE) {
            prefetch(place.wrapping_add(line));
        }
    }

    /// Sixteen elements from `element` on of the cell at `cell`.
    ///
    /// # Safety
    /// They are there, `HALVES` is `halves`, and the processor has the instructions of `L`.
    #[inline(always)]
    unsafe fn load<L: Lanes, const HALVES: bool>(cell: *const u8, element: usize) -> L::Floats {
        // SAFETY: as the caller promises.
        unsafe {
            if HALVES { L::load_f16(cell.add(2 * element)) } else { L::load(cell.add(4 * element).cast()) }
        }
    }
}

/// Scores of some queries at consecutive positions: q·k.
pub(super) struct ScoreCells<'a> {
    pub queries: Queries<'a>,
    /// Which of the queries.
    pub numbers: Range<usize>,
    pub keys: Cells<'a>,
    /// Scores, `row` of them for each query.
    pub scores: &'a mut [f32],
    pub row: usize,
    /// Where the first key's go in a query's.
    pub position: usize,
}

impl Task for ScoreCells<'_> {
    #[inline(always)]
    unsafe fn run<L: Lanes>(mut self) {
        assert!(self.keys.width == self.queries.width && self.keys.width.is_multiple_of(LANES));
        assert!(self.position + self.keys.count() <= self.row);
        assert!(self.numbers.end * self.row <= self.scores.len());
        // SAFETY: the processor has the instructions of L.
        unsafe { if self.keys.halves { self.all::<L, true>() } else { self.all::<L, false>() } }
    }
}

impl ScoreCells<'_> {
    /// # Safety
    /// The processor has the instructions of `L`, and `HALVES` is that of the keys.
    #[inline(always)]
    unsafe fn all<L: Lanes, const HALVES: bool>(&mut self) {
        let mut number = self.numbers.start;
        while number < self.numbers.end {
            // SAFETY: these queries exist; the rest is the caller's promise.
            number += unsafe {
                match self.numbers.end - number {
                    MOST_QUERIES.. => {
                        self.of_queries::<L, HALVES, MOST_QUERIES, { LANES / MOST_QUERIES }>(number)
                    }
                    2.. => self.of_queries::<L, HALVES, 2, { LANES / 2 }>(number),
                    _ => self.of_queries::<L, HALVES, 1, LANES>(number),
                }
            };
        }
    }

    /// `Q` queries, `K` keys at a time. Returns `Q`.
    ///
    /// # Safety
    /// As for [`ScoreCells::all`]; the queries are there.
    #[inline(always)]
    unsafe fn of_queries<L: Lanes, const HALVES: bool, const Q: usize, const K: usize>(
        &mut self,
        number: usize,
    ) -> usize {
        let (width, cell, count) = (self.keys.width, self.keys.cell_bytes(), self.keys.count());
        let mut queries = [core::ptr::null::<f32>(); Q];
        for (index, query) in queries.iter_mut().enumerate() {
            *query = self.queries.query(number + index).as_ptr();
        }
        let to = self.scores.as_mut_ptr().wrapping_add(number * self.row + self.position);
        let fetches = number == self.numbers.start;
        let whole = count / K * K;
        for first in (0..whole).step_by(K) {
            let key = self.keys.bytes.as_ptr().wrapping_add(first * cell);
            // SAFETY: queries and keys have `width` elements, and scores have room for `count` from `to` on.
            unsafe {
                if fetches {
                    self.keys.fetch_ahead(first * cell, K * cell);
                }
                let keys: [*const u8; K] = places(key, cell, K);
                let mut scores = [0.0f32; LANES];
                L::store(sixteen::<L, HALVES, Q, K>(&queries, &keys, width), scores.as_mut_ptr());
                for q in 0..Q {
                    core::ptr::copy_nonoverlapping(
                        scores.as_ptr().add(q * K),
                        to.add(q * self.row + first),
                        K,
                    );
                }
            }
        }
        if whole < count {
            let key = self.keys.bytes.as_ptr().wrapping_add(whole * cell);
            // SAFETY: as above; behind the last key it stands in once more, and its scores go nowhere.
            unsafe {
                let keys: [*const u8; K] = places(key, cell, count - whole);
                let mut scores = [0.0f32; LANES];
                L::store(sixteen::<L, HALVES, Q, K>(&queries, &keys, width), scores.as_mut_ptr());
                for q in 0..Q {
                    for index in whole..count {
                        *to.add(q * self.row + index) = scores[q * K + index - whole];
                    }
                }
            }
        }
        Q
    }
}

/// Where `K` keys lie, of which there are only `count`: the last one stands in for the others.
#[inline(always)]
fn places<const K: usize>(first: *const u8, cell: usize, count: usize) -> [*const u8; K] {
    let mut places = [first; K];
    for (index, place) in places.iter_mut().enumerate() {
        *place = first.wrapping_add(index.min(count - 1) * cell);
    }
    places
}

/// Sixteen scores, of `Q` queries with `K` keys each, of `width` elements.
///
/// # Safety
/// Queries and keys are readable, the width is a multiple of sixteen, the keys are what `HALVES` says, and the processor
/// has the instructions of `L`.
#[inline(always)]
unsafe fn sixteen<L: Lanes, const HALVES: bool, const Q: usize, const K: usize>(
    queries: &[*const f32; Q],
    keys: &[*const u8; K],
    width: usize,
) -> L::Floats {
    // SAFETY: as the caller promises.
    unsafe {
        let mut sums = [L::zero(); LANES];
        for element in (0..width).step_by(LANES) {
            let mut query = [L::zero(); Q];
            for q in 0..Q {
                query[q] = L::load(queries[q].add(element));
            }
            for k in 0..K {
                let key = Cells::load::<L, HALVES>(keys[k], element);
                for q in 0..Q {
                    sums[q * K + k] = L::fma(query[q], key, sums[q * K + k]);
                }
            }
        }
        L::sum_each(sums)
    }
}

/// sumsⱼ = fma(weight, valueⱼ, sumsⱼ) over consecutive positions, for some queries.
pub(super) struct WeighCells<'a> {
    /// Weights, `row` of them for each query.
    pub weights: &'a [f32],
    pub row: usize,
    /// Which of a query's weights is the first value's.
    pub position: usize,
    pub values: Cells<'a>,
    /// Sums `[queries][width]`.
    pub sums: &'a mut [f32],
    /// Which of the queries.
    pub numbers: Range<usize>,
    /// Whether the values that lie ahead are fetched.
    pub fetches: bool,
}

impl Task for WeighCells<'_> {
    #[inline(always)]
    unsafe fn run<L: Lanes>(mut self) {
        assert!(self.values.width.is_multiple_of(LANES) && self.position + self.values.count() <= self.row);
        assert!(self.numbers.end * self.row <= self.weights.len());
        assert!(self.numbers.end * self.values.width <= self.sums.len());
        // SAFETY: the processor has the instructions of L.
        unsafe { if self.values.halves { self.all::<L, true>() } else { self.all::<L, false>() } }
    }
}

impl WeighCells<'_> {
    /// # Safety
    /// The processor has the instructions of `L`, and `HALVES` is that of the values.
    #[inline(always)]
    unsafe fn all<L: Lanes, const HALVES: bool>(&mut self) {
        let mut number = self.numbers.start;
        while number < self.numbers.end {
            // SAFETY: these queries exist; the rest is the caller's promise.
            number += unsafe {
                match self.numbers.end - number {
                    MOST_QUERIES.. => self.of_queries::<L, HALVES, MOST_QUERIES>(number),
                    2.. => self.of_queries::<L, HALVES, 2>(number),
                    _ => self.of_queries::<L, HALVES, 1>(number),
                }
            };
        }
    }

    /// `Q` queries. Returns `Q`.
    ///
    /// # Safety
    /// As for [`WeighCells::all`]; the queries are there.
    #[inline(always)]
    unsafe fn of_queries<L: Lanes, const HALVES: bool, const Q: usize>(&mut self, number: usize) -> usize {
        let width = self.values.width;
        let mut column = 0;
        // SAFETY: as the caller promises; each step takes columns that are there.
        unsafe {
            while column + VECTORS * LANES <= width {
                self.columns::<L, HALVES, Q, VECTORS>(number, column);
                column += VECTORS * LANES;
            }
            while column < width {
                self.columns::<L, HALVES, Q, 1>(number, column);
                column += LANES;
            }
        }
        Q
    }

    /// The same for `V` vectors of columns.
    ///
    /// # Safety
    /// As for [`WeighCells::all`]; queries and columns are there.
    #[inline(always)]
    unsafe fn columns<L: Lanes, const HALVES: bool, const Q: usize, const V: usize>(
        &mut self,
        number: usize,
        column: usize,
    ) {
        let (width, cell, count) = (self.values.width, self.values.cell_bytes(), self.values.count());
        let fetches = self.fetches && number == self.numbers.start;
        let weights = self.weights.as_ptr().wrapping_add(number * self.row + self.position);
        let to = self.sums.as_mut_ptr().wrapping_add(number * width + column);
        // SAFETY: as the caller promises.
        unsafe {
            let mut sums = [[L::zero(); V]; Q];
            for (q, sums) in sums.iter_mut().enumerate() {
                for (v, sum) in sums.iter_mut().enumerate() {
                    *sum = L::load(to.add(q * width + v * LANES));
                }
            }
            for position in 0..count {
                if fetches {
                    let (element, bytes) = if HALVES { (2, 2 * V * LANES) } else { (4, 4 * V * LANES) };
                    self.values.fetch_ahead(position * cell + element * column, bytes);
                }
                let from = self.values.bytes.as_ptr().add(position * cell);
                let mut values = [L::zero(); V];
                for (v, value) in values.iter_mut().enumerate() {
                    *value = Cells::load::<L, HALVES>(from, column + v * LANES);
                }
                for (q, sums) in sums.iter_mut().enumerate() {
                    let weight = L::splat(*weights.add(q * self.row + position));
                    for (sum, &value) in sums.iter_mut().zip(&values) {
                        *sum = L::fma(weight, value, *sum);
                    }
                }
            }
            for (q, sums) in sums.into_iter().enumerate() {
                for (v, sum) in sums.into_iter().enumerate() {
                    L::store(sum, to.add(q * width + v * LANES));
                }
            }
        }
    }
}
