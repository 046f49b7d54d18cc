//! The device: arenas, imports, executables.

use crate::capabilities::DeviceSettings;
use crate::kernels::kv::{self, cell_bytes};
use crate::kernels::rope::RopeFrequencies;
use crate::layout;
use crate::pages::{HUGE_PAGE, Pages};
use crate::pool::{Launch, MAX_POINTS, Pool, QueuedPoint};
use crate::program::{ALIGNMENT, CpuPlan, StateLayout};
use crate::run::{BoundProgram, ChunkEnds, KernelTimes, Region, next_readers};
use crate::semaphore::CpuSemaphore;
use paceline_plugin_api::backend::{
    Arena, ArenaClass, Counters, Device, Executable, Load, MemoryInfo, Point, Span, WeightImport,
};
use paceline_plugin_api::graph::{DType, Graph};
use paceline_plugin_api::{Error, ErrorKind, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Arenas smaller than a huge page begin at a small one.
const SMALL_ARENA_ALIGNMENT: usize = 4096;

/// The processor as a device.
pub struct CpuDevice {
    settings: DeviceSettings,
    pool: Arc<Pool>,
    launches: Arc<AtomicU64>,
    quantized_rows: Arc<AtomicU64>,
    arena_bytes: Arc<AtomicU64>,
}

impl CpuDevice {
    pub(crate) fn open(settings: DeviceSettings) -> Result<Self> {
        Ok(Self {
            settings,
            pool: Pool::new(settings.threads)?,
            launches: Arc::default(),
            quantized_rows: Arc::default(),
            arena_bytes: Arc::default(),
        })
    }
}

impl Drop for CpuDevice {
    fn drop(&mut self) {
        self.pool.close();
    }
}

/// Memory of the process.
pub struct CpuArena {
    region: Region,
    memory: Pages,
    class: ArenaClass,
    total: Arc<AtomicU64>,
}

impl Drop for CpuArena {
    fn drop(&mut self) {
        self.total.fetch_sub(self.region.bytes as u64, Ordering::Relaxed);
        // SAFETY: what was bound to the arena is gone by the contract of the ABI.
        unsafe { self.memory.free() };
    }
}

impl Arena for CpuArena {
    fn bytes(&self) -> u64 {
        self.region.bytes as u64
    }

    fn host_address(&self) -> Option<*mut u8> {
        (self.class == ArenaClass::Io).then_some(self.region.start)
    }
}

fn region(span: &Span<'_, CpuArena>) -> Region {
    // The shim checked that the span lies in its arena.
    Region { start: span.arena.region.start.wrapping_add(span.offset as usize), bytes: span.bytes as usize }
}

/// Bytes of memory that this process may use in all, and that it could still get: the system's, or less where a
/// control group sets a limit.
pub(crate) fn system_memory() -> (u64, u64) {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let field = |name: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix(name)?.split_whitespace().next()?.parse::<u64>().ok())
            .map(|kib| kib * 1024)
    };
    let total = field("MemTotal:").unwrap_or(u64::MAX);
    let free = field("MemAvailable:").unwrap_or(total);
    let group = |name: &str| -> Option<u64> {
        std::fs::read_to_string(format!("/sys/fs/cgroup/{name}")).ok()?.trim().parse().ok()
    };
    match (group("memory.max"), group("memory.current")) {
        (Some(limit), Some(used)) => (total.min(limit), free.min(limit.saturating_sub(used))),
        _ => (total, free),
    }
}

impl Device for CpuDevice {
    type Arena = CpuArena;
    type Plan = CpuPlan;
    type Executable = CpuExecutable;
    type Semaphore = CpuSemaphore;

    fn memory(&self) -> Result<MemoryInfo> {
        let (total, free) = system_memory();
        Ok(MemoryInfo { total, free, granularity: SMALL_ARENA_ALIGNMENT as u64 })
    }

