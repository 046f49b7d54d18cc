//! Nodes to kernels.

mod experts;
mod sequences;
mod states;

use super::schedule::phases;
use super::{ALIGNMENT, CpuPlan, Id, Kernel, Linear, Live, Place, Program, Rotation, RowKernel, StateLayout};
use crate::capabilities::Capabilities;
use crate::kernels::elementwise::Activation;
use crate::kernels::kv::CellFormat;
use crate::layout::Layout;
use crate::quantized;
use paceline_plugin_api::backend::{NodePlan, PlanSummary, StatePlan, UNLIMITED_ROWS, WeightLayout};
use paceline_plugin_api::graph::ops::Attributes;
use paceline_plugin_api::graph::{DType, Graph, Node, StateKind, Value, ValueId, ValueKind};
use paceline_plugin_api::support::{self, Intermediate, Numerics, ParameterCheck, place_intermediates};
use paceline_plugin_api::{Error, Result};
use std::collections::HashMap;

/// Names the arithmetic of all kernels; changes when any kernel's bits change.
const NUMERICS_FAMILY: &str = "cpu kernels 2";

/// Lowers a validated graph. Nodes that have no kernel are refused in the plan's summary.
pub(crate) fn lower(graph: Graph, capabilities: Capabilities, layouts: &[WeightLayout]) -> Result<CpuPlan> {
    let results = graph.results();
    if results.iter().enumerate().any(|(i, r)| results[..i].iter().any(|other| other.value == r.value)) {
        return Err(Error::invalid("a value is marked as a result twice"));
    }
    let mut lowering = Lowering::new(&graph, layouts)?;
    let mut nodes = Vec::with_capacity(graph.nodes().len());
    for node in graph.nodes() {
        nodes.push(match lowering.node(node) {
            Ok(kernel) => lowering.describe(node, kernel),
            Err(reason) => NodePlan::Refused { reason },
        });
    }
    let refused = nodes.iter().any(|n| matches!(n, NodePlan::Refused { .. }));
    if refused {
        lowering.kernels.clear();
    }
    let weight_bytes = layouts.iter().map(|layout| layout.bytes).collect();
    let program = lowering.finish(capabilities, weight_bytes);
    let states = program
        .states
        .iter()
        .map(|layout| StatePlan {
            bytes: layout.bytes() as u64,
            alignment: ALIGNMENT as u64,
            layout: match layout {
                StateLayout::Cache { format, .. } => 1 + *format as u64,
                StateLayout::Plain { .. } => 0x100,
            },
        })
        .collect();
    let summary = PlanSummary {
        workspace_bytes: program.workspace_bytes as u64,
        workspace_alignment: ALIGNMENT as u64,
        parameter_bytes: graph.parameter_bytes(),
        result_bytes: graph.result_bytes(),
        nodes,
        states,
    };
    Ok(CpuPlan::new(program, graph, summary))
}

struct Lowering<'g> {
    graph: &'g Graph,
    kernels: Vec<Kernel>,
    checks: Vec<ParameterCheck>,
    rotations: Vec<Rotation>,
    counters: Vec<Id>,
    places: Vec<Option<Place>>,
    intermediates: Vec<Intermediate>,
    /// The value whose memory another one is: reshapes are free.
    root: Vec<Id>,
    /// Layouts of weights, by value.
    layouts: HashMap<Id, Layout>,
    /// Indices of states among the states, by value.
    states: HashMap<Id, usize>,
    state_layouts: Vec<StateLayout>,
    quantized: HashMap<Id, Id>,
    angles: HashMap<(Id, usize, Option<Id>), Id>,
    visible: HashMap<(Id, usize, bool), Id>,
}

type Lowered<T> = std::result::Result<T, String>;

