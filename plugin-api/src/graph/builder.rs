//! Building graphs: a method per operation, shapes follow from the inputs.

use super::fragment::FragmentOutput;
use super::{
    Attribute, DType, Graph, GraphError, Node, ResultSlot, Shape, StateKind, Value, ValueId, ValueKind, ops,
    vendor_operation,
};

/// Blocks and parameters start at multiples of this many bytes.
const ALIGNMENT: u64 = 16;

/// How `rope/1` rotates.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rotation {
    /// Elements of a head that are rotated, an even number.
    pub rotary: u32,
    /// Base of the angles.
    pub base: f64,
    /// Pairs are (2i, 2i + 1) instead of (i, i + rotary/2).
    pub adjacent: bool,
    /// What positions are divided by.
    pub divisor: f64,
    /// A weight f32\[rotary/2\] of what each pair's angle is divided by.
    pub factors: Option<ValueId>,
}

/// How `route/1` weighs what it chose.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Routing {
    /// Each logit's sigmoid instead of the softmax of all.
    pub sigmoid: bool,
    /// Weights are divided by their sum.
    pub normalize: bool,
    /// Factor of the weights.
    pub factor: f32,
}

/// Builds a [`Graph`].
///
/// Methods panic on shapes that do not fit: a builder is called by code, never with data from outside that was
/// not checked before. [`Builder::node`] is the form that returns an error.
#[derive(Default)]
pub struct Builder {
    graph: Graph,
}

impl Builder {
    /// An empty graph.
    pub fn new() -> Self {
        Self::default()
    }

    fn push(&mut self, value: Value) -> ValueId {
        let id = ValueId(u32::try_from(self.graph.values.len()).expect("fewer than 2^32 values"));
        self.graph.values.push(value);
        id
    }

    fn shape(dims: &[u32]) -> Shape {
        Shape::new(dims).expect("at most 4 dimensions")
    }

    /// A weight; asking twice for the same name gives the same value.
    pub fn weight(&mut self, name: &str, dtype: DType, dims: &[u32]) -> ValueId {
        let known = self.graph.weights().find(|&id| self.graph.value(id).name == name);
        known.unwrap_or_else(|| {
            self.push(Value {
                kind: ValueKind::Weight,
                dtype,
                shape: Self::shape(dims),
                live: None,
                name: name.into(),
            })
        })
    }

    /// A state; asking twice for the same name gives the same value.
    pub fn state(&mut self, name: &str, kind: StateKind, dtype: DType, dims: &[u32]) -> ValueId {
        let known = self.graph.states().find(|&id| self.graph.value(id).name == name);
        known.unwrap_or_else(|| {
            self.push(Value {
                kind: ValueKind::State(kind),
                dtype,
                shape: Self::shape(dims),
                live: None,
                name: name.into(),
            })
        })
    }

    /// A parameter; its place in the parameter block follows the ones before. `live` is the count of axis 0.
    /// Asking twice for the same name gives the same value.
    pub fn parameter(&mut self, name: &str, dtype: DType, dims: &[u32], live: Option<ValueId>) -> ValueId {
        if let Some(known) = self.graph.parameter(name) {
            return known;
        }
        let offset = self.graph.parameter_bytes().next_multiple_of(ALIGNMENT);
        let offset = u32::try_from(offset).expect("a parameter block below 4 GiB");
        self.push(Value {
            kind: ValueKind::Parameter { offset },
            dtype,
            shape: Self::shape(dims),
            live,
            name: name.into(),
        })
    }

    /// Marks a value to appear in the result block under `name`.
    pub fn result(&mut self, name: &str, value: ValueId) {
        let offset = self.graph.result_bytes().next_multiple_of(ALIGNMENT);
        let offset = u32::try_from(offset).expect("a result block below 4 GiB");
        self.graph.results.push(ResultSlot { name: name.into(), value, offset });
    }

