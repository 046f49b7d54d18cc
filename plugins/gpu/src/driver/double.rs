//! A stand-in for the driver in tests: its device memory is host memory, and its kernels are the real ones, built for
//! the processor. So a whole run is tested where there is no card, but for what a card alone can show.
//!
//! Streams are lazy: what is queued runs when somebody waits for it, so that whoever reads without waiting is found
//! out. Calls fail when they are told to.

use super::{
    Address, Cause, ContextHandle, DeviceFacts, Driver, DriverError, DriverResult, EventHandle, GraphHandle,
    KernelHandle, LaunchShape, ModuleHandle, PeerPlace, StreamHandle,
};
use crate::device::lock;
use paceline_kernels::params::Launch;
use paceline_plugin_api::backend::PeerRoute;
use std::alloc::{Layout, alloc, alloc_zeroed, dealloc};
use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;

/// Memory that the device has.
pub const MEMORY: u64 = 4 << 30;
const ALIGNMENT: usize = 256;

#[derive(Clone, Debug)]
enum Work {
    /// From, to, bytes.
    Copy(usize, usize, usize),
    Clear(usize, usize),
    Kernel(&'static str, LaunchShape, Vec<u8>),
    Event(usize),
    Graph(usize),
}

/// A call that fails.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    /// Its name.
    pub call: &'static str,
    /// How many before it do not fail.
    pub after: u32,
    /// What the failure means.
    pub cause: Cause,
}

#[derive(Default)]
struct State {
    next: usize,
    memory: HashMap<usize, Layout>,
    taken: u64,
    streams: HashMap<usize, VecDeque<Work>>,
    capturing: HashMap<usize, Vec<Work>>,
    graphs: HashMap<usize, Vec<Work>>,
    /// Events, and whether the stream has passed them.
    events: HashMap<usize, bool>,
    kernels: Vec<&'static str>,
    faults: Vec<Fault>,
    /// What went wrong for good.
    lost: bool,
    calls: HashMap<&'static str, u64>,
}

/// The stand-in.
pub struct DoubleDriver {
    state: Mutex<State>,
    /// What it says of its devices.
    pub facts: DeviceFacts,
    /// How many there are.
    pub devices: u32,
    /// Pairs of devices, the one that is copied to first, whose copies go through the host.
    pub staged: Vec<(u32, u32)>,
    /// Pairs between which there are no copies.
    pub apart: Vec<(u32, u32)>,
}

fn failed(call: &'static str, cause: Cause) -> DriverError {
    let (code, name) = (cause as i64, format!("{cause:?}"));
    DriverError { call, code, cause, name, text: "as the test asks".into(), advice: "" }
}

impl DoubleDriver {
    fn new() -> Self {
        let state = State { next: 1, ..State::default() };
        let facts = DeviceFacts {
            name: "Double".into(),
            pci: "0000:01:00.0".into(),
            uuid: "GPU-00000000-0000-0000-0000-000000000001".into(),
            memory: MEMORY,
            target: "double".into(),
            wave: 32,
            units: 132,
            is_integrated: false,
            captures: true,
            overlaps: true,
        };
        Self { state: Mutex::new(state), facts, devices: 1, staged: Vec::new(), apart: Vec::new() }
    }

