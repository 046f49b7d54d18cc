//! The HIP runtime as the driver that `paceline-gpu` asks for.

use crate::hip::{self, Handle, Hip, answer, attribute};
use crate::peers::Links;
use paceline_gpu::driver::{
    Address, Cause, ContextHandle, DeviceFacts, Driver, DriverError, DriverResult, EventHandle, GraphHandle,
    KernelHandle, LaunchShape, ModuleHandle, PeerPlace, StreamHandle,
};
use paceline_plugin_api::backend::PeerRoute;
use std::ffi::{CString, c_char, c_int, c_void};
use std::ptr;

/// The runtime, after `hipInit`.
pub(crate) struct HipDriver {
    pub hip: Hip,
    /// Access between devices.
    pub links: Links,
}

/// Calls a function of the library and names it where it fails.
macro_rules! call {
    ($driver:expr, $function:ident($($argument:expr),* $(,)?)) => {
        $driver.check(stringify!($function), ($driver.hip.functions.$function)($($argument),*))
    };
}

/// A text that the library wrote into a buffer.
fn text(buffer: &[c_char]) -> String {
    let bytes: Vec<u8> = buffer.iter().take_while(|&&c| c != 0).map(|&c| c as u8).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

fn handle(number: usize) -> Handle {
    number as Handle
}

fn at(address: Address) -> *mut c_void {
    address as *mut c_void
}

impl HipDriver {
    /// Starts the runtime.
    ///
    /// # Errors
    /// Its answer. That there is no device is none: then there are none.
    pub fn start(hip: Hip) -> DriverResult<Self> {
        let driver = Self { hip, links: Links::default() };
        // SAFETY: the only value that the argument may have.
        match unsafe { call!(driver, hipInit(0)) } {
            Err(error) if !is_no_device(&error) => Err(error),
            _ => Ok(driver),
        }
    }

    pub fn check(&self, call: &'static str, code: c_int) -> DriverResult<()> {
        if code == 0 {
            return Ok(());
        }
        let (name, text) = self.hip.texts(code);
        Err(DriverError { call, code: code.into(), cause: cause(code), name, text, advice: advice(code) })
    }

    fn attribute(&self, which: c_int, device: c_int) -> DriverResult<u32> {
        let mut value = 0;
        // SAFETY: the library writes the number.
        unsafe { call!(self, hipDeviceGetAttribute(&mut value, which, device))? };
        Ok(u32::try_from(value).unwrap_or(0))
    }

    /// The device with a number.
    fn device(&self, ordinal: u32) -> DriverResult<c_int> {
        let mut device = 0;
        // SAFETY: the library writes the device, or refuses the number.
        unsafe { call!(self, hipDeviceGet(&mut device, c_int::try_from(ordinal).unwrap_or(-1)))? };
        Ok(device)
    }
}

fn is_no_device(error: &DriverError) -> bool {
    answer::NO_DEVICE.iter().any(|&code| error.code == i64::from(code))
}

fn cause(code: c_int) -> Cause {
    match code {
        answer::OUT_OF_MEMORY => Cause::OutOfMemory,
        answer::NO_BINARY_FOR_GPU | answer::INVALID_IMAGE => Cause::NoImage,
        code if answer::LASTING.contains(&code) => Cause::Lost,
        _ => Cause::Other,
    }
}

fn advice(code: c_int) -> &'static str {
    match cause(code) {
        Cause::Lost => "`dmesg` may say what the kernel module saw",
        _ => "",
    }
}

impl Driver for HipDriver {
    fn device_count(&self) -> DriverResult<u32> {
        let mut count = 0;
        // SAFETY: the library writes the number.
        match unsafe { call!(self, hipGetDeviceCount(&mut count)) } {
            Ok(()) => Ok(u32::try_from(count).unwrap_or(0)),
            Err(error) if is_no_device(&error) => Ok(0),
            Err(error) => Err(error),
        }
    }

