//! Running a program: where values are, how work is cut into chunks, and what a chunk does.

mod ahead;
mod experts;
mod recurrent;
mod rows;
mod sequences;
mod times;

pub(crate) use ahead::next_readers;
pub(crate) use times::KernelTimes;

use crate::kernels::SharedSlice;
use crate::kernels::kv::KvPlane;
use crate::kernels::rope::RopeFrequencies;
use crate::level::Level;
use crate::linear::{Activations, Output, linear};
use crate::pool::Work;
use crate::program::{Cache, Id, Kernel, Linear, Live, Place, Program, RowKernel, RowsStore};
use crate::quantized::QuantizedRows;
use crate::weights::PackedMatrix;
use paceline_plugin_api::support::ParameterBlock;
use paceline_plugin_api::{Error, ErrorKind, Result};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering};

/// Chunks per thread that work is cut into, so that a late thread does not hold up the others.
const CHUNKS_PER_THREAD: usize = 6;
/// Effort up to which the row kernels of a phase are not worth another thread, whatever their chunks.
const SMALL_EFFORT: usize = 12 * 1024;
/// Bytes of a weight that are not worth cutting.
const LEAST_WEIGHT_BYTES: usize = 16 * 1024;
/// Panels that a product of many rows takes together.
const PAIR: usize = 2;
/// Columns of a state that a chunk of stored rows covers.
const STORE_COLUMNS: usize = 1024;
/// Effort ([`RowKernel::effort`]) below which a row kernel is not worth another thread.
const LEAST_ROW_EFFORT: usize = 4096;

/// Memory that a program was bound to. The owner of the arenas keeps it alive.
#[derive(Clone, Copy)]
pub(crate) struct Region {
    pub start: *mut u8,
    pub bytes: usize,
}

// SAFETY: regions are reached by the threads of one launch at a time, each at the parts that its kernel names.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

/// A program bound to memory.
pub(crate) struct BoundProgram {
    pub program: Arc<Program>,
    pub level: Level,
    pub threads: usize,
    pub weights: Vec<Region>,
    pub states: Vec<Region>,
    pub workspace: Region,
    pub parameters: Region,
    pub parameter_stride: usize,
    pub results: Region,
    pub result_stride: usize,
    pub slots: u32,
    pub frequencies: Vec<RopeFrequencies>,
    pub poisoned: AtomicBool,
    pub quantized_rows: Arc<AtomicU64>,
    /// What kernels take, if somebody wants to know.
    pub times: Option<KernelTimes>,
    pub ends: ChunkEnds,
    /// From [`next_readers`].
    pub next_readers: Vec<usize>,
}

/// Where the chunks of each kernel end in those of its phase, in the run that goes on: they are counted when a phase is
/// opened and looked up whenever a thread takes some.
pub(crate) struct ChunkEnds {
    /// Where the kernels of each phase begin in `ends`.
    starts: Vec<usize>,
    ends: Vec<AtomicUsize>,
}

impl ChunkEnds {
    pub fn new(program: &Program) -> Self {
        let mut count = 0;
        let starts = program.phases.iter().map(|phase| {
            count += phase.len();
            count - phase.len()
        });
        let starts = starts.collect();
        Self { starts, ends: (0..count).map(|_| AtomicUsize::new(0)).collect() }
    }

    fn of(&self, phase: usize, kernel: usize) -> &AtomicUsize {
        &self.ends[self.starts[phase] + kernel]
    }
}

/// The memory of one run.
#[derive(Clone, Copy)]
struct Run<'a> {
    bound: &'a BoundProgram,
    slot: usize,
}

