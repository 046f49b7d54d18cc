//! OpenCL with SPIR-V and unified shared memory, opened at run time. It cannot record work.

mod devices;

use super::opened::{Account, Opened};
use super::{Built, LARGE, Module, handle, lock, object, one_kernel, options, own_error, taken};
use crate::selector::{Api, Selector};
use crate::widths;
use cl3::error_codes::error_text;
use cl3::{command_queue, context, device, event, kernel, platform, program};
use devices::{Found, examine, kind_of, text};
use opencl_sys as cl;
use paceline_gpu::driver::{
    Address, Cause, ContextHandle, DeviceFacts, Driver, DriverError, DriverResult, EventHandle, GraphHandle,
    KernelHandle, LaunchShape, ModuleHandle, StreamHandle,
};
use std::cell::Cell;
use std::ffi::{CString, c_void};
use std::ptr;
use std::sync::Mutex;

/// What the driver aligns memory to.
const ALIGNMENT: u32 = 256;
/// Division and roots as all other targets round them.
const OPTIONS: &str = "-cl-std=CL3.0 -cl-fp32-correctly-rounded-divide-sqrt";
const LARGE_MEMORY: &str = "-cl-intel-greater-than-4GB-buffer-required";
const LARGE_REGISTERS: &str = "-cl-intel-256-GRF-per-thread";
/// `CL_MEM_ALLOW_UNRESTRICTED_SIZE_INTEL`.
const UNRESTRICTED: u64 = 1 << 23;

/// Why OpenCL is of no use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NoOpenCl {
    /// The loader's library is not there.
    Missing,
    /// It does not work.
    Failed(DriverError),
}

/// An opened device. It stays when the device is closed, unless that was lost.
struct Context {
    ordinal: u32,
    context: cl::cl_context,
    kernels: Built<Kernel>,
    account: Account,
}

// SAFETY: a context of OpenCL may be used by any thread.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: made by `create_context`, released once.
        let _ = unsafe { context::release_context(self.context) };
    }
}

/// A kernel. Its argument is set and the kernel queued under the lock, since a kernel has one set of arguments.
struct Kernel {
    kernel: Mutex<cl::cl_kernel>,
    program: cl::cl_program,
}

// SAFETY: kernels and programs may be used by any thread, a kernel by one at a time.
unsafe impl Send for Kernel {}
// SAFETY: as above; the kernel is under a lock.
unsafe impl Sync for Kernel {}

/// A queue that runs in order.
struct Stream {
    queue: cl::cl_command_queue,
}

/// A marker in a queue, once it was recorded.
struct Event {
    event: Mutex<cl::cl_event>,
}

/// OpenCL on this machine.
pub(crate) struct OpenClDriver {
    devices: Vec<Found>,
    open: Opened<Context>,
    /// All kernels get this width.
    forced: Option<u32>,
}

thread_local! {
    /// The context of the calling thread.
    static CURRENT: Cell<*const Context> = const { Cell::new(ptr::null()) };
}

/// Remembers that the device of the calling thread is lost.
fn note_loss() {
    if !CURRENT.get().is_null() {
        // SAFETY: by the contract of the trait the context that is bound is open.
        unsafe { &*CURRENT.get() }.account.lose();
    }
}

fn failed(call: &'static str) -> impl Fn(cl::cl_int) -> DriverError {
    move |code| {
        let cause = match code {
            // What a device that hangs answers where it is waited for; elsewhere something is too large for it.
            cl::CL_OUT_OF_RESOURCES if ["clFinish", "clFlush", "clGetEventInfo"].contains(&call) => {
                Cause::Lost
            }
            cl::CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST => Cause::Lost,
            cl::CL_DEVICE_NOT_AVAILABLE => Cause::Lost,
            cl::CL_MEM_OBJECT_ALLOCATION_FAILURE | cl::CL_OUT_OF_HOST_MEMORY => Cause::OutOfMemory,
            _ => Cause::Other,
        };
        if cause == Cause::Lost {
            note_loss();
        }
        DriverError {
            call,
            code: code.into(),
            cause,
            name: error_text(code).to_owned(),
            text: String::new(),
            advice: "",
        }
    }
}

/// As [`failed`], for allocations: whatever they lack is memory.
fn no_memory(call: &'static str, code: cl::cl_int) -> DriverError {
    let error = failed(call)(code);
    match code {
        cl::CL_OUT_OF_RESOURCES | cl::CL_INVALID_BUFFER_SIZE => {
            DriverError { cause: Cause::OutOfMemory, ..error }
        }
        _ => error,
    }
}

