//! The products of attention over a few positions, for all queries of a tile at once.
//!
//! Keys are transposed first, so that a lane is a position: a score then needs no sum across lanes, and what is read of
//! the keys and values serves several queries. Each score has the order of addition of a dot product in sixteen lanes:
//! element `i` in partial sum `i % 16`, ascending, and the partial sums combined by one tree.

use super::CELL_TILE;
use crate::linear::lanes::{LANES, Lanes, Task};
use core::ops::Range;

/// Queries that share what is read of keys and values, at most.
const MOST_QUERIES: usize = 4;
/// Columns that a query's sums are kept in registers for, in vectors.
const VECTORS: usize = 4;

const _: () = assert!(CELL_TILE == LANES);

/// Where the queries of a tile begin in the tensor of queries: head `head` of row `row` at
/// `(row * heads + head) * width`, `group` heads a row, from `first_head` on.
#[derive(Clone, Copy)]
pub(super) struct Queries<'a> {
    pub values: &'a [f32],
    /// Elements of all heads of a row.
    pub row_width: usize,
    /// First element of the first head of the first row.
    pub first: usize,
    pub group: usize,
    pub width: usize,
}

impl<'a> Queries<'a> {
    #[inline(always)]
    pub(super) fn query(&self, number: usize) -> &'a [f32] {
        let start = self.first + number / self.group * self.row_width + number % self.group * self.width;
        &self.values[start..start + self.width]
    }
}

/// Scores of some queries at the positions of a tile of cells: q·k.
pub(super) struct ScoreTile<'a> {
    pub queries: Queries<'a>,
    /// Which of the queries.
    pub numbers: Range<usize>,
    /// Keys `[CELL_TILE][width]`, of which the first ones are wanted.
    pub keys: &'a [f32],
    /// Room for the keys transposed, `[width][CELL_TILE]`.
    pub transposed: &'a mut [f32],
    /// Scores, `row` of them for each query.
    pub scores: &'a mut [f32],
    pub row: usize,
    /// Where the tile's go in a query's.
    pub positions: Range<usize>,
}

impl Task for ScoreTile<'_> {
    #[inline(always)]
    unsafe fn run<L: Lanes>(self) {
        let width = self.queries.width;
        assert!(self.keys.len() >= CELL_TILE * width && self.transposed.len() >= CELL_TILE * width);
        assert!(self.positions.len() <= CELL_TILE && self.positions.end <= self.row);
        let whole = width / 4 * 4;
        for column in (0..whole).step_by(4) {
            // SAFETY: four columns of all keys, and four vectors of the room; the processor has the instructions of L.
            unsafe {
                let to = self.transposed.as_mut_ptr().add(column * CELL_TILE);
                L::transpose_four(self.keys.as_ptr().add(column), width, to);
            }
        }
        for column in whole..width {
            for key in 0..CELL_TILE {
                self.transposed[column * CELL_TILE + key] = self.keys[key * width + column];
            }
        }
        let mut number = self.numbers.start;
        while number < self.numbers.end {
            // SAFETY: the keys are transposed, and the processor has the instructions of L.
            unsafe {
                let left = self.numbers.end - number;
                if L::TILE > MOST_QUERIES && left >= MOST_QUERIES {
                    let scores = self.scores_of::<L, MOST_QUERIES>(number);
                    number = put::<L, MOST_QUERIES>(scores, number, self.scores, self.row, &self.positions);
                } else if left >= 2 {
                    let scores = self.scores_of::<L, 2>(number);
                    number = put::<L, 2>(scores, number, self.scores, self.row, &self.positions);
                } else {
                    let scores = self.scores_of::<L, 1>(number);
                    number = put::<L, 1>(scores, number, self.scores, self.row, &self.positions);
                }
            }
        }
    }
}