impl Run<'_> {
    fn region(&self, id: Id) -> Region {
        let bound = self.bound;
        let at = |region: Region, offset: usize| Region {
            start: region.start.wrapping_add(offset),
            bytes: region.bytes.saturating_sub(offset),
        };
        match bound.program.places[id] {
            Place::Workspace(offset) => at(bound.workspace, offset),
            Place::Parameter(offset) => at(bound.parameters, self.slot * bound.parameter_stride + offset),
            Place::Result(offset) => at(bound.results, self.slot * bound.result_stride + offset),
            Place::Weight(index) => bound.weights[index],
            Place::State(index) => bound.states[index],
        }
    }

    /// `count` elements of a value that nobody writes in this phase.
    fn read<T: Copy>(&self, id: Id, count: usize) -> &[T] {
        let region = self.region(id);
        assert!(count * size_of::<T>() <= region.bytes && region.start.cast::<T>().is_aligned());
        // SAFETY: inside the region, aligned; the schedule puts no writer of this value into the phase.
        unsafe { std::slice::from_raw_parts(region.start.cast(), count) }
    }

    /// `count` elements that the threads of this phase write at disjoint places.
    fn write<T>(&self, id: Id, count: usize) -> SharedSlice<'_, T> {
        let region = self.region(id);
        assert!(count * size_of::<T>() <= region.bytes && region.start.cast::<T>().is_aligned());
        // SAFETY: inside the region, aligned; each kernel takes the parts of its own chunk.
        unsafe { SharedSlice::from_raw(region.start.cast(), count) }
    }

    fn counter(&self, id: Id) -> &AtomicI32 {
        let region = self.region(id);
        assert!(size_of::<i32>() <= region.bytes && region.start.cast::<i32>().is_aligned());
        // SAFETY: inside the region, aligned; only reached as an atomic while a run goes on.
        unsafe { AtomicI32::from_ptr(region.start.cast()) }
    }

    /// How many entries of axis 0 are live.
    fn live(&self, live: Live) -> usize {
        match live.offset {
            None => live.max,
            Some(offset) => {
                let start = self.slot * self.bound.parameter_stride + offset;
                let count = self.bound.parameters.start.wrapping_add(start).cast::<i32>();
                // SAFETY: `load` checked that a parameter block lies in the region of every slot.
                let count = unsafe { count.read_unaligned() };
                usize::try_from(count).unwrap_or(0).min(live.max)
            }
        }
    }

    fn plane(&self, cache: Cache) -> KvPlane<'_> {
        let bytes = crate::kernels::kv::cache_bytes(cache.format, cache.blocks, cache.heads, cache.width);
        KvPlane {
            format: cache.format,
            heads: cache.heads,
            width: cache.width,
            bytes: self.write(cache.state, bytes),
        }
    }

    /// # Safety
    /// The thread uses it for one call at a time, and lets no reference outlive that.
    #[allow(clippy::mut_from_ref)]
    unsafe fn scratch(&self, thread: usize) -> &mut [f32] {
        let program = &self.bound.program;
        assert!(thread < program.threads, "the plan has scratch for {} threads", program.threads);
        let start = program.scratch + thread * program.scratch_floats * size_of::<f32>();
        assert!(start + program.scratch_floats * size_of::<f32>() <= self.bound.workspace.bytes);
        let pointer = self.bound.workspace.start.wrapping_add(start).cast();
        // SAFETY: inside the workspace, and this thread's alone: thread numbers are unique within a run, and the
        // caller uses it for one call at a time.
        unsafe { std::slice::from_raw_parts_mut(pointer, program.scratch_floats) }
    }

    fn chunks(&self, kernel: &Kernel) -> usize {
        match kernel {
            Kernel::Rows { live, chain } => {
                let rows = self.live(*live);
                rows.div_ceil(self.rows_per_chunk(rows, chain))
            }
            Kernel::Linear(work) => match self.live(work.live) {
                0 => 0,
                _ => work.n.div_ceil(crate::weights::PANEL_ROWS).div_ceil(self.panels_per_chunk(work)),
            },
            Kernel::Experts(stage, work) => self.expert_chunks(*stage, work),
            Kernel::RowsStore(work) => work.width.div_ceil(STORE_COLUMNS),
            Kernel::Attention(work) => self.attention_chunks(work),
            Kernel::AttentionCombine(work) => self.combine_chunks(work),
            Kernel::Conv(work) => self.conv_chunks(work),
            Kernel::Delta(work) => self.delta_chunks(work),
            Kernel::Replay(work) => self.replay_chunks(work),
            Kernel::Visible(_) => 1,
            Kernel::TableUpdate { live, .. } => usize::from(self.live(*live) > 0),
        }
    }

    fn rows_per_chunk(&self, rows: usize, chain: &[(RowKernel, usize)]) -> usize {
        let elements = row_effort(chain);
        let shared = rows.div_ceil(self.bound.threads * CHUNKS_PER_THREAD);
        shared.max(LEAST_ROW_EFFORT.div_ceil(elements.max(1))).max(1)
    }

    fn panels_per_chunk(&self, work: &Linear) -> usize {
        let panels = work.n.div_ceil(crate::weights::PANEL_ROWS);
        let panel_bytes = self.region(work.weight).bytes / panels.max(1);
        let least = LEAST_WEIGHT_BYTES.div_ceil(panel_bytes.max(1)).max(PAIR);
        panels.div_ceil(self.bound.threads * CHUNKS_PER_THREAD).min(least).max(1)
    }

    fn run(&self, kernel: &Kernel, chunks: Range<usize>, thread: usize) {
        match kernel {
            Kernel::Rows { live, chain } => {
                let rows = self.live(*live);
                let size = self.rows_per_chunk(rows, chain);
                // One after the other: what a chunk leaves for the next kernel of the chain is still in the cache.
                for chunk in chunks {
                    let range = chunk * size..((chunk + 1) * size).min(rows);
                    for (kernel, width) in chain {
                        self.row_kernel(kernel, *width, live.max, range.clone());
                    }
                }
            }
            Kernel::Linear(work) => {
                let size = self.panels_per_chunk(work);
                let panels = work.n.div_ceil(crate::weights::PANEL_ROWS);
                self.linear(work, chunks.start * size..(chunks.end * size).min(panels));
            }
            _ => chunks.for_each(|chunk| self.run_one(kernel, chunk, thread)),
        }
    }

    fn run_one(&self, kernel: &Kernel, chunk: usize, thread: usize) {
        match kernel {
            Kernel::Rows { .. } | Kernel::Linear(_) => self.run(kernel, chunk..chunk + 1, thread),
            Kernel::Experts(stage, work) => self.experts(*stage, work, chunk),
            Kernel::RowsStore(work) => self.rows_store(work, chunk),
            Kernel::Attention(work) => self.attention(work, chunk, thread),
            Kernel::AttentionCombine(work) => self.combine(work, chunk, thread),
            Kernel::Conv(work) => self.conv(work, chunk),
            Kernel::Delta(work) => self.delta(work, chunk, thread),
            Kernel::Replay(work) => self.replay(work, chunk),
            Kernel::Visible(work) => self.visible(work),
            Kernel::TableUpdate { table, shape, updates, live } => {
                let updates: &[i32] = self.read(*updates, live.max * 3);
                let table = self.write::<i32>(*table, shape[0] * shape[1]);
                for update in updates.chunks_exact(3).take(self.live(*live)) {
                    // Checked at launch: row and column are inside the table.
                    let index = update[0] as usize * shape[1] + update[1] as usize;
                    // SAFETY: this kernel is one chunk, and no other kernel of the phase touches the table.
                    unsafe { table.part(index..index + 1)[0] = update[2] };
                }
            }
        }
    }

    /// Stores a chunk's columns of all rows, in their order: no two threads write the same place even where two rows
    /// have one cell.
    fn rows_store(&self, work: &RowsStore, chunk: usize) {
        let (rows, width) = (self.live(work.rows), work.width);
        let columns = chunk * STORE_COLUMNS..((chunk + 1) * STORE_COLUMNS).min(width);
        let (x, cells) = (self.read::<f32>(work.x, rows * width), self.read::<i32>(work.cells, rows));
        let state = self.write::<f32>(work.state, work.entries * width);
        // SAFETY: the columns are this chunk's alone.
        unsafe { crate::kernels::rows::store_rows(x, width, cells, state, columns) };
    }

    fn linear(&self, work: &Linear, panels: Range<usize>) {
        let rows = self.live(work.live);
        let region = self.region(work.weight);
        // SAFETY: the span of the weight was checked at load, and weights do not change.
        let bytes = unsafe { std::slice::from_raw_parts(region.start, region.bytes) };
        let result = PackedMatrix::new(work.kind, work.n, work.k, bytes).map_err(|e| e.to_string());
        let result = result.and_then(|weights| {
            let activations = if work.kind.is_quantized() {
                let bytes = self.read::<u8>(work.activations, rows * crate::quantized::row_bytes(work.k));
                Activations::Quantized(QuantizedRows::new(bytes, rows, work.k).map_err(|e| e.to_string())?)
            } else {
                Activations::F32 { values: self.read(work.activations, rows * work.k), rows }
            };
            let bias = work.bias.map(|id| self.read::<f32>(id, work.n));
            let out = self.write::<f32>(work.out, rows * work.n);
            let out = Output { start: out.pointer(0), stride: work.n };
            // SAFETY: the output holds all rows, and the panels are this chunk's alone.
            unsafe { linear(self.bound.level, &weights, activations, bias, out, panels) }
                .map_err(|e| e.to_string())
        });
        if let Err(error) = result {
            panic!("a product does not fit its plan: {error}");
        }
    }
}