    /// One that lives as long as the process, as the real one does.
    pub fn leaked() -> &'static Self {
        Self::leaked_with(|_| ())
    }

    /// One with something changed.
    pub fn leaked_with(change: impl FnOnce(&mut Self)) -> &'static Self {
        let mut driver = Self::new();
        change(&mut driver);
        Box::leak(Box::new(driver))
    }

    /// Lets a call fail.
    pub fn fail(&self, fault: Fault) {
        lock(&self.state).faults.push(fault);
    }

    /// How often a call was made.
    pub fn calls(&self, call: &str) -> u64 {
        lock(&self.state).calls.get(call).copied().unwrap_or(0)
    }

    /// Allocations, streams, events and graphs that exist.
    pub fn alive(&self) -> usize {
        let state = lock(&self.state);
        state.memory.len() + state.streams.len() + state.events.len() + state.graphs.len()
    }

    /// Counts the call; fails if it is time, or if the device is lost.
    fn call(&self, call: &'static str) -> DriverResult<std::sync::MutexGuard<'_, State>> {
        let mut state = lock(&self.state);
        *state.calls.entry(call).or_default() += 1;
        if state.lost {
            return Err(failed(call, Cause::Lost));
        }
        if let Some(index) = state.faults.iter().position(|fault| fault.call == call) {
            let fault = &mut state.faults[index];
            if fault.after > 0 {
                fault.after -= 1;
                return Ok(state);
            }
            let cause = fault.cause;
            state.faults.remove(index);
            state.lost = cause == Cause::Lost;
            return Err(failed(call, cause));
        }
        Ok(state)
    }

    fn take(&self, call: &'static str, bytes: usize, is_zeroed: bool) -> DriverResult<usize> {
        let mut state = self.call(call)?;
        let layout =
            Layout::from_size_align(bytes, ALIGNMENT).map_err(|_| failed(call, Cause::OutOfMemory))?;
        if state.taken + bytes as u64 > MEMORY {
            return Err(failed(call, Cause::OutOfMemory));
        }
        // SAFETY: callers ask for at least one byte.
        let memory = unsafe { if is_zeroed { alloc_zeroed(layout) } else { alloc(layout) } };
        // What was there before is nothing that a program may count on.
        if !is_zeroed && bytes < 64 << 20 {
            // SAFETY: just allocated.
            unsafe { memory.write_bytes(0xA5, bytes) };
        }
        state.taken += bytes as u64;
        state.memory.insert(memory as usize, layout);
        Ok(memory as usize)
    }

    fn give(&self, address: usize) {
        let mut state = lock(&self.state);
        let layout = state.memory.remove(&address).expect("memory that was not allocated, or freed before");
        state.taken -= layout.size() as u64;
        // SAFETY: allocated with this layout, freed once.
        unsafe { dealloc(address as *mut u8, layout) };
    }

    fn queue(&self, call: &'static str, stream: StreamHandle, work: Work) -> DriverResult<()> {
        let mut state = self.call(call)?;
        match state.capturing.get_mut(&stream.0) {
            Some(captured) => captured.push(work),
            None => state.streams.get_mut(&stream.0).expect("a stream that is not there").push_back(work),
        }
        Ok(())
    }

    fn run(&self, state: &mut State, work: Work) {
        match work {
            // SAFETY: the contract of the calls that queued them.
            Work::Copy(from, to, bytes) => unsafe {
                std::ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, bytes);
            },
            // SAFETY: as above.
            Work::Clear(at, bytes) => unsafe { (at as *mut u8).write_bytes(0, bytes) },
            Work::Kernel(entry, shape, parameters) => {
                let launch =
                    Launch { entry, groups: shape.grid, threads: shape.block[0], shared_bytes: shape.shared };
                let wave = self.facts.wave;
                // SAFETY: as above; the addresses are of host memory here.
                let launched = unsafe { paceline_kernels::host::launch(&launch, &parameters, wave) };
                launched.unwrap_or_else(|error| panic!("kernel `{entry}`: {error}"));
            }
            Work::Event(event) => {
                state.events.insert(event, true);
            }
            Work::Graph(graph) => {
                for work in state.graphs.get(&graph).cloned().expect("a graph that is not there") {
                    self.run(state, work);
                }
            }
        }
    }

    fn drain(&self, state: &mut State, stream: usize, until: Option<usize>) {
        while let Some(work) = state.streams.get_mut(&stream).and_then(VecDeque::pop_front) {
            let is_last = matches!(work, Work::Event(event) if Some(event) == until);
            self.run(state, work);
            if is_last {
                break;
            }
        }
    }

    fn handle(state: &mut State) -> usize {
        state.next += 1;
        state.next
    }
}

impl Driver for DoubleDriver {
    fn device_count(&self) -> DriverResult<u32> {
        self.call("device_count").map(|_| self.devices)
    }

    fn facts(&self, _: u32) -> DriverResult<DeviceFacts> {
        Ok(self.facts.clone())
    }

    fn open(&self, ordinal: u32) -> DriverResult<ContextHandle> {
        self.call("open").map(|_| ContextHandle(ordinal as usize + 1))
    }

    fn close(&self, _: u32) {}

    fn bind(&self, _: ContextHandle) -> DriverResult<()> {
        Ok(())
    }

    fn memory(&self) -> DriverResult<(u64, u64)> {
        self.call("memory").map(|state| (MEMORY - state.taken, MEMORY))
    }

    fn allocate(&self, bytes: u64) -> DriverResult<Address> {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        self.take("allocate", bytes, false).map(|address| address as Address)
    }

    fn free(&self, address: Address) {
        self.give(address as usize);
    }

    fn allocate_pinned(&self, bytes: usize) -> DriverResult<*mut u8> {
        self.take("allocate_pinned", bytes, true).map(|address| address as *mut u8)
    }

    unsafe fn free_pinned(&self, memory: *mut u8) {
        self.give(memory as usize);
    }

    unsafe fn copy_to_device(
        &self,
        to: Address,
        from: *const u8,
        bytes: usize,
        stream: StreamHandle,
    ) -> DriverResult<()> {
        self.queue("copy_to_device", stream, Work::Copy(from as usize, to as usize, bytes))
    }

    unsafe fn copy_to_host(
        &self,
        to: *mut u8,
        from: Address,
        bytes: usize,
        stream: StreamHandle,
    ) -> DriverResult<()> {
        self.queue("copy_to_host", stream, Work::Copy(from as usize, to as usize, bytes))
    }

