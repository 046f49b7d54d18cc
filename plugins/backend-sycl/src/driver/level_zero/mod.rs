//! Level Zero, opened at run time.

mod calls;
mod stream;

use super::opened::{Account, Opened};
use super::{Built, LARGE, Module, device, handle, lock, object, one_kernel, options, own_error, taken};
use crate::selector::Selector;
use crate::widths;
use calls::{Found, call};
use level_zero_sys as ze;
use paceline_gpu::driver::{
    Address, ContextHandle, DeviceFacts, Driver, DriverError, DriverResult, EventHandle, GraphHandle,
    KernelHandle, LaunchShape, ModuleHandle, StreamHandle,
};
use std::cell::Cell;
use std::ffi::{CString, c_void};
use std::ptr;
use std::sync::{Arc, Mutex};
use stream::{Event, Graph, Root, Stream};

/// What memory is aligned to.
const ALIGNMENT: usize = 256;
/// Division and roots as all other targets round them. The option is OpenCL's, which compilers of Level Zero know as well.
const OPTIONS: &str = "-cl-fp32-correctly-rounded-divide-sqrt";
const LARGE_MEMORY: &str = "-ze-opt-greater-than-4GB-buffer-required";
const LARGE_REGISTERS: &str = "-ze-opt-large-register-file";

/// Why Level Zero is of no use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NoLevelZero {
    /// The loader's library is not there.
    Missing,
    /// It has no driver that works, or none at all.
    NoDriver(DriverError),
    /// It does not answer.
    Failed(DriverError),
}

/// An opened device. It stays when the device is closed, unless that was lost.
struct Context {
    ordinal: u32,
    kernels: Built<Kernel>,
    root: Root,
    account: Account,
}

/// A kernel with its own module. Its argument is set and the kernel appended under the lock, since a kernel has one set of
/// arguments.
struct Kernel {
    kernel: Mutex<ze::ze_kernel_handle_t>,
    module: ze::ze_module_handle_t,
    api: Arc<ze::LevelZero>,
}

// SAFETY: kernels and modules may be used by any thread, a kernel by one at a time.
unsafe impl Send for Kernel {}
// SAFETY: as above; the kernel is under a lock.
unsafe impl Sync for Kernel {}

impl Drop for Kernel {
    fn drop(&mut self) {
        // SAFETY: both were made by `build`, and are used by nothing that is queued.
        unsafe {
            let _ = call!(self.api, zeKernelDestroy(*lock(&self.kernel)));
            let _ = call!(self.api, zeModuleDestroy(self.module));
        }
    }
}

/// Level Zero on this machine.
pub(crate) struct LevelZeroDriver {
    api: Arc<ze::LevelZero>,
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

impl LevelZeroDriver {
    /// The devices that the selector leaves and that can run the kernels, with the first of these loaders that is there.
    /// `forced` is a width for all kernels.
    ///
    /// # Errors
    /// There is no Level Zero, or it does not work.
    pub fn start(loaders: &[&str], selector: &Selector, forced: Option<u32>) -> Result<Self, NoLevelZero> {
        // SAFETY: libraries of these names are loaders of Level Zero.
        let api = loaders.iter().find_map(|name| unsafe { ze::LevelZero::open(name) }.ok());
        let api = Arc::new(api.ok_or(NoLevelZero::Missing)?);
        // SAFETY: the first call. After a failure nothing else is called.
        let started = unsafe { call!(api, zeInit(0)) };
        if let Err(error) = started {
            // Unloading a loader is more than some can take.
            std::mem::forget(api);
            return Err(NoLevelZero::NoDriver(error));
        }
        let devices = calls::devices(&api, selector, forced).map_err(NoLevelZero::Failed)?;
        Ok(Self { api, devices, open: Opened::default(), forced })
    }

