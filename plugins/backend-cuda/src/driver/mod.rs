//! What this backend asks of a CUDA driver, and no more.
//!
//! [`CudaDriver`] is the real one. The trait exists so that what cannot be provoked on a healthy card, a lost device
//! or a driver of another age, can be put in front of the code that has to report it, and so that the calls of a
//! launch can be watched where there is no card.
//!
//! Handles are plain numbers: whoever makes one destroys it, and the driver checks nothing that the caller can know.

mod cuda;
#[cfg(test)]
pub(crate) mod double;

pub(crate) use cuda::{CudaDriver, NoDriver};

use paceline_plugin_api::{Error, ErrorKind};
use std::fmt;

/// The version of the driver's interface that this backend is built for: 13.0, as the driver states it.
pub(crate) const NEEDED_VERSION: i32 = 13_000;

/// An address in device memory.
pub(crate) type Address = u64;

macro_rules! handles {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub(crate) struct $name(pub usize);
    )*};
}

handles! {
    /// The state of one device in this process.
    ContextHandle;
    /// Loaded code.
    ModuleHandle;
    /// A kernel of a module.
    KernelHandle;
    /// A queue of work that runs in order.
    StreamHandle;
    /// A mark in a stream.
    EventHandle;
    /// Captured work, ready to be launched.
    GraphHandle;
}

/// What a driver says about a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DeviceFacts {
    pub name: String,
    /// PCI address, `domain:bus:device.function`.
    pub pci: String,
    /// The UUID as the vendor's tools write it, `GPU-…`.
    pub uuid: String,
    pub memory: u64,
    pub compute_capability: (u32, u32),
    pub multiprocessors: u32,
    pub is_integrated: bool,
}

/// How a kernel is launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LaunchShape {
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub shared: u32,
    /// It may be started while the kernel before it ends; it waits for that one's results by itself.
    pub overlaps: bool,
}

/// A call of the driver that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DriverError {
    /// The call.
    pub call: &'static str,
    /// The driver's number for what went wrong.
    pub code: u32,
    /// The driver's name for it.
    pub name: String,
    /// The driver's sentence.
    pub text: String,
}

/// Numbers of the driver's failures that need an answer of their own.
pub(crate) mod failure {
    pub const OUT_OF_MEMORY: u32 = 2;
    pub const NO_DEVICE: u32 = 100;
    pub const STUB_LIBRARY: u32 = 34;
    pub const DEVICE_UNAVAILABLE: u32 = 46;
    pub const NO_BINARY_FOR_DEVICE: u32 = 209;
    pub const UNSUPPORTED_PTX_VERSION: u32 = 222;
    pub const INVALID_PTX: u32 = 218;
    pub const NOT_READY: u32 = 600;
    pub const SYSTEM_DRIVER_MISMATCH: u32 = 803;
    /// Failures after which no call on the device succeeds: faults of kernels, of memory and of the device itself.
    pub const LASTING: &[u32] =
        &[214, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721, 999, 46];
}

pub(crate) type DriverResult<T> = Result<T, DriverError>;

impl DriverError {
    /// True if no later call on the device can succeed.
    pub fn is_lasting(&self) -> bool {
        failure::LASTING.contains(&self.code)
    }

    /// The error for whoever called the plugin: what failed, on which device, and what to do.
    pub fn on(&self, device: &str, while_what: &str) -> Error {
        let Self { call, code, name, text } = self;
        let said = format!("{call} answered {name} ({code}): {text}");
        match self.code {
            failure::OUT_OF_MEMORY => {
                Error::out_of_memory(format!("{device}: out of memory while {while_what}: {said}"))
            }
            failure::NO_BINARY_FOR_DEVICE | failure::INVALID_PTX => Error::unsupported(format!(
                "{device}: this build has no kernels for the device; use a build that has them, or another \
                 device ({said})"
            )),
            failure::UNSUPPORTED_PTX_VERSION => Error::unsupported(format!(
                "{device}: the driver is too old for these kernels; install driver 580 or newer ({said})"
            )),
            _ if self.is_lasting() => Error::new(
                ErrorKind::DeviceLost,
                format!(
                    "{device} was lost while {while_what}: {said}; nothing runs on it any more in this process: \
                     start the program again, or use another device"
                ),
            ),
            _ => Error::new(ErrorKind::Internal, format!("{device}: {while_what} failed: {said}")),
        }
    }
}