    fn counters(&self) -> Counters {
        Counters {
            size: size_of::<Counters>(),
            launches: self.launches.load(Ordering::Relaxed),
            waits: self.pool.waits(),
            // Parameters and results are read and written in place.
            uploads: 0,
            upload_bytes: 0,
            downloads: 0,
            download_bytes: 0,
            quantized_rows: self.quantized_rows.load(Ordering::Relaxed),
            arena_bytes: self.arena_bytes.load(Ordering::Relaxed),
        }
    }

    fn create_arena(&self, class: ArenaClass, bytes: u64) -> Result<CpuArena> {
        let short = |why: &str| {
            Error::out_of_memory(format!(
                "an arena of {bytes} bytes for {class:?} cannot be allocated: {why}"
            ))
        };
        let size = usize::try_from(bytes.max(1)).map_err(|_| short("more than this machine can address"))?;
        let (_, free) = system_memory();
        if bytes > free {
            return Err(short(&format!("{free} bytes are available")));
        }
        let alignment = if size >= HUGE_PAGE { HUGE_PAGE } else { SMALL_ARENA_ALIGNMENT };
        let memory = Pages::zeroed(size, alignment).map_err(|why| short(&why))?;
        let start = memory.start();
        if class != ArenaClass::Weights {
            // Now, and not in the first run. An import writes all weights itself, and until then they take no memory.
            // SAFETY: the arena's own memory.
            unsafe { start.write_bytes(0, size) };
        }
        self.arena_bytes.fetch_add(size as u64, Ordering::Relaxed);
        let region = Region { start, bytes: size };
        Ok(CpuArena { region, memory, class, total: Arc::clone(&self.arena_bytes) })
    }

