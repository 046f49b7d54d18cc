//! Nodes to launches.

mod describe;
mod elementwise;
mod experts;
mod fusions;
mod led;
mod products;
mod quantized;
mod sequences;
mod states;

use super::view::{ELEMENT, Lie, rows_of};
use super::{ALIGNMENT, GpuPlan, Id, KernelStep, Place, Program, Ref, StateLayout, Step};
use crate::layout::Layout;
use describe::describe;
use fusions::Fusions;
use paceline_kernels::params::elementwise::CopyItems;
use paceline_kernels::params::experts::ExpertsCombine;
use paceline_kernels::params::led::Maker;
use paceline_kernels::params::linear::Linear;
use paceline_kernels::params::{Launch, Parameters, View};
use paceline_plugin_api::backend::{NodePlan, PlanSummary, StatePlan, WeightLayout};
use paceline_plugin_api::graph::{Graph, Node, Value, ValueId, ValueKind};
use paceline_plugin_api::support::{Intermediate, Live, ParameterCheck, place_intermediates};
use paceline_plugin_api::{Error, Result};
use products::LINEAR_BF16;
use std::collections::{HashMap, HashSet};

/// Most rows of a launch: the device counts groups along y in 16 bits.
const MOST_ROWS: u32 = 65_535;

/// The id of canonical layouts of states. All of them are.
const CANONICAL: u64 = 1;

/// What a program is lowered for.
#[derive(Clone, Copy)]
pub(crate) struct Target<'a> {
    /// What kernels are compiled for; it is part of what says whose bits are the same.
    pub name: &'a str,
    /// Whether it has a kernel; asked of those that have others for the rest.
    pub has_kernel: &'a dyn Fn(&str) -> bool,
    /// Whether products of more than [`MOST_INT8_ROWS`](products::MOST_INT8_ROWS) rows with quantised weights are in bf16.
    pub has_bf16: bool,
}

/// Lowers a validated graph. Nodes that have no kernel are refused in the plan's summary.
pub(crate) fn lower(graph: Graph, layouts: &[WeightLayout], target: Target<'_>) -> Result<GpuPlan> {
    let results = graph.results();
    if results.iter().enumerate().any(|(i, r)| results[..i].iter().any(|other| other.value == r.value)) {
        return Err(Error::invalid("a value is marked as a result twice"));
    }
    let (program, nodes) = lower_for(&graph, layouts, target)?;
    // Whether a device uses the class of many rows is a setting that is known when the plan is loaded.
    let is_bf16 = |node: &NodePlan| matches!(node, NodePlan::Kernel { kernel, .. } if kernel == LINEAR_BF16);
    let int8 = match nodes.iter().any(is_bf16) {
        true => Some(lower_for(&graph, layouts, Target { has_bf16: false, ..target })?.0),
        false => None,
    };
    let state_plan =
        |layout: &StateLayout| StatePlan { bytes: layout.bytes(), alignment: ALIGNMENT, layout: CANONICAL };
    let summary = PlanSummary {
        workspace_bytes: int8.iter().map(|int8| int8.workspace_bytes).fold(program.workspace_bytes, u64::max),
        workspace_alignment: ALIGNMENT,
        parameter_bytes: program.parameter_bytes,
        result_bytes: program.result_bytes,
        nodes,
        states: program.states.iter().map(state_plan).collect(),
    };
    Ok(GpuPlan::new((program, int8), &graph, summary))
}

