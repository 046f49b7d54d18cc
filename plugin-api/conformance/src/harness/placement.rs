//! Memory for graphs that share weights, states and workspace.

use super::loaded::{Loaded, Parts};
use super::{Bench, HarnessError, failed};
use crate::io::Blocks;
use paceline_plugin_api::backend::weight_uses;
use paceline_plugin_api::backend::{ArenaClass, PlanSummary, StatePlan, WeightLayout, WeightUse};
use paceline_plugin_api::client::{
    ArenaClient, DeviceClient, LoadSpans, PlanClient, SpanClient, WeightImportClient,
};
use paceline_plugin_api::graph::{Graph, StateKind, ValueKind};
use std::sync::Arc;

/// Names of a graph's weights or states, in the order of the values.
fn names(graph: &Graph, states: bool) -> impl Iterator<Item = &str> {
    graph
        .values()
        .iter()
        .filter(move |value| match value.kind {
            ValueKind::Weight => !states,
            ValueKind::State(_) => states,
            _ => false,
        })
        .map(|value| value.name.as_str())
}

/// Offsets and lengths one after the other, and the whole length.
fn places(sizes: impl Iterator<Item = (u64, u64)>) -> (Vec<(u64, u64)>, u64) {
    let mut end = 0u64;
    let places = sizes
        .map(|(bytes, alignment)| {
            let offset = end.next_multiple_of(alignment.max(1));
            end = offset + bytes;
            (offset, bytes)
        })
        .collect();
    (places, end)
}

struct State {
    name: String,
    class: ArenaClass,
    plan: StatePlan,
    offset: u64,
}

fn add_states(states: &mut Vec<State>, graph: &Graph, summary: &PlanSummary) {
    for (id, plan) in graph.states().zip(&summary.states) {
        let value = graph.value(id);
        let class = match value.kind {
            ValueKind::State(StateKind::PerPosition | StateKind::Ring | StateKind::Table) => ArenaClass::Kv,
            _ => ArenaClass::State,
        };
        match states.iter_mut().find(|state| state.name == value.name) {
            Some(known) => known.plan.bytes = known.plan.bytes.max(plan.bytes),
            None => states.push(State { name: value.name.clone(), class, plan: *plan, offset: 0 }),
        }
    }
}

/// The memory of a placement; lives as long as anything that was loaded in it.
pub(super) struct Memory {
    weights: Vec<(String, (u64, u64))>,
    weight_arena: ArenaClient,
    states: Vec<State>,
    state_arenas: Vec<(ArenaClass, ArenaClient)>,
    workspace: ArenaClient,
}

impl Memory {
    fn weight(&self, name: &str) -> SpanClient<'_> {
        let place = self.weights.iter().find(|(known, _)| known == name).map_or((0, 0), |(_, place)| *place);
        self.weight_arena.span(place.0, place.1)
    }

    fn state(&self, name: &str) -> Option<SpanClient<'_>> {
        let state = self.states.iter().find(|state| state.name == name)?;
        Some(self.arena_of(state).span(state.offset, state.plan.bytes))
    }

    fn arena_of(&self, state: &State) -> &ArenaClient {
        let arena = self.state_arenas.iter().find(|(class, _)| *class == state.class);
        &arena.expect("both classes have an arena").1
    }
}

/// Planned graphs that share weights, states and workspace.
pub struct Placement {
    graphs: Vec<Graph>,
    plans: Vec<PlanClient>,
    memory: Arc<Memory>,
    device: DeviceClient,
}

impl Placement {
    pub(super) fn new(bench: &Bench, graphs: &[&Graph], weights: &[Vec<u8>]) -> Result<Self, HarnessError> {
        let uses = weight_uses(graphs.iter().copied());
        let layouts = bench.layouts(&uses)?;
        let mut plans = Vec::new();
        let mut states: Vec<State> = Vec::new();
        for graph in graphs {
            let own: Vec<WeightLayout> = names(graph, false)
                .filter_map(|name| uses.iter().position(|weight| weight.name == name))
                .map(|index| layouts[index])
                .collect();
            let plan = bench.backend.plan(graph, &bench.capabilities, &own).map_err(failed("plan"))?;
            if let Some((node, reason)) = plan.summary().refusal() {
                let operation = &graph.nodes()[node].operation;
                return Err(HarnessError::Refused(format!("{operation}: {reason}")));
            }
            add_states(&mut states, graph, plan.summary());
            plans.push(plan);
        }
        let arena = |class, bytes: u64| {
            bench.device.create_arena(class, bytes.max(1)).map_err(failed("create_arena"))
        };
        let weight_places = places(layouts.iter().map(|layout| (layout.bytes, layout.alignment)));
        let weight_arena = arena(ArenaClass::Weights, weight_places.1)?;
        let mut state_arenas = Vec::new();
        for class in [ArenaClass::Kv, ArenaClass::State] {
            let of_class = states.iter_mut().filter(|state| state.class == class);
            let mut end = 0u64;
            for state in of_class {
                state.offset = end.next_multiple_of(state.plan.alignment.max(1));
                end = state.offset + state.plan.bytes;
            }
            state_arenas.push((class, arena(class, end)?));
        }
        let workspace = plans.iter().map(|plan| plan.summary().workspace_bytes).max().unwrap_or(0);
        let placement = Self {
            graphs: graphs.iter().map(|graph| (*graph).clone()).collect(),
            plans,
            memory: Arc::new(Memory {
                weights: uses.iter().map(|weight| weight.name.clone()).zip(weight_places.0).collect(),
                weight_arena,
                states,
                state_arenas,
                workspace: arena(ArenaClass::Workspace, workspace)?,
            }),
            device: bench.device.clone(),
        };
        placement.import(&uses, &layouts, weights)?;
        Ok(placement)
    }