impl OpenClDriver {
    /// The devices that the selector leaves and that can run the kernels. `forced` is a width for all kernels.
    ///
    /// # Errors
    /// There is no OpenCL, or it does not answer.
    pub fn start(selector: &Selector, forced: Option<u32>) -> Result<Self, NoOpenCl> {
        if !cl3::is_opencl_runtime_available() {
            return Err(NoOpenCl::Missing);
        }
        let platforms = match platform::get_platform_ids() {
            Ok(platforms) => platforms,
            // A loader without drivers: CL_PLATFORM_NOT_FOUND_KHR.
            Err(-1001) => Vec::new(),
            Err(code) => return Err(NoOpenCl::Failed(failed("clGetPlatformIDs")(code))),
        };
        let mut devices = Vec::new();
        let mut number = 0;
        for of in platforms {
            // A platform without devices answers that there are none.
            for id in device::get_device_ids(of, cl::CL_DEVICE_TYPE_ALL).unwrap_or_default() {
                let kind = kind_of(id).map_err(NoOpenCl::Failed)?;
                if selector.takes(Api::OpenCl, number, kind) {
                    let name = text(id, cl::CL_DEVICE_NAME).unwrap_or_default();
                    match examine(of, id, number, kind) {
                        Ok(found) if forced.is_some_and(|width| !found.widths.contains(&width)) => {
                            tracing::warn!(
                                "OpenCL's {name} is left out: it has no such sub-groups as are asked for"
                            );
                        }
                        Ok(found) => devices.push(found),
                        Err(why) => tracing::info!("OpenCL's {name} is left out: {why}"),
                    }
                }
                number += 1;
            }
        }
        Ok(Self { devices, open: Opened::default(), forced })
    }

    fn found(&self, ordinal: u32) -> DriverResult<&Found> {
        super::device(&self.devices, ordinal)
    }

    /// The device of the calling thread.
    fn current(&self) -> DriverResult<(&Context, &Found)> {
        let context = CURRENT.get();
        if context.is_null() {
            return Err(own_error("using a device", "the thread has none".into()));
        }
        // SAFETY: by the contract of the trait the context that is bound is open.
        let context = unsafe { &*context };
        Ok((context, self.found(context.ordinal)?))
    }

    fn allocate_with(
        &self,
        call: &'static str,
        bytes: u64,
        make: impl Fn(&Context, &Found, *const cl::cl_mem_properties_intel, usize, &mut cl::cl_int) -> *mut c_void,
    ) -> DriverResult<usize> {
        let (context, found) = self.current()?;
        let plain: [cl::cl_mem_properties_intel; 3] = [0; 3];
        let large = [u64::from(cl::CL_MEM_FLAGS), UNRESTRICTED, 0];
        let properties = if bytes > found.largest { &large } else { &plain };
        let size = usize::try_from(bytes).unwrap_or(usize::MAX);
        let mut code = cl::CL_SUCCESS;
        let memory = make(context, found, properties.as_ptr(), size, &mut code);
        if code != cl::CL_SUCCESS || memory.is_null() {
            return Err(no_memory(call, code));
        }
        Ok(context.account.add(memory as usize, bytes))
    }

    fn free_address(&self, address: usize) {
        let Ok((context, found)) = self.current() else { return };
        context.account.remove(address);
        if let Some(free) = found.memory.free {
            // SAFETY: allocated in this context, freed once by its owner.
            unsafe { free(context.context, address as *mut c_void) };
        }
    }

    /// Queues a copy; memory of host and device has one space of addresses.
    ///
    /// # Safety
    /// As [`Driver::copy_to_device`].
    unsafe fn copy(&self, to: *mut u8, from: *const u8, bytes: usize, on: StreamHandle) -> DriverResult<()> {
        let (_, found) = self.current()?;
        // SAFETY: the stream exists by the contract of the trait.
        let stream: &Stream = unsafe { object(on.0) };
        let Some(copy) = found.memory.copy else { return Ok(()) };
        // SAFETY: the caller's promise.
        let code = unsafe {
            copy(stream.queue, cl::CL_FALSE, to.cast(), from.cast(), bytes, 0, ptr::null(), ptr::null_mut())
        };
        check("clEnqueueMemcpyINTEL", code)?;
        flush(stream)
    }

