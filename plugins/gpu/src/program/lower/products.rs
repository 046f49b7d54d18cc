//! Products, and gathers from what products multiply with.

use super::{Item, Lowered, Lowering};
use crate::layout::Layout;
use crate::program::view::{ELEMENT, Lie};
use crate::program::{Id, Place, Ref, Step};
use paceline_kernels::layout::WeightKind;
use paceline_kernels::params::Parameters;
use paceline_kernels::params::linear::{
    BF16_GROUP_BYTES, Embed, Linear, LinearSegment, Quantize, bf16_bytes, quantized_bytes,
};
use paceline_plugin_api::graph::{Node, ValueId};

/// Products read activations in vectors of so many elements.
const VECTOR: u32 = 4;

/// Up to so many rows, products with quantised weights have the bits that a row has alone; more are a class of their own
/// where the target has kernels for it.
pub(super) const MOST_INT8_ROWS: u32 = 64;

/// Kernels of products with quantised weights, as plans name them.
pub(super) const LINEAR_INT8: &str = "linear, int8";
pub(super) const LINEAR_BF16: &str = "linear, bf16";

fn segments(product: &mut Linear) -> [&mut LinearSegment; 4] {
    [&mut product.segment0, &mut product.segment1, &mut product.segment2, &mut product.segment3]
}