    /// Adds a node of any known operation; outputs follow from the operation.
    ///
    /// # Errors
    /// What is wrong with the operation, its inputs or attributes.
    pub fn node(
        &mut self,
        operation: &str,
        version: u32,
        inputs: &[ValueId],
        attributes: Vec<(String, Attribute)>,
    ) -> Result<Vec<ValueId>, GraphError> {
        let attributes = ops::canonical_attributes(operation, version, attributes);
        let outputs =
            ops::infer(&self.graph.values, operation, version, inputs, &attributes).map_err(|what| {
                GraphError::Node { node: self.graph.nodes.len(), operation: operation.into(), version, what }
            })?;
        Ok(self.push_node(operation, version, inputs, attributes, outputs))
    }

    /// Adds a node of a vendor's operation, whose outputs only its author can tell. Backends that do not know the
    /// operation refuse it by name.
    ///
    /// # Errors
    /// A name without the prefix of a vendor; outputs that no graph can have.
    pub fn vendor_node(
        &mut self,
        operation: &str,
        version: u32,
        inputs: &[ValueId],
        attributes: Vec<(String, Attribute)>,
        outputs: &[ops::Output],
    ) -> Result<Vec<ValueId>, GraphError> {
        vendor_operation(&format!("{operation}/{version}")).map_err(|what| GraphError::Node {
            node: self.graph.nodes.len(),
            operation: operation.into(),
            version,
            what,
        })?;
        let attributes = ops::canonical_attributes(operation, version, attributes);
        let before = self.graph.clone();
        let made = self.push_node(operation, version, inputs, attributes, outputs.to_vec());
        // A vendor's outputs follow from nothing, so the whole graph has to bear them.
        if let Err(error) = self.graph.validate() {
            self.graph = before;
            return Err(error);
        }
        Ok(made)
    }

    fn push_node(
        &mut self,
        operation: &str,
        version: u32,
        inputs: &[ValueId],
        attributes: Vec<(String, Attribute)>,
        outputs: Vec<ops::Output>,
    ) -> Vec<ValueId> {
        let outputs: Vec<ValueId> = outputs
            .into_iter()
            .map(|o| {
                self.push(Value {
                    kind: ValueKind::Node,
                    dtype: o.dtype,
                    shape: o.shape,
                    live: o.live,
                    name: String::new(),
                })
            })
            .collect();
        self.graph.nodes.push(Node {
            operation: operation.into(),
            version,
            attributes,
            inputs: inputs.to_vec(),
            outputs: outputs.clone(),
        });
        outputs
    }

    fn add_node(
        &mut self,
        operation: &str,
        inputs: &[ValueId],
        attributes: &[(&str, Attribute)],
    ) -> Vec<ValueId> {
        let attributes = attributes.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect();
        self.node(operation, 1, inputs, attributes).unwrap_or_else(|error| panic!("graph builder: {error}"))
    }

    fn one(&mut self, operation: &str, inputs: &[ValueId], attributes: &[(&str, Attribute)]) -> ValueId {
        self.add_node(operation, inputs, attributes)[0]
    }

    /// Dimensions of a value.
    pub fn dims(&self, value: ValueId) -> &[u32] {
        self.graph.value(value).shape.dims()
    }

    /// Data type of a value.
    pub fn dtype(&self, value: ValueId) -> DType {
        self.graph.value(value).dtype
    }

    /// `embed/1`: rows of `table`; the second value counts ids out of range.
    pub fn embed(&mut self, ids: ValueId, table: ValueId) -> (ValueId, ValueId) {
        let outputs = self.add_node("embed", &[ids, table], &[]);
        (outputs[0], outputs[1])
    }

    /// `rms_norm/1` with a weight.
    pub fn rms_norm(&mut self, x: ValueId, weight: ValueId, eps: f32) -> ValueId {
        self.one("rms_norm", &[x, weight], &[("eps", float(eps))])
    }

    /// `rms_norm/1` with a weight, times silu(gate).
    pub fn rms_norm_gated(&mut self, x: ValueId, weight: ValueId, gate: ValueId, eps: f32) -> ValueId {
        self.one("rms_norm", &[x, weight, gate], &[("eps", float(eps)), ("gate", Attribute::Integer(1))])
    }