impl<'g> Lowering<'g> {
    fn new(graph: &'g Graph, layouts: &[WeightLayout]) -> Result<Self> {
        let values = graph.values();
        let mut lowering = Self {
            graph,
            kernels: Vec::new(),
            checks: Vec::new(),
            rotations: Vec::new(),
            counters: Vec::new(),
            places: vec![None; values.len()],
            intermediates: Vec::new(),
            root: (0..values.len()).collect(),
            layouts: HashMap::new(),
            states: HashMap::new(),
            state_layouts: Vec::new(),
            quantized: HashMap::new(),
            angles: HashMap::new(),
            visible: HashMap::new(),
        };
        for (index, id) in graph.weights().enumerate() {
            let layout = Layout::from_id(layouts[index].layout).ok_or_else(|| {
                Error::invalid(format!(
                    "weight `{}`: layout {} is not the CPU backend's",
                    graph.value(id).name,
                    layouts[index].layout
                ))
            })?;
            lowering.places[id.index()] = Some(Place::Weight(index));
            lowering.layouts.insert(id.index(), layout);
        }
        for (index, id) in graph.states().enumerate() {
            lowering.places[id.index()] = Some(Place::State(index));
            lowering.states.insert(id.index(), index);
            lowering.state_layouts.push(state_layout(graph.value(id)));
        }
        for id in graph.parameters() {
            if let ValueKind::Parameter { offset } = graph.value(id).kind {
                lowering.places[id.index()] = Some(Place::Parameter(offset as usize));
            }
        }
        lowering.checks = ParameterCheck::counts(graph);
        Ok(lowering)
    }