    fn found(&self, ordinal: u32) -> DriverResult<&Found> {
        device(&self.devices, ordinal)
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

    fn free_address(&self, address: usize) {
        let Ok((context, _)) = self.current() else { return };
        context.account.remove(address);
        // SAFETY: allocated in this context, freed once by its owner.
        let _ = unsafe { call!(self.api, zeMemFree(context.root.context, address as *mut c_void)) };
    }

    /// Queues a copy; memory of host and device has one space of addresses.
    ///
    /// # Safety
    /// As [`Driver::copy_to_device`].
    unsafe fn copy(&self, to: *mut u8, from: *const u8, bytes: usize, on: StreamHandle) -> DriverResult<()> {
        let (context, _) = self.current()?;
        // SAFETY: the stream exists by the contract of the trait.
        let stream: &Stream = unsafe { object(on.0) };
        // SAFETY: the caller's promise.
        stream.append(&context.root, |api, list| unsafe {
            let none = ptr::null_mut();
            call!(
                api,
                zeCommandListAppendMemoryCopy(list, to.cast(), from.cast(), bytes, none, 0, ptr::null_mut())
            )
        })
    }

    fn build(&self, module: &[u8], entry: &str) -> DriverResult<Kernel> {
        let (context, found) = self.current()?;
        let form = widths::form(entry, &found.widths, self.forced);
        let one = one_kernel(module, entry, form)?;
        let is_large = found.facts.memory > LARGE;
        let options = options(OPTIONS, [(is_large, LARGE_MEMORY), (form.large_registers, LARGE_REGISTERS)]);
        let description = ze::ze_module_desc_t {
            stype: ze::ZE_STRUCTURE_TYPE_MODULE_DESC,
            format: ze::ZE_MODULE_FORMAT_IL_SPIRV,
            inputSize: one.len(),
            pInputModule: one.as_ptr(),
            pBuildFlags: options.as_ptr(),
            ..Default::default()
        };
        let (mut module, mut log) = (ptr::null_mut(), ptr::null_mut());
        let root = &context.root;
        // SAFETY: the structure says what it is, and what it points to lives to the end of the call.
        let made = unsafe {
            call!(self.api, zeModuleCreate(root.context, root.device, &description, &mut module, &mut log))
        };
        if let Err(error) = made {
            return Err(DriverError { text: format!("kernel `{entry}`: {}", self.build_log(log)), ..error });
        }
        self.build_log(log);
        let name = CString::new(entry).unwrap_or_default();
        let description = ze::ze_kernel_desc_t {
            stype: ze::ZE_STRUCTURE_TYPE_KERNEL_DESC,
            pKernelName: name.as_ptr(),
            ..Default::default()
        };
        let mut kernel = ptr::null_mut();
        // Structures hold addresses that the driver does not see otherwise.
        let all = ze::ZE_KERNEL_INDIRECT_ACCESS_FLAG_HOST | ze::ZE_KERNEL_INDIRECT_ACCESS_FLAG_DEVICE;
        // SAFETY: as above; the module is destroyed once, by the kernel or here.
        unsafe {
            let kernel_made = call!(self.api, zeKernelCreate(module, &description, &mut kernel));
            let set = kernel_made.and_then(|()| call!(self.api, zeKernelSetIndirectAccess(kernel, all)));
            if let Err(error) = set {
                if !kernel.is_null() {
                    let _ = call!(self.api, zeKernelDestroy(kernel));
                }
                let _ = call!(self.api, zeModuleDestroy(module));
                return Err(error);
            }
        }
        Ok(Kernel { kernel: Mutex::new(kernel), module, api: Arc::clone(&self.api) })
    }

    /// What the compiler said; the log is given back.
    fn build_log(&self, log: ze::ze_module_build_log_handle_t) -> String {
        if log.is_null() {
            return String::new();
        }
        let mut size = 0;
        // SAFETY: the log exists, and the buffer is as long as the driver asks for.
        unsafe {
            let _ = call!(self.api, zeModuleBuildLogGetString(log, &mut size, ptr::null_mut()));
            let mut text = vec![0u8; size];
            let _ = call!(self.api, zeModuleBuildLogGetString(log, &mut size, text.as_mut_ptr().cast()));
            let _ = call!(self.api, zeModuleBuildLogDestroy(log));
            String::from_utf8_lossy(&text).trim_matches(['\0', '\n', ' ']).to_owned()
        }
    }
}

impl Driver for LevelZeroDriver {
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
            let root = Root::new(&self.api, found)?;
            Ok(Context { ordinal, kernels: Built::default(), root, account: Account::default() })
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