    /// `l2_norm/1`.
    pub fn l2_norm(&mut self, x: ValueId, eps: f32) -> ValueId {
        self.one("l2_norm", &[x], &[("eps", float(eps))])
    }

    /// `linear/1` without bias.
    pub fn linear(&mut self, x: ValueId, weight: ValueId) -> ValueId {
        self.one("linear", &[x, weight], &[])
    }

    /// `linear/1` with bias.
    pub fn linear_bias(&mut self, x: ValueId, weight: ValueId, bias: ValueId) -> ValueId {
        self.one("linear", &[x, weight, bias], &[("bias", Attribute::Integer(1))])
    }

    /// `add/1`.
    pub fn add(&mut self, x: ValueId, y: ValueId) -> ValueId {
        self.one("add", &[x, y], &[])
    }

    /// `mul/1`.
    pub fn mul(&mut self, x: ValueId, y: ValueId) -> ValueId {
        self.one("mul", &[x, y], &[])
    }

    /// `scale/1`.
    pub fn scale(&mut self, x: ValueId, factor: f32) -> ValueId {
        self.one("scale", &[x], &[("factor", float(factor))])
    }

    /// `activation/1`.
    pub fn activation(&mut self, x: ValueId, kind: &str) -> ValueId {
        self.one("activation", &[x], &[("kind", text(kind))])
    }

    /// `glu/1`.
    pub fn glu(&mut self, gate: ValueId, up: ValueId, kind: &str) -> ValueId {
        self.one("glu", &[gate, up], &[("kind", text(kind))])
    }

    /// `reshape/1`.
    pub fn reshape(&mut self, x: ValueId, dims: &[u32]) -> ValueId {
        let dims = dims.iter().map(|&d| i64::from(d)).collect();
        self.one("reshape", &[x], &[("dims", Attribute::Integers(dims))])
    }

    /// `slice/1` on the last axis.
    pub fn slice(&mut self, x: ValueId, offset: u32, length: u32) -> ValueId {
        let attributes =
            [("offset", Attribute::Integer(offset.into())), ("length", Attribute::Integer(length.into()))];
        self.one("slice", &[x], &attributes)
    }

    /// `concat/1` on the last axis.
    pub fn concat(&mut self, parts: &[ValueId]) -> ValueId {
        self.one("concat", parts, &[])
    }

    /// `rope/1` with the pairing (i, i + rotary/2).
    pub fn rope(&mut self, x: ValueId, positions: ValueId, rotary: u32, base: f64) -> ValueId {
        let attributes = [("rotary", Attribute::Integer(rotary.into())), ("base", Attribute::Float(base))];
        self.one("rope", &[x, positions], &attributes)
    }

    /// `rope/1` in any form.
    pub fn rope_with(&mut self, x: ValueId, positions: ValueId, rotation: &Rotation) -> ValueId {
        let inputs: Vec<ValueId> = [x, positions].into_iter().chain(rotation.factors).collect();
        let attributes = [
            ("rotary", Attribute::Integer(rotation.rotary.into())),
            ("base", Attribute::Float(rotation.base)),
            ("pairing", text(if rotation.adjacent { "adjacent" } else { "half" })),
            ("divisor", Attribute::Float(rotation.divisor)),
            ("factors", Attribute::Integer(rotation.factors.is_some().into())),
        ];
        self.one("rope", &inputs, &attributes)
    }

    /// `table_update/1`.
    pub fn table_update(&mut self, table: ValueId, updates: ValueId) {
        self.add_node("table_update", &[table, updates], &[]);
    }

    /// `kv_append/1`.
    pub fn kv_append(&mut self, k: ValueId, v: ValueId, caches: [ValueId; 2], cells: ValueId) {
        self.add_node("kv_append", &[k, v, caches[0], caches[1], cells], &[]);
    }

