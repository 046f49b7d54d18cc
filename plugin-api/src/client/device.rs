//! A backend's device and what is made from it. Everything made from a device keeps it open.

use super::backend::{BackendClient, PlanClient, call, weight_to_c};
use super::missing;
use crate::abi::{
    self, ArenaHandle, ArenaSpan, BackendTable, Bytes, DeviceHandle, ExecutableHandle, LaunchArgs, LoadArgs,
    SemaphoreHandle, SemaphorePoint, code,
};
use crate::abi_function;
use crate::backend::{ArenaClass, Counters, MemoryInfo, WeightLayout, WeightUse};
use crate::error::{Error, ErrorKind, Result};
use std::sync::Arc;

struct DeviceInner {
    backend: BackendClient,
    handle: DeviceHandle,
}

// SAFETY: functions on a device may be called from any thread, one at a time per handle; those that are not
// documented for any thread are only reached through `&self` methods that the engine calls from one thread.
unsafe impl Send for DeviceInner {}
// SAFETY: as above.
unsafe impl Sync for DeviceInner {}

impl Drop for DeviceInner {
    fn drop(&mut self) {
        if let Some(close) = abi_function!(self.backend.table, BackendTable, device_close) {
            // SAFETY: everything made from the device holds a reference to this and is gone.
            unsafe { close(self.handle) };
        }
    }
}

/// An opened device.
#[derive(Clone)]
pub struct DeviceClient {
    inner: Arc<DeviceInner>,
}

impl DeviceClient {
    pub(super) fn new(backend: BackendClient, handle: DeviceHandle) -> Self {
        Self { inner: Arc::new(DeviceInner { backend, handle }) }
    }

    fn table(&self) -> &'static BackendTable {
        self.inner.backend.table
    }

    pub(super) fn backend(&self) -> &BackendClient {
        &self.inner.backend
    }

    pub(super) fn handle(&self) -> DeviceHandle {
        self.inner.handle
    }

    /// Id of the plugin that the device belongs to.
    pub fn plugin(&self) -> &str {
        self.inner.backend.plugin()
    }

    /// Memory now.
    ///
    /// # Errors
    /// When the device is lost.
    pub fn memory(&self) -> Result<MemoryInfo> {
        let mut info =
            abi::MemoryInfo { size: size_of::<abi::MemoryInfo>(), total: 0, free: 0, granularity: 1 };
        call!(self.table(), device_memory(self.inner.handle, &raw mut info))?;
        Ok(MemoryInfo { total: info.total, free: info.free, granularity: info.granularity.max(1) })
    }

    /// What the device did since it was opened.
    ///
    /// # Errors
    /// When the backend does not count.
    pub fn counters(&self) -> Result<Counters> {
        let mut counters = Counters {
            size: size_of::<Counters>(),
            launches: 0,
            waits: 0,
            uploads: 0,
            upload_bytes: 0,
            downloads: 0,
            download_bytes: 0,
            quantized_rows: 0,
            arena_bytes: 0,
        };
        call!(self.table(), device_counters(self.inner.handle, &raw mut counters))?;
        Ok(counters)
    }

    /// Allocates an arena.
    ///
    /// # Errors
    /// When there is not enough memory.
    pub fn create_arena(&self, class: ArenaClass, bytes: u64) -> Result<ArenaClient> {
        let mut handle = std::ptr::null_mut();
        call!(self.table(), arena_create(self.inner.handle, class.code(), bytes, &raw mut handle))?;
        let mut arena = ArenaClient { device: self.clone(), handle, bytes, host: std::ptr::null_mut() };
        if class == ArenaClass::Io {
            call!(self.table(), arena_host(handle, &raw mut arena.host))?;
            if arena.host.is_null() {
                return Err(Error::new(ErrorKind::Internal, "an IO arena without an address"));
            }
        }
        Ok(arena)
    }

    /// Imports weights and waits until they are in place.
    ///
    /// # Errors
    /// A weight whose bytes or target do not fit, by name.
    pub fn import_weights(&self, imports: &[WeightImportClient<'_>]) -> Result<()> {
        let list: Vec<abi::WeightImport> = imports
            .iter()
            .map(|import| abi::WeightImport {
                size: size_of::<abi::WeightImport>(),
                weight: weight_to_c(import.weight),
                layout: import.layout,
                target: import.target.to_c(),
                source: Bytes::new(import.source),
            })
            .collect();
        let done = self.create_semaphore(0)?;
        let point = SemaphorePoint { semaphore: done.handle, value: 1 };
        call!(self.table(), weights_import(self.inner.handle, list.as_ptr(), list.len(), &raw const point))?;
        done.wait(1, u64::MAX)
    }

    /// Binds a plan to arenas.
    ///
    /// # Errors
    /// A plan with refused nodes, or spans that do not fit.
    pub fn load(&self, plan: &PlanClient, spans: &LoadSpans<'_>) -> Result<ExecutableClient> {
        let weights: Vec<ArenaSpan> = spans.weights.iter().map(|s| s.to_c()).collect();
        let states: Vec<ArenaSpan> = spans.states.iter().map(|s| s.to_c()).collect();
        let args = LoadArgs {
            size: size_of::<LoadArgs>(),
            weights: weights.as_ptr(),
            weight_count: weights.len(),
            states: states.as_ptr(),
            state_count: states.len(),
            workspace: spans.workspace.to_c(),
            parameters: spans.parameters.to_c(),
            parameter_stride: spans.parameter_stride,
            results: spans.results.to_c(),
            result_stride: spans.result_stride,
            slots: spans.slots,
            reserved: 0,
        };
        let mut handle = std::ptr::null_mut();
        call!(
            self.table(),
            executable_load(self.inner.handle, plan.handle, &raw const args, &raw mut handle)
        )?;
        Ok(ExecutableClient { device: self.clone(), handle })
    }

    /// Makes a timeline semaphore.
    ///
    /// # Errors
    /// When the device cannot.
    pub fn create_semaphore(&self, initial: u64) -> Result<SemaphoreClient> {
        let mut handle = std::ptr::null_mut();
        call!(self.table(), semaphore_create(self.inner.handle, initial, &raw mut handle))?;
        Ok(SemaphoreClient { device: self.clone(), handle })
    }
}

