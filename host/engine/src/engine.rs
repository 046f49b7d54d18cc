//! The engine: a model on a device, with the sequences of one context.
//!
//! Everything is planned first: the graphs of the context, the layouts of the weights, the memory. Then arenas are
//! allocated whole and weights imported.

use crate::context::{Context, RunCounts};
use crate::error::{EngineError, Result};
use crate::loading;
use crate::memory::MemoryPlan;
use crate::model::Model;
use crate::programs::Want;
use crate::speculation::{Speculation, SpeculationReport};
use crate::step::{ContextShape, KV_BLOCK};
use crate::strategies::{
    self, Drafter, MOST_VERIFIED, Panics, STAGED_AFTER_MICROBATCH, Setup, StrategyOptions,
};
use paceline_plugin_api::backend::{Captures, Counters};
use paceline_plugin_api::client::BackendClient;
use paceline_plugin_api::graph::DType;
use paceline_plugin_api::graph::step::Tap;
use std::time::Duration;

/// Context of a model that was trained for more, when none is asked for.
const DEFAULT_CONTEXT: u32 = 8192;

/// What a context is made for.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// Index of the backend's device.
    pub device: u32,
    /// Settings of the backend: keys without the plugin's name, and values.
    pub settings: Vec<(String, String)>,
    /// Positions of a sequence; `None` takes what the model was trained for, at most 8192.
    pub context: Option<u32>,
    /// Sequences at a time.
    pub sequences: u32,
    /// Most rows of a run.
    pub microbatch: u32,
    /// Most outputs of a run.
    pub outputs: u32,
    /// Types of cached keys and values.
    pub kv_types: [DType; 2],
    /// How long a launch may take before the engine gives up on the device.
    pub launch_timeout: Duration,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            device: 0,
            settings: Vec::new(),
            context: None,
            sequences: 1,
            microbatch: 512,
            outputs: 16,
            kv_types: [DType::F16; 2],
            launch_timeout: Duration::from_secs(600),
        }
    }
}

/// A sequence of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SequenceId(pub(crate) u32);

/// Rows of one sequence in a run.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a> {
    /// The sequence.
    pub sequence: SequenceId,
    /// Tokens that follow what the sequence holds.
    pub tokens: &'a [u32],
    /// Outputs of these last tokens are wanted.
    pub outputs: usize,
}

/// What a run gave back: one output per wanted row, in the order of the rows.
#[derive(Clone, Copy, Debug)]
pub struct Outputs<'a> {
    pub(crate) want: Want,
    pub(crate) bytes: &'a [u8],
    pub(crate) count: usize,
    pub(crate) vocabulary: usize,
}

impl<'a> Outputs<'a> {
    /// Number of outputs.
    pub fn len(&self) -> usize {
        self.count
    }

    /// True if no output was wanted.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The id of output `index`, if ids were wanted.
    pub fn id(&self, index: usize) -> Option<u32> {
        let bytes = self.bytes.get(index * 4..index * 4 + 4).filter(|_| index < self.count)?;
        let id = i32::from_ne_bytes(bytes.try_into().ok()?);
        (self.want == Want::Ids).then_some(id)?.try_into().ok()
    }

    /// The logits of output `index`, if logits were wanted.
    pub fn logits(&self, index: usize) -> Option<&'a [f32]> {
        if self.want != Want::Logits || index >= self.count {
            return None;
        }
        // SAFETY: result blocks are aligned for f32, and every bit pattern is one.
        let (head, floats, _) = unsafe { self.bytes.align_to::<f32>() };
        debug_assert!(head.is_empty());
        floats.get(index * self.vocabulary..(index + 1) * self.vocabulary)
    }
}

/// A model on a device, with the sequences of one context. See the module's documentation.
pub struct Engine {
    pub(crate) context: Context,
    pub(crate) speculation: Speculation,
    pub(crate) panics: Panics,
}

