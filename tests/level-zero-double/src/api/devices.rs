//! Drivers, devices, contexts, and memory.

use super::{
    Answer, Code, DEVICE, DRIVER, GROUP, destroy, give, is_context, is_device, pointer, structure, widths,
};
use crate::objects::Object;
use crate::world::{MEMORY, enter, with};
use level_zero_sys as ze;
use std::alloc::{Layout, alloc, dealloc};
use std::ffi::{c_char, c_void};

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
}