    unsafe fn clear(&self, at: Address, bytes: usize, stream: StreamHandle) -> DriverResult<()> {
        self.queue("clear", stream, Work::Clear(at as usize, bytes))
    }

    fn peer_route(&self, to: u32, from: u32) -> DriverResult<PeerRoute> {
        self.call("peer_route").map(|_| {
            match (self.apart.contains(&(to, from)), self.staged.contains(&(to, from))) {
                (true, _) => PeerRoute::None,
                (false, true) => PeerRoute::Staged,
                (false, false) => PeerRoute::Direct,
            }
        })
    }

    unsafe fn copy_from_peer(
        &self,
        to: PeerPlace,
        from: PeerPlace,
        bytes: usize,
        stream: StreamHandle,
    ) -> DriverResult<()> {
        assert_eq!(to.context.0, to.ordinal as usize + 1, "the context of another device");
        let work = Work::Copy(from.address as usize, to.address as usize, bytes);
        self.queue("copy_from_peer", stream, work)
    }

    fn load_module(&self, _: &[u8]) -> DriverResult<ModuleHandle> {
        self.call("load_module").map(|_| ModuleHandle(1))
    }

    fn unload_module(&self, _: ModuleHandle) {}

    fn kernel(&self, _: ModuleHandle, name: &str) -> DriverResult<KernelHandle> {
        let mut state = self.call("kernel")?;
        state.kernels.push(Box::leak(name.to_owned().into_boxed_str()));
        Ok(KernelHandle(state.kernels.len() - 1))
    }

    unsafe fn launch(
        &self,
        kernel: KernelHandle,
        shape: LaunchShape,
        parameters: &[u8],
        stream: StreamHandle,
    ) -> DriverResult<()> {
        let entry = lock(&self.state).kernels[kernel.0];
        self.queue("launch", stream, Work::Kernel(entry, shape, parameters.to_vec()))
    }

    fn create_stream(&self) -> DriverResult<StreamHandle> {
        let mut state = self.call("create_stream")?;
        let handle = Self::handle(&mut state);
        state.streams.insert(handle, VecDeque::new());
        Ok(StreamHandle(handle))
    }

    fn destroy_stream(&self, stream: StreamHandle) {
        lock(&self.state).streams.remove(&stream.0).expect("a stream that is not there");
    }

    fn synchronize(&self, stream: StreamHandle) -> DriverResult<()> {
        let mut state = self.call("synchronize")?;
        self.drain(&mut state, stream.0, None);
        Ok(())
    }

    fn create_event(&self, _: bool) -> DriverResult<EventHandle> {
        let mut state = self.call("create_event")?;
        let handle = Self::handle(&mut state);
        state.events.insert(handle, true);
        Ok(EventHandle(handle))
    }

    fn destroy_event(&self, event: EventHandle) {
        lock(&self.state).events.remove(&event.0).expect("an event that is not there");
    }

    fn record(&self, event: EventHandle, stream: StreamHandle) -> DriverResult<()> {
        lock(&self.state).events.insert(event.0, false);
        self.queue("record", stream, Work::Event(event.0))
    }

    /// The first time that a stream is asked it is not there yet; it is the next time.
    fn has_passed(&self, event: EventHandle) -> DriverResult<bool> {
        let mut state = self.call("has_passed")?;
        if state.events[&event.0] {
            return Ok(true);
        }
        let stream = state.streams.iter().find(|(_, queue)| {
            queue.iter().any(|work| matches!(work, Work::Event(queued) if *queued == event.0))
        });
        let stream = *stream.expect("an event that was recorded on no stream").0;
        self.drain(&mut state, stream, Some(event.0));
        Ok(false)
    }

    fn milliseconds(&self, _: EventHandle, _: EventHandle) -> DriverResult<f32> {
        Ok(0.5)
    }

    fn begin_capture(&self, stream: StreamHandle) -> DriverResult<()> {
        self.call("begin_capture")?.capturing.insert(stream.0, Vec::new());
        Ok(())
    }

    fn end_capture(&self, stream: StreamHandle) -> DriverResult<GraphHandle> {
        let mut state = self.call("end_capture")?;
        let captured = state.capturing.remove(&stream.0).expect("a capture that was not begun");
        let handle = Self::handle(&mut state);
        state.graphs.insert(handle, captured);
        Ok(GraphHandle(handle))
    }

    fn launch_graph(&self, graph: GraphHandle, stream: StreamHandle) -> DriverResult<()> {
        self.queue("launch_graph", stream, Work::Graph(graph.0))
    }

    fn destroy_graph(&self, graph: GraphHandle) {
        lock(&self.state).graphs.remove(&graph.0).expect("a graph that is not there");
    }
}