/// An arena; freed on drop.
pub struct ArenaClient {
    device: DeviceClient,
    handle: ArenaHandle,
    bytes: u64,
    host: *mut u8,
}

// SAFETY: an arena is a handle; the host memory behind an IO arena is only reached through unsafe methods.
unsafe impl Send for ArenaClient {}
// SAFETY: as above.
unsafe impl Sync for ArenaClient {}

impl ArenaClient {
    /// Length in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The address in host memory, null unless the class is IO.
    pub fn host_address(&self) -> *mut u8 {
        self.host
    }

    /// A range of the arena.
    pub fn span(&self, offset: u64, bytes: u64) -> SpanClient<'_> {
        SpanClient { arena: self, offset, bytes }
    }
}

impl Drop for ArenaClient {
    fn drop(&mut self) {
        if let Some(free) = abi_function!(self.device.table(), BackendTable, arena_free) {
            // SAFETY: what is bound to the arena is dropped before it by its owner.
            unsafe { free(self.handle) };
        }
    }
}

/// A range of an arena.
#[derive(Clone, Copy)]
pub struct SpanClient<'a> {
    arena: &'a ArenaClient,
    offset: u64,
    bytes: u64,
}

impl SpanClient<'_> {
    /// What tells the arena's backend from others.
    pub(super) fn table_of(self) -> *const BackendTable {
        self.arena.device.table()
    }

    pub(super) fn to_c(self) -> ArenaSpan {
        ArenaSpan { arena: self.arena.handle, offset: self.offset, bytes: self.bytes }
    }
}

/// One weight to import.
pub struct WeightImportClient<'a> {
    /// The weight, as given to `layout_weights`.
    pub weight: &'a WeightUse,
    /// The layout that was chosen for it.
    pub layout: WeightLayout,
    /// Where it goes.
    pub target: SpanClient<'a>,
    /// Canonical GGUF bytes.
    pub source: &'a [u8],
}

