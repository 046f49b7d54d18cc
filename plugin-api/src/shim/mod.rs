//! From the traits of [`crate::backend`] to the C table: checks of sizes and arguments, panics to statuses,
//! poisoned handles.
//!
//! Handles are boxes of [`Handle`]; the C side sees opaque pointers. A panic inside a call poisons the handle that
//! it was made on: every later call on it answers `POISONED`.

mod arguments;
mod handle;
mod interfaces;
mod strategy;

use arguments::{leak, slice, utf8, weight_use, write};
use handle::Handle;
pub use interfaces::{graph_capture_table, peer_copy_table};
pub(crate) use strategy::tensor_to_c;
pub use strategy::{DrafterInstance, RollbackInstance, drafter_table, rollback_table};

use crate::abi::{self, BackendTable, Bytes, Status, Str, code};
use crate::backend::{
    Arena, ArenaClass, Backend, Device, Executable, Load, NodePlan, Plan, Point, Semaphore, Span,
    WeightImport,
};
use crate::error::{Error, ErrorKind, Result, guard, read_argument, write_sized};
use crate::graph::Graph;
use std::marker::PhantomData;
use std::mem::MaybeUninit;

/// Ties a backend type to its one instance in this library.
pub trait Instance: 'static {
    /// The backend.
    type Backend: Backend;
    /// The instance, made on first use.
    fn get() -> &'static Self::Backend;
}

/// Room for the points of one launch without allocating.
const MAX_POINTS: usize = 8;

/// The C table of a backend.
pub fn backend_table<I: Instance>() -> &'static BackendTable {
    const { &Table::<I>::TABLE }
}

struct Table<I>(PhantomData<I>);

type Dev<I> = <<I as Instance>::Backend as Backend>::Device;
type Pln<I> = <<I as Instance>::Backend as Backend>::Plan;
type Are<I> = <Dev<I> as Device>::Arena;
type Exe<I> = <Dev<I> as Device>::Executable;
type Sem<I> = <Dev<I> as Device>::Semaphore;

/// What a plan handle holds: the plan and its graph's counts, for the checks of `executable_load`.
struct Planned<P> {
    plan: P,
    weights: usize,
    states: usize,
}

impl<I: Instance> Table<I> {
    const TABLE: BackendTable = BackendTable {
        size: size_of::<BackendTable>(),
        device_count: Some(Self::device_count),
        device_info: Some(Self::device_info),
        layout_weights: Some(Self::layout_weights),
        plan: Some(Self::plan),
        plan_info: Some(Self::plan_info),
        plan_node: Some(Self::plan_node),
        plan_state: Some(Self::plan_state),
        plan_free: Some(Self::plan_free),
        device_open: Some(Self::device_open),
        device_close: Some(Self::device_close),
        device_memory: Some(Self::device_memory),
        device_counters: Some(Self::device_counters),
        arena_create: Some(Self::arena_create),
        arena_free: Some(Self::arena_free),
        arena_host: Some(Self::arena_host),
        weights_import: Some(Self::weights_import),
        executable_load: Some(Self::executable_load),
        executable_free: Some(Self::executable_free),
        launch: Some(Self::launch),
        executable_error: Some(Self::executable_error),
        state_export: Some(Self::state_export),
        state_import: Some(Self::state_import),
        semaphore_create: Some(Self::semaphore_create),
        semaphore_free: Some(Self::semaphore_free),
        semaphore_wait: Some(Self::semaphore_wait),
        semaphore_value: Some(Self::semaphore_value),
        semaphore_signal: Some(Self::semaphore_signal),
        semaphore_failure: Some(Self::semaphore_failure),
    };

    unsafe extern "C" fn device_count(out: *mut u32) -> *mut Status {
        guard(|| {
            let count = I::get().devices()?.len();
            // SAFETY: the caller passes a place for the count.
            unsafe { write(out, count as u32) }
        })
    }

