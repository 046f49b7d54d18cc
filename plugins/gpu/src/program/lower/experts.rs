//! `route/1` and `experts/1`.
//!
//! Each product of a mixture is one launch over tiles, whose expert its groups read on the device. Where there is one row,
//! the tiles are its choices; else a list of tiles is made first. One expert that every row goes through, a shared one, is a
//! product like any other.

use super::{Item, Lowered, Lowering};
use crate::layout::matrix_bytes;
use crate::program::view::{ELEMENT, Lie};
use crate::program::{Place, Ref};
use paceline_kernels::layout::WeightKind;
use paceline_kernels::params::Parameters;
use paceline_kernels::params::elementwise::{Glu, activation};
use paceline_kernels::params::experts::{
    ExpertsCombine, ExpertsGate, ExpertsGather, ExpertsGroup, ExpertsLinear, ExpertsNorm, MOST_EXPERTS,
    Route, list_bytes, most_tiles, tile_rows,
};
use paceline_kernels::params::fused::GluQuantize;
use paceline_kernels::params::led::Maker;
use paceline_kernels::params::linear::{Linear, LinearSegment, quantized_bytes};
use paceline_plugin_api::graph::ops::Attributes;
use paceline_plugin_api::graph::{Node, ValueId};

/// Products read f32 rows in vectors of so many elements.
const VECTOR: u32 = 4;

/// A weight of one matrix per expert.
#[derive(Clone, Copy)]
struct Stacked {
    /// What stands for its address.
    weight: u64,
    kind: WeightKind,
    /// Outputs and inputs of one expert.
    n: u32,
    k: u32,
    /// Bytes of one expert.
    stride: u64,
}

/// Who chose what, and the tiles that this makes.
#[derive(Clone, Copy)]
struct Tiles {
    list: u64,
    ids: u64,
    live: u64,
    experts: u32,
    chosen: u32,
    tile: u32,
    tiles: u32,
}

impl Tiles {
    fn positions(&self) -> u32 {
        self.tiles * self.tile
    }
}

