//! The engine: a model on a device, with the sequences of one context.
//!
//! Everything is planned first: the graphs of the context, the layouts of the weights, the memory. Then arenas are
//! allocated whole and weights imported. A run fills one parameter block, launches one executable and waits once;
//! once an executable was used, a run allocates nothing.

use crate::blocks::{BlockPool, SequenceState};
use crate::error::{EngineError, Result};
use crate::loading::{self, Loaded};
use crate::memory::MemoryPlan;
use crate::model::Model;
use crate::programs::{ProgramKey, Want};
use crate::step::{ContextShape, KV_BLOCK, most_updates};
use paceline_plugin_api::ErrorKind;
use paceline_plugin_api::backend::Counters;
use paceline_plugin_api::client::BackendClient;
use paceline_plugin_api::graph::DType;
use std::mem::ManuallyDrop;
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
pub struct SequenceId(u32);

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
    want: Want,
    bytes: &'a [u8],
    count: usize,
    vocabulary: usize,
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
    model: Model,
    context: ContextShape,
    options: EngineOptions,
    /// Dropped by hand: not while a launch that hangs may still use it.
    loaded: ManuallyDrop<Loaded>,
    /// A launch did not end in time, and may still write to the device's memory.
    hangs: bool,
    pool: BlockPool,
    sequences: Vec<SequenceState>,
    /// Blocks that runs have taken but whose table entries are not yet on the device: (slot, column, block).
    updates: Vec<[i32; 3]>,
    /// Value of the semaphore after the last launch.
    timeline: u64,
}

