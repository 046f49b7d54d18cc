//! Mixtures of experts: choosing (`route/1`), and the products of what was chosen (`experts/1`).
//!
//! An *assignment* is one choice of one row: row · chosen + place. Products work on *tiles*: up to `tile` assignments of
//! one expert, whose intermediate rows lie at *positions* tile · `tile` + 0, 1, … Where there is but one row, every
//! assignment is a tile of its own, and kernels read the ids themselves. Else [`ExpertsGroup`] makes a list of tiles
//! first, so that an expert's weights are read once for the rows that share it. An id out of range is in no tile.
//!
//! In order: [`ExpertsGroup`] and [`ExpertsGather`] for more than one row, [`ExpertsLinear`] (gate and up),
//! [`ExpertsGate`], [`ExpertsLinear`] (down), [`ExpertsCombine`], alone or with the norm behind it ([`ExpertsNorm`]).
//!
//! **Numerics.** A product of a row has the bits that [`super::linear`] says, whatever tile it is in. The weighted sum of
//! a row starts at 0 and takes its assignments in ascending order by `sum = fma(y, weight, sum)`; then what is added
//! follows, one after the other. A result that is NaN is the quiet NaN `0x7fc00000`.
//!
//! A *list* is made of u32: the number of tiles and three unused words; the expert of each tile, and how many rows each
//! has; the assignment at each position; the position of each assignment, or all ones where its expert does not exist.
//! Assignments of an expert are in no particular order.

use super::fused::NormQuantize;
use super::linear::{FLOAT_OUTPUTS, FLOAT_ROWS, LINEAR_THREADS, WIDE_OUTPUTS, entries};
use super::norms::SHORT;
use super::{Field, Launch, View};
use crate::layout::WeightKind;

