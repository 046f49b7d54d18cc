//! A graph lowered for this processor: kernels in phases, with a place for every value.
//!
//! Lowering ([`lower()`]) turns nodes into kernels and adds what the graph does not say: quantised forms of
//! activations, made once for all products that read them, and the angles of rotations. Scheduling ([`schedule`])
//! puts kernels that do not depend on each other into one phase; between phases all threads meet. Placement
//! ([`place_intermediates`](support::place_intermediates)) gives each intermediate value a range of the workspace that it shares with values that live at other
//! times.

mod experts;
mod lower;
mod names;
mod schedule;

pub(crate) use experts::{ExpertMatrix, ExpertStage, ExpertsWork};
pub(crate) use lower::lower;

use crate::kernels::attention::attention_scratch_floats;
use crate::kernels::elementwise::Activation;
use crate::kernels::experts::Routing;
use crate::kernels::kv::CellFormat;
use crate::kernels::rope::RopePairing;
use crate::weights::WeightType;
use paceline_plugin_api::backend::{Plan, PlanSummary};
use paceline_plugin_api::graph::Graph;
use paceline_plugin_api::support::{self, ParameterCheck};
use std::sync::Arc;

/// Index of a value: those of the graph first, in its order, then those that lowering added.
pub(crate) type Id = usize;

/// Workspace offsets are multiples of a cache line.
pub(crate) const ALIGNMENT: usize = 64;

/// How many entries of axis 0 are live in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Live {
    /// Byte offset of the count in the parameter block, if it is not fixed.
    pub offset: Option<usize>,
    /// The largest count.
    pub max: usize,
}

impl From<Live> for support::Live {
    fn from(live: Live) -> Self {
        Self { offset: live.offset.map(|offset| offset as u64), max: live.max.try_into().unwrap_or(u32::MAX) }
    }
}

/// Where a value is in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Offset in the workspace.
    Workspace(usize),
    /// Offset in the parameter block.
    Parameter(usize),
    /// Offset in the result block.
    Result(usize),
    /// Index among the weights.
    Weight(usize),
    /// Index among the states.
    State(usize),
}

/// A kernel whose rows are independent.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum RowKernel {
    Embed {
        ids: Id,
        table: Id,
        kind: WeightType,
        vocabulary: usize,
        out: Id,
        faults: Id,
    },
    RmsNorm {
        x: Id,
        weight: Option<Id>,
        gate: Option<Id>,
        epsilon: f32,
        norm: usize,
        out: Id,
    },
    L2Norm {
        x: Id,
        epsilon: f32,
        norm: usize,
        out: Id,
    },
    Add {
        x: Id,
        y: Id,
        y_width: usize,
        out: Id,
    },
    Mul {
        x: Id,
        y: Id,
        y_width: usize,
        out: Id,
    },
    Scale {
        x: Id,
        factor: f32,
        out: Id,
    },
    Activation {
        x: Id,
        kind: Activation,
        cap: Option<f32>,
        out: Id,
    },
    Glu {
        gate: Id,
        up: Id,
        kind: Activation,
        out: Id,
    },
    /// Each span of `from_width` elements gives `count` of them, from `from` on, to a span of `to_width`.
    Columns {
        x: Id,
        from_width: usize,
        from: usize,
        out: Id,
        to_width: usize,
        to: usize,
        count: usize,
    },
    Quantize {
        x: Id,
        out: Id,
    },
    Angles {
        positions: Id,
        table: usize,
        factors: Option<Id>,
        out: Id,
    },
    Rope {
        x: Id,
        angles: Id,
        pairs: usize,
        heads: usize,
        pairing: RopePairing,
        out: Id,
    },
    SelectRows {
        x: Id,
        x_rows: usize,
        rows: Id,
        out: Id,
    },
    Argmax {
        x: Id,
        ids: Id,
        faults: Id,
    },
    Draw {
        x: Id,
        noise: Id,
        tokens: Option<Id>,
        ids: Id,
        faults: Id,
    },
    TopK {
        x: Id,
        count: usize,
        ids: Id,
        values: Id,
    },
    Softmax {
        x: Id,
        norm: usize,
        out: Id,
    },
    Route {
        logits: Id,
        routing: Routing,
        ids: Id,
        weights: Id,
    },
    /// Entries of a table; an id outside of it gives 0.
    Lookup {
        ids: Id,
        table: Id,
        entries: usize,
        out: Id,
    },
    /// Rows of a state; a cell outside of it gives zeros.
    RowsLoad {
        state: Id,
        entries: usize,
        cells: Id,
        out: Id,
    },
    KvAppend {
        k: Id,
        v: Id,
        caches: [Cache; 2],
        cells: Id,
    },
}

