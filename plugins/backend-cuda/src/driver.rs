//! The driver that is installed, opened at run time.

use crate::peers;
use cudarc::driver::sys;
use paceline_gpu::driver::{
    Address, Cause, ContextHandle, DeviceFacts, Driver, DriverError, DriverResult, EventHandle, GraphHandle,
    KernelHandle, LaunchShape, ModuleHandle, PeerPlace, StreamHandle,
};
use paceline_plugin_api::backend::PeerRoute;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::OnceLock;

/// The installed driver, after `cuInit`.
pub(crate) struct CudaDriver(());

/// The version of the driver's interface that this backend is built for: 13.0, as the driver states it.
pub(crate) const NEEDED_VERSION: i32 = 13_000;

/// The first compute capability, as major and minor, that can start a kernel before the one in front of it has ended.
const FIRST_OVERLAPPING: (u32, u32) = (9, 0);

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
    pub const PEER_ACCESS_ALREADY_ENABLED: u32 = 704;
    pub const SYSTEM_DRIVER_MISMATCH: u32 = 803;
    /// Failures after which no call on the device succeeds: faults of kernels, of memory and of the device itself.
    pub const LASTING: &[u32] =
        &[214, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721, 999, 46];
}

fn cause(code: u32) -> Cause {
    match code {
        failure::OUT_OF_MEMORY => Cause::OutOfMemory,
        failure::NO_BINARY_FOR_DEVICE | failure::INVALID_PTX => Cause::NoImage,
        failure::UNSUPPORTED_PTX_VERSION => Cause::DriverTooOld,
        _ if failure::LASTING.contains(&code) => Cause::Lost,
        _ => Cause::Other,
    }
}

/// Why there is no driver to work with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NoCuda {
    /// The library is not there.
    Missing,
    /// It is there and does not start.
    Failed(DriverError),
}

/// Calls a function of the driver and names it where it fails.
macro_rules! call {
    ($function:ident($($argument:expr),* $(,)?)) => {
        check(stringify!($function), sys::$function($($argument),*))
    };
}

pub(crate) use call;

impl CudaDriver {
    /// The driver; it is opened and started once in a process.
    pub fn get() -> Result<&'static Self, NoCuda> {
        static STARTED: OnceLock<Result<CudaDriver, NoCuda>> = OnceLock::new();
        STARTED.get_or_init(Self::start).as_ref().map_err(Clone::clone)
    }

    fn start() -> Result<Self, NoCuda> {
        // Every other call of the binding panics where the library is missing.
        // SAFETY: it only looks for the library.
        if !unsafe { sys::is_culib_present() } {
            return Err(NoCuda::Missing);
        }
        // SAFETY: the first call, with the only value that its argument may have.
        let code = unsafe { sys::cuInit(0) };
        match check("cuInit", code) {
            // A driver without a device is there and has none.
            Ok(()) => Ok(Self(())),
            Err(error) if error.code == failure::NO_DEVICE.into() => Ok(Self(())),
            Err(error) => Err(NoCuda::Failed(error)),
        }
    }

    /// The version of the driver's interface: 1000·major + 10·minor. The driver was found.
    pub fn version() -> DriverResult<i32> {
        let mut version = 0;
        // SAFETY: the driver writes the number.
        unsafe { call!(cuDriverGetVersion(&mut version))? };
        Ok(version)
    }
}

pub(crate) fn check(call: &'static str, code: sys::CUresult) -> DriverResult<()> {
    if code == sys::CUresult::CUDA_SUCCESS {
        return Ok(());
    }
    let text = |ask: unsafe fn(sys::CUresult, *mut *const c_char) -> sys::CUresult| {
        let mut text = ptr::null();
        // SAFETY: the driver writes a pointer to a text of its own, or nothing.
        unsafe {
            let _ = ask(code, &mut text);
            if text.is_null() { String::new() } else { CStr::from_ptr(text).to_string_lossy().into_owned() }
        }
    };
    let (name, text) = (text(sys::cuGetErrorName), text(sys::cuGetErrorString));
    let code = code as u32;
    let cause = cause(code);
    let advice = match cause {
        Cause::DriverTooOld => "install driver 580 or newer",
        _ => "",
    };
    Err(DriverError { call, code: code.into(), cause, name, text, advice })
}

