//! What the backends ask of a GPU driver, and no more.
//!
//! Each backend has one or more of its own. What cannot be provoked on a healthy card, a lost device or memory that runs out
//! at a certain call, is put in front of the code that has to report it by a stand-in, which also counts the calls of a launch.
//!
//! Handles are plain numbers: whoever makes one destroys it, and the driver checks nothing that the caller can know.

#[cfg(any(test, feature = "double"))]
pub mod double;

use paceline_plugin_api::backend::PeerRoute;
use paceline_plugin_api::{Error, ErrorKind};
use std::fmt;

/// An address in device memory.
pub type Address = u64;

macro_rules! handles {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub struct $name(pub usize);
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
pub struct DeviceFacts {
    /// The name that its maker gave it.
    pub name: String,
    /// PCI address, `domain:bus:device.function`; empty if it has none.
    pub pci: String,
    /// What tells it from others of its kind, as the vendor's tools write it; empty if the driver does not say.
    pub uuid: String,
    /// Bytes of memory.
    pub memory: u64,
    /// What kernels are compiled for: `sm_90`, `gfx1101`, `spirv`. No spaces.
    pub target: String,
    /// Lanes that run together.
    pub wave: u32,
    /// Compute units.
    pub units: u32,
    /// It shares its memory with the processor.
    pub is_integrated: bool,
    /// The driver can record work and launch it again.
    pub captures: bool,
    /// Kernels can be started while the one in front of them ends.
    pub overlaps: bool,
}

/// How a kernel is launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaunchShape {
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub shared: u32,
    /// It may be started while the kernel before it ends; it waits for that one's results by itself.
    pub overlaps: bool,
}

/// A place in the memory of an opened device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerPlace {
    /// The driver's number of the device.
    pub ordinal: u32,
    /// Its context.
    pub context: ContextHandle,
    /// The address.
    pub address: Address,
}

/// What a failure means for whoever has to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// There is not so much memory.
    OutOfMemory,
    /// The driver has no use for the code that it was given.
    NoImage,
    /// The driver is older than the code that it was given.
    DriverTooOld,
    /// No later call on the device succeeds: a fault of a kernel, of memory, or of the device itself.
    Lost,
    /// Anything else; the device stays usable.
    Other,
}

/// A call of the driver that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriverError {
    /// The call.
    pub call: &'static str,
    /// The driver's number for what went wrong.
    pub code: i64,
    /// What it means.
    pub cause: Cause,
    /// The driver's name for it.
    pub name: String,
    /// The driver's sentence; empty if it has none.
    pub text: String,
    /// What a person can do about it, if there is more to say than the cause does.
    pub advice: &'static str,
}

/// What a call of the driver gives.
pub type DriverResult<T> = Result<T, DriverError>;

impl DriverError {
    /// The error for whoever called the plugin: what failed, on which device, and what to do.
    pub fn on(&self, device: &str, while_what: &str) -> Error {
        let said = match self.advice {
            "" => self.to_string(),
            advice => format!("{self}; {advice}"),
        };
        match self.cause {
            Cause::OutOfMemory => {
                Error::out_of_memory(format!("{device}: out of memory while {while_what}: {said}"))
            }
            Cause::NoImage => Error::unsupported(format!(
                "{device}: this build has no kernels for the device; use a build that has them, or another \
                 device ({said})"
            )),
            Cause::DriverTooOld => {
                Error::unsupported(format!("{device}: the driver is too old for these kernels ({said})"))
            }
            Cause::Lost => Error::new(
                ErrorKind::DeviceLost,
                format!(
                    "{device} was lost while {while_what}: {said}; nothing runs on it any more in this process: \
                     start the program again, or use another device"
                ),
            ),
            Cause::Other => Error::new(ErrorKind::Internal, format!("{device}: {while_what} failed: {said}")),
        }
    }
}

impl fmt::Display for DriverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} answered {} ({})", self.call, self.name, self.code)?;
        match self.text.as_str() {
            "" => Ok(()),
            text => write!(f, ": {text}"),
        }
    }
}

/// The calls. All but the first four need the context to be bound ([`bind`](Self::bind)) to the calling thread.
///
/// Methods that take addresses are safe to call only with ranges that are allocated; that is what `unsafe` on them
/// says.
pub trait Driver: Send + Sync {
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
    /// Memory of the device, aligned to 256 bytes.
    fn allocate(&self, bytes: u64) -> DriverResult<Address>;
    /// Gives it back.
    fn free(&self, address: Address);
    /// Host memory that the device copies to and from by itself.
    fn allocate_pinned(&self, bytes: usize) -> DriverResult<*mut u8>;
    /// Gives it back.
    ///
    /// # Safety
    /// The memory was allocated so, and nothing uses it any more.
    unsafe fn free_pinned(&self, memory: *mut u8);

