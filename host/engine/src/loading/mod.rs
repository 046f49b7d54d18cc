//! From a model to arenas, weights and executables on a device.

mod numerics;
mod states;

use crate::engine::EngineOptions;
use crate::error::{EngineError, Result};
use crate::fragments::Check;
use crate::memory::MemoryPlan;
use crate::model::Model;
use crate::programs::{self, ProgramGraph, ProgramKey, TargetParts};
use crate::step::ContextShape;
use crate::strategies::Setup;
use paceline_gguf::Gguf;
use paceline_plugin_api::backend::{ArenaClass, NodePlan, StatePlan, WeightLayout, WeightUse, weight_uses};
use paceline_plugin_api::client::{
    ArenaClient, BackendClient, DeviceClient, ExecutableClient, LoadSpans, PlanClient, SemaphoreClient,
    WeightImportClient,
};
use paceline_plugin_api::graph::{Builder, DType, Graph, Node, StateKind, ValueKind, step};
use paceline_plugin_api::strategy::DRAFT_WEIGHT;
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

/// Alignment of parameter and result blocks.
const IO_ALIGNMENT: u64 = 256;
/// Weights are imported in batches of about this many bytes, so that progress can be shown; the file's pages of a batch are
/// in memory beside its copy.
const IMPORT_BATCH: u64 = 16 << 20;

/// Where a weight or state lies: its arena's class, the first byte, the length.
#[derive(Clone, Copy, Debug)]
struct Place {
    class: ArenaClass,
    offset: u64,
    bytes: u64,
}

struct Program {
    built: ProgramGraph,
    plan: PlanClient,
}

/// A context on a device. Fields are dropped in this order: executables before the arenas that they are bound to.
pub(crate) struct Loaded {
    executables: Vec<Option<ExecutableClient>>,
    semaphore: SemaphoreClient,
    programs: Vec<Program>,
    arenas: HashMap<ArenaClass, ArenaClient>,
    pub device: DeviceClient,
    pub memory: MemoryPlan,
    /// Of the first programs; those of strategies follow.
    keys: Vec<ProgramKey>,
    weights: HashMap<String, Place>,
    states: HashMap<String, Place>,
    parameter_bytes: u64,
    result_bytes: u64,
    /// Executables that were bound so far.
    loads: u64,
    /// Bytes of states that went through the host.
    moved_bytes: u64,
    most_equal_rows: usize,
    /// The last program settles recurrent state.
    settles: bool,
}

/// Gives out consecutive, aligned ranges.
#[derive(Default)]
struct Cursor {
    end: u64,
}

impl Cursor {
    fn place(&mut self, class: ArenaClass, bytes: u64, alignment: u64) -> Place {
        let offset = self.end.next_multiple_of(alignment.max(1));
        self.end = offset + bytes;
        Place { class, offset, bytes }
    }
}

/// A context before anything is allocated.
struct Planned {
    memory: MemoryPlan,
    programs: Vec<Program>,
    keys: Vec<ProgramKey>,
    uses: Vec<WeightUse>,
    layouts: Vec<WeightLayout>,
    weights: HashMap<String, Place>,
    states: HashMap<String, Place>,
    parameter_bytes: u64,
    result_bytes: u64,
}