/// The launches of a graph, and what is said about its nodes.
fn lower_for(
    graph: &Graph,
    layouts: &[WeightLayout],
    target: Target<'_>,
) -> Result<(Program, Vec<NodePlan>)> {
    let mut lowering = Lowering::new(graph, layouts, target)?;
    let mut nodes = Vec::with_capacity(graph.nodes().len());
    for (index, node) in graph.nodes().iter().enumerate() {
        lowering.node_index = index;
        let lowered = lowering.node(node);
        nodes.push(match lowering.oversized.take().map_or(lowered, Err) {
            Ok(kernel) => describe(graph, node, kernel, target),
            Err(reason) => {
                // Nodes behind it are judged by themselves.
                for id in &node.outputs {
                    let (rows, elements) = rows_of(graph.value(*id));
                    lowering.lies[id.index()].get_or_insert(Lie::dense(id.index(), rows, elements));
                }
                NodePlan::Refused { reason }
            }
        });
    }
    if nodes.iter().any(|n| matches!(n, NodePlan::Refused { .. })) {
        lowering.items.clear();
    }
    Ok((lowering.finish(layouts.iter().map(|layout| layout.bytes).collect()), nodes))
}

/// What a node becomes. Products stay open: further weights, or what is added to their results, may join them; so do sums of
/// experts for what is added. What makes quantised rows may join the product behind it.
enum Item {
    Step(Step),
    Maker(Maker),
    Product(Linear),
    Combine(ExpertsCombine),
}

struct Lowering<'g> {
    graph: &'g Graph,
    /// Whether the target has a kernel; asked of those that have others for the rest.
    has_kernel: &'g dyn Fn(&str) -> bool,
    /// Whether products of many rows are in bf16.
    has_bf16: bool,
    /// The node that is lowered.
    node_index: usize,
    items: Vec<Item>,
    checks: Vec<ParameterCheck>,
    constants: Vec<Vec<u8>>,
    places: Vec<Option<Place>>,
    intermediates: Vec<Intermediate>,
    /// How values lie, of those that have been made.
    lies: Vec<Option<Lie>>,
    /// Item that made a value's memory.
    made: HashMap<Id, usize>,
    /// How many nodes read a value; results count as read.
    readers: Vec<usize>,
    /// Layouts of weights, by value.
    layouts: HashMap<Id, Layout>,
    state_layouts: Vec<StateLayout>,
    quantized_rows: Vec<Live>,
    /// The memory of counters that are no results, and their number.
    counters: Option<(Id, u64)>,
    known: Known,
    fusions: Fusions,
    /// Tables that change while a run is under way.
    changing: HashSet<Id>,
    /// A launch of the node that is lowered that no device takes.
    oversized: Option<String>,
}

/// What a product reads: activations, their live count, their width, rows and distance of rows; and the weights' type.
type ProductKey = (u64, u64, [u32; 3], u32);

/// What has been made already and can be used again.
#[derive(Default)]
struct Known {
    /// Quantised forms; true for those in bf16.
    quantized: HashMap<(Lie, bool), Id>,
    /// Copies, by the distance of their rows.
    copies: HashMap<(Lie, u32), Lie>,
    /// What rows see: sequences, window, causal, how many rows.
    spans: HashMap<(Id, u32, bool, Live), Id>,
    /// Products that have room for more weights.
    products: HashMap<ProductKey, usize>,
}

type Lowered<T> = std::result::Result<T, String>;