    /// Queues a copy of host memory, pinned or not, to the device.
    ///
    /// # Safety
    /// Both ranges are allocated, and stay so and unchanged until the stream has passed the copy.
    unsafe fn copy_to_device(
        &self,
        to: Address,
        from: *const u8,
        bytes: usize,
        stream: StreamHandle,
    ) -> DriverResult<()>;
    /// Queues a copy to host memory.
    ///
    /// # Safety
    /// As above.
    unsafe fn copy_to_host(
        &self,
        to: *mut u8,
        from: Address,
        bytes: usize,
        stream: StreamHandle,
    ) -> DriverResult<()>;
    /// Queues zeros.
    ///
    /// # Safety
    /// The range is allocated until the stream has passed.
    unsafe fn clear(&self, at: Address, bytes: usize, stream: StreamHandle) -> DriverResult<()>;

    /// How copies come to one device from another, by the driver's numbers. Any thread.
    fn peer_route(&self, _to: u32, _from: u32) -> DriverResult<PeerRoute> {
        Ok(PeerRoute::None)
    }
    /// Queues a copy on a stream of the device that is copied to, whose context is bound, where there is a route. Access that it
    /// wants is asked for by the first copy.
    ///
    /// # Safety
    /// Both ranges are allocated, and stay so until the stream has passed the copy; what is copied is there by then.
    unsafe fn copy_from_peer(
        &self,
        _to: PeerPlace,
        _from: PeerPlace,
        _bytes: usize,
        _stream: StreamHandle,
    ) -> DriverResult<()> {
        Err(DriverError {
            call: "copy_from_peer",
            code: 0,
            cause: Cause::Other,
            name: "unsupported".into(),
            text: "this driver has no copies between devices".into(),
            advice: "",
        })
    }

    /// Loads code in the driver's form: a cubin, PTX with a zero byte at its end, a code object, SPIR-V.
    fn load_module(&self, image: &[u8]) -> DriverResult<ModuleHandle>;
    /// Gives it back.
    fn unload_module(&self, module: ModuleHandle);
    /// The kernel of that name.
    fn kernel(&self, module: ModuleHandle, name: &str) -> DriverResult<KernelHandle>;
    /// Lets a kernel use so many bytes of dynamic shared memory, where a driver wants that to be said before a launch.
    fn allow_shared(&self, _kernel: KernelHandle, _bytes: u32) -> DriverResult<()> {
        Ok(())
    }
    /// Most threads that a group of a kernel may have: a device's own form of a kernel may be made for fewer than launches
    /// say, and then gets so many.
    fn most_threads(&self, _kernel: KernelHandle) -> DriverResult<u32> {
        Ok(u32::MAX)
    }
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

    /// Makes a stream.
    fn create_stream(&self) -> DriverResult<StreamHandle>;
    /// Gives it back; nothing is queued on it.
    fn destroy_stream(&self, stream: StreamHandle);
    /// Waits until the stream has passed all that is queued on it.
    fn synchronize(&self, stream: StreamHandle) -> DriverResult<()>;
    /// Makes an event, with a time in it or not.
    fn create_event(&self, is_timed: bool) -> DriverResult<EventHandle>;
    /// Gives it back.
    fn destroy_event(&self, event: EventHandle);
    /// Queues the event.
    fn record(&self, event: EventHandle, stream: StreamHandle) -> DriverResult<()>;
    /// True when the stream has passed the event.
    fn has_passed(&self, event: EventHandle) -> DriverResult<bool>;
    /// Milliseconds from one passed event to another.
    fn milliseconds(&self, from: EventHandle, to: EventHandle) -> DriverResult<f32>;

    /// From here on the stream records what is queued on it instead of running it. Asked of devices that capture.
    fn begin_capture(&self, stream: StreamHandle) -> DriverResult<()>;
    /// Ends the recording and makes of it something that can be launched.
    fn end_capture(&self, stream: StreamHandle) -> DriverResult<GraphHandle>;
    /// Queues all that was recorded.
    fn launch_graph(&self, graph: GraphHandle, stream: StreamHandle) -> DriverResult<()>;
    /// Gives it back; no launch of it is queued.
    fn destroy_graph(&self, graph: GraphHandle);
}