impl Engine {
    /// Plans a context, checks that it fits, allocates it and imports the weights. `progress` is called with bytes
    /// of weights done and in all.
    ///
    /// # Errors
    /// Settings that the backend refuses, operations or types that it lacks, memory that is short.
    pub fn new(
        model: Model,
        backend: &BackendClient,
        options: EngineOptions,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Self> {
        let context = context_shape(&model, &options)?;
        let loaded = loading::load(&model, backend, &context, &options, progress)?;
        let sequences = (0..context.sequences)
            .map(|_| SequenceState {
                in_use: false,
                length: 0,
                blocks: Vec::with_capacity(context.blocks_per_sequence as usize),
            })
            .collect();
        let pool = BlockPool::new(context.blocks());
        let updates = Vec::with_capacity(context.blocks() as usize);
        let loaded = ManuallyDrop::new(loaded);
        Ok(Self { model, context, options, loaded, hangs: false, pool, sequences, updates, timeline: 0 })
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The memory that was planned, and is held.
    pub fn memory(&self) -> &MemoryPlan {
        &self.loaded.memory
    }

    /// Positions that a sequence may have.
    pub fn context_length(&self) -> usize {
        self.context.positions as usize
    }

    /// Most rows of a run.
    pub fn microbatch(&self) -> usize {
        self.options.microbatch as usize
    }

    /// Most outputs of a run.
    pub fn most_outputs(&self) -> usize {
        self.options.outputs as usize
    }

    /// What the device did so far.
    ///
    /// # Errors
    /// When the backend does not count.
    pub fn counters(&self) -> Result<Counters> {
        let device = &self.loaded.device;
        device.counters().map_err(EngineError::backend(device.plugin(), "counters"))
    }

    /// Starts an empty sequence.
    ///
    /// # Errors
    /// When all sequences of the context are in use.
    pub fn new_sequence(&mut self) -> Result<SequenceId> {
        let free = self.sequences.iter().position(|s| !s.in_use).ok_or_else(|| {
            EngineError::Request(format!(
                "all {} sequences of the context are in use",
                self.context.sequences
            ))
        })?;
        self.sequences[free].in_use = true;
        Ok(SequenceId(free as u32))
    }

    /// Ends a sequence and gives its memory back.
    pub fn end_sequence(&mut self, id: SequenceId) {
        self.clear_sequence(id);
        if let Some(sequence) = self.sequences.get_mut(id.0 as usize) {
            sequence.in_use = false;
        }
    }

    /// Empties a sequence.
    pub fn clear_sequence(&mut self, id: SequenceId) {
        let Some(sequence) = self.sequences.get_mut(id.0 as usize) else { return };
        sequence.length = 0;
        for block in sequence.blocks.drain(..) {
            self.pool.give(block);
        }
        self.updates.retain(|update| update[0] != id.0 as i32);
    }

    /// Positions that a sequence holds.
    pub fn sequence_length(&self, id: SequenceId) -> usize {
        self.sequences.get(id.0 as usize).map_or(0, |s| s.length as usize)
    }

    /// Processes rows of one or several sequences in one launch.
    ///
    /// # Errors
    /// Rows that do not fit the microbatch, a sequence or the outputs; ids outside of the vocabulary; a backend that
    /// fails; outputs that are not numbers. A request that is refused changes nothing. After a launch that failed, or
    /// whose outputs are not numbers, what the run's sequences hold is undefined: they must be cleared. After one that
    /// did not end in time the engine is of no use any more.
    pub fn run(&mut self, rows: &[Rows<'_>], want: Want) -> Result<Outputs<'_>> {
        if self.hangs {
            return Err(EngineError::Request(format!(
                "an earlier launch on backend `{}` did not end in time; make a new engine",
                self.loaded.device.plugin()
            )));
        }
        let (total, outputs) = self.check(rows)?;
        self.take_blocks(rows)?;
        let key = self.key(total, outputs, want)?;
        let index = self.loaded.program(key)?;
        self.write_parameters(index, rows);
        let value = self.timeline + 1;
        let (executable, semaphore) = self.loaded.executable(index)?;
        let timeout = u64::try_from(self.options.launch_timeout.as_nanos()).unwrap_or(u64::MAX);
        let launched = executable.launch(0, semaphore, value).and_then(|()| semaphore.wait(value, timeout));
        if let Err(source) = launched {
            if source.kind == ErrorKind::Timeout {
                self.hangs = true;
                return Err(EngineError::backend(self.loaded.device.plugin(), "running a step")(source));
            }
            // The caller learns of the launch. What the reset may meet, on a lost device, the next run meets too.
            if self.loaded.reset().is_ok() {
                self.timeline = 0;
            }
            return Err(EngineError::backend(self.loaded.device.plugin(), "running a step")(source));
        }
        self.timeline = value;
        self.updates.clear();
        for part in rows {
            self.sequences[part.sequence.0 as usize].length += part.tokens.len() as u32;
        }
        // For errors: the last row of the first sequence, whose output is wanted most often.
        let position = rows.first().map_or(0, |r| self.sequence_length(r.sequence).saturating_sub(1));
        self.outputs(index, outputs, want, position)
    }

    fn check(&self, rows: &[Rows<'_>]) -> Result<(usize, usize)> {
        let (mut total, mut outputs) = (0, 0);
        for (index, part) in rows.iter().enumerate() {
            let state = self.sequences.get(part.sequence.0 as usize).filter(|s| s.in_use);
            let state = state
                .ok_or_else(|| EngineError::Request("a sequence was ended or is not this engine's".into()))?;
            if rows[..index].iter().any(|other| other.sequence == part.sequence) {
                return Err(EngineError::Request("a sequence appears twice in one run".into()));
            }
            if part.tokens.is_empty() || part.outputs > part.tokens.len() {
                return Err(EngineError::Request(
                    "a run needs tokens, and outputs of no more than these".into(),
                ));
            }
            if let Some(id) = part.tokens.iter().find(|&&id| id >= self.model.shape().vocabulary) {
                return Err(EngineError::Request(format!(
                    "token {id} is outside of the vocabulary of {}",
                    self.model.shape().vocabulary
                )));
            }
            if state.length as usize + part.tokens.len() > self.context_length() {
                return Err(EngineError::ContextFull { context: self.context_length() });
            }
            total += part.tokens.len();
            outputs += part.outputs;
        }
        if rows.is_empty() || total > self.microbatch() || outputs > self.most_outputs() {
            return Err(EngineError::Request(format!(
                "a run of {total} rows and {outputs} outputs; from 1 to {} rows and at most {} outputs fit",
                self.microbatch(),
                self.most_outputs()
            )));
        }
        Ok((total, outputs))
    }

    /// Gives every sequence the blocks that its new rows need.
    fn take_blocks(&mut self, rows: &[Rows<'_>]) -> Result<()> {
        for part in rows {
            let slot = part.sequence.0 as usize;
            let needed =
                (self.sequences[slot].length as usize + part.tokens.len()).div_ceil(KV_BLOCK as usize);
            while self.sequences[slot].blocks.len() < needed {
                let block = self
                    .pool
                    .take()
                    .ok_or(EngineError::ContextFull { context: self.context.positions as usize })?;
                let column = self.sequences[slot].blocks.len();
                self.sequences[slot].blocks.push(block);
                self.updates.push([slot as i32, column as i32, block as i32]);
            }
        }
        Ok(())
    }

    /// The smallest graph that holds the run.
    fn key(&self, rows: usize, outputs: usize, want: Want) -> Result<ProgramKey> {
        let updates = self.updates.len();
        let fits = |key: &&ProgramKey| {
            key.rows as usize >= rows
                && key.outputs as usize >= outputs
                && key.want == want
                && most_updates(key.rows, self.context.sequences) as usize >= updates
        };
        let found = self.loaded.keys().iter().find(fits).copied();
        found.ok_or_else(|| EngineError::Request(format!("no graph holds a run of {rows} rows")))
    }

    fn write_parameters(&mut self, index: usize, rows: &[Rows<'_>]) {
        let offsets = self.loaded.offsets(index);
        let block = self.loaded.parameter_block();
        let mut write = |offset: usize, position: usize, value: i32| {
            let at = offset + position * 4;
            block[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        };
        let (mut row, mut output) = (0, 0);
        for (number, part) in rows.iter().enumerate() {
            let state = &self.sequences[part.sequence.0 as usize];
            let entry = [row as i32, part.tokens.len() as i32, state.length as i32, part.sequence.0 as i32];
            for (field, value) in entry.into_iter().enumerate() {
                write(offsets.sequences, number * 4 + field, value);
            }
            for (index, &token) in part.tokens.iter().enumerate() {
                let position = state.length as usize + index;
                let block = state.blocks[position / KV_BLOCK as usize] as i32;
                write(offsets.ids, row, token as i32);
                write(offsets.positions, row, position as i32);
                write(offsets.cells, row, block * KV_BLOCK as i32 + (position % KV_BLOCK as usize) as i32);
                if index + part.outputs >= part.tokens.len() {
                    write(offsets.output_rows, output, row as i32);
                    output += 1;
                }
                row += 1;
            }
        }
        for (number, update) in self.updates.iter().enumerate() {
            for (field, &value) in update.iter().enumerate() {
                write(offsets.updates, number * 3 + field, value);
            }
        }
        write(offsets.row_count, 0, row as i32);
        write(offsets.sequence_count, 0, rows.len() as i32);
        write(offsets.output_count, 0, output as i32);
        write(offsets.update_count, 0, self.updates.len() as i32);
    }

    fn outputs(&mut self, index: usize, count: usize, want: Want, position: usize) -> Result<Outputs<'_>> {
        let places = self.loaded.result_places(index);
        let vocabulary = self.model.shape().vocabulary as usize;
        let block = self.loaded.result_block();
        let fault = |offset: usize| block[offset..offset + 4] != [0; 4];
        if fault(places.embed_faults) {
            return Err(EngineError::Request("the device found ids outside of the vocabulary".into()));
        }
        if places.output_faults.is_some_and(fault) {
            return Err(EngineError::NotFinite { position });
        }
        let width = if want == Want::Logits { vocabulary } else { 1 };
        let bytes = &block[places.output..places.output + count * width * 4];
        Ok(Outputs { want, bytes, count, vocabulary })
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // Memory that a hanging launch may still write to is never given back.
        if !self.hangs {
            // SAFETY: not used again: this is the drop of its owner.
            unsafe { ManuallyDrop::drop(&mut self.loaded) };
        }
    }
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
    })
}