    fn facts(&self, ordinal: u32) -> DriverResult<DeviceFacts> {
        let device = self.device(ordinal)?;
        let (mut name, mut pci) = ([0; 256], [0; 32]);
        let mut memory = 0;
        // SAFETY: the library writes at most as much as the buffers take, whose sizes it is told.
        unsafe {
            call!(self, hipDeviceGetName(name.as_mut_ptr(), name.len() as c_int, device))?;
            call!(self, hipDeviceGetPCIBusId(pci.as_mut_ptr(), pci.len() as c_int, device))?;
            call!(self, hipDeviceTotalMem(&mut memory, device))?;
        }
        let target = self.hip.target(device).map_err(|why| DriverError {
            call: "hipGetDeviceProperties",
            code: 0,
            cause: Cause::Other,
            name: why,
            text: String::new(),
            advice: "",
        })?;
        // A fact for reports; nothing here depends on it.
        let fine_grain = self.attribute(attribute::FINE_GRAIN, device).is_ok_and(|value| value != 0);
        let (name, pci) = (text(&name), text(&pci).to_lowercase());
        tracing::info!(
            "HIP device {ordinal}, {name} at {pci}: {target}, fine-grained memory: {}",
            if fine_grain { "yes" } else { "no" }
        );
        Ok(DeviceFacts {
            name: if name.is_empty() { "AMD GPU".into() } else { name },
            pci,
            uuid: self.hip.uuid(device).unwrap_or_default(),
            memory: memory as u64,
            target,
            wave: self.attribute(attribute::WAVE, device)?,
            units: self.attribute(attribute::MULTIPROCESSORS, device)?,
            is_integrated: self.attribute(attribute::INTEGRATED, device)? != 0,
            captures: true,
            overlaps: false,
        })
    }

    /// A device has one context in a process, which is there from the start.
    fn open(&self, ordinal: u32) -> DriverResult<ContextHandle> {
        let context = ContextHandle(ordinal as usize);
        self.bind(context)?;
        Ok(context)
    }

    fn close(&self, _: u32) {}

    fn bind(&self, context: ContextHandle) -> DriverResult<()> {
        // SAFETY: the library refuses a number that it does not know.
        unsafe { call!(self, hipSetDevice(context.0 as c_int)) }
    }