    fn import(
        &self,
        uses: &[WeightUse],
        layouts: &[WeightLayout],
        weights: &[Vec<u8>],
    ) -> Result<(), HarnessError> {
        let imports: Vec<WeightImportClient<'_>> = uses
            .iter()
            .zip(layouts)
            .zip(weights)
            .map(|((weight, layout), source)| WeightImportClient {
                weight,
                layout: *layout,
                target: self.memory.weight(&weight.name),
                source,
            })
            .collect();
        if imports.is_empty() {
            return Ok(());
        }
        self.device.import_weights(&imports).map_err(failed("import_weights"))
    }

    /// The first `1 / divisor` of the place of a weight: for tests of what a backend refuses.
    pub fn part_of_weight(&self, name: &str, divisor: u64) -> SpanClient<'_> {
        let (_, (offset, bytes)) =
            self.memory.weights.iter().find(|(known, _)| known == name).expect("a weight of the placement");
        self.memory.weight_arena.span(*offset, bytes / divisor)
    }

    /// The first `1 / divisor` of the place of a state: for tests of what a backend refuses.
    pub fn part_of_state(&self, name: &str, divisor: u64) -> SpanClient<'_> {
        let memory = &self.memory;
        let state = memory.states.iter().find(|state| state.name == name).expect("a state of the placement");
        memory.arena_of(state).span(state.offset, state.plan.bytes / divisor)
    }

    /// The workspace without its last bytes: for tests of what a backend refuses.
    pub fn workspace_without(&self, bytes: u64) -> SpanClient<'_> {
        let whole = self.plans.iter().map(|plan| plan.summary().workspace_bytes).max().unwrap_or(0);
        self.memory.workspace.span(0, whole.saturating_sub(bytes))
    }

    /// A workspace that reaches beyond its arena: for tests of what a backend refuses.
    pub fn workspace_beyond(&self) -> SpanClient<'_> {
        self.memory.workspace.span(self.memory.workspace.bytes(), 64)
    }

    /// The plan of a graph.
    pub fn plan(&self, graph: usize) -> &PlanClient {
        &self.plans[graph]
    }

    /// Loads a graph with so many slots of parameters and results.
    ///
    /// # Errors
    /// What the backend reports.
    pub fn load(&self, graph: usize, slots: u32) -> Result<Loaded, HarnessError> {
        self.load_with(graph, slots, |_, _| ())
    }

    /// As [`Placement::load`], with a change to what the backend is given: for tests of what it refuses.
    ///
    /// # Errors
    /// What the backend reports.
    pub fn load_with(
        &self,
        graph: usize,
        slots: u32,
        change: impl for<'a> FnOnce(&mut LoadSpans<'a>, &'a Placement),
    ) -> Result<Loaded, HarnessError> {
        let (plan, graph) = (&self.plans[graph], &self.graphs[graph]);
        let summary = plan.summary();
        let io = failed("create_arena");
        let parameters = Blocks::new(&self.device, summary.parameter_bytes, slots).map_err(&io)?;
        let results = Blocks::new(&self.device, summary.result_bytes, slots).map_err(&io)?;
        let mut spans = LoadSpans {
            weights: names(graph, false).map(|name| self.memory.weight(name)).collect(),
            states: names(graph, true).filter_map(|name| self.memory.state(name)).collect(),
            workspace: self.memory.workspace.span(0, summary.workspace_bytes),
            parameters: parameters.span(),
            parameter_stride: parameters.stride(),
            results: results.span(),
            result_stride: results.stride(),
            slots,
        };
        change(&mut spans, self);
        let executable = self.device.load(plan, &spans).map_err(failed("load"))?;
        drop(spans);
        let semaphore = self.device.create_semaphore(0).map_err(failed("create_semaphore"))?;
        let _memory = Arc::clone(&self.memory);
        let parts = Parts { executable, semaphore, parameters, results, _memory };
        Ok(Loaded::new(parts, graph.clone(), summary.clone()))
    }
}