parameters! {
    /// The k largest logits of each row in descending order, the lowest index first among equals and NaN last, and their
    /// weights: with p the softmax of the row, summed in lanes, or the sigmoid of each logit, p_j, divided by the sum of
    /// the chosen p in their order if `normalize` says so, times `factor`.
    pub struct Route {
        /// Logits `[rows][width]`, dense.
        pub x: u64,
        /// i32 `[rows][k]`.
        pub ids: u64,
        /// f32 `[rows][k]`.
        pub weights: u64,
        /// Address of the live count.
        pub live: u64,
        /// Rows.
        pub rows: u32,
        /// Logits of a row, at most [`MOST_EXPERTS`].
        pub width: u32,
        /// How many are chosen.
        pub k: u32,
        /// 1: the sigmoid of each logit; 0: the softmax of all.
        pub sigmoid: u32,
        /// 1: weights are divided by the sum of the chosen.
        pub normalize: u32,
        /// Factor of the weights.
        pub factor: f32,
    }

    /// Makes a list of tiles.
    pub struct ExpertsGroup {
        /// Chosen experts, i32 `[rows][chosen]`.
        pub ids: u64,
        /// The list, of [`list_bytes`].
        pub list: u64,
        /// Address of the live count of rows.
        pub live: u64,
        /// Rows.
        pub rows: u32,
        /// Experts that a row chooses.
        pub chosen: u32,
        /// Experts that there are, at most [`MOST_EXPERTS`].
        pub experts: u32,
        /// Positions of a tile: 8 or 32.
        pub tile: u32,
        /// Most tiles: [`most_tiles`].
        pub tiles: u32,
        /// 0.
        pub reserved: u32,
    }

    /// Copies the quantised row of each assignment to its position.
    pub struct ExpertsGather {
        /// Rows that [`Quantize`](super::linear::Quantize) made.
        pub x: u64,
        /// The same by position.
        pub out: u64,
        /// The list.
        pub list: u64,
        /// Elements of a row.
        pub k: u32,
        /// Experts that a row chooses.
        pub chosen: u32,
        /// Positions of a tile.
        pub tile: u32,
        /// Most tiles.
        pub tiles: u32,
    }

    /// Products of one or two stacked weights (gate and up) with the rows of each tile.
    pub struct ExpertsLinear {
        /// Quantised rows, f32 rows for float weights.
        pub x: u64,
        /// The list, or 0 where there is one row, whose assignments are the tiles.
        pub list: u64,
        /// Chosen experts, i32 `[chosen]`; read where there is no list.
        pub ids: u64,
        /// Address of the live count of rows; read where there is no list.
        pub live: u64,
        /// `experts` matrices in the layout of their kind, one behind the other.
        pub weight0: u64,
        /// A second such weight, or 0.
        pub weight1: u64,
        /// f32 `[positions][n]`.
        pub out0: u64,
        /// f32 `[positions][n]` of the second weight.
        pub out1: u64,
        /// Bytes of one expert's matrix.
        pub stride: u64,
        /// Rows of a matrix.
        pub n: u32,
        /// Elements of a row of x and of the weights.
        pub k: u32,
        /// GGUF id of the weights' kind.
        pub kind: u32,
        /// Matrices of a weight.
        pub experts: u32,
        /// Experts that a row chooses.
        pub chosen: u32,
        /// Positions of a tile: 8 or 32.
        pub tile: u32,
        /// Most tiles.
        pub tiles: u32,
        /// 1 if x lies by position. Quantised rows do but where there is no list and they are the run's own.
        pub by_position: u32,
        /// Elements from one row of f32 x to the next, a multiple of 4.
        pub x_row: u32,
        /// 1 if the launch in front is [`ExpertsGate`]: then tiles are known when this one begins, and weights can be asked for
        /// before that one has ended.
        pub early: u32,
    }

    /// f(gate) · up by position, in f32 or quantised.
    pub struct ExpertsGate {
        /// What the function is applied to, f32 `[positions][width]`.
        pub gate: u64,
        /// Factor, likewise.
        pub up: u64,
        /// f32 rows by position, or 0.
        pub out: u64,
        /// The same as [`Quantize`](super::linear::Quantize) makes it, for a width that is a multiple of 32; or 0.
        pub quantized: u64,
        /// As in [`ExpertsLinear`].
        pub list: u64,
        /// As in [`ExpertsLinear`].
        pub ids: u64,
        /// As in [`ExpertsLinear`].
        pub live: u64,
        /// Elements of a row.
        pub width: u32,
        /// One of [`activation`](super::elementwise::activation).
        pub kind: u32,
        /// Experts that there are.
        pub experts: u32,
        /// Positions of a tile.
        pub tile: u32,
        /// Most tiles.
        pub tiles: u32,
        /// Elements from one row of `out` to the next, a multiple of 4.
        pub out_row: u32,
    }

    /// The weighted sums of rows, and what is added to them.
    pub struct ExpertsCombine {
        /// f32 `[positions][width]`.
        pub y: u64,
        /// The list, or 0: assignment a is at position a · `tile`.
        pub list: u64,
        /// Chosen experts, i32 `[rows][chosen]`; read where there is no list.
        pub ids: u64,
        /// Their weights, f32 `[rows][chosen]`.
        pub weights: u64,
        /// f32 rows that are added first, or 0.
        pub add0: u64,
        /// f32 rows that are added behind those, or 0.
        pub add1: u64,
        /// f32 `[rows][width]`, dense.
        pub out: u64,
        /// Address of the live count of rows.
        pub live: u64,
        /// Rows.
        pub rows: u32,
        /// Elements of a row.
        pub width: u32,
        /// Experts that a row chooses.
        pub chosen: u32,
        /// Experts that there are.
        pub experts: u32,
        /// Positions of a tile.
        pub tile: u32,
        /// Most tiles of a list.
        pub tiles: u32,
        /// Elements from one row of `add0` to the next.
        pub add0_row: u32,
        /// Elements from one row of `add1` to the next.
        pub add1_row: u32,
    }

    /// Both in one launch, with the bits of two, for whom [`ExpertsNorm::fits`] says so. What is added lies in vectors of 16
    /// bytes.
    pub struct ExpertsNorm {
        /// The weighted sums.
        pub combine: ExpertsCombine,
        /// The norm of its result.
        pub norm: NormQuantize,
    }
}

impl Field for ExpertsCombine {
    const C: &'static str = "KnExpertsCombine";
}

/// Most experts of a row that [`ExpertsNorm`] looks up.
const NORM_CHOSEN: u32 = 64;
/// Elements of the longest row that its threads hold.
const NORM_WIDTH: u32 = 8192;