    /// `attention/1`, causal, without window, cap or sinks.
    pub fn attention(
        &mut self,
        q: ValueId,
        caches: [ValueId; 2],
        table: ValueId,
        sequences: ValueId,
        scale: f32,
    ) -> ValueId {
        self.one("attention", &[q, caches[0], caches[1], table, sequences], &[("scale", float(scale))])
    }

    /// `rows_store/1`: row r of x becomes entry `cells[r]` of `state`.
    pub fn rows_store(&mut self, x: ValueId, state: ValueId, cells: ValueId) {
        self.add_node("rows_store", &[x, state, cells], &[]);
    }

    /// `rows_load/1`: the entries of `state` that `cells` names.
    pub fn rows_load(&mut self, state: ValueId, cells: ValueId) -> ValueId {
        self.one("rows_load", &[state, cells], &[])
    }

    /// `lookup/1`: the entries of `table`, a weight of i32, that `ids` names.
    pub fn lookup(&mut self, ids: ValueId, table: ValueId) -> ValueId {
        self.one("lookup", &[ids, table], &[])
    }

    /// `conv_causal/1` with silu.
    pub fn conv_causal_silu(
        &mut self,
        x: ValueId,
        w: ValueId,
        state: ValueId,
        sequences: ValueId,
    ) -> ValueId {
        self.one("conv_causal", &[x, w, state, sequences], &[("activation", text("silu"))])
    }

    /// `conv_causal/1` with silu and so many planes per slot; without `rollback` where one plane is all.
    pub fn conv_causal_silu_planes(
        &mut self,
        x: ValueId,
        w: ValueId,
        state: ValueId,
        sequences: ValueId,
        rollback: ValueId,
        planes: u32,
    ) -> ValueId {
        let inputs = [x, w, state, sequences, rollback];
        let inputs = if planes == 1 { &inputs[..4] } else { &inputs };
        let attributes = [("activation", text("silu")), ("planes", Attribute::Integer(planes.into()))];
        self.one("conv_causal", inputs, &attributes)
    }

    /// `gated_delta_net/1` in plain mode: inputs q, k, v, log decay, beta.
    pub fn gated_delta_net(
        &mut self,
        inputs: [ValueId; 5],
        state: ValueId,
        sequences: ValueId,
        scale: f32,
    ) -> ValueId {
        let [q, k, v, g, beta] = inputs;
        self.one("gated_delta_net", &[q, k, v, g, beta, state, sequences], &[("scale", float(scale))])
    }

    /// `gated_delta_net/1` that keeps the state after each of the last `planes` rows: `state` has so many entries per
    /// slot.
    pub fn gated_delta_net_snapshots(
        &mut self,
        inputs: [ValueId; 5],
        state: ValueId,
        sequences: ValueId,
        rollback: ValueId,
        planes: u32,
        scale: f32,
    ) -> ValueId {
        let [q, k, v, g, beta] = inputs;
        let attributes = [
            ("mode", text("snapshots")),
            ("planes", Attribute::Integer(planes.into())),
            ("scale", float(scale)),
        ];
        self.one("gated_delta_net", &[q, k, v, g, beta, state, sequences, rollback], &attributes)
    }

    /// `gated_delta_net/1` that keeps records of the last rows instead of their states.
    pub fn gated_delta_net_records(
        &mut self,
        inputs: [ValueId; 5],
        state: ValueId,
        sequences: ValueId,
        records: ValueId,
        rollback: ValueId,
        scale: f32,
    ) -> ValueId {
        let [q, k, v, g, beta] = inputs;
        let attributes = [("mode", text("records")), ("scale", float(scale))];
        self.one("gated_delta_net", &[q, k, v, g, beta, state, sequences, records, rollback], &attributes)
    }

    /// `gated_delta_net_replay/1`: applies the kept records to `state`.
    pub fn gated_delta_net_replay(
        &mut self,
        state: ValueId,
        records: ValueId,
        sequences: ValueId,
        rollback: ValueId,
    ) {
        self.add_node("gated_delta_net_replay", &[state, records, sequences, rollback], &[]);
    }