/// Everything that a plan is bound to.
pub struct LoadSpans<'a> {
    /// One span per weight of the graph, in the order of the values.
    pub weights: Vec<SpanClient<'a>>,
    /// One span per state of the graph, in the order of the values.
    pub states: Vec<SpanClient<'a>>,
    /// Workspace.
    pub workspace: SpanClient<'a>,
    /// Parameter blocks, one per slot.
    pub parameters: SpanClient<'a>,
    /// Distance of parameter blocks in bytes.
    pub parameter_stride: u64,
    /// Result blocks, one per slot.
    pub results: SpanClient<'a>,
    /// Distance of result blocks in bytes.
    pub result_stride: u64,
    /// Number of slots.
    pub slots: u32,
}

/// A plan bound to arenas; freed on drop. The owner keeps the arenas alive and drops them after it.
pub struct ExecutableClient {
    device: DeviceClient,
    handle: ExecutableHandle,
}

// SAFETY: an executable may move between threads; it is used by one at a time, which `&mut self` ensures for
// launches.
unsafe impl Send for ExecutableClient {}

/// Most semaphores on one launch or copy, for waits and signals each.
pub(super) const MAX_POINTS: usize = 8;

/// The first of the places are those of the list.
pub(super) fn points(list: &[(&SemaphoreClient, u64)]) -> [SemaphorePoint; MAX_POINTS] {
    let mut points = [SemaphorePoint { semaphore: std::ptr::null_mut(), value: 0 }; MAX_POINTS];
    for (point, (semaphore, value)) in points.iter_mut().zip(list) {
        *point = SemaphorePoint { semaphore: semaphore.handle, value: *value };
    }
    points
}

impl ExecutableClient {
    pub(super) fn device(&self) -> &DeviceClient {
        &self.device
    }

    pub(super) fn handle(&self) -> ExecutableHandle {
        self.handle
    }

    /// Queues a launch of `slot` that signals one point when it is done.
    ///
    /// # Errors
    /// What the backend reports; nothing was queued then.
    pub fn launch(&mut self, slot: u32, semaphore: &SemaphoreClient, value: u64) -> Result<()> {
        self.launch_after(slot, &[], &[(semaphore, value)])
    }

    /// Queues a launch of `slot` after some points, signalling others. At most 8 of each.
    ///
    /// # Errors
    /// What the backend reports; nothing was queued then.
    pub fn launch_after(
        &mut self,
        slot: u32,
        waits: &[(&SemaphoreClient, u64)],
        signals: &[(&SemaphoreClient, u64)],
    ) -> Result<()> {
        if waits.len() > MAX_POINTS || signals.len() > MAX_POINTS {
            return Err(Error::invalid("more than 8 semaphores on one launch"));
        }
        let (wait_points, signal_points) = (points(waits), points(signals));
        let args = LaunchArgs {
            size: size_of::<LaunchArgs>(),
            slot,
            reserved: 0,
            waits: wait_points.as_ptr(),
            wait_count: waits.len(),
            signals: signal_points.as_ptr(),
            signal_count: signals.len(),
        };
        let table = self.device.table();
        let launch = abi_function!(table, BackendTable, launch).ok_or_else(|| missing("launch"))?;
        // SAFETY: the executable and the semaphores are live, the arguments outlive the call.
        match unsafe { launch(self.handle, &raw const args) } {
            code::OK => Ok(()),
            number => Err(self.last_error(number)),
        }
    }

    fn last_error(&self, number: i32) -> Error {
        let kind = ErrorKind::from_code(number);
        let text = abi_function!(self.device.table(), BackendTable, executable_error)
            // SAFETY: the executable is live; the status is taken over.
            .and_then(|get| unsafe { Error::take(get(self.handle)) }.err());
        text.unwrap_or_else(|| Error::new(kind, format!("the launch failed with code {number}")))
    }

