//! The functions of Level Zero.

use crate::objects::{Event, Kernel, List, Module, Object};
use crate::work::{Command, Job, Worker};
use crate::world::{MEMORY, World, enter, with};
use level_zero_sys as ze;
use std::alloc::{Layout, alloc, dealloc};
use std::ffi::{CStr, c_char, c_void};
use std::sync::Arc;
use std::time::Duration;

type Code = ze::ze_result_t;
type Answer<T> = Result<T, Code>;

/// The one driver and the one device.
const DRIVER: usize = 1;
const DEVICE: usize = 2;
const GROUP: u32 = 1024;

/// What a kind of handle leads to.
macro_rules! found {
    ($world:expr, $handle:expr, $pattern:pat => $value:expr) => {
        match $world.objects.get_mut(&($handle as usize)) {
            Some($pattern) => Ok($value),
            _ => Err(ze::ZE_RESULT_ERROR_INVALID_NULL_HANDLE),
        }
    };
}

/// A function of Level Zero whose body gives an answer.
macro_rules! functions {
    ($($(#[$doc:meta])* fn $name:ident($($argument:ident: $kind:ty),* $(,)?) $body:block)*) => {$(
        $(#[$doc])*
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $kind),*) -> Code {
            let answer = enter(stringify!($name)).and_then(|()| -> Answer<()> { $body });
            answer.err().unwrap_or(ze::ZE_RESULT_SUCCESS)
        }
    )*};
}

/// Writes what a call gives.
///
/// # Safety
/// The pointer is null or of a place for it.
unsafe fn give<T>(to: *mut T, value: T) -> Answer<()> {
    if to.is_null() {
        return Err(ze::ZE_RESULT_ERROR_INVALID_NULL_POINTER);
    }
    // SAFETY: the caller's promise.
    unsafe { to.write(value) };
    Ok(())
}

/// A structure that says that it is of this kind.
///
/// # Safety
/// The pointer is null or of a structure of the API.
unsafe fn structure<'a, T>(at: *const T, kind: u32) -> Answer<&'a T> {
    if at.is_null() {
        return Err(ze::ZE_RESULT_ERROR_INVALID_NULL_POINTER);
    }
    // SAFETY: the caller's promise; every structure begins with its kind.
    match unsafe { at.cast::<u32>().read() } == kind {
        // SAFETY: as above.
        true => Ok(unsafe { &*at }),
        false => Err(ze::ZE_RESULT_ERROR_INVALID_ENUMERATION),
    }
}

/// The number of things of which there is one, or the thing.
///
/// # Safety
/// The pointers are of a number, and null or of room for as many things.
unsafe fn one<T>(count: *mut u32, list: *mut T, fill: impl FnOnce(*mut T) -> Answer<()>) -> Answer<()> {
    // SAFETY: the caller's promise.
    let Some(count) = (unsafe { count.as_mut() }) else {
        return Err(ze::ZE_RESULT_ERROR_INVALID_NULL_POINTER);
    };
    if !list.is_null() && *count > 0 {
        fill(list)?;
    }
    *count = 1;
    Ok(())
}

fn is_device(device: ze::ze_device_handle_t) -> Answer<()> {
    if device as usize == DEVICE { Ok(()) } else { Err(ze::ZE_RESULT_ERROR_INVALID_NULL_HANDLE) }
}

fn is_context(context: ze::ze_context_handle_t) -> Answer<()> {
    with(|world| found!(world, context, Object::Context => ()))
}

fn widths(world: &World) -> Vec<u32> {
    if world.widths.is_empty() { vec![8, 16, 32] } else { world.widths.clone() }
}

/// A pointer that is a handle.
fn pointer<T>(handle: usize) -> *mut T {
    handle as *mut T
}

/// Takes away what a handle leads to.
fn destroy(handle: usize, is_it: impl Fn(&Object) -> bool) -> Answer<Object> {
    with(|world| match world.objects.get(&handle).is_some_and(is_it) {
        true => world.objects.remove(&handle).ok_or(ze::ZE_RESULT_ERROR_INVALID_NULL_HANDLE),
        false => Err(ze::ZE_RESULT_ERROR_INVALID_NULL_HANDLE),
    })
}