    /// `select_rows/1`.
    pub fn select_rows(&mut self, x: ValueId, rows: ValueId) -> ValueId {
        self.one("select_rows", &[x, rows], &[])
    }

    /// `argmax/1`: ids, and the count of rows with NaN.
    pub fn argmax(&mut self, x: ValueId) -> (ValueId, ValueId) {
        let outputs = self.add_node("argmax", &[x], &[]);
        (outputs[0], outputs[1])
    }

    /// `draw/1`: ids, and the count of rows with NaN. `tokens` is a weight with the token of every column.
    pub fn draw(&mut self, x: ValueId, noise: ValueId, tokens: Option<ValueId>) -> (ValueId, ValueId) {
        let inputs = [Some(x), Some(noise), tokens].into_iter().flatten().collect::<Vec<_>>();
        let attributes = [("tokens", Attribute::Integer(1))];
        let outputs = self.add_node("draw", &inputs, &attributes[..usize::from(tokens.is_some())]);
        (outputs[0], outputs[1])
    }

    /// `top_k/1`: ids and values.
    pub fn top_k(&mut self, x: ValueId, k: u32) -> (ValueId, ValueId) {
        let outputs = self.add_node("top_k", &[x], &[("k", Attribute::Integer(k.into()))]);
        (outputs[0], outputs[1])
    }

    /// `softmax/1`.
    pub fn softmax(&mut self, x: ValueId) -> ValueId {
        self.one("softmax", &[x], &[])
    }

    /// `route/1`: ids and weights of the `k` chosen experts of each row.
    pub fn route(&mut self, logits: ValueId, k: u32, routing: Routing) -> (ValueId, ValueId) {
        let attributes = [
            ("factor", float(routing.factor)),
            ("k", Attribute::Integer(k.into())),
            ("normalize", Attribute::Integer(routing.normalize.into())),
            ("scoring", text(if routing.sigmoid { "sigmoid" } else { "softmax" })),
        ];
        let outputs = self.add_node("route", &[logits], &attributes);
        (outputs[0], outputs[1])
    }

    /// `experts/1`: `matrices` are gate, up and down, `choice` the ids and weights of each row.
    pub fn experts(
        &mut self,
        x: ValueId,
        matrices: [ValueId; 3],
        choice: (ValueId, ValueId),
        kind: &str,
    ) -> ValueId {
        let [gate, up, down] = matrices;
        self.one("experts", &[x, gate, up, down, choice.0, choice.1], &[("kind", text(kind))])
    }

    /// A part of the model's family that the host puts in place of this node, before a backend sees the graph:
    /// `name` and its inputs and outputs are those of the fragment (see [`super::fragment`]). Outputs of live rows have
    /// the live count of the first input.
    pub fn fragment(&mut self, name: &str, inputs: &[ValueId], outputs: &[FragmentOutput]) -> Vec<ValueId> {
        let live = inputs.first().and_then(|&input| self.graph.value(input).live);
        let outputs: Vec<ValueId> = outputs
            .iter()
            .map(|output| {
                self.push(Value {
                    kind: ValueKind::Node,
                    dtype: output.dtype,
                    shape: output.shape,
                    live: if output.rows { live } else { None },
                    name: String::new(),
                })
            })
            .collect();
        self.graph.nodes.push(Node {
            operation: super::fragment::OPERATION.into(),
            version: 1,
            attributes: vec![("name".into(), text(name))],
            inputs: inputs.to_vec(),
            outputs: outputs.clone(),
        });
        outputs
    }

    /// The finished graph.
    pub fn finish(self) -> Graph {
        debug_assert_eq!(self.graph.validate(), Ok(()));
        self.graph
    }

    pub(super) fn graph(&self) -> &Graph {
        &self.graph
    }

    pub(super) fn push_value(&mut self, value: Value) -> ValueId {
        self.push(value)
    }
}

fn float(value: f32) -> Attribute {
    Attribute::Float(f64::from(value))
}

fn text(value: &str) -> Attribute {
    Attribute::Text(value.into())
}