impl<'g> Lowering<'g> {
    fn new(graph: &'g Graph, layouts: &[WeightLayout], target: Target<'g>) -> Result<Self> {
        let values = graph.values();
        let mut readers = vec![0; values.len()];
        graph.nodes().iter().flat_map(|node| &node.inputs).for_each(|id| readers[id.index()] += 1);
        graph.results().iter().for_each(|result| readers[result.value.index()] += 1);
        let fusions = Fusions::find(graph, &readers);
        let mut lowering = Self {
            graph,
            has_kernel: target.has_kernel,
            has_bf16: target.has_bf16,
            node_index: 0,
            items: Vec::new(),
            checks: Vec::new(),
            constants: Vec::new(),
            places: vec![None; values.len()],
            intermediates: Vec::new(),
            lies: vec![None; values.len()],
            made: HashMap::new(),
            readers,
            layouts: HashMap::new(),
            state_layouts: Vec::new(),
            quantized_rows: Vec::new(),
            counters: None,
            known: Known::default(),
            fusions,
            changing: HashSet::new(),
            oversized: None,
        };
        for (index, id) in graph.weights().enumerate() {
            let layout = Layout::from_id(layouts[index].layout).ok_or_else(|| {
                Error::invalid(format!(
                    "weight `{}`: layout {} is not one of this backend's",
                    graph.value(id).name,
                    layouts[index].layout
                ))
            })?;
            lowering.places[id.index()] = Some(Place::Weight(index));
            lowering.layouts.insert(id.index(), layout);
        }
        for (index, id) in graph.states().enumerate() {
            let value = graph.value(id);
            let entries = value.shape.first();
            lowering.places[id.index()] = Some(Place::State(index));
            let entry_bytes = value.bytes().unwrap_or(0) / u64::from(entries);
            lowering.state_layouts.push(StateLayout { entries, entry_bytes });
        }
        for id in graph.parameters() {
            if let ValueKind::Parameter { offset } = graph.value(id).kind {
                lowering.places[id.index()] = Some(Place::Parameter(u64::from(offset)));
            }
        }
        for (index, value) in values.iter().enumerate() {
            if value.kind != ValueKind::Node {
                let (rows, elements) = rows_of(value);
                lowering.lies[index] = Some(Lie::dense(index, rows, elements));
            }
        }
        lowering.checks = ParameterCheck::counts(graph);
        Ok(lowering)
    }