    /// Level Zero says what is free to administrators alone: what other programs took is not seen.
    fn memory(&self) -> DriverResult<(u64, u64)> {
        let (context, found) = self.current()?;
        let total = found.facts.memory;
        Ok((context.account.free_of(total), total))
    }

    fn allocate(&self, bytes: u64) -> DriverResult<Address> {
        let (context, found) = self.current()?;
        let relaxed = ze::ze_relaxed_allocation_limits_exp_desc_t {
            stype: ze::ZE_STRUCTURE_TYPE_RELAXED_ALLOCATION_LIMITS_EXP_DESC,
            flags: ze::ZE_RELAXED_ALLOCATION_LIMITS_EXP_FLAG_MAX_SIZE,
            ..Default::default()
        };
        let description = ze::ze_device_mem_alloc_desc_t {
            stype: ze::ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC,
            pNext: if bytes > found.largest { (&raw const relaxed).cast() } else { ptr::null() },
            ..Default::default()
        };
        let size = usize::try_from(bytes).unwrap_or(usize::MAX);
        let (root, mut memory) = (&context.root, ptr::null_mut());
        // SAFETY: the structures say what they are and live to the end of the call.
        unsafe {
            call!(
                self.api,
                zeMemAllocDevice(root.context, &description, size, ALIGNMENT, root.device, &mut memory)
            )?;
        }
        Ok(context.account.add(memory as usize, bytes) as Address)
    }

    fn free(&self, address: Address) {
        self.free_address(address as usize);
    }

    fn allocate_pinned(&self, bytes: usize) -> DriverResult<*mut u8> {
        let (context, _) = self.current()?;
        Ok(self.host_memory(context, bytes)?.cast())
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
        let (context, _) = self.current()?;
        // SAFETY: the stream exists by the contract of the trait.
        let stream: &Stream = unsafe { object(on.0) };
        let zero = 0u8;
        // SAFETY: by the contract of this function; the pattern is read before the call returns.
        stream.append(&context.root, |api, list| unsafe {
            let (at, zero, none) = (at as *mut c_void, (&raw const zero).cast(), ptr::null_mut());
            call!(api, zeCommandListAppendMemoryFill(list, at, zero, 1, bytes, none, 0, ptr::null_mut()))
        })
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
        let (context, _) = self.current()?;
        // SAFETY: both exist by the contract of the trait.
        let (own, stream): (&Kernel, &Stream) = unsafe { (object(kernel.0), object(on.0)) };
        let LaunchShape { grid, block, .. } = shape;
        let groups =
            ze::ze_group_count_t { groupCountX: grid[0], groupCountY: grid[1], groupCountZ: grid[2] };
        let kernel = lock(&own.kernel);
        // SAFETY: by the contract of this function the structure is the kernel's; appending copies it.
        stream.append(&context.root, |api, list| unsafe {
            let none = ptr::null_mut();
            call!(api, zeKernelSetGroupSize(*kernel, block[0], block[1], block[2]))?;
            call!(api, zeKernelSetArgumentValue(*kernel, 0, parameters.len(), parameters.as_ptr().cast()))?;
            call!(api, zeCommandListAppendLaunchKernel(list, *kernel, &groups, none, 0, ptr::null_mut()))
        })
    }

    fn create_stream(&self) -> DriverResult<StreamHandle> {
        let (context, _) = self.current()?;
        Ok(StreamHandle(handle(Stream::new(&context.root)?)))
    }

    fn destroy_stream(&self, stream: StreamHandle) {
        let Ok((context, _)) = self.current() else { return };
        // SAFETY: made by `create_stream`, destroyed once by its owner.
        unsafe { taken::<Stream>(stream.0) }.destroy(&context.root);
    }