/// Appends to a list, or hands to its thread.
fn append(list: ze::ze_command_list_handle_t, command: Command) -> Answer<()> {
    with(|world| match found!(world, list, Object::List(list) => list)? {
        List::Recorded { is_closed: true, .. } => Err(ze::ZE_RESULT_ERROR_INVALID_COMMAND_LIST_TYPE),
        List::Recorded { commands, .. } => {
            commands.push(command);
            Ok(())
        }
        List::Immediate(worker) => {
            worker.give(Job::One(command));
            Ok(())
        }
    })
}

fn event(handle: ze::ze_event_handle_t) -> Answer<Arc<Event>> {
    with(|world| found!(world, handle, Object::Event(event) => Arc::clone(event)))
}

/// Events are not given along with commands by who uses this.
fn no_events(signal: ze::ze_event_handle_t, waits: u32) -> Answer<()> {
    if signal.is_null() && waits == 0 { Ok(()) } else { Err(ze::ZE_RESULT_ERROR_UNSUPPORTED_FEATURE) }
}

/// The one kernel of a module, and the width of its sub-groups.
fn read_module(bytes: &[u8]) -> Result<Module, String> {
    let words: Vec<u32> =
        bytes.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
    if words.first() != Some(&0x0723_0203) {
        return Err("this is not SPIR-V".into());
    }
    let (mut entry, mut width, mut at) = (None, None, 5);
    while at < words.len() {
        let length = ((words[at] >> 16) as usize).max(1);
        let own = words.get(at..at + length).ok_or("the module was cut off")?;
        match own[0] & 0xFFFF {
            15 => {
                let name =
                    own[3..].iter().flat_map(|word| word.to_le_bytes()).take_while(|&b| b != 0).collect();
                let name = String::from_utf8(name).map_err(|_| "a name that is not text")?;
                if entry.replace(name).is_some() {
                    return Err("the module has several kernels".into());
                }
            }
            16 if own[2] == 35 => width = own.get(3).copied(),
            _ => {}
        }
        at += length;
    }
    let entry = entry.ok_or("the module has no kernel")?;
    let width = width.ok_or("the kernel does not say how wide its sub-groups are")?;
    if !with(|world| widths(world)).contains(&width) {
        return Err(format!("there are no sub-groups of {width} lanes"));
    }
    Ok(Module { entry: Box::leak(entry.into_boxed_str()), width })
}

/// Memory from the host, with what nobody may count on in it.
fn allocate(bytes: usize, alignment: usize) -> Answer<usize> {
    let layout = Layout::from_size_align(bytes, alignment.max(64))
        .map_err(|_| ze::ZE_RESULT_ERROR_UNSUPPORTED_SIZE)?;
    with(|world| {
        if bytes == 0 || world.taken + bytes as u64 > MEMORY {
            return Err(ze::ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY);
        }
        // SAFETY: at least one byte.
        let memory = unsafe { alloc(layout) };
        if memory.is_null() {
            return Err(ze::ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY);
        }
        if bytes < 64 << 20 {
            // SAFETY: just allocated.
            unsafe { memory.write_bytes(0xA5, bytes) };
        }
        world.taken += bytes as u64;
        world.objects.insert(memory as usize, Object::Memory { layout });
        Ok(memory as usize)
    })
}