impl fmt::Display for DriverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} answered {} ({}): {}", self.call, self.name, self.code, self.text)
    }
}

/// The calls. All but the first four need the context to be bound to the calling thread.
///
/// Methods that take addresses are safe to call only with ranges that are allocated; that is what `unsafe` on them
/// says.
pub(crate) trait Driver: Send + Sync {
    /// The version of the driver's interface: 1000·major + 10·minor.
    fn version(&self) -> DriverResult<i32>;
    /// Number of devices that this process may use.
    fn device_count(&self) -> DriverResult<u32>;
    /// What is known of a device.
    fn facts(&self, ordinal: u32) -> DriverResult<DeviceFacts>;
    /// Takes hold of the device's context, and binds it.
    fn open(&self, ordinal: u32) -> DriverResult<ContextHandle>;
    /// Lets go of it.
    fn close(&self, ordinal: u32);
    /// Makes the context that of the calling thread.
    fn bind(&self, context: ContextHandle) -> DriverResult<()>;

    /// Free and total bytes.
    fn memory(&self) -> DriverResult<(u64, u64)>;
    fn allocate(&self, bytes: u64) -> DriverResult<Address>;
    fn free(&self, address: Address);
    /// Host memory that the device copies to and from by itself.
    fn allocate_pinned(&self, bytes: usize) -> DriverResult<*mut u8>;
    /// # Safety
    /// The memory was allocated so, and nothing uses it any more.
    unsafe fn free_pinned(&self, memory: *mut u8);

    /// # Safety
    /// Both ranges are allocated, and stay so and unchanged until the stream has passed the copy.
    unsafe fn copy_to_device(
        &self,
        to: Address,
        from: *const u8,
        bytes: usize,
        stream: StreamHandle,
    ) -> DriverResult<()>;
    /// # Safety
    /// As above.
    unsafe fn copy_to_host(
        &self,
        to: *mut u8,
        from: Address,
        bytes: usize,
        stream: StreamHandle,
    ) -> DriverResult<()>;
    /// # Safety
    /// The range is allocated until the stream has passed.
    unsafe fn clear(&self, at: Address, bytes: usize, stream: StreamHandle) -> DriverResult<()>;

    /// Loads code: a cubin, or PTX with a zero byte at its end.
    fn load_module(&self, image: &[u8]) -> DriverResult<ModuleHandle>;
    fn unload_module(&self, module: ModuleHandle);
    fn kernel(&self, module: ModuleHandle, name: &str) -> DriverResult<KernelHandle>;
    /// Lets a kernel use so many bytes of dynamic shared memory.
    fn allow_shared(&self, kernel: KernelHandle, bytes: u32) -> DriverResult<()>;
    /// Queues a kernel that takes one structure by value.
    ///
    /// # Safety
    /// The structure is the kernel's, and what it points to is allocated until the stream has passed.
    unsafe fn launch(
        &self,
        kernel: KernelHandle,
        shape: LaunchShape,
        parameters: &[u8],
        stream: StreamHandle,
    ) -> DriverResult<()>;

    fn create_stream(&self) -> DriverResult<StreamHandle>;
    fn destroy_stream(&self, stream: StreamHandle);
    fn synchronize(&self, stream: StreamHandle) -> DriverResult<()>;
    /// Makes an event, with a time in it or not.
    fn create_event(&self, is_timed: bool) -> DriverResult<EventHandle>;
    fn destroy_event(&self, event: EventHandle);
    fn record(&self, event: EventHandle, stream: StreamHandle) -> DriverResult<()>;
    /// True when the stream has passed the event.
    fn has_passed(&self, event: EventHandle) -> DriverResult<bool>;
    /// Milliseconds from one passed event to another.
    fn milliseconds(&self, from: EventHandle, to: EventHandle) -> DriverResult<f32>;

    /// From here on the stream records what is queued on it instead of running it.
    fn begin_capture(&self, stream: StreamHandle) -> DriverResult<()>;
    /// Ends the recording and makes of it something that can be launched.
    fn end_capture(&self, stream: StreamHandle) -> DriverResult<GraphHandle>;
    fn launch_graph(&self, graph: GraphHandle, stream: StreamHandle) -> DriverResult<()>;
    fn destroy_graph(&self, graph: GraphHandle);
}