impl Engine {
    /// Plans a context without strategies; see [`Engine::with_strategies`].
    ///
    /// # Errors
    /// As there.
    pub fn new(
        model: Model,
        backend: &BackendClient,
        options: EngineOptions,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Self> {
        Self::with_strategies(model, backend, options, &StrategyOptions::default(), progress)
    }

    /// Plans a context, checks that it fits, allocates it and imports the weights. `progress` is called with bytes
    /// of weights done and in all.
    ///
    /// # Errors
    /// Settings that the backend refuses, operations or types that it lacks, memory that is short; strategies that
    /// cannot work on this model and context.
    pub fn with_strategies(
        model: Model,
        backend: &BackendClient,
        mut options: EngineOptions,
        strategies: &StrategyOptions,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Self> {
        let (shape, setup, drafters) = prepare(&model, backend, &mut options, strategies)?;
        let loaded = loading::load(&model, backend, &shape, &options, &setup, progress)?;
        let context = Context::new(model, shape, options, loaded, setup.panics.clone());
        let speculation = Speculation::new(&context, drafters, strategies);
        Ok(Self { context, speculation, panics: setup.panics })
    }

    /// The memory that a context would take, without allocating anything or reading weights.
    ///
    /// # Errors
    /// As for [`Engine::with_strategies`], but for memory that is short.
    pub fn plan(
        model: &Model,
        backend: &BackendClient,
        mut options: EngineOptions,
        strategies: &StrategyOptions,
    ) -> Result<MemoryPlan> {
        let (shape, setup, _) = prepare(model, backend, &mut options, strategies)?;
        loading::memory_of(model, backend, &shape, &options, &setup)
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.context.model
    }

    /// The memory that was planned, and is held.
    pub fn memory(&self) -> &MemoryPlan {
        &self.context.loaded.memory
    }

    /// Positions that a sequence may have.
    pub fn context_length(&self) -> usize {
        self.context.shape.positions as usize
    }

    /// Most rows of a run.
    pub fn microbatch(&self) -> usize {
        self.context.options.microbatch as usize
    }

    /// Most outputs of a run.
    pub fn most_outputs(&self) -> usize {
        self.context.options.outputs as usize
    }

    /// What the device did so far.
    ///
    /// # Errors
    /// When the backend does not count.
    pub fn counters(&self) -> Result<Counters> {
        let device = &self.context.loaded.device;
        device.counters().map_err(EngineError::backend(device.plugin(), "counters"))
    }

    /// Whether steps are captured, and how often that was of use; `None` if the backend does not say.
    ///
    /// # Errors
    /// When the device does not answer.
    pub fn captures(&self) -> Result<Option<Captures>> {
        let device = &self.context.loaded.device;
        device.captures().map_err(EngineError::backend(device.plugin(), "captures"))
    }

    /// What runs cost so far, of the target and of strategies.
    pub fn run_counts(&self) -> RunCounts {
        self.context.counts
    }

    /// Starts an empty sequence.
    ///
    /// # Errors
    /// When all sequences of the context are in use.
    pub fn new_sequence(&mut self) -> Result<SequenceId> {
        let id = self.context.new_sequence()?;
        self.speculation.begin(id);
        Ok(id)
    }

    /// Ends a sequence and gives its memory back.
    pub fn end_sequence(&mut self, id: SequenceId) {
        self.context.end_sequence(id);
        self.speculation.begin(id);
    }

    /// Empties a sequence.
    pub fn clear_sequence(&mut self, id: SequenceId) {
        self.context.clear_sequence(id);
        self.speculation.begin(id);
    }

    /// Positions that a sequence holds.
    pub fn sequence_length(&self, id: SequenceId) -> usize {
        self.context.length(id)
    }

    /// Processes rows of one or several sequences in one launch.
    ///
    /// # Errors
    /// Rows that do not fit the microbatch, a sequence or the outputs; ids outside of the vocabulary; a backend that
    /// fails; outputs that are not numbers. A request that is refused changes nothing. After a launch that failed, or
    /// whose outputs are not numbers, what the run's sequences hold is undefined: they must be cleared. After one that
    /// did not end in time the engine is of no use any more.
    pub fn run(&mut self, rows: &[Rows<'_>], want: Want) -> Result<Outputs<'_>> {
        self.run_rows(rows, want, false)
    }

    /// As [`Engine::run`], of rows that stay: none of them needs to be taken back, which is quicker in models with recurrent
    /// layers. How many still could be, [`Engine::can_roll_back`] says.
    ///
    /// # Errors
    /// Those of [`Engine::run`].
    pub fn run_final(&mut self, rows: &[Rows<'_>], want: Want) -> Result<Outputs<'_>> {
        self.run_rows(rows, want, true)
    }

    fn run_rows(&mut self, rows: &[Rows<'_>], want: Want, is_final: bool) -> Result<Outputs<'_>> {
        let most = rows.iter().map(|part| part.tokens.len()).max().unwrap_or(0);
        self.speculation.catch_up(&mut self.context, most);
        // Noted before, since the outputs borrow the context; a run that fails leaves sequences that must be cleared.
        for part in rows {
            let position = self.context.length(part.sequence);
            self.speculation.processed(part.sequence, position, part.tokens);
        }
        let Self { context, speculation, .. } = self;
        let outputs = context.run(rows, want, is_final);
        if outputs.is_err() {
            rows.iter().for_each(|part| speculation.not_processed(part.sequence, part.tokens.len()));
        }
        outputs
    }

    /// Takes back the last `rows` positions of a sequence, as if they had never been processed.
    ///
    /// # Errors
    /// More than the context keeps the recurrent state of; nothing is changed then. The verdict is that of
    /// [`Engine::can_roll_back`].
    pub fn roll_back(&mut self, id: SequenceId, rows: usize) -> Result<()> {
        self.context.roll_back(id, rows)?;
        self.speculation.taken_back(id, rows, self.context.length(id));
        Ok(())
    }

    /// Hidden states of a sequence's last positions, `count` rows of the model's width from `position` on: of a tap that
    /// [`StrategyOptions::taps`] asked for.
    ///
    /// # Errors
    /// A tap that was not asked for; positions that are not processed, or so far back that they are not kept.
    pub fn hidden_states(
        &mut self,
        id: SequenceId,
        tap: Tap,
        position: usize,
        count: usize,
    ) -> Result<Vec<f32>> {
        let (length, rows) = (self.context.length(id), self.context.shape.staged_rows as usize);
        let end = position.checked_add(count).filter(|&end| end <= length && length - position <= rows);
        let Some(end) = end else {
            return Err(EngineError::Request(format!(
                "hidden states of {count} positions from {position} on were asked for; those of the last {} of \
                 {length} are kept",
                rows.min(length)
            )));
        };
        let mut states = Vec::with_capacity(count * self.model().shape().hidden as usize);
        let mut part = Vec::new();
        let mut at = position;
        while at < end {
            // As far as the ring goes on without a turn.
            let entry = at % rows;
            let run = (end - at).min(rows - entry);
            let first = (id.0 as usize * rows + entry) as u32;
            self.context.loaded.move_state(&tap.state_name(), first, run as u32, &mut part, true)?;
            states.extend(part.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)));
            at += run;
        }
        Ok(states)
    }

    /// What strategies did since [`Engine::clear_speculation_report`].
    pub fn speculation_report(&self) -> SpeculationReport {
        self.speculation.report()
    }

    /// Begins a new report.
    pub fn clear_speculation_report(&mut self) {
        self.speculation.clear_report();
    }

    /// Seconds of a verification by the number of drafted tokens, as far as rounds of one sequence measured them.
    pub fn verify_seconds(&self) -> Vec<(usize, f64)> {
        self.speculation.verify_seconds()
    }

    /// How many positions [`Engine::roll_back`] could take back now.
    pub fn can_roll_back(&self, id: SequenceId) -> usize {
        self.context.rollable(id)
    }
}

/// Makes the strategies and the shape of a context.
fn prepare(
    model: &Model,
    backend: &BackendClient,
    options: &mut EngineOptions,
    wanted: &StrategyOptions,
) -> Result<(ContextShape, Setup, Vec<Drafter>)> {
    let limit = wanted.most_verified;
    if !(1..=MOST_VERIFIED).contains(&limit) {
        return Err(EngineError::Request(format!(
            "a run cannot verify {limit} drafted tokens; it takes from 1 to {MOST_VERIFIED}"
        )));
    }
    let mut shape = context_shape(model, options)?;
    let speculates = !wanted.drafters.is_empty() || wanted.rollback.is_some();
    if !speculates && wanted.taps.is_empty() {
        return Ok((shape, Setup::default(), Vec::new()));
    }
    shape.staged_rows = options.microbatch + STAGED_AFTER_MICROBATCH;
    shape.rollback_depth = if speculates { limit } else { 0 };
    let (setup, drafters) = strategies::create(model, backend.plugin(), &shape, options.microbatch, wanted)?;
    if !speculates {
        return Ok((shape, setup, drafters));
    }
    // No more state is kept than the longest draft needs.
    let longest = drafters.iter().map(|d| d.client.info().most).max().unwrap_or(limit);
    shape.rollback_depth = longest.clamp(1, limit);
    let verified = (shape.rollback_depth + 1).saturating_mul(options.sequences);
    options.outputs = options.outputs.max(verified.min(options.microbatch));
    Ok((shape, setup, drafters))
}

fn context_shape(model: &Model, options: &EngineOptions) -> Result<ContextShape> {
    let trained = model.shape().context;
    let context = options.context.unwrap_or_else(|| trained.min(DEFAULT_CONTEXT));
    let limits = [
        ("context", context, 1, 1 << 30),
        ("sequences", options.sequences, 1, 4096),
        ("microbatch", options.microbatch, 1, 1 << 16),
        ("outputs", options.outputs, 1, options.microbatch.max(1)),
    ];
    for (name, value, min, max) in limits {
        if !(min..=max).contains(&value) {
            return Err(EngineError::Request(format!("{name} cannot be {value}; it takes {min} to {max}")));
        }
    }
    let width = model.shape().head_width;
    for dtype in options.kv_types {
        if dtype.block().is_none_or(|(elements, _)| !width.is_multiple_of(elements)) {
            return Err(EngineError::Request(format!(
                "KV type {dtype} does not fit this model, whose cached heads have {width} elements"
            )));
        }
    }
    if context > trained {
        tracing::warn!("a context of {context} is more than the {trained} that the model was trained for");
    }
    Ok(ContextShape {
        sequences: options.sequences,
        positions: context,
        blocks_per_sequence: context.div_ceil(KV_BLOCK),
        kv_types: options.kv_types,
        staged_rows: 0,
        rollback_depth: 0,
    })
}