    fn synchronize(&self, stream: StreamHandle) -> DriverResult<()> {
        let (context, _) = self.current()?;
        // SAFETY: the stream exists by the contract of the trait.
        unsafe { object::<Stream>(stream.0) }.synchronize(&context.root)
    }

    fn create_event(&self, is_timed: bool) -> DriverResult<EventHandle> {
        let (context, _) = self.current()?;
        let mut event = context.root.event()?;
        if is_timed {
            match self.host_memory(context, size_of::<u64>()) {
                Ok(time) => event.time = Some(time.cast()),
                Err(error) => {
                    context.root.destroy_event(event);
                    return Err(error);
                }
            }
        }
        Ok(EventHandle(handle(event)))
    }

    fn destroy_event(&self, event: EventHandle) {
        let Ok((context, _)) = self.current() else { return };
        // SAFETY: made by `create_event`, destroyed once by its owner.
        let mut event = unsafe { taken::<Event>(event.0) };
        if let Some(time) = event.time.take() {
            self.free_address(time as usize);
        }
        context.root.destroy_event(*event);
    }

    fn record(&self, event: EventHandle, on: StreamHandle) -> DriverResult<()> {
        let (context, _) = self.current()?;
        // SAFETY: both exist by the contract of the trait.
        let (event, stream): (&Event, &Stream) = unsafe { (object(event.0), object(on.0)) };
        stream.record(&context.root, event)
    }

    fn has_passed(&self, event: EventHandle) -> DriverResult<bool> {
        let (context, _) = self.current()?;
        // SAFETY: the event exists by the contract of the trait.
        unsafe { object::<Event>(event.0) }.has_passed(&context.root)
    }

    fn milliseconds(&self, from: EventHandle, to: EventHandle) -> DriverResult<f32> {
        let (_, found) = self.current()?;
        let time = |event: EventHandle| {
            // SAFETY: the event exists by the contract of the trait and was passed, so nobody writes its time.
            unsafe { object::<Event>(event.0).time.map_or(0, |time| time.read_volatile()) }
        };
        let ticks = time(to).wrapping_sub(time(from)) & found.clock;
        Ok((ticks as f64 * found.tick / 1e6) as f32)
    }

    fn begin_capture(&self, stream: StreamHandle) -> DriverResult<()> {
        let (context, _) = self.current()?;
        // SAFETY: the stream exists by the contract of the trait.
        unsafe { object::<Stream>(stream.0) }.begin(&context.root)
    }

    fn end_capture(&self, stream: StreamHandle) -> DriverResult<GraphHandle> {
        let (context, _) = self.current()?;
        // SAFETY: the stream exists by the contract of the trait.
        let graph = unsafe { object::<Stream>(stream.0) }.end(&context.root)?;
        Ok(GraphHandle(handle(graph)))
    }

    fn launch_graph(&self, graph: GraphHandle, on: StreamHandle) -> DriverResult<()> {
        let (context, _) = self.current()?;
        // SAFETY: both exist by the contract of the trait.
        let (graph, stream): (&Graph, &Stream) = unsafe { (object(graph.0), object(on.0)) };
        stream.launch(&context.root, graph)
    }

    fn destroy_graph(&self, graph: GraphHandle) {
        let Ok((context, _)) = self.current() else { return };
        // SAFETY: made by `end_capture`, destroyed once by its owner.
        unsafe { taken::<Graph>(graph.0) }.destroy(&context.root);
    }
}

impl LevelZeroDriver {
    /// Memory of the host that the device reads and writes.
    fn host_memory(&self, context: &Context, bytes: usize) -> DriverResult<*mut c_void> {
        let description = ze::ze_host_mem_alloc_desc_t {
            stype: ze::ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC,
            ..Default::default()
        };
        let mut memory = ptr::null_mut();
        // SAFETY: the structure says what it is.
        unsafe {
            call!(
                self.api,
                zeMemAllocHost(context.root.context, &description, bytes, ALIGNMENT, &mut memory)
            )?;
        }
        Ok(context.account.add(memory as usize, bytes as u64) as *mut c_void)
    }
}