impl Lowering<'_> {
    pub(super) fn route(&mut self, node: &Node) -> Lowered<&'static str> {
        let attributes = Attributes::of(node);
        let live = self.live_address(self.value(node.inputs[0]));
        let x = self.elements(node.inputs[0])?;
        let x = self.dense(x, live);
        let (rows, width) = (x.rows, x.row_elements());
        of_known_size(width)?;
        let ids = self.output(node.outputs[0])?.address();
        let weights = self.output(node.outputs[1])?.address();
        self.push(&Route {
            x: x.address(),
            ids,
            weights,
            live,
            rows,
            width,
            k: attributes.integer("k") as u32,
            sigmoid: (attributes.text("scoring") == "sigmoid").into(),
            normalize: attributes.flag("normalize").into(),
            factor: attributes.float("factor") as f32,
        });
        Ok("route")
    }

    pub(super) fn experts(&mut self, node: &Node) -> Lowered<&'static str> {
        let [x, gate, up, down, ids, weights] = node.inputs[..] else {
            return Err("it takes 6 inputs".into());
        };
        let kind = activation::from_name(Attributes::of(node).text("kind"));
        let kind = kind.ok_or("its activation has no kernel")?;
        let experts = self.value(gate).shape.first();
        of_known_size(experts)?;
        let [gate, up, down] = [self.stacked(gate)?, self.stacked(up)?, self.stacked(down)?];
        let live = self.live_address(self.value(x));
        let rows_of_x = self.elements(x)?;
        let x = self.aligned(rows_of_x, live);
        let chosen = self.value(ids).shape.last();
        let (ids, weights) = (self.elements(ids)?, self.elements(weights)?);
        let [ids, weights] = [ids, weights].map(|lie| self.dense(lie, live).address());
        let choice = Tiles { list: 0, ids, live, experts, chosen, tile: 1, tiles: 0 };
        if experts == 1 && chosen == 1 {
            let y = self.shared_expert(node, x, live, [gate, up, down], kind)?;
            self.combine(node, choice, weights, y, x.rows)?;
            return Ok("experts, shared");
        }
        let tiles = self.tiles(choice, x.rows)?;
        let inner = self.inner(node, x, &tiles, [gate, up], down.kind.is_quantized(), kind);
        let y = self.scratch(u64::from(tiles.positions()) * u64::from(down.n) * ELEMENT);
        // The launch in front is the gate.
        self.push(&ExpertsLinear { early: 1, ..tiles.product(down, inner, [y, 0]) });
        self.combine(node, tiles, weights, y, x.rows)?;
        Ok("experts")
    }

    fn stacked(&self, id: ValueId) -> Lowered<Stacked> {
        let kind = self.packed(id)?;
        let &[_, n, k] = self.value(id).shape.dims() else {
            return Err("experts must have weights of 3 dimensions".into());
        };
        let stride = matrix_bytes(kind, n as usize, k as usize).map_err(|error| error.message)?;
        Ok(Stacked { weight: Ref::new(id.index(), 0).token(), kind, n, k, stride })
    }

    /// The tiles of all rows, listed where there is more than one.
    fn tiles(&mut self, choice: Tiles, rows: u32) -> Lowered<Tiles> {
        let Tiles { ids, live, experts, chosen, .. } = choice;
        let assignments = u64::from(rows) * u64::from(chosen);
        let tile = tile_rows(rows);
        let most = if rows == 1 { assignments } else { most_tiles(assignments, experts, tile) };
        let tiles = u32::try_from(most * u64::from(tile)).map(|positions| positions / tile);
        let tiles =
            tiles.map_err(|_| format!("{rows} rows that choose {chosen} experts each are too many"))?;
        let list = match rows {
            1 => 0,
            _ => {
                let list = self.scratch(list_bytes(assignments, most, tile));
                self.push(&ExpertsGroup { ids, list, live, rows, chosen, experts, tile, tiles, reserved: 0 });
                list
            }
        };
        Ok(Tiles { list, tile, tiles, ..choice })
    }

    /// f(gate x) · (up x) by position, quantised if that is wanted: where it is, and the distance of rows.
    fn inner(
        &mut self,
        node: &Node,
        x: Lie,
        tiles: &Tiles,
        [gate, up]: [Stacked; 2],
        is_quantized: bool,
        kind: u32,
    ) -> Rows {
        let positions = u64::from(tiles.positions());
        let mut gathered = None;
        let [gate_out, up_out] =
            [gate, up].map(|matrix| self.scratch(positions * u64::from(matrix.n) * ELEMENT));
        let products = match gate.kind == up.kind {
            true => vec![(gate, up.weight, [gate_out, up_out])],
            false => vec![(gate, 0, [gate_out, 0]), (up, 0, [up_out, 0])],
        };
        for (matrix, second, out) in products {
            let rows = match matrix.kind.is_quantized() {
                true => *gathered.get_or_insert_with(|| self.gathered(node, x, tiles)),
                false => Rows { x: x.address(), row: x.row, by_position: false },
            };
            self.push(&ExpertsLinear { weight1: second, ..tiles.product(matrix, rows, out) });
        }
        let width = gate.n;
        let row = width.next_multiple_of(VECTOR);
        let (out, quantized) = match is_quantized {
            true => {
                // A row for every choice, if all of them exist.
                let live = self.live(self.value(node.inputs[0]));
                self.quantized_rows.extend((0..tiles.chosen).map(|_| live));
                (0, self.scratch(quantized_bytes(tiles.positions(), width)))
            }
            false => (self.scratch(positions * u64::from(row) * ELEMENT), 0),
        };
        let &Tiles { list, ids, live, experts, tile, tiles, .. } = tiles;
        self.push(&ExpertsGate {
            gate: gate_out,
            up: up_out,
            out,
            quantized,
            list,
            ids,
            live,
            width,
            kind,
            experts,
            tile,
            tiles,
            out_row: row,
        });
        Rows { x: if is_quantized { quantized } else { out }, row, by_position: true }
    }

    /// The rows quantised; by position where there is a list.
    fn gathered(&mut self, node: &Node, x: Lie, tiles: &Tiles) -> Rows {
        let quantized = Ref::new(self.quantized_int8(x, tiles.live, node), 0).token();
        if tiles.list == 0 {
            return Rows { x: quantized, row: 0, by_position: false };
        }
        let k = x.row_elements();
        let out = self.scratch(quantized_bytes(tiles.positions(), k));
        let &Tiles { list, chosen, tile, tiles, .. } = tiles;
        self.push(&ExpertsGather { x: quantized, out, list, k, chosen, tile, tiles });
        Rows { x: out, row: 0, by_position: true }
    }

    /// The one expert that every row goes through: where its rows are.
    fn shared_expert(
        &mut self,
        node: &Node,
        x: Lie,
        live: u64,
        [gate, up, down]: [Stacked; 3],
        kind: u32,
    ) -> Lowered<u64> {
        let (rows, width) = (x.rows, gate.n);
        let row = width.next_multiple_of(VECTOR);
        let [gate_out, up_out] = [gate, up].map(|matrix| {
            let out = self.intermediate(u64::from(rows) * u64::from(row) * ELEMENT);
            let out = Lie { row, ..Lie::dense(out, rows, width) };
            self.single_product(node, x, live, matrix, out);
            out
        });
        let inner = self.intermediate(match down.kind.is_quantized() {
            true => quantized_bytes(rows, width),
            false => u64::from(rows) * u64::from(row) * ELEMENT,
        });
        let inner = Lie { row, ..Lie::dense(inner, rows, width) };
        let y = Lie::dense(self.intermediate(u64::from(rows) * u64::from(down.n) * ELEMENT), rows, down.n);
        match down.kind.is_quantized() {
            true => {
                self.quantized_rows.push(self.live(self.value(node.inputs[0])));
                self.push_maker(Maker::Glu(GluQuantize {
                    gate: gate_out.view(),
                    up: up_out.view(),
                    quantized: inner.address(),
                    live,
                    rows,
                    width,
                    kind,
                    bf16_groups: 0,
                }));
                self.known.quantized.insert((inner, false), inner.root);
            }
            false => {
                let (gate, up, out) = (gate_out.view(), up_out.view(), inner.view());
                self.push(&Glu { gate, up, out, live, rows, items: 1, width, kind });
            }
        }
        self.single_product(node, inner, live, down, y);
        Ok(y.address())
    }

    /// A product with the one matrix of a stack.
    fn single_product(&mut self, node: &Node, x: Lie, live: u64, matrix: Stacked, out: Lie) {
        let activations = match matrix.kind.is_quantized() {
            true => Ref::new(self.quantized_int8(x, live, node), 0).token(),
            false => x.address(),
        };
        let segment = LinearSegment {
            weight: matrix.weight,
            out: out.address(),
            n: matrix.n,
            out_row: out.row,
            kind: matrix.kind.gguf_id(),
            ..Default::default()
        };
        let new = Linear {
            x: activations,
            live,
            k: x.row_elements(),
            rows: x.rows,
            x_row: x.row,
            ..Default::default()
        };
        self.check_launch(&Linear { segment0: segment, ..new }.launch());
        self.add_segment(activations, segment, new, out.root);
    }

    /// The weighted sums, to which others may still be added.
    fn combine(&mut self, node: &Node, tiles: Tiles, weights: u64, y: u64, rows: u32) -> Lowered<()> {
        let out = self.output(node.outputs[0])?;
        let Tiles { list, ids, live, experts, chosen, tile, tiles } = tiles;
        let combine = ExpertsCombine {
            y,
            list,
            ids,
            weights,
            out: out.address(),
            live,
            rows,
            width: out.row_elements(),
            chosen,
            experts,
            tile,
            tiles,
            ..Default::default()
        };
        self.check_launch(&combine.launch());
        self.items.push(Item::Combine(combine));
        Ok(())
    }

    /// True if a sum and the norm behind it can be one launch.
    pub(super) fn fits_norm(&self, both: &ExpertsNorm) -> bool {
        let is_vectors = |token: u64, row: u32| match Ref::from_token(token) {
            None => true,
            Some(Ref { id, offset }) => {
                let start = match self.places[id] {
                    Some(Place::Parameter(start) | Place::Result(start)) => start,
                    _ => 0,
                };
                let bytes = ELEMENT * u64::from(VECTOR);
                (start + offset).is_multiple_of(bytes) && row.is_multiple_of(VECTOR)
            }
        };
        let ExpertsCombine { add0, add1, add0_row, add1_row, .. } = both.combine;
        both.fits() && is_vectors(add0, add0_row) && is_vectors(add1, add1_row)
    }
}

/// What a product reads.
#[derive(Clone, Copy)]
struct Rows {
    x: u64,
    row: u32,
    by_position: bool,
}

impl Tiles {
    fn product(&self, matrix: Stacked, rows: Rows, out: [u64; 2]) -> ExpertsLinear {
        let &Self { list, ids, live, experts, chosen, tile, tiles } = self;
        ExpertsLinear {
            x: rows.x,
            list,
            ids,
            live,
            weight0: matrix.weight,
            weight1: 0,
            out0: out[0],
            out1: out[1],
            stride: matrix.stride,
            n: matrix.n,
            k: matrix.k,
            kind: matrix.kind.gguf_id(),
            experts,
            chosen,
            tile,
            tiles,
            by_position: rows.by_position.into(),
            x_row: rows.row,
            early: 0,
        }
    }
}

fn of_known_size(experts: u32) -> Lowered<()> {
    match experts <= MOST_EXPERTS {
        true => Ok(()),
        false => {
            Err(format!("{experts} experts are more than the {MOST_EXPERTS} that its kernels choose among"))
        }
    }
}