impl ExpertsNorm {
    /// True if the norm is that of the sums, and threads hold a row.
    pub fn fits(&self) -> bool {
        let Self { combine, norm } = self;
        let sums = View { address: combine.out, row: combine.width, item: combine.width };
        norm.x == sums
            && norm.y.address == 0
            && (norm.live, norm.rows, norm.width) == (combine.live, combine.rows, combine.width)
            && combine.chosen <= NORM_CHOSEN
            && norm.width <= NORM_WIDTH
    }
}

/// Most experts among which a row chooses, for which the kernels have shared memory.
pub const MOST_EXPERTS: u32 = 4096;
/// Rows up to which tiles have 8 positions; they have 32 where there are more.
pub const FEW_ROWS: u32 = 16;

/// Positions of a tile, for so many rows.
pub const fn tile_rows(rows: u32) -> u32 {
    if rows <= FEW_ROWS { 8 } else { 32 }
}

/// Most tiles that so many assignments can make: every expert that is chosen may have one that is not full.
pub fn most_tiles(assignments: u64, experts: u32, tile: u32) -> u64 {
    let tile = u64::from(tile);
    (assignments + assignments.min(experts.into()) * (tile - 1)) / tile
}

/// Bytes of a list.
pub fn list_bytes(assignments: u64, tiles: u64, tile: u32) -> u64 {
    4 * (4 + (2 + u64::from(tile)) * tiles + assignments)
}

fn product(p: &ExpertsLinear) -> Launch {
    let kind = WeightKind::from_gguf_id(p.kind);
    debug_assert!(kind.is_some(), "GGUF type {} has no kernels", p.kind);
    let kind = kind.unwrap_or(WeightKind::F32);
    let sides = if p.weight1 == 0 { 1 } else { 2 };
    let (form, outputs, pieces) = match (kind.is_quantized(), p.list) {
        (true, 0) => (0, 16, 1),
        (true, _) if p.tile == 8 => (1, 16, 1),
        (true, _) => (2, WIDE_OUTPUTS, 1),
        (false, 0) => (0, FLOAT_OUTPUTS, 1),
        (false, _) => (1, FLOAT_OUTPUTS, p.tile / FLOAT_ROWS),
    };
    let entry = entries(kind).experts[form];
    Launch::new(entry, [sides * p.n.div_ceil(outputs), p.tiles * pieces, 1], LINEAR_THREADS)
}

/// Positions of a tile that may be in use.
fn used(list: u64, tile: u32) -> u32 {
    if list == 0 { 1 } else { tile }
}

launches! {
    Route(p) => Launch::new("route", [1, p.rows.max(1), 1], 256);
    ExpertsGroup(_p) => Launch::new("experts_group", [1, 1, 1], 512);
    // A pair of blocks takes 4 threads.
    ExpertsGather(p) => Launch::new("experts_gather", [(p.k / 32).div_ceil(2).div_ceil(64), p.tiles, p.tile], 256);
    ExpertsLinear(p) => product(p);
    ExpertsGate(p) => Launch::new("experts_gate", [p.width.div_ceil(1024), p.tiles, used(p.list, p.tile)], 256);
    ExpertsNorm(p) => match p.norm.width <= SHORT {
        true => Launch::new("experts_norm_short", [1, p.norm.rows.max(1), 1], 256),
        false => Launch::new("experts_norm_long", [1, p.norm.rows.max(1), 1], 512),
    };
    ExpertsCombine(p) => Launch::new("experts_combine", [p.width.div_ceil(1024), p.rows.max(1), 1], 256);
}

#[cfg(test)]
mod tests {
    use super::most_tiles;

    #[test]
    fn tiles_have_room_for_any_choice() {
        // All of one expert; each of another; as many as fill no tile.
        for (assignments, experts, tile) in
            [(8, 128, 8), (64, 128, 8), (4096, 128, 32), (17, 1, 32), (9, 2, 8)]
        {
            let most = most_tiles(assignments, experts, tile);
            let tiles = |counts: &[u64]| counts.iter().map(|count| count.div_ceil(tile.into())).sum::<u64>();
            let spread = assignments.min(experts.into());
            // As many tiles as there can be: one assignment for each expert but one, which has the rest.
            let mut counts = vec![1; spread as usize];
            counts[0] = assignments - (spread - 1);
            assert!(tiles(&counts) <= most && tiles(&[assignments]) <= most);
            let whole = assignments - spread;
            let worst = spread + whole / u64::from(tile);
            assert!(worst <= most && most <= worst + 1, "{assignments} {experts}: {worst} {most}");
        }
    }
}