    unsafe extern "C" fn device_info(index: u32, out: *mut abi::DeviceInfo) -> *mut Status {
        guard(|| {
            let info = I::get()
                .devices()?
                .into_iter()
                .nth(index as usize)
                .ok_or_else(|| Error::invalid(format!("there is no device {index}")))?;
            let described = abi::DeviceInfo {
                size: 0,
                kind: info.kind.code(),
                units: info.units,
                name: leak(info.name),
                physical_id: leak(info.physical_id),
                arch: leak(info.arch),
                capabilities: leak(info.capabilities),
                memory_total: info.memory_total,
            };
            // SAFETY: the caller passes a struct that states its size.
            unsafe { write_sized(out, described) }
        })
    }

    unsafe extern "C" fn layout_weights(
        capabilities: Str,
        weights: *const abi::WeightUse,
        count: usize,
        layouts: *mut abi::WeightLayout,
    ) -> *mut Status {
        guard(|| {
            // SAFETY: the caller passes `count` weights with readable strings.
            let uses = unsafe { slice(weights, count)? }
                .iter()
                // SAFETY: as above.
                .map(|w| unsafe { weight_use(w) })
                .collect::<Result<Vec<_>>>()?;
            // SAFETY: the caller passes readable text.
            let chosen = I::get().layout_weights(unsafe { utf8(capabilities)? }, &uses)?;
            if chosen.len() != count {
                return Err(Error::new(ErrorKind::Internal, "the backend chose another number of layouts"));
            }
            for (index, layout) in chosen.into_iter().enumerate() {
                // SAFETY: the caller has room for `count` layouts.
                unsafe { write(layouts.wrapping_add(index), layout)? };
            }
            Ok(())
        })
    }

    unsafe extern "C" fn plan(
        graph: Bytes,
        capabilities: Str,
        layouts: *const abi::WeightLayout,
        layout_count: usize,
        out: *mut abi::PlanHandle,
    ) -> *mut Status {
        guard(|| {
            // SAFETY: the caller passes readable bytes, text and layouts.
            let (bytes, capabilities, layouts) =
                unsafe { (graph.get(), utf8(capabilities)?, slice(layouts, layout_count)?) };
            let graph = Graph::from_bytes(bytes).map_err(|e| Error::invalid(e.to_string()))?;
            let (weights, states) = (graph.weights().count(), graph.states().count());
            if weights != layout_count {
                return Err(Error::invalid(format!("{layout_count} layouts for {weights} weights")));
            }
            let plan = I::get().plan(graph, capabilities, layouts)?;
            // SAFETY: the caller passes a place for the handle.
            unsafe { write(out, Handle::leak(Planned { plan, weights, states })) }
        })
    }

    /// # Safety
    /// `plan` must be null or a live plan of this backend.
    unsafe fn planned<'a>(plan: abi::PlanHandle) -> Result<&'a Planned<Pln<I>>> {
        // SAFETY: by the contract of this function.
        Ok(&unsafe { Handle::<Planned<Pln<I>>>::get(plan)? }.value)
    }

    unsafe extern "C" fn plan_info(plan: abi::PlanHandle, out: *mut abi::PlanInfo) -> *mut Status {
        guard(|| {
            // SAFETY: the caller passes a live plan.
            let summary = unsafe { Self::planned(plan)? }.plan.summary();
            let refused = summary.nodes.iter().filter(|n| matches!(n, NodePlan::Refused { .. })).count();
            let info = abi::PlanInfo {
                size: 0,
                workspace_bytes: summary.workspace_bytes,
                workspace_alignment: summary.workspace_alignment,
                parameter_bytes: summary.parameter_bytes,
                result_bytes: summary.result_bytes,
                node_count: summary.nodes.len() as u32,
                refused_count: refused as u32,
            };
            // SAFETY: the caller passes a struct that states its size.
            unsafe { write_sized(out, info) }
        })
    }

