//! The interface `paceline.backend/1`: devices, weight layouts, plans, arenas, executables, semaphores.
//!
//! Threading, unless a function says otherwise: the pure functions (`layout_weights`, `plan*`) may be called from
//! any thread; functions on a handle by one thread per handle at a time; semaphore functions from any thread.

use super::{Bytes, Status, Str};
use core::ffi::c_void;

/// An opened device.
pub type DeviceHandle = *mut c_void;
/// A planned graph.
pub type PlanHandle = *mut c_void;
/// A contiguous range of device memory.
pub type ArenaHandle = *mut c_void;
/// A plan bound to arenas.
pub type ExecutableHandle = *mut c_void;
/// A timeline semaphore.
pub type SemaphoreHandle = *mut c_void;

/// Classes of arenas, by what they hold.
pub mod arena_class {
    /// Weights in the backend's layout.
    pub const WEIGHTS: u32 = 0;
    /// KV caches and tables.
    pub const KV: u32 = 1;
    /// Recurrent and convolution state.
    pub const STATE: u32 = 2;
    /// Activations of executables.
    pub const WORKSPACE: u32 = 3;
    /// Parameter and result blocks; the host can read and write it.
    pub const IO: u32 = 4;
}

/// Kinds of devices.
pub mod device_kind {
    /// The processor that runs the host.
    pub const CPU: u32 = 0;
    /// An accelerator with its own memory.
    pub const DISCRETE: u32 = 1;
    /// An accelerator that shares the host's memory.
    pub const INTEGRATED: u32 = 2;
    /// A software implementation of an accelerator.
    pub const SOFTWARE: u32 = 3;
}

/// Uses of a weight, a bit set.
pub mod weight_use {
    /// Rows are gathered (`embed`).
    pub const GATHER: u32 = 1;
    /// Multiplied with activations (`linear`).
    pub const PRODUCT: u32 = 2;
    /// Read element by element (norms, biases, convolution taps).
    pub const ELEMENTS: u32 = 4;
}

/// One device.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct DeviceInfo {
    /// Size of this struct in bytes, set by the caller.
    pub size: usize,
    /// One of [`device_kind`].
    pub kind: u32,
    /// Number of threads or compute units that work on a launch.
    pub units: u32,
    /// Name for people; this and the other texts are valid for the life of the process.
    pub name: Str,
    /// PCI address or UUID of the hardware, or `cpu`.
    pub physical_id: Str,
    /// Architecture, such as `x86_64`, `gfx906`, `sm_90`.
    pub arch: Str,
    /// What `layout_weights` and `plan` need to know, in the backend's own words.
    pub capabilities: Str,
    /// Total memory in bytes.
    pub memory_total: u64,
}

/// Memory of a device at this moment.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct MemoryInfo {
    /// Size of this struct in bytes, set by the caller.
    pub size: usize,
    /// Total bytes.
    pub total: u64,
    /// Bytes that can still be allocated.
    pub free: u64,
    /// Arenas are rounded up to multiples of this.
    pub granularity: u64,
}

/// What a device did since it was opened; costs nothing to read.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Counters {
    /// Size of this struct in bytes, set by the caller.
    pub size: usize,
    /// Launches.
    pub launches: u64,
    /// Waits on semaphores that found the value not yet reached.
    pub waits: u64,
    /// Copies from host memory to the device, parameters of launches included.
    pub uploads: u64,
    /// Bytes of these copies.
    pub upload_bytes: u64,
    /// Copies from the device to host memory.
    pub downloads: u64,
    /// Bytes of these copies.
    pub download_bytes: u64,
    /// Rows of activations that were quantised for products.
    pub quantized_rows: u64,
    /// Bytes in arenas that exist now.
    pub arena_bytes: u64,
}

/// A weight and all its uses in the graphs of one placement.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct WeightUse {
    /// Size of this struct in bytes.
    pub size: usize,
    /// Tensor name.
    pub name: Str,
    /// GGUF type id.
    pub dtype: u32,
    /// Bit set of [`weight_use`].
    pub uses: u32,
    /// Number of dimensions.
    pub rank: u32,
    /// Weights with the same group that is not 0 read the same activations and may be fused.
    pub group: u32,
    /// Dimensions, outermost first (rows, then columns).
    pub dims: [u32; 4],
}

/// Where a weight lives on a device.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WeightLayout {
    /// The backend's name for the layout; 0 is never used.
    pub layout: u64,
    /// Bytes on the device.
    pub bytes: u64,
    /// Alignment of its first byte.
    pub alignment: u64,
}

/// Totals of a plan.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PlanInfo {
    /// Size of this struct in bytes, set by the caller.
    pub size: usize,
    /// Bytes of workspace.
    pub workspace_bytes: u64,
    /// Alignment of the workspace.
    pub workspace_alignment: u64,
    /// Bytes of one parameter block, at least those that the graph's parameters take.
    pub parameter_bytes: u64,
    /// Bytes of one result block, at least those that the graph's results take.
    pub result_bytes: u64,
    /// Number of nodes.
    pub node_count: u32,
    /// Number of nodes that were refused; such a plan cannot be loaded.
    pub refused_count: u32,
}