    fn value(&self, id: ValueId) -> &'g Value {
        self.graph.value(id)
    }

    fn live(&self, value: &Value) -> Live {
        Live::of(self.graph, value)
    }

    /// What stands for the address of the live count; 0 if all are live.
    fn live_address(&self, value: &Value) -> u64 {
        value.live.map_or(0, |id| Ref::new(id.index(), 0).token())
    }

    /// What stands for the address of a value without a view: a weight, a state, a list.
    fn address(&self, id: ValueId) -> Lowered<u64> {
        let lie = self.lies[id.index()].ok_or("an input has not been made")?;
        if !lie.is_dense() {
            return Err("an input of indices has gaps".into());
        }
        Ok(lie.address())
    }

    fn parameter_offset(&self, id: ValueId) -> Lowered<u64> {
        match self.value(id).kind {
            ValueKind::Parameter { offset } => Ok(u64::from(offset)),
            _ => Err("it must be a parameter here".into()),
        }
    }

    fn check(&mut self, check: ParameterCheck) {
        if !self.checks.contains(&check) {
            self.checks.push(check);
        }
    }

    /// A new intermediate of so many bytes.
    fn intermediate(&mut self, bytes: u64) -> Id {
        let id = self.places.len();
        self.places.push(None);
        self.intermediates.push(Intermediate { id, bytes });
        self.made.insert(id, self.items.len());
        id
    }

    /// What stands for the address of a new intermediate.
    fn scratch(&mut self, bytes: u64) -> u64 {
        Ref::new(self.intermediate(bytes.max(ELEMENT)), 0).token()
    }

    /// A table that kernels read.
    fn constant(&mut self, bytes: Vec<u8>) -> u64 {
        let index = self.constants.iter().position(|known| *known == bytes).unwrap_or_else(|| {
            self.constants.push(bytes);
            self.constants.len() - 1
        });
        let place = Some(Place::Constant(index));
        let id = self.places.iter().position(|known| *known == place).unwrap_or_else(|| {
            self.places.push(place);
            self.places.len() - 1
        });
        Ref::new(id, 0).token()
    }

    fn is_result(&self, id: ValueId) -> bool {
        self.graph.results().iter().any(|r| r.value == id)
    }

    /// Gives a node's output a place: in the result block if it is a result, else in the workspace.
    fn output(&mut self, id: ValueId) -> Lowered<Lie> {
        let value = self.value(id);
        let bytes = value.bytes().ok_or("its output has no size")?;
        match self.graph.results().iter().find(|r| r.value == id) {
            Some(result) => self.places[id.index()] = Some(Place::Result(u64::from(result.offset))),
            None => self.intermediates.push(Intermediate { id: id.index(), bytes }),
        }
        let (rows, elements) = rows_of(value);
        let lie = Lie::dense(id.index(), rows, elements);
        self.lies[id.index()] = Some(lie);
        self.made.insert(id.index(), self.items.len());
        Ok(lie)
    }

    /// How an input that is read by elements lies: an activation, or a weight in plain layout.
    fn elements(&self, id: ValueId) -> Lowered<Lie> {
        if let Some(Layout::Packed(_)) = self.layouts.get(&id.index()) {
            return Err(format!(
                "weight `{}` is laid out for products, not for elements",
                self.value(id).name
            ));
        }
        self.lies[id.index()].ok_or_else(|| "an input has not been made".into())
    }

    fn push<P: Parameters>(&mut self, parameters: &P) {
        self.push_step(KernelStep::new(parameters));
    }

    fn push_step(&mut self, step: KernelStep) {
        self.check_launch(&step.launch);
        self.items.push(Item::Step(Step::Kernel(step)));
    }

    fn push_leading<P: Parameters>(&mut self, parameters: &P) {
        self.push_step(KernelStep { leads: true, ..KernelStep::new(parameters) });
    }

    /// Remembers a launch with more groups than a device counts.
    fn check_launch(&mut self, launch: &Launch) {
        let [_, y, z] = launch.groups;
        if y > MOST_ROWS || z > MOST_ROWS {
            let entry = launch.entry;
            self.oversized = Some(format!(
                "`{entry}` would have {y} by {z} groups along y and z, more than the {MOST_ROWS} that a launch takes"
            ));
        }
    }

    /// True for a weight that kernels read as it came, so that no launch writes what they read.
    fn is_given_weight(&self, id: ValueId) -> bool {
        self.value(id).kind == ValueKind::Weight
            && self.lies[id.index()].is_some_and(|lie| lie.root == id.index() && lie.is_dense())
    }

    /// A copy whose rows are `row` elements apart and have no gaps.
    fn copied(&mut self, lie: Lie, live: u64, row: u32) -> Lie {
        if let Some(known) = self.known.copies.get(&(lie, row)) {
            return *known;
        }
        let root = self.intermediate(u64::from(lie.rows) * u64::from(row) * ELEMENT);
        let elements = lie.row_elements();
        let out = Lie { row, ..Lie::dense(root, lie.rows, elements) };
        self.copy(lie, View { address: out.address(), row, item: lie.width }, live);
        self.known.copies.insert((lie, row), out);
        out
    }

    fn copy(&mut self, lie: Lie, out: View, live: u64) {
        let Lie { rows, items, width, .. } = lie;
        self.push(&CopyItems { x: lie.view(), out, live, rows, items, width, reserved: 0 });
    }

    /// The elements as rows of `items` of `width`, copied if that is needed.
    fn split(&mut self, lie: Lie, live: u64, items: u32, width: u32) -> Lie {
        lie.split(items, width).unwrap_or_else(|| {
            let copy = self.copied(lie, live, lie.row_elements());
            Lie { items, item: width, width, ..copy }
        })
    }

    /// The elements as rows without gaps, copied if that is needed.
    fn dense_rows(&mut self, lie: Lie, live: u64) -> Lie {
        self.split(lie, live, 1, lie.row_elements())
    }

    /// The elements without any gaps, copied if that is needed.
    fn dense(&mut self, lie: Lie, live: u64) -> Lie {
        match lie.is_dense() {
            true => self.dense_rows(lie, live),
            false => self.copied(lie, live, lie.row_elements()),
        }
    }

    /// Lowers one node and returns its kernel's name, or why it has none.
    fn node(&mut self, node: &Node) -> Lowered<&'static str> {
        if node.version != 1 {
            return Err(format!("this backend does not know {}/{}", node.operation, node.version));
        }
        if node.inputs.is_empty() {
            return Err("it has no inputs".into());
        }
        if let Some(&kernel) = self.fusions.passed.get(&self.node_index) {
            let lie = self.elements(node.inputs[0])?;
            self.lies[node.outputs[0].index()] = Some(lie);
            return Ok(kernel);
        }
        if let Some(heads) = self.fusions.heads.get(&self.node_index).copied() {
            self.heads_to_cache(&heads)?;
        }
        if let Some(kernel) = self.fusions.joined.get(&self.node_index) {
            return Ok(kernel);
        }
        let rows = node.inputs.iter().chain(&node.outputs).map(|&id| self.value(id));
        let most = rows.filter(|v| v.live.is_some()).map(|v| v.shape.first()).max().unwrap_or(0);
        if most > MOST_ROWS {
            return Err(format!("{most} rows are more than the {MOST_ROWS} that a launch takes"));
        }
        match node.operation.as_str() {
            "embed" => self.embed(node),
            "rms_norm" => self.rms_norm(node),
            "l2_norm" => self.l2_norm(node),
            "linear" => self.linear(node),
            "add" | "mul" => self.binary(node),
            "scale" => self.scale(node),
            "activation" => self.activation(node),
            "glu" => self.glu(node),
            "reshape" => self.reshape(node),
            "slice" => self.slice(node),
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
            "argmax" | "draw" => self.choose(node),
            "top_k" => self.top_k(node),
            "softmax" => self.softmax(node),
            "route" => self.route(node),
            "experts" => self.experts(node),
            other => Err(format!("this backend does not know {other}/{}", node.version)),
        }
    }

    fn finish(mut self, weight_bytes: Vec<u64>) -> Program {
        self.pair_products();
        let mut steps = self.steps();
        // Those that `steps` added are among them.
        if let Some((id, count)) = self.counters {
            let bytes = count * ELEMENT;
            self.intermediates.push(Intermediate { id, bytes });
            steps.push(Step::Clear(id, bytes));
        }
        // Counters are zero when a run begins.
        steps.sort_by_key(|step| match step {
            Step::Clear(..) => 0,
            Step::Kernel(step) if step.leads => 1,
            Step::Kernel(_) | Step::Led { .. } => 2,
        });
        let follows = steps.iter_mut().find(|step| match step {
            Step::Clear(..) => false,
            Step::Kernel(step) => !step.leads,
            Step::Led { .. } => true,
        });
        match follows {
            Some(Step::Kernel(step)) => step.waits = true,
            Some(Step::Led { apart, together, .. }) => {
                apart[0].waits = true;
                together.waits = true;
            }
            _ => {}
        }
        let (parameter_bytes, result_bytes) = (self.graph.parameter_bytes(), self.graph.result_bytes());
        let results_at = parameter_bytes.next_multiple_of(ALIGNMENT);
        let intermediates_at = results_at + result_bytes.next_multiple_of(ALIGNMENT);
        let touches =
            steps.iter().enumerate().flat_map(|(index, step)| step.touches().map(move |id| (index, id)));
        let (offsets, workspace_bytes) =
            place_intermediates(touches, &self.intermediates, ALIGNMENT, intermediates_at);
        let mut places = self.places;
        for (id, offset) in offsets {
            places[id] = Some(Place::Workspace(offset));
        }
        Program {
            steps,
            // A value that no launch touches, such as a view, is never looked up.
            places: places.into_iter().map(|p| p.unwrap_or(Place::Workspace(0))).collect(),
            checks: self.checks,
            constants: self.constants,
            states: self.state_layouts,
            weight_bytes,
            quantized: self.quantized_rows,
            parameter_bytes,
            result_bytes,
            results_at,
            workspace_bytes,
        }
    }
}