functions! {
    fn zeInit(_flags: ze::ze_init_flags_t) {
        with(|world| world.started = Some(ze::ZE_RESULT_SUCCESS));
        Ok(())
    }

    fn zeDriverGet(count: *mut u32, list: *mut ze::ze_driver_handle_t) {
        // SAFETY: the contract of the call.
        unsafe { one(count, list, |to| give(to, pointer(DRIVER))) }
    }

    fn zeDriverGetApiVersion(_driver: ze::ze_driver_handle_t, version: *mut ze::ze_api_version_t) {
        // SAFETY: the contract of the call.
        unsafe { give(version, 1 << 16 | 8) }
    }

    fn zeDriverGetExtensionProperties(
        _driver: ze::ze_driver_handle_t,
        count: *mut u32,
        _list: *mut ze::ze_driver_extension_properties_t,
    ) {
        // SAFETY: the contract of the call.
        unsafe { give(count, 0) }
    }

    fn zeDeviceGet(driver: ze::ze_driver_handle_t, count: *mut u32, list: *mut ze::ze_device_handle_t) {
        if driver as usize != DRIVER {
            return Err(ze::ZE_RESULT_ERROR_INVALID_NULL_HANDLE);
        }
        // SAFETY: the contract of the call.
        unsafe { one(count, list, |to| give(to, pointer(DEVICE))) }
    }

    fn zeDeviceGetProperties(device: ze::ze_device_handle_t, properties: *mut ze::ze_device_properties_t) {
        is_device(device)?;
        // SAFETY: the contract of the call.
        let it = unsafe {
            structure(properties, ze::ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES_1_2)?;
            &mut *properties
        };
        it.type_ = ze::ZE_DEVICE_TYPE_GPU;
        it.vendorId = 0x8086;
        it.maxMemAllocSize = 1 << 30;
        (it.numSlices, it.numSubslicesPerSlice, it.numEUsPerSubslice) = (8, 4, 16);
        it.timerResolution = 1_000_000_000;
        it.timestampValidBits = 36;
        it.uuid.id = [7; 16];
        for (to, from) in it.name.iter_mut().zip(c"Level Zero Double".to_bytes_with_nul()) {
            *to = *from as c_char;
        }
        Ok(())
    }

    fn zeDeviceGetComputeProperties(
        device: ze::ze_device_handle_t,
        properties: *mut ze::ze_device_compute_properties_t,
    ) {
        is_device(device)?;
        // SAFETY: the contract of the call.
        let it = unsafe {
            structure(properties, ze::ZE_STRUCTURE_TYPE_DEVICE_COMPUTE_PROPERTIES)?;
            &mut *properties
        };
        it.maxTotalGroupSize = GROUP;
        let widths = with(|world| widths(world));
        it.numSubGroupSizes = widths.len() as u32;
        it.subGroupSizes[..widths.len()].copy_from_slice(&widths);
        Ok(())
    }

    fn zeDeviceGetMemoryProperties(
        device: ze::ze_device_handle_t,
        count: *mut u32,
        list: *mut ze::ze_device_memory_properties_t,
    ) {
        is_device(device)?;
        // SAFETY: the contract of the call.
        unsafe {
            one(count, list, |to| {
                structure(to, ze::ZE_STRUCTURE_TYPE_DEVICE_MEMORY_PROPERTIES)?;
                (*to).totalSize = MEMORY;
                Ok(())
            })
        }
    }

    fn zeDeviceGetModuleProperties(
        device: ze::ze_device_handle_t,
        _properties: *mut ze::ze_device_module_properties_t,
    ) {
        is_device(device)
    }

    fn zeDevicePciGetPropertiesExt(device: ze::ze_device_handle_t, properties: *mut ze::ze_pci_ext_properties_t) {
        is_device(device)?;
        // SAFETY: the contract of the call.
        unsafe {
            structure(properties, ze::ZE_STRUCTURE_TYPE_PCI_EXT_PROPERTIES)?;
            (*properties).address = ze::ze_pci_address_ext_t { domain: 0, bus: 3, device: 0, function: 0 };
        }
        Ok(())
    }

    fn zeDeviceGetCommandQueueGroupProperties(
        device: ze::ze_device_handle_t,
        count: *mut u32,
        list: *mut ze::ze_command_queue_group_properties_t,
    ) {
        is_device(device)?;
        // SAFETY: the contract of the call.
        unsafe {
            one(count, list, |to| {
                structure(to, ze::ZE_STRUCTURE_TYPE_COMMAND_QUEUE_GROUP_PROPERTIES)?;
                (*to).flags = ze::ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COMPUTE;
                (*to).numQueues = 1;
                Ok(())
            })
        }
    }

    fn zeDeviceGetStatus(device: ze::ze_device_handle_t) {
        is_device(device)
    }

    fn zeContextCreate(
        _driver: ze::ze_driver_handle_t,
        description: *const ze::ze_context_desc_t,
        context: *mut ze::ze_context_handle_t,
    ) {
        // SAFETY: the contract of the call.
        unsafe {
            structure(description, ze::ZE_STRUCTURE_TYPE_CONTEXT_DESC)?;
            give(context, pointer(with(|world| world.add(Object::Context))))
        }
    }

    fn zeContextDestroy(context: ze::ze_context_handle_t) {
        destroy(context as usize, |object| matches!(object, Object::Context)).map(drop)
    }

    fn zeMemAllocDevice(
        context: ze::ze_context_handle_t,
        description: *const ze::ze_device_mem_alloc_desc_t,
        size: usize,
        alignment: usize,
        device: ze::ze_device_handle_t,
        memory: *mut *mut c_void,
    ) {
        is_context(context)?;
        is_device(device)?;
        // SAFETY: the contract of the call.
        let it = unsafe { structure(description, ze::ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC)? };
        // More than a plain allocation takes has to be asked for.
        if size > 1 << 30 && it.pNext.is_null() {
            return Err(ze::ZE_RESULT_ERROR_UNSUPPORTED_SIZE);
        }
        // SAFETY: the contract of the call.
        unsafe { give(memory, pointer(allocate(size, alignment)?)) }
    }

    fn zeMemAllocHost(
        context: ze::ze_context_handle_t,
        description: *const ze::ze_host_mem_alloc_desc_t,
        size: usize,
        alignment: usize,
        memory: *mut *mut c_void,
    ) {
        is_context(context)?;
        // SAFETY: the contract of the call.
        unsafe {
            structure(description, ze::ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC)?;
            give(memory, pointer(allocate(size, alignment)?))
        }
    }

    fn zeMemFree(context: ze::ze_context_handle_t, memory: *mut c_void) {
        is_context(context)?;
        let object = destroy(memory as usize, |object| matches!(object, Object::Memory { .. }))?;
        if let Object::Memory { layout } = object {
            with(|world| world.taken -= layout.size() as u64);
            // SAFETY: allocated with this layout, freed once.
            unsafe { dealloc(memory.cast(), layout) };
        }
        Ok(())
    }

    fn zeModuleCreate(
        context: ze::ze_context_handle_t,
        device: ze::ze_device_handle_t,
        description: *const ze::ze_module_desc_t,
        module: *mut ze::ze_module_handle_t,
        log: *mut ze::ze_module_build_log_handle_t,
    ) {
        is_context(context)?;
        is_device(device)?;
        // SAFETY: the contract of the call.
        let it = unsafe { structure(description, ze::ZE_STRUCTURE_TYPE_MODULE_DESC)? };
        if it.format != ze::ZE_MODULE_FORMAT_IL_SPIRV {
            return Err(ze::ZE_RESULT_ERROR_UNSUPPORTED_ENUMERATION);
        }
        // SAFETY: as above.
        let bytes = unsafe { std::slice::from_raw_parts(it.pInputModule, it.inputSize) };
        let made = read_module(bytes);
        if !log.is_null() {
            let text = made.as_ref().err().cloned().unwrap_or_default();
            // SAFETY: as above.
            unsafe { log.write(pointer(with(|world| world.add(Object::Log(text))))) };
        }
        let made = made.map_err(|_| ze::ZE_RESULT_ERROR_MODULE_BUILD_FAILURE)?;
        // SAFETY: as above.
        unsafe { give(module, pointer(with(|world| world.add(Object::Module(made))))) }
    }

    fn zeModuleDestroy(module: ze::ze_module_handle_t) {
        destroy(module as usize, |object| matches!(object, Object::Module(_))).map(drop)
    }

    fn zeModuleBuildLogGetString(log: ze::ze_module_build_log_handle_t, size: *mut usize, text: *mut c_char) {
        let said = with(|world| found!(world, log, Object::Log(text) => text.clone()))?;
        // SAFETY: the contract of the call: the size is that of the buffer.
        unsafe {
            if !text.is_null() {
                let bytes = said.as_bytes().iter().copied().chain([0]).take(*size);
                bytes.enumerate().for_each(|(i, byte)| text.add(i).write(byte as c_char));
            }
            give(size, said.len() + 1)
        }
    }

    fn zeModuleBuildLogDestroy(log: ze::ze_module_build_log_handle_t) {
        destroy(log as usize, |object| matches!(object, Object::Log(_))).map(drop)
    }

    fn zeKernelCreate(
        module: ze::ze_module_handle_t,
        description: *const ze::ze_kernel_desc_t,
        kernel: *mut ze::ze_kernel_handle_t,
    ) {
        // SAFETY: the contract of the call.
        let name = unsafe {
            let it = structure(description, ze::ZE_STRUCTURE_TYPE_KERNEL_DESC)?;
            CStr::from_ptr(it.pKernelName)
        };
        let module = with(|world| found!(world, module, Object::Module(module) => module.clone()))?;
        if name.to_bytes() != module.entry.as_bytes() {
            return Err(ze::ZE_RESULT_ERROR_INVALID_KERNEL_NAME);
        }
        let made = Kernel { module, threads: 0, argument: Vec::new(), has_indirect_access: false };
        // SAFETY: as above.
        unsafe { give(kernel, pointer(with(|world| world.add(Object::Kernel(made))))) }
    }

    fn zeKernelDestroy(kernel: ze::ze_kernel_handle_t) {
        destroy(kernel as usize, |object| matches!(object, Object::Kernel(_))).map(drop)
    }

    fn zeKernelSetGroupSize(kernel: ze::ze_kernel_handle_t, x: u32, y: u32, z: u32) {
        if x == 0 || x > GROUP || (y, z) != (1, 1) {
            return Err(ze::ZE_RESULT_ERROR_INVALID_GROUP_SIZE_DIMENSION);
        }
        with(|world| found!(world, kernel, Object::Kernel(kernel) => kernel.threads = x))
    }

    fn zeKernelSetArgumentValue(kernel: ze::ze_kernel_handle_t, index: u32, size: usize, value: *const c_void) {
        if index != 0 {
            return Err(ze::ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_INDEX);
        }
        // SAFETY: the contract of the call.
        let bytes = unsafe { std::slice::from_raw_parts(value.cast::<u8>(), size) };
        with(|world| found!(world, kernel, Object::Kernel(kernel) => kernel.argument = bytes.to_vec()))
    }

    fn zeKernelSetIndirectAccess(kernel: ze::ze_kernel_handle_t, flags: ze::ze_kernel_indirect_access_flags_t) {
        let all = ze::ZE_KERNEL_INDIRECT_ACCESS_FLAG_HOST | ze::ZE_KERNEL_INDIRECT_ACCESS_FLAG_DEVICE;
        with(|world| found!(world, kernel, Object::Kernel(kernel) => kernel.has_indirect_access = flags & all == all))
    }

    fn zeKernelGetProperties(kernel: ze::ze_kernel_handle_t, _properties: *mut ze::ze_kernel_properties_t) {
        with(|world| found!(world, kernel, Object::Kernel(_) => ()))
    }

    fn zeCommandQueueCreate(
        context: ze::ze_context_handle_t,
        device: ze::ze_device_handle_t,
        description: *const ze::ze_command_queue_desc_t,
        queue: *mut ze::ze_command_queue_handle_t,
    ) {
        is_context(context)?;
        is_device(device)?;
        // SAFETY: the contract of the call.
        unsafe {
            structure(description, ze::ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC)?;
            give(queue, pointer(with(|world| world.add(Object::Queue(Worker::new())))))
        }
    }

    fn zeCommandQueueDestroy(queue: ze::ze_command_queue_handle_t) {
        destroy(queue as usize, |object| matches!(object, Object::Queue(_))).map(drop)
    }

    fn zeCommandQueueExecuteCommandLists(
        queue: ze::ze_command_queue_handle_t,
        count: u32,
        lists: *mut ze::ze_command_list_handle_t,
        _fence: ze::ze_fence_handle_t,
    ) {
        // SAFETY: the contract of the call.
        let lists = unsafe { std::slice::from_raw_parts(lists, count as usize) };
        with(|world| {
            let commands = lists.iter().map(|&list| match found!(world, list, Object::List(list) => list)? {
                List::Recorded { commands, is_closed: true } => Ok(commands.clone()),
                _ => Err(ze::ZE_RESULT_ERROR_INVALID_COMMAND_LIST_TYPE),
            });
            let commands = commands.collect::<Answer<Vec<_>>>()?;
            found!(world, queue, Object::Queue(worker) => worker.give(Job::Lists(commands)))
        })
    }

    fn zeCommandQueueSynchronize(_queue: ze::ze_command_queue_handle_t, _timeout: u64) {
        Err(ze::ZE_RESULT_ERROR_UNSUPPORTED_FEATURE)
    }

    fn zeCommandListCreate(
        context: ze::ze_context_handle_t,
        device: ze::ze_device_handle_t,
        description: *const ze::ze_command_list_desc_t,
        list: *mut ze::ze_command_list_handle_t,
    ) {
        is_context(context)?;
        is_device(device)?;
        let made = Object::List(List::Recorded { commands: Vec::new(), is_closed: false });
        // SAFETY: the contract of the call.
        unsafe {
            structure(description, ze::ZE_STRUCTURE_TYPE_COMMAND_LIST_DESC)?;
            give(list, pointer(with(|world| world.add(made))))
        }
    }

    fn zeCommandListCreateImmediate(
        context: ze::ze_context_handle_t,
        device: ze::ze_device_handle_t,
        description: *const ze::ze_command_queue_desc_t,
        list: *mut ze::ze_command_list_handle_t,
    ) {
        is_context(context)?;
        is_device(device)?;
        // SAFETY: the contract of the call.
        unsafe {
            structure(description, ze::ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC)?;
            let made = Object::List(List::Immediate(Worker::new()));
            give(list, pointer(with(|world| world.add(made))))
        }
    }

    fn zeCommandListDestroy(list: ze::ze_command_list_handle_t) {
        destroy(list as usize, |object| matches!(object, Object::List(_))).map(drop)
    }

    fn zeCommandListClose(list: ze::ze_command_list_handle_t) {
        with(|world| match found!(world, list, Object::List(list) => list)? {
            List::Recorded { is_closed, .. } if !*is_closed => {
                *is_closed = true;
                Ok(())
            }
            _ => Err(ze::ZE_RESULT_ERROR_INVALID_COMMAND_LIST_TYPE),
        })
    }

    fn zeCommandListAppendMemoryCopy(
        list: ze::ze_command_list_handle_t,
        to: *mut c_void,
        from: *const c_void,
        size: usize,
        signal: ze::ze_event_handle_t,
        waits: u32,
        _events: *mut ze::ze_event_handle_t,
    ) {
        no_events(signal, waits)?;
        append(list, Command::Copy(from as usize, to as usize, size))
    }

    fn zeCommandListAppendMemoryFill(
        list: ze::ze_command_list_handle_t,
        at: *mut c_void,
        pattern: *const c_void,
        pattern_size: usize,
        size: usize,
        signal: ze::ze_event_handle_t,
        waits: u32,
        _events: *mut ze::ze_event_handle_t,
    ) {
        no_events(signal, waits)?;
        if pattern_size != 1 {
            return Err(ze::ZE_RESULT_ERROR_INVALID_SIZE);
        }
        // SAFETY: the contract of the call.
        let byte = unsafe { pattern.cast::<u8>().read() };
        append(list, Command::Fill(at as usize, byte, size))
    }

    fn zeCommandListAppendBarrier(
        list: ze::ze_command_list_handle_t,
        signal: ze::ze_event_handle_t,
        waits: u32,
        _events: *mut ze::ze_event_handle_t,
    ) {
        no_events(signal, waits)?;
        append(list, Command::Barrier)
    }

    fn zeCommandListAppendLaunchKernel(
        list: ze::ze_command_list_handle_t,
        kernel: ze::ze_kernel_handle_t,
        groups: *const ze::ze_group_count_t,
        signal: ze::ze_event_handle_t,
        waits: u32,
        _events: *mut ze::ze_event_handle_t,
    ) {
        no_events(signal, waits)?;
        // SAFETY: the contract of the call.
        let Some(groups) = (unsafe { groups.as_ref() }) else { return Err(ze::ZE_RESULT_ERROR_INVALID_NULL_POINTER) };
        let command = with(|world| {
            let kernel = found!(world, kernel, Object::Kernel(kernel) => kernel)?;
            if !kernel.has_indirect_access || kernel.threads == 0 || kernel.argument.is_empty() {
                return Err(ze::ZE_RESULT_ERROR_INVALID_ARGUMENT);
            }
            Ok(Command::Kernel {
                entry: kernel.module.entry,
                width: kernel.module.width,
                groups: [groups.groupCountX, groups.groupCountY, groups.groupCountZ],
                threads: kernel.threads,
                argument: kernel.argument.clone(),
            })
        })?;
        append(list, command)
    }

    fn zeCommandListAppendSignalEvent(list: ze::ze_command_list_handle_t, it: ze::ze_event_handle_t) {
        append(list, Command::Signal(event(it)?))
    }

    fn zeCommandListAppendWaitOnEvents(
        list: ze::ze_command_list_handle_t,
        count: u32,
        events: *mut ze::ze_event_handle_t,
    ) {
        // SAFETY: the contract of the call.
        let events = unsafe { std::slice::from_raw_parts(events, count as usize) };
        events.iter().try_for_each(|&it| append(list, Command::Wait(event(it)?)))
    }

    fn zeCommandListAppendEventReset(list: ze::ze_command_list_handle_t, it: ze::ze_event_handle_t) {
        append(list, Command::Reset(event(it)?))
    }

    fn zeCommandListAppendWriteGlobalTimestamp(
        list: ze::ze_command_list_handle_t,
        to: *mut u64,
        signal: ze::ze_event_handle_t,
        waits: u32,
        _events: *mut ze::ze_event_handle_t,
    ) {
        no_events(signal, waits)?;
        append(list, Command::Time(to as usize))
    }

    fn zeEventPoolCreate(
        context: ze::ze_context_handle_t,
        description: *const ze::ze_event_pool_desc_t,
        _devices: u32,
        _list: *mut ze::ze_device_handle_t,
        pool: *mut ze::ze_event_pool_handle_t,
    ) {
        is_context(context)?;
        // SAFETY: the contract of the call.
        unsafe {
            let it = structure(description, ze::ZE_STRUCTURE_TYPE_EVENT_POOL_DESC)?;
            // Whoever asks events from the host has to say so.
            if it.flags & ze::ZE_EVENT_POOL_FLAG_HOST_VISIBLE == 0 {
                return Err(ze::ZE_RESULT_ERROR_INVALID_ARGUMENT);
            }
            give(pool, pointer(with(|world| world.add(Object::Pool { count: it.count }))))
        }
    }

    fn zeEventPoolDestroy(pool: ze::ze_event_pool_handle_t) {
        destroy(pool as usize, |object| matches!(object, Object::Pool { .. })).map(drop)
    }

    fn zeEventCreate(
        pool: ze::ze_event_pool_handle_t,
        description: *const ze::ze_event_desc_t,
        it: *mut ze::ze_event_handle_t,
    ) {
        // SAFETY: the contract of the call.
        let index = unsafe { structure(description, ze::ZE_STRUCTURE_TYPE_EVENT_DESC)?.index };
        if index >= with(|world| found!(world, pool, Object::Pool { count } => *count))? {
            return Err(ze::ZE_RESULT_ERROR_INVALID_ARGUMENT);
        }
        // SAFETY: as above.
        unsafe { give(it, pointer(with(|world| world.add(Object::Event(Arc::default()))))) }
    }

    fn zeEventDestroy(it: ze::ze_event_handle_t) {
        destroy(it as usize, |object| matches!(object, Object::Event(_))).map(drop)
    }

    fn zeEventHostReset(it: ze::ze_event_handle_t) {
        event(it)?.set(false);
        Ok(())
    }

    fn zeEventHostSynchronize(it: ze::ze_event_handle_t, timeout: u64) {
        let is_there = event(it)?.wait(Duration::from_nanos(timeout));
        match crate::world::LOST.load(std::sync::atomic::Ordering::SeqCst) {
            true => Err(ze::ZE_RESULT_ERROR_DEVICE_LOST),
            false if is_there => Ok(()),
            false => Err(ze::ZE_RESULT_NOT_READY),
        }
    }

    fn zeEventQueryStatus(it: ze::ze_event_handle_t) {
        match *crate::world::lock(&event(it)?.signalled) {
            true => Ok(()),
            false => Err(ze::ZE_RESULT_NOT_READY),
        }
    }
}