    fn build(&self, module: &[u8], entry: &str) -> DriverResult<Kernel> {
        let (context, found) = self.current()?;
        let form = widths::form(entry, &found.widths, self.forced);
        let one = one_kernel(module, entry, form)?;
        let made = program::create_program_with_il(context.context, &one);
        let made = made.map_err(failed("clCreateProgramWithIL"))?;
        let is_large = !found.is_cpu && found.facts.memory > LARGE;
        let has_large_registers = !found.is_cpu && form.large_registers;
        let options = options(OPTIONS, [(is_large, LARGE_MEMORY), (has_large_registers, LARGE_REGISTERS)]);
        let built = program::build_program(made, &[found.id], &options, None, ptr::null_mut())
            .map_err(|code| {
                let log = program::get_program_build_data(made, found.id, cl::CL_PROGRAM_BUILD_LOG);
                let log = String::from_utf8_lossy(&log.unwrap_or_default())
                    .trim_matches(['\0', '\n', ' '])
                    .to_owned();
                DriverError { text: format!("kernel `{entry}`: {log}"), ..failed("clBuildProgram")(code) }
            })
            .and_then(|()| {
                let name = CString::new(entry).unwrap_or_default();
                kernel::create_kernel(made, &name).map_err(failed("clCreateKernel"))
            })
            .and_then(|kernel| {
                // Structures hold addresses that the driver does not see otherwise.
                let all: cl::cl_bool = cl::CL_TRUE;
                for which in [
                    cl::CL_KERNEL_EXEC_INFO_INDIRECT_DEVICE_ACCESS_INTEL,
                    cl::CL_KERNEL_EXEC_INFO_INDIRECT_HOST_ACCESS_INTEL,
                ] {
                    let (size, value) = (size_of_val(&all), (&raw const all).cast());
                    // SAFETY: the value is a boolean, as the extension asks for.
                    let set = unsafe { kernel::set_kernel_exec_info(kernel, which, size, value) };
                    if let Err(code) = set {
                        // SAFETY: made above, released once.
                        let _ = unsafe { kernel::release_kernel(kernel) };
                        return Err(failed("clSetKernelExecInfo")(code));
                    }
                }
                Ok(kernel)
            });
        match built {
            Ok(kernel) => Ok(Kernel { kernel: Mutex::new(kernel), program: made }),
            Err(error) => {
                // SAFETY: made above, released once.
                let _ = unsafe { program::release_program(made) };
                Err(error)
            }
        }
    }
}

fn check(call: &'static str, code: cl::cl_int) -> DriverResult<()> {
    match code {
        cl::CL_SUCCESS => Ok(()),
        code => Err(failed(call)(code)),
    }
}

/// Lets the device begin with what is queued.
fn flush(stream: &Stream) -> DriverResult<()> {
    command_queue::flush(stream.queue).map_err(failed("clFlush"))
}

impl Driver for OpenClDriver {
    fn device_count(&self) -> DriverResult<u32> {
        Ok(self.devices.len() as u32)
    }

    fn facts(&self, ordinal: u32) -> DriverResult<DeviceFacts> {
        let mut facts = self.found(ordinal)?.facts.clone();
        facts.wave = self.forced.unwrap_or(facts.wave);
        Ok(facts)
    }

    fn open(&self, ordinal: u32) -> DriverResult<ContextHandle> {
        let found = self.found(ordinal)?;
        let handle = self.open.open(ordinal, || {
            let made = context::create_context(&[found.id], ptr::null(), None, ptr::null_mut());
            let context = made.map_err(failed("clCreateContext"))?;
            Ok(Context { ordinal, context, kernels: Built::default(), account: Account::default() })
        })?;
        self.bind(handle)?;
        Ok(handle)
    }

    fn close(&self, ordinal: u32) {
        self.open.close(ordinal, |context| context.account.is_lost());
    }

    fn bind(&self, context: ContextHandle) -> DriverResult<()> {
        CURRENT.set(context.0 as *const Context);
        Ok(())
    }

    /// OpenCL does not say what is free: what other programs took is not seen.
    fn memory(&self) -> DriverResult<(u64, u64)> {
        let (context, found) = self.current()?;
        let total = found.facts.memory;
        Ok((context.account.free_of(total), total))
    }

