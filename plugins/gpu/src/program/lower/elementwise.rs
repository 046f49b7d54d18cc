//! Nodes whose elements, or items, do not depend on each other, and nodes that only say how elements lie.

use super::{Lowered, Lowering};
use crate::program::view::{Lie, rows_of};
use paceline_kernels::params::View;
use paceline_kernels::params::choice::{ArgmaxJoin, ArgmaxParts, DrawParts, TopK};
use paceline_kernels::params::elementwise::{ADD, Activation, Binary, Glu, MUL, Scale, activation};
use paceline_kernels::params::fused::GluQuantize;
use paceline_kernels::params::led::Maker;
use paceline_kernels::params::norms::{L2Norm, RmsNorm, Softmax};
use paceline_plugin_api::graph::ops::Attributes;
use paceline_plugin_api::graph::{Node, ValueId};

/// Activations are quantised in blocks of so many elements.
const BLOCK: u32 = 32;

impl Lowering<'_> {
    /// The operands as rows of the same items, copied where that is needed.
    fn alike<const N: usize>(&mut self, operands: [Lie; N], live: u64) -> [Lie; N] {
        let gaps = operands.iter().find(|lie| !lie.has_dense_rows());
        let (items, width) = gaps.map_or((1, operands[0].row_elements()), |lie| (lie.items, lie.width));
        operands.map(|lie| self.split(lie, live, items, width))
    }

    /// An input as rows of items that end with the value's last axis.
    fn over_last_axis(&mut self, id: ValueId) -> Lowered<(Lie, u64)> {
        let value = self.value(id);
        let (lie, live) = (self.elements(id)?, self.live_address(value));
        let width = value.shape.last();
        let (_, elements) = rows_of(value);
        Ok((self.split(lie, live, elements / width, width), live))
    }

    pub(super) fn rms_norm(&mut self, node: &Node) -> Lowered<&'static str> {
        let attributes = Attributes::of(node);
        let mut operands = node.inputs[1..].iter();
        let weight_lie = match attributes.flag("weight").then(|| operands.next()).flatten() {
            Some(&id) => {
                let lie = self.elements(id)?;
                Some(self.dense(lie, 0))
            }
            None => None,
        };
        let weight = weight_lie.map_or(0, |lie| lie.address());
        let gate = match attributes.flag("gate").then(|| operands.next()).flatten() {
            Some(&id) => Some(self.over_last_axis(id)?.0),
            None => None,
        };
        let gate_fits = gate.is_none_or(|gate| self.fits_items(&gate));
        let gate = gate.map_or(View::default(), |gate| gate.view());
        let (x, live) = self.over_last_axis(node.inputs[0])?;
        let Lie { rows, items, width, .. } = x;
        let epsilon = attributes.float("eps") as f32;
        let (is_multiplied, is_only_multiplied) = self.quantized_readers(node.outputs[0]);
        // The kernel reads and writes vectors, wherever they are.
        let is_aligned = weight_lie.is_none_or(|lie| self.is_vectors(&Lie { row: 0, ..lie }))
            && self.graph.results().iter().all(|r| r.value != node.outputs[0] || r.offset.is_multiple_of(16));
        if is_multiplied
            && is_aligned
            && gate.address == 0
            && items == 1
            && width.is_multiple_of(BLOCK)
            && self.is_vectors(&x)
        {
            return self.norm_quantized(node, x, [weight, live], epsilon, is_only_multiplied);
        }
        if is_only_multiplied && is_multiplied && is_aligned && self.fits_items(&x) && gate_fits {
            return self.items_norm_quantized(node, x, gate, [weight, live], epsilon);
        }
        let out = self.output(node.outputs[0])?;
        let out = View::dense(out.address(), items, width);
        self.push(&RmsNorm { x: x.view(), gate, out, weight, live, rows, items, width, epsilon });
        Ok("rms_norm")
    }

    pub(super) fn l2_norm(&mut self, node: &Node) -> Lowered<&'static str> {
        let (x, live) = self.over_last_axis(node.inputs[0])?;
        let out = self.output(node.outputs[0])?;
        let Lie { rows, items, width, .. } = x;
        let out = View::dense(out.address(), items, width);
        let epsilon = Attributes::of(node).float("eps") as f32;
        self.push(&L2Norm { x: x.view(), out, live, rows, items, width, epsilon });
        Ok("l2_norm")
    }

    pub(super) fn softmax(&mut self, node: &Node) -> Lowered<&'static str> {
        let (x, live) = self.over_last_axis(node.inputs[0])?;
        let out = self.output(node.outputs[0])?;
        let Lie { rows, items, width, .. } = x;
        let out = View::dense(out.address(), items, width);
        self.push(&Softmax { x: x.view(), out, live, rows, items, width, reserved: 0 });
        Ok("softmax")
    }

    pub(super) fn binary(&mut self, node: &Node) -> Lowered<&'static str> {
        let kind = if node.operation == "add" { ADD } else { MUL };
        let name = if kind == ADD { "add" } else { "mul" };
        if kind == ADD && self.add_to_product(node)? {
            return Ok(name);
        }
        if let Some(&gate) = self.fusions.gated.get(&self.node_index) {
            return self.gated([gate, node.inputs[0]], node, activation::SIGMOID);
        }
        let (value, other) = (self.value(node.inputs[0]), self.value(node.inputs[1]));
        let live = self.live_address(value);
        let (x, y) = (self.elements(node.inputs[0])?, self.elements(node.inputs[1])?);
        let (x, y, view) = if other.shape.rank() == value.shape.rank() {
            let [x, y] = self.alike([x, y], live);
            (x, y, y.view())
        } else {
            // The second operand has the trailing dimensions of the first, and is repeated.
            let width = other.shape.elements().unwrap_or(1) as u32;
            let other_live = self.live_address(other);
            let y = self.dense(y, other_live);
            let x = self.split(x, live, x.row_elements() / width, width);
            (x, y, View { address: y.address(), row: 0, item: 0 })
        };
        debug_assert!(y.row_elements() > 0);
        let out = self.output(node.outputs[0])?;
        let Lie { rows, items, width, .. } = x;
        let out = View::dense(out.address(), items, width);
        self.push(&Binary { x: x.view(), y: view, out, live, rows, items, width, kind });
        Ok(name)
    }

    pub(super) fn scale(&mut self, node: &Node) -> Lowered<&'static str> {
        let x = self.elements(node.inputs[0])?;
        let live = self.live_address(self.value(node.inputs[0]));
        let out = self.output(node.outputs[0])?;
        let Lie { rows, items, width, .. } = x;
        let out = View::dense(out.address(), items, width);
        let factor = Attributes::of(node).float("factor") as f32;
        self.push(&Scale { x: x.view(), out, live, rows, items, width, factor });
        Ok("scale")
    }

    pub(super) fn activation(&mut self, node: &Node) -> Lowered<&'static str> {
        let attributes = Attributes::of(node);
        let kind = kind_of(attributes.text("kind"))?;
        let x = self.elements(node.inputs[0])?;
        let live = self.live_address(self.value(node.inputs[0]));
        let out = self.output(node.outputs[0])?;
        let Lie { rows, items, width, .. } = x;
        let out = View::dense(out.address(), items, width);
        let softcap = attributes.float("softcap") as f32;
        self.push(&Activation { x: x.view(), out, live, rows, items, width, kind, softcap, reserved: 0 });
        Ok("activation")
    }

    pub(super) fn glu(&mut self, node: &Node) -> Lowered<&'static str> {
        let kind = kind_of(Attributes::of(node).text("kind"))?;
        self.gated([node.inputs[0], node.inputs[1]], node, kind)
    }

    /// f(gate) · up.
    fn gated(&mut self, operands: [ValueId; 2], node: &Node, kind: u32) -> Lowered<&'static str> {
        let live = self.live_address(self.value(operands[0]));
        let [gate, up] = [self.elements(operands[0])?, self.elements(operands[1])?];
        let [gate, up] = self.alike([gate, up], live);
        let output = node.outputs[0];
        let Lie { rows, items, width, .. } = gate;
        let is_fitting = items == 1 && width.is_multiple_of(BLOCK);
        if is_fitting
            && self.quantized_readers(output) == (true, true)
            && [gate, up].iter().all(|x| self.is_vectors(x))
        {
            let lie = self.unmade(output);
            let quantized = self.quantized_place(lie, node);
            self.push_maker(Maker::Glu(GluQuantize {
                gate: gate.view(),
                up: up.view(),
                quantized,
                live,
                rows,
                width,
                kind,
                bf16_groups: self.bf16_groups(rows),
            }));
            return Ok("glu");
        }
        let out = self.output(output)?;
        let out = View::dense(out.address(), items, width);
        self.push(&Glu { gate: gate.view(), up: up.view(), out, live, rows, items, width, kind });
        Ok("glu")
    }

    pub(super) fn reshape(&mut self, node: &Node) -> Lowered<&'static str> {
        let (x, output) = (node.inputs[0], node.outputs[0]);
        let live = self.live_address(self.value(x));
        let (rows, elements) = rows_of(self.value(output));
        let lie = self.elements(x)?;
        let lie = match lie.rearrange(rows, elements) {
            Some(lie) => lie,
            None => {
                let copy = self.copied(lie, live, lie.row_elements());
                Lie::dense(copy.root, rows, elements)
            }
        };
        self.name_view(output, lie)
    }

    pub(super) fn slice(&mut self, node: &Node) -> Lowered<&'static str> {
        let attributes = Attributes::of(node);
        let (lie, live) = self.over_last_axis(node.inputs[0])?;
        let last = lie.width;
        let (offset, length) = (attributes.integer("offset") as u32, attributes.integer("length") as u32);
        debug_assert!(offset + length <= last && live != u64::MAX);
        let lie = lie.slice(last, offset, length).ok_or("a slice of what has gaps")?;
        self.name_view(node.outputs[0], lie)
    }

    /// The output is a view, or a copy of it if it is a result and has a place of its own.
    fn name_view(&mut self, output: ValueId, lie: Lie) -> Lowered<&'static str> {
        if !self.is_result(output) {
            self.lies[output.index()] = Some(lie);
            return Ok("view");
        }
        let live = self.live_address(self.value(output));
        let out = self.output(output)?;
        self.copy(lie, View::dense(out.address(), lie.items, lie.width), live);
        Ok("copy")
    }

    pub(super) fn concat(&mut self, node: &Node) -> Lowered<&'static str> {
        let mut parts = Vec::with_capacity(node.inputs.len());
        for &id in &node.inputs {
            parts.push(self.over_last_axis(id)?);
        }
        let out = self.output(node.outputs[0])?;
        let last = self.value(node.outputs[0]).shape.last();
        let mut at = 0;
        for (part, live) in parts {
            let place = Lie { offset: out.offset + at, ..out };
            self.copy(part, View { address: place.address(), row: out.row, item: last }, live);
            at += u64::from(part.width);
        }
        Ok("concat")
    }

    /// `argmax` and, with noise between its two parts, `draw`.
    pub(super) fn choose(&mut self, node: &Node) -> Lowered<&'static str> {
        let live = self.live_address(self.value(node.inputs[0]));
        let x = self.elements(node.inputs[0])?;
        let x = self.dense(x, live);
        let (x, rows, width) = (x.address(), x.rows, x.row_elements());
        let bytes = ArgmaxParts::scratch_bytes(rows, width);
        let largest = self.scratch(bytes);
        self.push(&ArgmaxParts { x, scratch: largest, live, rows, width });
        let (name, scratch) = match node.inputs.get(1) {
            Some(&noise) => {
                let scratch = self.scratch(bytes);
                let noise = self.address(noise)?;
                let tokens = match node.inputs.get(2) {
                    Some(&tokens) => self.elements(tokens)?.address(),
                    None => 0,
                };
                self.push(&DrawParts { x, noise, tokens, largest, scratch, live, rows, width });
                ("draw", scratch)
            }
            None => ("argmax", largest),
        };
        let ids = self.output(node.outputs[0])?.address();
        let faults = self.output(node.outputs[1])?.address();
        self.push(&ArgmaxJoin { scratch, ids, faults, values: 0, live, rows, width });
        Ok(name)
    }

    pub(super) fn top_k(&mut self, node: &Node) -> Lowered<&'static str> {
        let live = self.live_address(self.value(node.inputs[0]));
        let x = self.elements(node.inputs[0])?;
        let x = self.dense(x, live);
        let (rows, width) = (x.rows, x.row_elements());
        let k = Attributes::of(node).integer("k") as u32;
        let scratch = self.scratch(TopK::scratch_bytes(rows, k));
        let ids = self.output(node.outputs[0])?.address();
        let values = self.output(node.outputs[1])?.address();
        self.push(&TopK { x: x.address(), ids, values, scratch, live, rows, width, k, reserved: 0 });
        Ok("top_k")
    }
}

fn kind_of(name: &str) -> Lowered<u32> {
    activation::from_name(name).ok_or_else(|| format!("activation `{name}` has no kernel"))
}