    unsafe extern "C" fn plan_node(
        plan: abi::PlanHandle,
        index: u32,
        out: *mut abi::NodePlan,
    ) -> *mut Status {
        guard(|| {
            // SAFETY: the caller passes a live plan.
            let summary = unsafe { Self::planned(plan)? }.plan.summary();
            let node = summary
                .nodes
                .get(index as usize)
                .ok_or_else(|| Error::invalid(format!("there is no node {index}")))?;
            let described = match node {
                NodePlan::Kernel { kernel, row_invariance, numerics, bytes_read, operations } => {
                    abi::NodePlan {
                        size: 0,
                        refused: 0,
                        row_invariance: *row_invariance,
                        numerics: *numerics,
                        bytes_read: *bytes_read,
                        operations: *operations,
                        text: Str::new(kernel),
                    }
                }
                NodePlan::Refused { reason } => abi::NodePlan {
                    size: 0,
                    refused: 1,
                    row_invariance: 0,
                    numerics: 0,
                    bytes_read: 0,
                    operations: 0,
                    text: Str::new(reason),
                },
            };
            // SAFETY: the caller passes a struct that states its size.
            unsafe { write_sized(out, described) }
        })
    }

    unsafe extern "C" fn plan_state(
        plan: abi::PlanHandle,
        index: u32,
        out: *mut abi::StatePlan,
    ) -> *mut Status {
        guard(|| {
            // SAFETY: the caller passes a live plan.
            let summary = unsafe { Self::planned(plan)? }.plan.summary();
            let state = summary
                .states
                .get(index as usize)
                .ok_or_else(|| Error::invalid(format!("there is no state {index}")))?;
            // SAFETY: the caller passes a place for the struct.
            unsafe { write(out, *state) }
        })
    }

    unsafe extern "C" fn plan_free(plan: abi::PlanHandle) {
        // SAFETY: the caller passes a plan that it does not use again.
        unsafe { Handle::<Planned<Pln<I>>>::free(plan) };
    }

    unsafe extern "C" fn device_open(
        index: u32,
        settings: *const abi::SettingText,
        setting_count: usize,
        out: *mut abi::DeviceHandle,
    ) -> *mut Status {
        guard(|| {
            // SAFETY: the caller passes `setting_count` settings with readable strings.
            let settings = unsafe { slice(settings, setting_count)? }
                .iter()
                // SAFETY: as above.
                .map(|s| Ok(unsafe { (utf8(s.key)?.to_owned(), utf8(s.value)?.to_owned()) }))
                .collect::<Result<Vec<_>>>()?;
            let device = I::get().open(index, &settings)?;
            // SAFETY: the caller passes a place for the handle.
            unsafe { write(out, Handle::leak(device)) }
        })
    }

    unsafe extern "C" fn device_close(device: abi::DeviceHandle) {
        // SAFETY: the caller passes a device that it does not use again.
        unsafe { Handle::<Dev<I>>::free(device) };
    }

    unsafe extern "C" fn device_memory(device: abi::DeviceHandle, out: *mut abi::MemoryInfo) -> *mut Status {
        guard(|| {
            // SAFETY: the caller passes a live device.
            let memory = unsafe { Handle::<Dev<I>>::get(device)? }.call(Device::memory)?;
            let info = abi::MemoryInfo {
                size: 0,
                total: memory.total,
                free: memory.free,
                granularity: memory.granularity,
            };
            // SAFETY: the caller passes a struct that states its size.
            unsafe { write_sized(out, info) }
        })
    }

    unsafe extern "C" fn device_counters(device: abi::DeviceHandle, out: *mut abi::Counters) -> *mut Status {
        guard(|| {
            // SAFETY: the caller passes a live device.
            let counters = unsafe { Handle::<Dev<I>>::get(device)? }.call(|d| Ok(d.counters()))?;
            // SAFETY: the caller passes a struct that states its size.
            unsafe { write_sized(out, counters) }
        })
    }