    fn allocate(&self, bytes: u64) -> DriverResult<Address> {
        let made =
            self.allocate_with("clDeviceMemAllocINTEL", bytes, |context, found, properties, size, code| {
                // SAFETY: the properties end with a zero, the driver writes the code.
                found.memory.device.map_or(ptr::null_mut(), |make| unsafe {
                    make(context.context, found.id, properties, size, ALIGNMENT, code)
                })
            });
        made.map(|address| address as Address)
    }

    fn free(&self, address: Address) {
        self.free_address(address as usize);
    }

    fn allocate_pinned(&self, bytes: usize) -> DriverResult<*mut u8> {
        let made = self.allocate_with(
            "clHostMemAllocINTEL",
            bytes as u64,
            |context, found, properties, size, code| {
                // SAFETY: as above.
                found.memory.host.map_or(ptr::null_mut(), |make| unsafe {
                    make(context.context, properties, size, ALIGNMENT, code)
                })
            },
        );
        made.map(|address| address as *mut u8)
    }

    unsafe fn free_pinned(&self, memory: *mut u8) {
        self.free_address(memory as usize);
    }

    unsafe fn copy_to_device(
        &self,
        to: Address,
        from: *const u8,
        bytes: usize,
        on: StreamHandle,
    ) -> DriverResult<()> {
        // SAFETY: by the contract of this function.
        unsafe { self.copy(to as *mut u8, from, bytes, on) }
    }

    unsafe fn copy_to_host(
        &self,
        to: *mut u8,
        from: Address,
        bytes: usize,
        on: StreamHandle,
    ) -> DriverResult<()> {
        // SAFETY: by the contract of this function.
        unsafe { self.copy(to, from as *const u8, bytes, on) }
    }

    unsafe fn clear(&self, at: Address, bytes: usize, on: StreamHandle) -> DriverResult<()> {
        let (_, found) = self.current()?;
        // SAFETY: the stream exists by the contract of the trait.
        let stream: &Stream = unsafe { object(on.0) };
        let Some(fill) = found.memory.fill else { return Ok(()) };
        let zero = 0u8;
        // SAFETY: by the contract of this function; the pattern is read before the call returns.
        let code = unsafe {
            let pattern = (&raw const zero).cast();
            fill(stream.queue, at as *mut c_void, pattern, 1, bytes, 0, ptr::null(), ptr::null_mut())
        };
        check("clEnqueueMemFillINTEL", code)?;
        flush(stream)
    }

    fn load_module(&self, image: &[u8]) -> DriverResult<ModuleHandle> {
        Ok(Module::load(image))
    }

    fn unload_module(&self, module: ModuleHandle) {
        // SAFETY: made by `load_module`, unloaded once by its owner.
        unsafe { Module::unload(module) };
    }

    fn kernel(&self, module: ModuleHandle, name: &str) -> DriverResult<KernelHandle> {
        // SAFETY: the module is loaded by the contract of the trait.
        let module = unsafe { object(module.0) };
        let (context, _) = self.current()?;
        context.kernels.kernel(module, name, |bytes| self.build(bytes, name))
    }

    unsafe fn launch(
        &self,
        kernel: KernelHandle,
        shape: LaunchShape,
        parameters: &[u8],
        on: StreamHandle,
    ) -> DriverResult<()> {
        // SAFETY: both exist by the contract of the trait.
        let (own, stream): (&Kernel, &Stream) = unsafe { (object(kernel.0), object(on.0)) };
        let LaunchShape { grid, block, .. } = shape;
        let threads = block.map(|count| count as usize);
        let all = [0, 1, 2].map(|axis| grid[axis] as usize * threads[axis]);
        let kernel = lock(&own.kernel);
        // SAFETY: by the contract of this function the structure is the kernel's; the driver copies it.
        unsafe {
            kernel::set_kernel_arg(*kernel, 0, parameters.len(), parameters.as_ptr().cast())
                .map_err(failed("clSetKernelArg"))?;
            let queued = command_queue::enqueue_nd_range_kernel(
                stream.queue,
                *kernel,
                3,
                ptr::null(),
                all.as_ptr(),
                threads.as_ptr(),
                0,
                ptr::null(),
            );
            let queued = queued.map_err(failed("clEnqueueNDRangeKernel"))?;
            let _ = event::release_event(queued);
        }
        Ok(())
    }

