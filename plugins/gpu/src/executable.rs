//! A program with addresses: launched, and its states copied out and in.

use crate::device::{Shared, lock};
use crate::driver::{
    Address, Driver, DriverResult, EventHandle, GraphHandle, KernelHandle, LaunchShape, StreamHandle,
};
use crate::memory::Region;
use crate::program::Program;
use crate::queue::{Launch, Work};
use crate::semaphore::{GpuSemaphore, check_points, points};
use paceline_plugin_api::backend::{Captures, Executable, Point};
use paceline_plugin_api::support::ParameterBlock;
use paceline_plugin_api::{Error, Result};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// One thing that a run does, with addresses.
pub(crate) enum BoundStep {
    Kernel { entry: &'static str, kernel: KernelHandle, shape: LaunchShape, parameters: Vec<u8> },
    Clear { at: Address, bytes: usize },
}

/// Parameter and result blocks in pinned memory.
pub(crate) struct SlotBlocks {
    pub parameters: *mut u8,
    pub parameter_stride: usize,
    pub results: *mut u8,
    pub result_stride: usize,
    pub slots: u32,
}

/// A program with addresses, as launches hold it.
pub(crate) struct Bound {
    pub steps: Vec<BoundStep>,
    pub device: Arc<Shared>,
    pub program: Arc<Program>,
    pub workspace: Address,
    pub blocks: SlotBlocks,
    /// A captured run for each slot; none where graphs are switched off.
    pub graphs: Vec<GraphHandle>,
    /// Runs of captured steps.
    pub replays: AtomicU64,
}

// SAFETY: the pointers are to blocks of an arena that outlives the executable by the contract of the ABI. The host
// leaves the blocks of a pending launch alone, and only reads of parameters go through them here.
unsafe impl Send for Bound {}
// SAFETY: as above.
unsafe impl Sync for Bound {}

impl Drop for Bound {
    fn drop(&mut self) {
        if self.device.bind().is_ok() {
            self.graphs.drain(..).for_each(|graph| self.device.driver().destroy_graph(graph));
        }
    }
}

impl Bound {
    /// Puts a run on the stream.
    pub fn run(&self, driver: &dyn Driver, stream: StreamHandle, slot: u32) -> DriverResult<()> {
        match self.graphs.get(slot as usize) {
            Some(&graph) => {
                driver.launch_graph(graph, stream)?;
                self.replays.fetch_add(1, Ordering::Relaxed);
                self.device.count_replay();
                Ok(())
            }
            None => self.queue(driver, stream, slot),
        }
    }

    /// Puts a run on the stream step by step: one copy up, the kernels, one copy down.
    fn queue(&self, driver: &dyn Driver, stream: StreamHandle, slot: u32) -> DriverResult<()> {
        let (program, blocks, slot) = (&self.program, &self.blocks, slot as usize);
        let parameters = blocks.parameters.wrapping_add(slot * blocks.parameter_stride);
        let results = blocks.results.wrapping_add(slot * blocks.result_stride);
        let mut marks = match self.device.settings.profile {
            true => Some(self.device.profile.begin(driver, stream)?),
            false => None,
        };
        let (up, down) = (program.parameter_bytes as usize, program.result_bytes as usize);
        if up > 0 {
            // SAFETY: the shim checked that all slots have whole blocks; the workspace begins with room for one.
            unsafe { driver.copy_to_device(self.workspace, parameters, up, stream)? };
            self.device.profile.mark(&mut marks, "(parameters up)", driver, stream)?;
        }
        for step in &self.steps {
            let name = match step {
                BoundStep::Kernel { entry, kernel, shape, parameters } => {
                    // SAFETY: the structure is the one that the kernel's own crate made for it, and what it points
                    // to lies in spans that were checked and are kept while launches are pending.
                    unsafe { driver.launch(*kernel, *shape, parameters, stream)? };
                    entry
                }
                BoundStep::Clear { at, bytes } => {
                    // SAFETY: as above.
                    unsafe { driver.clear(*at, *bytes, stream)? };
                    "(clear)"
                }
            };
            self.device.profile.mark(&mut marks, name, driver, stream)?;
        }
        if down > 0 {
            // SAFETY: as above.
            unsafe { driver.copy_to_host(results, self.workspace + program.results_at, down, stream)? };
            self.device.profile.mark(&mut marks, "(results down)", driver, stream)?;
        }
        match marks {
            Some(marks) => self.device.profile.end(marks, driver, stream),
            None => Ok(()),
        }
    }

    /// Captures a run for every slot.
    fn capture(&mut self) -> Result<()> {
        // One capture at a time: they share the stream.
        let shared = Arc::clone(&self.device);
        let driver = shared.driver();
        let stream = shared.capture_stream()?;
        for slot in 0..self.blocks.slots {
            let graph = driver.begin_capture(*stream).and_then(|()| {
                // A capture that was begun has to be ended.
                let queued = self.queue(driver, *stream, slot);
                let graph = driver.end_capture(*stream);
                if let (Err(_), Ok(graph)) = (&queued, &graph) {
                    driver.destroy_graph(*graph);
                }
                queued.and(graph)
            });
            self.graphs.push(graph.map_err(|error| shared.error(&error, "capturing a step"))?);
            shared.count_capture();
        }
        Ok(())
    }

    /// The parameter block of a slot.
    fn parameters(&self, slot: u32) -> ParameterBlock<'_> {
        let start = self.blocks.parameters.wrapping_add(slot as usize * self.blocks.parameter_stride);
        let count = self.program.parameter_bytes as usize / 4;
        // SAFETY: the shim checked that every slot has a whole block, and binding that it is aligned; the host does not
        // write a slot that it launches.
        ParameterBlock(unsafe { std::slice::from_raw_parts(start.cast::<i32>(), count) })
    }
}