    unsafe extern "C" fn arena_create(
        device: abi::DeviceHandle,
        class: u32,
        bytes: u64,
        out: *mut abi::ArenaHandle,
    ) -> *mut Status {
        guard(|| {
            let class = ArenaClass::from_code(class)
                .ok_or_else(|| Error::invalid(format!("arena class {class} is not known")))?;
            // SAFETY: the caller passes a live device.
            let arena = unsafe { Handle::<Dev<I>>::get(device)? }.call(|d| d.create_arena(class, bytes))?;
            // SAFETY: the caller passes a place for the handle.
            unsafe { write(out, Handle::leak(arena)) }
        })
    }

    unsafe extern "C" fn arena_free(arena: abi::ArenaHandle) {
        // SAFETY: the caller passes an arena that nothing is bound to any more.
        unsafe { Handle::<Are<I>>::free(arena) };
    }

    unsafe extern "C" fn arena_host(arena: abi::ArenaHandle, out: *mut *mut u8) -> *mut Status {
        guard(|| {
            // SAFETY: the caller passes a live arena.
            let address = unsafe { Handle::<Are<I>>::get(arena)? }.call(|a| {
                a.host_address()
                    .ok_or_else(|| Error::unsupported("only IO arenas have an address in host memory"))
            })?;
            // SAFETY: the caller passes a place for the address.
            unsafe { write(out, address) }
        })
    }

    /// # Safety
    /// `span.arena` must be null or a live arena of this backend.
    unsafe fn span<'a>(span: &abi::ArenaSpan) -> Result<Span<'a, Are<I>>> {
        // SAFETY: by the contract of this function.
        let arena = &unsafe { Handle::<Are<I>>::get(span.arena)? }.value;
        let end = span.offset.checked_add(span.bytes);
        if end.is_none_or(|end| end > arena.bytes()) {
            return Err(Error::invalid(format!(
                "a span of {} bytes at {} is outside of its arena of {} bytes",
                span.bytes,
                span.offset,
                arena.bytes()
            )));
        }
        Ok(Span { arena, offset: span.offset, bytes: span.bytes })
    }

    /// # Safety
    /// `spans` must be `count` spans whose arenas are live.
    unsafe fn spans<'a>(spans: *const abi::ArenaSpan, count: usize) -> Result<Vec<Span<'a, Are<I>>>> {
        // SAFETY: by the contract of this function.
        unsafe { slice(spans, count)? }.iter().map(|s| unsafe { Self::span(s) }).collect()
    }

    unsafe extern "C" fn weights_import(
        device: abi::DeviceHandle,
        imports: *const abi::WeightImport,
        count: usize,
        signal: *const abi::SemaphorePoint,
    ) -> *mut Status {
        guard(|| {
            // SAFETY: the caller passes `count` imports with readable strings and sources, and live arenas.
            let imports = unsafe { slice(imports, count)? }
                .iter()
                .map(|import| {
                    // SAFETY: as above.
                    unsafe {
                        Ok(WeightImport {
                            weight: weight_use(&import.weight)?,
                            layout: import.layout,
                            target: Self::span(&import.target)?,
                            source: import.source.get(),
                        })
                    }
                })
                .collect::<Result<Vec<_>>>()?;
            // SAFETY: the caller passes one point with a live semaphore, and a live device.
            unsafe {
                let point = slice(signal, 1)?[0];
                let semaphore = &Handle::<Sem<I>>::get(point.semaphore)?.value;
                Handle::<Dev<I>>::get(device)?
                    .call(|d| d.import_weights(&imports, Point { semaphore, value: point.value }))
            }
        })
    }