    fn create_stream(&self) -> DriverResult<StreamHandle> {
        let (context, found) = self.current()?;
        // Times are asked of events of any stream.
        let properties = [u64::from(cl::CL_QUEUE_PROPERTIES), cl::CL_QUEUE_PROFILING_ENABLE, 0];
        // SAFETY: the properties end with a zero.
        let queue = unsafe {
            command_queue::create_command_queue_with_properties(
                context.context,
                found.id,
                properties.as_ptr(),
            )
        };
        let queue = queue.map_err(failed("clCreateCommandQueueWithProperties"))?;
        Ok(StreamHandle(handle(Stream { queue })))
    }

    fn destroy_stream(&self, stream: StreamHandle) {
        // SAFETY: made by `create_stream`, destroyed once by its owner.
        unsafe {
            let stream = taken::<Stream>(stream.0);
            let _ = command_queue::release_command_queue(stream.queue);
        }
    }

    fn synchronize(&self, stream: StreamHandle) -> DriverResult<()> {
        // SAFETY: the stream exists by the contract of the trait.
        let stream: &Stream = unsafe { object(stream.0) };
        command_queue::finish(stream.queue).map_err(failed("clFinish"))
    }

    fn create_event(&self, _: bool) -> DriverResult<EventHandle> {
        Ok(EventHandle(handle(Event { event: Mutex::new(ptr::null_mut()) })))
    }

    fn destroy_event(&self, event: EventHandle) {
        // SAFETY: made by `create_event`, destroyed once by its owner.
        let event = unsafe { taken::<Event>(event.0) };
        release(*lock(&event.event));
    }

    fn record(&self, event: EventHandle, on: StreamHandle) -> DriverResult<()> {
        // SAFETY: both exist by the contract of the trait.
        let (event, stream): (&Event, &Stream) = unsafe { (object(event.0), object(on.0)) };
        // SAFETY: without events to wait for, the marker waits for all that is queued.
        let marker = unsafe { command_queue::enqueue_marker_with_wait_list(stream.queue, 0, ptr::null()) };
        let marker = marker.map_err(failed("clEnqueueMarkerWithWaitList"))?;
        release(std::mem::replace(&mut *lock(&event.event), marker));
        flush(stream)
    }

    fn has_passed(&self, event: EventHandle) -> DriverResult<bool> {
        // SAFETY: the event exists by the contract of the trait.
        let event: &Event = unsafe { object(event.0) };
        let marker = *lock(&event.event);
        if marker.is_null() {
            return Ok(true);
        }
        let status = event::get_event_info(marker, cl::CL_EVENT_COMMAND_EXECUTION_STATUS);
        let status: cl::cl_int = status.map_err(failed("clGetEventInfo"))?.into();
        match status {
            // What went wrong while it was queued or ran; there is no way to go on from it.
            code if code < 0 => {
                note_loss();
                Err(DriverError { cause: Cause::Lost, ..failed("running a kernel")(code) })
            }
            code => Ok(code == cl::CL_COMPLETE),
        }
    }

    fn milliseconds(&self, from: EventHandle, to: EventHandle) -> DriverResult<f32> {
        let time = |event: EventHandle| -> DriverResult<u64> {
            // SAFETY: the event exists by the contract of the trait.
            let event: &Event = unsafe { object(event.0) };
            let time = event::get_event_profiling_info(*lock(&event.event), cl::CL_PROFILING_COMMAND_END);
            Ok(time.map_err(failed("clGetEventProfilingInfo"))?.into())
        };
        Ok(time(to)?.saturating_sub(time(from)?) as f32 / 1e6)
    }

    fn begin_capture(&self, _: StreamHandle) -> DriverResult<()> {
        Err(cannot_record())
    }

    fn end_capture(&self, _: StreamHandle) -> DriverResult<GraphHandle> {
        Err(cannot_record())
    }

    fn launch_graph(&self, _: GraphHandle, _: StreamHandle) -> DriverResult<()> {
        Err(cannot_record())
    }

    fn destroy_graph(&self, _: GraphHandle) {}
}

fn cannot_record() -> DriverError {
    own_error("recording a step", "OpenCL cannot record work".into())
}

/// Lets go of a marker, if there is one.
fn release(marker: cl::cl_event) {
    if !marker.is_null() {
        // SAFETY: made by `record`, released once.
        let _ = unsafe { event::release_event(marker) };
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        // SAFETY: both were made by `build`; nothing queued is without its own hold on them.
        unsafe {
            let _ = kernel::release_kernel(*lock(&self.kernel));
            let _ = program::release_program(self.program);
        }
    }
}