    fn import_weights(
        &self,
        imports: &[WeightImport<'_, CpuArena>],
        signal: Point<'_, CpuSemaphore>,
    ) -> Result<()> {
        let next = AtomicUsize::new(0);
        let import_next = || -> Result<()> {
            while let Some(import) = imports.get(next.fetch_add(1, Ordering::Relaxed)) {
                let region = region(&import.target);
                if !(region.start as usize).is_multiple_of(ALIGNMENT) {
                    return Err(Error::invalid(format!("weight `{}` is not aligned", import.weight.name)));
                }
                // SAFETY: the span lies in its arena, and nothing else uses it before the import is signalled.
                let target = unsafe { std::slice::from_raw_parts_mut(region.start, region.bytes) };
                layout::import(&import.weight, import.layout.layout, import.source, target)?;
            }
            Ok(())
        };
        // The pool runs launches only; loading has threads of its own.
        std::thread::scope(|scope| -> Result<()> {
            let helpers: Vec<_> =
                (1..self.settings.threads.min(imports.len())).map(|_| scope.spawn(import_next)).collect();
            let mine = import_next();
            let theirs = helpers.into_iter().map(|helper| {
                helper.join().unwrap_or_else(|_| Err(Error::new(ErrorKind::Panic, "an import panicked")))
            });
            theirs.fold(mine, |all, one| all.and(one))
        })?;
        signal.semaphore.timeline.signal(signal.value);
        Ok(())
    }

    fn load(&self, plan: &CpuPlan, load: &Load<'_, CpuArena>) -> Result<CpuExecutable> {
        let program = &plan.program;
        if self.settings.threads > program.threads {
            return Err(Error::invalid(format!("the plan has scratch for {} threads", program.threads)));
        }
        let aligned = |region: Region| (region.start as usize).is_multiple_of(ALIGNMENT);
        let workspace = region(&load.workspace);
        if workspace.bytes < program.workspace_bytes || !aligned(workspace) {
            return Err(Error::invalid(format!(
                "the workspace has {} bytes, the plan takes {}, aligned to {ALIGNMENT}",
                workspace.bytes, program.workspace_bytes
            )));
        }
        for (index, (span, &bytes)) in load.weights.iter().zip(&program.weight_bytes).enumerate() {
            if span.bytes < bytes || !aligned(region(span)) {
                return Err(Error::invalid(format!(
                    "weight {index} has {} bytes, its layout takes {bytes}, aligned to {ALIGNMENT}",
                    span.bytes
                )));
            }
        }
        let mut states = Vec::with_capacity(load.states.len());
        for (index, (span, layout)) in load.states.iter().zip(&program.states).enumerate() {
            let region = region(span);
            if region.bytes < layout.bytes() || !aligned(region) {
                return Err(Error::invalid(format!(
                    "state {index} has {} bytes, its layout takes {}, aligned to {ALIGNMENT}",
                    region.bytes,
                    layout.bytes()
                )));
            }
            states.push(region);
        }
        let (parameters, results) = (region(&load.parameters), region(&load.results));
        let strides = [load.parameter_stride, load.result_stride];
        if !aligned(parameters) || !aligned(results) || strides.iter().any(|s| s % 4 != 0) {
            return Err(Error::invalid(format!(
                "parameter and result blocks are not aligned to {ALIGNMENT}"
            )));
        }
        let bound = BoundProgram {
            program: Arc::clone(program),
            level: self.settings.level,
            threads: self.settings.threads,
            weights: load.weights.iter().map(region).collect(),
            states,
            workspace,
            parameters,
            parameter_stride: load.parameter_stride as usize,
            results,
            result_stride: load.result_stride as usize,
            slots: load.slots,
            frequencies: program
                .rotations
                .iter()
                .map(|r| RopeFrequencies::new(r.rotary, r.base, r.divisor))
                .collect(),
            poisoned: false.into(),
            quantized_rows: Arc::clone(&self.quantized_rows),
            times: KernelTimes::if_wanted(program),
            ends: ChunkEnds::new(program),
            next_readers: next_readers(program),
        };
        Ok(CpuExecutable {
            bound: Arc::new(bound),
            graph: plan.graph.clone(),
            pool: Arc::clone(&self.pool),
            launches: Arc::clone(&self.launches),
        })
    }

    fn create_semaphore(&self, initial: u64) -> Result<CpuSemaphore> {
        Ok(CpuSemaphore::new(Arc::clone(&self.pool), initial))
    }
}

/// A program bound to arenas.
pub struct CpuExecutable {
    bound: Arc<BoundProgram>,
    graph: Graph,
    pool: Arc<Pool>,
    launches: Arc<AtomicU64>,
}

impl Drop for CpuExecutable {
    fn drop(&mut self) {
        if let Some(times) = &self.bound.times {
            times.report(&self.bound.program, &self.graph);
        }
    }
}

impl CpuExecutable {
    /// Layout, region and data type of a state, after checking a range of its entries.
    fn state(&self, state: u32, first: u32, count: u32) -> Result<(StateLayout, Region, DType)> {
        let index = state as usize;
        let (Some(&layout), Some(&region), Some(id)) = (
            self.bound.program.states.get(index),
            self.bound.states.get(index),
            self.graph.states().nth(index),
        ) else {
            return Err(Error::invalid(format!("there is no state {state}")));
        };
        let entries = self.graph.value(id).shape.first();
        if first.checked_add(count).is_none_or(|end| end > entries) {
            return Err(Error::invalid(format!(
                "{first}+{count} is outside of {entries} entries of state {state}"
            )));
        }
        Ok((layout, region, self.graph.value(id).dtype))
    }
}

/// Bytes of a range of canonical entries.
fn canonical_bytes(layout: StateLayout, count: u32) -> usize {
    count as usize
        * match layout {
            StateLayout::Plain { bytes, .. } => bytes,
            StateLayout::Cache { format, heads, width, .. } => kv::BLOCK * heads * cell_bytes(format, width),
        }
}

fn check_length(needed: usize, given: usize) -> Result<()> {
    if needed == given {
        Ok(())
    } else {
        Err(Error::invalid(format!("a buffer of {given} bytes for {needed}")))
    }
}

impl Executable for CpuExecutable {
    type Semaphore = CpuSemaphore;