/// Stores the scores of `Q` queries from `number` on. Returns the number behind them.
///
/// # Safety
/// The processor has the instructions of `L`.
#[inline(always)]
unsafe fn put<L: Lanes, const Q: usize>(
    values: [L::Floats; Q],
    number: usize,
    scores: &mut [f32],
    row: usize,
    positions: &Range<usize>,
) -> usize {
    for (index, value) in values.into_iter().enumerate() {
        let start = (number + index) * row;
        let to = &mut scores[start + positions.start..start + positions.end];
        // SAFETY: a full vector where all of it is wanted, else into a place of its own.
        unsafe {
            if to.len() == LANES {
                L::store(value, to.as_mut_ptr());
            } else {
                let mut all = [0.0; LANES];
                L::store(value, all.as_mut_ptr());
                to.copy_from_slice(&all[..to.len()]);
            }
        }
    }
    number + Q
}

impl ScoreTile<'_> {
    /// Scores of `Q` queries from `number` on; a lane is a position.
    ///
    /// # Safety
    /// The processor has the instructions of `L`, and the keys are transposed.
    #[inline(always)]
    unsafe fn scores_of<L: Lanes, const Q: usize>(&self, number: usize) -> [L::Floats; Q] {
        let mut queries = [core::ptr::null::<f32>(); Q];
        for (index, query) in queries.iter_mut().enumerate() {
            *query = self.queries.query(number + index).as_ptr();
        }
        // SAFETY: queries and keys have `width` elements, and the caller promises the rest.
        unsafe {
            // The tree of sixteen partial sums, eight apart first, walked so that few are kept at a time.
            let zeros = [L::zero(); Q];
            let mut all = zeros;
            for a in 0..2 {
                let mut twos = zeros;
                for b in 0..2 {
                    let mut fours = zeros;
                    for c in 0..2 {
                        let eights = self.pair::<L, Q>(&queries, a + 2 * b + 4 * c);
                        fours = if c == 0 { eights } else { sums::<L, Q>(fours, eights) };
                    }
                    twos = if b == 0 { fours } else { sums::<L, Q>(twos, fours) };
                }
                all = if a == 0 { twos } else { sums::<L, Q>(all, twos) };
            }
            all
        }
    }

    /// Partial sums `lane` and `lane + 8`, added.
    ///
    /// # Safety
    /// As for [`ScoreTile::scores_of`].
    #[inline(always)]
    unsafe fn pair<L: Lanes, const Q: usize>(
        &self,
        queries: &[*const f32; Q],
        lane: usize,
    ) -> [L::Floats; Q] {
        let (width, keys) = (self.queries.width, self.transposed.as_ptr());
        // SAFETY: all elements are below the width.
        unsafe {
            let (mut low, mut high) = ([L::zero(); Q], [L::zero(); Q]);
            let mut element = lane;
            while element + 8 < width {
                let (key, key_8) =
                    (L::load(keys.add(element * CELL_TILE)), L::load(keys.add((element + 8) * CELL_TILE)));
                for q in 0..Q {
                    low[q] = L::fma(L::splat(*queries[q].add(element)), key, low[q]);
                    high[q] = L::fma(L::splat(*queries[q].add(element + 8)), key_8, high[q]);
                }
                element += LANES;
            }
            if element < width {
                let key = L::load(keys.add(element * CELL_TILE));
                for q in 0..Q {
                    low[q] = L::fma(L::splat(*queries[q].add(element)), key, low[q]);
                }
            }
            sums::<L, Q>(low, high)
        }
    }
}

/// # Safety
/// The processor has the instructions of `L`.
#[inline(always)]
unsafe fn sums<L: Lanes, const Q: usize>(mut a: [L::Floats; Q], b: [L::Floats; Q]) -> [L::Floats; Q] {
    for q in 0..Q {
        // SAFETY: as the caller promises.
        a[q] = unsafe { L::add(a[q], b[q]) };
    }
    a
}