impl Lowering<'_> {
    pub(super) fn packed(&self, id: ValueId) -> Lowered<WeightKind> {
        match self.layouts.get(&id.index()) {
            Some(Layout::Packed(kind)) => Ok(*kind),
            _ => Err(format!("weight `{}` is not laid out for products", self.value(id).name)),
        }
    }

    pub(super) fn embed(&mut self, node: &Node) -> Lowered<&'static str> {
        let kind = self.packed(node.inputs[1])?;
        let (ids, table) = (self.address(node.inputs[0])?, node.inputs[1].index());
        let value = self.value(node.inputs[0]);
        let live = self.live_address(value);
        let shape = self.value(node.inputs[1]).shape;
        let out = self.output(node.outputs[0])?.address();
        let faults = self.counter(node.outputs[1])?;
        self.push(&Embed {
            ids,
            table: Ref::new(table, 0).token(),
            out,
            faults,
            live,
            rows: value.shape.first(),
            width: shape.last(),
            entries: shape.first(),
            kind: kind.gguf_id(),
        });
        Ok("embed")
    }

    /// A counter that is zero when a run begins. Those that are no results lie side by side, to be cleared at once.
    fn counter(&mut self, id: ValueId) -> Lowered<u64> {
        if self.is_result(id) {
            let lie = self.output(id)?;
            self.items.push(Item::Step(Step::Clear(lie.root, ELEMENT)));
            return Ok(lie.address());
        }
        let lie = self.new_counter();
        self.lies[id.index()] = Some(lie);
        Ok(lie.address())
    }

    /// A counter that no value of the graph is.
    pub(super) fn new_counter(&mut self) -> Lie {
        let (root, count) = match self.counters {
            Some(known) => known,
            None => {
                self.places.push(None);
                (self.places.len() - 1, 0)
            }
        };
        self.counters = Some((root, count + 1));
        Lie { offset: count, ..Lie::dense(root, 1, 1) }
    }

    /// True if products, and what makes their activations, can read the rows as they lie.
    pub(super) fn is_vectors(&self, x: &Lie) -> bool {
        // Parameters and results lie where the host puts them.
        let start = match self.places[x.root] {
            Some(Place::Parameter(offset) | Place::Result(offset)) => offset / ELEMENT,
            _ => 0,
        };
        let start = start + x.offset;
        x.has_dense_rows() && x.row.is_multiple_of(VECTOR) && start.is_multiple_of(VECTOR.into())
    }

    /// Activations as products read them: rows without gaps, whose first elements are aligned.
    pub(super) fn aligned(&mut self, x: Lie, live: u64) -> Lie {
        match self.is_vectors(&x) {
            true => self.dense_rows(x, live),
            false => self.copied(x, live, x.row_elements().next_multiple_of(VECTOR)),
        }
    }

    /// Groups of 8 rows in bf16 that products with quantised weights multiply, or 0 where they multiply int8 blocks.
    pub(super) fn bf16_groups(&self, rows: u32) -> u32 {
        if self.has_bf16 && rows > MOST_INT8_ROWS { rows.div_ceil(8) } else { 0 }
    }

    /// Bytes of rows as such products read them.
    pub(super) fn quantized_bytes(&self, rows: u32, k: u32) -> u64 {
        match self.bf16_groups(rows) {
            0 => quantized_bytes(rows, k),
            _ => bf16_bytes(rows, k),
        }
    }

    /// Where in `rows` rows of `k` elements as such products read them one begins whose number is a multiple of 8.
    pub(super) fn quantized_offset(&self, rows: u32, first: u32, k: u32) -> u64 {
        match self.bf16_groups(rows) {
            0 => quantized_bytes(first, k),
            _ => u64::from(first / 8) * BF16_GROUP_BYTES,
        }
    }

    /// Rows as products with quantised weights read them, made once.
    fn quantized(&mut self, x: Lie, live: u64, node: &Node) -> Id {
        self.quantized_as(self.bf16_groups(x.rows), x, live, node)
    }

    /// The same in int8 blocks, of which experts read any number of rows.
    pub(super) fn quantized_int8(&mut self, x: Lie, live: u64, node: &Node) -> Id {
        self.quantized_as(0, x, live, node)
    }

    fn quantized_as(&mut self, bf16_groups: u32, x: Lie, live: u64, node: &Node) -> Id {
        let key = (x, bf16_groups > 0);
        if let Some(&known) = self.known.quantized.get(&key) {
            return known;
        }
        let (rows, k) = (x.rows, x.row_elements());
        let out = self.intermediate(match bf16_groups {
            0 => quantized_bytes(rows, k),
            _ => bf16_bytes(rows, k),
        });
        let to = Ref::new(out, 0).token();
        self.push(&Quantize { x: x.address(), out: to, live, rows, k, x_row: x.row, bf16_groups });
        self.quantized_rows.push(self.live(self.value(node.inputs[0])));
        self.known.quantized.insert(key, out);
        out
    }

    pub(super) fn linear(&mut self, node: &Node) -> Lowered<&'static str> {
        let kind = self.packed(node.inputs[1])?;
        let value = self.value(node.inputs[0]);
        let live = self.live_address(value);
        let x = self.elements(node.inputs[0])?;
        let bias = match node.inputs.get(2) {
            Some(&id) => {
                let lie = self.elements(id)?;
                self.dense(lie, 0).address()
            }
            None => 0,
        };
        let x = self.aligned(x, live);
        let (rows, k) = (x.rows, x.row_elements());
        let activations = match kind.is_quantized() {
            true => Ref::new(self.quantized(x, live, node), 0).token(),
            false => x.address(),
        };
        let n = self.value(node.inputs[1]).shape.first();
        let out = self.output(node.outputs[0])?;
        let segment = LinearSegment {
            weight: Ref::new(node.inputs[1].index(), 0).token(),
            bias,
            add: 0,
            out: out.address(),
            n,
            out_row: n,
            add_row: 0,
            kind: kind.gguf_id(),
        };
        let bf16_groups = if kind.is_quantized() { self.bf16_groups(rows) } else { 0 };
        let product =
            Linear { x: activations, live, k, rows, x_row: x.row, bf16_groups, ..Default::default() };
        self.check_launch(&Linear { segment0: segment, ..product }.launch());
        self.add_segment(activations, segment, product, out.root);
        Ok(match bf16_groups {
            1.. => LINEAR_BF16,
            0 if kind.is_quantized() => LINEAR_INT8,
            _ => "linear, f32",
        })
    }

    /// Lets the weight join an earlier product of the same activations, or begins one.
    pub(super) fn add_segment(&mut self, activations: u64, segment: LinearSegment, new: Linear, out: Id) {
        let key = (activations, new.live, [new.k, new.rows, new.x_row], segment.kind);
        // A bias that is an activation may be made later than the product that the weight would join.
        let is_plain = segment.bias == 0 || {
            let id = Ref::from_token(segment.bias).map(|at| at.id);
            id.is_some_and(|id| !self.made.contains_key(&id))
        };
        let open = self.known.products.get(&key).copied().filter(|_| is_plain);
        if let Some(index) = open
            && let Some(Item::Product(product)) = self.items.get_mut(index)
            && let Some(free) = segments(product).into_iter().find(|segment| segment.weight == 0)
        {
            *free = segment;
            self.made.insert(out, index);
            return;
        }
        self.known.products.insert(key, self.items.len());
        self.made.insert(out, self.items.len());
        self.items.push(Item::Product(Linear { segment0: segment, ..new }));
    }

    /// Lets a product, or a sum of experts, add the other operand of `add` to its result, if nothing else reads that result
    /// and the operand is there before the product runs. The bits are those of the sum by itself.
    pub(super) fn add_to_product(&mut self, node: &Node) -> Lowered<bool> {
        let [x, y] = [node.inputs[0], node.inputs[1]];
        if self.value(x).shape != self.value(y).shape || self.value(x).live != self.value(y).live || x == y {
            return Ok(false);
        }
        for (product, other) in [(x, y), (y, x)] {
            if self.readers[product.index()] != 1 || self.is_result(product) {
                continue;
            }
            let (lie, operand) = (self.elements(product)?, self.elements(other)?);
            let Some(&index) = self.made.get(&lie.root) else { continue };
            let is_whole = lie.root == product.index() && lie.is_dense() && operand.has_dense_rows();
            // What no node makes is there from the beginning.
            let is_earlier = self.made.get(&operand.root).is_none_or(|&made| made < index);
            if !is_whole || !is_earlier {
                continue;
            }
            let address = lie.address();
            match self.items.get(index) {
                Some(&Item::Product(mut found)) => {
                    let free = |segment: &&mut LinearSegment| segment.out == address && segment.add == 0;
                    let Some(segment) = segments(&mut found).into_iter().find(free) else { continue };
                    (segment.add, segment.add_row) = (operand.address(), operand.row);
                    segment.out = self.output(node.outputs[0])?.address();
                    self.items[index] = Item::Product(found);
                }
                Some(&Item::Combine(mut found)) if found.out == address => {
                    match (found.add0, found.add1) {
                        (0, _) => (found.add0, found.add0_row) = (operand.address(), operand.row),
                        (_, 0) => (found.add1, found.add1_row) = (operand.address(), operand.row),
                        _ => continue,
                    }
                    found.out = self.output(node.outputs[0])?.address();
                    self.items[index] = Item::Combine(found);
                }
                _ => continue,
            }
            self.made.insert(node.outputs[0].index(), index);
            return Ok(true);
        }
        Ok(false)
    }
}