    fn launch(
        &self,
        slot: u32,
        waits: &[Point<'_, CpuSemaphore>],
        signals: &[Point<'_, CpuSemaphore>],
    ) -> Result<()> {
        self.bound.check(slot)?;
        let points = |list: &[Point<'_, CpuSemaphore>]| {
            let mut points: [QueuedPoint; MAX_POINTS] = Default::default();
            for (place, point) in points.iter_mut().zip(list) {
                *place = Some((Arc::clone(&point.semaphore.timeline), point.value));
            }
            points
        };
        if waits.len() > MAX_POINTS || signals.len() > MAX_POINTS {
            return Err(Error::invalid(format!("more than {MAX_POINTS} semaphores on one launch")));
        }
        let work: Arc<BoundProgram> = Arc::clone(&self.bound);
        self.pool.submit(Launch { work, slot, waits: points(waits), signals: points(signals) })?;
        self.launches.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn export_state(&self, state: u32, first: u32, count: u32, out: &mut [u8]) -> Result<()> {
        let (layout, region, _) = self.state(state, first, count)?;
        check_length(canonical_bytes(layout, count), out.len())?;
        match layout {
            StateLayout::Plain { bytes, .. } => {
                // SAFETY: inside the state by the checks above; no launch is pending by the ABI's contract.
                let source = unsafe {
                    std::slice::from_raw_parts(region.start.add(first as usize * bytes), out.len())
                };
                out.copy_from_slice(source);
            }
            StateLayout::Cache { format, heads, width, .. } => {
                let cell = cell_bytes(format, width);
                for (index, target) in out.chunks_exact_mut(cell).enumerate() {
                    let (position, head) = (first as usize * kv::BLOCK + index / heads, index % heads);
                    // SAFETY: as above.
                    let source = unsafe { cell_of(region, layout, position, head) };
                    target.copy_from_slice(source);
                }
            }
        }
        Ok(())
    }

    fn import_state(&self, state: u32, first: u32, count: u32, source: &[u8]) -> Result<()> {
        let (layout, region, _) = self.state(state, first, count)?;
        check_length(canonical_bytes(layout, count), source.len())?;
        match layout {
            StateLayout::Plain { bytes, .. } => {
                // SAFETY: inside the state by the checks above; no launch is pending by the ABI's contract.
                let target = unsafe {
                    std::slice::from_raw_parts_mut(region.start.add(first as usize * bytes), source.len())
                };
                target.copy_from_slice(source);
            }
            StateLayout::Cache { format, heads, width, .. } => {
                let cell = cell_bytes(format, width);
                for (index, bytes) in source.chunks_exact(cell).enumerate() {
                    let (position, head) = (first as usize * kv::BLOCK + index / heads, index % heads);
                    // SAFETY: as above.
                    unsafe { cell_of(region, layout, position, head) }.copy_from_slice(bytes);
                }
            }
        }
        Ok(())
    }
}

/// The bytes of one cell: blocks, then heads, then positions.
///
/// # Safety
/// The cell lies in the state, and nothing else uses it while the result lives.
unsafe fn cell_of<'a>(region: Region, layout: StateLayout, position: usize, head: usize) -> &'a mut [u8] {
    let StateLayout::Cache { format, heads, width, .. } = layout else { return &mut [] };
    let cell = cell_bytes(format, width);
    let (block, offset) = (position / kv::BLOCK, position % kv::BLOCK);
    let start = ((block * heads + head) * kv::BLOCK + offset) * cell;
    assert!(start + cell <= region.bytes);
    // SAFETY: inside the region by the assertion; exclusive by the contract of this function.
    unsafe { std::slice::from_raw_parts_mut(region.start.add(start), cell) }
}