    fn memory(&self) -> DriverResult<(u64, u64)> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: the library writes both numbers.
        unsafe { call!(self, hipMemGetInfo(&mut free, &mut total))? };
        Ok((free as u64, total as u64))
    }

    fn allocate(&self, bytes: u64) -> DriverResult<Address> {
        let mut address = ptr::null_mut();
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        // SAFETY: the library writes the address.
        unsafe { call!(self, hipMalloc(&mut address, bytes))? };
        Ok(address as Address)
    }

    fn free(&self, address: Address) {
        // SAFETY: allocated by `allocate`, freed once by its owner.
        let _ = unsafe { call!(self, hipFree(at(address))) };
    }

    fn allocate_pinned(&self, bytes: usize) -> DriverResult<*mut u8> {
        let mut memory = ptr::null_mut();
        // SAFETY: the library writes the pointer.
        unsafe { call!(self, hipHostMalloc(&mut memory, bytes, hip::HOST_PORTABLE))? };
        Ok(memory.cast())
    }

    unsafe fn free_pinned(&self, memory: *mut u8) {
        // SAFETY: by the contract of this function.
        let _ = unsafe { call!(self, hipHostFree(memory.cast())) };
    }

    unsafe fn copy_to_device(
        &self,
        to: Address,
        from: *const u8,
        bytes: usize,
        on: StreamHandle,
    ) -> DriverResult<()> {
        // SAFETY: by the contract of this function.
        unsafe { call!(self, hipMemcpyHtoDAsync(at(to), from.cast(), bytes, handle(on.0))) }
    }

    unsafe fn copy_to_host(
        &self,
        to: *mut u8,
        from: Address,
        bytes: usize,
        on: StreamHandle,
    ) -> DriverResult<()> {
        // SAFETY: by the contract of this function.
        unsafe { call!(self, hipMemcpyDtoHAsync(to.cast(), at(from), bytes, handle(on.0))) }
    }

    unsafe fn clear(&self, address: Address, bytes: usize, on: StreamHandle) -> DriverResult<()> {
        // SAFETY: by the contract of this function.
        unsafe { call!(self, hipMemsetAsync(at(address), 0, bytes, handle(on.0))) }
    }

    fn peer_route(&self, to: u32, from: u32) -> DriverResult<PeerRoute> {
        self.reach(to, from)
    }

    unsafe fn copy_from_peer(
        &self,
        to: PeerPlace,
        from: PeerPlace,
        bytes: usize,
        stream: StreamHandle,
    ) -> DriverResult<()> {
        // SAFETY: by the contract of this function.
        unsafe { self.copy_between(to, from, bytes, stream) }
    }

    fn load_module(&self, image: &[u8]) -> DriverResult<ModuleHandle> {
        let mut module = ptr::null_mut();
        // SAFETY: a code object states its own length.
        unsafe { call!(self, hipModuleLoadData(&mut module, image.as_ptr().cast()))? };
        Ok(ModuleHandle(module as usize))
    }

    fn unload_module(&self, module: ModuleHandle) {
        // SAFETY: loaded by `load_module`, unloaded once by its owner.
        let _ = unsafe { call!(self, hipModuleUnload(handle(module.0))) };
    }

    fn kernel(&self, module: ModuleHandle, name: &str) -> DriverResult<KernelHandle> {
        let mut kernel = ptr::null_mut();
        let name = CString::new(name).unwrap_or_default();
        // SAFETY: the module is loaded, the name ends with a zero byte.
        unsafe { call!(self, hipModuleGetFunction(&mut kernel, handle(module.0), name.as_ptr()))? };
        Ok(KernelHandle(kernel as usize))
    }

    unsafe fn launch(
        &self,
        kernel: KernelHandle,
        shape: LaunchShape,
        parameters: &[u8],
        on: StreamHandle,
    ) -> DriverResult<()> {
        let LaunchShape { grid, block, shared, overlaps: _ } = shape;
        // The library reads the structure before it returns; how long it is says the code object.
        let mut list: [*mut c_void; 1] = [parameters.as_ptr().cast_mut().cast()];
        // SAFETY: by the contract of this function; the list has the one parameter that the kernel takes.
        unsafe {
            call!(
                self,
                hipModuleLaunchKernel(
                    handle(kernel.0),
                    grid[0],
                    grid[1],
                    grid[2],
                    block[0],
                    block[1],
                    block[2],
                    shared,
                    handle(on.0),
                    list.as_mut_ptr(),
                    ptr::null_mut()
                )
            )
        }
    }

    fn create_stream(&self) -> DriverResult<StreamHandle> {
        let mut stream = ptr::null_mut();
        // SAFETY: the library writes the stream.
        unsafe { call!(self, hipStreamCreateWithFlags(&mut stream, hip::STREAM_NON_BLOCKING))? };
        Ok(StreamHandle(stream as usize))
    }

    fn destroy_stream(&self, stream: StreamHandle) {
        // SAFETY: made by `create_stream`, destroyed once by its owner.
        let _ = unsafe { call!(self, hipStreamDestroy(handle(stream.0))) };
    }

    fn synchronize(&self, stream: StreamHandle) -> DriverResult<()> {
        // SAFETY: the stream exists.
        unsafe { call!(self, hipStreamSynchronize(handle(stream.0))) }
    }

    fn create_event(&self, is_timed: bool) -> DriverResult<EventHandle> {
        let mut event = ptr::null_mut();
        let flags = if is_timed { 0 } else { hip::EVENT_DISABLE_TIMING };
        // SAFETY: the library writes the event.
        unsafe { call!(self, hipEventCreateWithFlags(&mut event, flags))? };
        Ok(EventHandle(event as usize))
    }

    fn destroy_event(&self, event: EventHandle) {
        // SAFETY: made by `create_event`, destroyed once by its owner.
        let _ = unsafe { call!(self, hipEventDestroy(handle(event.0))) };
    }

    fn record(&self, event: EventHandle, on: StreamHandle) -> DriverResult<()> {
        // SAFETY: both exist.
        unsafe { call!(self, hipEventRecord(handle(event.0), handle(on.0))) }
    }

    fn has_passed(&self, event: EventHandle) -> DriverResult<bool> {
        // SAFETY: the event exists.
        match unsafe { call!(self, hipEventQuery(handle(event.0))) } {
            Ok(()) => Ok(true),
            Err(error) if error.code == i64::from(answer::NOT_READY) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn milliseconds(&self, from: EventHandle, to: EventHandle) -> DriverResult<f32> {
        let mut time = 0.0;
        // SAFETY: both exist; the library writes the number.
        unsafe { call!(self, hipEventElapsedTime(&mut time, handle(from.0), handle(to.0)))? };
        Ok(time)
    }

    fn begin_capture(&self, stream: StreamHandle) -> DriverResult<()> {
        // SAFETY: the stream exists.
        unsafe { call!(self, hipStreamBeginCapture(handle(stream.0), hip::CAPTURE_THREAD_LOCAL)) }
    }

    fn end_capture(&self, stream: StreamHandle) -> DriverResult<GraphHandle> {
        let (mut graph, mut executable) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the stream exists and records; the recording is of no use after it was made launchable.
        unsafe {
            call!(self, hipStreamEndCapture(handle(stream.0), &mut graph))?;
            let (none, log) = (ptr::null_mut(), ptr::null_mut());
            let made = call!(self, hipGraphInstantiate(&mut executable, graph, none, log, 0));
            let _ = call!(self, hipGraphDestroy(graph));
            made?;
        }
        Ok(GraphHandle(executable as usize))
    }

    fn launch_graph(&self, graph: GraphHandle, on: StreamHandle) -> DriverResult<()> {
        // SAFETY: both exist; what the graph points to is kept by whoever captured it.
        unsafe { call!(self, hipGraphLaunch(handle(graph.0), handle(on.0))) }
    }

    fn destroy_graph(&self, graph: GraphHandle) {
        // SAFETY: made by `end_capture`, destroyed once by its owner.
        let _ = unsafe { call!(self, hipGraphExecDestroy(handle(graph.0))) };
    }
}