/// What the frequencies of a rotation follow from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Rotation {
    pub rotary: usize,
    pub base: f64,
    pub divisor: f64,
}

/// A KV cache.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Cache {
    pub state: Id,
    pub format: CellFormat,
    pub blocks: usize,
    pub heads: usize,
    pub width: usize,
}

/// One product.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Linear {
    pub weight: Id,
    pub kind: WeightType,
    pub n: usize,
    pub k: usize,
    /// Plain or quantised activations, as the weight wants.
    pub activations: Id,
    pub bias: Option<Id>,
    pub out: Id,
    pub live: Live,
}

/// Attention over a cache.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AttentionWork {
    pub q: Id,
    pub caches: [Cache; 2],
    pub table: Id,
    pub table_shape: [usize; 2],
    pub sequences: Id,
    pub sequences_live: Live,
    pub sinks: Option<Id>,
    pub scale: f32,
    pub cap: Option<f32>,
    pub window: usize,
    pub causal: bool,
    pub heads: usize,
    pub rows: Live,
    /// Visible intervals of the rows, an intermediate: begins, then ends.
    pub visible: Id,
    /// What spans of the context give, where threads share them, an intermediate.
    pub parts: Id,
    pub out: Id,
}

impl AttentionWork {
    /// Spans that the context of a sequence can have.
    pub fn most_spans(&self) -> usize {
        crate::kernels::attention::spans::span_of(self.table_shape[1].saturating_sub(1)) + 1
    }
}

/// Causal convolution.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ConvWork {
    pub x: Id,
    pub weight: Id,
    pub state: Id,
    pub slots: usize,
    pub sequences: Id,
    pub sequences_live: Live,
    pub planes: usize,
    /// Where there is more than one plane.
    pub rollback: Option<Id>,
    pub channels: usize,
    pub taps: usize,
    pub silu: bool,
    pub rows: Live,
    pub out: Id,
}

/// What the delta rule leaves for a later run to go back to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum DeltaMode {
    Plain,
    Snapshots { planes: usize, rollback: Id },
    Records { records: Records, rollback: Id },
}

/// Two banks of records for each slot.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Records {
    pub state: Id,
    /// Records of a bank.
    pub count: usize,
    pub width: usize,
}

/// Kept records that are applied to a state.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ReplayWork {
    pub state: Id,
    pub slots: usize,
    pub records: Records,
    pub sequences: Id,
    pub sequences_live: Live,
    pub rollback: Id,
    pub key_heads: usize,
    pub value_heads: usize,
    pub key_width: usize,
    pub value_width: usize,
}

/// The gated delta rule.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct DeltaWork {
    pub inputs: [Id; 5],
    pub state: Id,
    pub slots: usize,
    pub mode: DeltaMode,
    /// Kept records that go over the state first.
    pub replay: Option<ReplayWork>,
    pub sequences: Id,
    pub sequences_live: Live,
    pub key_heads: usize,
    pub value_heads: usize,
    pub key_width: usize,
    pub value_width: usize,
    pub scale: f32,
    pub rows: Live,
    pub out: Id,
}

/// Rows stored in a state.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RowsStore {
    pub x: Id,
    pub state: Id,
    pub entries: usize,
    pub width: usize,
    pub cells: Id,
    pub rows: Live,
}

/// One piece of work that threads share by chunks.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Kernel {
    /// Row kernels that run one after the other on the same rows: a chunk takes its rows through all of them. With
    /// each stands the number of elements of a row of its input.
    Rows {
        live: Live,
        chain: Vec<(RowKernel, usize)>,
    },
    Linear(Linear),
    /// One stage of a mixture of experts.
    Experts(ExpertStage, ExpertsWork),
    RowsStore(RowsStore),
    Attention(AttentionWork),
    /// Combines the spans of an attention where threads shared them; else there is nothing to do.
    AttentionCombine(AttentionWork),
    Conv(ConvWork),
    Delta(DeltaWork),
    Replay(ReplayWork),
    /// Small and sequential: the visible intervals of an attention.
    Visible(AttentionWork),
    TableUpdate {
        table: Id,
        shape: [usize; 2],
        updates: Id,
        live: Live,
    },
}