/// What a row takes, in elements that are only added or moved.
fn row_effort(chain: &[(RowKernel, usize)]) -> usize {
    chain.iter().map(|(kernel, width)| kernel.effort() * width).sum()
}

impl Work for BoundProgram {
    fn phases(&self) -> usize {
        self.program.phases.len()
    }

    fn begin(&self, slot: u32) {
        let run = Run { bound: self, slot: slot as usize };
        for &counter in &self.program.counters {
            run.counter(counter).store(0, Ordering::Relaxed);
        }
        if let Some(times) = &self.times {
            times.begin();
        }
    }

    fn chunks(&self, phase: usize, slot: u32) -> usize {
        let run = Run { bound: self, slot: slot as usize };
        let mut end = 0;
        for (index, kernel) in self.program.phases[phase].iter().enumerate() {
            end += run.chunks(kernel);
            self.ends.of(phase, index).store(end, Ordering::Relaxed);
        }
        end
    }

    fn is_small(&self, phase: usize, slot: u32) -> bool {
        let run = Run { bound: self, slot: slot as usize };
        let elements = self.program.phases[phase].iter().map(|kernel| match kernel {
            Kernel::Rows { live, chain } => row_effort(chain).saturating_mul(run.live(*live)),
            Kernel::Visible(_) | Kernel::TableUpdate { .. } => 0,
            _ => usize::MAX,
        });
        elements.fold(0, usize::saturating_add) <= SMALL_EFFORT
    }

