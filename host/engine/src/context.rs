//! A context on a device: its sequences, and runs of its graphs.
//!
//! A run fills one parameter block, launches one executable and waits once; once an executable was used, a run
//! allocates nothing.

use crate::blocks::{BlockPool, RollbackShape, SequenceState};
use crate::engine::{EngineOptions, Outputs, Rows, SequenceId};
use crate::error::{EngineError, Result};
use crate::loading::Loaded;
use crate::model::{LayerKind, Model};
use crate::programs::{ProgramKey, Want};
use crate::recovery::Text;
use crate::sampling::Draws;
use crate::step::{ContextShape, GroupWriter, KV_BLOCK, ParameterBlock, Span};
use crate::strategies::Panics;
use paceline_plugin_api::graph::step::{most_updates, name};
use paceline_plugin_api::strategy::GroupRows;
use paceline_plugin_api::{Error as PluginError, ErrorKind};
use std::mem::ManuallyDrop;

/// What runs cost so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunCounts {
    /// Parameter blocks that were written: one a launch.
    pub uploads: u64,
    /// Launches.
    pub launches: u64,
    /// Waits for a launch.
    pub waits: u64,
    /// Bytes of parameters.
    pub bytes_to_device: u64,
    /// Bytes of results.
    pub bytes_from_device: u64,
    /// Executables that were bound, on their first use or after a failure.
    pub loads: u64,
    /// Bytes of states that went through the host: of sequences that were saved or restored. Rounds add nothing, since
    /// hidden states go from the target to strategies on the device.
    pub cpu_copy_bytes: u64,
}

impl RunCounts {
    /// What was counted after `before`.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self {
            uploads: self.uploads.saturating_sub(before.uploads),
            launches: self.launches.saturating_sub(before.launches),
            waits: self.waits.saturating_sub(before.waits),
            bytes_to_device: self.bytes_to_device.saturating_sub(before.bytes_to_device),
            bytes_from_device: self.bytes_from_device.saturating_sub(before.bytes_from_device),
            loads: self.loads.saturating_sub(before.loads),
            cpu_copy_bytes: self.cpu_copy_bytes.saturating_sub(before.cpu_copy_bytes),
        }
    }
}

impl std::ops::AddAssign for RunCounts {
    fn add_assign(&mut self, more: Self) {
        self.uploads += more.uploads;
        self.launches += more.launches;
        self.waits += more.waits;
        self.bytes_to_device += more.bytes_to_device;
        self.bytes_from_device += more.bytes_from_device;
        self.loads += more.loads;
        self.cpu_copy_bytes += more.cpu_copy_bytes;
    }
}

/// See the module's documentation.
pub(crate) struct Context {
    pub model: Model,
    pub shape: ContextShape,
    pub options: EngineOptions,
    /// Dropped by hand: not while a launch that hangs may still use it.
    pub loaded: ManuallyDrop<Loaded>,
    /// A launch did not end in time, and may still write to the device's memory.
    hangs: bool,
    pool: BlockPool,
    sequences: Vec<SequenceState>,
    /// Blocks that runs have taken but whose table entries are not yet on the device: (slot, column, block).
    updates: Vec<[i32; 3]>,
    /// Value of the semaphore after the last launch.
    timeline: u64,
    rollback: RollbackShape,
    panics: Panics,
    pub counts: RunCounts,
}

impl Context {
    pub fn new(
        model: Model,
        shape: ContextShape,
        options: EngineOptions,
        loaded: Loaded,
        panics: Panics,
    ) -> Self {
        let sequences = (0..shape.sequences)
            .map(|_| SequenceState {
                blocks: Vec::with_capacity(shape.blocks_per_sequence as usize),
                tokens: Vec::with_capacity(shape.positions as usize),
                ..SequenceState::default()
            })
            .collect();
        let unlimited = model.shape().count(LayerKind::Recurrent) == 0;
        Self {
            pool: BlockPool::new(shape.blocks()),
            updates: Vec::with_capacity(shape.blocks() as usize),
            rollback: RollbackShape { depth: shape.rollback_depth, unlimited },
            loaded: ManuallyDrop::new(loaded),
            model,
            shape,
            options,
            hangs: false,
            sequences,
            timeline: 0,
            panics,
            counts: RunCounts::default(),
        }
    }