/// A lowered graph.
pub(crate) struct Program {
    pub phases: Vec<Vec<Kernel>>,
    pub places: Vec<Place>,
    /// Bytes of a parameter block.
    pub parameter_bytes: usize,
    pub checks: Vec<ParameterCheck>,
    /// Counters in the workspace or the result block that are zero when a run begins.
    pub counters: Vec<Id>,
    /// The kinds of rotation.
    pub rotations: Vec<Rotation>,
    pub states: Vec<StateLayout>,
    /// Bytes of each weight in its layout.
    pub weight_bytes: Vec<u64>,
    /// Offset in the workspace of the threads' scratch, and floats for each.
    pub scratch: usize,
    pub scratch_floats: usize,
    pub threads: usize,
    pub workspace_bytes: usize,
}

/// The physical layout of a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StateLayout {
    /// Cells by block, head and offset.
    Cache { format: CellFormat, blocks: usize, heads: usize, width: usize },
    /// Canonical, `entries` of `bytes` each.
    Plain { entries: usize, bytes: usize },
}

impl StateLayout {
    pub fn bytes(self) -> usize {
        match self {
            Self::Cache { format, blocks, heads, width } => {
                crate::kernels::kv::cache_bytes(format, blocks, heads, width)
            }
            Self::Plain { entries, bytes } => entries * bytes,
        }
    }
}

/// What the plugin API calls a plan.
pub struct CpuPlan {
    pub(crate) program: Arc<Program>,
    pub(crate) graph: Graph,
    summary: PlanSummary,
}

impl CpuPlan {
    pub(crate) fn new(program: Program, graph: Graph, summary: PlanSummary) -> Self {
        Self { program: Arc::new(program), graph, summary }
    }
}

impl Plan for CpuPlan {
    fn summary(&self) -> &PlanSummary {
        &self.summary
    }
}

impl RowKernel {
    /// What an element takes, in elements that are only added or moved.
    pub fn effort(&self) -> usize {
        match self {
            Self::Glu { .. }
            | Self::Activation { .. }
            | Self::RmsNorm { gate: Some(_), .. }
            | Self::Softmax { .. }
            | Self::Angles { .. }
            | Self::TopK { .. } => 6,
            Self::Quantize { .. } => 4,
            Self::RmsNorm { .. } | Self::L2Norm { .. } => 2,
            _ => 1,
        }
    }

    /// Values that are read.
    pub fn reads(&self) -> Vec<Id> {
        match *self {
            Self::Embed { ids, table, .. } => vec![ids, table],
            Self::RmsNorm { x, weight, gate, .. } => [Some(x), weight, gate].into_iter().flatten().collect(),
            Self::L2Norm { x, .. }
            | Self::Scale { x, .. }
            | Self::Activation { x, .. }
            | Self::Columns { x, .. }
            | Self::Quantize { x, .. }
            | Self::Argmax { x, .. }
            | Self::TopK { x, .. }
            | Self::Softmax { x, .. } => vec![x],
            Self::Draw { x, noise, tokens, .. } => {
                [Some(x), Some(noise), tokens].into_iter().flatten().collect()
            }
            Self::Add { x, y, .. } | Self::Mul { x, y, .. } => vec![x, y],
            Self::Glu { gate, up, .. } => vec![gate, up],
            Self::Angles { positions, factors, .. } => {
                [Some(positions), factors].into_iter().flatten().collect()
            }
            Self::Route { logits, .. } => vec![logits],
            Self::Rope { x, angles, .. } => vec![x, angles],
            Self::SelectRows { x, rows, .. } => vec![x, rows],
            Self::RowsLoad { state, cells, .. } => vec![state, cells],
            Self::Lookup { ids, table, .. } => vec![ids, table],
            Self::KvAppend { k, v, cells, .. } => vec![k, v, cells],
        }
    }