    fn ahead(&self, phase: usize, slot: u32, thread: usize) -> (*const u8, usize) {
        Run { bound: self, slot: slot as usize }.ahead(phase, thread)
    }

    fn run(&self, phase: usize, chunks: Range<usize>, slot: u32, thread: usize) {
        let run = Run { bound: self, slot: slot as usize };
        let mut first = 0;
        for (index, kernel) in self.program.phases[phase].iter().enumerate() {
            let end = self.ends.of(phase, index).load(Ordering::Relaxed);
            let part = chunks.start.max(first)..chunks.end.min(end);
            if part.start < part.end {
                let part = part.start - first..part.end - first;
                match &self.times {
                    None => run.run(kernel, part, thread),
                    Some(times) => times.measure(phase, index, || run.run(kernel, part, thread)),
                }
            }
            if end >= chunks.end {
                return;
            }
            first = end;
        }
    }

    fn finished(&self, outcome: &Result<()>) {
        if outcome.is_err() {
            self.poisoned.store(true, Ordering::Release);
        }
    }
}

impl BoundProgram {
    /// The parameter block of a slot.
    fn parameter_block(&self, slot: usize) -> Result<ParameterBlock<'_>> {
        let (start, bytes) = (slot * self.parameter_stride, self.program.parameter_bytes);
        let pointer = self.parameters.start.wrapping_add(start).cast::<i32>();
        if start + bytes > self.parameters.bytes || !pointer.is_aligned() {
            return Err(Error::invalid(format!("slot {slot} has no whole and aligned block of parameters")));
        }
        // SAFETY: inside the region and aligned; the host does not write a slot that it launches.
        Ok(ParameterBlock(unsafe { std::slice::from_raw_parts(pointer, bytes / size_of::<i32>()) }))
    }

    /// Checks what a launch of `slot` will rely on.
    pub fn check(&self, slot: u32) -> Result<()> {
        if self.poisoned.load(Ordering::Acquire) {
            return Err(Error::new(ErrorKind::Poisoned, "an earlier launch failed; load the plan again"));
        }
        if slot >= self.slots {
            return Err(Error::invalid(format!("there is no slot {slot}; there are {}", self.slots)));
        }
        let block = self.parameter_block(slot as usize)?;
        self.program.checks.iter().try_for_each(|check| check.apply(block))
    }
}