    /// What every sequence that is in use holds.
    pub fn texts(&self) -> Vec<Option<Text>> {
        let text = |s: &SequenceState| Text { tokens: s.tokens.clone(), wide: s.wide.clone() };
        self.sequences.iter().map(|s| s.in_use.then(|| text(s))).collect()
    }

    /// Takes a sequence into use, empty, whatever it was.
    pub fn occupy(&mut self, id: SequenceId) {
        self.clear_sequence(id);
        if let Some(sequence) = self.sequences.get_mut(id.0 as usize) {
            sequence.in_use = true;
        }
    }

    pub fn length(&self, id: SequenceId) -> usize {
        self.sequences.get(id.0 as usize).map_or(0, |s| s.length as usize)
    }

    /// Positions that can be taken back.
    pub fn rollable(&self, id: SequenceId) -> usize {
        self.sequences.get(id.0 as usize).map_or(0, |s| s.rollable as usize)
    }

    pub fn new_sequence(&mut self) -> Result<SequenceId> {
        let free = self.sequences.iter().position(|s| !s.in_use).ok_or_else(|| {
            EngineError::Request(format!("all {} sequences of the context are in use", self.shape.sequences))
        })?;
        self.sequences[free].in_use = true;
        Ok(SequenceId(free as u32))
    }

    pub fn end_sequence(&mut self, id: SequenceId) {
        self.clear_sequence(id);
        if let Some(sequence) = self.sequences.get_mut(id.0 as usize) {
            sequence.in_use = false;
        }
    }

    pub fn clear_sequence(&mut self, id: SequenceId) {
        let Some(sequence) = self.sequences.get_mut(id.0 as usize) else { return };
        sequence.reset();
        for block in sequence.blocks.drain(..) {
            self.pool.give(block);
        }
        self.updates.retain(|update| update[0] != id.0 as i32);
    }

    /// Takes back the last `rows` positions of a sequence.
    pub fn roll_back(&mut self, id: SequenceId, rows: usize) -> Result<()> {
        let rollable = self.rollable(id);
        let sequence = self.sequences.get_mut(id.0 as usize).filter(|s| s.in_use);
        let done =
            sequence.zip(u32::try_from(rows).ok()).is_some_and(|(s, rows)| s.roll_back(rows, self.rollback));
        if done {
            return Ok(());
        }
        Err(EngineError::Request(format!(
            "{rows} positions cannot be taken back: the state of {rollable} is kept; clear the sequence and process \
             its tokens again"
        )))
    }

    /// Fails if an earlier launch never ended.
    fn usable(&self) -> Result<()> {
        if !self.hangs {
            return Ok(());
        }
        let text = "an earlier launch did not end in time; make a new engine";
        let source = PluginError::new(ErrorKind::Timeout, text);
        Err(EngineError::backend(self.loaded.device.plugin(), "running a step")(source))
    }