    fn value(&self, id: ValueId) -> &'g Value {
        self.graph.value(id)
    }

    fn live(&self, value: &Value) -> Live {
        let live = support::Live::of(self.graph, value);
        Live { offset: live.offset.map(|offset| offset as usize), max: live.max as usize }
    }

    fn root(&self, id: ValueId) -> Id {
        self.root[id.index()]
    }

    fn parameter_offset(&self, id: ValueId) -> Lowered<usize> {
        match self.value(id).kind {
            ValueKind::Parameter { offset } => Ok(offset as usize),
            _ => Err("it must be a parameter here".into()),
        }
    }

    /// A new intermediate.
    fn intermediate(&mut self, bytes: usize) -> Id {
        let id = self.places.len();
        self.places.push(None);
        self.root.push(id);
        self.intermediates.push(Intermediate { id, bytes: bytes as u64 });
        id
    }

    /// Gives a node's output a place: in the result block if it is a result, else in the workspace.
    fn output(&mut self, id: ValueId) -> Lowered<Id> {
        let bytes = self.value(id).bytes().ok_or("its output has no size")? as usize;
        match self.graph.results().iter().find(|r| r.value == id) {
            Some(result) => self.places[id.index()] = Some(Place::Result(result.offset as usize)),
            None => self.intermediates.push(Intermediate { id: id.index(), bytes: bytes as u64 }),
        }
        Ok(id.index())
    }

    /// Elements of an input that is read one by one: an activation or a weight in plain layout.
    fn elements(&self, id: ValueId) -> Lowered<Id> {
        match self.layouts.get(&id.index()) {
            Some(Layout::Packed(_)) => {
                Err(format!("weight `{}` is laid out for products, not for elements", self.value(id).name))
            }
            _ => Ok(self.root(id)),
        }
    }

    fn packed(&self, id: ValueId) -> Lowered<crate::weights::WeightType> {
        match self.layouts.get(&id.index()) {
            Some(Layout::Packed(kind)) => Ok(*kind),
            _ => Err(format!("weight `{}` is not laid out for products", self.value(id).name)),
        }
    }

    fn rows(&mut self, value: &Value, kernel: RowKernel) {
        let live = self.live(value);
        let width = value.shape.row_elements() as usize;
        self.kernels.push(Kernel::Rows { live, chain: vec![(kernel, width)] });
    }

    /// Lowers one node and returns its kernel's name, or why it has none.
    fn node(&mut self, node: &Node) -> Lowered<&'static str> {
        if node.version != 1 {
            return Err(format!("the CPU backend does not know {}/{}", node.operation, node.version));
        }
        let attributes = Attributes::of(node);
        let x = node.inputs.first().copied();
        let first = x.map(|id| self.value(id));
        let (Some(x), Some(value)) = (x, first) else {
            return Err("it has no inputs".into());
        };
        match node.operation.as_str() {
            "embed" => self.embed(node),
            "rms_norm" => {
                let mut operands = node.inputs[1..].iter();
                let mut operand = |present: bool, this: &Self| -> Lowered<Option<Id>> {
                    match operands.next().filter(|_| present) {
                        Some(&id) => this.elements(id).map(Some),
                        None => Ok(None),
                    }
                };
                let weight = if attributes.flag("weight") { operand(true, self)? } else { None };
                let gate = operand(attributes.flag("gate"), self)?;
                let kernel = RowKernel::RmsNorm {
                    x: self.elements(x)?,
                    weight,
                    gate,
                    epsilon: attributes.float("eps") as f32,
                    norm: value.shape.last() as usize,
                    out: self.output(node.outputs[0])?,
                };
                self.rows(value, kernel);
                Ok("rms_norm")
            }
            "l2_norm" => {
                let kernel = RowKernel::L2Norm {
                    x: self.elements(x)?,
                    epsilon: attributes.float("eps") as f32,
                    norm: value.shape.last() as usize,
                    out: self.output(node.outputs[0])?,
                };
                self.rows(value, kernel);
                Ok("l2_norm")
            }
            "linear" => self.linear(node),
            "add" | "mul" => self.broadcast(node),
            "scale" => {
                let factor = attributes.float("factor") as f32;
                let kernel =
                    RowKernel::Scale { x: self.elements(x)?, factor, out: self.output(node.outputs[0])? };
                self.rows(value, kernel);
                Ok("scale")
            }
            "activation" => {
                let kind = attributes.text("kind");
                let softcap = attributes.float("softcap") as f32;
                // The kernel caps before the function; the operation is c·f(x/c), the same for tanh alone.
                let (kind, cap) = match (kind, softcap != 0.0) {
                    ("tanh", true) => (Activation::Identity, Some(softcap)),
                    (_, true) => return Err(format!("softcap with `{kind}` has no kernel, only with tanh")),
                    (_, false) => (activation(kind)?, None),
                };
                let kernel = RowKernel::Activation {
                    x: self.elements(x)?,
                    kind,
                    cap,
                    out: self.output(node.outputs[0])?,
                };
                self.rows(value, kernel);
                Ok("activation")
            }
            "glu" => {
                let kernel = RowKernel::Glu {
                    gate: self.elements(x)?,
                    up: self.elements(node.inputs[1])?,
                    kind: activation(attributes.text("kind"))?,
                    out: self.output(node.outputs[0])?,
                };
                self.rows(value, kernel);
                Ok("glu")
            }
            "reshape" => self.reshape(node),
            "slice" => {
                let kernel = RowKernel::Columns {
                    x: self.elements(x)?,
                    from_width: value.shape.last() as usize,
                    from: attributes.integer("offset") as usize,
                    out: self.output(node.outputs[0])?,
                    to_width: attributes.integer("length") as usize,
                    to: 0,
                    count: attributes.integer("length") as usize,
                };
                self.rows(value, kernel);
                Ok("slice")
            }
            "concat" => self.concat(node),
            "rope" => self.rope(node),
            "table_update" => self.table_update(node),
            "kv_append" => self.kv_append(node),
            "attention" => self.attention(node),
            "rows_store" => self.rows_store(node),
            "rows_load" => self.rows_load(node),
            "conv_causal" => self.conv(node),
            "gated_delta_net" => self.delta(node),
            "gated_delta_net_replay" => self.replay(node),
            "select_rows" => self.select_rows(node),
            "lookup" => self.lookup(node),
            "argmax" => {
                let (x, ids) = (self.elements(x)?, self.output(node.outputs[0])?);
                let faults = self.output(node.outputs[1])?;
                self.counters.push(faults);
                self.rows(value, RowKernel::Argmax { x, ids, faults });
                Ok("argmax")
            }
            "draw" => self.draw(node),
            "top_k" => {
                let kernel = RowKernel::TopK {
                    x: self.elements(x)?,
                    count: attributes.integer("k") as usize,
                    ids: self.output(node.outputs[0])?,
                    values: self.output(node.outputs[1])?,
                };
                self.rows(value, kernel);
                Ok("top_k")
            }
            "softmax" => {
                let kernel = RowKernel::Softmax {
                    x: self.elements(x)?,
                    norm: value.shape.last() as usize,
                    out: self.output(node.outputs[0])?,
                };
                self.rows(value, kernel);
                Ok("softmax")
            }
            "route" => self.route(node),
            "experts" => self.experts(node),
            other => Err(format!("the CPU backend does not know {other}/{}", node.version)),
        }
    }

    fn embed(&mut self, node: &Node) -> Lowered<&'static str> {
        let kind = self.packed(node.inputs[1])?;
        let out = self.output(node.outputs[0])?;
        let faults = self.output(node.outputs[1])?;
        self.counters.push(faults);
        let kernel = RowKernel::Embed {
            ids: self.root(node.inputs[0]),
            table: node.inputs[1].index(),
            kind,
            vocabulary: self.value(node.inputs[1]).shape.first() as usize,
            out,
            faults,
        };
        self.rows(self.value(node.outputs[0]), kernel);
        Ok("embed")
    }

    fn linear(&mut self, node: &Node) -> Lowered<&'static str> {
        let kind = self.packed(node.inputs[1])?;
        let x = node.inputs[0];
        let value = self.value(x);
        let k = value.shape.last() as usize;
        let plain = self.elements(x)?;
        let activations = if kind.is_quantized() { self.quantized_rows(value, plain) } else { plain };
        let bias = node.inputs.get(2).map(|&id| self.elements(id)).transpose()?;
        let out = self.output(node.outputs[0])?;
        let n = self.value(node.inputs[1]).shape.first() as usize;
        let weight = node.inputs[1].index();
        let live = self.live(value);
        self.kernels.push(Kernel::Linear(Linear { weight, kind, n, k, activations, bias, out, live }));
        Ok(if kind.is_quantized() { "linear over panels, int8" } else { "linear over panels, f32" })
    }

    /// The quantised form of rows, made once for all products that read them.
    fn quantized_rows(&mut self, value: &Value, plain: Id) -> Id {
        if let Some(&known) = self.quantized.get(&plain) {
            return known;
        }
        let bytes = quantized::row_bytes(value.shape.last() as usize);
        let out = self.intermediate(value.shape.first() as usize * bytes);
        self.rows(value, RowKernel::Quantize { x: plain, out });
        self.quantized.insert(plain, out);
        out
    }

    fn broadcast(&mut self, node: &Node) -> Lowered<&'static str> {
        let (value, other) = (self.value(node.inputs[0]), self.value(node.inputs[1]));
        // The second operand is either repeated whole within a row, or a row of its own.
        let y_width = match other.shape.rank() == value.shape.rank() {
            true => other.shape.row_elements() as usize,
            false => other.shape.elements().unwrap_or(0) as usize,
        };
        if other.shape.rank() == value.shape.rank() && value.shape.rank() < 2 {
            return Err("operands of one dimension have no kernel".into());
        }
        let (x, y) = (self.elements(node.inputs[0])?, self.elements(node.inputs[1])?);
        let out = self.output(node.outputs[0])?;
        // A width of 0 says that y has rows like x.
        let y_width = if other.shape.rank() == value.shape.rank() { 0 } else { y_width };
        let add = node.operation == "add";
        let kernel = match add {
            true => RowKernel::Add { x, y, y_width, out },
            false => RowKernel::Mul { x, y, y_width, out },
        };
        self.rows(value, kernel);
        Ok(if add { "add" } else { "mul" })
    }

    fn reshape(&mut self, node: &Node) -> Lowered<&'static str> {
        let (x, output) = (node.inputs[0], node.outputs[0]);
        let is_result = self.graph.results().iter().any(|r| r.value == output);
        let (value, out) = (self.value(x), self.value(output));
        // Axis 0 counts rows; a reshape that changes it, or whose output has a place of its own, is a copy.
        if !is_result && value.shape.first() == out.shape.first() {
            self.root[output.index()] = self.elements(x)?;
            return Ok("view");
        }
        if value.shape.first() != out.shape.first() {
            return Err("a reshape that changes axis 0 has no kernel".into());
        }
        let width = value.shape.row_elements() as usize;
        let kernel = RowKernel::Columns {
            x: self.elements(x)?,
            from_width: width,
            from: 0,
            out: self.output(output)?,
            to_width: width,
            to: 0,
            count: width,
        };
        self.rows(value, kernel);
        Ok("copy")
    }

    fn concat(&mut self, node: &Node) -> Lowered<&'static str> {
        let out = self.output(node.outputs[0])?;
        let to_width = self.value(node.outputs[0]).shape.last() as usize;
        let mut to = 0;
        for &id in &node.inputs {
            let value = self.value(id);
            let from_width = value.shape.last() as usize;
            let x = self.elements(id)?;
            let kernel = RowKernel::Columns { x, from_width, from: 0, out, to_width, to, count: from_width };
            self.rows(value, kernel);
            to += from_width;
        }
        Ok("concat")
    }

    /// What the plan says about a node that has a kernel.
    fn describe(&self, node: &Node, kernel: &str) -> NodePlan {
        let mut numerics = Numerics::new(NUMERICS_FAMILY);
        numerics.text(kernel);
        numerics.text(&node.operation);
        numerics.attributes(node);
        let (mut bytes_read, mut operations) = (0, 0);
        for &id in &node.inputs {
            let value = self.value(id);
            match value.kind {
                ValueKind::Weight => {
                    numerics.text(&value.dtype.to_string());
                    let rows = u64::from(self.value(node.inputs[0]).shape.first());
                    let (bytes, elements) = (value.bytes().unwrap_or(0), value.shape.elements().unwrap_or(0));
                    let (read, used) = self.expert_share(node, value).unwrap_or((1.0, rows as f64));
                    bytes_read += (bytes as f64 * read) as u64;
                    operations += (elements as f64 * used) as u64;
                }
                ValueKind::State(StateKind::PerPosition) => numerics.text(&value.dtype.to_string()),
                // Only written.
                ValueKind::State(_) if node.operation == "rows_store" => {}
                ValueKind::State(_) => bytes_read += value.bytes().unwrap_or(0),
                _ => {}
            }
        }
        if matches!(node.operation.as_str(), "embed" | "rows_load") {
            let row = self.value(node.outputs[0]).shape.row_elements() * 4;
            (bytes_read, operations) = (row * u64::from(self.value(node.outputs[0]).shape.first()), 0);
        }
        NodePlan::Kernel {
            kernel: kernel.to_owned(),
            row_invariance: UNLIMITED_ROWS,
            numerics: numerics.id(),
            bytes_read,
            operations,
        }
    }

    fn finish(self, capabilities: Capabilities, weight_bytes: Vec<u64>) -> Program {
        let phases = phases(self.kernels);
        let scratch_floats = phases
            .iter()
            .flatten()
            .map(Kernel::scratch_floats)
            .max()
            .unwrap_or(0)
            .next_multiple_of(ALIGNMENT / 4);
        let touches = phases.iter().enumerate().flat_map(|(phase, kernels)| {
            let ids = kernels.iter().flat_map(|kernel| kernel.reads().into_iter().chain(kernel.writes()));
            ids.map(move |id| (phase, id))
        });
        let (offsets, total) = place_intermediates(touches, &self.intermediates, ALIGNMENT as u64, 0);
        let mut total = total as usize;
        let mut places: Vec<Option<Place>> = self.places;
        for (id, offset) in offsets {
            places[id] = Some(Place::Workspace(offset as usize));
        }
        let scratch = total;
        total += scratch_floats * size_of::<f32>() * capabilities.threads;
        Program {
            phases,
            // A value that no kernel touches, such as a view, is never looked up.
            places: places.into_iter().map(|p| p.unwrap_or(Place::Workspace(0))).collect(),
            parameter_bytes: self.graph.parameter_bytes() as usize,
            checks: self.checks,
            counters: self.counters,
            rotations: self.rotations,
            states: self.state_layouts,
            weight_bytes,
            scratch,
            scratch_floats,
            threads: capabilities.threads,
            workspace_bytes: total,
        }
    }
}