/// What a plan says about one node.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NodePlan {
    /// Size of this struct in bytes, set by the caller.
    pub size: usize,
    /// 0 when the node was accepted, 1 when it was refused.
    pub refused: u32,
    /// Rows up to which a row's bits do not depend on its company; `u32::MAX` is unlimited.
    pub row_invariance: u32,
    /// Id of everything that affects the bits.
    pub numerics: u64,
    /// Bytes of weights and state read, an estimate.
    pub bytes_read: u64,
    /// Multiply-adds at the largest row count, an estimate.
    pub operations: u64,
    /// Name of the kernel, or the reason of the refusal; valid while the plan lives.
    pub text: Str,
}

/// What a plan says about one state.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatePlan {
    /// Bytes on the device.
    pub bytes: u64,
    /// Alignment of its first byte.
    pub alignment: u64,
    /// The backend's name for the physical layout: equal for all graphs that share the state.
    pub layout: u64,
}

/// A range in an arena.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ArenaSpan {
    /// The arena.
    pub arena: ArenaHandle,
    /// First byte.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u64,
}

/// A semaphore and a value on its timeline.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SemaphorePoint {
    /// The semaphore.
    pub semaphore: SemaphoreHandle,
    /// The value.
    pub value: u64,
}

/// One weight to import.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct WeightImport {
    /// Size of this struct in bytes.
    pub size: usize,
    /// The weight, as given to `layout_weights`.
    pub weight: WeightUse,
    /// The layout that was chosen for it.
    pub layout: WeightLayout,
    /// Where it goes.
    pub target: ArenaSpan,
    /// Canonical GGUF bytes; they stay readable until the signal of the import.
    pub source: Bytes,
}

/// Everything that a plan is bound to.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct LoadArgs {
    /// Size of this struct in bytes.
    pub size: usize,
    /// One span per weight of the graph, in the order of the values.
    pub weights: *const ArenaSpan,
    /// Number of weights.
    pub weight_count: usize,
    /// One span per state of the graph, in the order of the values.
    pub states: *const ArenaSpan,
    /// Number of states.
    pub state_count: usize,
    /// Workspace. Executables may share it: launches of one device run one after the other.
    pub workspace: ArenaSpan,
    /// Parameter blocks, one per slot, `parameter_stride` apart, in an IO arena. Host and backend may rely on a
    /// multiple of 256 for the offset and the stride of parameter and result blocks. Alignments of spans count from
    /// the beginning of the arena, which is itself aligned for every layout of its backend.
    pub parameters: ArenaSpan,
    /// Distance of parameter blocks.
    pub parameter_stride: u64,
    /// Result blocks, one per slot, `result_stride` apart, in an IO arena.
    pub results: ArenaSpan,
    /// Distance of result blocks.
    pub result_stride: u64,
    /// Number of slots.
    pub slots: u32,
    /// Reserved, zero.
    pub reserved: u32,
}

/// One launch.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct LaunchArgs {
    /// Size of this struct in bytes.
    pub size: usize,
    /// Slot of the parameter and the result block.
    pub slot: u32,
    /// Reserved, zero.
    pub reserved: u32,
    /// Points that must be reached before the launch begins.
    pub waits: *const SemaphorePoint,
    /// Number of waits.
    pub wait_count: usize,
    /// Points that are reached when the launch is done.
    pub signals: *const SemaphorePoint,
    /// Number of signals.
    pub signal_count: usize,
}

/// A setting of a device, as text.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SettingText {
    /// Key without the plugin's name.
    pub key: Str,
    /// Value.
    pub value: Str,
}