    /// See [`crate::Engine::run`] and, for rows that stay, [`crate::Engine::run_final`].
    pub fn run(&mut self, rows: &[Rows<'_>], want: Want, is_final: bool) -> Result<Outputs<'_>> {
        self.usable()?;
        let (total, outputs) = self.check(rows)?;
        for part in rows {
            let end = self.length(part.sequence) + part.tokens.len();
            self.take_blocks(part.sequence.0 as usize, end)?;
        }
        let key = self.key(total, outputs, want, is_final)?;
        let index = self.loaded.program(key).inspect_err(|error| self.panics.note(error))?;
        self.write_parameters(index, rows);
        if let Err(error) = self.launch(index) {
            for part in rows {
                let sequence = &mut self.sequences[part.sequence.0 as usize];
                // One at the beginning starts from nothing in any case.
                sequence.spoilt = sequence.length > 0;
            }
            return Err(error);
        }
        for part in rows {
            let sequence = &mut self.sequences[part.sequence.0 as usize];
            sequence.tokens.extend_from_slice(part.tokens);
            if total > self.loaded.most_equal_rows() {
                sequence.wide.push(sequence.length..sequence.length + part.tokens.len() as u32);
            }
            sequence.advance(part.tokens.len() as u32, self.rollback);
            if key.is_final {
                sequence.settled(self.rollback);
            }
        }
        self.outputs(index, outputs, want)
    }

    /// Launches what the parameter block describes, and waits.
    fn launch(&mut self, index: usize) -> Result<()> {
        let value = self.timeline + 1;
        let (executable, semaphore) = self.loaded.executable(index)?;
        let timeout = u64::try_from(self.options.launch_timeout.as_nanos()).unwrap_or(u64::MAX);
        let launched = executable.launch(0, semaphore, value).and_then(|()| semaphore.wait(value, timeout));
        let graph = &self.loaded.built(index).graph;
        self.counts.uploads += 1;
        self.counts.launches += 1;
        self.counts.waits += 1;
        self.counts.bytes_to_device += graph.parameter_bytes();
        self.counts.bytes_from_device += graph.result_bytes();
        if let Err(source) = launched {
            if source.kind == ErrorKind::Timeout {
                self.hangs = true;
                return Err(EngineError::backend(self.loaded.device.plugin(), "running a step")(source));
            }
            // The caller learns of the launch. What the reset may meet, on a lost device, the next run meets too.
            if self.loaded.reset().is_ok() {
                self.timeline = 0;
            }
            let error = EngineError::backend(self.loaded.device.plugin(), "running a step")(source);
            self.panics.note(&error);
            return Err(error);
        }
        self.timeline = value;
        self.counts.loads = self.loaded.loads();
        self.counts.cpu_copy_bytes = self.loaded.moved_bytes();
        if self.loaded.built(index).updates.is_some() {
            self.updates.clear();
        }
        Ok(())
    }

    fn check(&self, rows: &[Rows<'_>]) -> Result<(usize, usize)> {
        let (mut total, mut outputs) = (0, 0);
        let context = self.shape.positions as usize;
        for (index, part) in rows.iter().enumerate() {
            let state = self.sequence(part.sequence)?;
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
            if state.length as usize + part.tokens.len() > context {
                return Err(EngineError::ContextFull { context });
            }
            total += part.tokens.len();
            outputs += part.outputs;
        }
        let (microbatch, most_outputs) = (self.options.microbatch as usize, self.options.outputs as usize);
        if rows.is_empty() || total > microbatch || outputs > most_outputs {
            return Err(EngineError::Request(format!(
                "a run of {total} rows and {outputs} outputs; from 1 to {microbatch} rows and at most {most_outputs} \
                 outputs fit"
            )));
        }
        Ok((total, outputs))
    }

    /// Most rows of a run that give the bits they would give alone.
    pub fn most_equal_rows(&self) -> usize {
        let most = self.options.microbatch.min(self.options.outputs);
        (most as usize).min(self.loaded.most_equal_rows()).max(1)
    }

    /// The sequence, if it is in use.
    pub fn sequence(&self, id: SequenceId) -> Result<&SequenceState> {
        let state = self.sequences.get(id.0 as usize).filter(|s| s.in_use);
        let state = state
            .ok_or_else(|| EngineError::Request("a sequence was ended or is not this engine's".into()))?;
        if state.spoilt {
            return Err(EngineError::Request(
                "a run of the sequence failed, and what it holds is undefined: clear it".into(),
            ));
        }
        Ok(state)
    }

    /// An empty sequence gets these tokens and blocks for them; its states are filled by the caller.
    pub fn adopt(&mut self, id: SequenceId, tokens: &[u32]) -> Result<()> {
        self.clear_sequence(id);
        self.sequence(id)?;
        self.take_blocks(id.0 as usize, tokens.len())?;
        // The whole row at once: a run takes only so many updates.
        self.updates.retain(|update| update[0] != id.0 as i32);
        let blocks = self.sequences[id.0 as usize].blocks.iter().copied();
        let row = blocks.chain(std::iter::repeat(0)).take(self.shape.blocks_per_sequence as usize);
        let mut row: Vec<u8> = row.flat_map(|block| (block as i32).to_le_bytes()).collect();
        self.loaded.move_state(name::BLOCKS, id.0, 1, &mut row, false)?;
        let shape = self.rollback;
        let sequence = &mut self.sequences[id.0 as usize];
        sequence.tokens.extend_from_slice(tokens);
        sequence.length = tokens.len() as u32;
        sequence.plane = sequence.length % (shape.depth + 1);
        sequence.settled(shape);
        Ok(())
    }

    /// Brings the recurrent state of a sequence up to its length, so that nothing of it is pending.
    pub fn settle(&mut self, id: SequenceId) -> Result<()> {
        self.usable()?;
        self.sequence(id)?;
        if let Some(index) = self.loaded.settle_program()? {
            let (built, block) = self.loaded.parameters(index);
            let mut block = ParameterBlock(block);
            let Some(offsets) = built.groups.first() else { return Ok(()) };
            let slot = id.0 as usize;
            let state = &self.sequences[slot];
            let mut writer = GroupWriter::new(&mut block, offsets, &self.shape, 0);
            writer.span(&Span {
                slot,
                state,
                position: state.length as usize,
                count: 0,
                tokens: None,
                draws: None,
            });
            writer.finish();
            if let Err(error) = self.launch(index) {
                self.sequences[id.0 as usize].spoilt = true;
                return Err(error);
            }
        }
        self.sequences[id.0 as usize].settled(self.rollback);
        Ok(())
    }

    /// Gives a sequence the blocks that it needs for `positions` positions.
    fn take_blocks(&mut self, slot: usize, positions: usize) -> Result<()> {
        let needed = positions.div_ceil(KV_BLOCK as usize);
        while self.sequences[slot].blocks.len() < needed {
            let block = self
                .pool
                .take()
                .ok_or(EngineError::ContextFull { context: self.shape.positions as usize })?;
            let column = self.sequences[slot].blocks.len();
            self.sequences[slot].blocks.push(block);
            self.updates.push([slot as i32, column as i32, block as i32]);
        }
        Ok(())
    }

    /// The smallest graph that holds the run.
    fn key(&self, rows: usize, outputs: usize, want: Want, is_final: bool) -> Result<ProgramKey> {
        let updates = self.updates.len();
        let fits = |key: &&ProgramKey| {
            key.rows as usize >= rows
                && key.outputs as usize >= outputs
                && key.want == want
                && most_updates(key.rows, self.shape.sequences) as usize >= updates
        };
        let mut keys = self.loaded.keys().iter().filter(fits);
        // The others take such rows as well.
        let found = if is_final { keys.clone().find(|key| key.is_final) } else { None };
        let found = found.or_else(|| keys.find(|key| !key.is_final)).copied();
        found.ok_or_else(|| EngineError::Request(format!("no graph holds a run of {rows} rows")))
    }

    fn write_parameters(&mut self, index: usize, rows: &[Rows<'_>]) {
        let (built, block) = self.loaded.parameters(index);
        let mut block = ParameterBlock(block);
        let outputs = built.target.map(|target| target.outputs);
        let (mut row, mut output) = (0, 0);
        for part in rows {
            let count = part.tokens.len();
            for wanted in count - part.outputs..count {
                block.put(outputs.map(|o| o.output_rows), output, (row + wanted) as i32);
                output += 1;
            }
            row += count;
        }
        block.put(outputs.map(|o| o.output_count), 0, output as i32);
        if let Some(updates) = &built.updates {
            updates.write(&mut block, &self.updates);
        }
        let Some(offsets) = built.groups.first() else { return };
        let mut writer = GroupWriter::new(&mut block, offsets, &self.shape, 0);
        for part in rows {
            let slot = part.sequence.0 as usize;
            let state = &self.sequences[slot];
            writer.span(&Span {
                slot,
                state,
                position: state.length as usize,
                count: part.tokens.len(),
                tokens: Some(part.tokens),
                draws: None,
            });
        }
        writer.finish();
    }

    fn outputs(&mut self, index: usize, count: usize, want: Want) -> Result<Outputs<'_>> {
        let vocabulary = self.model.shape().vocabulary as usize;
        let block = self.loaded.result_block();
        let Some(places) = self.loaded.built(index).target else {
            return Err(EngineError::Request("the graph is not one of the target's".into()));
        };
        let fault = |offset: usize| block[offset..offset + 4] != [0; 4];
        if fault(places.embed_faults) {
            return Err(EngineError::Request("the device found ids outside of the vocabulary".into()));
        }
        let width = if want == Want::Logits { vocabulary } else { 1 };
        let bytes = &block[places.output..places.output + count * width * 4];
        Ok(Outputs { want, bytes, count, vocabulary })
    }

    /// Runs a strategy's program for one sequence; `number` counts over all strategies.
    pub fn run_strategy(
        &mut self,
        number: usize,
        sequence: u32,
        groups: &[GroupRows<'_>],
        draws: Option<Draws>,
    ) -> paceline_plugin_api::Result<&[u8]> {
        let index = self.prepare_strategy(number, sequence, groups, draws)?;
        self.launch(index).map_err(to_plugin)?;
        let bytes = self.loaded.built(index).graph.result_bytes() as usize;
        Ok(&self.loaded.result_block()[..bytes])
    }

    fn prepare_strategy(
        &mut self,
        number: usize,
        sequence: u32,
        groups: &[GroupRows<'_>],
        draws: Option<Draws>,
    ) -> paceline_plugin_api::Result<usize> {
        self.usable().map_err(to_plugin)?;
        let slot = sequence as usize;
        if !self.sequences.get(slot).is_some_and(|s| s.in_use) {
            return Err(PluginError::invalid(format!("there is no sequence {sequence}")));
        }
        let loaded = self.loaded.strategy_program(number);
        let index = loaded.inspect_err(|error| self.panics.note(error)).map_err(to_plugin)?;
        self.check_groups(index, groups)?;
        let uses_cells = self.loaded.built(index).updates.is_some();
        let end = groups.iter().map(|g| g.position as usize + g.count as usize).max().unwrap_or(0);
        if uses_cells {
            self.take_blocks(slot, end).map_err(to_plugin)?;
        }
        let (built, block) = self.loaded.parameters(index);
        let mut block = ParameterBlock(block);
        if let Some(updates) = &built.updates {
            if self.updates.len() > updates.most {
                return Err(PluginError::unsupported(
                    "more block-table updates are pending than its graph takes",
                ));
            }
            updates.write(&mut block, &self.updates);
        }
        let state = &self.sequences[slot];
        for (offsets, group) in built.groups.iter().zip(groups) {
            let mut writer = GroupWriter::new(&mut block, offsets, &self.shape, built.ring_blocks);
            writer.span(&Span {
                slot,
                state,
                position: group.position as usize,
                count: group.count as usize,
                tokens: group.tokens,
                draws,
            });
            writer.finish();
        }
        Ok(index)
    }

    fn check_groups(&self, index: usize, groups: &[GroupRows<'_>]) -> paceline_plugin_api::Result<()> {
        let expected = &self.loaded.built(index).groups;
        if expected.len() != groups.len() {
            return Err(PluginError::invalid(format!(
                "the program has {} groups of rows, {} were given",
                expected.len(),
                groups.len()
            )));
        }
        for (number, (offsets, group)) in expected.iter().zip(groups).enumerate() {
            let end = u64::from(group.position) + u64::from(group.count);
            if group.count == 0 || group.count as usize > offsets.rows || end > self.shape.positions.into() {
                return Err(PluginError::invalid(format!(
                    "group {number} has {} rows at position {}; from 1 to {} rows fit, in a context of {}",
                    group.count, group.position, offsets.rows, self.shape.positions
                )));
            }
            let vocabulary = self.model.shape().vocabulary;
            if let Some(id) = group.tokens.and_then(|tokens| tokens.iter().find(|&&id| id >= vocabulary)) {
                return Err(PluginError::invalid(format!(
                    "token {id} is outside of the vocabulary of {vocabulary}"
                )));
            }
        }
        Ok(())
    }
}

/// An error of the engine, for a strategy.
fn to_plugin(error: EngineError) -> PluginError {
    match error {
        EngineError::Backend { source, .. } => source,
        other => PluginError::new(ErrorKind::Internal, other.to_string()),
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // Memory that a hanging launch may still write to is never given back.
        if !self.hangs {
            // SAFETY: not used again: this is the drop of its owner.
            unsafe { ManuallyDrop::drop(&mut self.loaded) };
        }
    }
}