    unsafe extern "C" fn executable_load(
        device: abi::DeviceHandle,
        plan: abi::PlanHandle,
        args: *const abi::LoadArgs,
        out: *mut abi::ExecutableHandle,
    ) -> *mut Status {
        guard(|| {
            // SAFETY: the caller passes a live device and plan and arguments whose arenas are live.
            let (device, planned, args) =
                unsafe { (Handle::<Dev<I>>::get(device)?, Self::planned(plan)?, read_argument(args)?) };
            let summary = planned.plan.summary();
            if let Some((node, reason)) = summary.refusal() {
                return Err(Error::unsupported(format!("node {node} was refused: {reason}")));
            }
            if args.weight_count != planned.weights || args.state_count != planned.states {
                return Err(Error::invalid("another number of weights or states than the graph has"));
            }
            // SAFETY: as above.
            let load = unsafe {
                Load {
                    weights: Self::spans(args.weights, args.weight_count)?,
                    states: Self::spans(args.states, args.state_count)?,
                    workspace: Self::span(&args.workspace)?,
                    parameters: Self::span(&args.parameters)?,
                    parameter_stride: args.parameter_stride,
                    results: Self::span(&args.results)?,
                    result_stride: args.result_stride,
                    slots: args.slots,
                }
            };
            for (what, span, stride, needed) in [
                ("parameter", &load.parameters, load.parameter_stride, summary.parameter_bytes),
                ("result", &load.results, load.result_stride, summary.result_bytes),
            ] {
                let total = stride.checked_mul(u64::from(load.slots));
                if stride < needed || total.is_none_or(|t| t > span.bytes) || load.slots == 0 {
                    return Err(Error::invalid(format!(
                        "the {what} blocks need {needed} bytes for each slot"
                    )));
                }
            }
            let executable = device.call(|d| d.load(&planned.plan, &load))?;
            // SAFETY: the caller passes a place for the handle.
            unsafe { write(out, Handle::leak(executable)) }
        })
    }

    unsafe extern "C" fn executable_free(executable: abi::ExecutableHandle) {
        // SAFETY: the caller passes an executable without pending launches that it does not use again.
        unsafe { Handle::<Exe<I>>::free(executable) };
    }

    unsafe extern "C" fn launch(executable: abi::ExecutableHandle, args: *const abi::LaunchArgs) -> i32 {
        // SAFETY: the caller passes a live executable.
        let Ok(handle) = (unsafe { Handle::<Exe<I>>::get(executable) }) else {
            return code::INVALID;
        };
        handle.hot(|executable| {
            // SAFETY: the caller passes arguments whose semaphores are live.
            unsafe {
                let args = read_argument(args)?;
                let waits = slice(args.waits, args.wait_count)?;
                let signals = slice(args.signals, args.signal_count)?;
                Self::with_points(waits, |waits| {
                    Self::with_points(signals, |signals| executable.launch(args.slot, waits, signals))
                })
            }
        })
    }