    /// Copies slots or blocks of a state out in canonical form. No launch may be pending.
    ///
    /// # Errors
    /// A range outside of the state, a buffer of another size, a backend that cannot.
    pub fn export_state(&self, state: u32, first: u32, count: u32, out: &mut [u8]) -> Result<()> {
        call!(
            self.device.table(),
            state_export(self.handle, state, first, count, out.as_mut_ptr(), out.len() as u64)
        )
    }

    /// The reverse of [`ExecutableClient::export_state`].
    ///
    /// # Errors
    /// As there.
    pub fn import_state(&mut self, state: u32, first: u32, count: u32, source: &[u8]) -> Result<()> {
        call!(self.device.table(), state_import(self.handle, state, first, count, Bytes::new(source)))
    }
}

impl Drop for ExecutableClient {
    fn drop(&mut self) {
        if let Some(free) = abi_function!(self.device.table(), BackendTable, executable_free) {
            // SAFETY: the owner waits for pending launches before it drops an executable.
            unsafe { free(self.handle) };
        }
    }
}

/// A timeline semaphore; freed on drop.
pub struct SemaphoreClient {
    device: DeviceClient,
    handle: SemaphoreHandle,
}

// SAFETY: semaphore functions may be called from any thread.
unsafe impl Send for SemaphoreClient {}
// SAFETY: as above.
unsafe impl Sync for SemaphoreClient {}

impl SemaphoreClient {
    /// Waits until the value is reached.
    ///
    /// # Errors
    /// [`ErrorKind::Timeout`], or the failure that the semaphore carries.
    pub fn wait(&self, value: u64, timeout_ns: u64) -> Result<()> {
        let wait = abi_function!(self.device.table(), BackendTable, semaphore_wait)
            .ok_or_else(|| missing("semaphore_wait"))?;
        // SAFETY: the semaphore is live.
        match unsafe { wait(self.handle, value, timeout_ns) } {
            code::OK => Ok(()),
            code::TIMEOUT => Err(Error::new(ErrorKind::Timeout, "the wait timed out")),
            number => Err(self.failure().unwrap_or_else(|| {
                Error::new(ErrorKind::from_code(number), format!("the wait failed with code {number}"))
            })),
        }
    }

    /// The value reached so far.
    ///
    /// # Errors
    /// When the backend lacks the function.
    pub fn value(&self) -> Result<u64> {
        let get = abi_function!(self.device.table(), BackendTable, semaphore_value)
            .ok_or_else(|| missing("semaphore_value"))?;
        let mut value = 0;
        // SAFETY: the semaphore is live.
        match unsafe { get(self.handle, &raw mut value) } {
            code::OK => Ok(value),
            number => Err(self.failure().unwrap_or_else(|| {
                Error::new(ErrorKind::from_code(number), format!("the semaphore has no value: code {number}"))
            })),
        }
    }

    /// Sets the value from the host.
    ///
    /// # Errors
    /// When the backend lacks the function or refuses.
    pub fn signal(&self, value: u64) -> Result<()> {
        let signal = abi_function!(self.device.table(), BackendTable, semaphore_signal)
            .ok_or_else(|| missing("semaphore_signal"))?;
        // SAFETY: the semaphore is live.
        match unsafe { signal(self.handle, value) } {
            code::OK => Ok(()),
            number => Err(self.failure().unwrap_or_else(|| {
                Error::new(
                    ErrorKind::from_code(number),
                    format!("the semaphore cannot be set: code {number}"),
                )
            })),
        }
    }

    /// The failure that the semaphore carries.
    pub fn failure(&self) -> Option<Error> {
        let get = abi_function!(self.device.table(), BackendTable, semaphore_failure)?;
        // SAFETY: the semaphore is live; the status is taken over.
        unsafe { Error::take(get(self.handle)) }.err()
    }
}

impl Drop for SemaphoreClient {
    fn drop(&mut self) {
        if let Some(free) = abi_function!(self.device.table(), BackendTable, semaphore_free) {
            // SAFETY: nothing pending refers to the semaphore when its owner drops it.
            unsafe { free(self.handle) };
        }
    }
}