/// sumsⱼ = fma(weight, valueⱼ, sumsⱼ) over consecutive positions, for some queries.
pub(super) struct WeighTile<'a> {
    /// Weights, `row` of them for each query.
    pub weights: &'a [f32],
    pub row: usize,
    /// Which of a query's weights, as many as there are values.
    pub positions: Range<usize>,
    /// Values `[positions][width]`.
    pub values: &'a [f32],
    /// Sums `[queries][width]`.
    pub sums: &'a mut [f32],
    pub width: usize,
    /// Which of the queries.
    pub numbers: Range<usize>,
}

impl Task for WeighTile<'_> {
    #[inline(always)]
    unsafe fn run<L: Lanes>(mut self) {
        assert!(self.values.len() == self.positions.len() * self.width && self.positions.end <= self.row);
        assert!(self.numbers.end * self.row <= self.weights.len());
        assert!(self.numbers.end * self.width <= self.sums.len());
        let mut number = self.numbers.start;
        while number < self.numbers.end {
            let left = self.numbers.end - number;
            // SAFETY: numbers and positions are inside of what was checked, and the processor has the instructions of L.
            unsafe {
                number += if L::TILE > MOST_QUERIES && left >= MOST_QUERIES {
                    self.add::<L, MOST_QUERIES>(number)
                } else if left >= 2 {
                    self.add::<L, 2>(number)
                } else {
                    self.add::<L, 1>(number)
                };
            }
        }
    }
}

impl WeighTile<'_> {
    /// Adds to the sums of `Q` queries from `number` on. Returns `Q`.
    ///
    /// # Safety
    /// The processor has the instructions of `L`, the queries exist, and the sizes are those that `run` checks.
    #[inline(always)]
    unsafe fn add<L: Lanes, const Q: usize>(&mut self, number: usize) -> usize {
        let mut column = 0;
        // SAFETY: as the caller promises; each step takes columns that are there.
        unsafe {
            while column + VECTORS * LANES <= self.width && L::TILE > MOST_QUERIES {
                self.columns::<L, Q, VECTORS>(number, column);
                column += VECTORS * LANES;
            }
            while column + 2 * LANES <= self.width {
                self.columns::<L, Q, 2>(number, column);
                column += 2 * LANES;
            }
            while column + LANES <= self.width {
                self.columns::<L, Q, 1>(number, column);
                column += LANES;
            }
        }
        for query in number..number + Q {
            let weights = &self.weights[query * self.row..][self.positions.clone()];
            for column in column..self.width {
                let mut sum = self.sums[query * self.width + column];
                for (&weight, value) in weights.iter().zip(self.values.chunks_exact(self.width)) {
                    sum = weight.mul_add(value[column], sum);
                }
                self.sums[query * self.width + column] = sum;
            }
        }
        Q
    }

    /// The same for `V` vectors of columns.
    ///
    /// # Safety
    /// As for [`WeighTile::add`]; the columns are there.
    #[inline(always)]
    unsafe fn columns<L: Lanes, const Q: usize, const V: usize>(&mut self, number: usize, column: usize) {
        let weights = self.weights.as_ptr().wrapping_add(number * self.row + self.positions.start);
        let to = self.sums.as_mut_ptr().wrapping_add(number * self.width + column);
        // SAFETY: as the caller promises.
        unsafe {
            let mut sums = [[L::zero(); V]; Q];
            for (q, sums) in sums.iter_mut().enumerate() {
                for (v, sum) in sums.iter_mut().enumerate() {
                    *sum = L::load(to.add(q * self.width + v * LANES));
                }
            }
            for position in 0..self.positions.len() {
                let from = self.values.as_ptr().add(position * self.width + column);
                let mut values = [L::zero(); V];
                for (v, value) in values.iter_mut().enumerate() {
                    *value = L::load(from.add(v * LANES));
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
                    L::store(sum, to.add(q * self.width + v * LANES));
                }
            }
        }
    }
}