    /// Turns points into references on the stack.
    ///
    /// # Safety
    /// The semaphores must be live.
    unsafe fn with_points<R>(
        points: &[abi::SemaphorePoint],
        call: impl FnOnce(&[Point<'_, Sem<I>>]) -> Result<R>,
    ) -> Result<R> {
        let mut room = [const { MaybeUninit::<Point<'_, Sem<I>>>::uninit() }; MAX_POINTS];
        if points.len() > MAX_POINTS {
            return Err(Error::invalid(format!("more than {MAX_POINTS} semaphores on one launch")));
        }
        for (place, point) in room.iter_mut().zip(points) {
            // SAFETY: by the contract of this function.
            let semaphore = &unsafe { Handle::<Sem<I>>::get(point.semaphore)? }.value;
            place.write(Point { semaphore, value: point.value });
        }
        // SAFETY: the first `points.len()` entries were written; a point needs no drop.
        call(unsafe { std::slice::from_raw_parts(room.as_ptr().cast(), points.len()) })
    }

    unsafe extern "C" fn executable_error(executable: abi::ExecutableHandle) -> *mut Status {
        // SAFETY: the caller passes a live executable.
        let Ok(handle) = (unsafe { Handle::<Exe<I>>::get(executable) }) else {
            return std::ptr::null_mut();
        };
        handle.take_last_error().map_or(std::ptr::null_mut(), Error::into_status)
    }

    unsafe extern "C" fn state_export(
        executable: abi::ExecutableHandle,
        index: u32,
        first: u32,
        count: u32,
        out: *mut u8,
        bytes: u64,
    ) -> *mut Status {
        guard(|| {
            let bytes = usize::try_from(bytes).map_err(|_| Error::invalid("a buffer beyond this machine"))?;
            if out.is_null() {
                return Err(Error::invalid("a place for a result is null"));
            }
            // SAFETY: the caller passes a live executable and `bytes` writable bytes.
            unsafe {
                let out = std::slice::from_raw_parts_mut(out, bytes);
                Handle::<Exe<I>>::get(executable)?.call(|e| e.export_state(index, first, count, out))
            }
        })
    }

    unsafe extern "C" fn state_import(
        executable: abi::ExecutableHandle,
        index: u32,
        first: u32,
        count: u32,
        source: Bytes,
    ) -> *mut Status {
        guard(|| {
            // SAFETY: the caller passes a live executable and readable bytes.
            unsafe {
                let source = source.get();
                Handle::<Exe<I>>::get(executable)?.call(|e| e.import_state(index, first, count, source))
            }
        })
    }

    unsafe extern "C" fn semaphore_create(
        device: abi::DeviceHandle,
        initial: u64,
        out: *mut abi::SemaphoreHandle,
    ) -> *mut Status {
        guard(|| {
            // SAFETY: the caller passes a live device and a place for the handle.
            unsafe {
                let semaphore = Handle::<Dev<I>>::get(device)?.call(|d| d.create_semaphore(initial))?;
                write(out, Handle::leak(semaphore))
            }
        })
    }

    unsafe extern "C" fn semaphore_free(semaphore: abi::SemaphoreHandle) {
        // SAFETY: the caller passes a semaphore that nothing pending refers to.
        unsafe { Handle::<Sem<I>>::free(semaphore) };
    }

    unsafe extern "C" fn semaphore_wait(semaphore: abi::SemaphoreHandle, value: u64, timeout_ns: u64) -> i32 {
        // SAFETY: the caller passes a live semaphore.
        match unsafe { Handle::<Sem<I>>::get(semaphore) } {
            Ok(handle) => handle.hot(|s| s.wait(value, timeout_ns)),
            Err(_) => code::INVALID,
        }
    }

    unsafe extern "C" fn semaphore_value(semaphore: abi::SemaphoreHandle, out: *mut u64) -> i32 {
        // SAFETY: the caller passes a live semaphore and a place for the value.
        match unsafe { Handle::<Sem<I>>::get(semaphore) } {
            Ok(handle) => handle.hot(|s| {
                // SAFETY: as above.
                unsafe { write(out, s.value()) }
            }),
            Err(_) => code::INVALID,
        }
    }

    unsafe extern "C" fn semaphore_signal(semaphore: abi::SemaphoreHandle, value: u64) -> i32 {
        // SAFETY: the caller passes a live semaphore.
        match unsafe { Handle::<Sem<I>>::get(semaphore) } {
            Ok(handle) => handle.hot(|s| {
                s.signal(value);
                Ok(())
            }),
            Err(_) => code::INVALID,
        }
    }

    unsafe extern "C" fn semaphore_failure(semaphore: abi::SemaphoreHandle) -> *mut Status {
        // SAFETY: the caller passes a live semaphore.
        match unsafe { Handle::<Sem<I>>::get(semaphore) } {
            Ok(handle) => handle.value.failure().map_or(std::ptr::null_mut(), Error::into_status),
            Err(_) => std::ptr::null_mut(),
        }
    }
}