fn activation(kind: &str) -> Lowered<Activation> {
    Ok(match kind {
        "silu" => Activation::Silu,
        "gelu" => Activation::Gelu,
        "gelu_tanh" => Activation::GeluTanh,
        "sigmoid" => Activation::Sigmoid,
        "softplus" => Activation::Softplus,
        "tanh" => Activation::Tanh,
        "exp" => Activation::Exp,
        other => return Err(format!("activation `{other}` has no kernel")),
    })
}

fn state_layout(value: &Value) -> StateLayout {
    let dims = value.shape.dims();
    let format = match value.dtype {
        DType::F32 => Some(CellFormat::F32),
        DType::F16 => Some(CellFormat::F16),
        DType::Q8_0 => Some(CellFormat::Q8_0),
        DType::Q4_0 => Some(CellFormat::Q4_0),
        DType::Q4_1 => Some(CellFormat::Q4_1),
        DType::Q5_0 => Some(CellFormat::Q5_0),
        DType::Q5_1 => Some(CellFormat::Q5_1),
        _ => None,
    };
    match (value.kind, format, dims) {
        (ValueKind::State(StateKind::PerPosition), Some(format), &[blocks, _, heads, width]) => {
            StateLayout::Cache {
                format,
                blocks: blocks as usize,
                heads: heads as usize,
                width: width as usize,
            }
        }
        _ => {
            let entries = value.shape.first() as usize;
            StateLayout::Plain { entries, bytes: value.bytes().unwrap_or(0) as usize / entries.max(1) }
        }
    }
}