/// Functions of `paceline.backend/1`.
#[repr(C)]
pub struct BackendTable {
    /// Size of this struct in bytes.
    pub size: usize,
    /// Number of devices now. May touch a driver.
    pub device_count: Option<unsafe extern "C" fn(out: *mut u32) -> *mut Status>,
    /// Describes a device.
    pub device_info: Option<unsafe extern "C" fn(index: u32, out: *mut DeviceInfo) -> *mut Status>,
    /// Chooses layouts for all weights of a placement: `layouts` has room for `count`. Pure. A weight that the
    /// backend cannot take is an error of code `UNSUPPORTED` that names it.
    pub layout_weights: Option<
        unsafe extern "C" fn(
            capabilities: Str,
            weights: *const WeightUse,
            count: usize,
            layouts: *mut WeightLayout,
        ) -> *mut Status,
    >,
    /// Plans a graph. `layouts` has one entry per weight of the graph, in the order of the values. Pure and total:
    /// a node that cannot run is refused in the plan, not by an error.
    pub plan: Option<
        unsafe extern "C" fn(
            graph: Bytes,
            capabilities: Str,
            layouts: *const WeightLayout,
            layout_count: usize,
            out: *mut PlanHandle,
        ) -> *mut Status,
    >,
    /// Totals of a plan.
    pub plan_info: Option<unsafe extern "C" fn(plan: PlanHandle, out: *mut PlanInfo) -> *mut Status>,
    /// What the plan says about node `index`.
    pub plan_node:
        Option<unsafe extern "C" fn(plan: PlanHandle, index: u32, out: *mut NodePlan) -> *mut Status>,
    /// What the plan says about state `index`, counted among the states in the order of the values.
    pub plan_state:
        Option<unsafe extern "C" fn(plan: PlanHandle, index: u32, out: *mut StatePlan) -> *mut Status>,
    /// Frees a plan; executables made from it stay usable.
    pub plan_free: Option<unsafe extern "C" fn(plan: PlanHandle)>,
    /// Opens a device.
    pub device_open: Option<
        unsafe extern "C" fn(
            index: u32,
            settings: *const SettingText,
            setting_count: usize,
            out: *mut DeviceHandle,
        ) -> *mut Status,
    >,
    /// Closes a device after everything made from it was freed.
    pub device_close: Option<unsafe extern "C" fn(device: DeviceHandle)>,
    /// Memory now. Any thread.
    pub device_memory:
        Option<unsafe extern "C" fn(device: DeviceHandle, out: *mut MemoryInfo) -> *mut Status>,
    /// Counters now. Any thread.
    pub device_counters:
        Option<unsafe extern "C" fn(device: DeviceHandle, out: *mut Counters) -> *mut Status>,
    /// Allocates and commits an arena of a class of [`arena_class`].
    pub arena_create: Option<
        unsafe extern "C" fn(
            device: DeviceHandle,
            class: u32,
            bytes: u64,
            out: *mut ArenaHandle,
        ) -> *mut Status,
    >,
    /// Frees an arena after everything bound to it was freed.
    pub arena_free: Option<unsafe extern "C" fn(arena: ArenaHandle)>,
    /// The address of an IO arena in host memory.
    pub arena_host: Option<unsafe extern "C" fn(arena: ArenaHandle, out: *mut *mut u8) -> *mut Status>,
    /// Imports weights in a batch; `signal` is reached when all are in place, or carries the failure.
    pub weights_import: Option<
        unsafe extern "C" fn(
            device: DeviceHandle,
            imports: *const WeightImport,
            count: usize,
            signal: *const SemaphorePoint,
        ) -> *mut Status,
    >,
    /// Binds a plan to arenas.
    pub executable_load: Option<
        unsafe extern "C" fn(
            device: DeviceHandle,
            plan: PlanHandle,
            args: *const LoadArgs,
            out: *mut ExecutableHandle,
        ) -> *mut Status,
    >,
    /// Frees an executable that has no launch pending.
    pub executable_free: Option<unsafe extern "C" fn(executable: ExecutableHandle)>,
    /// Queues a launch and returns; neither allocates nor waits. Launches of a device run in order.
    pub launch: Option<unsafe extern "C" fn(executable: ExecutableHandle, args: *const LaunchArgs) -> i32>,
    /// The text of the last failed hot call on this executable, or null. The caller releases it.
    pub executable_error: Option<unsafe extern "C" fn(executable: ExecutableHandle) -> *mut Status>,
    /// Copies slots or blocks `first..first+count` of state `index` out in canonical form: row-major elements of
    /// the declared type. Without a launch pending.
    pub state_export: Option<
        unsafe extern "C" fn(
            executable: ExecutableHandle,
            index: u32,
            first: u32,
            count: u32,
            out: *mut u8,
            bytes: u64,
        ) -> *mut Status,
    >,
    /// The reverse of `state_export`.
    pub state_import: Option<
        unsafe extern "C" fn(
            executable: ExecutableHandle,
            index: u32,
            first: u32,
            count: u32,
            source: Bytes,
        ) -> *mut Status,
    >,
    /// Makes a timeline semaphore.
    pub semaphore_create: Option<
        unsafe extern "C" fn(device: DeviceHandle, initial: u64, out: *mut SemaphoreHandle) -> *mut Status,
    >,
    /// Frees a semaphore that nothing pending refers to.
    pub semaphore_free: Option<unsafe extern "C" fn(semaphore: SemaphoreHandle)>,
    /// Waits until the value is reached. `TIMEOUT` after `timeout_ns`; the failure's code if the semaphore failed.
    pub semaphore_wait:
        Option<unsafe extern "C" fn(semaphore: SemaphoreHandle, value: u64, timeout_ns: u64) -> i32>,
    /// The value reached so far.
    pub semaphore_value: Option<unsafe extern "C" fn(semaphore: SemaphoreHandle, out: *mut u64) -> i32>,
    /// Sets the value from the host.
    pub semaphore_signal: Option<unsafe extern "C" fn(semaphore: SemaphoreHandle, value: u64) -> i32>,
    /// The failure that the semaphore carries, or null. The caller releases it. A failure is for good: every wait for
    /// a value that was not reached before it fails, whatever is signalled later.
    pub semaphore_failure: Option<unsafe extern "C" fn(semaphore: SemaphoreHandle) -> *mut Status>,
}

// SAFETY: a table is constant for the life of the process and holds function pointers only.
unsafe impl Sync for BackendTable {}