/// A text that the driver wrote into a buffer.
fn text(buffer: &[c_char]) -> String {
    let bytes: Vec<u8> = buffer.iter().take_while(|&&c| c != 0).map(|&c| c as u8).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

fn stream(handle: StreamHandle) -> sys::CUstream {
    handle.0 as sys::CUstream
}

fn event(handle: EventHandle) -> sys::CUevent {
    handle.0 as sys::CUevent
}

pub(crate) fn device(ordinal: u32) -> DriverResult<sys::CUdevice> {
    let mut device = 0;
    // SAFETY: the driver writes the device, or refuses the number.
    unsafe { call!(cuDeviceGet(&mut device, ordinal as c_int))? };
    Ok(device)
}

fn attribute(device: sys::CUdevice, which: sys::CUdevice_attribute) -> DriverResult<u32> {
    let mut value = 0;
    // SAFETY: the driver writes the number, or refuses the device.
    unsafe { call!(cuDeviceGetAttribute(&mut value, which, device))? };
    Ok(u32::try_from(value).unwrap_or(0))
}

impl Driver for CudaDriver {
    fn device_count(&self) -> DriverResult<u32> {
        let mut count = 0;
        // SAFETY: the driver writes the number.
        match unsafe { call!(cuDeviceGetCount(&mut count)) } {
            Ok(()) => Ok(u32::try_from(count).unwrap_or(0)),
            // What `cuInit` said is repeated here.
            Err(error) if [failure::NO_DEVICE.into(), 3].contains(&error.code) => Ok(0),
            Err(error) => Err(error),
        }
    }

    fn facts(&self, ordinal: u32) -> DriverResult<DeviceFacts> {
        use sys::CUdevice_attribute as Which;
        let device = device(ordinal)?;
        let (mut name, mut pci) = ([0; 256], [0; 32]);
        let mut uuid = MaybeUninit::<sys::CUuuid>::zeroed();
        let mut memory = 0;
        // SAFETY: the driver writes at most as much as the buffers take, whose sizes it is told or knows.
        let uuid = unsafe {
            call!(cuDeviceGetName(name.as_mut_ptr(), name.len() as c_int, device))?;
            call!(cuDeviceGetPCIBusId(pci.as_mut_ptr(), pci.len() as c_int, device))?;
            call!(cuDeviceGetUuid_v2(uuid.as_mut_ptr(), device))?;
            call!(cuDeviceTotalMem_v2(&mut memory, device))?;
            uuid.assume_init()
        };
        let hex = |range: std::ops::Range<usize>| -> String {
            uuid.bytes[range].iter().map(|&b| format!("{:02x}", b as u8)).collect()
        };
        let capability = (
            attribute(device, Which::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            attribute(device, Which::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        );
        Ok(DeviceFacts {
            name: text(&name),
            pci: text(&pci).to_lowercase(),
            uuid: format!("GPU-{}-{}-{}-{}-{}", hex(0..4), hex(4..6), hex(6..8), hex(8..10), hex(10..16)),
            memory: memory as u64,
            target: format!("sm_{}{}", capability.0, capability.1),
            wave: attribute(device, Which::CU_DEVICE_ATTRIBUTE_WARP_SIZE)?,
            units: attribute(device, Which::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
            is_integrated: attribute(device, Which::CU_DEVICE_ATTRIBUTE_INTEGRATED)? != 0,
            captures: true,
            overlaps: capability >= FIRST_OVERLAPPING,
        })
    }

    fn open(&self, ordinal: u32) -> DriverResult<ContextHandle> {
        let device = device(ordinal)?;
        let mut context = ptr::null_mut();
        // SAFETY: the driver writes the context; it is given back by `close`.
        unsafe {
            call!(cuDevicePrimaryCtxRetain(&mut context, device))?;
            if let Err(error) = call!(cuCtxSetCurrent(context)) {
                self.close(ordinal);
                return Err(error);
            }
        }
        Ok(ContextHandle(context as usize))
    }

    fn close(&self, ordinal: u32) {
        peers::forget(ordinal);
        if let Ok(device) = device(ordinal) {
            // SAFETY: the hold that `open` took.
            let _ = unsafe { call!(cuDevicePrimaryCtxRelease_v2(device)) };
        }
    }

    fn bind(&self, context: ContextHandle) -> DriverResult<()> {
        // SAFETY: the context is held by whoever has the handle.
        unsafe { call!(cuCtxSetCurrent(context.0 as sys::CUcontext)) }
    }

    fn memory(&self) -> DriverResult<(u64, u64)> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: the driver writes both numbers.
        unsafe { call!(cuMemGetInfo_v2(&mut free, &mut total))? };
        Ok((free as u64, total as u64))
    }

    fn allocate(&self, bytes: u64) -> DriverResult<Address> {
        let mut address = 0;
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        // SAFETY: the driver writes the address.
        unsafe { call!(cuMemAlloc_v2(&mut address, bytes))? };
        Ok(address)
    }

    fn free(&self, address: Address) {
        // SAFETY: allocated by `allocate`, freed once by its owner.
        let _ = unsafe { call!(cuMemFree_v2(address)) };
    }

    fn allocate_pinned(&self, bytes: usize) -> DriverResult<*mut u8> {
        let mut memory: *mut c_void = ptr::null_mut();
        // SAFETY: the driver writes the pointer.
        unsafe { call!(cuMemHostAlloc(&mut memory, bytes, sys::CU_MEMHOSTALLOC_PORTABLE))? };
        Ok(memory.cast())
    }

    unsafe fn free_pinned(&self, memory: *mut u8) {
        // SAFETY: by the contract of this function.
        let _ = unsafe { call!(cuMemFreeHost(memory.cast())) };
    }

    unsafe fn copy_to_device(
        &self,
        to: Address,
        from: *const u8,
        bytes: usize,
        on: StreamHandle,
    ) -> DriverResult<()> {
        // SAFETY: by the contract of this function.
        unsafe { call!(cuMemcpyHtoDAsync_v2(to, from.cast(), bytes, stream(on))) }
    }

    unsafe fn copy_to_host(
        &self,
        to: *mut u8,
        from: Address,
        bytes: usize,
        on: StreamHandle,
    ) -> DriverResult<()> {
        // SAFETY: by the contract of this function.
        unsafe { call!(cuMemcpyDtoHAsync_v2(to.cast(), from, bytes, stream(on))) }
    }

    unsafe fn clear(&self, at: Address, bytes: usize, on: StreamHandle) -> DriverResult<()> {
        // SAFETY: by the contract of this function.
        unsafe { call!(cuMemsetD8Async(at, 0, bytes, stream(on))) }
    }

    fn peer_route(&self, to: u32, from: u32) -> DriverResult<PeerRoute> {
        peers::route(to, from)
    }

    unsafe fn copy_from_peer(
        &self,
        to: PeerPlace,
        from: PeerPlace,
        bytes: usize,
        on: StreamHandle,
    ) -> DriverResult<()> {
        // SAFETY: by the contract of this function.
        unsafe { peers::copy(to, from, bytes, on) }
    }

    fn load_module(&self, image: &[u8]) -> DriverResult<ModuleHandle> {
        let mut module = ptr::null_mut();
        // SAFETY: an image states its own length, and PTX ends with a zero byte.
        unsafe { call!(cuModuleLoadData(&mut module, image.as_ptr().cast()))? };
        Ok(ModuleHandle(module as usize))
    }

    fn unload_module(&self, module: ModuleHandle) {
        // SAFETY: loaded by `load_module`, unloaded once by its owner.
        let _ = unsafe { call!(cuModuleUnload(module.0 as sys::CUmodule)) };
    }

    fn kernel(&self, module: ModuleHandle, name: &str) -> DriverResult<KernelHandle> {
        let mut kernel = ptr::null_mut();
        let name = CString::new(name).unwrap_or_default();
        // SAFETY: the module is loaded, the name ends with a zero byte.
        unsafe { call!(cuModuleGetFunction(&mut kernel, module.0 as sys::CUmodule, name.as_ptr()))? };
        Ok(KernelHandle(kernel as usize))
    }

    fn allow_shared(&self, kernel: KernelHandle, bytes: u32) -> DriverResult<()> {
        let which = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        // SAFETY: the kernel is of a module that is loaded.
        unsafe { call!(cuFuncSetAttribute(kernel.0 as sys::CUfunction, which, bytes as c_int)) }
    }

    fn most_threads(&self, kernel: KernelHandle) -> DriverResult<u32> {
        let which = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK;
        let mut threads = 0;
        // SAFETY: the kernel is of a module that is loaded, and the place for the result is valid for a write.
        unsafe { call!(cuFuncGetAttribute(&mut threads, which, kernel.0 as sys::CUfunction)) }?;
        Ok(u32::try_from(threads).unwrap_or(u32::MAX))
    }

    unsafe fn launch(
        &self,
        kernel: KernelHandle,
        shape: LaunchShape,
        parameters: &[u8],
        on: StreamHandle,
    ) -> DriverResult<()> {
        let LaunchShape { grid, block, shared, overlaps } = shape;
        // The driver reads the structure before it returns.
        let mut list: [*mut c_void; 1] = [parameters.as_ptr().cast_mut().cast()];
        let mut attribute = sys::CUlaunchAttribute {
            id: sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
            pad: [0; 4],
            value: sys::CUlaunchAttributeValue { programmaticStreamSerializationAllowed: 1 },
        };
        let config = sys::CUlaunchConfig {
            gridDimX: grid[0],
            gridDimY: grid[1],
            gridDimZ: grid[2],
            blockDimX: block[0],
            blockDimY: block[1],
            blockDimZ: block[2],
            sharedMemBytes: shared,
            hStream: stream(on),
            attrs: &mut attribute,
            numAttrs: overlaps.into(),
        };
        // SAFETY: by the contract of this function; the list has the one parameter that the kernel takes, and the
        // configuration as many attributes as it says.
        unsafe {
            let kernel = kernel.0 as sys::CUfunction;
            call!(cuLaunchKernelEx(&config, kernel, list.as_mut_ptr(), ptr::null_mut()))
        }
    }

    fn create_stream(&self) -> DriverResult<StreamHandle> {
        let mut stream = ptr::null_mut();
        let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: the driver writes the stream.
        unsafe { call!(cuStreamCreate(&mut stream, flags))? };
        Ok(StreamHandle(stream as usize))
    }

    fn destroy_stream(&self, handle: StreamHandle) {
        // SAFETY: made by `create_stream`, destroyed once by its owner.
        let _ = unsafe { call!(cuStreamDestroy_v2(stream(handle))) };
    }

    fn synchronize(&self, handle: StreamHandle) -> DriverResult<()> {
        // SAFETY: the stream exists.
        unsafe { call!(cuStreamSynchronize(stream(handle))) }
    }

    fn create_event(&self, is_timed: bool) -> DriverResult<EventHandle> {
        let mut event = ptr::null_mut();
        let flags = if is_timed { 0 } else { sys::CUevent_flags::CU_EVENT_DISABLE_TIMING as u32 };
        // SAFETY: the driver writes the event.
        unsafe { call!(cuEventCreate(&mut event, flags))? };
        Ok(EventHandle(event as usize))
    }

    fn destroy_event(&self, handle: EventHandle) {
        // SAFETY: made by `create_event`, destroyed once by its owner.
        let _ = unsafe { call!(cuEventDestroy_v2(event(handle))) };
    }

    fn record(&self, handle: EventHandle, on: StreamHandle) -> DriverResult<()> {
        // SAFETY: both exist.
        unsafe { call!(cuEventRecord(event(handle), stream(on))) }
    }

    fn has_passed(&self, handle: EventHandle) -> DriverResult<bool> {
        // SAFETY: the event exists.
        match unsafe { call!(cuEventQuery(event(handle))) } {
            Ok(()) => Ok(true),
            Err(error) if error.code == failure::NOT_READY.into() => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn milliseconds(&self, from: EventHandle, to: EventHandle) -> DriverResult<f32> {
        let mut time = 0.0;
        // SAFETY: both exist; the driver writes the number.
        unsafe { call!(cuEventElapsedTime_v2(&mut time, event(from), event(to)))? };
        Ok(time)
    }

    fn begin_capture(&self, handle: StreamHandle) -> DriverResult<()> {
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream exists.
        unsafe { call!(cuStreamBeginCapture_v2(stream(handle), mode)) }
    }

    fn end_capture(&self, handle: StreamHandle) -> DriverResult<GraphHandle> {
        let (mut graph, mut executable) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the stream exists and records; the recording is of no use after it was made launchable.
        unsafe {
            call!(cuStreamEndCapture(stream(handle), &mut graph))?;
            let made = call!(cuGraphInstantiateWithFlags(&mut executable, graph, 0));
            let _ = call!(cuGraphDestroy(graph));
            made?;
            // So that the first launch is as quick as the others.
            let graph = GraphHandle(executable as usize);
            match call!(cuGraphUpload(executable, stream(handle))) {
                Ok(()) => Ok(graph),
                Err(error) => {
                    self.destroy_graph(graph);
                    Err(error)
                }
            }
        }
    }

    fn launch_graph(&self, graph: GraphHandle, on: StreamHandle) -> DriverResult<()> {
        // SAFETY: both exist; what the graph points to is kept by whoever captured it.
        unsafe { call!(cuGraphLaunch(graph.0 as sys::CUgraphExec, stream(on))) }
    }

    fn destroy_graph(&self, graph: GraphHandle) {
        // SAFETY: made by `end_capture`, destroyed once by its owner.
        let _ = unsafe { call!(cuGraphExecDestroy(graph.0 as sys::CUgraphExec)) };
    }
}
