//! The graphs of a context: which there are, and building them.

use crate::error::{EngineError, Result};
use crate::families::{Closed, Ports};
use crate::fragments::{Check, inline_delta_net, inline_family, inline_layer, inline_settled};
use crate::model::Model;
use crate::step::{ContextShape, GroupOffsets, OutputOffsets, StepInputs, UpdateOffsets, output_name};
use crate::strategies::DeclaredProgram;
use paceline_plugin_api::client::RollbackClient;
use paceline_plugin_api::graph::step::{Tap, name};
use paceline_plugin_api::graph::{Builder, DType, Graph, ValueId};
use paceline_plugin_api::strategy::{DeltaNetPorts, DeltaNetShape};
use std::collections::BTreeSet;

/// Row counts that have a graph of their own, up to the microbatch.
const ROW_COUNTS: [u32; 14] = [1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32, 48, 64];

/// What a run gives back for the rows whose outputs are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Want {
    /// The id of the largest logit, found on the device.
    Ids,
    /// All logits.
    Logits,
}

/// One graph of the context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ProgramKey {
    pub rows: u32,
    pub outputs: u32,
    pub want: Want,
    /// Its rows stay: recurrent layers take them into their state at once, and nothing is kept to take them back.
    pub is_final: bool,
}

/// The graphs of a context of at most `microbatch` rows and `outputs` outputs a run, and those for one row of each of at
/// most `final_rows` sequences whose rows stay.
pub(crate) fn keys(microbatch: u32, outputs: u32, final_rows: u32) -> Vec<ProgramKey> {
    let counts = |most: u32| ROW_COUNTS.into_iter().filter(move |&rows| rows < most).chain([most]);
    let rolled = counts(microbatch).map(|rows| (rows, false));
    let stay = counts(final_rows.min(microbatch)).filter(|&rows| rows > 0).map(|rows| (rows, true));
    let wants = [Want::Ids, Want::Logits];
    rolled
        .chain(stay)
        .flat_map(|(rows, is_final)| {
            wants.map(|want| ProgramKey { rows, outputs: rows.min(outputs), want, is_final })
        })
        .collect()
}

/// What the target's graphs of a context have besides the model.
pub(crate) struct TargetParts<'a> {
    /// Hidden states that are copied out.
    pub taps: &'a BTreeSet<Tap>,
    /// Provides the state part of recurrent layers.
    pub rollback: Option<&'a RollbackClient>,
}

/// A built graph with the places that the engine writes and reads.
pub(crate) struct ProgramGraph {
    pub graph: Graph,
    pub groups: Vec<GroupOffsets>,
    pub updates: Option<UpdateOffsets>,
    /// Of the target's graphs.
    pub target: Option<TargetPlaces>,
    /// The strategy that the graph belongs to, and the program's name.
    pub owner: Option<(String, String)>,
    /// Blocks of that strategy's ring.
    pub ring_blocks: u32,
    /// Recurrent layers whose state a rollback strategy keeps.
    pub rolled: Vec<(u32, DeltaNetShape)>,
}

/// What only the target's graphs have.
#[derive(Clone, Copy)]
pub(crate) struct TargetPlaces {
    pub outputs: OutputOffsets,
    pub output: usize,
    pub embed_faults: usize,
}

/// Taps and recurrent layers of a graph of the target.
struct TargetPorts<'a> {
    parts: &'a TargetParts<'a>,
    hidden: u32,
    /// The rows stay.
    is_final: bool,
    /// Recurrent layers whose state a rollback strategy keeps.
    rolled: Vec<(u32, DeltaNetShape)>,
}

impl TargetPorts<'_> {
    fn store(&self, b: &mut Builder, step: &StepInputs, tap: Tap, x: ValueId) {
        if self.parts.taps.contains(&tap) {
            let state = tap.state(b, &step.context, self.hidden);
            let entries = step.staged(b);
            b.rows_store(x, state, entries);
        }
    }
}

impl Ports for TargetPorts<'_> {
    fn layer_input(&mut self, b: &mut Builder, step: &StepInputs, layer: u32, x: ValueId) {
        self.store(b, step, Tap::LayerInput(layer), x);
    }

    fn delta_net(
        &mut self,
        b: &mut Builder,
        step: &StepInputs,
        layer: u32,
        inputs: [ValueId; 5],
        shape: &DeltaNetShape,
    ) -> Result<ValueId> {
        let (Some(client), Some(rollback)) = (self.parts.rollback, step.rollback) else {
            return Closed.delta_net(b, step, layer, inputs, shape);
        };
        self.rolled.push((layer, *shape));
        let ports = DeltaNetPorts { inputs, sequences: step.sequences, rollback };
        let fragment = if self.is_final { client.settle(shape) } else { client.delta_net(shape) };
        let fragment = fragment
            .map_err(|source| EngineError::StrategyRefused { plugin: client.plugin().to_owned(), source })?;
        if self.is_final {
            let state = inline_settled(b, &fragment, client.plugin(), layer, &ports, shape)?;
            return Ok(b.gated_delta_net(inputs, state, step.sequences, shape.scale));
        }
        inline_delta_net(b, &fragment, client.plugin(), layer, &ports)
    }
}

