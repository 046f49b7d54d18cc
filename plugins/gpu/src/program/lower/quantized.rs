//! Results that are there in quantised form, made by the launch that makes them anyway.

use super::{Lowered, Lowering};
use crate::program::view::{Lie, rows_of};
use crate::program::{Id, Place, Ref};
use paceline_kernels::layout::WeightKind;
use paceline_kernels::params::View;
use paceline_kernels::params::fused::{ItemsNormQuantize, NormQuantize};
use paceline_kernels::params::led::Maker;
use paceline_plugin_api::graph::ops::Attributes;
use paceline_plugin_api::graph::{Node, ValueId};

/// Activations are quantised in blocks of so many elements.
const BLOCK: u32 = 32;
/// Widest item that one team norms and quantises.
const WIDEST_ITEM: u32 = 256;
/// Kernels here read vectors of so many elements.
const VECTOR: u32 = 4;

impl Lowering<'_> {
    /// Who reads a value: whether a product that wants it quantised does, and whether nobody else does.
    pub(super) fn quantized_readers(&self, id: ValueId) -> (bool, bool) {
        let (mut any, mut only) = (false, !self.is_result(id));
        for node in self.graph.nodes().iter().filter(|node| node.inputs.contains(&id)) {
            // A later version of an operation may be of any form.
            let operation = if node.version == 1 { node.operation.as_str() } else { "" };
            let is_product = operation == "linear" && node.inputs[1..].iter().all(|other| *other != id);
            let (here, alone) = match operation {
                "linear" if is_product => {
                    let is_quantized = self.packed(node.inputs[1]).is_ok_and(WeightKind::is_quantized);
                    (is_quantized, is_quantized)
                }
                // They read int8 blocks, also where products of so many rows do not.
                "experts"
                    if node.inputs[0] == id
                        && node.inputs[1..].iter().all(|other| *other != id)
                        && self.bf16_groups(self.value(id).shape.first()) == 0 =>
                {
                    let mut kinds = node.inputs[1..3].iter().map(|&weight| self.packed(weight));
                    let is_quantized = |kind: Lowered<WeightKind>| kind.is_ok_and(WeightKind::is_quantized);
                    let [gate, up] = [kinds.next(), kinds.next()].map(|kind| kind.is_some_and(is_quantized));
                    (gate || up, gate && up)
                }
                "reshape" if self.value(id).shape.first() == self.value(node.outputs[0]).shape.first() => {
                    self.quantized_readers(node.outputs[0])
                }
                _ => (false, false),
            };
            any |= here;
            only &= alone;
        }
        (any, only)
    }

    /// A place for the quantised form of a value, which the caller's kernel fills.
    pub(super) fn quantized_place(&mut self, x: Lie, node: &Node) -> u64 {
        let out = self.intermediate(self.quantized_bytes(x.rows, x.row_elements()));
        self.quantized_rows.push(self.live(self.value(node.outputs[0])));
        self.known.quantized.insert((x, self.bf16_groups(x.rows) > 0), out);
        Ref::new(out, 0).token()
    }

    /// How a value would lie that is there in quantised form alone.
    pub(super) fn unmade(&mut self, id: ValueId) -> Lie {
        let (rows, elements) = rows_of(self.value(id));
        let lie = Lie::dense(id.index(), rows, elements);
        self.lies[id.index()] = Some(lie);
        self.made.insert(id.index(), self.items.len());
        lie
    }

    /// A norm whose result is quantised for products in the same launch; nobody may want it itself.
    pub(super) fn norm_quantized(
        &mut self,
        node: &Node,
        x: Lie,
        [weight, live]: [u64; 2],
        epsilon: f32,
        is_only_multiplied: bool,
    ) -> Lowered<&'static str> {
        let Lie { rows, width, .. } = x;
        let output = node.outputs[0];
        let (lie, out) = match is_only_multiplied {
            true => (self.unmade(output), View::default()),
            false => {
                let lie = self.output(output)?;
                (lie, lie.view())
            }
        };
        let quantized = self.quantized_place(lie, node);
        let none = View::default();
        self.push_maker(Maker::Norm(NormQuantize {
            x: x.view(),
            y: none,
            sum: none,
            out,
            weight,
            quantized,
            live,
            rows,
            width,
            epsilon,
            early: self.is_early_norm(node).into(),
            bf16_groups: self.bf16_groups(rows),
            reserved: 0,
        }));
        Ok("rms_norm")
    }

    /// A norm of items, perhaps with a gate, whose result is there in quantised form alone.
    pub(super) fn items_norm_quantized(
        &mut self,
        node: &Node,
        x: Lie,
        gate: View,
        [weight, live]: [u64; 2],
        epsilon: f32,
    ) -> Lowered<&'static str> {
        let Lie { rows, items, width, .. } = x;
        let lie = self.unmade(node.outputs[0]);
        let quantized = self.quantized_place(lie, node);
        self.push_maker(Maker::ItemsNorm(ItemsNormQuantize {
            x: x.view(),
            gate,
            weight,
            quantized,
            live,
            rows,
            items,
            width,
            epsilon,
            early: self.is_early_norm(node).into(),
            bf16_groups: self.bf16_groups(rows),
        }));
        Ok("rms_norm")
    }

    /// True if no launch writes the factors of a norm.
    fn is_early_norm(&self, node: &Node) -> bool {
        !Attributes::of(node).flag("weight") || self.is_given_weight(node.inputs[1])
    }

    /// True if items can be quantised by a team each: they are vectors, and whole pairs of blocks.
    pub(super) fn fits_items(&self, x: &Lie) -> bool {
        let start = match self.places[x.root] {
            Some(Place::Parameter(offset) | Place::Result(offset)) => offset / 4,
            _ => 0,
        };
        let is_aligned = (start + x.offset).is_multiple_of(VECTOR.into())
            && x.row.is_multiple_of(VECTOR)
            && (x.items == 1 || x.item.is_multiple_of(VECTOR));
        is_aligned
            && x.width <= WIDEST_ITEM
            && x.width.is_multiple_of(BLOCK)
            && x.row_elements().is_multiple_of(2 * BLOCK)
    }

    /// Where the result of an attention goes in quantised form, and the gate that is a factor of it, if nobody wants it
    /// otherwise. What gates it is then done with.
    pub(super) fn quantized_join(
        &mut self,
        node: &Node,
        heads: u32,
        width: u32,
    ) -> Lowered<Option<(Id, Option<Lie>)>> {
        let Some((result, gate)) = self.behind_attention(node.outputs[0]) else { return Ok(None) };
        let of_heads = |lie: Lie| lie.split(heads, width).filter(|lie| self.fits_items(lie));
        let (rows, elements) = rows_of(self.value(node.outputs[0]));
        let is_fitting = of_heads(Lie::dense(node.outputs[0].index(), rows, elements)).is_some();
        let gate_lie = match gate {
            Some((id, _)) => self.lies[id.index()].and_then(of_heads),
            None => None,
        };
        if !is_fitting || gate.is_some() && gate_lie.is_none() {
            return Ok(None);
        }
        if let Some((_, index)) = gate {
            self.fusions.joined.insert(index, "in attention");
            self.unmade(node.outputs[0]);
        }
        let lie = self.unmade(result);
        let token = self.quantized_place(lie, node);
        Ok(Ref::from_token(token).map(|at| (at.id, gate_lie)))
    }

    /// The value that products alone read, quantised: the result of an attention, or that times a gate; then also the
    /// gate before its sigmoid, and the node that multiplies.
    fn behind_attention(&self, mut id: ValueId) -> Option<(ValueId, Option<(ValueId, usize)>)> {
        let first = id;
        let rows = self.value(id).shape.first();
        loop {
            if self.quantized_readers(id) == (true, true) {
                return Some((first, None));
            }
            if self.readers[id.index()] != 1 || self.is_result(id) {
                return None;
            }
            let mut nodes = self.graph.nodes().iter().enumerate();
            let (index, node) = nodes.find(|(_, node)| node.inputs.contains(&id))?;
            let output = *node.outputs.first()?;
            match node.operation.as_str() {
                "reshape" if node.version == 1 && self.value(output).shape.first() == rows => id = output,
                "mul" => {
                    let &gate = self.fusions.gated.get(&index).filter(|_| node.inputs[0] == id)?;
                    let is_fitting = self.quantized_readers(output) == (true, true)
                        && self.value(output).live == self.value(first).live
                        && self.value(output).shape.first() == rows;
                    return is_fitting.then_some((output, Some((gate, index))));
                }
                _ => return None,
            }
        }
    }
}