/// A plan bound to arenas.
pub struct GpuExecutable {
    bound: Arc<Bound>,
    states: Vec<Region>,
    state_names: Arc<[String]>,
}

impl GpuExecutable {
    pub(crate) fn new(mut bound: Bound, states: Vec<Region>, state_names: Arc<[String]>) -> Result<Self> {
        if bound.device.settings.graphs {
            bound.capture()?;
        }
        Ok(Self { bound: Arc::new(bound), states, state_names })
    }

    /// The memory of a range of a state's entries, for a buffer of this length.
    fn range(&self, state: u32, first: u32, count: u32, bytes: usize) -> Result<Address> {
        let index = state as usize;
        let (Some(layout), Some(region)) = (self.bound.program.states.get(index), self.states.get(index))
        else {
            return Err(Error::invalid(format!("there is no state {state}")));
        };
        let name = self.state_names.get(index).map_or("", String::as_str);
        if first.checked_add(count).is_none_or(|end| end > layout.entries) {
            return Err(Error::invalid(format!(
                "{first}+{count} is outside of the {} entries of state `{name}`",
                layout.entries
            )));
        }
        let needed = u64::from(count) * layout.entry_bytes;
        if needed != bytes as u64 {
            return Err(Error::invalid(format!("a buffer of {bytes} bytes for {needed} of state `{name}`")));
        }
        Ok(region.address + u64::from(first) * layout.entry_bytes)
    }
}

impl Executable for GpuExecutable {
    type Semaphore = GpuSemaphore;

    fn launch(
        &self,
        slot: u32,
        waits: &[Point<'_, GpuSemaphore>],
        signals: &[Point<'_, GpuSemaphore>],
    ) -> Result<()> {
        let bound = &self.bound;
        let shared = &bound.device;
        if slot >= bound.blocks.slots {
            return Err(Error::invalid(format!("there is no slot {slot}, only {}", bound.blocks.slots)));
        }
        check_points(waits, signals)?;
        let block = bound.parameters(slot);
        bound.program.checks.iter().try_for_each(|check| check.apply(block))?;
        let mut quantized = 0;
        for &live in &bound.program.quantized {
            quantized += block.live(live)?;
        }
        let work = Work::Run { bound: Arc::clone(bound), slot };
        shared.submit(Launch { work, waits: points(shared, waits), signals: points(shared, signals) })?;
        shared.count_launch();
        shared.count_quantized(quantized);
        let (up, down) = (bound.program.parameter_bytes, bound.program.result_bytes);
        if up > 0 {
            shared.count_upload(up);
        }
        if down > 0 {
            shared.count_download(down);
        }
        Ok(())
    }

    /// Captured when it was loaded, for every slot, so there is nothing left to warm up.
    fn captures(&self) -> Captures {
        Captures {
            captures: self.bound.graphs.len() as u64,
            replays: self.bound.replays.load(Ordering::Relaxed),
            ..self.bound.device.settings.captures()
        }
    }

    fn export_state(&self, state: u32, first: u32, count: u32, out: &mut [u8]) -> Result<()> {
        let at = self.range(state, first, count, out.len())?;
        let shared = &self.bound.device;
        shared.with_staging(|staging| staging.read(shared, at, out))
    }

    fn import_state(&self, state: u32, first: u32, count: u32, source: &[u8]) -> Result<()> {
        let at = self.range(state, first, count, source.len())?;
        let shared = &self.bound.device;
        shared.with_staging(|staging| staging.write(shared, at, source))
    }
}

/// Times of kernels, where the setting `profile` asks for them.
#[derive(Default)]
pub(crate) struct Profile {
    /// Number of launches and milliseconds, by kernel.
    times: Mutex<BTreeMap<&'static str, (u64, f64)>>,
}

/// Events of one run: the first, then one behind each step with the step's name.
pub(crate) struct Marks {
    first: EventHandle,
    steps: Vec<(&'static str, EventHandle)>,
}

impl Profile {
    fn begin(&self, driver: &dyn Driver, stream: StreamHandle) -> DriverResult<Marks> {
        let first = driver.create_event(true)?;
        driver.record(first, stream)?;
        Ok(Marks { first, steps: Vec::new() })
    }

    fn mark(
        &self,
        marks: &mut Option<Marks>,
        name: &'static str,
        driver: &dyn Driver,
        stream: StreamHandle,
    ) -> DriverResult<()> {
        let Some(marks) = marks else { return Ok(()) };
        let event = driver.create_event(true)?;
        marks.steps.push((name, event));
        driver.record(event, stream)
    }

    /// Waits for the run and adds its times.
    fn end(&self, marks: Marks, driver: &dyn Driver, stream: StreamHandle) -> DriverResult<()> {
        driver.synchronize(stream)?;
        let mut times = lock(&self.times);
        let mut before = marks.first;
        for (name, event) in marks.steps {
            let entry = times.entry(name).or_default();
            entry.0 += 1;
            entry.1 += f64::from(driver.milliseconds(before, event)?);
            driver.destroy_event(before);
            before = event;
        }
        driver.destroy_event(before);
        Ok(())
    }

    /// Writes the times to the log, the longest first.
    pub fn log(&self, label: &str) {
        let times = lock(&self.times);
        let mut list: Vec<_> = times.iter().collect();
        list.sort_by(|(_, a), (_, b)| b.1.total_cmp(&a.1));
        for (name, (count, total)) in list {
            let each = total * 1e3 / *count as f64;
            tracing::warn!("{label}: {name}: {count} times, {total:.3} ms, {each:.2} us each");
        }
    }
}