    /// Values and states that are written.
    pub fn writes(&self) -> Vec<Id> {
        match *self {
            Self::Embed { out, faults, .. } => vec![out, faults],
            Self::Argmax { ids, faults, .. } | Self::Draw { ids, faults, .. } => vec![ids, faults],
            Self::TopK { ids, values, .. } => vec![ids, values],
            Self::Route { ids, weights, .. } => vec![ids, weights],
            Self::KvAppend { caches, .. } => caches.map(|c| c.state).to_vec(),
            Self::RmsNorm { out, .. }
            | Self::L2Norm { out, .. }
            | Self::Add { out, .. }
            | Self::Mul { out, .. }
            | Self::Scale { out, .. }
            | Self::Activation { out, .. }
            | Self::Glu { out, .. }
            | Self::Columns { out, .. }
            | Self::Quantize { out, .. }
            | Self::Angles { out, .. }
            | Self::Rope { out, .. }
            | Self::SelectRows { out, .. }
            | Self::RowsLoad { out, .. }
            | Self::Lookup { out, .. }
            | Self::Softmax { out, .. } => vec![out],
        }
    }

    /// True if a row of the output reads nothing but the same row of the inputs that other kernels make.
    pub fn is_local(&self) -> bool {
        !matches!(self, Self::SelectRows { .. } | Self::RowsLoad { .. })
    }
}

impl DeltaWork {
    pub fn rollback(&self) -> Option<Id> {
        match self.mode {
            DeltaMode::Plain => None,
            DeltaMode::Snapshots { rollback, .. } | DeltaMode::Records { rollback, .. } => Some(rollback),
        }
    }

    pub fn records(&self) -> Option<Records> {
        match self.mode {
            DeltaMode::Records { records, .. } => Some(records),
            _ => None,
        }
    }
}

impl Kernel {
    /// Values and states that are read.
    pub fn reads(&self) -> Vec<Id> {
        match self {
            Self::Rows { chain, .. } => chain.iter().flat_map(|(kernel, _)| kernel.reads()).collect(),
            Self::Linear(l) => [Some(l.weight), Some(l.activations), l.bias].into_iter().flatten().collect(),
            Self::Experts(stage, work) => work.reads(*stage),
            Self::Attention(a) => {
                let caches = a.caches.map(|c| c.state);
                [&[a.q, a.table, a.sequences, a.visible][..], &caches, a.sinks.as_slice()].concat()
            }
            Self::AttentionCombine(a) => {
                [&[a.q, a.parts, a.sequences, a.visible][..], a.sinks.as_slice()].concat()
            }
            Self::RowsStore(s) => vec![s.x, s.cells],
            Self::Visible(a) => vec![a.sequences],
            Self::Conv(c) => [&[c.x, c.weight, c.sequences], c.rollback.as_slice()].concat(),
            Self::Delta(d) => {
                let replayed = d.replay.as_ref().map(|replay| [replay.records.state, replay.rollback]);
                let replayed = replayed.as_ref().map_or(&[][..], |ids| ids);
                [&d.inputs[..], &[d.sequences], d.rollback().as_slice(), replayed].concat()
            }
            Self::Replay(r) => vec![r.records.state, r.sequences, r.rollback],
            Self::TableUpdate { updates, .. } => vec![*updates],
        }
    }

    /// Values and states that are written.
    pub fn writes(&self) -> Vec<Id> {
        match self {
            Self::Rows { chain, .. } => chain.iter().flat_map(|(kernel, _)| kernel.writes()).collect(),
            Self::Linear(l) => vec![l.out],
            Self::Experts(stage, work) => work.writes(*stage),
            Self::Attention(a) => vec![a.out, a.parts],
            Self::AttentionCombine(a) => vec![a.out],
            Self::RowsStore(s) => vec![s.state],
            Self::Visible(a) => vec![a.visible],
            Self::Conv(c) => vec![c.state, c.out],
            Self::Delta(d) => {
                [&[d.state, d.out], d.records().map(|records| records.state).as_slice()].concat()
            }
            Self::Replay(r) => vec![r.state],
            Self::TableUpdate { table, .. } => vec![*table],
        }
    }

    /// Floats of scratch that a thread needs.
    pub fn scratch_floats(&self) -> usize {
        match self {
            Self::Attention(a) => attention_scratch_floats(a.heads, a.caches[0].heads, a.caches[0].width),
            Self::Delta(d) => crate::kernels::gdn::scratch_floats(d.key_width),
            _ => 0,
        }
    }
}