fn plan_context(
    model: &Model,
    backend: &BackendClient,
    context: &ContextShape,
    options: &EngineOptions,
    setup: &Setup,
) -> Result<Planned> {
    let plugin = backend.plugin();
    let info = backend.devices().map_err(EngineError::backend(plugin, "listing its devices"))?;
    let info = info.get(options.device as usize).ok_or_else(|| {
        EngineError::Request(format!("backend `{plugin}` has no device {}", options.device))
    })?;
    // Rounds without a draft need no records, so such a round of all texts has a graph without them.
    let final_rows = if setup.rollback.is_some() { context.sequences } else { 0 };
    let keys = programs::keys(options.microbatch, options.outputs, final_rows);
    let parts = TargetParts { taps: &setup.taps, rollback: setup.rollback.as_ref() };
    let target = keys.iter().map(|&key| programs::build(model, context, &parts, key));
    let is_draw = |node: &Node| node.operation == "draw";
    let wants_draw = setup.programs.iter().any(|program| program.graph.nodes().iter().any(is_draw));
    let draws = wants_draw && knows_draw(backend, &info.capabilities)?;
    let check = Check { taps: &setup.taps, draft: setup.draft.as_deref(), draws };
    let strategies = setup.programs.iter().map(|p| programs::build_strategy(model, context, p, &check));
    let mut graphs = target.chain(strategies).collect::<Result<Vec<ProgramGraph>>>()?;
    let rolled = graphs.first().map(|graph| graph.rolled.clone()).unwrap_or_default();
    if let Some(client) = setup.rollback.as_ref().filter(|_| !rolled.is_empty()) {
        graphs.push(programs::build_settle(client, &rolled)?);
    }
    let uses = weight_uses(graphs.iter().map(|g| &g.graph));
    model.check_weight_types(plugin, &uses)?;
    let layouts = backend
        .layout_weights(&info.capabilities, &uses)
        .map_err(EngineError::backend(plugin, "laying out the weights"))?;
    let programs = plan(model, backend, &info.capabilities, (graphs, &keys), &uses, &layouts)?;

    // What only strategies use comes behind everything that the target uses.
    let mut cursors: HashMap<ArenaClass, Cursor> = HashMap::new();
    let of_target = weight_uses(programs[..keys.len()].iter().map(|p| &p.built.graph)).len();
    let mut weights = place_weights(&mut cursors, &uses[..of_target], &layouts[..of_target]);
    let target_weights = end(&cursors, ArenaClass::Weights);
    weights.extend(place_weights(&mut cursors, &uses[of_target..], &layouts[of_target..]));
    let mut known = HashMap::new();
    place_states(&mut cursors, model, &programs[..keys.len()], &mut known)?;
    let [target_kv, target_state] = [ArenaClass::Kv, ArenaClass::State].map(|class| end(&cursors, class));
    let is_tap = |name: &str| name.starts_with(step::name::TAP);
    let taps: u64 = known.iter().filter(|(name, _)| is_tap(name)).map(|(_, (plan, _))| plan.bytes).sum();
    place_states(&mut cursors, model, &programs[keys.len()..], &mut known)?;
    let states = known.into_iter().map(|(name, (_, place))| (name, place)).collect();
    let summaries = || programs.iter().map(|p| p.plan.summary());
    let workspace = summaries().map(|s| s.workspace_bytes).max().unwrap_or(0);
    let block = |bytes: u64| bytes.next_multiple_of(IO_ALIGNMENT);
    let parameter_bytes = block(summaries().map(|s| s.parameter_bytes).max().unwrap_or(0));
    let result_bytes = block(summaries().map(|s| s.result_bytes).max().unwrap_or(0));

    let blocks = u64::from(context.blocks_per_sequence);
    let mut memory = MemoryPlan::new(target_kv / blocks.max(1), blocks);
    let rest = |class: ArenaClass, target: u64| end(&cursors, class) - target;
    memory.add("weights", ArenaClass::Weights, target_weights);
    memory.add("KV cache", ArenaClass::Kv, target_kv);
    memory.add("recurrent state", ArenaClass::State, target_state - taps);
    if taps > 0 {
        memory.add("hidden states for strategies", ArenaClass::State, taps);
    }
    if !setup.programs.is_empty() {
        memory.add("strategies' weights", ArenaClass::Weights, rest(ArenaClass::Weights, target_weights));
        memory.add("strategies' caches", ArenaClass::Kv, rest(ArenaClass::Kv, target_kv));
        memory.add("strategies' state", ArenaClass::State, rest(ArenaClass::State, target_state));
    }
    memory.add("workspace", ArenaClass::Workspace, workspace);
    memory.add("parameters", ArenaClass::Io, parameter_bytes);
    memory.add("results", ArenaClass::Io, result_bytes);

    Ok(Planned { memory, programs, keys, uses, layouts, weights, states, parameter_bytes, result_bytes })
}