/// Builds one graph of the target.
pub(crate) fn build(
    model: &Model,
    context: &ContextShape,
    parts: &TargetParts<'_>,
    key: ProgramKey,
) -> Result<ProgramGraph> {
    let family = model.family();
    let mut b = Builder::new();
    let step = StepInputs::declare(&mut b, context, key.rows);
    let output_count = b.parameter(output_name::COUNT, DType::I32, &[1], None);
    let output_rows = b.parameter(output_name::ROWS, DType::I32, &[key.outputs], Some(output_count));
    let (x, faults) = family.embed(&mut b, step.ids);
    b.result("embed_faults", faults);
    let mut ports =
        TargetPorts { parts, hidden: family.shape().hidden, is_final: key.is_final, rolled: Vec::new() };
    let x = family.trunk(&mut b, &step, &mut ports, x)?;
    // Rows are normed one by one, so it does not matter whether they are chosen before or after.
    let hidden = if parts.taps.contains(&Tap::Hidden) {
        let hidden = family.final_norm(&mut b, x);
        ports.store(&mut b, &step, Tap::Hidden, hidden);
        b.select_rows(hidden, output_rows)
    } else {
        let x = b.select_rows(x, output_rows);
        family.final_norm(&mut b, x)
    };
    let logits = family.head(&mut b, hidden);
    match key.want {
        Want::Logits => b.result("output", logits),
        Want::Ids => {
            // A row that is no numbers has a negative id; whoever reads that row finds out.
            let (ids, _) = b.argmax(logits);
            b.result("output", ids);
        }
    }
    let graph = b.finish();
    let offset = |name: &str| graph.result(name).map(|r| r.offset as usize);
    let (Some(outputs), Some(output), Some(embed_faults)) =
        (OutputOffsets::of(&graph), offset("output"), offset("embed_faults"))
    else {
        return Err(EngineError::Request("a step's graph lacks its own inputs and results".into()));
    };
    let target = TargetPlaces { outputs, output, embed_faults };
    Ok(ProgramGraph {
        groups: vec![GroupOffsets::of_target(&graph)],
        updates: UpdateOffsets::of(&graph),
        target: Some(target),
        owner: None,
        ring_blocks: 0,
        rolled: ports.rolled,
        graph,
    })
}

/// Builds the graph that brings the recurrent layers of one sequence up to the records that are kept.
pub(crate) fn build_settle(client: &RollbackClient, rolled: &[(u32, DeltaNetShape)]) -> Result<ProgramGraph> {
    let plugin = client.plugin();
    let mut b = Builder::new();
    let alone = DeltaNetShape { sequences: 1, ..rolled.first().map_or(NO_LAYER, |(_, shape)| *shape) };
    let [sequences, rollback] = DeltaNetPorts::declare_sequences(&mut b, &alone);
    let ports = [(name::SEQUENCES, sequences), (name::ROLLBACK, rollback)];
    for (layer, shape) in rolled {
        let shape = DeltaNetShape { sequences: 1, rows: 1, ..*shape };
        let fragment = client
            .settle(&shape)
            .map_err(|source| EngineError::StrategyRefused { plugin: plugin.to_owned(), source })?;
        inline_layer(&mut b, &fragment, plugin, *layer, &ports)?;
    }
    let graph = b.finish();
    Ok(ProgramGraph {
        groups: vec![GroupOffsets::of_target(&graph)],
        updates: None,
        target: None,
        owner: Some((plugin.to_owned(), SETTLE.to_owned())),
        ring_blocks: 0,
        rolled: Vec::new(),
        graph,
    })
}

/// Name of the program that settles recurrent state, for messages.
const SETTLE: &str = "settle recurrent state";

/// Stands for the shape of a layer where there is none.
const NO_LAYER: DeltaNetShape = DeltaNetShape {
    rows: 1,
    sequences: 1,
    slots: 1,
    depth: 1,
    key_heads: 1,
    value_heads: 1,
    key_width: 1,
    value_width: 1,
    scale: 1.0,
};

/// Builds one graph of a strategy.
pub(crate) fn build_strategy(
    model: &Model,
    context: &ContextShape,
    program: &DeclaredProgram,
    check: &Check<'_>,
) -> Result<ProgramGraph> {
    let graph = inline_family(&program.graph, model, context, &program.plugin, check)?;
    Ok(ProgramGraph {
        groups: GroupOffsets::of_strategy(&graph),
        updates: UpdateOffsets::of(&graph),
        target: None,
        owner: Some((program.plugin.clone(), program.name.clone())),
        ring_blocks: program.ring_blocks,
        rolled: Vec::new(),
        graph,
    })
}