/// The memory of a context; see [`crate::Engine::plan`].
pub(crate) fn memory_of(
    model: &Model,
    backend: &BackendClient,
    context: &ContextShape,
    options: &EngineOptions,
    setup: &Setup,
) -> Result<MemoryPlan> {
    Ok(plan_context(model, backend, context, options, setup)?.memory)
}

/// See [`crate::Engine::with_strategies`].
pub(crate) fn load(
    model: &Model,
    backend: &BackendClient,
    context: &ContextShape,
    options: &EngineOptions,
    setup: &Setup,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Loaded> {
    let plugin = backend.plugin();
    let Planned { memory, programs, keys, uses, layouts, weights, states, parameter_bytes, result_bytes } =
        plan_context(model, backend, context, options, setup)?;
    let device = backend
        .open(options.device, &options.settings)
        .map_err(EngineError::backend(plugin, format!("opening device {}", options.device)))?;
    let available = device.memory().map_err(EngineError::backend(plugin, "asking for its memory"))?;
    memory.check(&format!("{plugin}:{}", options.device), available)?;

    let mut arenas = HashMap::new();
    for class in ArenaClass::ALL {
        let bytes = memory.class_bytes(class);
        if bytes > 0 {
            let arena = device
                .create_arena(class, bytes)
                .map_err(EngineError::backend(plugin, "allocating memory"))?;
            arenas.insert(class, arena);
        }
    }
    let semaphore = device.create_semaphore(0).map_err(EngineError::backend(plugin, "making a semaphore"))?;
    let settles = programs.len() > keys.len() + setup.programs.len();
    let invariance = numerics::row_invariance(programs[..keys.len()].iter().map(|p| p.plan.summary()));
    let equal = keys.iter().map(|key| key.rows).filter(|&rows| rows <= invariance);
    let most_equal_rows = equal.max().unwrap_or(1) as usize;
    let loaded = Loaded {
        executables: programs.iter().map(|_| None).collect(),
        semaphore,
        programs,
        arenas,
        device,
        memory,
        keys,
        weights,
        states,
        parameter_bytes,
        result_bytes,
        loads: 0,
        moved_bytes: 0,
        most_equal_rows,
        settles,
    };
    loaded.import(model, setup.draft.as_ref(), &uses, &layouts, progress)?;
    Ok(loaded)
}

/// Bytes of a class that are placed so far.
fn end(cursors: &HashMap<ArenaClass, Cursor>, class: ArenaClass) -> u64 {
    cursors.get(&class).map_or(0, |c| c.end)
}

/// True if the backend can run `draw`, which came after the first backends.
fn knows_draw(backend: &BackendClient, capabilities: &str) -> Result<bool> {
    let mut b = Builder::new();
    let logits = b.parameter("logits", DType::F32, &[1, 64], None);
    let noise = b.parameter("noise", DType::I32, &[1, 4], None);
    let (ids, _) = b.draw(logits, noise, None);
    b.result("ids", ids);
    let plan = backend
        .plan(&b.finish(), capabilities, &[])
        .map_err(EngineError::backend(backend.plugin(), "planning a draw of tokens"))?;
    let refusal = plan.summary().refusal().map(|(_, reason)| reason.to_owned());
    if let Some(reason) = &refusal {
        tracing::warn!(
            "strategies guess the likeliest token where they would draw one: backend `{}`: {reason}",
            backend.plugin()
        );
    }
    Ok(refusal.is_none())
}

fn plan(
    model: &Model,
    backend: &BackendClient,
    capabilities: &str,
    (graphs, keys): (Vec<ProgramGraph>, &[ProgramKey]),
    uses: &[WeightUse],
    layouts: &[WeightLayout],
) -> Result<Vec<Program>> {
    let by_name: HashMap<&str, WeightLayout> =
        uses.iter().map(|w| w.name.as_str()).zip(layouts.iter().copied()).collect();
    let mut programs: Vec<Program> = Vec::with_capacity(graphs.len());
    for built in graphs {
        let graph = &built.graph;
        let layouts: Vec<WeightLayout> =
            graph.weights().filter_map(|id| by_name.get(graph.value(id).name.as_str()).copied()).collect();
        let plan = backend
            .plan(graph, capabilities, &layouts)
            .map_err(EngineError::backend(backend.plugin(), "planning a step"))?;
        if let Some((node, reason)) = plan.summary().refusal() {
            let operation = &graph.nodes()[node].operation;
            if let Some((plugin, program)) = &built.owner {
                return Err(EngineError::Strategy {
                    plugin: plugin.clone(),
                    what: format!(
                        "backend `{}` cannot run its program `{program}`: {operation}: {reason}",
                        backend.plugin()
                    ),
                });
            }
            return Err(EngineError::Unsupported {
                file: model.file_name(),
                what: format!("backend `{}` cannot run it: {operation}: {reason}", backend.plugin()),
            });
        }
        programs.push(Program { built, plan });
    }
    // The target's come first.
    let target: Vec<_> =
        keys.iter().zip(&programs).map(|(key, p)| (key.rows, &p.built.graph, p.plan.summary())).collect();
    numerics::check(model, &target)?;
    Ok(programs)
}

fn place_weights(
    cursors: &mut HashMap<ArenaClass, Cursor>,
    uses: &[WeightUse],
    layouts: &[WeightLayout],
) -> HashMap<String, Place> {
    let cursor = cursors.entry(ArenaClass::Weights).or_default();
    let place = |(weight, layout): (&WeightUse, &WeightLayout)| {
        (weight.name.clone(), cursor.place(ArenaClass::Weights, layout.bytes, layout.alignment))
    };
    uses.iter().zip(layouts).map(place).collect()
}

/// Gives every state a place; all graphs must agree on its size and layout.
fn place_states(
    cursors: &mut HashMap<ArenaClass, Cursor>,
    model: &Model,
    programs: &[Program],
    known: &mut HashMap<String, (StatePlan, Place)>,
) -> Result<()> {
    for program in programs {
        let graph = &program.built.graph;
        for (id, plan) in graph.states().zip(&program.plan.summary().states) {
            let value = graph.value(id);
            if let Some((first, _)) = known.get(&value.name) {
                if first != plan {
                    return Err(model.fault(format!("state `{}` differs between graphs", value.name)));
                }
                continue;
            }
            let class = match value.kind {
                ValueKind::State(StateKind::PerPosition | StateKind::Table) => ArenaClass::Kv,
                _ => ArenaClass::State,
            };
            let place = cursors.entry(class).or_default().place(class, plan.bytes, plan.alignment);
            known.insert(value.name.clone(), (*plan, place));
        }
    }
    Ok(())
}

/// The bytes of a weight: of the model, or of the drafter's file.
fn weight_bytes<'a>(model: &'a Model, draft: Option<&'a Arc<Gguf>>, name: &str) -> Result<Cow<'a, [u8]>> {
    match (name.strip_prefix(DRAFT_WEIGHT), draft) {
        (Some(name), Some(draft)) => {
            let tensor = draft.require_tensor(name)?;
            Ok(Cow::Borrowed(draft.tensor_bytes(&tensor)?))
        }
        _ => model.weight_bytes(name),
    }
}

impl Loaded {
    fn import(
        &self,
        model: &Model,
        draft: Option<&Arc<Gguf>>,
        uses: &[WeightUse],
        layouts: &[WeightLayout],
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<()> {
        let arena = self.arena(ArenaClass::Weights)?;
        let total: u64 = layouts.iter().map(|l| l.bytes).sum();
        let (mut done, mut batch, mut batch_bytes) = (0, Vec::new(), 0);
        progress(0, total);
        for (index, (weight, layout)) in uses.iter().zip(layouts).enumerate() {
            batch.push((weight, layout, weight_bytes(model, draft, &weight.name)?));
            batch_bytes += layout.bytes;
            if batch_bytes >= IMPORT_BATCH || index + 1 == uses.len() {
                let imports = batch.iter().map(|(weight, layout, source)| {
                    let place = self.weights[&weight.name];
                    let target = arena.span(place.offset, place.bytes);
                    WeightImportClient { weight, layout: **layout, target, source }
                });
                self.device
                    .import_weights(&imports.collect::<Vec<_>>())
                    .map_err(EngineError::backend(self.device.plugin(), "importing weights"))?;
                // Else the whole file would stay in memory beside its copy.
                model.gguf().release_pages();
                draft.inspect(|draft| draft.release_pages());
                done += batch_bytes;
                progress(done, total);
                batch.clear();
                batch_bytes = 0;
            }
        }
        Ok(())
    }

    fn arena(&self, class: ArenaClass) -> Result<&ArenaClient> {
        self.arenas
            .get(&class)
            .ok_or_else(|| EngineError::Request(format!("the plan has no memory for {class:?}")))
    }

    /// The graphs of the context, smallest first, and behind them those whose rows stay.
    pub fn keys(&self) -> &[ProgramKey] {
        &self.keys
    }

    /// Index of a graph of the target; its executable is loaded on first use.
    pub fn program(&mut self, key: ProgramKey) -> Result<usize> {
        let index = self
            .keys
            .iter()
            .position(|k| *k == key)
            .ok_or_else(|| EngineError::Request(format!("there is no graph for {key:?}")))?;
        self.ensure_loaded(index)?;
        Ok(index)
    }

    /// Index of a strategy's graph, counted over all strategies; its executable is loaded on first use.
    pub fn strategy_program(&mut self, number: usize) -> Result<usize> {
        let index = self.keys.len() + number;
        if index >= self.programs.len() {
            return Err(EngineError::Request(format!("there is no strategy's graph {number}")));
        }
        self.ensure_loaded(index)?;
        Ok(index)
    }

    /// Index of the graph that settles recurrent state, if a rollback strategy needs one; it is the last.
    pub fn settle_program(&mut self) -> Result<Option<usize>> {
        let last = self.programs.len() - 1;
        if !self.settles {
            return Ok(None);
        }
        self.ensure_loaded(last)?;
        Ok(Some(last))
    }

    /// Most rows of a run of the target in which a row has the bits that it would have alone. Runs of more take graphs
    /// whose bits may be others.
    pub fn most_equal_rows(&self) -> usize {
        self.most_equal_rows
    }

    /// Bytes that are read and operations, by node, of the smallest graph of the target that takes `rows` rows.
    pub fn work(&self, rows: u32) -> impl Iterator<Item = (f64, f64)> + '_ {
        let found = self.keys.iter().position(|key| key.rows >= rows);
        let nodes = found.map_or(&[][..], |index| &self.programs[index].plan.summary().nodes);
        nodes.iter().map(|node| match node {
            NodePlan::Kernel { bytes_read, operations, .. } => (*bytes_read as f64, *operations as f64),
            NodePlan::Refused { .. } => (0.0, 0.0),
        })
    }

    fn ensure_loaded(&mut self, index: usize) -> Result<()> {
        if self.executables[index].is_none() {
            let mut executable = self.load_program(index)?;
            self.fill_ring_table(index, &mut executable)?;
            self.executables[index] = Some(executable);
            self.loads += 1;
        }
        Ok(())
    }

    /// Executables that were bound so far.
    pub fn loads(&self) -> u64 {
        self.loads
    }

    fn load_program(&self, index: usize) -> Result<ExecutableClient> {
        let Program { built, plan } = &self.programs[index];
        let graph: &Graph = &built.graph;
        let spans = |ids: Vec<&str>, places: &HashMap<String, Place>| {
            ids.into_iter()
                .map(|name| {
                    let place = places[name];
                    Ok(self.arena(place.class)?.span(place.offset, place.bytes))
                })
                .collect::<Result<Vec<_>>>()
        };
        let names = |ids: &mut dyn Iterator<Item = paceline_plugin_api::graph::ValueId>| {
            ids.map(|id| graph.value(id).name.as_str()).collect::<Vec<_>>()
        };
        let io = self.arena(ArenaClass::Io)?;
        let workspace = self.arena(ArenaClass::Workspace)?;
        let spans = LoadSpans {
            weights: spans(names(&mut graph.weights()), &self.weights)?,
            states: spans(names(&mut graph.states()), &self.states)?,
            workspace: workspace.span(0, workspace.bytes()),
            parameters: io.span(0, self.parameter_bytes),
            parameter_stride: self.parameter_bytes,
            results: io.span(self.parameter_bytes, self.result_bytes),
            result_stride: self.result_bytes,
            slots: 1,
        };
        let plugin = self.device.plugin();
        let loaded = self.device.load(plan, &spans);
        let mut executable = loaded.map_err(EngineError::backend(plugin, "loading a step"))?;
        // So that its first launch takes no longer than others.
        executable.warm_up().map_err(EngineError::backend(plugin, "warming up a step"))?;
        Ok(executable)
    }

    /// The executable of a graph that [`Loaded::program`] gave, and the semaphore that launches signal.
    pub fn executable(&mut self, index: usize) -> Result<(&mut ExecutableClient, &SemaphoreClient)> {
        let executable = self.executables[index]
            .as_mut()
            .ok_or_else(|| EngineError::Request("the step's executable is not loaded".into()))?;
        Ok((executable, &self.semaphore))
    }

    /// After a failure: executables are loaded anew when they are used, on a new timeline.
    pub fn reset(&mut self) -> Result<()> {
        self.executables.iter_mut().for_each(|e| *e = None);
        self.semaphore = self
            .device
            .create_semaphore(0)
            .map_err(EngineError::backend(self.device.plugin(), "making a semaphore"))?;
        Ok(())
    }

    /// The graph with its places in the parameter and result blocks.
    pub fn built(&self, index: usize) -> &ProgramGraph {
        &self.programs[index].built
    }

    /// The graph's places and the parameter block.
    pub fn parameters(&mut self, index: usize) -> (&ProgramGraph, &mut [u8]) {
        let (address, bytes) = (self.io(0, self.parameter_bytes), self.parameter_bytes as usize);
        // SAFETY: the IO arena is host memory of at least this size; no launch is pending when the engine writes
        // parameters, since it waits for each launch, and nothing else gives this range out while `self` is borrowed.
        (&self.programs[index].built, unsafe { std::slice::from_raw_parts_mut(address, bytes) })
    }

    /// The address of a range of the IO arena, which every context has.
    fn io(&self, offset: u64, bytes: u64) -> *mut u8 {
        let arena = &self.arenas[&ArenaClass::Io];
        assert!(offset + bytes <= arena.bytes(), "parameter and result blocks lie in the IO arena");
        arena.host_address().wrapping_add(offset as usize)
    }

    /// The result block.
    pub fn result_block(&self) -> &[u8] {
        // SAFETY: as for the parameter block; nothing writes results until the next launch, which needs `&mut`.
        unsafe {
            std::slice::from_raw_parts(
                self.io(self.parameter_bytes, self.result_bytes),
                self.result_bytes as usize,
            )
        }
    }
}
